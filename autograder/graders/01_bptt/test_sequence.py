"""Whole sequences: random first states, and a random gradient at every step."""

import pytest
from softmark.plugin import item
from softmark.script import Rng

# (N, T, D, H). Sizes that all differ, D above and below H, then each of them 1.
SIZES = [(3, 5, 4, 6), (4, 7, 3, 2), (1, 4, 3, 2), (3, 1, 2, 4), (2, 4, 1, 3), (3, 5, 2, 1)]
# Each gradient, the gradient of one step that it is made of, and the output that holds it.
GRADIENTS = [
    ("dx", "dx", "dx"),
    ("dh0", "dh_prev", "dh0"),
    ("dW_xh", "dW_xh", 'grads["W_xh"]'),
    ("dW_hh", "dW_hh", 'grads["W_hh"]'),
    ("db_h", "db_h", 'grads["b_h"]'),
]
EARLIER = (
    "step.forward.h",
    "sequence.forward.h",
    "step.backward.dh_prev",
    "step.accumulate",
    "step.backward.{of_a_step}",
)


def sequences(run, draw):
    """Random batches from random states; then the gradients of a loss that looks at every h."""
    done = []
    for N, T, D, H in SIZES:
        cell = run.new("RNNCell", D, H, Rng(0), params=draw.params("RNNCell", D, H, Rng(0)))
        _, cache = run.call("rnn_forward", cell, draw(N, T, D), draw(N, H))
        done.append((cell, cache, draw(N, T, H)))
    for cell, cache, dh in done:
        run.call("rnn_backward", cell, dh, cache)
        run.read(cell.grads)
    return run


@item("sequence.forward.h", depends="step.forward.h", draws="sequence")
def test_forward(script, agree, draw):
    """h after every step, starting from h0 as it is given."""
    agree(sequences(script(), draw), only="h")


@item("sequence.backward.{gradient}", depends=EARLIER, draws="sequence")
@pytest.mark.parametrize("gradient, of_a_step, output", GRADIENTS)
def test_backward(script, agree, draw, gradient, of_a_step, output):
    """Every gradient, from a loss that looks at every h."""
    agree(sequences(script(), draw), only=output)
