"""Whole sequences: random first states, and a random gradient at every output."""

import pytest
from softmark.plugin import item
from softmark.script import Rng

# (N, T, D, H). Sizes that all differ, D above and below H, then each of them 1.
SIZES = [(3, 5, 4, 6), (1, 4, 3, 2), (4, 1, 1, 3), (2, 4, 3, 1)]
# Each gradient, the gradient of one step that it is made of, and the output that holds it.
GRADIENTS = [
    ("dx", "dx", "dx"),
    ("dh0", "dh_prev", "dh0"),
    ("dc0", "dc_prev", "dc0"),
    ("dW", "dW", 'grads["W"]'),
    ("db", "db", 'grads["b"]'),
]
EARLIER = (
    "step.forward.h",
    "step.forward.c",
    "sequence.forward.h",
    "sequence.forward.c_last",
    "step.backward.dh_prev",
    "step.backward.dc_prev",
    "step.accumulate",
    "step.backward.{of_a_step}",
)


def sequences(run, draw):
    """Random batches from random states; then the gradients of a loss that looks at all of it."""
    done = []
    for N, T, D, H in SIZES:
        cell = run.new("LSTMCell", D, H, Rng(0), params=draw.params("LSTMCell", D, H, Rng(0)))
        cell.zero_grad()  # whatever __init__ made
        _, _, cache = run.call("lstm_forward", cell, draw(N, T, D), draw(N, H), draw(N, H))
        done.append((cell, cache, draw(N, T, H), draw(N, H)))
    for cell, cache, dh, dc_last in done:
        run.call("lstm_backward", cell, dh, dc_last, cache)
        run.read(cell.grads)
    return run


@item("sequence.forward.{output}", depends=("step.forward.h", "step.forward.c"), draws="sequence")
@pytest.mark.parametrize("output", ["h", "c_last"])
def test_forward(script, agree, draw, output):
    """h after every step and c after the last, starting from h0 and c0 as they are given."""
    agree(sequences(script(), draw), only=output)


@item("sequence.backward.{gradient}", depends=EARLIER, draws="sequence")
@pytest.mark.parametrize("gradient, of_a_step, output", GRADIENTS)
def test_backward(script, agree, draw, gradient, of_a_step, output):
    """Every gradient, from a loss that looks at every h and at c_last."""
    agree(sequences(script(), draw), only=output)
