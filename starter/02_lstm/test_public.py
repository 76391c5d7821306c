"""Public tests for the LSTM, in the order of the tasks. Run them in this folder:

    softmark check                        the first thing to look at, with hints
    python -m pytest -x test_public.py    the same tests without the hints, up to the first that
                                          fails; extension and bonus not yet begun count as failures

"NotImplementedError: LSTMCell.backward" says that LSTMCell.backward is still to be written. The tests
are yours to read and to add to. They are fewer than the graders', and use other numbers. Core tasks
come first, then the masks (extension) and the direct path (bonus); the PyTorch twin's tests have a
file of their own, test_public_torch.py.
"""

import functools
import sys
from pathlib import Path

import numpy as np
import pytest
from softmark.compare import check_close

sys.path.insert(0, str(Path(__file__).parent))  # the lstm.py beside this file

import lstm

LN2, LN3 = np.log(2), np.log(3)
SMOOTH = 1e-6  # how well central differences know a gradient
N, T, D, H = 3, 4, 5, 2


def random_cell(rng, D, H):
    """A cell with random weights and, unlike a new one, random biases."""
    cell = lstm.LSTMCell(D, H, np.random.default_rng(0))
    shapes = {"W": (D + H, 4 * H), "b": (4 * H,)}
    cell.params = {key: 0.5 * rng.normal(size=shape) for key, shape in shapes.items()}
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


# ---- 1. sigmoid ----------------------------------------------------------------------------------


def test_sigmoid_by_hand():
    """exp(ln 3) = 3, so sigmoid(ln 3) = 3/4 and sigmoid(-ln 3) = 1/4."""
    check_close(lstm.sigmoid(np.array([0.0, LN3, -LN3])), np.array([0.5, 0.75, 0.25]), "s")


def test_sigmoid_keeps_shape_and_dtype():
    """The result has the shape and the dtype of z."""
    for z in (np.float32(0), np.zeros(4), np.zeros((2, 3), np.float32), np.zeros((2, 1, 3))):
        s = lstm.sigmoid(np.asarray(z))
        assert np.shape(s) == z.shape, f"z has shape {z.shape}, the result {np.shape(s)}."
        assert s.dtype == z.dtype, f"z is {z.dtype}, the result {s.dtype}."


def test_sigmoid_far_out():
    """No overflow on the way, and exactly 0 and 1 at -1e4 and 1e4."""
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            s = lstm.sigmoid(np.array([-1e4, -1e3, 1e3, 1e4]))
    except FloatingPointError as error:
        raise AssertionError(
            f"{error}. np.where computes both of its branches; "
            "take exp only of numbers that are not positive."
        ) from None
    assert np.isfinite(s).all(), "The result holds NaN or infinity."
    assert s[0] == 0, "sigmoid(-1e4) must be exactly 0; clipping leaves a small remainder."
    assert s[-1] == 1, "sigmoid(1e4) must be exactly 1."


# ---- 2. a new cell -------------------------------------------------------------------------------


def test_new_cell_shapes():
    """params and grads hold W and b in the shapes of the docstring."""
    cell = lstm.LSTMCell(D, H, np.random.default_rng(1))
    for name, held in [("params", cell.params), ("grads", cell.grads)]:
        assert sorted(held) == ["W", "b"], f'{name} must have the keys "W" and "b", and no other.'
        for key, shape in [("W", (D + H, 4 * H)), ("b", (4 * H,))]:
            found = np.shape(held[key])
            assert found == shape, f'{name}["{key}"] has shape {found}; it must be {shape}.'


def test_new_cell_forget_bias():
    """b is zero but for the forget block, the first of the four."""
    b = lstm.LSTMCell(4, 2, np.random.default_rng(1), forget_bias=3.0).params["b"]
    check_close(b, np.array([3.0, 3.0, 0, 0, 0, 0, 0, 0]), "b", ("4 H",))


def test_new_cell_weights():
    """W has mean 0 and variance 2 / (D + H), here 0.02, give or take what chance does."""
    W = lstm.LSTMCell(40, 60, np.random.default_rng(1)).params["W"]
    assert abs(W.mean()) < 0.01, f"The mean of W is {W.mean():.3f}; it should be near 0."
    assert 0.018 < W.var() < 0.022, (
        f"The variance of W is {W.var():.4f}; it should be near 0.02. "
        "The generator asks for the standard deviation, the root of it."
    )


# ---- 3. one step forward -------------------------------------------------------------------------


def worked_step():
    """The step with numbers of the handout: a cell, and its x, h_prev and c_prev."""
    cell = lstm.LSTMCell(1, 1, np.random.default_rng(0))
    # Columns f, i, c, o; the first row is that of x, the second that of h_prev.
    cell.params = {
        "W": np.array([[1.0, 2.0, 1.0, -1.0], [0.0, -1.0, 1.0, 2.0]]),
        "b": np.array([LN3 - 1, 0.0, LN2 - 3, -LN3 - 3]),
    }
    cell.zero_grad()
    return cell, np.array([[1.0]]), np.array([[2.0]]), np.array([[4 / 3 * LN3 - 2 / 5]])


def test_step_by_hand():
    """The step with numbers of the handout: f = 3/4, i = 1/2, candidate = 3/5, o = 1/4."""
    cell, x, h_prev, c_prev = worked_step()
    h, c, _ = cell.forward(x, h_prev, c_prev)
    try:
        check_close(c, np.array([[LN3]]), "c", ("N", "H"))
    except AssertionError as error:
        also = "Is x before h in [x, h]? Are the blocks f, i, c, o?"
        raise AssertionError(f"{error}\n{also}") from None
    check_close(h, np.array([[1 / 5]]), "h", ("N", "H"))


def test_blocks_of_gates():
    """Two units: the columns of f come first, both of them, then those of i, c and o."""
    cell = lstm.LSTMCell(3, 2, np.random.default_rng(0))
    b = np.array([LN3, 0.0, 0.0, LN3, LN2, LN2, 0.0, -LN3])  # f, f, i, i, c, c, o, o
    cell.params = {"W": np.zeros((5, 8)), "b": b}
    c_prev = np.array([[1.0, 2.0], [3.0, -1.0]])
    h, c, _ = cell.forward(np.ones((2, 3)), np.ones((2, 2)), c_prev)
    after = np.array([[1.05, 1.45], [2.55, -0.05]])  # 3/4 of 1.0 and 1/2 of 3/5, and so on
    check_close(c, after, "c", ("N", "H"))
    check_close(h, np.tanh(after) * [1 / 2, 1 / 4], "h", ("N", "H"))


def test_step_shapes():
    """h and c have shape (N, H), for a batch of one and sizes of one too."""
    rng = np.random.default_rng(2)
    for N, D, H in [(3, 5, 2), (1, 1, 1), (2, 1, 4)]:
        inputs = [rng.normal(size=shape) for shape in [(N, D), (N, H), (N, H)]]
        h, c, _ = random_cell(rng, D, H).forward(*inputs)
        assert np.shape(h) == (N, H), f"h has shape {np.shape(h)}; it must be {(N, H)}."
        assert np.shape(c) == (N, H), f"c has shape {np.shape(c)}; it must be {(N, H)}."


# ---- 4. one step backward ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dc_prev", "db", "dW", "dx", "dh_prev"])
def test_step_backward_by_hand(name):
    """The step with numbers of the handout, backward: dh = 10, dc = 2.1."""
    cell, *inputs = worked_step()
    _, _, cache = cell.forward(*inputs)
    dx, dh_prev, dc_prev = cell.backward(np.array([[10.0]]), np.array([[2.1]]), cache)
    da = np.array([3 / 4 * LN3 - 9 / 40, 9 / 20, 24 / 25, 3 / 2])
    by_hand = {
        "dc_prev": (dc_prev, np.array([[9 / 4]])),
        "db": (cell.grads["b"], da),
        "dW": (cell.grads["W"], np.array([da, 2 * da])),
        "dx": (dx, np.array([[3 / 4 * LN3 + 27 / 200]])),
        "dh_prev": (dh_prev, np.array([[351 / 100]])),
    }
    check_close(*by_hand[name], name)


@functools.cache
def step_gradients():
    """Your own gradients of one step, and central differences of your own forward, by name.

    The loss is sum(h * dh) + sum(c * dc) with random dh and dc: its gradient with respect to h is
    dh, and what reaches c from elsewhere is dc.
    """
    rng = np.random.default_rng(3)
    cell = random_cell(rng, D, H)
    x, h_prev, c_prev = (rng.normal(size=shape) for shape in [(N, D), (N, H), (N, H)])
    dh, dc = rng.normal(size=(N, H)), rng.normal(size=(N, H))

    def loss():
        h, c, _ = cell.forward(x, h_prev, c_prev)
        return np.sum(h * dh) + np.sum(c * dc)

    arrays = (x, h_prev, c_prev, cell.params["W"], cell.params["b"])
    numeric = [slope(loss, array) for array in arrays]
    _, _, cache = cell.forward(x, h_prev, c_prev)
    dx, dh_prev, dc_prev = cell.backward(dh, dc, cache)
    yours = [dx, dh_prev, dc_prev, cell.grads["W"], cell.grads["b"]]
    names = ["dx", "dh_prev", "dc_prev", "dW", "db"]
    return dict(zip(names, zip(yours, numeric, strict=True), strict=True))


@pytest.mark.parametrize("name", ["dc_prev", "db", "dW", "dx", "dh_prev"])
def test_step_backward(name):
    """Each gradient of one step agrees with central differences of your forward."""
    yours, numeric = step_gradients()[name]
    check_close(yours, numeric, name, rtol=SMOOTH)


def test_gradients_add_up():
    """Two backward calls give the sum in grads; zero_grad starts again."""
    rng = np.random.default_rng(4)
    cell = random_cell(rng, D, H)
    _, _, cache = cell.forward(*(rng.normal(size=shape) for shape in [(N, D), (N, H), (N, H)]))
    dh, dc = rng.normal(size=(N, H)), rng.normal(size=(N, H))
    cell.backward(dh.copy(), dc.copy(), cache)
    once = {key: np.array(grad) for key, grad in cell.grads.items()}
    cell.backward(dh.copy(), dc.copy(), cache)
    for key in ("W", "b"):
        check_close(cell.grads[key], 2 * once[key], f'grads["{key}"]')
    cell.zero_grad()
    assert not np.any(cell.grads["W"]), "zero_grad must clear grads."


# ---- 5. a sequence forward -----------------------------------------------------------------------


def sequence_inputs(rng):
    """A cell, and x, h0, c0 for it."""
    shapes = [(N, T, D), (N, H), (N, H)]
    return random_cell(rng, D, H), *(rng.normal(size=shape) for shape in shapes)


def test_sequence_of_one_step():
    """A sequence of one step is one step."""
    cell, x, h0, c0 = sequence_inputs(np.random.default_rng(5))
    hs, c_last, _ = lstm.lstm_forward(cell, x[:, :1], h0, c0)
    h, c, _ = cell.forward(x[:, 0], h0, c0)
    check_close(hs, np.array(h)[:, None], "h", ("N", "T", "H"))
    check_close(c_last, np.array(c), "c_last", ("N", "H"))


def test_sequence_in_two_parts():
    """The first steps, and the others from where these ended, give the whole sequence."""
    cell, x, h0, c0 = sequence_inputs(np.random.default_rng(6))
    hs, c_last, _ = lstm.lstm_forward(cell, x, h0, c0)
    first, c, _ = lstm.lstm_forward(cell, x[:, :1], h0, c0)
    others, c_end, _ = lstm.lstm_forward(cell, x[:, 1:], first[:, -1], c)
    check_close(hs, np.concatenate([first, others], axis=1), "h", ("N", "T", "H"))
    check_close(c_last, np.array(c_end), "c_last", ("N", "H"))


# ---- 6. a sequence backward ----------------------------------------------------------------------


@functools.cache
def sequence_gradients():
    """As ``step_gradients``, for a sequence: the loss looks at every h and at the last c."""
    rng = np.random.default_rng(7)
    cell, x, h0, c0 = sequence_inputs(rng)
    dh, dc_last = rng.normal(size=(N, T, H)), rng.normal(size=(N, H))

    def loss():
        h, c_last, _ = lstm.lstm_forward(cell, x, h0, c0)
        return np.sum(h * dh) + np.sum(c_last * dc_last)

    arrays = (x, h0, c0, cell.params["W"], cell.params["b"])
    numeric = [slope(loss, array) for array in arrays]
    _, _, cache = lstm.lstm_forward(cell, x, h0, c0)
    dx, dh0, dc0 = lstm.lstm_backward(cell, dh, dc_last, cache)
    yours = [dx, dh0, dc0, cell.grads["W"], cell.grads["b"]]
    names = ["dx", "dh0", "dc0", "dW", "db"]
    return dict(zip(names, zip(yours, numeric, strict=True), strict=True))


@pytest.mark.parametrize("name", ["dx", "dh0", "dc0", "dW", "db"])
def test_sequence_backward(name):
    """Each gradient of a sequence agrees with central differences of your forward."""
    yours, numeric = sequence_gradients()[name]
    check_close(yours, numeric, name, rtol=SMOOTH)


# ---- everything ----------------------------------------------------------------------------------


def test_inputs_are_left_alone():
    """Nothing that is passed in is changed."""
    rng = np.random.default_rng(8)
    cell, x, h0, c0 = sequence_inputs(rng)
    dh, dc_last = rng.normal(size=(N, T, H)), rng.normal(size=(N, H))
    given = {"x": x, "h0": h0, "c0": c0, "dh": dh, "dc_last": dc_last, "W": cell.params["W"]}
    before = {name: array.copy() for name, array in given.items()}
    _, _, cache = lstm.lstm_forward(cell, x, h0, c0)
    lstm.lstm_backward(cell, dh, dc_last, cache)
    _, _, cache = cell.forward(x[:, 0], h0, c0)
    cell.backward(dh[:, 0], dc_last, cache)
    changed = [name for name, array in given.items() if not np.array_equal(array, before[name])]
    assert not changed, (
        f"Changed in place: {', '.join(changed)}. += writes into the caller's array."
    )


# ---- 8. extension: masks -------------------------------------------------------------------------

# Every token real; padding at the end; a hole and a late start; nothing real at all.
MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]], dtype=bool)


def masked_inputs(rng):
    """As ``sequence_inputs``, for a sequence to each row of MASK."""
    shapes = [(len(MASK), T, D), (len(MASK), H), (len(MASK), H)]
    return random_cell(rng, D, H), *(rng.normal(size=shape) for shape in shapes)


def masked_forward(cell, x, h0, c0):
    """lstm_forward with MASK; still to be written where the mask makes no difference."""
    h, c_last, cache = lstm.lstm_forward(cell, x, h0, c0, MASK)
    if np.array_equal(h, lstm.lstm_forward(cell, x, h0, c0)[0]):
        raise NotImplementedError("lstm_forward with a mask")
    return h, c_last, cache


def test_mask_carries_the_state():
    """Extension: where the mask is False, h is the h of the step before; c_last is the last real one."""
    cell, x, h0, c0 = masked_inputs(np.random.default_rng(9))
    h, c_last, _ = masked_forward(cell, x, h0, c0)
    h, c_last = np.array(h), np.array(c_last)
    check_close(h[1, 2:], h[1, [1, 1]], "h after the end of sequence 1", ("T", "H"))
    check_close(h[2, 0], h0[2], "h before the start of sequence 2", ("H",))
    check_close(h[2, 2], h[2, 1], "h in the hole of sequence 2", ("H",))
    check_close(h[3], np.repeat(h0[3:], T, axis=0), "h of sequence 3, all padding", ("T", "H"))
    check_close(c_last[3], c0[3], "c_last of sequence 3, all padding", ("H",))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_mask_cuts_steps_out(n):
    """Extension: a masked sequence is the sequence of its real tokens alone."""
    cell, x, h0, c0 = masked_inputs(np.random.default_rng(10))
    h, c_last, _ = masked_forward(cell, x, h0, c0)
    one = slice(n, n + 1)
    alone, c_alone, _ = lstm.lstm_forward(cell, x[one, MASK[n]], h0[one], c0[one])
    check_close(np.array(h)[one, MASK[n]], np.array(alone), "h", ("N", "T", "H"))
    check_close(np.array(c_last)[one], np.array(c_alone), "c_last", ("N", "H"))


@functools.cache
def masked_gradients():
    """As ``sequence_gradients``, with MASK."""
    rng = np.random.default_rng(11)
    cell, x, h0, c0 = masked_inputs(rng)
    dh, dc_last = rng.normal(size=(len(MASK), T, H)), rng.normal(size=(len(MASK), H))

    def loss():
        h, c_last, _ = lstm.lstm_forward(cell, x, h0, c0, MASK)
        return np.sum(h * dh) + np.sum(c_last * dc_last)

    _, _, cache = masked_forward(cell, x, h0, c0)
    arrays = (x, h0, c0, cell.params["W"], cell.params["b"])
    numeric = [slope(loss, array) for array in arrays]
    dx, dh0, dc0 = lstm.lstm_backward(cell, dh, dc_last, cache)
    yours = [dx, dh0, dc0, cell.grads["W"], cell.grads["b"]]
    names = ["dx", "dh0", "dc0", "dW", "db"]
    return dict(zip(names, zip(yours, numeric, strict=True), strict=True))


@pytest.mark.parametrize("name", ["dx", "dh0", "dc0", "dW", "db"])
def test_mask_backward(name):
    """Extension: each gradient of a masked sequence agrees with central differences of your forward."""
    yours, numeric = masked_gradients()[name]
    check_close(yours, numeric, name, rtol=SMOOTH)


def test_mask_hides_what_is_behind_it():
    """Extension: whatever x holds at padding, dx is 0 there and no other gradient changes."""
    rng = np.random.default_rng(12)
    cell, x, h0, c0 = masked_inputs(rng)
    dh, dc_last = rng.normal(size=(len(MASK), T, H)), rng.normal(size=(len(MASK), H))
    found = []
    for behind in (x, np.where(MASK[:, :, None], x, 1e4)):
        cell.zero_grad()
        _, _, cache = masked_forward(cell, behind, h0, c0)
        dx, dh0, dc0 = lstm.lstm_backward(cell, dh, dc_last, cache)
        gradients = [dx, dh0, dc0, *cell.grads.values()]
        found.append([np.array(gradient) for gradient in gradients])
    assert not np.any(found[1][0][~MASK]), "dx must be 0 where the mask is False."
    for name, first, second in zip(["dx", "dh0", "dc0", *cell.grads], *found, strict=True):
        check_close(second, first, name)


# ---- 10. bonus: the direct path ------------------------------------------------------------------


def test_carousel_by_hand():
    """Bonus: from c_0 to c_2 the gates of steps 1 and 2 count: 1/4 of 1/2, and 1 of 1/2."""
    f = np.array([[1 / 3, 1 / 5], [1 / 4, 1], [1 / 2, 1 / 2], [3 / 4, 1 / 5]])
    check_close(lstm.carousel_gradient(f, 0, 2), np.array([1 / 8, 1 / 2]), "0 to 2", ("H",))
    check_close(lstm.carousel_gradient(f, 1, 3), np.array([3 / 8, 1 / 10]), "1 to 3", ("H",))


def test_carousel_of_no_step():
    """Bonus: from c_t to c_t itself: ones."""
    f = np.array([[1 / 3, 1 / 5, 1 / 2], [1 / 4, 1 / 2, 1 / 7]])
    for t in (0, 1):
        check_close(lstm.carousel_gradient(f, t, t), np.ones(3), f"{t} to {t}", ("H",))


def test_carousel_does_not_go_back():
    """Bonus: k > t is an error that names k."""
    with pytest.raises(ValueError, match="k"):
        lstm.carousel_gradient(np.full((3, 2), 0.5), 2, 1)


def test_carousel_is_all_where_h_does_not_count():
    """Bonus: with zeros in the rows of W that meet h, dc0 is dc_last times the direct path."""
    rng = np.random.default_rng(13)
    cell, x, h0, c0 = sequence_inputs(rng)
    W_f, b_f = cell.params["W"][:D, :H], cell.params["b"][:H]
    cell.params["W"][D:] = 0
    dc_last = rng.normal(size=(N, H))
    _, _, cache = lstm.lstm_forward(cell, x, h0, c0)
    _, _, dc0 = lstm.lstm_backward(cell, np.zeros((N, T, H)), dc_last, cache)
    for n in range(N):
        f = lstm.sigmoid(x[n] @ W_f + b_f)  # of steps 0 to T - 1, and c0 is before step 0
        direct = lstm.carousel_gradient(np.concatenate([np.ones((1, H)), f]), 0, T)
        check_close(np.array(dc0)[n], dc_last[n] * direct, f"dc0 of sequence {n}", ("H",))
