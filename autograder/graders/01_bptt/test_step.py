"""One step, forward and backward, on random states, biases and upstream gradients."""

import pytest
from softmark.plugin import item
from softmark.script import Rng

# (N, D, H). Sizes that all differ, D above, below and equal to H, then each of them 1.
SIZES = [(3, 5, 4), (5, 2, 7), (4, 3, 3), (1, 4, 3), (4, 1, 3), (3, 4, 1), (1, 1, 1)]
GRADIENTS = {
    "dx": "dx",
    "dh_prev": "dh_prev",
    "dW_xh": 'grads["W_xh"]',
    "dW_hh": 'grads["W_hh"]',
    "db_h": 'grads["b_h"]',
}


def new_cell(run, draw, D, H):
    """A cell with random weights and biases."""
    return run.new("RNNCell", D, H, Rng(0), params=draw.params("RNNCell", D, H, Rng(0)))


def one_step(run, draw):
    """Two steps of each cell, so that nothing may be left behind by the first; then its gradients."""
    done = []
    for N, D, H in SIZES:
        cell = new_cell(run, draw, D, H)
        caches = [cell.forward(draw(N, D), draw(N, H))[1] for _ in range(2)]
        done.append((cell, caches[0], draw(N, H)))
    for cell, cache, dh in done:
        cell.backward(dh, cache)
        run.read(cell.grads)
    return run


@item("step.forward.h", draws="step")
def test_forward(script, agree, draw):
    """The new state of one step."""
    agree(one_step(script(), draw), only="h")


@item("step.forward.h")
def test_params_are_read_at_call_time(script, agree, draw):
    """Two cells in turn, one of them given new parameters: each uses those it has at the call."""
    run = script()
    cells = [new_cell(run, draw, 3, 4), new_cell(run, draw, 3, 4)]
    x, h = draw(2, 3), draw(2, 4)
    for cell in cells * 2:
        cell.forward(x, h)
    run.assign(cells[0], draw.params("RNNCell", 3, 4, Rng(0)))
    cells[0].forward(x, h)
    agree(run, only="h")


@item("step.backward.{gradient}", depends="step.forward.h", draws="step")
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_backward(script, agree, draw, gradient):
    """Every gradient of one step, by its name."""
    agree(one_step(script(), draw), only=GRADIENTS[gradient])
