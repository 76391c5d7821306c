"""The LSTM reference and its right variants against oracles that share nothing with them.

The oracles are torch.nn.LSTM with converted weights, on packed sequences too, torch's autograd on the
bare equations, central differences, and the sigmoid in decimal arithmetic. Everything agrees to 1e-9 in
float64.
"""

import importlib.util
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import rnn

SOLUTION = Path(__file__).parents[1] / "solutions" / "02_lstm"
FILES = [SOLUTION / "lstm.py", *sorted((SOLUTION / "variants").glob("*/lstm.py"))]
# (N, T, D, H): all different, and each of them 1 in turn
SIZES = [(3, 6, 5, 4), (4, 5, 2, 7), (1, 4, 3, 2), (3, 1, 2, 4), (2, 4, 1, 3), (3, 5, 2, 1)]
NAMES = ["h", "c_last", "dx", "dh0", "dc0", "dW", "db"]


@pytest.fixture(params=FILES, ids=lambda path: path.parent.name)
def lstm(request):
    """The module under test: the reference, then each variant."""
    name = f"lstm_of_{request.param.parent.name}"
    spec = importlib.util.spec_from_file_location(name, request.param)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw(N, T, D, H, seed=0):
    """Random parameters, inputs, states and upstream gradients, by name."""
    rng = np.random.default_rng([seed, N, T, D, H])
    shapes = {
        "W": (D + H, 4 * H),
        "b": (4 * H,),
        "x": (N, T, D),
        "h0": (N, H),
        "c0": (N, H),
        "dh": (N, T, H),
        "dc_last": (N, H),
    }
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def new_cell(lstm, given):
    H = given["h0"].shape[1]
    cell = lstm.LSTMCell(given["W"].shape[0] - H, H, np.random.default_rng(0))
    cell.params = {"W": given["W"], "b": given["b"]}
    cell.zero_grad()
    return cell


def ours(lstm, given, mask=None):
    """Every output and gradient of one sequence, there and back."""
    cell = new_cell(lstm, given)
    h, c_last, cache = lstm.lstm_forward(cell, given["x"], given["h0"], given["c0"], mask)
    dx, dh0, dc0 = lstm.lstm_backward(cell, given["dh"], given["dc_last"], cache)
    grads = cell.grads["W"], cell.grads["b"]
    return dict(zip(NAMES, (h, c_last, dx, dh0, dc0, *grads), strict=True))


def agree(actual, expected, tolerance=1e-9):
    for name in expected:
        assert actual[name].dtype == expected[name].dtype, name
        np.testing.assert_allclose(
            actual[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name
        )


# ---- torch ---------------------------------------------------------------------------------------


def by_torch_lstm(given, lengths=None):
    """torch.nn.LSTM: one weight matrix for x and one for h, transposed, with blocks i, f, g, o.

    With ``lengths`` on the packed sequences; h is then 0 behind them.
    """
    D, H = given["x"].shape[2], given["h0"].shape[1]
    ours_to_torch = np.concatenate([np.arange(k * H, (k + 1) * H) for k in (1, 0, 2, 3)])
    W, b = given["W"][:, ours_to_torch], given["b"][ours_to_torch]
    layer = torch.nn.LSTM(D, H, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.tensor(W[:D].T))
        layer.weight_hh_l0.copy_(torch.tensor(W[D:].T))
        layer.bias_ih_l0.copy_(torch.tensor(0.25 * b))  # only the sum of its two biases counts
        layer.bias_hh_l0.copy_(torch.tensor(0.75 * b))
    x, h0, c0 = (torch.tensor(given[name], requires_grad=True) for name in ("x", "h0", "c0"))
    if lengths is None:
        h, (_, c_last) = layer(x, (h0[None], c0[None]))
    else:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h, (_, c_last) = layer(packed, (h0[None], c0[None]))
        h, _ = rnn.pad_packed_sequence(h, batch_first=True, total_length=x.shape[1])
    loss = (h * torch.tensor(given["dh"])).sum() + (
        c_last[0] * torch.tensor(given["dc_last"])
    ).sum()
    loss.backward()
    dW = torch.cat([layer.weight_ih_l0.grad, layer.weight_hh_l0.grad], dim=1).T.numpy()
    back = np.argsort(ours_to_torch)
    outputs = [tensor.detach().numpy() for tensor in (h, c_last[0], x.grad, h0.grad, c0.grad)]
    outputs += [dW[:, back], layer.bias_hh_l0.grad.numpy()[back]]
    return dict(zip(NAMES, outputs, strict=True))


def by_autograd(given, mask):
    """The equations as they stand, differentiated by torch."""
    names = ("W", "b", "x", "h0", "c0")
    W, b, x, h0, c0 = (torch.tensor(given[name], requires_grad=True) for name in names)
    h, c, hs = h0, c0, []
    for t in range(x.shape[1]):
        f, i, g, o = (torch.cat([x[:, t], h], dim=1) @ W + b).chunk(4, dim=1)
        c_new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h_new = torch.sigmoid(o) * torch.tanh(c_new)
        real = torch.tensor(mask[:, t, None])
        h, c = torch.where(real, h_new, h), torch.where(real, c_new, c)
        hs.append(h)
    hs = torch.stack(hs, dim=1)
    loss = (hs * torch.tensor(given["dh"])).sum() + (c * torch.tensor(given["dc_last"])).sum()
    loss.backward()
    tensors = (hs.detach(), c.detach(), x.grad, h0.grad, c0.grad, W.grad, b.grad)
    return {name: tensor.numpy() for name, tensor in zip(NAMES, tensors, strict=True)}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values_and_gradients_are_those_of_torch_lstm(lstm, sizes):
    given = draw(*sizes)
    agree(ours(lstm, given), by_torch_lstm(given))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values_and_gradients_under_a_random_mask_are_those_of_autograd(lstm, sizes):
    given = draw(*sizes)
    mask = np.random.default_rng(1).random(sizes[:2]) < 0.6
    mask[0] = False
    agree(ours(lstm, given, mask), by_autograd(given, mask))


# ---- central differences -------------------------------------------------------------------------


def test_gradients_are_those_of_central_differences(lstm):
    """Four points instead of two: at a step of 1e-3 the error of the formula is some 1e-12 and that
    of rounding some 1e-13, where two points reach 1e-10 at their best."""
    given = draw(2, 4, 3, 2)

    def loss():
        cell = new_cell(lstm, given)
        h, c_last, _ = lstm.lstm_forward(cell, given["x"], given["h0"], given["c0"])
        return np.sum(h * given["dh"]) + np.sum(c_last * given["dc_last"])

    def slope(array):
        gradient, step = np.zeros_like(array), 1e-3
        for place in np.ndindex(array.shape):
            value, total = array[place], 0.0
            for distance, weight in [(1, 8), (2, -1), (-1, -8), (-2, 1)]:
                array[place] = value + distance * step
                total += weight * loss()
            array[place] = value
            gradient[place] = total / (12 * step)
        return gradient

    numeric = {f"d{name}": slope(given[name]) for name in ("x", "h0", "c0", "W", "b")}
    agree(ours(lstm, given), numeric)


def test_one_step_is_a_sequence_of_one(lstm):
    given = draw(3, 1, 5, 4)
    cell = new_cell(lstm, given)
    h, c, cache = cell.forward(given["x"][:, 0], given["h0"], given["c0"])
    dx, dh_prev, dc_prev = cell.backward(given["dh"][:, 0], given["dc_last"], cache)
    step = (h[:, None], c, dx[:, None], dh_prev, dc_prev, cell.grads["W"], cell.grads["b"])
    agree(dict(zip(NAMES, step, strict=True)), by_torch_lstm(given))


# ---- masks ---------------------------------------------------------------------------------------


def test_a_ragged_batch_is_torch_lstm_on_packed_sequences(lstm):
    given = draw(5, 6, 3, 4)
    lengths = [4, 6, 1, 2, 6]
    mask = np.arange(6) < np.array(lengths)[:, None]
    given["dh"][~mask] = 0
    packed = by_torch_lstm(given, lengths)
    given["x"][~mask] = -1e4
    padded = ours(lstm, given, mask)
    padded["h"] = padded["h"] * mask[..., None]  # torch gives zeros where we carry h over
    agree(padded, packed)


def test_a_ragged_batch_is_the_singles_it_is_made_of(lstm):
    N, T, D, H = 4, 6, 3, 5
    given = draw(N, T, D, H)
    lengths = [6, 1, 4, 3]
    mask = np.arange(T) < np.array(lengths)[:, None]
    given["x"][~mask] = 1e4  # behind the mask anything may stand
    given["dh"][~mask] = 0
    batch = ours(lstm, given, mask)
    singles = []
    for n, length in enumerate(lengths):
        one = {k: v if k in ("W", "b") else v[n : n + 1] for k, v in given.items()}
        one["x"], one["dh"] = one["x"][:, :length], one["dh"][:, :length]
        single = ours(lstm, one)
        singles.append(single)
        for name in ("h", "dx"):
            np.testing.assert_allclose(batch[name][n, :length], single[name][0], atol=1e-12)
        for name in ("c_last", "dh0", "dc0"):
            np.testing.assert_allclose(batch[name][n], single[name][0], atol=1e-12)
        last = np.broadcast_to(single["h"][0, -1], (T - length, H))
        np.testing.assert_allclose(batch["h"][n, length:], last, atol=1e-12)
    assert not batch["dx"][~mask].any()
    for name in ("dW", "db"):
        np.testing.assert_allclose(batch[name], sum(s[name] for s in singles), atol=1e-12)


def test_a_hole_is_a_step_that_never_was(lstm):
    given = draw(2, 5, 3, 4)
    mask = np.array([[False, True, True, False, True]] * 2)
    given["dh"][~mask] = 0
    holed = ours(lstm, given, mask)
    dense = ours(lstm, {**given, "x": given["x"][:, mask[0]], "dh": given["dh"][:, mask[0]]})
    for name in ("c_last", "dh0", "dc0", "dW", "db"):
        np.testing.assert_allclose(holed[name], dense[name], atol=1e-12)
    for name in ("h", "dx"):
        np.testing.assert_allclose(holed[name][:, mask[0]], dense[name], atol=1e-12)


def test_a_row_without_real_tokens_keeps_its_state_and_passes_gradients_on(lstm):
    given = draw(3, 4, 2, 5)
    mask = np.ones((3, 4), bool)
    mask[1] = False
    result = ours(lstm, given, mask)
    np.testing.assert_array_equal(result["h"][1], np.broadcast_to(given["h0"][1], (4, 5)))
    np.testing.assert_array_equal(result["c_last"][1], given["c0"][1])
    np.testing.assert_allclose(result["dh0"][1], given["dh"][1].sum(axis=0), atol=1e-12)
    np.testing.assert_array_equal(result["dc0"][1], given["dc_last"][1])
    assert not result["dx"][1].any()


def test_a_mask_of_true_is_no_mask(lstm):
    given = draw(3, 4, 2, 5)
    masked, plain = ours(lstm, given, np.ones((3, 4), bool)), ours(lstm, given)
    for name in NAMES:
        np.testing.assert_array_equal(masked[name], plain[name])


@pytest.mark.parametrize("sizes", [(1, 4, 3, 2), (3, 1, 2, 4), (1, 1, 1, 1), (2, 5, 1, 3)], ids=str)
def test_with_every_step_masked_nothing_happens(lstm, sizes):
    """For one sample and for one step too: the state comes out, the gradients go in, and that is all."""
    given = draw(*sizes)
    given["x"][:] = 1e4
    result = ours(lstm, given, np.zeros(sizes[:2], bool))
    N, T, _, H = sizes
    agree(
        result,
        {
            "h": np.broadcast_to(given["h0"][:, None], (N, T, H)),
            "c_last": given["c0"],
            "dx": np.zeros(given["x"].shape),
            "dh0": given["dh"].sum(axis=1),
            "dc0": given["dc_last"],
            "dW": np.zeros(given["W"].shape),
            "db": np.zeros(given["b"].shape),
        },
        1e-12,
    )


def test_a_mask_is_left_alone(lstm):
    given = draw(3, 4, 2, 5)
    mask = np.random.default_rng(2).random((3, 4)) < 0.5
    before = mask.copy()
    mask.flags.writeable = False
    ours(lstm, given, mask)
    np.testing.assert_array_equal(mask, before)


# ---- carousel ------------------------------------------------------------------------------------


def forget_gates(lstm, given):
    """The gates (T, H) of one sequence, from the h that it gives."""
    H = given["h0"].shape[1]
    h = ours(lstm, given)["h"][0]
    before = np.vstack([given["h0"], h[:-1]])
    a_f = np.hstack([given["x"][0], before]) @ given["W"][:, :H] + given["b"][:H]
    return 1 / (1 + np.exp(-a_f))


def jacobian(c_last, c):
    """[i, j] = ∂c_last[i] / ∂c[j], for a batch of one."""
    units = torch.eye(c.shape[1], dtype=c.dtype)
    rows = [torch.autograd.grad(c_last, c, u[None], retain_graph=True)[0] for u in units]
    return torch.cat(rows).numpy()


@pytest.mark.parametrize("k, t", [(0, 5), (1, 4), (2, 3), (4, 5), (0, 0), (5, 5), (3, 3)])
def test_the_direct_path_is_what_autograd_gives_with_fixed_gates(lstm, k, t):
    given = draw(1, 6, 3, 4)
    gates = forget_gates(lstm, given)
    start = c = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    for f in gates[k + 1 : t + 1]:
        c = torch.tensor(f) * c + 1
    gradient = lstm.carousel_gradient(gates, k, t)
    assert gradient.shape == (4,)
    np.testing.assert_allclose(np.diag(gradient), jacobian(c, start), rtol=1e-12, atol=1e-15)


def test_the_whole_derivative_is_dc0_and_more_than_the_direct_path(lstm):
    given = draw(1, 6, 3, 4)
    W, b, x, h, c = (torch.tensor(given[name]) for name in ("W", "b", "x", "h0", "c0"))
    start = c.requires_grad_()
    for t in range(6):
        f, i, g, o = (torch.cat([x[:, t], h], dim=1) @ W + b).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    whole = jacobian(c, start)

    given["dh"][:] = 0
    rows = [ours(lstm, {**given, "dc_last": unit[None]})["dc0"] for unit in np.eye(4)]
    np.testing.assert_allclose(np.vstack(rows), whole, rtol=1e-10, atol=1e-12)
    gates = np.vstack([np.ones((1, 4)), forget_gates(lstm, given)])  # from c0: one step more
    assert np.abs(whole - np.diag(lstm.carousel_gradient(gates, 0, 6))).max() > 1e-3


@pytest.mark.parametrize("k, t", [(1, 0), (5, 2)])
def test_a_later_step_does_not_act_on_an_earlier_one(lstm, k, t):
    with pytest.raises(ValueError, match=r"\bk\b"):
        lstm.carousel_gradient(np.ones((6, 3)), k, t)


def test_carousel_keeps_float32_and_its_gates(lstm):
    gates = np.full((5, 2), 0.5, np.float32)
    gates.flags.writeable = False
    for k, t, value in [(0, 3, 0.125), (2, 2, 1)]:
        gradient = lstm.carousel_gradient(gates, k, t)
        assert gradient.dtype == np.float32
        np.testing.assert_array_equal(gradient, [value, value])


# ---- sigmoid -------------------------------------------------------------------------------------


def test_sigmoid_is_within_1e_12_of_the_exact_value(lstm):
    z = np.concatenate([np.linspace(-60, 60, 1201), [-1e4, -1000, -745, -709, 709, 1000, 1e4]])
    with localcontext() as context:
        context.prec = 40
        exact = [float(1 / (1 + (-Decimal(float(value))).exp())) for value in z]
    s = lstm.sigmoid(z)
    assert np.abs(s - exact).max() <= 1e-12
    np.testing.assert_allclose(s, torch.sigmoid(torch.tensor(z)).numpy(), rtol=0, atol=1e-15)


def test_sigmoid_is_exact_and_silent_far_out(lstm):
    largest = np.finfo(np.float64).max
    z = np.array([-largest, -1e8, -1e4, 1e4, 1e8, largest])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        np.testing.assert_array_equal(lstm.sigmoid(z), [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("shape", [(), (1,), (3, 2), (2, 1, 3, 2)])
def test_sigmoid_keeps_shape_and_dtype(lstm, shape, dtype):
    s = lstm.sigmoid(np.zeros(shape, dtype))
    assert (s.shape, s.dtype) == (shape, dtype)
    np.testing.assert_array_equal(s, np.full(shape, 0.5))


# ---- a new cell, and what is left alone ----------------------------------------------------------


def test_a_new_cell_is_drawn_from_its_generator(lstm):
    D, H = 150, 100
    cell = lstm.LSTMCell(D, H, np.random.default_rng(3), forget_bias=1.5)
    W, b = cell.params["W"], cell.params["b"]
    assert W.shape == (D + H, 4 * H)
    np.testing.assert_array_equal(b, np.repeat([1.5, 0, 0, 0], H))
    assert {k: v.shape for k, v in cell.grads.items()} == {"W": W.shape, "b": b.shape}
    assert not cell.grads["W"].any()
    assert not cell.grads["b"].any()
    z = np.sort((W / np.sqrt(2 / (D + H))).ravel())
    normal = torch.special.ndtr(torch.tensor(z)).numpy()
    distance = np.abs(normal - np.arange(z.size) / z.size).max()
    assert distance < 2 / np.sqrt(z.size)  # Kolmogorov and Smirnov: 1 in 1500 is above
    again = lstm.LSTMCell(D, H, np.random.default_rng(3)).params
    np.testing.assert_array_equal(again["W"], W)
    np.testing.assert_array_equal(again["b"], np.repeat([1, 0, 0, 0], H))


def test_nothing_given_is_changed_and_gradients_add_up(lstm):
    given = draw(3, 4, 2, 5)
    before = {name: array.copy() for name, array in given.items()}
    for array in given.values():
        array.flags.writeable = False
    cell = new_cell(lstm, given)
    _, _, cache = lstm.lstm_forward(cell, given["x"], given["h0"], given["c0"])
    lstm.lstm_backward(cell, given["dh"], given["dc_last"], cache)
    once = {name: np.array(grad) for name, grad in cell.grads.items()}
    lstm.lstm_backward(cell, given["dh"], given["dc_last"], cache)
    for name, grad in once.items():
        np.testing.assert_allclose(cell.grads[name], 2 * grad, rtol=1e-12)
    for name, array in before.items():
        np.testing.assert_array_equal(given[name], array)


def test_float32_stays_float32_and_close(lstm):
    given = draw(3, 4, 2, 5)
    single = ours(lstm, {name: array.astype(np.float32) for name, array in given.items()})
    for name, double in ours(lstm, given).items():
        assert single[name].dtype == np.float32 or name in ("dW", "db"), name
        np.testing.assert_allclose(single[name], double, rtol=1e-4, atol=1e-5)


def test_saturated_gates_are_finite_and_silent(lstm):
    given = draw(3, 4, 2, 5)
    given["W"] *= 1e4
    given["b"] *= 1e4
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        result = ours(lstm, given)
    assert all(np.isfinite(array).all() for array in result.values())
