"""Public tests for the GRU, in the order of the tasks. Run them in this folder:

    softmark check                        the first thing to look at, with hints
    python -m pytest -x test_public.py    the same tests without the hints, up to the first that
                                          fails; extensions not yet begun count as failures

"NotImplementedError: GRUCell.backward" says that GRUCell.backward is still to be written. The tests
are yours to read and to add to. They are fewer than the graders', and use other numbers. Core tasks
come first, then the other cell and the masks (extension); the PyTorch twin's tests have a file of
their own, test_public_torch.py.
"""

import functools
import sys
from pathlib import Path

import numpy as np
import pytest
from softmark.compare import check_close

sys.path.insert(0, str(Path(__file__).parent))  # the gru.py beside this file

import gru

LN2, LN3 = np.log(2), np.log(3)
SMOOTH = 1e-6  # how well central differences know a gradient
N, T, D, H = 3, 4, 5, 2
STEP = ["db_h", "dW_h", "db", "dW", "dx", "dh_prev"]
STEP_AFTER = ["dx", "dh_prev", "dW_x", "dW_h", "db_x", "db_h"]


def random_cell(rng, D, H, kind=gru.GRUCell):
    """A cell with random weights and, unlike a new one, random biases."""
    cell = kind(D, H, np.random.default_rng(0))
    cell.params = {key: 0.5 * rng.normal(size=p.shape) for key, p in cell.params.items()}
    cell.zero_grad()
    return cell


def slope(loss, array):
    """The gradient of ``loss()`` with respect to ``array``, by central differences."""
    gradient, step = np.zeros_like(array), 1e-5
    for place in np.ndindex(array.shape):
        value = array[place]
        array[place] = value + step
        above = loss()
        array[place] = value - step
        below = loss()
        array[place] = value
        gradient[place] = (above - below) / (2 * step)
    return gradient


# ---- 1. one step forward -------------------------------------------------------------------------


def worked_step():
    """The step with numbers of the handout: a cell, and its x and h_prev."""
    cell = gru.GRUCell(1, 1, np.random.default_rng(0))
    # The first row is that of x, the second that of h_prev; the columns of W are r and z.
    cell.params = {
        "W": np.array([[2.0, -1.0], [-1.0, 1.0]]),
        "b": np.array([-LN3, LN3 - 1]),
        "W_h": np.array([[1.0], [2.0]]),
        "b_h": np.array([LN2 - 2]),
    }
    cell.zero_grad()
    return cell, np.array([[1.0]]), np.array([[2.0]])


def test_step_by_hand():
    """The step with numbers of the handout: r = 1/4, z = 3/4, candidate = 3/5."""
    cell, x, h_prev = worked_step()
    h, _ = cell.forward(x, h_prev)
    try:
        check_close(h, np.array([[19 / 20]]), "h", ("N", "H"))
    except AssertionError as error:
        found = float(np.squeeze(h)) if np.size(h) == 1 else np.nan
        also = "Is x before h in [x, h]? Is r the first block of W and b, z the second?"
        if abs(found - 33 / 20) < 1e-9:
            also = "33/20 is what z = 1/4 would give: here z is the share of the new state."
        raise AssertionError(f"{error}\n{also}") from None


def test_reset_gate_acts_before_the_product():
    """Two units, one of them reset: the candidate sees 0 and 2, not 1 and 2, whatever W_h mixes."""
    cell = gru.GRUCell(1, 2, np.random.default_rng(0))
    cell.params = {
        "W": np.zeros((3, 4)),
        "b": np.array([-800.0, 800.0, 0.0, 0.0]),  # r, r, z, z: r is 0 and 1, z is 1/2
        "W_h": np.array([[0.0, 0.0], [5.0, 7.0], [0.5, 0.25]]),
        "b_h": np.array([0.0, LN2 - 0.5]),
    }
    h, _ = cell.forward(np.array([[3.0]]), np.array([[1.0, 2.0]]))
    expected = [[1 / 2 + np.tanh(1.0) / 2, 1 + 3 / 10]]
    check_close(h, np.array(expected), "h", ("N", "H"))


def test_blocks_of_gates():
    """Two units: the columns of r come first, both of them, then those of z."""
    cell = gru.GRUCell(3, 2, np.random.default_rng(0))
    b = np.array([5.0, -5.0, LN3, 0.0])  # r, r, z, z
    cell.params = {"W": np.zeros((5, 4)), "b": b, "W_h": np.zeros((5, 2)), "b_h": np.full(2, LN2)}
    h, _ = cell.forward(np.ones((2, 3)), np.array([[1.0, 2.0], [3.0, -1.0]]))
    # a quarter of 1.0 and three quarters of 3/5, half of 2.0 and half of 3/5, and so on
    check_close(h, np.array([[0.7, 1.3], [1.2, -0.2]]), "h", ("N", "H"))


def test_step_shapes():
    """h has shape (N, H), for a batch of one and sizes of one too."""
    rng = np.random.default_rng(2)
    for N, D, H in [(3, 5, 2), (1, 1, 1), (2, 1, 4)]:
        h, _ = random_cell(rng, D, H).forward(rng.normal(size=(N, D)), rng.normal(size=(N, H)))
        assert np.shape(h) == (N, H), f"h has shape {np.shape(h)}; it must be {(N, H)}."


def test_gates_far_out():
    """Pre-activations of 1e4 either way: no overflow on the way, and gates of exactly 0 and 1."""
    cell = gru.GRUCell(1, 2, np.random.default_rng(0))
    cell.params["b"] = np.array([0.0, 0.0, -1e4, 1e4])  # z is 0, then 1
    cell.params["W"][:] = 0
    cell.params["W_h"][:] = 0
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            h, _ = cell.forward(np.array([[1.0]]), np.array([[5.0, 7.0]]))
    except FloatingPointError as error:
        raise AssertionError(
            f"{error}. np.where computes both of its branches; "
            "take exp only of numbers that are not positive."
        ) from None
    check_close(h, np.array([[5.0, 0.0]]), "h", ("N", "H"))


# ---- 2. one step backward ------------------------------------------------------------------------


@pytest.mark.parametrize("name", STEP)
def test_step_backward_by_hand(name):
    """The step with numbers of the handout, backward: dh = 20."""
    cell, *inputs = worked_step()
    _, cache = cell.forward(*inputs)
    dx, dh_prev = cell.backward(np.array([[20.0]]), cache)
    by_hand = {
        "db_h": (cell.grads["b_h"], np.array([48 / 5])),
        "dW_h": (cell.grads["W_h"], np.array([[48 / 5], [24 / 5]])),
        "db": (cell.grads["b"], np.array([36 / 5, -21 / 4])),
        "dW": (cell.grads["W"], np.array([[36 / 5, -21 / 4], [72 / 5, -21 / 2]])),
        "dx": (dx, np.array([[117 / 4]])),
        "dh_prev": (dh_prev, np.array([[-53 / 20]])),
    }
    check_close(*by_hand[name], name)


@functools.cache
def step_gradients(kind):
    """Your own gradients of one step, and central differences of your own forward, by name.

    The loss is sum(h * dh) with a random dh, which is then its gradient with respect to h.
    """
    rng = np.random.default_rng(3)
    cell = random_cell(rng, D, H, kind)
    x, h_prev, dh = (rng.normal(size=shape) for shape in [(N, D), (N, H), (N, H)])

    def loss():
        return np.sum(cell.forward(x, h_prev)[0] * dh)

    arrays = {"x": x, "h_prev": h_prev} | cell.params
    numeric = {f"d{name}": slope(loss, array) for name, array in arrays.items()}
    dx, dh_prev = cell.backward(dh, cell.forward(x, h_prev)[1])
    yours = {"dx": dx, "dh_prev": dh_prev} | {f"d{key}": g for key, g in cell.grads.items()}
    return {name: (yours[name], numeric[name]) for name in numeric}


@pytest.mark.parametrize("name", STEP)
def test_step_backward(name):
    """Each gradient of one step agrees with central differences of your forward."""
    yours, numeric = step_gradients(gru.GRUCell)[name]
    check_close(yours, numeric, name, rtol=SMOOTH)


def test_gradients_add_up():
    """Two backward calls give the sum in grads; zero_grad starts again."""
    rng = np.random.default_rng(4)
    cell = random_cell(rng, D, H)
    _, cache = cell.forward(rng.normal(size=(N, D)), rng.normal(size=(N, H)))
    dh = rng.normal(size=(N, H))
    cell.backward(dh.copy(), cache)
    once = {key: np.array(grad) for key, grad in cell.grads.items()}
    cell.backward(dh.copy(), cache)
    for key, grad in once.items():
        check_close(cell.grads[key], 2 * grad, f'grads["{key}"]')
    cell.zero_grad()
    assert not np.any(cell.grads["W"]), "zero_grad must clear grads."


# ---- 3. a sequence forward -----------------------------------------------------------------------


def sequence_inputs(rng, kind=gru.GRUCell):
    """A cell, and x and h0 for it."""
    return random_cell(rng, D, H, kind), rng.normal(size=(N, T, D)), rng.normal(size=(N, H))


def test_sequence_of_one_step():
    """A sequence of one step is one step."""
    cell, x, h0 = sequence_inputs(np.random.default_rng(5))
    hs, _ = gru.gru_forward(cell, x[:, :1], h0)
    h, _ = cell.forward(x[:, 0], h0)
    check_close(hs, np.array(h)[:, None], "h", ("N", "T", "H"))


def test_sequence_in_two_parts():
    """The first steps, and the others from where these ended, give the whole sequence."""
    cell, x, h0 = sequence_inputs(np.random.default_rng(6))
    hs, _ = gru.gru_forward(cell, x, h0)
    first, _ = gru.gru_forward(cell, x[:, :1], h0)
    others, _ = gru.gru_forward(cell, x[:, 1:], first[:, -1])
    check_close(hs, np.concatenate([first, others], axis=1), "h", ("N", "T", "H"))


# ---- 4. a sequence backward ----------------------------------------------------------------------


@functools.cache
def sequence_gradients(kind):
    """As ``step_gradients``, for a sequence: the loss looks at every h."""
    rng = np.random.default_rng(7)
    cell, x, h0 = sequence_inputs(rng, kind)
    dh = rng.normal(size=(N, T, H))

    def loss():
        return np.sum(gru.gru_forward(cell, x, h0)[0] * dh)

    arrays = {"x": x, "h0": h0} | cell.params
    numeric = {f"d{name}": slope(loss, array) for name, array in arrays.items()}
    dx, dh0 = gru.gru_backward(cell, dh, gru.gru_forward(cell, x, h0)[1])
    yours = {"dx": dx, "dh0": dh0} | {f"d{key}": g for key, g in cell.grads.items()}
    return {name: (yours[name], numeric[name]) for name in numeric}


@pytest.mark.parametrize("name", ["dx", "dh0", "dW", "db", "dW_h", "db_h"])
def test_sequence_backward(name):
    """Each gradient of a sequence agrees with central differences of your forward."""
    yours, numeric = sequence_gradients(gru.GRUCell)[name]
    check_close(yours, numeric, name, rtol=SMOOTH)


# ---- 5. counting ---------------------------------------------------------------------------------


def test_count_of_your_own_cells():
    """As many as the arrays in params hold."""
    for kind, cell in [("gru", gru.GRUCell), ("gru_reset_after", gru.ResetAfterGRUCell)]:
        for D, H in [(5, 4), (3, 8), (1, 1)]:
            held = sum(p.size for p in cell(D, H, np.random.default_rng(0)).params.values())
            found = gru.count_parameters(kind, D, H)
            assert found == held, f'"{kind}" with D = {D}, H = {H} holds {held}, not {found}.'


def test_count_of_the_others():
    """D = 2, H = 3: an RNN has 6 + 9 weights and 3 biases, an LSTM four times as many."""
    assert gru.count_parameters("rnn", 2, 3) == 18
    assert gru.count_parameters("lstm", 2, 3) == 72


def test_count_of_an_unknown_kind():
    """An unknown kind is an error."""
    with pytest.raises(ValueError, match=r"kind|gru"):
        gru.count_parameters("convolution", 2, 3)


# ---- everything ----------------------------------------------------------------------------------


def test_inputs_are_left_alone():
    """Nothing that is passed in is changed."""
    rng = np.random.default_rng(8)
    cell, x, h0 = sequence_inputs(rng)
    dh = rng.normal(size=(N, T, H))
    given = {"x": x, "h0": h0, "dh": dh, **cell.params}
    before = {name: array.copy() for name, array in given.items()}
    gru.gru_backward(cell, dh, gru.gru_forward(cell, x, h0)[1])
    cell.backward(dh[:, 0], cell.forward(x[:, 0], h0)[1])
    changed = [name for name, array in given.items() if not np.array_equal(array, before[name])]
    assert not changed, (
        f"Changed in place: {', '.join(changed)}. += writes into the caller's array."
    )


def test_float32_stays_float32():
    """float32 parameters and inputs give float32 outputs."""
    rng = np.random.default_rng(9)
    cell, x, h0 = sequence_inputs(rng)
    cell.params = {key: p.astype(np.float32) for key, p in cell.params.items()}
    cell.zero_grad()
    h, cache = gru.gru_forward(cell, x.astype(np.float32), h0.astype(np.float32))
    dx, dh0 = gru.gru_backward(cell, np.ones((N, T, H), np.float32), cache)
    for name, array in [("h", h), ("dx", dx), ("dh0", dh0)]:
        assert array.dtype == np.float32, f"{name} is {array.dtype} where all is given in float32."


# ---- 7. extension: reset after the product -------------------------------------------------------


def test_after_by_hand():
    """Extension: the second step with numbers of the handout: r = 1/4, z = 3/4, n = 3/5."""
    cell = gru.ResetAfterGRUCell(1, 1, np.random.default_rng(0))
    cell.params = {  # columns r, z, n
        "W_x": np.array([[2.0, -1.0, 1.0]]),
        "W_h": np.array([[-1.0, 1.0, 2.0]]),
        "b_x": np.array([-LN3, LN3, LN2 - 3]),
        "b_h": np.array([0.0, -1.0, 4.0]),
    }
    h, _ = cell.forward(np.array([[1.0]]), np.array([[2.0]]))
    check_close(h, np.array([[33 / 20]]), "h", ("N", "H"))


@pytest.mark.parametrize("name", STEP_AFTER)
def test_after_backward(name):
    """Extension: each gradient of one step agrees with central differences of your forward."""
    yours, numeric = step_gradients(gru.ResetAfterGRUCell)[name]
    check_close(yours, numeric, name, rtol=SMOOTH)


@pytest.mark.parametrize("name", ["dx", "dh0"])
def test_after_sequence(name):
    """Extension: gru_forward and gru_backward work with this cell too."""
    yours, numeric = sequence_gradients(gru.ResetAfterGRUCell)[name]
    check_close(yours, numeric, name, rtol=SMOOTH)


# ---- 8. extension: masks -------------------------------------------------------------------------

# Every token real; padding at the end; a hole and a late start; nothing real at all.
MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]], dtype=bool)


def masked_inputs(rng):
    """As ``sequence_inputs``, for a sequence to each row of MASK."""
    rows = len(MASK)
    return random_cell(rng, D, H), rng.normal(size=(rows, T, D)), rng.normal(size=(rows, H))


def masked_forward(cell, x, h0):
    """gru_forward with MASK; still to be written where the mask makes no difference."""
    h, cache = gru.gru_forward(cell, x, h0, MASK)
    if np.array_equal(h, gru.gru_forward(cell, x, h0)[0]):
        raise NotImplementedError("gru_forward with a mask")
    return h, cache


def test_mask_carries_the_state():
    """Extension: where the mask is False, h is the h of the step before."""
    cell, x, h0 = masked_inputs(np.random.default_rng(10))
    h = np.array(masked_forward(cell, x, h0)[0])
    check_close(h[1, 2:], h[1, [1, 1]], "h after the end of sequence 1", ("T", "H"))
    check_close(h[2, 0], h0[2], "h before the start of sequence 2", ("H",))
    check_close(h[2, 2], h[2, 1], "h in the hole of sequence 2", ("H",))
    check_close(h[3], np.repeat(h0[3:], T, axis=0), "h of sequence 3, all padding", ("T", "H"))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_mask_cuts_steps_out(n):
    """Extension: a masked sequence is the sequence of its real tokens alone."""
    cell, x, h0 = masked_inputs(np.random.default_rng(11))
    h, _ = masked_forward(cell, x, h0)
    one = slice(n, n + 1)
    alone, _ = gru.gru_forward(cell, x[one, MASK[n]], h0[one])
    check_close(np.array(h)[one, MASK[n]], np.array(alone), "h", ("N", "T", "H"))


@functools.cache
def masked_gradients():
    """As ``sequence_gradients``, with MASK."""
    rng = np.random.default_rng(12)
    cell, x, h0 = masked_inputs(rng)
    dh = rng.normal(size=(len(MASK), T, H))

    def loss():
        return np.sum(gru.gru_forward(cell, x, h0, MASK)[0] * dh)

    _, cache = masked_forward(cell, x, h0)
    arrays = {"x": x, "h0": h0} | cell.params
    numeric = {f"d{name}": slope(loss, array) for name, array in arrays.items()}
    dx, dh0 = gru.gru_backward(cell, dh, cache)
    yours = {"dx": dx, "dh0": dh0} | {f"d{key}": g for key, g in cell.grads.items()}
    return {name: (yours[name], numeric[name]) for name in numeric}


@pytest.mark.parametrize("name", ["dx", "dh0", "dW", "db", "dW_h", "db_h"])
def test_mask_backward(name):
    """Extension: each gradient of a masked sequence agrees with central differences of your forward."""
    yours, numeric = masked_gradients()[name]
    check_close(yours, numeric, name, rtol=SMOOTH)


def test_mask_hides_what_is_behind_it():
    """Extension: whatever x holds at padding, dx is 0 there and no other gradient changes."""
    rng = np.random.default_rng(13)
    cell, x, h0 = masked_inputs(rng)
    dh = rng.normal(size=(len(MASK), T, H))
    found = []
    for behind in (x, np.where(MASK[:, :, None], x, 1e4)):
        cell.zero_grad()
        dx, dh0 = gru.gru_backward(cell, dh, masked_forward(cell, behind, h0)[1])
        found.append([np.array(gradient) for gradient in (dx, dh0, *cell.grads.values())])
    assert not np.any(found[1][0][~MASK]), "dx must be 0 where the mask is False."
    for name, first, second in zip(["dx", "dh0", *cell.grads], *found, strict=True):
        check_close(second, first, name)
