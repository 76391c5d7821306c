"""The BPTT reference and its right variants against oracles that share nothing with them.

The oracles are torch.nn.RNN with converted weights, on packed sequences too, torch's autograd on the
bare equations, torch's cross-entropy and clipping, and central differences. Everything agrees to 1e-9
in float64.
"""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import rnn

SOLUTION = Path(__file__).parents[1] / "solutions" / "01_bptt"
FILES = [SOLUTION / "bptt.py", *sorted((SOLUTION / "variants").glob("*/bptt.py"))]
# (N, T, D, H): all different, and each of them 1 in turn
SIZES = [(3, 6, 5, 4), (4, 5, 2, 7), (1, 4, 3, 2), (3, 1, 2, 4), (2, 4, 1, 3), (3, 5, 2, 1)]
KEYS = ("W_xh", "W_hh", "b_h")
NAMES = ["h", "dx", "dh0", *(f"d{key}" for key in KEYS)]


@pytest.fixture(params=FILES, ids=lambda path: path.parent.name)
def bptt(request):
    """The module under test: the reference, then each variant."""
    name = f"bptt_of_{request.param.parent.name}"
    spec = importlib.util.spec_from_file_location(name, request.param)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw(N, T, D, H, seed=0):
    """Random parameters, inputs, states and upstream gradients, by name."""
    rng = np.random.default_rng([seed, N, T, D, H])
    shapes = {"W_xh": (D, H), "W_hh": (H, H), "b_h": (H,)}
    shapes |= {"x": (N, T, D), "h0": (N, H), "dh": (N, T, H)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def new_cell(bptt, given):
    cell = bptt.RNNCell(*given["W_xh"].shape, np.random.default_rng(0))
    cell.params = {key: given[key] for key in KEYS}
    cell.zero_grad()
    return cell


def ours(bptt, given, mask=None, window=None):
    """Every output and gradient of one sequence, there and back."""
    cell = new_cell(bptt, given)
    h, cache = bptt.rnn_forward(cell, given["x"], given["h0"], mask)
    if window is None:
        dx, dh0 = bptt.rnn_backward(cell, given["dh"], cache)
    else:
        dx, dh0 = bptt.truncated_rnn_backward(cell, given["dh"], cache, window)
    return dict(zip(NAMES, (h, dx, dh0, *(cell.grads[key] for key in KEYS)), strict=True))


def agree(actual, expected, tolerance=1e-9):
    for name in expected:
        assert actual[name].dtype == expected[name].dtype, name
        np.testing.assert_allclose(
            actual[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name
        )


# ---- padding -------------------------------------------------------------------------------------


def test_padding_is_undone_by_its_mask(bptt):
    rng = np.random.default_rng(0)
    sequences = [rng.integers(0, 3, size=length).tolist() for length in (3, 0, 5, 1, 5)]
    for pad_id in (0, 2, -7):
        tokens, mask = bptt.pad_sequences(sequences, pad_id)
        assert (tokens.shape, tokens.dtype, mask.dtype) == ((5, 5), np.int64, np.bool_)
        assert [row[real].tolist() for row, real in zip(tokens, mask, strict=True)] == sequences
        assert (tokens[~mask] == pad_id).all()
        assert (np.diff(mask.astype(int), axis=1) <= 0).all()  # real tokens first
    padded = rnn.pad_sequence([torch.tensor(s) for s in sequences if s], batch_first=True)
    np.testing.assert_array_equal(bptt.pad_sequences([s for s in sequences if s])[0], padded)


@pytest.mark.parametrize("sequences, shape", [([], (0, 0)), ([[]], (1, 0)), ([[], []], (2, 0))])
def test_padding_of_nothing(bptt, sequences, shape):
    tokens, mask = bptt.pad_sequences(sequences)
    assert (tokens.shape, mask.shape) == (shape, shape)
    assert (tokens.dtype, mask.dtype) == (np.int64, np.bool_)


# ---- torch ---------------------------------------------------------------------------------------


def by_torch_rnn(given, lengths=None):
    """torch.nn.RNN, whose weights are transposed; with ``lengths`` on the packed sequences, where h is
    0 behind them."""
    T, D = given["x"].shape[1:]
    layer = torch.nn.RNN(D, given["h0"].shape[1], batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.tensor(given["W_xh"].T))
        layer.weight_hh_l0.copy_(torch.tensor(given["W_hh"].T))
        layer.bias_ih_l0.copy_(torch.tensor(0.25 * given["b_h"]))  # only the sum of the two counts
        layer.bias_hh_l0.copy_(torch.tensor(0.75 * given["b_h"]))
    x, h0 = (torch.tensor(given[name], requires_grad=True) for name in ("x", "h0"))
    if lengths is None:
        h, _ = layer(x, h0[None])
    else:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h, _ = layer(packed, h0[None])
        h, _ = rnn.pad_packed_sequence(h, batch_first=True, total_length=T)
    h.backward(torch.tensor(given["dh"]))
    outputs = [h.detach(), x.grad, h0.grad]
    outputs += [layer.weight_ih_l0.grad.T, layer.weight_hh_l0.grad.T, layer.bias_hh_l0.grad]
    return {name: tensor.numpy() for name, tensor in zip(NAMES, outputs, strict=True)}


def by_autograd(given, mask, window=10**6):
    """The equations as they stand, differentiated by torch; states are detached between windows."""
    leaf = {name: torch.tensor(given[name], requires_grad=True) for name in (*KEYS, "x", "h0")}
    h, hs = leaf["h0"], []
    for t in range(given["x"].shape[1]):
        h = h.detach() if t and t % window == 0 else h
        new = torch.tanh(leaf["x"][:, t] @ leaf["W_xh"] + h @ leaf["W_hh"] + leaf["b_h"])
        h = torch.where(torch.tensor(mask[:, t, None]), new, h)
        hs.append(h)
    hs = torch.stack(hs, dim=1)
    hs.backward(torch.tensor(given["dh"]))
    gradients = [leaf[name].grad.numpy() for name in ("x", "h0", *KEYS)]
    return dict(zip(NAMES, [hs.detach().numpy(), *gradients], strict=True))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values_and_gradients_are_those_of_torch_rnn(bptt, sizes):
    given = draw(*sizes)
    agree(ours(bptt, given), by_torch_rnn(given))


def random_mask(sizes):
    mask = np.random.default_rng(1).random(sizes[:2]) < 0.6
    mask[0] = False
    return mask


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_under_a_random_mask_they_are_those_of_autograd(bptt, sizes):
    given, mask = draw(*sizes), random_mask(sizes)
    if mask.any():
        agree(ours(bptt, given, mask), by_autograd(given, mask))


@pytest.mark.parametrize("window", [1, 2, 5, 6, 7])
@pytest.mark.parametrize("masked", [False, True])
def test_windows_are_those_of_autograd_on_detached_states(bptt, window, masked):
    given = draw(3, 6, 5, 4)
    mask = random_mask((3, 6)) if masked else np.ones((3, 6), bool)
    agree(ours(bptt, given, mask, window), by_autograd(given, mask, window))


def test_one_step_is_a_sequence_of_one(bptt):
    given = draw(3, 1, 5, 4)
    cell = new_cell(bptt, given)
    h, cache = cell.forward(given["x"][:, 0], given["h0"])
    dx, dh_prev = cell.backward(given["dh"][:, 0], cache)
    step = (h[:, None], dx[:, None], dh_prev, *(cell.grads[key] for key in KEYS))
    agree(dict(zip(NAMES, step, strict=True)), by_torch_rnn(given))


# ---- central differences -------------------------------------------------------------------------


def slope(loss, array):
    """Four points instead of two: at a step of 1e-3 the error of the formula is some 1e-12 and that
    of rounding some 1e-13, where two points reach 1e-10 at their best."""
    gradient, step = np.zeros_like(array), 1e-3
    for place in np.ndindex(array.shape):
        value, total = array[place], 0.0
        for distance, weight in [(1, 8), (2, -1), (-1, -8), (-2, 1)]:
            array[place] = value + distance * step
            total += weight * loss()
        array[place] = value
        gradient[place] = total / (12 * step)
    return gradient


def test_gradients_are_those_of_central_differences(bptt):
    given = draw(2, 4, 3, 2)

    def loss():
        h, _ = bptt.rnn_forward(new_cell(bptt, given), given["x"], given["h0"])
        return np.sum(h * given["dh"])

    agree(ours(bptt, given), {f"d{name}": slope(loss, given[name]) for name in ("x", "h0", *KEYS)})


# ---- masks ---------------------------------------------------------------------------------------


def test_a_ragged_batch_is_torch_rnn_on_packed_sequences(bptt):
    given = draw(5, 6, 3, 4)
    lengths = [4, 6, 1, 2, 6]
    mask = np.arange(6) < np.array(lengths)[:, None]
    given["dh"][~mask] = 0
    packed = by_torch_rnn(given, lengths)
    given["x"][~mask] = -1e4
    padded = ours(bptt, given, mask)
    padded["h"] = padded["h"] * mask[..., None]  # torch gives zeros where we carry h over
    agree(padded, packed)


def test_a_ragged_batch_is_the_singles_it_is_made_of(bptt):
    N, T, D, H = 4, 6, 3, 5
    given = draw(N, T, D, H)
    lengths = [6, 1, 4, 3]
    mask = np.arange(T) < np.array(lengths)[:, None]
    given["x"][~mask] = 1e4
    given["dh"][~mask] = 0
    batch, singles = ours(bptt, given, mask), []
    for n, length in enumerate(lengths):
        one = {k: v if k in KEYS else v[n : n + 1] for k, v in given.items()}
        one["x"], one["dh"] = one["x"][:, :length], one["dh"][:, :length]
        single = ours(bptt, one)
        singles.append(single)
        for name in ("h", "dx"):
            np.testing.assert_allclose(batch[name][n, :length], single[name][0], atol=1e-12)
        np.testing.assert_allclose(batch["dh0"][n], single["dh0"][0], atol=1e-12)
        last = np.broadcast_to(single["h"][0, -1], (T - length, H))
        np.testing.assert_allclose(batch["h"][n, length:], last, atol=1e-12)
    assert not batch["dx"][~mask].any()
    for key in KEYS:
        total = sum(single[f"d{key}"] for single in singles)
        np.testing.assert_allclose(batch[f"d{key}"], total, atol=1e-12)


@pytest.mark.parametrize("sizes", [(1, 4, 3, 2), (3, 1, 2, 4), (1, 1, 1, 1), (2, 5, 1, 3)], ids=str)
def test_with_every_step_masked_nothing_happens(bptt, sizes):
    given = draw(*sizes)
    given["x"][:] = 1e4
    N, T, _, H = sizes
    expected = {f"d{key}": np.zeros(given[key].shape) for key in KEYS}
    expected |= {"h": np.broadcast_to(given["h0"][:, None], (N, T, H)).copy()}
    expected |= {"dx": np.zeros(given["x"].shape), "dh0": given["dh"].sum(axis=1)}
    agree(ours(bptt, given, np.zeros(sizes[:2], bool)), expected, 1e-12)


# ---- cross-entropy -------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(3, 4, 6), (4, 6, 3), (1, 5, 2), (5, 1, 3), (2, 3, 1)], ids=str)
def test_cross_entropy_is_torchs(bptt, sizes):
    rng = np.random.default_rng(2)
    logits, targets = 3 * rng.normal(size=sizes), rng.integers(sizes[2], size=sizes[:2])
    mask = rng.random(sizes[:2]) < 0.6
    mask[0, 0] = True
    targets[~mask] = -100
    leaf = torch.tensor(logits, requires_grad=True)
    expected = torch.nn.functional.cross_entropy(
        leaf.flatten(0, 1), torch.tensor(targets).flatten(), ignore_index=-100
    )
    expected.backward()
    loss, dlogits = bptt.sequence_cross_entropy(logits, targets, mask)
    assert isinstance(loss, float)
    assert loss == pytest.approx(expected.item(), rel=1e-12, abs=1e-15)
    np.testing.assert_allclose(dlogits, leaf.grad.numpy(), rtol=1e-10, atol=1e-14)


def test_cross_entropy_of_large_logits_and_of_no_target(bptt):
    logits = np.array([[[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]]])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        loss, dlogits = bptt.sequence_cross_entropy(
            logits, np.array([[1, 2]]), np.ones((1, 2), bool)
        )
        assert loss == pytest.approx((2e4 + math.log(3)) / 2)
        np.testing.assert_allclose(
            dlogits, [[[1 / 2, -1 / 2, 0], [1 / 6, 1 / 6, -1 / 3]]], atol=1e-15
        )
        nothing = np.zeros((1, 2), bool)
        loss, dlogits = bptt.sequence_cross_entropy(logits, np.array([[-100, 9]]), nothing)
    assert loss == 0 and not dlogits.any()


# ---- a language model ----------------------------------------------------------------------------


def lm_by_torch(given, tokens, mask):
    """torch.nn.RNNCell, embedding and cross_entropy; masked inputs leave the state as it is."""
    leaf = {name: torch.tensor(array, requires_grad=True) for name, array in given.items()}
    x = torch.nn.functional.embedding(torch.tensor(tokens), leaf["embedding"])
    real = torch.tensor(mask)
    h, logits = leaf["h0"], []
    weights = leaf["W_xh"].T, leaf["W_hh"].T, leaf["b_h"], torch.zeros_like(leaf["b_h"])
    for t in range(tokens.shape[1] - 1):
        h = torch.where(real[:, t, None], torch.rnn_tanh_cell(x[:, t], h, *weights), h)
        logits.append(h @ leaf["W_hy"] + leaf["b_y"])
    targets = torch.where(real[:, 1:], torch.tensor(tokens[:, 1:]), -100)
    scores = torch.stack(logits, dim=1).flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(scores, targets.flatten())
    loss.backward()
    return loss.item(), {name: tensor.grad.numpy() for name, tensor in leaf.items() if name != "h0"}


@pytest.mark.parametrize("holes", [False, True])
def test_a_language_model_is_torchs(bptt, holes):
    N, T, E, H, V = 4, 7, 3, 5, 6
    rng = np.random.default_rng(3)
    shapes = {"W_xh": (E, H), "W_hh": (H, H), "b_h": (H,), "embedding": (V, E)}
    shapes |= {"W_hy": (H, V), "b_y": (V,), "h0": (N, H)}
    given = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    tokens = rng.integers(V, size=(N, T))
    mask = rng.random((N, T)) < 0.7 if holes else np.arange(T) < np.array([[7], [2], [1], [5]])
    cell = new_cell(bptt, given)
    arrays = [given[name] for name in ("embedding", "W_hy", "b_y")]
    loss, grads = bptt.rnn_lm_loss(cell, *arrays, tokens, mask, given["h0"])
    expected_loss, expected = lm_by_torch(given, tokens, mask)
    assert loss == pytest.approx(expected_loss, rel=1e-12)
    assert grads.keys() == {"embedding", "W_hy", "b_y"}
    agree(grads | cell.grads, expected)


def test_a_single_token_predicts_nothing(bptt):
    given = draw(3, 1, 2, 4)
    cell = new_cell(bptt, given)
    arrays = [np.ones((5, 2)), np.ones((4, 5)), np.ones(5)]
    tokens, mask = np.array([[1], [4], [0]]), np.ones((3, 1), bool)
    loss, grads = bptt.rnn_lm_loss(cell, *arrays, tokens, mask, given["h0"])
    assert loss == 0
    assert {k: g.shape for k, g in grads.items()} == {
        "embedding": (5, 2),
        "W_hy": (4, 5),
        "b_y": (5,),
    }
    assert not any(g.any() for g in (*grads.values(), *cell.grads.values()))


# ---- clipping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_norm", [1e-3, 0.5, 4.0, 1e3])
def test_clipping_is_torchs_but_for_its_small_number(bptt, max_norm):
    rng = np.random.default_rng(4)
    grads = {"a": rng.normal(size=(3, 2)), "b": 5 * rng.normal(size=4), "c": rng.normal(size=())}
    before = {name: g.copy() for name, g in grads.items()}
    parameters = [torch.nn.Parameter(torch.tensor(g)) for g in grads.values()]
    for parameter in parameters:
        parameter.grad = parameter.detach().clone()
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm).item()
    clipped, found = bptt.clip_by_global_norm(grads, max_norm)
    assert isinstance(found, float) and found == pytest.approx(norm, rel=1e-12)
    for parameter, (name, g) in zip(parameters, grads.items(), strict=True):
        np.testing.assert_allclose(clipped[name], parameter.grad.numpy(), rtol=1e-6)
        np.testing.assert_array_equal(g, before[name])
        assert clipped[name] is not g
    total = math.sqrt(sum(np.sum(g**2) for g in clipped.values()))
    assert total == pytest.approx(min(norm, max_norm), rel=1e-12)


def test_clipping_of_zeros_and_of_nothing(bptt):
    with np.errstate(all="raise"):
        clipped, norm = bptt.clip_by_global_norm({"a": np.zeros((2, 3))}, 1.0)
    assert norm == 0 and not clipped["a"].any()
    for max_norm in (0, 0.0, -1):
        with pytest.raises(ValueError, match=r"\bmax_norm\b"):
            bptt.clip_by_global_norm({"a": np.ones(2)}, max_norm)


# ---- Jacobians -----------------------------------------------------------------------------------


def jacobians_by_autograd(given):
    """J[k] = ∂h_{T-1} / ∂h_k, entry [i, j] for h_{T-1}[i] and h_k[j], of a batch of one."""
    W_xh, W_hh, b_h, x, h = (torch.tensor(given[name]) for name in (*KEYS, "x", "h0"))
    hs = []
    for t in range(x.shape[1]):
        h = torch.tanh(x[0, t] @ W_xh + (h if hs else h[0]) @ W_hh + b_h).requires_grad_()
        hs.append(h)
    H = len(b_h)
    rows = [torch.autograd.grad(hs[-1][i], hs, retain_graph=True) for i in range(H)]
    states = torch.stack(hs).detach().numpy()
    return states, [np.array([row[k].numpy() for row in rows]) for k in range(len(hs))]


@pytest.mark.parametrize("sizes", [(1, 6, 3, 4), (1, 5, 2, 1), (1, 1, 2, 3)], ids=str)
def test_jacobians_are_those_of_autograd(bptt, sizes):
    h, jacobians = jacobians_by_autograd(draw(*sizes))
    W_hh, T = draw(*sizes)["W_hh"], sizes[1]
    for k, expected in enumerate(jacobians):
        found = bptt.hidden_jacobian(h, W_hh, k, T - 1)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)
    largest = [np.linalg.svd(J)[1][0] for J in jacobians]
    np.testing.assert_allclose(bptt.jacobian_norms(h, W_hh), largest, rtol=1e-9, atol=1e-13)


def test_jacobians_chain(bptt):
    rng = np.random.default_rng(5)
    h, W_hh = np.tanh(rng.normal(size=(6, 3))), rng.normal(size=(3, 3))
    whole = bptt.hidden_jacobian(h, W_hh, 1, 5)
    parts = bptt.hidden_jacobian(h, W_hh, 3, 5) @ bptt.hidden_jacobian(h, W_hh, 1, 3)
    np.testing.assert_allclose(whole, parts, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(bptt.hidden_jacobian(h, W_hh, 2, 2), np.eye(3))
    for k, t in [(1, 0), (5, 2)]:
        with pytest.raises(ValueError, match=r"\b[kt]\b"):
            bptt.hidden_jacobian(h, W_hh, k, t)


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_holds_a_step(bptt, window):
    with pytest.raises(ValueError, match=r"\bwindow\b"):
        ours(bptt, draw(2, 3, 2, 2), window=window)


# ---- what is left alone --------------------------------------------------------------------------


def test_nothing_given_is_changed_and_gradients_add_up(bptt):
    given = draw(3, 4, 2, 5)
    mask = random_mask((3, 4))
    for array in (*given.values(), mask):
        array.flags.writeable = False
    once = ours(bptt, given, mask)
    cell = new_cell(bptt, given)
    _, cache = bptt.rnn_forward(cell, given["x"], given["h0"], mask)
    for _ in range(2):
        bptt.rnn_backward(cell, given["dh"], cache)
    for key in KEYS:
        np.testing.assert_allclose(cell.grads[key], 2 * once[f"d{key}"], rtol=1e-12)


def test_float32_stays_float32(bptt):
    given = {name: array.astype(np.float32) for name, array in draw(3, 4, 2, 5).items()}
    for window in (None, 2):
        found = ours(bptt, given, random_mask((3, 4)), window)
        assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}
    assert bptt.hidden_jacobian(given["h0"], given["W_hh"], 0, 2).dtype == np.float32
    assert bptt.jacobian_norms(given["h0"], given["W_hh"]).dtype == np.float32
    logits, tokens, mask = given["dh"], np.ones((3, 4), int), np.ones((3, 4), bool)
    loss, dlogits = bptt.sequence_cross_entropy(logits, tokens, mask)
    assert isinstance(loss, float) and dlogits.dtype == np.float32
    clipped, norm = bptt.clip_by_global_norm({"a": given["W_hh"]}, 0.1)
    assert isinstance(norm, float) and clipped["a"].dtype == np.float32
