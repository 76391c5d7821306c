"""Autograd's gradients of scaled_dot_product_attention, against differences of its own outputs."""

import numpy as np
from softmark.plugin import item

LEAD, TQ, TK, D, DV = (2, 3), 4, 5, 3, 2
EPS = 1e-5


@item("sdpa.gradient", depends=("sdpa.mask", "sdpa.empty"))
def test_gradients(script, student, draw):
    """Of q, k and v, from gradients at both out and weights, with a row without a True."""
    run = script()
    given = {"q": draw(*LEAD, TQ, D), "k": draw(*LEAD, TK, D), "v": draw(*LEAD, TK, DV)}
    mask = np.ones((2, 1, TQ, TK), dtype=bool)
    mask[0, 0, 1, 2:] = mask[1, 0, :2, 0] = mask[1, 0, 2] = False
    upstream = draw(*LEAD, TQ, DV), draw(*LEAD, TQ, TK)
    tensors = {key: run.tensor(key, array) for key, array in given.items()}
    outputs = run.call("scaled_dot_product_attention", *tensors.values(), mask)
    run.backward(*zip(outputs, upstream, strict=True))
    gradients = {key: run.gradient(tensor) for key, tensor in tensors.items()}
    directions, sides = {}, {}
    for key, array in given.items():
        directions[key] = draw(*array.shape)
        moved = [{**given, key: array + step * directions[key]} for step in (EPS, -EPS)]
        sides[key] = [
            run.call("scaled_dot_product_attention", *each.values(), mask) for each in moved
        ]
    trace = student(run)
    for key, gradient in gradients.items():
        found = trace[gradient]
        assert np.isfinite(found).all(), f"The gradient of {key} is not finite."
        # rows that are not finite are another item's
        above, below = (
            sum(np.nansum(trace[out] * up) for out, up in zip(side, upstream, strict=True))
            for side in sides[key]
        )
        slope = (above - below) / (2 * EPS)
        assert abs(slope) > 1e-6, f"The outputs do not depend on {key}."
        along = np.sum(found * directions[key])
        assert abs(along - slope) < 1e-6 * max(1.0, abs(slope)), (
            f"The gradient of {key} is not the slope of the outputs: is something detached?"
        )
    assert not np.any(trace[gradients["q"]][1, :, 2]), (
        "The gradient of q must be exactly 0 in a row without a True."
    )
