"""One step, forward and backward, on random states, biases and upstream gradients."""

import pytest
from softmark.plugin import item
from softmark.script import Rng

# (N, D, H). Sizes that all differ, D above, equal to and below H, then each of them 1.
SIZES = [(3, 5, 4), (4, 3, 3), (1, 2, 5), (4, 1, 3), (3, 4, 1)]
START = ("sigmoid.values", "cell.params")
FORWARD = ("step.forward.h", "step.forward.c")
GRADIENTS = {
    "dx": "dx",
    "dh_prev": "dh_prev",
    "dc_prev": "dc_prev",
    "dW": 'grads["W"]',
    "db": 'grads["b"]',
}


def new_cell(run, draw, D, H):
    """A cell with random weights and biases, and gradients of their shapes whatever __init__ made."""
    cell = run.new("LSTMCell", D, H, Rng(0), params=draw.params("LSTMCell", D, H, Rng(0)))
    cell.zero_grad()
    return cell


def one_step(run, draw):
    """Two steps of each cell, so that nothing may be left behind by the first; then its gradients."""
    done = []
    for N, D, H in SIZES:
        cell = new_cell(run, draw, D, H)
        caches = [cell.forward(draw(N, D), draw(N, H), draw(N, H))[2] for _ in range(2)]
        done.append((cell, caches[0], draw(N, H), draw(N, H)))
    for cell, cache, dh, dc in done:
        cell.backward(dh, dc, cache)
        run.read(cell.grads)
    return run


@item("step.forward.{output}", depends=START, draws="step")
@pytest.mark.parametrize("output", ["h", "c"])
def test_forward(script, agree, draw, output):
    """The new state of one step."""
    agree(one_step(script(), draw), only=output)


@item("step.forward.{output}", depends=START)
@pytest.mark.parametrize("output", ["h", "c"])
def test_params_are_read_at_call_time(script, agree, draw, output):
    """Two cells in turn, one of them given new parameters: each uses those it has at the call."""
    run = script()
    cells = [new_cell(run, draw, 3, 4), new_cell(run, draw, 3, 4)]
    x, h, c = draw(2, 3), draw(2, 4), draw(2, 4)
    for cell in cells * 2:
        cell.forward(x, h, c)
    run.assign(cells[0], draw.params("LSTMCell", 3, 4, Rng(0)))
    cells[0].forward(x, h, c)
    agree(run, only=output)


@item("step.backward.{gradient}", depends=START + FORWARD, draws="step")
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_backward(script, agree, draw, gradient):
    """Every gradient of one step, with gradient reaching both h and c."""
    agree(one_step(script(), draw), only=GRADIENTS[gradient])
