"""The BPTT topic's PyTorch twin and its right variants against oracles that share nothing with them.

The oracles are torch.nn.RNN with converted weights, on packed sequences too, the hand-made gradients of
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
from softmark.course import Course, load_course
from softmark.intake import Submission
from torch.nn.utils import rnn
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = Path(__file__).parents[1]
SOLUTION = ROOT / "solutions" / "01_bptt"
FILES = [SOLUTION / "bptt_torch.py", *sorted((SOLUTION / "variants").glob("*/bptt_torch.py"))]
# (N, T, D, H): all different, and each of them 1 in turn
SIZES = [(3, 6, 5, 4), (4, 5, 2, 7), (1, 4, 3, 2), (3, 1, 2, 4), (2, 4, 1, 3), (3, 5, 2, 1)]
KEYS = ("W_xh", "W_hh", "b_h")
INPUTS = ["x", "h0", *KEYS]


def load(path):
    spec = importlib.util.spec_from_file_location(f"{path.stem}_of_{path.parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=FILES, ids=lambda path: path.parent.name)
def forward(request):
    """The function under test: the reference's, then each variant's."""
    return load(request.param).rnn_forward_torch


@pytest.fixture(scope="module")
def by_hand():
    """The NumPy reference, whose gradients are made by hand."""
    return load(SOLUTION / "bptt.py")


def draw(N, T, D, H, dtype=torch.float64):
    """Random inputs that gather gradients, and an upstream gradient, by name."""
    generator = torch.Generator().manual_seed(N + 10 * T + 100 * D + 1000 * H)
    shapes = {"x": (N, T, D), "h0": (N, H), "W_xh": (D, H), "W_hh": (H, H), "b_h": (H,)}
    shapes |= {"dh": (N, T, H)}
    given = {
        name: torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)
        for name, shape in shapes.items()
    }
    return {name: tensor.requires_grad_(name != "dh") for name, tensor in given.items()}


def run(forward, given, *mask):
    return forward({key: given[key] for key in KEYS}, given["x"], given["h0"], *mask)


def there_and_back(forward, given, *mask):
    """Values and gradients by name, as NumPy arrays."""
    h = run(forward, given, *mask)
    grads = torch.autograd.grad(h, [given[name] for name in INPUTS], given["dh"])
    named = {"h": h} | dict(zip((f"d{n}" for n in INPUTS), grads, strict=True))
    return {name: tensor.detach().numpy() for name, tensor in named.items()}


def arrays(given):
    return {name: tensor.detach().numpy().copy() for name, tensor in given.items()}


def in_numpy(module, given, mask=None):
    """The same from the NumPy reference."""
    of = arrays(given)
    cell = module.RNNCell(*of["W_xh"].shape, np.random.default_rng(0))
    cell.params = {key: of[key] for key in KEYS}
    cell.zero_grad()
    h, cache = module.rnn_forward(cell, of["x"], of["h0"], mask)
    dx, dh0 = module.rnn_backward(cell, of["dh"], cache)
    return {"h": h, "dx": dx, "dh0": dh0} | {f"d{key}": cell.grads[key] for key in KEYS}


def in_torch_rnn(given, lengths):
    """torch.nn.RNN, whose weights are transposed, on packed sequences."""
    _, T, D = given["x"].shape
    layer = torch.nn.RNN(D, given["h0"].shape[1], batch_first=True, dtype=torch.float64)
    weights = {
        "weight_ih_l0": given["W_xh"].T,
        "weight_hh_l0": given["W_hh"].T,
        "bias_ih_l0": given["b_h"] / 2,
        "bias_hh_l0": given["b_h"] / 2,
    }
    packed = rnn.pack_padded_sequence(given["x"], lengths, batch_first=True, enforce_sorted=False)
    h, _ = torch.func.functional_call(layer, weights, (packed, given["h0"][None]))
    h, _ = rnn.pad_packed_sequence(h, batch_first=True, total_length=T)
    grads = torch.autograd.grad(h, [given[name] for name in INPUTS], given["dh"])
    named = {"h": h} | dict(zip((f"d{n}" for n in INPUTS), grads, strict=True))
    return {name: tensor.detach().numpy() for name, tensor in named.items()}


def agree(actual, expected, tolerance=1e-10):
    assert actual.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(
            actual[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name
        )


# ---- values and gradients ------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values_and_gradients_are_those_of_torch_rnn(forward, sizes):
    given = draw(*sizes)
    agree(there_and_back(forward, given), in_torch_rnn(given, [sizes[1]] * sizes[0]))


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
        return forward(dict(zip(KEYS, params, strict=True)), x, h0, mask)

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


def test_a_ragged_batch_is_torch_rnn_on_packed_sequences(forward):
    given = draw(5, 6, 3, 4)
    lengths = torch.tensor([4, 6, 1, 2, 6])
    mask = torch.arange(6) < lengths[:, None]
    given["dh"][~mask] = 0
    packed = in_torch_rnn(given, lengths)
    with torch.no_grad():
        given["x"][~mask] = -1e4
    padded = there_and_back(forward, given, mask)
    padded["h"] = padded["h"] * mask[..., None].numpy()  # torch gives zeros where h is carried over
    agree(padded, packed)


# ---- dtype, device, inputs, cost -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_dtype_and_device_are_those_of_the_inputs(forward, dtype, masked):
    given = draw(3, 4, 5, 2, dtype)
    mask = torch.rand(3, 4) < 0.5 if masked else None
    assert run(forward, given, mask).dtype == dtype
    elsewhere = {name: tensor.to("meta") for name, tensor in given.items()}
    h = run(forward, elsewhere, mask.to("meta") if masked else None)
    assert (h.device.type, h.shape) == ("meta", (3, 4, 2))


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

AT_ONCE = 'x @ params["W_xh"] + params["b_h"]'
A_STEP = 'a_x[t] + h @ params["W_hh"]'
W_XH = 'params["W_xh"]'
# Edits of the reference, and the items of the twin that they lose.
EDITS = {
    "right": ([], []),
    "broadcast_at_once": ([(AT_ONCE, f'(x[..., None] * {W_XH}).sum(2) + params["b_h"]')], []),
    "bias_in_the_loop": (
        [(AT_ONCE, f"x @ {W_XH}"), (A_STEP, f'{A_STEP} + params["b_h"]')],
        [],
    ),
    "x_beside_h": (
        [
            (
                A_STEP,
                f'torch.cat([x[:, t], h], 1) @ torch.cat([{W_XH}, params["W_hh"]]) + params["b_h"]',
            )
        ],
        ["twin.products"],
    ),
    "broadcast_at_every_step": (
        [(A_STEP, f'(x[:, t, :, None] * {W_XH}).sum(1) + params["b_h"] + h @ params["W_hh"]')],
        ["twin.products"],
    ),
    "h_detached": (
        [("torch.stack(hs, dim=1)", "torch.stack(hs, dim=1).detach()")],
        ["twin.backward", "twin.masks"],
    ),
}


def course_of(folder: Path) -> Course:
    """A course of this topic alone, of the files of this one."""
    for name in ("assignments", "solutions", "autograder"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "course.yaml").write_text("title: Test\ntopics:\n  - id: 01_bptt\n", "utf-8")
    return load_course(folder)


@pytest.fixture(scope="module")
def lost(tmp_path_factory):
    """The items of the twin that each edit loses, by name."""
    course = course_of(tmp_path_factory.mktemp("course"))
    topic = course.topic("01_bptt")
    files = reference_files(course, topic)
    submissions = []
    for name, (edits, _) in EDITS.items():
        source = files["bptt_torch.py"]
        for old, new in edits:
            assert source.count(old) == 1, (name, old)
            source = source.replace(old, new)
        handed_in = {"bptt.py": files["bptt.py"], "bptt_torch.py": source}
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
