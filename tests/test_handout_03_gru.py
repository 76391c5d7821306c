"""What students of 03_gru read and run first: handout, figure, questions, public tests.

Every number is worked out again, in another way than where it was written: by torch's autograd on
the bare equations, by central differences, by bisection, by counting torch's own layers.
"""

import importlib.util
import json
import math
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from handouts import outcomes
from softmark.builders.stub import stub
from softmark.questions import load_answers, load_questions

ROOT = Path(__file__).resolve().parent.parent
PUBLIC, PRIVATE = ROOT / "assignments" / "03_gru", ROOT / "solutions" / "03_gru"
HANDOUT = (PUBLIC / "handout.md").read_text(encoding="utf-8")
FIGURE = (PUBLIC / "reach.svg").read_text(encoding="utf-8")
CURVES = json.loads(re.search(r"<dc:description>(.*?)</dc:description>", FIGURE)[1])
QUESTIONS = load_questions(PUBLIC / "questions.yaml", "questions.yaml")
ANSWERS = load_answers(PRIVATE / "answers.yaml", "answers.yaml", QUESTIONS)
LN2, LN3 = math.log(2), math.log(3)


def load(file, monkeypatch):
    """A module of the solution's folder; what it imports from there is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "gru", raising=False)
    spec = importlib.util.spec_from_file_location(f"handout_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delitem(sys.modules, "gru", raising=False)
    return module


@pytest.fixture
def gru(monkeypatch):
    return load(PRIVATE / "gru.py", monkeypatch)


@pytest.fixture
def figure(monkeypatch):
    return load(PRIVATE / "make_figure.py", monkeypatch)


def sigmoid(a):
    return 1 / (1 + math.exp(-a))


def accepted(name, answer):
    return QUESTIONS[name].right(str(answer), ANSWERS[name])


def says(*texts):
    """Each text stands in the handout, lines and spaces joined."""
    words = " ".join(HANDOUT.split())
    for text in texts:
        assert text in words, f"the handout does not say: {text}"


def parameters(layer, biases):
    """How many numbers a torch layer holds, with so many of its two bias vectors."""
    sizes = {name: p.numel() for name, p in layer.named_parameters()}
    return sum(sizes.values()) - (2 - biases) * sizes["bias_hh_l0"]


# ---- questions -----------------------------------------------------------------------------------


def test_half_after_50():
    low, high = -20.0, 20.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        kept = (1 - sigmoid(middle)) ** 50
        low, high = (middle, high) if kept > 0.5 else (low, middle)
    assert float(ANSWERS["half_after_50"]) == pytest.approx(low, abs=5e-4)
    # a gate of 0.0138 for 1 - 0.5 ** (1 / 50) is near enough; the other sign, one digit and an LSTM's
    # are not
    assert accepted("half_after_50", math.log(0.0138 / 0.9862))
    for wrong in (-low, math.log(0.01 / 0.99), 0.01377, -4):
        assert not accepted("half_after_50", wrong)


def test_parameters_of_torch():
    lstm, gru = torch.nn.LSTM(30, 20), torch.nn.GRU(30, 20)
    assert accepted("parameters_of_torch", parameters(gru, 2) / parameters(lstm, 1))
    # with equally many biases, without any, and the other way round
    for wrong in (3 / 4, parameters(gru, 1) / parameters(lstm, 2), 4 / 3):
        assert not accepted("parameters_of_torch", wrong)


def random_cell(gru, D, H, seed=0):
    rng = np.random.default_rng(seed)
    cell = gru.GRUCell(D, H, rng)
    cell.params = {name: rng.normal(size=p.shape) for name, p in cell.params.items()}
    return cell, rng.normal(size=(2, D)), rng.normal(size=(2, H))


def test_from_chung_to_cho(gru):
    """The step of Cho et al. on block z, changed in each way, against GRUCell on the one it has."""
    D, H = 3, 2
    cell, x, h_prev = random_cell(gru, D, H)
    W, b, xh = cell.params["W"], cell.params["b"], np.hstack([x, h_prev])
    wanted, _ = cell.forward(x, h_prev)
    r = gru.sigmoid(xh @ W[:, :H] + b[:H])

    def of_cho(r, W_z, b_z):
        seen = np.hstack([x, r * h_prev])
        candidate = np.tanh(seen @ cell.params["W_h"] + cell.params["b_h"])
        z = gru.sigmoid(xh @ W_z + b_z)
        return z * h_prev + (1 - z) * candidate

    W_z, b_z = W[:, H:], b[H:]
    found = {
        "a": of_cho(r, 1 - W_z, 1 - b_z),
        "b": of_cho(r, W_z, b_z),
        "c": of_cho(gru.sigmoid(xh @ W_z + b_z), W[:, :H], b[:H]),
        "d": of_cho(r, -W_z, -b_z),
    }
    assert [name for name, h in found.items() if np.allclose(h, wanted)] == ["d"]
    assert ANSWERS["from_chung_to_cho"] == "d"


def test_closed_reset_gate(gru):
    """∂h/∂h_prev with a bias that closes r, and one that makes z 1/2 there."""
    D, H = 3, 2
    cell, x, h_prev = random_cell(gru, D, H)
    x, h_prev = x[:1], h_prev[:1]
    cell.params["b"][:H] = -1e4
    a = np.hstack([x, h_prev]) @ cell.params["W"] + cell.params["b"]
    cell.params["b"][H:] -= a[0, H:]
    moves = 1e-6 * np.eye(H)
    jacobian = np.concatenate(
        [
            (cell.forward(x, h_prev + move)[0] - cell.forward(x, h_prev - move)[0]) / 2e-6
            for move in moves
        ]
    )  # [j, i] = ∂h[i] / ∂h_prev[j]
    candidate = np.tanh(np.hstack([x, 0 * h_prev]) @ cell.params["W_h"] + cell.params["b_h"])
    through_z = cell.params["W"][D:, H:] * ((candidate - h_prev) / 4)
    assert np.abs(through_z).min() > 1e-3  # not b, and not a
    np.testing.assert_allclose(jacobian, np.eye(H) / 2 + through_z, atol=1e-8)
    assert ANSWERS["closed_reset_gate"] == "c"


def test_before_and_after(gru):
    """For one unit both cells agree whatever D is; for D = H = 2, or 2 and 3, they do not."""
    same = {}
    for D, H in [(1, 1), (3, 1), (2, 2), (2, 3)]:
        cell, x, h_prev = random_cell(gru, D, H, seed=D)
        other = gru.ResetAfterGRUCell(D, H, np.random.default_rng(0))
        W, b = cell.params["W"], cell.params["b"]
        W = np.hstack([W[:, :H], -W[:, H:], cell.params["W_h"]])
        b = np.concatenate([b[:H], -b[H:], cell.params["b_h"]])
        other.params = {"W_x": W[:D], "W_h": W[D:], "b_x": b, "b_h": np.zeros(3 * H)}
        same[D, H] = np.allclose(cell.forward(x, h_prev)[0], other.forward(x, h_prev)[0])
    assert same == {(1, 1): True, (3, 1): True, (2, 2): False, (2, 3): False}
    assert ANSWERS["before_and_after"] == "b"


@pytest.mark.parametrize("name", [name for name, q in QUESTIONS.items() if q.number])
def test_three_digits_are_enough_and_the_handout_does_not_give_them(name):
    assert accepted(name, f"{float(ANSWERS[name]):.3g}")
    public = HANDOUT + (PUBLIC / "questions.yaml").read_text(encoding="utf-8")
    numbers = re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", public)
    assert not [number for number in numbers if accepted(name, number)]


def test_there_are_five_core_questions():
    assert [q.tier for q in QUESTIONS.values()] == ["core"] * 5
    assert {q.points for q in QUESTIONS.values()} == {1}


# ---- the handout's numbers -----------------------------------------------------------------------


def test_the_step_with_numbers():
    """Forward and backward by torch's autograd on equations (1) to (4), gate by gate."""

    def leaf(value):
        return torch.tensor(value, dtype=torch.float64, requires_grad=True)

    x, h_prev = leaf(1.0), leaf(2.0)
    a_r = 2 * x - 1 * h_prev + -LN3
    a_z = -1 * x + 1 * h_prev + (LN3 - 1)
    r, z = torch.sigmoid(a_r), torch.sigmoid(a_z)
    seen = r * h_prev
    a_h = 1 * x + 2 * seen + (LN2 - 2)
    candidate = torch.tanh(a_h)
    h = (1 - z) * h_prev + z * candidate
    h.backward(torch.tensor(20.0, dtype=torch.float64), retain_graph=True)
    da_h, da_z, da_r, dseen = (
        20 * g.item() for g in torch.autograd.grad(h, [a_h, a_z, a_r, seen], retain_graph=True)
    )
    found = {
        "a": [a.item() for a in (a_r, a_z, a_h)],
        "gates": [v.item() for v in (r, z, seen, candidate)],
        "h": [h.item()],
        "da": [da_h, da_z, da_r],
        "d": [x.grad.item(), h_prev.grad.item()],
        "ways": [20 * (1 - z.item()), dseen * r.item(), -1 * da_r, 1 * da_z],
    }
    expected = {
        "a": [-LN3, LN3, LN2],
        "gates": [1 / 4, 3 / 4, 1 / 2, 3 / 5],
        "h": [19 / 20],
        "da": [48 / 5, -21 / 4, 36 / 5],
        "d": [117 / 4, -53 / 20],
        "ways": [5, 24 / 5, -36 / 5, -21 / 4],
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-12), name
    says(
        "x = 1, h_prev = 2, and",
        "W, row x 2 -1 W_h 1 row h -1 1 2 b -ln 3 ln 3 - 1 b_h ln 2 - 2",
        "a^r = -ln 3, a^z = ln 3, a^h = ln 2",
        "r = 1/4, z = 3/4, r ⊙ h_prev = 1/2, h̃ = 3/5",
        "h = 1/4 · 2 + 3/4 · 3/5 = 19/20",
        "let dh = 20 arrive",
        "da^h = 48/5 da^z = -21/4 da^r = 36/5 dx = 117/4",
        "dh_prev = 5 + 24/5 - 36/5 - 21/4 = -53/20",
        # [x, h_prev] is (1, 2), [x, r ⊙ h_prev] is (1, 1/2)
        "dW has the rows (36/5, -21/4) and twice that, dW_h the rows 48/5 and 24/5",
    )


def test_the_second_step_with_numbers():
    layer = torch.nn.GRU(1, 1, dtype=torch.float64)
    given = {
        "weight_ih_l0": [2, -1, 1],
        "weight_hh_l0": [-1, 1, 2],
        "bias_ih_l0": [-LN3, LN3, LN2 - 3],
        "bias_hh_l0": [0, -1, 4],
    }
    with torch.no_grad():
        for name, p in layer.named_parameters():
            p.copy_(torch.tensor(given[name], dtype=p.dtype).reshape(p.shape))
        _, h = layer(torch.ones(1, 1, dtype=p.dtype), 2 * torch.ones(1, 1, dtype=p.dtype))
    assert h.item() == pytest.approx(33 / 20, abs=1e-12)
    says(
        "W_x = (2, -1, 1), W_h = (-1, 1, 2), b_x = (-ln 3, ln 3, ln 2 - 3), b_h = (0, -1, 4)",
        "r = 1/4, z = 3/4, n = 3/5 as before, and h = 1/4 · 3/5 + 3/4 · 2 = 33/20",
    )


def test_a_quarter_fewer_or_not():
    lstm, gru = torch.nn.LSTM(5, 4), torch.nn.GRU(5, 4)
    for biases in (1, 2):
        assert parameters(gru, biases) / parameters(lstm, biases) == 3 / 4
    share = parameters(gru, 2) / parameters(lstm, 1)
    says(
        f"has {parameters(lstm, 1)} parameters at D = 5, H = 4",
        f"{parameters(gru, 2)} of {parameters(lstm, 1)} is {share:.3f}",
        "as many as an LSTM at D + H = 2",
    )
    assert parameters(torch.nn.GRU(1, 1), 2) == parameters(torch.nn.LSTM(1, 1), 1)


def test_the_numbers_of_decay():
    after_20 = {name: curve[19] for name, curve in CURVES.items()}
    says(
        f"the gain is {after_20['rnn']:.7f} for the tanh RNN, {after_20['full_0']:.5f} for a GRU with",
        f"update bias 0, {after_20['full_-1']:.3f} with bias -1",
        f"and {after_20['full_-2']:.2f} with bias -2",
    )
    for bias in (0, -1, -2):
        full, direct = CURVES[f"full_{bias}"], CURVES[f"direct_{bias}"]
        assert all(d <= f for d, f in zip(direct, full, strict=True)), "the direct paths lie below"


def test_equations_are_numbered_as_they_are_cited():
    numbers = [int(n) for n in re.findall(r"^    \((\d+)\) ", HANDOUT, re.MULTILINE)]
    assert numbers == list(range(1, 14))
    cited = {
        int(number)
        for name in ("gru.py", "gru_torch.py", "mistakes.yaml")
        for place in re.findall(
            r"equations?((?:\s+(?:to\s+|and\s+)?\(\d+\))+)", (PRIVATE / name).read_text("utf-8")
        )
        for number in re.findall(r"\d+", place)
    }
    assert cited and cited <= set(numbers)


# ---- the figure ----------------------------------------------------------------------------------


def test_the_figure_shows_what_the_script_computes(figure):
    found = figure.curves()
    assert found.keys() == CURVES.keys()
    for name, curve in found.items():
        # three digits, and what rounding makes of products of sixty Jacobians
        np.testing.assert_allclose(curve, CURVES[name], rtol=0.02, err_msg=name)


def test_shares_are_those_of_torch_layers():
    for hidden in (1, 3, 20):
        lstm, gru = torch.nn.LSTM(1, hidden), torch.nn.GRU(1, hidden)
        for kind, biases in (("gru", 1), ("gru_reset_after", 2)):
            share = parameters(gru, biases) / parameters(lstm, 1)
            assert CURVES[f"share_{kind}"][hidden - 1] == pytest.approx(share, rel=5e-3)


def test_full_gains_are_those_of_central_differences(figure, gru):
    """For one cell and the shortest distances, by moving h and looking at h some steps on."""
    full, _ = figure.gru_gains(3, update_bias=-1)
    rng = np.random.default_rng(3)
    D = H = figure.D
    cell = gru.GRUCell(D, H, rng)
    cell.params["b"][H:] = -1
    x = rng.normal(size=(1, figure.WARM_UP + figure.DISTANCES, D))
    for distance in (1, 2, 5):
        h, _ = gru.gru_forward(cell, x[:, :-distance], np.zeros((1, H)))

        def after(start, distance=distance):
            return gru.gru_forward(cell, x[:, -distance:], start)[0][0, -1]

        moves = 1e-5 * np.eye(H)
        last = h[:, -1]
        jacobian = [(after(last + move) - after(last - move)) / 2e-5 for move in moves]
        gain = np.linalg.norm(jacobian) / math.sqrt(H)
        assert full[distance - 1] == pytest.approx(gain, rel=1e-6)


def test_the_figure_is_drawn_the_same_each_time(figure, tmp_path):
    pytest.importorskip("matplotlib")
    drawn = []
    for name in ("one.svg", "two.svg"):
        figure.draw(CURVES, tmp_path / name)
        drawn.append((tmp_path / name).read_text(encoding="utf-8"))
    assert drawn[0] == drawn[1]
    words = [re.findall(r"<text[^>]*>([^<]*)</text>", svg) for svg in (drawn[0], FIGURE)]
    assert words[0] == words[1]
    assert "tanh RNN" in words[0]


def test_the_figure_is_small_and_in_the_handout():
    assert len(FIGURE.encode()) < 60_000
    assert re.findall(r"!\[[^\]]{100,}\]\(([\w.]+)\)", HANDOUT) == ["reach.svg"]


# ---- public tests --------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path):
    """A student's folder with everything written, as the reference does it."""
    for path in PUBLIC.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    for name in ("gru.py", "gru_torch.py"):
        shutil.copy(PRIVATE / name, tmp_path)
    return tmp_path


def test_the_reference_passes_every_public_test(work):
    found = outcomes(work)
    assert set(found.values()) == {"PASSED"}
    assert len(found) > 40 and any(name.startswith("test_twin") for name in found)


@pytest.mark.slow
def test_an_untouched_starter_is_still_to_be_written(work):
    for name in ("gru.py", "gru_torch.py"):
        text = (PRIVATE / name).read_text(encoding="utf-8")
        (work / name).write_text(stub(text, name), encoding="utf-8")
    found = outcomes(work)
    assert len(found) > 40
    said = {outcome.partition(" - ")[2] for outcome in found.values()}
    assert all(line.startswith("NotImplementedError: ") for line in said), said


@pytest.mark.slow
def test_what_is_left_aside_is_still_to_be_written(work):
    """A GRU without masks, and a twin without them that has x beside h in its loop."""
    with (work / "gru.py").open("a", encoding="utf-8") as file:
        file.write("\n\nwhole = gru_forward\n\n\ndef gru_forward(cell, x, h0, mask=None):\n")
        file.write("    return whole(cell, x, h0)\n")
    (work / "gru_torch.py").write_text(
        "import torch\n\n\n"
        "def gru_forward_torch(params, x, h0, mask=None):\n"
        "    h, hs = h0, []\n"
        "    for t in range(x.shape[1]):\n"
        "        a = torch.cat([x[:, t], h], dim=1) @ params['W'] + params['b']\n"
        "        r, z = a.sigmoid().chunk(2, dim=1)\n"
        "        seen = torch.cat([x[:, t], r * h], dim=1)\n"
        "        h = h + z * (torch.tanh(seen @ params['W_h'] + params['b_h']) - h)\n"
        "        hs.append(h)\n"
        "    return torch.stack(hs, dim=1)\n",
        encoding="utf-8",
    )
    found = {name: said for name, said in outcomes(work).items() if said != "PASSED"}
    projects = found.pop("test_twin_projects_all_steps_at_once")
    assert "4 products over x for 2 steps, 16 for 8" in projects
    assert len(found) > 8 and all("mask" in name for name in found)
    for name, said in found.items():
        function = "gru_forward_torch" if "twin" in name else "gru_forward"
        assert said == f"FAILED - NotImplementedError: {function} with a mask", name
