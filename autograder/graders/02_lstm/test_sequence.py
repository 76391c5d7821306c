"""Whole sequences: random first states, and a random gradient at every output."""

import pytest
from softmark.plugin import item
from softmark.script import Rng

# (N, T, D, H). Sizes that all differ, then each of them 1 in turn.
SIZES = [(3, 5, 4, 6), (4, 7, 3, 2), (1, 4, 3, 2), (3, 1, 2, 4), (2, 4, 1, 3), (3, 5, 2, 1)]
# Each gradient, and the gradient of one step that it is made of.
GRADIENTS = {"dx": "dx", "dh0": "dh_prev", "dc0": "dc_prev", "dW": "dW", "db": "db"}
OUTPUTS = {"dW": 'grads["W"]', "db": 'grads["b"]'}
EARLIER = (
    "sequence.forward.h",
    "sequence.forward.c_last",
    "step.backward.dh_prev",
    "step.backward.dc_prev",
    "step.accumulate",
    "step.backward.{of_a_step}",
)


def forward(run, draw, N, T, D, H):
    """A cell with random parameters run over a random batch from a random state."""
    cell = run.new("LSTMCell", D, H, Rng(0), params=draw.params("LSTMCell", D, H, Rng(0)))
    _, _, cache = run.call("lstm_forward", cell, draw(N, T, D), draw(N, H), draw(N, H))
    return cell, cache


@item("sequence.forward.{output}", depends=("step.forward.h", "step.forward.c"))
@pytest.mark.parametrize("output", ["h", "c_last"])
def test_forward(script, agree, draw, output):
    """h after every step and c after the last, starting from h0 and c0 as they are given."""
    run = script()
    for sizes in SIZES:
        forward(run, draw, *sizes)
    agree(run, only=output)


@item("sequence.backward.{gradient}", depends=EARLIER)
@pytest.mark.parametrize("gradient, of_a_step", GRADIENTS.items())
def test_backward(script, agree, draw, gradient, of_a_step):
    """Every gradient, from a loss that looks at every h and at c_last."""
    run = script()
    for N, T, D, H in SIZES:
        cell, cache = forward(run, draw, N, T, D, H)
        run.call("lstm_backward", cell, draw(N, T, H), draw(N, H), cache)
        run.read(cell.grads)
    agree(run, only=OUTPUTS.get(gradient, gradient))
