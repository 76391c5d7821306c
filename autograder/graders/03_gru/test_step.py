"""One step of GRUCell, forward part by part, then backward, on random states and upstream gradients."""

import pytest
from softmark.plugin import item
from softmark.script import Rng

# (N, D, H). Sizes that all differ, D above, below and equal to H, then each of them 1.
SIZES = [(3, 5, 4), (5, 2, 7), (4, 3, 3), (1, 4, 3), (4, 1, 3), (3, 4, 1), (1, 1, 1)]
FORWARD = ("step.candidate", "step.update", "step.reset", "step.forward.h")
GRADIENTS = {
    "db_h": 'grads["b_h"]',
    "dW_h": 'grads["W_h"]',
    "db": 'grads["b"]',
    "dW": 'grads["W"]',
    "dx": "dx",
    "dh_prev": "dh_prev",
}


def new_cell(run, D, H, params):
    """A cell with these parameters, and gradients of their shapes whatever it did with them."""
    cell = run.new("GRUCell", D, H, Rng(0), params=params)
    cell.zero_grad()
    return cell


def random_params(draw, D, H):
    return draw.params("GRUCell", D, H, Rng(0))


def forward_with(run, draw, change):
    """One step of every size, with parameters that ``change`` holds at some value."""
    for N, D, H in SIZES:
        params = random_params(draw, D, H)
        change(params, H)
        new_cell(run, D, H, params).forward(draw(N, D), draw(N, H))
    return run


def one_step(run, draw):
    """Two steps of each cell, so that nothing may be left behind by the first; then its gradients."""
    done = []
    for N, D, H in SIZES:
        cell = new_cell(run, D, H, random_params(draw, D, H))
        caches = [cell.forward(draw(N, D), draw(N, H))[1] for _ in range(2)]
        done.append((cell, caches[0], draw(N, H)))
    for cell, cache, dh in done:
        cell.backward(dh, cache)
        run.read(cell.grads)
    return run


@item("step.candidate")
def test_candidate(script, agree, draw):
    """With W and b at 0 both gates are 1/2: which is which, and what z means, does not show."""

    def gates_half_open(params, H):
        params["W"][:] = 0
        params["b"][:] = 0

    agree(forward_with(script(), draw, gates_half_open), only="h")


@item("step.update")
def test_update_gate(script, agree, draw):
    """With W_h at 0 and b_h large the candidate is 1, whatever the reset gate does."""

    def candidate_of_one(params, H):
        params["W_h"][:] = 0
        params["b_h"][:] = 40

    agree(forward_with(script(), draw, candidate_of_one), only="h")


@item("step.reset", depends="step.candidate")
def test_reset_gate(script, agree, draw):
    """With the columns of z at 0 half of h_prev stays, and the reset gate alone is left to see."""

    def update_gate_half_open(params, H):
        params["W"][:, H:] = 0
        params["b"][H:] = 0

    agree(forward_with(script(), draw, update_gate_half_open), only="h")


@item("step.forward.h", depends=FORWARD[:3], draws="step")
def test_forward(script, agree, draw):
    """The new state of one step."""
    agree(one_step(script(), draw), only="h")


@item("step.forward.h", depends=FORWARD[:3])
def test_params_are_read_at_call_time(script, agree, draw):
    """Two cells in turn, one of them given new parameters: each uses those it has at the call."""
    run = script()
    cells = [new_cell(run, 3, 4, random_params(draw, 3, 4)) for _ in range(2)]
    x, h = draw(2, 3), draw(2, 4)
    for cell in cells * 2:
        cell.forward(x, h)
    run.assign(cells[0], random_params(draw, 3, 4))
    cells[0].forward(x, h)
    agree(run, only="h")


@item("step.backward.{gradient}", depends=FORWARD, draws="step")
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_backward(script, agree, draw, gradient):
    """Every gradient of one step."""
    agree(one_step(script(), draw), only=GRADIENTS[gradient])
