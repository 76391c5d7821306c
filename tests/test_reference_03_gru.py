"""The GRU reference and its right variants against oracles that share nothing with them.

The oracles are torch.nn.GRU, which is ResetAfterGRUCell exactly once its weights are converted, on
packed sequences too; torch's autograd on the bare equations; and central differences. Everything agrees
to 1e-9 in float64.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import rnn

SOLUTION = Path(__file__).parents[1] / "solutions" / "03_gru"
FILES = [SOLUTION / "gru.py", *sorted((SOLUTION / "variants").glob("*/gru.py"))]
# (N, T, D, H): all different, and each of them 1 in turn
SIZES = [(3, 6, 5, 4), (4, 5, 2, 7), (1, 4, 3, 2), (3, 1, 2, 4), (2, 4, 1, 3), (3, 5, 2, 1)]
PARAMS = {"GRUCell": ["W", "b", "W_h", "b_h"], "ResetAfterGRUCell": ["W_x", "W_h", "b_x", "b_h"]}
CELLS = list(PARAMS)


@pytest.fixture(params=FILES, ids=lambda path: path.parent.name)
def gru(request):
    """The module under test: the reference, then each variant."""
    name = f"gru_of_{request.param.parent.name}"
    spec = importlib.util.spec_from_file_location(name, request.param)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw(kind, N, T, D, H, seed=0):
    """Random parameters, inputs, states and upstream gradients, by name."""
    rng = np.random.default_rng([seed, N, T, D, H])
    shapes = {"x": (N, T, D), "h0": (N, H), "dh": (N, T, H)}
    if kind == "GRUCell":
        shapes |= {"W": (D + H, 2 * H), "b": (2 * H,), "W_h": (D + H, H), "b_h": (H,)}
    else:
        shapes |= {"W_x": (D, 3 * H), "W_h": (H, 3 * H), "b_x": (3 * H,), "b_h": (3 * H,)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def new_cell(gru, kind, given):
    D, H = given["x"].shape[2], given["h0"].shape[1]
    cell = getattr(gru, kind)(D, H, np.random.default_rng(0))
    cell.params = {name: given[name] for name in PARAMS[kind]}
    cell.zero_grad()
    return cell


def ours(gru, kind, given, mask=None):
    """Every output and gradient of one sequence, there and back."""
    cell = new_cell(gru, kind, given)
    h, cache = gru.gru_forward(cell, given["x"], given["h0"], mask)
    dx, dh0 = gru.gru_backward(cell, given["dh"], cache)
    grads = {f"d{name}": cell.grads[name] for name in PARAMS[kind]}
    return {"h": h, "dx": dx, "dh0": dh0, **grads}


def agree(actual, expected, tolerance=1e-9):
    for name in expected:
        assert actual[name].dtype == expected[name].dtype, name
        np.testing.assert_allclose(
            actual[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name
        )


# ---- torch ---------------------------------------------------------------------------------------


def by_torch_gru(given, lengths=None):
    """torch.nn.GRU: matrices transposed, blocks r, z, n as ours, and its z keeps the old state.

    With ``lengths`` on the packed sequences; h is then 0 behind them.
    """
    D, H = given["x"].shape[2], given["h0"].shape[1]
    layer = torch.nn.GRU(D, H, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.tensor(given["W_x"].T))
        layer.weight_hh_l0.copy_(torch.tensor(given["W_h"].T))
        layer.bias_ih_l0.copy_(torch.tensor(given["b_x"]))
        layer.bias_hh_l0.copy_(torch.tensor(given["b_h"]))
    x, h0 = (torch.tensor(given[name], requires_grad=True) for name in ("x", "h0"))
    if lengths is None:
        h, _ = layer(x, h0[None])
    else:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h, _ = layer(packed, h0[None])
        h, _ = rnn.pad_packed_sequence(h, batch_first=True, total_length=x.shape[1])
    (h * torch.tensor(given["dh"])).sum().backward()
    return {
        "h": h.detach().numpy(),
        "dx": x.grad.numpy(),
        "dh0": h0.grad.numpy(),
        "dW_x": layer.weight_ih_l0.grad.numpy().T,
        "dW_h": layer.weight_hh_l0.grad.numpy().T,
        "db_x": layer.bias_ih_l0.grad.numpy(),
        "db_h": layer.bias_hh_l0.grad.numpy(),
    }


def step_of_cho(p, x, h):
    """GRUCell's equations as they stand, on tensors."""
    D, H = x.shape[1], h.shape[1]
    r = torch.sigmoid(x @ p["W"][:D, :H] + h @ p["W"][D:, :H] + p["b"][:H])
    z = torch.sigmoid(x @ p["W"][:D, H:] + h @ p["W"][D:, H:] + p["b"][H:])
    candidate = torch.tanh(x @ p["W_h"][:D] + (r * h) @ p["W_h"][D:] + p["b_h"])
    return (1 - z) * h + z * candidate


def step_of_torch(p, x, h):
    """ResetAfterGRUCell's, likewise."""
    r_x, z_x, n_x = (x @ p["W_x"] + p["b_x"]).chunk(3, dim=1)
    r_h, z_h, n_h = (h @ p["W_h"] + p["b_h"]).chunk(3, dim=1)
    z = torch.sigmoid(z_x + z_h)
    return (1 - z) * torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h) + z * h


STEPS = {"GRUCell": step_of_cho, "ResetAfterGRUCell": step_of_torch}


def by_autograd(kind, given, mask):
    """The equations over time, differentiated by torch."""
    leaf = {name: torch.tensor(given[name], requires_grad=True) for name in given if name != "dh"}
    h, hs = leaf["h0"], []
    for t in range(given["x"].shape[1]):
        h_t = STEPS[kind](leaf, leaf["x"][:, t], h)
        h = torch.where(torch.tensor(mask[:, t, None]), h_t, h)
        hs.append(h)
    hs = torch.stack(hs, dim=1)
    (hs * torch.tensor(given["dh"])).sum().backward()
    return {"h": hs.detach().numpy()} | {f"d{n}": leaf[n].grad.numpy() for n in leaf}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_reset_after_is_torch_gru_exactly(gru, sizes):
    given = draw("ResetAfterGRUCell", *sizes)
    agree(ours(gru, "ResetAfterGRUCell", given), by_torch_gru(given))


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values_and_gradients_are_those_of_autograd(gru, kind, sizes):
    given = draw(kind, *sizes)
    agree(ours(gru, kind, given), by_autograd(kind, given, np.ones(sizes[:2], bool)))


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_under_a_random_mask_they_are_those_of_autograd(gru, kind, sizes):
    given = draw(kind, *sizes)
    mask = np.random.default_rng(1).random(sizes[:2]) < 0.6
    mask[0] = False
    agree(ours(gru, kind, given, mask), by_autograd(kind, given, mask))


# ---- the two variants ----------------------------------------------------------------------------


def converted(given, H):
    """GRUCell's parameters as ResetAfterGRUCell's: z turned round, all of the biases in b_x."""
    D = given["x"].shape[2]
    W = np.concatenate([given["W"][:, :H], -given["W"][:, H:], given["W_h"]], axis=1)
    b = np.concatenate([given["b"][:H], -given["b"][H:], given["b_h"]])
    rest = {name: given[name] for name in ("x", "h0", "dh")}
    return rest | {"W_x": W[:D], "W_h": W[D:], "b_x": b, "b_h": np.zeros(3 * H)}


def test_the_variants_are_the_same_for_one_unit_and_differ_for_two(gru):
    for H, same in ((1, True), (2, False)):
        given = draw("GRUCell", 3, 4, 5, H)
        before = ours(gru, "GRUCell", given)
        after = ours(gru, "ResetAfterGRUCell", converted(given, H))
        for name in ("h", "dx", "dh0"):
            assert np.allclose(before[name], after[name], atol=1e-12) == same, (name, H)


# ---- central differences -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CELLS)
def test_gradients_are_those_of_central_differences(gru, kind):
    """Four points instead of two: at a step of 1e-3 the error of the formula is some 1e-12 and that
    of rounding some 1e-13, where two points reach 1e-10 at their best."""
    given = draw(kind, 2, 4, 3, 2)

    def loss():
        cell = new_cell(gru, kind, given)
        return np.sum(gru.gru_forward(cell, given["x"], given["h0"])[0] * given["dh"])

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

    numeric = {f"d{name}": slope(given[name]) for name in given if name != "dh"}
    agree(ours(gru, kind, given), numeric)


@pytest.mark.parametrize("kind", CELLS)
def test_one_step_is_a_sequence_of_one(gru, kind):
    given = draw(kind, 3, 1, 5, 4)
    cell = new_cell(gru, kind, given)
    h, cache = cell.forward(given["x"][:, 0], given["h0"])
    dx, dh_prev = cell.backward(given["dh"][:, 0], cache)
    step = {"h": h[:, None], "dx": dx[:, None], "dh0": dh_prev}
    step |= {f"d{name}": grad for name, grad in cell.grads.items()}
    agree(step, by_autograd(kind, given, np.ones((3, 1), bool)))


# ---- masks ---------------------------------------------------------------------------------------


def test_a_ragged_batch_is_torch_gru_on_packed_sequences(gru):
    given = draw("ResetAfterGRUCell", 5, 6, 3, 4)
    lengths = [4, 6, 1, 2, 6]
    mask = np.arange(6) < np.array(lengths)[:, None]
    given["dh"][~mask] = 0
    packed = by_torch_gru(given, lengths)
    given["x"][~mask] = -1e4
    padded = ours(gru, "ResetAfterGRUCell", given, mask)
    padded["h"] = padded["h"] * mask[..., None]  # torch gives zeros where we carry h over
    agree(padded, packed)


@pytest.mark.parametrize("kind", CELLS)
def test_a_ragged_batch_is_the_singles_it_is_made_of(gru, kind):
    N, T, D, H = 4, 6, 3, 5
    given = draw(kind, N, T, D, H)
    lengths = [6, 1, 4, 3]
    mask = np.arange(T) < np.array(lengths)[:, None]
    given["x"][~mask] = 1e4  # behind the mask anything may stand
    given["dh"][~mask] = 0
    batch = ours(gru, kind, given, mask)
    singles = []
    for n, length in enumerate(lengths):
        one = {k: v if k in PARAMS[kind] else v[n : n + 1] for k, v in given.items()}
        one["x"], one["dh"] = one["x"][:, :length], one["dh"][:, :length]
        single = ours(gru, kind, one)
        singles.append(single)
        for name in ("h", "dx"):
            np.testing.assert_allclose(batch[name][n, :length], single[name][0], atol=1e-12)
        np.testing.assert_allclose(batch["dh0"][n], single["dh0"][0], atol=1e-12)
        last = np.broadcast_to(single["h"][0, -1], (T - length, H))
        np.testing.assert_allclose(batch["h"][n, length:], last, atol=1e-12)
    assert not batch["dx"][~mask].any()
    for name in PARAMS[kind]:
        np.testing.assert_allclose(
            batch[f"d{name}"], sum(s[f"d{name}"] for s in singles), atol=1e-12
        )


@pytest.mark.parametrize("kind", CELLS)
def test_a_hole_is_a_step_that_never_was(gru, kind):
    given = draw(kind, 2, 5, 3, 4)
    mask = np.array([[False, True, True, False, True]] * 2)
    given["dh"][~mask] = 0
    holed = ours(gru, kind, given, mask)
    real = {"x": given["x"][:, mask[0]], "dh": given["dh"][:, mask[0]]}
    dense = ours(gru, kind, given | real)
    for name in dense:
        of_holed = holed[name][:, mask[0]] if name in ("h", "dx") else holed[name]
        np.testing.assert_allclose(of_holed, dense[name], atol=1e-12, err_msg=name)


@pytest.mark.parametrize("kind", CELLS)
def test_a_row_without_real_tokens_keeps_its_state_and_passes_gradients_on(gru, kind):
    given = draw(kind, 3, 4, 2, 5)
    mask = np.ones((3, 4), bool)
    mask[1] = False
    result = ours(gru, kind, given, mask)
    np.testing.assert_array_equal(result["h"][1], np.broadcast_to(given["h0"][1], (4, 5)))
    np.testing.assert_allclose(result["dh0"][1], given["dh"][1].sum(axis=0), atol=1e-12)
    assert not result["dx"][1].any()


@pytest.mark.parametrize("kind", CELLS)
def test_a_mask_of_true_is_no_mask(gru, kind):
    given = draw(kind, 3, 4, 2, 5)
    masked, plain = ours(gru, kind, given, np.ones((3, 4), bool)), ours(gru, kind, given)
    for name in plain:
        np.testing.assert_array_equal(masked[name], plain[name])


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("sizes", [(1, 4, 3, 2), (3, 1, 2, 4), (1, 1, 1, 1), (2, 5, 1, 3)], ids=str)
def test_with_every_step_masked_nothing_happens(gru, kind, sizes):
    """For one sample and for one step too: the state comes out, the gradients go in, and that is all."""
    given = draw(kind, *sizes)
    given["x"][:] = 1e4
    result = ours(gru, kind, given, np.zeros(sizes[:2], bool))
    N, T, _, H = sizes
    nothing = {f"d{name}": np.zeros(given[name].shape) for name in PARAMS[kind]}
    nothing |= {"dx": np.zeros(given["x"].shape), "dh0": given["dh"].sum(axis=1)}
    nothing["h"] = np.broadcast_to(given["h0"][:, None], (N, T, H))
    agree(result, nothing, 1e-12)


@pytest.mark.parametrize("kind", CELLS)
def test_a_mask_is_left_alone(gru, kind):
    given = draw(kind, 3, 4, 2, 5)
    mask = np.random.default_rng(2).random((3, 4)) < 0.5
    before = mask.copy()
    mask.flags.writeable = False
    ours(gru, kind, given, mask)
    np.testing.assert_array_equal(mask, before)


# ---- counting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("D, H", [(5, 4), (3, 7), (1, 1), (30, 20)])
def test_parameters_are_those_of_torch_and_of_the_cells(gru, D, H):
    """torch's cells have two biases each; those of the course one, but for the reset-after GRU."""
    layers = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
    for kind, layer in layers.items():
        of_torch = {name: p.numel() for name, p in layer(D, H).named_parameters()}
        both = sum(of_torch.values())
        assert gru.count_parameters(kind, D, H) == both - of_torch["bias_hh_l0"]
    assert gru.count_parameters("gru_reset_after", D, H) == both
    for kind, cell in (("gru", gru.GRUCell), ("gru_reset_after", gru.ResetAfterGRUCell)):
        held = sum(p.size for p in cell(D, H, np.random.default_rng(0)).params.values())
        assert gru.count_parameters(kind, D, H) == held


@pytest.mark.parametrize("kind", ["", "GRU", "transformer"])
def test_an_unknown_kind_is_an_error(gru, kind):
    with pytest.raises(ValueError, match="kind"):
        gru.count_parameters(kind, 2, 3)


# ---- a new cell, and what is left alone ----------------------------------------------------------


@pytest.mark.parametrize("kind", CELLS)
def test_a_new_cell_has_its_shapes_and_is_drawn_from_its_generator(gru, kind):
    D, H = 3, 2
    first, again, other = (getattr(gru, kind)(D, H, np.random.default_rng(s)) for s in (3, 3, 4))
    shapes = {name: array.shape for name, array in draw(kind, 1, 1, D, H).items()}
    for name in PARAMS[kind]:
        assert first.params[name].shape == first.grads[name].shape == shapes[name]
        assert not first.grads[name].any()
        np.testing.assert_array_equal(first.params[name], again.params[name])
    assert not np.array_equal(first.params["W_h"], other.params["W_h"])


@pytest.mark.parametrize("kind", CELLS)
def test_nothing_given_is_changed_and_gradients_add_up(gru, kind):
    given = draw(kind, 3, 4, 2, 5)
    before = {name: array.copy() for name, array in given.items()}
    for array in given.values():
        array.flags.writeable = False
    cell = new_cell(gru, kind, given)
    _, cache = gru.gru_forward(cell, given["x"], given["h0"])
    gru.gru_backward(cell, given["dh"], cache)
    once = {name: np.array(grad) for name, grad in cell.grads.items()}
    gru.gru_backward(cell, given["dh"], cache)
    for name, grad in once.items():
        np.testing.assert_allclose(cell.grads[name], 2 * grad, rtol=1e-12)
    for name, array in before.items():
        np.testing.assert_array_equal(given[name], array)


@pytest.mark.parametrize("kind", CELLS)
def test_float32_stays_float32_and_close(gru, kind):
    given = draw(kind, 3, 4, 2, 5)
    single = ours(gru, kind, {name: array.astype(np.float32) for name, array in given.items()})
    for name, double in ours(gru, kind, given).items():
        assert single[name].dtype == np.float32, name
        np.testing.assert_allclose(single[name], double, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", CELLS)
def test_saturated_gates_are_finite_and_silent(gru, kind):
    given = draw(kind, 3, 4, 2, 5)
    for name in PARAMS[kind]:
        given[name] *= 1e4
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        result = ours(gru, kind, given)
    for name, array in result.items():
        assert np.isfinite(array).all(), name
