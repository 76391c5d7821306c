"""Autograd's gradients of batched_attention, against differences of its own outputs."""

import numpy as np
from softmark.plugin import item

N, h, TQ, TK, D = 2, 3, 5, 4, 3
EPS = 1e-5


@item("batched.gradient", depends=("batched.out", "batched.empty"))
def test_gradients(script, student, draw):
    """Of q, k and v; with causal the first query sees no key."""
    run = script()
    given = {"q": draw(N, h, TQ, D), "k": draw(N, h, TK, D), "v": draw(N, h, TK, D)}
    done = []
    for causal in (False, True):
        upstream = draw(N, h, TQ, D)
        tensors = {key: run.tensor(key, array) for key, array in given.items()}
        run.backward((run.call("batched_attention", *tensors.values(), causal), upstream))
        for key, array in given.items():
            along = draw(*array.shape)
            moved = [{**given, key: array + step * along} for step in (EPS, -EPS)]
            sides = [run.call("batched_attention", *each.values(), causal) for each in moved]
            done.append((key, causal, run.gradient(tensors[key]), along, upstream, sides))
    trace = student(run)
    for key, causal, gradient, along, upstream, sides in done:
        found = trace[gradient]
        assert np.isfinite(found).all(), f"The gradient of {key} is not finite."
        # rows that are not finite are another item's
        above, below = (np.nansum(trace[side] * upstream) for side in sides)
        slope = (above - below) / (2 * EPS)
        assert abs(slope) > 1e-6, f"out does not depend on {key}."
        assert abs(np.sum(found * along) - slope) < 1e-6 * max(1.0, abs(slope)), (
            f"The gradient of {key} is not the slope of out: is something detached?"
        )
        if key == "q" and causal:
            assert not np.any(found[:, :, 0]), (
                "The gradient of q must be exactly 0 where a query sees no key."
            )
