"""Gradients of MultiHeadAttention: autograd's, against differences of the submission's own outputs."""

import numpy as np
from softmark.plugin import item

N, TQ, TK, E, H = 2, 3, 4, 6, 2
EPS = 2e-6


@item("mha.gradients", depends="sdpa.gradient")
def test_gradients(script, student, draw):
    """Of query, key, value, every weight and every bias."""
    run = script()
    params = {}
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        params |= {f"{name}.weight": 0.6 * draw(E, E), f"{name}.bias": draw(E)}
    made = run.new("MultiHeadAttention", E, H, params=params)
    given = {"query": draw(N, TQ, E), "key": draw(N, TK, E), "value": draw(N, TK, E)}
    upstream = draw(N, TQ, E)
    tensors = {key: run.tensor(key, array) for key, array in given.items()}
    run.backward((made.forward(**tensors), upstream))
    gradients = {key: run.gradient(tensor) for key, tensor in tensors.items()}
    of_params = run.gradients(made)
    directions, sides = {}, {}
    groups = {"inputs": list(given)}
    groups |= {what: [key for key in params if key.endswith(what)] for what in ("weight", "bias")}
    for group, keys in groups.items():  # together: each of them shows in the slope
        directions |= {key: draw(*(given | params)[key].shape) for key in keys}
        sides[group] = []
        for step in (EPS, -EPS):
            moved = {**given, **params}
            moved |= {key: moved[key] + step * directions[key] for key in keys}
            run.assign(made, {name: moved[name] for name in params})
            sides[group].append(made.forward(**{name: moved[name] for name in given}))
    trace = student(run)
    found = {key: trace[handle] for key, handle in gradients.items()} | trace[of_params]
    for group, keys in groups.items():
        above, below = (np.sum(trace[side] * upstream) for side in sides[group])
        slope = (above - below) / (2 * EPS)
        for key in keys:  # the bias of the keys adds the same number to all scores of a query
            assert key == "k_proj.bias" or np.abs(found[key]).max() > 1e-10, (
                f"The gradient of {key} is 0."
            )
        along = sum(np.sum(found[key] * directions[key]) for key in keys)
        assert abs(along - slope) < 1e-6 * max(1.0, abs(slope)), (
            f"The gradients of {', '.join(keys)} are not the slope of the outputs: is it detached?"
        )
