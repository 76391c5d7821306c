"""The LSTM's PyTorch twin and its right variants against oracles that share nothing with them.

The oracles are torch.nn.LSTM with converted weights, on packed sequences too, the hand-made gradients of
the NumPy reference, and gradcheck. Everything agrees to 1e-10 in float64.
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
from torch.utils._python_dispatch import TorchDispatchMode

SOLUTION = Path(__file__).parents[1] / "solutions" / "02_lstm"
FILES = [SOLUTION / "lstm_torch.py", *sorted((SOLUTION / "variants").glob("*/lstm_torch.py"))]
# (N, T, D, H): all different, and each of them 1 in turn
SIZES = [(3, 6, 5, 4), (4, 5, 2, 7), (1, 4, 3, 2), (3, 1, 2, 4), (2, 4, 1, 3), (3, 5, 2, 1)]
INPUTS = ["x", "h0", "c0", "W", "b"]


def load(path):
    spec = importlib.util.spec_from_file_location(f"{path.stem}_of_{path.parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=FILES, ids=lambda path: path.parent.name)
def forward(request):
    """The function under test: the reference's, then each variant's."""
    return load(request.param).lstm_forward_torch


@pytest.fixture(scope="module")
def by_hand():
    """The NumPy reference, whose gradients are made by hand."""
    return load(SOLUTION / "lstm.py")


def draw(N, T, D, H, dtype=torch.float64):
    """Random inputs that gather gradients, and upstream gradients, by name."""
    generator = torch.Generator().manual_seed(N + 10 * T + 100 * D + 1000 * H)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    given = {
        "x": normal(N, T, D),
        "h0": normal(N, H),
        "c0": normal(N, H),
        "W": normal(D + H, 4 * H),
        "b": normal(4 * H),
    }
    given = {name: tensor.requires_grad_() for name, tensor in given.items()}
    return given | {"dh": normal(N, T, H), "dc_last": normal(N, H)}


def run(forward, given, *mask):
    params = {"W": given["W"], "b": given["b"]}
    return forward(params, given["x"], given["h0"], given["c0"], *mask)


def there_and_back(forward, given, *mask):
    """Values and gradients by name, as NumPy arrays."""
    h, c_last = run(forward, given, *mask)
    inputs = [given[name] for name in INPUTS]
    grads = torch.autograd.grad((h, c_last), inputs, (given["dh"], given["dc_last"]))
    named = {"h": h, "c_last": c_last} | dict(zip((f"d{n}" for n in INPUTS), grads, strict=True))
    return {name: tensor.detach().numpy() for name, tensor in named.items()}


def arrays(given):
    return {name: tensor.detach().numpy().copy() for name, tensor in given.items()}


def in_numpy(module, given, mask=None):
    """The same from the NumPy reference."""
    of = arrays(given)
    H = of["h0"].shape[1]
    cell = module.LSTMCell(of["x"].shape[2], H, np.random.default_rng(0))
    cell.params = {"W": of["W"], "b": of["b"]}
    cell.zero_grad()
    h, c_last, cache = module.lstm_forward(cell, of["x"], of["h0"], of["c0"], mask)
    dx, dh0, dc0 = module.lstm_backward(cell, of["dh"], of["dc_last"], cache)
    grads = {"dx": dx, "dh0": dh0, "dc0": dc0, "dW": cell.grads["W"], "db": cell.grads["b"]}
    return {"h": h, "c_last": c_last, **grads}


def in_torch_lstm(given, lengths):
    """torch.nn.LSTM: one weight matrix for x and one for h, transposed, with blocks i, f, g, o."""
    _, T, D = given["x"].shape
    H = given["h0"].shape[1]
    order = torch.cat([torch.arange(k * H, (k + 1) * H) for k in (1, 0, 2, 3)])
    layer = torch.nn.LSTM(D, H, batch_first=True, dtype=torch.float64)
    W, b = given["W"][:, order], given["b"][order]
    weights = {
        "weight_ih_l0": W[:D].T,
        "weight_hh_l0": W[D:].T,
        "bias_ih_l0": b / 2,
        "bias_hh_l0": b / 2,
    }
    packed = rnn.pack_padded_sequence(given["x"], lengths, batch_first=True, enforce_sorted=False)
    first = given["h0"][None], given["c0"][None]
    h, (_, c_last) = torch.func.functional_call(layer, weights, (packed, first))
    h, _ = rnn.pad_packed_sequence(h, batch_first=True, total_length=T)
    inputs = [given[name] for name in INPUTS]
    grads = torch.autograd.grad((h, c_last[0]), inputs, (given["dh"], given["dc_last"]))
    named = {"h": h, "c_last": c_last[0]} | dict(zip((f"d{n}" for n in INPUTS), grads, strict=True))
    return {name: tensor.detach().numpy() for name, tensor in named.items()}


def agree(actual, expected, tolerance=1e-10):
    assert actual.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(
            actual[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name
        )


# ---- values and gradients ------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values_and_gradients_are_those_of_torch_lstm(forward, sizes):
    given = draw(*sizes)
    agree(there_and_back(forward, given), in_torch_lstm(given, [sizes[1]] * sizes[0]))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_autograd_gives_the_gradients_made_by_hand(forward, by_hand, sizes):
    given = draw(*sizes)
    agree(there_and_back(forward, given), in_numpy(by_hand, given))
    agree(there_and_back(forward, given, None), in_numpy(by_hand, given))


@pytest.mark.parametrize("masked", [False, True])
def test_gradcheck(forward, masked):
    given = draw(2, 3, 3, 2)
    mask = torch.tensor([[True, False, True], [False, True, True]]) if masked else None

    def function(x, h0, c0, W, b):
        return forward({"W": W, "b": b}, x, h0, c0, mask)

    assert torch.autograd.gradcheck(function, [given[name] for name in INPUTS])


# ---- masks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_under_a_random_mask_it_is_the_numpy_one(forward, by_hand, sizes):
    given = draw(*sizes)
    mask = np.random.default_rng(1).random(sizes[:2]) < 0.6
    mask[0] = False
    with torch.no_grad():
        given["x"][torch.tensor(~mask)] = 1e4
    agree(there_and_back(forward, given, torch.tensor(mask)), in_numpy(by_hand, given, mask))


def test_a_ragged_batch_is_torch_lstm_on_packed_sequences(forward):
    given = draw(5, 6, 3, 4)
    lengths = torch.tensor([4, 6, 1, 2, 6])
    mask = torch.arange(6) < lengths[:, None]
    given["dh"][~mask] = 0
    packed = in_torch_lstm(given, lengths)
    with torch.no_grad():
        given["x"][~mask] = -1e4
    padded = there_and_back(forward, given, mask)
    padded["h"] = padded["h"] * mask[..., None].numpy()  # torch gives zeros where h is carried over
    agree(padded, packed)


def test_a_row_without_real_tokens_hands_its_state_and_gradients_on(forward):
    given = draw(3, 4, 2, 5)
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1] = False
    result, of = there_and_back(forward, given, mask), arrays(given)
    np.testing.assert_array_equal(result["h"][1], np.broadcast_to(of["h0"][1], (4, 5)))
    np.testing.assert_array_equal(result["c_last"][1], of["c0"][1])
    np.testing.assert_allclose(result["dh0"][1], of["dh"][1].sum(axis=0), atol=1e-12)
    np.testing.assert_array_equal(result["dc0"][1], of["dc_last"][1])
    assert not result["dx"][1].any()


# ---- dtype, device, inputs, cost -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_dtype_and_device_are_those_of_the_inputs(forward, dtype, masked):
    given = draw(3, 4, 5, 2, dtype)
    mask = torch.rand(3, 4) < 0.5 if masked else None
    h, c_last = run(forward, given, mask)
    assert (h.dtype, c_last.dtype) == (dtype, dtype)
    elsewhere = {name: tensor.to("meta") for name, tensor in given.items()}
    h, c_last = run(forward, elsewhere, mask.to("meta") if masked else None)
    assert (h.device.type, c_last.device.type) == ("meta", "meta")
    assert (h.shape, c_last.shape) == ((3, 4, 2), (3, 2))


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


class _Products(TorchDispatchMode):
    """What the matrix products sum over."""

    def __init__(self):
        super().__init__()
        self.sums = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.__name__.split(".")[0]
        if name in ("mm", "bmm", "addmm", "baddbmm"):
            self.sums.append(args["add" in name].shape[-1])
        return function(*args, **(kwargs or {}))


def test_the_input_projections_of_all_steps_are_made_at_once(forward):
    D, H = 5, 3
    counted = []
    for T in (2, 8):
        with _Products() as products:
            run(forward, draw(4, T, D, H))
        assert set(products.sums) == {D, H}
        counted.append((products.sums.count(D), products.sums.count(H)))
    (few, steps), (many, more_steps) = counted
    assert many == few
    assert more_steps == 4 * steps


# ---- how twins are graded ------------------------------------------------------------------------

AT_ONCE = 'x @ W_x + params["b"]'
A_STEP = "a_x[t] + h @ W_h"
ONE = "torch.ones_like(h[:, :1])"
# Edits of the reference, and the items of the twin that they lose.
EDITS = {
    "right": ([], []),
    "bias_as_a_row_of_ones": (
        [
            (AT_ONCE, "x @ W_x"),
            (
                A_STEP,
                f'a_x[t] + torch.cat([h, {ONE}], 1) @ torch.cat([W_h, params["b"][None]])',
            ),
        ],
        [],
    ),
    "h_beside_c": (
        [
            (
                A_STEP,
                "a_x[t] + torch.cat([h, c], 1) @ torch.cat([W_h, torch.zeros_like(W_h)])",
            )
        ],
        [],
    ),
    "broadcast_at_once": ([(AT_ONCE, '(x[..., None] * W_x).sum(2) + params["b"]')], []),
    "x_beside_h": (
        [(A_STEP, 'torch.cat([x[:, t], h], 1) @ params["W"] + params["b"]')],
        ["twin.products"],
    ),
    "broadcast_at_every_step": (
        [(A_STEP, '(x[:, t, :, None] * W_x).sum(1) + params["b"] + h @ W_h')],
        ["twin.products"],
    ),
    "bilinear_at_every_step": (
        [
            (
                A_STEP,
                "torch.nn.functional.bilinear(x[:, t], torch.ones_like(x[:, t, :1]), "
                'W_x.T[:, :, None]) + params["b"] + h @ W_h',
            )
        ],
        ["twin.products"],
    ),
    "convolution_at_every_step": (
        [
            (
                A_STEP,
                "torch.nn.functional.conv1d(x[:, t, :, None], W_x.T[:, :, None])[:, :, 0] "
                '+ params["b"] + h @ W_h',
            )
        ],
        ["twin.products"],
    ),
    "zeros_when_watched": (
        [
            (
                "    h, c = h0, c0",
                """    h, c = h0, c0
    if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
        return x.new_zeros(*x.shape[:2], h0.shape[1]), torch.zeros_like(c0)""",
            ),
            ("import torch\n", "import torch\nimport torch.utils._python_dispatch\n"),
        ],
        ["twin.products"],
    ),
    "h_detached": (
        [("torch.stack(hs, dim=1), c", "torch.stack(hs, dim=1).detach(), c")],
        ["twin.backward", "twin.masks"],
    ),
    "without_autograd": (
        [("    h, c = h0, c0", "    torch.set_grad_enabled(False)\n    h, c = h0, c0")],
        ["twin.backward", "twin.masks"],
    ),
}


@pytest.fixture(scope="module")
def lost():
    """The items of the twin that each edit loses, by name."""
    course = load_course(Path(__file__).parents[1])
    topic = course.topic("02_lstm")
    files = reference_files(course, topic)
    submissions = []
    for name, (edits, _) in EDITS.items():
        source = files["lstm_torch.py"]
        for old, new in edits:
            assert source.count(old) == 1, (name, old)
            source = source.replace(old, new)
        handed_in = {"lstm.py": files["lstm.py"], "lstm_torch.py": source}
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
