"""Whole sequences of GRUCell: random first states, and a random gradient at every h."""

import pytest
from softmark.plugin import item
from softmark.script import Rng

# (N, T, D, H). Sizes that all differ, D above and below H, then each of them 1.
SIZES = [(3, 5, 4, 6), (4, 7, 3, 2), (1, 4, 3, 2), (3, 1, 2, 4), (2, 4, 1, 3), (3, 5, 2, 1)]
FORWARD = ("step.candidate", "step.update", "step.reset", "step.forward.h")
# Each gradient, the gradient of one step that it is made of, and the output that holds it.
GRADIENTS = [
    ("dx", "dx", "dx"),
    ("dh0", "dh_prev", "dh0"),
    ("dW", "dW", 'grads["W"]'),
    ("db", "db", 'grads["b"]'),
    ("dW_h", "dW_h", 'grads["W_h"]'),
    ("db_h", "db_h", 'grads["b_h"]'),
]
EARLIER = (
    *FORWARD,
    "sequence.forward.h",
    "step.backward.dh_prev",
    "step.accumulate",
    "step.backward.{of_a_step}",
)


def sequences(run, draw):
    """Random batches from random states; then the gradients of a loss that looks at every h."""
    done = []
    for N, T, D, H in SIZES:
        cell = run.new("GRUCell", D, H, Rng(0), params=draw.params("GRUCell", D, H, Rng(0)))
        cell.zero_grad()
        _, cache = run.call("gru_forward", cell, draw(N, T, D), draw(N, H))
        done.append((cell, cache, draw(N, T, H)))
    for cell, cache, dh in done:
        run.call("gru_backward", cell, dh, cache)
        run.read(cell.grads)
    return run


@item("sequence.forward.h", depends=FORWARD, draws="sequence")
def test_forward(script, agree, draw):
    """h after every step, starting from h0 as it is given."""
    agree(sequences(script(), draw), only="h")


@item("sequence.backward.{gradient}", depends=EARLIER, draws="sequence")
@pytest.mark.parametrize("gradient, of_a_step, output", GRADIENTS)
def test_backward(script, agree, draw, gradient, of_a_step, output):
    """Every gradient, from a loss that looks at every h."""
    agree(sequences(script(), draw), only=output)
