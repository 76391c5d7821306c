"""Gradients of attention: autograd's, against differences of the submission's own outputs."""

import numpy as np
import pytest
from softmark.plugin import item

N, S, Q, C, A = 2, 4, 3, 5, 2
KINDS = {
    "bahdanau": {"W_a.weight": (A, Q), "U_a.weight": (A, C), "v_a.weight": (1, A)},
    "dot": {},
    "general": {"W_a.weight": (Q, C)},
    "concat": {"W_a.weight": (A, Q + C), "v_a.weight": (1, A)},
}
EPS = 1e-5


@item("attention.gradients", depends="softmax.values")
@pytest.mark.parametrize("kind", KINDS)
def test_gradients(script, student, draw, kind):
    """Of query, keys and each parameter, from gradients at both context and weights."""
    run = script()
    name = "BahdanauAttention" if kind == "bahdanau" else "LuongAttention"
    of_query = C if kind == "dot" else Q
    size = (of_query, C, A) if kind == "bahdanau" else (of_query, C, kind, A)
    params = {key: draw(*shape) for key, shape in KINDS[kind].items()}
    module = run.new(name, *size, params=params)
    given = {"query": draw(N, of_query), "keys": draw(N, S, C)}
    upstream = draw(N, C), draw(N, S)
    tensors = {key: run.tensor(key, array) for key, array in given.items()}
    outputs = module.forward(*tensors.values())
    run.backward(*zip(outputs, upstream, strict=True))
    gradients = {key: run.gradient(tensor) for key, tensor in tensors.items()}
    of_params = run.gradients(module)
    directions, sides = {}, {}
    for key, array in (given | params).items():
        directions[key] = direction = draw(*array.shape)
        sides[key] = []
        for step in (EPS, -EPS):
            moved = {**given, **params, key: array + step * direction}
            if key in params:
                run.assign(module, {name: moved[name] for name in params})
            sides[key].append(module.forward(moved["query"], moved["keys"]))
        if key in params:
            run.assign(module, params)
    trace = student(run)
    found = {key: trace[handle] for key, handle in gradients.items()} | trace[of_params]
    for key, direction in directions.items():
        above, below = (
            sum(np.sum(trace[out] * up) for out, up in zip(side, upstream, strict=True))
            for side in sides[key]
        )
        slope = (above - below) / (2 * EPS)
        along = np.sum(found[key] * direction)
        assert abs(slope) > 1e-6, f"The outputs do not depend on {key}."
        assert abs(along - slope) < 1e-6 * max(1.0, abs(slope)), (
            f"The gradient of {key} is not the slope of the outputs: is something detached?"
        )
