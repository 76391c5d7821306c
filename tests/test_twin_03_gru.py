"""The GRU's PyTorch twin and its right variants against oracles that share nothing with them.

The oracles are the hand-made gradients of the NumPy reference, gradcheck, and for one unit, where both
variants are the same, torch.nn.GRU with converted weights. Everything agrees to 1e-10 in float64.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from softmark.batch import Run, grade_submissions
from softmark.bench import reference_files
from softmark.course import load_course
from softmark.intake import Submission
from torch.nn.utils import rnn

SOLUTION = Path(__file__).parents[1] / "solutions" / "03_gru"
FILES = [SOLUTION / "gru_torch.py", *sorted((SOLUTION / "variants").glob("*/gru_torch.py"))]
# (N, T, D, H): all different, and each of them 1 in turn
SIZES = [(3, 6, 5, 4), (4, 5, 2, 7), (1, 4, 3, 2), (3, 1, 2, 4), (2, 4, 1, 3), (3, 5, 2, 1)]
PARAMS = ["W", "b", "W_h", "b_h"]
INPUTS = ["x", "h0", *PARAMS]


def load(path):
    spec = importlib.util.spec_from_file_location(f"{path.stem}_of_{path.parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=FILES, ids=lambda path: path.parent.name)
def forward(request):
    """The function under test: the reference's, then each variant's."""
    return load(request.param).gru_forward_torch


@pytest.fixture(scope="module")
def by_hand():
    """The NumPy reference, whose gradients are made by hand."""
    return load(SOLUTION / "gru.py")


def draw(N, T, D, H, dtype=torch.float64):
    """Random inputs that gather gradients, and upstream gradients, by name."""
    generator = torch.Generator().manual_seed(N + 10 * T + 100 * D + 1000 * H)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    given = {
        "x": normal(N, T, D),
        "h0": normal(N, H),
        "W": normal(D + H, 2 * H),
        "b": normal(2 * H),
        "W_h": normal(D + H, H),
        "b_h": normal(H),
    }
    return {k: tensor.requires_grad_() for k, tensor in given.items()} | {"dh": normal(N, T, H)}


def run(forward, given, *mask):
    return forward({name: given[name] for name in PARAMS}, given["x"], given["h0"], *mask)


def there_and_back(forward, given, *mask):
    """h and every gradient by name, as NumPy arrays."""
    h = run(forward, given, *mask)
    grads = torch.autograd.grad(h, [given[name] for name in INPUTS], given["dh"])
    named = {"h": h} | dict(zip((f"d{name}" for name in INPUTS), grads, strict=True))
    return {name: tensor.detach().numpy() for name, tensor in named.items()}


def arrays(given):
    return {name: tensor.detach().numpy().copy() for name, tensor in given.items()}


def in_numpy(module, given, mask=None):
    """The same from the NumPy reference."""
    of = arrays(given)
    cell = module.GRUCell(of["x"].shape[2], of["h0"].shape[1], np.random.default_rng(0))
    cell.params = {name: of[name] for name in PARAMS}
    cell.zero_grad()
    h, cache = module.gru_forward(cell, of["x"], of["h0"], mask)
    dx, dh0 = module.gru_backward(cell, of["dh"], cache)
    return {"h": h, "dx": dx, "dh0": dh0} | {f"d{name}": cell.grads[name] for name in PARAMS}


def agree(actual, expected, tolerance=1e-10):
    assert actual.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(
            actual[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name
        )


# ---- values and gradients ------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_autograd_gives_the_gradients_made_by_hand(forward, by_hand, sizes):
    given = draw(*sizes)
    agree(there_and_back(forward, given), in_numpy(by_hand, given))
    agree(there_and_back(forward, given, None), in_numpy(by_hand, given))


@pytest.mark.parametrize("masked", [False, True])
def test_gradcheck(forward, masked):
    given = draw(2, 3, 3, 2)
    mask = torch.tensor([[True, False, True], [False, True, True]]) if masked else None

    def function(x, h0, *params):
        return forward(dict(zip(PARAMS, params, strict=True)), x, h0, mask)

    assert torch.autograd.gradcheck(function, [given[name] for name in INPUTS])


def test_with_one_unit_a_ragged_batch_is_torch_gru_on_packed_sequences(forward):
    """z turned round, all of the biases in the first of its two."""
    D, T, lengths = 3, 6, torch.tensor([4, 6, 1, 2, 6])
    given = draw(5, T, D, 1)
    mask = torch.arange(T) < lengths[:, None]
    given["dh"][~mask] = 0
    W = torch.cat([given["W"][:, :1], -given["W"][:, 1:], given["W_h"]], dim=1)
    bias = torch.cat([given["b"][:1], -given["b"][1:], given["b_h"]])
    weights = {
        "weight_ih_l0": W[:D].T,
        "weight_hh_l0": W[D:].T,
        "bias_ih_l0": bias,
        "bias_hh_l0": torch.zeros_like(bias),
    }
    layer = torch.nn.GRU(D, 1, batch_first=True, dtype=torch.float64)
    packed = rnn.pack_padded_sequence(given["x"], lengths, batch_first=True, enforce_sorted=False)
    h, _ = torch.func.functional_call(layer, weights, (packed, given["h0"][None]))
    h, _ = rnn.pad_packed_sequence(h, batch_first=True, total_length=T)
    grads = torch.autograd.grad(h, [given[name] for name in INPUTS], given["dh"])
    expected = {"h": h} | dict(zip((f"d{name}" for name in INPUTS), grads, strict=True))
    with torch.no_grad():
        given["x"][~mask] = -1e4
    padded = there_and_back(forward, given, mask)
    padded["h"] = padded["h"] * mask[..., None].numpy()  # torch gives zeros where h is carried over
    agree(padded, {name: tensor.detach().numpy() for name, tensor in expected.items()})


# ---- masks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_under_a_random_mask_it_is_the_numpy_one(forward, by_hand, sizes):
    given = draw(*sizes)
    mask = np.random.default_rng(1).random(sizes[:2]) < 0.6
    mask[0] = False
    with torch.no_grad():
        given["x"][torch.tensor(~mask)] = 1e4
    agree(there_and_back(forward, given, torch.tensor(mask)), in_numpy(by_hand, given, mask))


def test_a_row_without_real_tokens_hands_its_state_and_gradients_on(forward):
    given = draw(3, 4, 2, 5)
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1] = False
    result, of = there_and_back(forward, given, mask), arrays(given)
    np.testing.assert_array_equal(result["h"][1], np.broadcast_to(of["h0"][1], (4, 5)))
    np.testing.assert_allclose(result["dh0"][1], of["dh"][1].sum(axis=0), atol=1e-12)
    assert not result["dx"][1].any()


# ---- dtype, device, inputs -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_dtype_and_device_are_those_of_the_inputs(forward, dtype, masked):
    given = draw(3, 4, 5, 2, dtype)
    mask = torch.rand(3, 4) < 0.5 if masked else None
    assert run(forward, given, mask).dtype == dtype
    elsewhere = {name: tensor.to("meta") for name, tensor in given.items()}
    h = run(forward, elsewhere, mask.to("meta") if masked else None)
    assert (h.device.type, h.shape) == ("meta", (3, 4, 2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_on_a_gpu_it_gives_what_it_gives_on_the_cpu(forward):
    given = draw(3, 6, 5, 4)
    mask = torch.rand(3, 6) < 0.6
    elsewhere = {name: t.detach().cuda().requires_grad_() for name, t in given.items()}
    h = run(forward, elsewhere, mask.cuda())
    grads = torch.autograd.grad(h, [elsewhere[name] for name in INPUTS], elsewhere["dh"].detach())
    found = {"h": h} | dict(zip((f"d{name}" for name in INPUTS), grads, strict=True))
    assert {tensor.device.type for tensor in found.values()} == {"cuda"}
    found = {name: tensor.detach().cpu().numpy() for name, tensor in found.items()}
    agree(found, there_and_back(forward, given, mask))


def test_float32_is_close_to_float64(forward):
    double, single = draw(3, 6, 5, 4), draw(3, 6, 5, 4, torch.float32)
    agree(there_and_back(forward, single), there_and_back(forward, double), 1e-4)


def test_nothing_given_is_changed_and_any_layout_will_do(forward, by_hand):
    given = draw(3, 4, 2, 5)
    expected = in_numpy(by_hand, given)
    strided = {
        name: torch.stack([tensor, tensor], dim=-1).detach()[..., 0].requires_grad_()
        for name, tensor in given.items()
    }
    assert not strided["x"].is_contiguous()
    mask = torch.ones(3, 4, dtype=torch.bool)
    before = arrays(strided)
    agree(there_and_back(forward, strided, mask), expected)
    for name, array in before.items():
        np.testing.assert_array_equal(strided[name].detach().numpy(), array)
    assert mask.all()


# ---- how twins are graded ------------------------------------------------------------------------

GATES, CANDIDATE = "a_x[t] + h @ U", "a_new[t] + (r * h) @ U_h"
# Edits of the reference, and the items of the twin that they lose.
EDITS = {
    "right": ([], []),
    "all_in_one_product": (
        [
            (
                '    a_x = (x @ params["W"][:D] + params["b"])',
                '    both = torch.cat([params["W"], params["W_h"]], dim=1)[:D]\n'
                "    a_x, a_new = (x @ both).split([2 * h0.shape[1], h0.shape[1]], dim=2)\n"
                '    a_x = (a_x + params["b"])',
            ),
            ('x @ params["W_h"][:D] + params["b_h"]', 'a_new + params["b_h"]'),
        ],
        [],
    ),
    "broadcast_at_once": ([('x @ params["W"][:D]', '(x[..., None] * params["W"][:D]).sum(2)')], []),
    "x_beside_h": (
        [(GATES, 'torch.cat([x[:, t], h], 1) @ params["W"] + params["b"]')],
        ["twin.products"],
    ),
    "x_beside_the_reset_h": (
        [(CANDIDATE, 'torch.cat([x[:, t], r * h], 1) @ params["W_h"] + params["b_h"]')],
        ["twin.products"],
    ),
    "broadcast_at_every_step": (
        [(GATES, '(x[:, t, :, None] * params["W"][:D]).sum(1) + params["b"] + h @ U')],
        ["twin.products"],
    ),
    "h_detached": (
        [("torch.stack(hs, dim=1)", "torch.stack(hs, dim=1).detach()")],
        ["twin.backward", "twin.masks"],
    ),
}


@pytest.fixture(scope="module")
def lost():
    """The items of the twin that each edit loses, by name."""
    course = load_course(Path(__file__).parents[1])
    topic = course.topic("03_gru")
    files = reference_files(course, topic)
    submissions = []
    for name, (edits, _) in EDITS.items():
        source = files["gru_torch.py"]
        for old, new in edits:
            assert source.count(old) == 1, (name, old)
            source = source.replace(old, new)
        handed_in = {"gru.py": files["gru.py"], "gru_torch.py": source}
        submissions.append(Submission(name, handed_in, "ready", "", (), ""))
    results = grade_submissions(Run(course, topic, seed=3), submissions, workers=1)
    return {
        result.student: [
            item.id
            for item in result.items
            if item.id.startswith("twin.") and item.status != "passed"
        ]
        for result in results
    }


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="hidden grading needs Linux")
@pytest.mark.parametrize("name", EDITS)
def test_a_twin_loses_what_is_wrong_and_nothing_else(lost, name):
    assert lost[name] == EDITS[name][1]
