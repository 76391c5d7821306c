"""ResetAfterGRUCell: one step, and the same loops over time with it, under a mask too."""

import numpy as np
import pytest
from softmark.plugin import item
from softmark.script import Rng

# (N, D, H). Sizes that all differ, D above, below and equal to H, then each of them 1.
SIZES = [(3, 5, 4), (5, 2, 7), (4, 3, 3), (1, 4, 3), (4, 1, 3), (3, 4, 1), (1, 1, 1)]
GRADIENTS = {
    "dx": "dx",
    "dh_prev": "dh_prev",
    "x_params": ('grads["W_x"]', 'grads["b_x"]'),
    "h_params": ('grads["W_h"]', 'grads["b_h"]'),
}
STEP = ("after.forward.h", *(f"after.backward.{name}" for name in GRADIENTS))
LOOPS = ("sequence.forward.h", "sequence.backward.dx", "sequence.backward.dh0")
MASKED = ("mask.forward.h", *(f"mask.backward.{name}" for name in ("dx", "dh0", "params")))
MASKS = [["11011", "00000", "01101"], ["0111"], ["1", "0"]]


def new_cell(run, draw, D, H):
    """A cell with random weights and biases, and gradients of zero."""
    params = draw.params("ResetAfterGRUCell", D, H, Rng(0))
    cell = run.new("ResetAfterGRUCell", D, H, Rng(0), params=params)
    cell.zero_grad()
    return cell


def one_step(run, draw):
    """Two steps of each cell, handed back last first; gradients add up over both."""
    done = []
    for N, D, H in SIZES:
        cell = new_cell(run, draw, D, H)
        caches = [cell.forward(draw(N, D), draw(N, H))[1] for _ in range(2)]
        done.append((cell, caches, draw(2, N, H)))
    for cell, caches, dh in done:
        for k in (1, 0):
            cell.backward(dh[k], caches[k])
        run.read(cell.grads)
    return run


@item("after.forward.h", draws="step")
def test_forward(script, agree, draw):
    """The new state of one step."""
    agree(one_step(script(), draw), only="h")


@item("after.forward.h")
def test_params_are_read_at_call_time(script, agree, draw):
    """One cell, given new parameters between two steps."""
    run = script()
    cell = new_cell(run, draw, 3, 4)
    x, h = draw(2, 3), draw(2, 4)
    cell.forward(x, h)
    run.assign(cell, draw.params("ResetAfterGRUCell", 3, 4, Rng(0)))
    cell.forward(x, h)
    agree(run, only="h")


@item("after.backward.{gradient}", depends="after.forward.h", draws="step")
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_backward(script, agree, draw, gradient):
    """Every gradient, after two steps, by name."""
    agree(one_step(script(), draw), only=GRADIENTS[gradient])


def there_and_back(run, draw, N, T, D, H, *mask):
    """A random batch, and a random gradient at every h."""
    cell = new_cell(run, draw, D, H)
    _, cache = run.call("gru_forward", cell, draw(N, T, D), draw(N, H), *mask)
    run.call("gru_backward", cell, draw(N, T, H), cache)
    run.read(cell.grads)


@item("after.sequence", depends=(*LOOPS, *STEP))
def test_sequence(script, agree, draw):
    """gru_forward and gru_backward with this cell in place of the other."""
    run = script()
    for sizes in [(3, 5, 4, 2), (2, 4, 2, 5), (1, 1, 3, 2)]:
        there_and_back(run, draw, *sizes)
    agree(run)


@item("after.masks", depends=(*LOOPS, *STEP, *MASKED, "after.sequence"))
def test_masks(script, agree, draw):
    """The same under masks with holes, and an empty row."""
    run = script()
    for rows in MASKS:
        mask = np.array([[c == "1" for c in row] for row in rows])
        there_and_back(run, draw, *mask.shape, 3, 2, mask)
    agree(run)
