"""Public tests for BPTT, in the order of the tasks. Run them in this folder:

    softmark check                        the first thing to look at, with hints
    python -m pytest -x test_public.py    the same tests without the hints, up to the first that
                                          fails; extension and bonus not yet begun count as failures

"NotImplementedError: RNNCell.backward" says that RNNCell.backward is still to be written. The tests
are yours to read and to add to. They are fewer than the graders', and use other numbers. Core tasks
come first, then masks and truncated BPTT (extension) and the Jacobians (bonus); the PyTorch twin's tests
have a file of their own, test_public_torch.py.
"""

import functools
import sys
from pathlib import Path

import numpy as np
import pytest
from softmark.compare import check_close

sys.path.insert(0, str(Path(__file__).parent))  # the bptt.py beside this file

import bptt

LN2, LN3 = np.log(2), np.log(3)
SMOOTH = 1e-6  # how well central differences know a gradient
N, T, D, H = 3, 4, 5, 2
KEYS = ("W_xh", "W_hh", "b_h")


def random_cell(rng, D, H):
    """A cell with random weights and, unlike a new one, random biases."""
    cell = bptt.RNNCell(D, H, np.random.default_rng(0))
    shapes = {"W_xh": (D, H), "W_hh": (H, H), "b_h": (H,)}
    cell.params = {key: 0.5 * rng.normal(size=shape) for key, shape in shapes.items()}
    cell.zero_grad()
    return cell


def slope(loss, array):
    """The gradient of ``loss()`` with respect to ``array``, by central differences.

    This is the tool to test a gradient with: it asks for the loss alone, and so for your forward pass
    alone. Each entry of the array is moved a little up and a little down.
    """
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


# ---- 1. pad_sequences ----------------------------------------------------------------------------


def test_pad_by_hand():
    """The handout's example: three sequences, the longest of four tokens."""
    tokens, mask = bptt.pad_sequences([[7, 3], [5, 0, 2, 5], [4]])
    check_close(tokens, np.array([[7, 3, 0, 0], [5, 0, 2, 5], [4, 0, 0, 0]]), "tokens", ("N", "T"))
    real = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=bool)
    assert mask.dtype == bool, f"mask is {mask.dtype}; it must be bool."
    assert np.array_equal(mask, real), "mask must be True at real tokens, and only there."


def test_pad_with_an_id_that_is_a_token_too():
    """Padding with 9, which the first sequence holds as a real token."""
    tokens, mask = bptt.pad_sequences([[9, 4, 9], [8]], pad_id=9)
    check_close(tokens, np.array([[9, 4, 9], [8, 9, 9]]), "tokens", ("N", "T"))
    assert mask.tolist() == [[True] * 3, [True, False, False]], "what is padding depends on lengths"


def test_pad_nothing():
    """No sequence, and an empty one among others."""
    tokens, mask = bptt.pad_sequences([])
    assert tokens.shape == mask.shape == (0, 0), (
        f"{tokens.shape}, {mask.shape}: both must be (0, 0)."
    )
    tokens, mask = bptt.pad_sequences([[], [6, 2]], pad_id=1)
    check_close(tokens, np.array([[1, 1], [6, 2]]), "tokens", ("N", "T"))
    assert not mask[0].any(), "An empty sequence is a row of padding."


# ---- 2. one step forward -------------------------------------------------------------------------


def worked_step():
    """The step with numbers of the handout: a cell, and its x and h_prev."""
    cell = bptt.RNNCell(1, 2, np.random.default_rng(0))
    cell.params = {
        "W_xh": np.array([[1.0, 2.0]]),
        "W_hh": np.array([[2.0, 1.0], [4.0, -1.0]]),
        "b_h": np.array([LN2, LN3 - 3]),
    }
    cell.zero_grad()
    return cell, np.array([[1.0]]), np.array([[0.5, -0.5]])


def test_step_by_hand():
    """The step with numbers of the handout: a = (ln 2, ln 3), and so h = (3/5, 4/5)."""
    cell, x, h_prev = worked_step()
    h, _ = cell.forward(x, h_prev)
    try:
        check_close(h, np.array([[3 / 5, 4 / 5]]), "h", ("N", "H"))
    except AssertionError as error:
        also = "Samples are rows: is every matrix on the right of what it multiplies?"
        raise AssertionError(f"{error}\n{also}") from None


def test_step_shapes():
    """h has shape (N, H), for a batch of one and sizes of one too."""
    rng = np.random.default_rng(2)
    for N, D, H in [(3, 5, 2), (1, 1, 1), (2, 1, 4)]:
        h, _ = random_cell(rng, D, H).forward(rng.normal(size=(N, D)), rng.normal(size=(N, H)))
        assert np.shape(h) == (N, H), f"h has shape {np.shape(h)}; it must be {(N, H)}."


# ---- 3. one step backward ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["db_h", "dx", "dh_prev", "dW_xh", "dW_hh"])
def test_step_backward_by_hand(name):
    """The step with numbers of the handout, backward: dh = (25, 50)."""
    cell, x, h_prev = worked_step()
    _, cache = cell.forward(x, h_prev)
    dx, dh_prev = cell.backward(np.array([[25.0, 50.0]]), cache)
    by_hand = {
        "db_h": (cell.grads["b_h"], np.array([16.0, 18.0])),
        "dx": (dx, np.array([[52.0]])),
        "dh_prev": (dh_prev, np.array([[50.0, 46.0]])),
        "dW_xh": (cell.grads["W_xh"], np.array([[16.0, 18.0]])),
        "dW_hh": (cell.grads["W_hh"], np.array([[8.0, 9.0], [-8.0, -9.0]])),
    }
    check_close(*by_hand[name], name)


@functools.cache
def step_gradients():
    """Your own gradients of one step, and central differences of your own forward, by name.

    The loss is sum(h * dh) with a random dh: its gradient with respect to h is dh.
    """
    rng = np.random.default_rng(3)
    cell = random_cell(rng, D, H)
    x, h_prev, dh = (rng.normal(size=shape) for shape in [(N, D), (N, H), (N, H)])

    def loss():
        h, _ = cell.forward(x, h_prev)
        return np.sum(h * dh)

    arrays = {"dx": x, "dh_prev": h_prev} | {f"d{key}": cell.params[key] for key in KEYS}
    numeric = {name: slope(loss, array) for name, array in arrays.items()}
    _, cache = cell.forward(x, h_prev)
    dx, dh_prev = cell.backward(dh, cache)
    yours = {"dx": dx, "dh_prev": dh_prev} | {f"d{key}": cell.grads[key] for key in KEYS}
    return {name: (yours[name], numeric[name]) for name in yours}


@pytest.mark.parametrize("name", ["db_h", "dx", "dh_prev", "dW_xh", "dW_hh"])
def test_step_backward(name):
    """Each gradient of one step agrees with central differences of your forward."""
    yours, numeric = step_gradients()[name]
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
    for key in KEYS:
        check_close(cell.grads[key], 2 * once[key], f'grads["{key}"]')
    cell.zero_grad()
    assert not np.any(cell.grads["W_hh"]), "zero_grad must clear grads."


# ---- 4. a sequence forward -----------------------------------------------------------------------


def sequence_inputs(rng):
    """A cell, and x and h0 for it."""
    return random_cell(rng, D, H), rng.normal(size=(N, T, D)), rng.normal(size=(N, H))


def test_sequence_of_one_step():
    """A sequence of one step is one step."""
    cell, x, h0 = sequence_inputs(np.random.default_rng(5))
    hs, _ = bptt.rnn_forward(cell, x[:, :1], h0)
    h, _ = cell.forward(x[:, 0], h0)
    check_close(hs, np.array(h)[:, None], "h", ("N", "T", "H"))


def test_sequence_in_two_parts():
    """The first steps, and the others from where these ended, give the whole sequence."""
    cell, x, h0 = sequence_inputs(np.random.default_rng(6))
    hs, _ = bptt.rnn_forward(cell, x, h0)
    first, _ = bptt.rnn_forward(cell, x[:, :1], h0)
    others, _ = bptt.rnn_forward(cell, x[:, 1:], first[:, -1])
    check_close(hs, np.concatenate([first, others], axis=1), "h", ("N", "T", "H"))


# ---- 5. a sequence backward ----------------------------------------------------------------------


def sequence_slopes(rng, mask=None):
    """As ``step_gradients``, for a sequence: the loss looks at every h, not at the last alone."""
    batch = N if mask is None else len(mask)
    cell = random_cell(rng, D, H)
    x, h0, dh = (rng.normal(size=shape) for shape in [(batch, T, D), (batch, H), (batch, T, H)])

    def forward():
        return bptt.rnn_forward(cell, x, h0) if mask is None else masked_forward(cell, x, h0)

    def loss():
        return np.sum(forward()[0] * dh)

    arrays = {"dx": x, "dh0": h0} | {f"d{key}": cell.params[key] for key in KEYS}
    numeric = {name: slope(loss, array) for name, array in arrays.items()}
    dx, dh0 = bptt.rnn_backward(cell, dh, forward()[1])
    yours = {"dx": dx, "dh0": dh0} | {f"d{key}": cell.grads[key] for key in KEYS}
    return {name: (yours[name], numeric[name]) for name in yours}


@functools.cache
def sequence_gradients():
    return sequence_slopes(np.random.default_rng(7))


@pytest.mark.parametrize("name", ["dx", "dh0", "dW_xh", "dW_hh", "db_h"])
def test_sequence_backward(name):
    """Each gradient of a sequence agrees with central differences of your forward."""
    yours, numeric = sequence_gradients()[name]
    check_close(yours, numeric, name, rtol=SMOOTH)


# ---- 6. cross-entropy ----------------------------------------------------------------------------


def worked_loss():
    """The three positions of the handout, the last of them padding."""
    logits = np.array([[[0.0, LN2, np.log(5)], [0.0, 0.0, LN2], [9.0, 9.0, 9.0]]])
    return logits, np.array([[1, 2, -100]]), np.array([[True, True, False]])


def test_loss_by_hand():
    """-ln 1/4 at the first position, -ln 1/2 at the second: the mean is 3/2 ln 2."""
    loss, _ = bptt.sequence_cross_entropy(*worked_loss())
    assert isinstance(loss, float), f"The loss is a {type(loss).__name__}; it must be a float."
    check_close(np.array(loss), np.array(3 / 2 * LN2), "loss")


def test_dlogits_by_hand():
    """Half of (probabilities - 1 at the target), since two targets are real; 0 at padding."""
    _, dlogits = bptt.sequence_cross_entropy(*worked_loss())
    by_hand = [[[1 / 16, -3 / 8, 5 / 16], [1 / 8, 1 / 8, -1 / 4], [0, 0, 0]]]
    check_close(dlogits, np.array(by_hand), "dlogits", ("N", "T", "K"))


def test_dlogits():
    """The gradient agrees with central differences of your loss."""
    rng = np.random.default_rng(8)
    logits, targets = rng.normal(size=(N, T, 6)), rng.integers(6, size=(N, T))
    mask = rng.random((N, T)) < 0.6
    numeric = slope(lambda: bptt.sequence_cross_entropy(logits, targets, mask)[0], logits)
    _, dlogits = bptt.sequence_cross_entropy(logits, targets, mask)
    check_close(dlogits, numeric, "dlogits", ("N", "T", "K"), rtol=SMOOTH)


def test_loss_without_a_target():
    """Where no target is real the loss is 0.0 and its gradient zeros; nothing is divided by 0."""
    logits, targets, mask = worked_loss()
    loss, dlogits = bptt.sequence_cross_entropy(logits, targets, mask & False)
    assert loss == 0, f"The loss is {loss}; it must be 0.0."
    assert not np.any(dlogits), "dlogits must be zeros."


def test_loss_of_large_logits():
    """Logits of 1e4 and -1e4: the loss is 20000 where the wrong one is high, and else 0."""
    logits, mask = np.array([[[1e4, -1e4]]]), np.array([[True]])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for target, right in [(1, 2e4), (0, 0.0)]:
            loss, _ = bptt.sequence_cross_entropy(logits, np.array([[target]]), mask)
            check_close(np.array(loss), np.array(right), "loss")


# ---- 7. one step of a language model -------------------------------------------------------------


def language_model(rng, N, T):
    """A cell, the other arrays, tokens of a vocabulary of 4, a mask with padding at the end, and h0."""
    V, E = 4, 3
    cell = random_cell(rng, E, H)
    arrays = {"embedding": (V, E), "W_hy": (H, V), "b_y": (V,)}
    arrays = {name: rng.normal(size=shape) for name, shape in arrays.items()}
    mask = np.arange(T) < np.array([T, 2, T - 1])[:N, None]
    return cell, arrays, rng.integers(V, size=(N, T)), mask, rng.normal(size=(N, H))


def test_lm_of_equal_logits():
    """With W_hy = 0 and b_y = 0 every one of the 4 tokens has probability 1/4: the loss is ln 4."""
    cell, arrays, *rest = language_model(np.random.default_rng(9), 3, 6)
    loss, _ = bptt.rnn_lm_loss(cell, arrays["embedding"], np.zeros((H, 4)), np.zeros(4), *rest)
    check_close(np.array(loss), np.array(2 * LN2), "loss")


@functools.cache
def lm_gradients():
    """As ``step_gradients``, for a language model."""
    cell, arrays, *rest = language_model(np.random.default_rng(10), 3, 6)

    def loss():
        return bptt.rnn_lm_loss(cell, *arrays.values(), *rest)[0]

    everything = arrays | {key: cell.params[key] for key in KEYS}
    numeric = {name: slope(loss, array) for name, array in everything.items()}
    cell.zero_grad()
    _, grads = bptt.rnn_lm_loss(cell, *arrays.values(), *rest)
    return {name: ((grads | cell.grads)[name], numeric[name]) for name in everything}


@pytest.mark.parametrize("name", ["W_hy", "b_y", *KEYS, "embedding"])
def test_lm_gradients(name):
    """Each gradient agrees with central differences of your loss; most tokens occur more than once."""
    yours, numeric = lm_gradients()[name]
    check_close(yours, numeric, f'grads["{name}"]', rtol=SMOOTH)


def test_lm_of_one_token():
    """With T = 1 there is nothing to predict: 0.0, and zeros."""
    cell, arrays, *rest = language_model(np.random.default_rng(11), 2, 1)
    loss, grads = bptt.rnn_lm_loss(cell, *arrays.values(), *rest)
    assert loss == 0, f"The loss is {loss}; it must be 0.0."
    for name, array in arrays.items():
        assert np.shape(grads[name]) == array.shape, f'grads["{name}"] must have its shape.'
        assert not np.any(grads[name]), f'grads["{name}"] must be zeros.'


# ---- 8. clipping ---------------------------------------------------------------------------------


def worked_gradients():
    """Of norm 5: 1 + 4 + 4 + 16 = 25."""
    return {"a": np.array([1.0, 2.0]), "b": np.array([[-2.0], [4.0]])}


def test_clip_by_hand():
    """The norm is 5; with max_norm = 2 everything is scaled by 2/5."""
    grads = worked_gradients()
    clipped, norm = bptt.clip_by_global_norm(grads, 2.0)
    check_close(np.array(norm), np.array(5.0), "norm")
    check_close(clipped["a"], np.array([0.4, 0.8]), 'clipped["a"]')
    check_close(clipped["b"], np.array([[-0.8], [1.6]]), 'clipped["b"]')
    for name, before in worked_gradients().items():
        assert np.array_equal(grads[name], before), "The gradients passed in must stay as they are."


def test_clip_leaves_small_gradients():
    """Below max_norm the numbers stay, in arrays of their own; a norm of 0 is no trouble."""
    zeros = {name: 0 * array for name, array in worked_gradients().items()}
    for grads in (worked_gradients(), zeros):
        with np.errstate(invalid="raise", divide="raise"):
            clipped, _ = bptt.clip_by_global_norm(grads, 100.0)
        for name, array in grads.items():
            check_close(clipped[name], array, f'clipped["{name}"]')
            assert clipped[name] is not array, "Return new arrays, also where nothing is clipped."


def test_clip_needs_a_norm_above_0():
    """max_norm = 0 is an error that names it."""
    with pytest.raises(ValueError, match="max_norm"):
        bptt.clip_by_global_norm(worked_gradients(), 0.0)


# ---- everything ----------------------------------------------------------------------------------


def test_inputs_are_left_alone():
    """Nothing that is passed in is changed."""
    rng = np.random.default_rng(12)
    cell, x, h0 = sequence_inputs(rng)
    dh = rng.normal(size=(N, T, H))
    given = {"x": x, "h0": h0, "dh": dh, **cell.params}
    before = {name: array.copy() for name, array in given.items()}
    _, cache = bptt.rnn_forward(cell, x, h0)
    bptt.rnn_backward(cell, dh, cache)
    _, cache = cell.forward(x[:, 0], h0)
    cell.backward(dh[:, 0], cache)
    changed = [name for name, array in given.items() if not np.array_equal(array, before[name])]
    assert not changed, (
        f"Changed in place: {', '.join(changed)}. += writes into the caller's array."
    )


# ---- 10. extension: masks ------------------------------------------------------------------------

# Every token real; padding at the end; a hole and a late start; nothing real at all.
MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]], dtype=bool)


def masked_forward(cell, x, h0):
    """rnn_forward with MASK; still to be written where the mask makes no difference."""
    h, cache = bptt.rnn_forward(cell, x, h0, MASK)
    if np.array_equal(h, bptt.rnn_forward(cell, x, h0)[0]):
        raise NotImplementedError("rnn_forward with a mask")
    return h, cache


def masked_inputs(rng):
    """As ``sequence_inputs``, for a sequence to each row of MASK."""
    cell = random_cell(rng, D, H)
    return cell, rng.normal(size=(len(MASK), T, D)), rng.normal(size=(len(MASK), H))


def test_mask_carries_the_state():
    """Extension: where the mask is False, h is the h of the step before."""
    cell, x, h0 = masked_inputs(np.random.default_rng(13))
    h = np.array(masked_forward(cell, x, h0)[0])
    check_close(h[1, 2:], h[1, [1, 1]], "h after the end of sequence 1", ("T", "H"))
    check_close(h[2, 0], h0[2], "h before the start of sequence 2", ("H",))
    check_close(h[2, 2], h[2, 1], "h in the hole of sequence 2", ("H",))
    check_close(h[3], np.repeat(h0[3:], T, axis=0), "h of sequence 3, all padding", ("T", "H"))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_mask_cuts_steps_out(n):
    """Extension: a masked sequence is the sequence of its real tokens alone."""
    cell, x, h0 = masked_inputs(np.random.default_rng(14))
    h, _ = masked_forward(cell, x, h0)
    one = slice(n, n + 1)
    alone, _ = bptt.rnn_forward(cell, x[one, MASK[n]], h0[one])
    check_close(np.array(h)[one, MASK[n]], np.array(alone), "h", ("N", "T", "H"))


@functools.cache
def masked_gradients():
    return sequence_slopes(np.random.default_rng(15), MASK)


@pytest.mark.parametrize("name", ["dx", "dh0", "dW_xh", "dW_hh", "db_h"])
def test_mask_backward(name):
    """Extension: each gradient of a masked sequence agrees with central differences of your forward."""
    yours, numeric = masked_gradients()[name]
    check_close(yours, numeric, name, rtol=SMOOTH)


def test_mask_in_the_language_model():
    """Extension: another token where the mask is False changes nothing, also before the end."""
    cell, arrays, tokens, _, _ = language_model(np.random.default_rng(16), 3, 6)
    mask = np.array([[0, 1, 1, 0, 1, 1]] * 3, dtype=bool)
    h0 = np.full((3, H), 0.3)
    masked_forward(*masked_inputs(np.random.default_rng(16)))  # is there a mask yet?
    losses = []
    for given in (tokens, np.where(mask, tokens, (tokens + 1) % 4)):
        losses.append(np.array(bptt.rnn_lm_loss(cell, *arrays.values(), given, mask, h0)[0]))
    check_close(losses[1], losses[0], "loss")


# ---- 11. extension: truncated BPTT ---------------------------------------------------------------


def truncated(window):
    """The gradients of 7 steps in windows: dx, dh0 and those of the parameters, by name."""
    rng = np.random.default_rng(17)
    cell = random_cell(rng, D, H)
    x, h0, dh = (rng.normal(size=shape) for shape in [(N, 7, D), (N, H), (N, 7, H)])
    h, cache = bptt.rnn_forward(cell, x, h0)
    dx, dh0 = bptt.truncated_rnn_backward(cell, dh, cache, window)
    yours = {"dx": dx, "dh0": dh0} | {key: np.array(grad) for key, grad in cell.grads.items()}
    return yours, cell, x, h0, np.array(h), dh


@pytest.mark.parametrize("window", [7, 20])
def test_truncated_not_at_all(window):
    """Extension: in one window that holds all 7 steps, all is as in rnn_backward."""
    yours, cell, x, h0, _, dh = truncated(window)
    cell.zero_grad()
    _, cache = bptt.rnn_forward(cell, x, h0)
    dx, dh0 = bptt.rnn_backward(cell, dh, cache)
    for name, whole in ({"dx": dx, "dh0": dh0} | cell.grads).items():
        check_close(yours[name], np.array(whole), name)


@pytest.mark.parametrize("window", [1, 3])
def test_truncated_is_window_after_window(window):
    """Extension: each window is a sequence of its own, from the state where the one before ended."""
    yours, cell, x, h0, h, dh = truncated(window)
    cell.zero_grad()
    before = np.concatenate([h0[:, None], h], axis=1)  # the state before each step
    parts = []
    for start in range(0, 7, window):
        stop = start + window
        _, cache = bptt.rnn_forward(cell, x[:, start:stop], before[:, start])
        parts.append(bptt.rnn_backward(cell, dh[:, start:stop], cache))
    check_close(yours["dx"], np.concatenate([dx for dx, _ in parts], axis=1), "dx", ("N", "T", "D"))
    check_close(yours["dh0"], np.array(parts[0][1]), "dh0", ("N", "H"))
    for key, grad in cell.grads.items():
        check_close(yours[key], np.array(grad), f'grads["{key}"]')


def test_truncated_needs_a_window():
    """Extension: a window of 0 steps is an error that names it."""
    with pytest.raises(ValueError, match="window"):
        truncated(0)


# ---- 13. bonus: Jacobians ------------------------------------------------------------------------


def test_jacobian_by_hand():
    """Bonus: the example of the handout, after the step with numbers."""
    W_hh = worked_step()[0].params["W_hh"]
    h = np.array([[0.1, 0.2], [3 / 5, 4 / 5]])
    by_hand = np.array([[32, 64], [9, -9]]) / 25
    check_close(bptt.hidden_jacobian(h, W_hh, 0, 1), by_hand, "J", ("H", "H"))
    check_close(bptt.hidden_jacobian(h, W_hh, 1, 1), np.eye(2), "J", ("H", "H"))


def test_jacobian_is_what_backward_does():
    """Bonus: sent back from the last h alone, a gradient dh arrives at h_0 as dh J."""
    cell, x, h0 = sequence_inputs(np.random.default_rng(18))
    h, cache = bptt.rnn_forward(cell, x[:1], h0[:1])
    J = bptt.hidden_jacobian(np.array(h)[0], cell.params["W_hh"], 0, T - 1)
    dh = np.zeros((1, T, H))
    dh[0, -1] = [2.0, -3.0]
    dx, _ = bptt.rnn_backward(cell, dh, cache)
    da = dh[0, -1] @ J * (1 - np.array(h)[0, 0] ** 2)
    check_close(np.array(dx)[0, 0], da @ cell.params["W_xh"].T, "dx at step 0", ("D",))


def test_jacobian_does_not_go_back():
    """Bonus: k > t is an error that names k."""
    with pytest.raises(ValueError, match="k"):
        bptt.hidden_jacobian(np.zeros((3, 2)), np.eye(2), 2, 1)


def test_jacobian_norms():
    """Bonus: the largest singular value of each Jacobian to the last state."""
    rng = np.random.default_rng(19)
    h, W_hh = np.tanh(rng.normal(size=(5, 3))), rng.normal(size=(3, 3))
    jacobians = [bptt.hidden_jacobian(h, W_hh, k, 4) for k in range(5)]
    largest = np.array([np.sqrt(np.linalg.eigvalsh(J.T @ J)[-1]) for J in jacobians])
    check_close(bptt.jacobian_norms(h, W_hh), largest, "norms", ("T",))
