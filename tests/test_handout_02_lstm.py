"""What students of 02_lstm read and run first: handout, figure, questions, public tests.

Every number is worked out again, in another way than where it was written: by torch's autograd on
the bare equations, by central differences, by bisection.
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
PUBLIC, PRIVATE = ROOT / "assignments" / "02_lstm", ROOT / "solutions" / "02_lstm"
HANDOUT = (PUBLIC / "handout.md").read_text(encoding="utf-8")
FIGURE = (PUBLIC / "decay.svg").read_text(encoding="utf-8")
QUESTIONS = load_questions(PUBLIC / "questions.yaml", "questions.yaml")
ANSWERS = load_answers(PRIVATE / "answers.yaml", "answers.yaml", QUESTIONS)
LN2, LN3 = math.log(2), math.log(3)
SIGMA = "\N{GREEK SMALL LETTER SIGMA}"


def load(file, monkeypatch):
    """A module of the solution's folder; what it imports from there is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "lstm", raising=False)
    spec = importlib.util.spec_from_file_location(f"handout_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delitem(sys.modules, "lstm", raising=False)
    return module


@pytest.fixture
def lstm(monkeypatch):
    return load(PRIVATE / "lstm.py", monkeypatch)


@pytest.fixture
def figure(monkeypatch):
    return load(PRIVATE / "make_figure.py", monkeypatch)


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def slope(function, at, step=1e-6):
    return (function(at + step) - function(at - step)) / (2 * step)


def accepted(name, answer):
    return QUESTIONS[name].right(str(answer), ANSWERS[name])


def says(*texts):
    """Each text stands in the handout, lines and spaces joined."""
    words = " ".join(HANDOUT.split())
    for text in texts:
        assert text in words, f"the handout does not say: {text}"


# ---- questions -----------------------------------------------------------------------------------


def test_half_after_100():
    low, high = 0.0, 20.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if sigmoid(middle) ** 100 < 0.5 else (low, middle)
    assert float(ANSWERS["half_after_100"]) == pytest.approx(low, abs=5e-4)
    # a forget gate of 0.993 for 0.5 ** (1 / 100) is near enough; one of 0.99 is not, nor is a guess
    assert accepted("half_after_100", math.log(0.993 / 0.007))
    for wrong in (math.log(0.99 / 0.01), 0.993, 5):
        assert not accepted("half_after_100", wrong)


def test_torch_forget_gate():
    torch.manual_seed(0)
    layers = [torch.nn.LSTM(10, 16) for _ in range(200)]
    biases = torch.stack([torch.stack([m.bias_ih_l0, m.bias_hh_l0]) for m in layers])
    assert biases.abs().max().item() == pytest.approx(1 / math.sqrt(16), abs=1e-3)
    # torch's blocks are i, f, g, o; with x = 0 and h = 0 the pre-activation is the sum of both
    assert biases.sum(dim=1)[:, 16:32].max().item() == pytest.approx(2 / math.sqrt(16), abs=0.02)
    assert float(ANSWERS["torch_forget_gate"]) == pytest.approx(
        sigmoid(2 / math.sqrt(16)), abs=5e-5
    )
    # not with a forget bias of 1, one bias only, the hidden size for its root, or no bias at all
    for wrong in (sigmoid(1), sigmoid(1 / 4), sigmoid(2 / 16), 0.5, 1):
        assert not accepted("torch_forget_gate", wrong)


def test_parameters(lstm):
    cell = lstm.LSTMCell(30, 20, np.random.default_rng(0))
    count = sum(param.size for param in cell.params.values())
    assert accepted("parameters", count)
    torch_count = sum(param.numel() for param in torch.nn.LSTM(30, 20).parameters())
    # nn.LSTM has a second bias; without b; one block of the four
    for wrong in (torch_count, count - 80, count // 4):
        assert not accepted("parameters", wrong)


def test_cell_of_1997():
    """The loop alone, without a forget gate: its derivative is 1, exactly and for any input."""
    first = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    written = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    c = first
    for i, candidate in written:
        c = c + torch.sigmoid(i) * torch.tanh(candidate)
    c.backward()
    assert first.grad.item() == 1
    # a: there was no forget gate. b: tanh(c) is in h only, not in the loop. d: that is a GRU; here the
    # input gate multiplies what is written, not the old state.
    assert ANSWERS["cell_of_1997"] == "c"


def test_closed_gate(lstm):
    """From c_10 to c_40 with f = 0 in step 25: the direct path is 0, the full derivative is not."""
    D, H, T = 3, 2, 30  # steps 11 to 40
    rng = np.random.default_rng(0)
    cell = lstm.LSTMCell(D, H, rng, forget_bias=4.0)
    cell.params["W"][0, :H] = -1e4  # the first input closes every forget gate
    x = 0.5 * rng.normal(size=(1, T, D))
    x[:, :, 0] = np.arange(11, 41) == 25
    h, c, h0, c0 = (0.5 * rng.normal(size=(1, H)) for _ in range(4))
    gates = []
    h, c = h0, c0
    for t in range(T):
        a_f = np.concatenate([x[:, t], h], axis=1) @ cell.params["W"][:, :H] + cell.params["b"][:H]
        gates.append(lstm.sigmoid(a_f)[0])
        h, c, _ = cell.forward(x[:, t], h, c)
    assert [11 + t for t in range(T) if not gates[t].any()] == [25]
    assert not np.prod(gates, axis=0).any()
    _, _, cache = lstm.lstm_forward(cell, x, h0, c0)
    _, _, dc0 = lstm.lstm_backward(cell, np.zeros((1, T, H)), np.ones((1, H)), cache)
    assert np.abs(dc0).min() > 1e-6  # b, and not a
    others = np.prod([gate for gate in gates if gate.any()], axis=0)
    assert np.abs(dc0[0] - others).min() > 0.01  # not c
    assert np.abs(dc0 - 1).min() > 0.01  # not d
    assert ANSWERS["closed_gate"] == "b"


def test_one_step_in_full():
    def c_2(c_1):
        # whatever the bias, it makes f_2 = 1/2 at c_1 = ln 3; what is written does not depend on h_1
        h_1, h_there = (math.tanh(c) / 4 for c in (c_1, LN3))
        return sigmoid(40 * (h_1 - h_there)) * c_1 + 0.123

    assert float(ANSWERS["one_step_in_full"]) == pytest.approx(slope(c_2, LN3), abs=5e-4)
    # the direct path alone; the other term alone; tanh's slope left out
    for wrong in (0.5, slope(c_2, LN3) - 0.5, 0.5 + LN3 / 4 * 40 / 4):
        assert not accepted("one_step_in_full", wrong)


@pytest.mark.parametrize("name", [name for name, q in QUESTIONS.items() if q.number])
def test_three_digits_are_enough_and_the_handout_does_not_give_them(name):
    assert accepted(name, f"{float(ANSWERS[name]):.3g}")
    public = HANDOUT + (PUBLIC / "questions.yaml").read_text(encoding="utf-8")
    numbers = re.findall(r"(?<![\w.])\d+(?:\.\d+)?", public)
    assert not [number for number in numbers if accepted(name, number)]


def test_there_are_five_core_questions_and_a_bonus_one():
    assert [q.tier for q in QUESTIONS.values()] == ["core"] * 5 + ["bonus"]
    assert {q.points for q in QUESTIONS.values()} == {1}


# ---- the handout's numbers -----------------------------------------------------------------------


def test_the_step_with_numbers():
    """Forward and backward by torch's autograd on equations (1) to (5), gate by gate."""
    given = {"x": 1.0, "h_prev": 2.0, "c_prev": 4 / 3 * LN3 - 2 / 5}
    W = {"f": (1, 0), "i": (2, -1), "c": (1, 1), "o": (-1, 2)}
    b = {"f": LN3 - 1, "i": 0.0, "c": LN2 - 3, "o": -LN3 - 3}
    leaf = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in given.items()}
    a = {k: W[k][0] * leaf["x"] + W[k][1] * leaf["h_prev"] + b[k] for k in W}
    for pre_activation in a.values():
        pre_activation.retain_grad()
    f, i, o = (torch.sigmoid(a[k]) for k in "fio")
    candidate = torch.tanh(a["c"])
    c = f * leaf["c_prev"] + i * candidate
    c.retain_grad()
    h = o * torch.tanh(c)
    torch.autograd.backward([h, c], [h.new_tensor(10), h.new_tensor(2.1)])
    found = {
        "a": [value.item() for value in a.values()],
        "gates": [value.item() for value in (f, i, candidate, o)],
        "state": [c.item(), h.item()],
        "dc": c.grad.item(),
        "da": [value.grad.item() for value in a.values()],
        "dx, dh_prev, dc_prev": [value.grad.item() for value in leaf.values()],
    }
    expected = {
        "a": [LN3, 0, LN2, -LN3],
        "gates": [3 / 4, 1 / 2, 3 / 5, 1 / 4],
        "state": [LN3, 1 / 5],
        "dc": 3,
        "da": [3 / 4 * LN3 - 9 / 40, 9 / 20, 24 / 25, 3 / 2],
        "dx, dh_prev, dc_prev": [3 / 4 * LN3 + 27 / 200, 351 / 100, 9 / 4],
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-12), name
    says(
        f"c_prev = 4/3 ln 3 - 2/5 ≈ {4 / 3 * LN3 - 2 / 5:.4f}",
        "W, row x 1 2 1 -1 row h 0 -1 1 2 b ln 3 - 1 0 ln 2 - 3 -ln 3 - 3",
        "a = (ln 3, 0, ln 2, -ln 3)",
        "f = 3/4, i = 1/2, c̃ = 3/5, o = 1/4",
        "c = 3/4 · c_prev + 1/2 · 3/5 = ln 3 h = 1/4 · tanh(ln 3) = 1/4 · 4/5 = 1/5",
        "dh = 10 and dc = 21/10 arrive. Then the total gradient of c is 3",
        f"da^f = 3/4 ln 3 - 9/40 ≈ {3 / 4 * LN3 - 9 / 40:.4f}",
        "da^i = 9/20 da^c = 24/25 da^o = 3/2 dc_prev = 9/4",
        f"dx = 3/4 ln 3 + 27/200 ≈ {3 / 4 * LN3 + 27 / 200:.4f} dh_prev = 351/100",
    )


def test_the_numbers_of_decay():
    curves = json.loads(re.search(r"<dc:description>(.*?)</dc:description>", FIGURE)[1])
    after_20 = {name: curve[19] for name, curve in curves.items()}
    # where x, h and c stay 0, the direct path is the power that the text gives
    assert after_20["direct_silent"] == pytest.approx(sigmoid(1) ** 20, rel=5e-3)
    says(
        f"{SIGMA}(1)²⁰ ≈ {sigmoid(1) ** 20:.4f}",
        f"and {sigmoid(2) ** 20:.3f} at {SIGMA}(2)",
        f"{SIGMA}(1) ≈ {sigmoid(1):.2f}",
        f"the gain is {after_20['rnn']:.5f} for the tanh RNN, {after_20['full_0']:.5f} for an LSTM",
        f"with forget bias 0, {after_20['full_1']:.3f} with bias 1",
        f"and {after_20['full_2']:.2f} with bias 2",
        "rises to about 10 after 20 steps and to thousands after 60",
        "How far depends on the weights drawn: thousands and more",
    )
    assert round(math.log10(after_20["full_silent"])) == 1
    assert math.log10(curves["full_silent"][59]) > 3
    for bias in (0, 1, 2):
        full, direct = curves[f"full_{bias}"], curves[f"direct_{bias}"]
        assert all(d <= f for d, f in zip(direct, full, strict=True)), "the direct paths lie below"


def test_equations_are_numbered_as_the_docstrings_cite_them():
    numbers = [int(n) for n in re.findall(r"^    \((\d+)\) ", HANDOUT, re.MULTILINE)]
    assert numbers == list(range(1, 12))
    cited = {
        int(number)
        for name in ("lstm.py", "lstm_torch.py")
        for place in re.findall(
            r"equations?((?:\s+(?:to\s+|and\s+)?\(\d+\))+)", (PRIVATE / name).read_text("utf-8")
        )
        for number in re.findall(r"\d+", place)
    }
    assert cited and cited <= set(numbers)


# ---- the figure ----------------------------------------------------------------------------------


def test_the_figure_shows_what_the_script_computes(figure):
    shown = json.loads(re.search(r"<dc:description>(.*?)</dc:description>", FIGURE)[1])
    found = figure.curves()
    assert found.keys() == shown.keys()
    for name, curve in found.items():
        # three digits, and what rounding makes of products of sixty Jacobians
        np.testing.assert_allclose(curve, shown[name], rtol=0.02, err_msg=name)


def test_full_gains_are_those_of_central_differences(figure, lstm):
    """For one cell and the shortest distances, by moving c and looking at c two steps on."""
    full, _ = figure.lstm_gains(3, forget_bias=1)
    rng = np.random.default_rng(3)
    D = H = figure.D
    cell = lstm.LSTMCell(D, H, rng, 1)
    x = rng.normal(size=(1, figure.WARM_UP + figure.DISTANCES, D))
    zeros = np.zeros((1, H))
    for distance in (1, 2, 5):
        h, before, _ = lstm.lstm_forward(cell, x[:, :-distance], zeros, zeros)

        def after(c, h=h, distance=distance):
            return lstm.lstm_forward(cell, x[:, -distance:], h[:, -1], c)[1][0]

        moves = 1e-5 * np.eye(H)
        jacobian = [(after(before + move) - after(before - move)) / 2e-5 for move in moves]
        gain = np.linalg.norm(jacobian) / math.sqrt(H)
        assert full[distance - 1] == pytest.approx(gain, rel=1e-6)


def test_the_figure_is_drawn_the_same_each_time(figure, tmp_path):
    pytest.importorskip("matplotlib")
    curves = json.loads(re.search(r"<dc:description>(.*?)</dc:description>", FIGURE)[1])
    drawn = []
    for name in ("one.svg", "two.svg"):
        figure.draw(curves, tmp_path / name)
        drawn.append((tmp_path / name).read_text(encoding="utf-8"))
    assert drawn[0] == drawn[1]
    words = [re.findall(r"<text[^>]*>([^<]*)</text>", svg) for svg in (drawn[0], FIGURE)]
    assert words[0] == words[1]
    assert "tanh RNN" in words[0]


def test_the_figure_is_small_and_in_the_handout():
    assert len(FIGURE.encode()) < 60_000
    assert re.findall(r"!\[[^\]]{100,}\]\(([\w.]+)\)", HANDOUT) == ["decay.svg"]


# ---- public tests --------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path):
    """A student's folder with everything written, as the reference does it."""
    for path in PUBLIC.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    for name in ("lstm.py", "lstm_torch.py"):
        shutil.copy(PRIVATE / name, tmp_path)
    return tmp_path


def test_the_reference_passes_every_public_test(work):
    found = outcomes(work)
    assert set(found.values()) == {"PASSED"}
    assert len(found) > 40 and any(name.startswith("test_twin") for name in found)


def test_an_untouched_starter_is_still_to_be_written(work):
    for name in ("lstm.py", "lstm_torch.py"):
        text = (PRIVATE / name).read_text(encoding="utf-8")
        (work / name).write_text(stub(text, name), encoding="utf-8")
    found = outcomes(work)
    assert len(found) > 40
    said = {outcome.partition(" - ")[2] for outcome in found.values()}
    assert all(line.startswith("NotImplementedError: ") for line in said), said


def test_what_is_left_aside_is_still_to_be_written(work):
    """An LSTM without masks, and a twin without them that has x beside h in its loop."""
    with (work / "lstm.py").open("a", encoding="utf-8") as file:
        file.write("\n\nwhole = lstm_forward\n\n\ndef lstm_forward(cell, x, h0, c0, mask=None):\n")
        file.write("    return whole(cell, x, h0, c0)\n")
    (work / "lstm_torch.py").write_text(
        "import torch\n\n\n"
        "def lstm_forward_torch(params, x, h0, c0, mask=None):\n"
        "    h, c, hs = h0, c0, []\n"
        "    for t in range(x.shape[1]):\n"
        "        a = torch.cat([x[:, t], h], dim=1) @ params['W'] + params['b']\n"
        "        f, i, g, o = a.chunk(4, dim=1)\n"
        "        c = f.sigmoid() * c + i.sigmoid() * g.tanh()\n"
        "        h = o.sigmoid() * c.tanh()\n"
        "        hs.append(h)\n"
        "    return torch.stack(hs, dim=1), c\n",
        encoding="utf-8",
    )
    found = {name: said for name, said in outcomes(work).items() if said != "PASSED"}
    projects = found.pop("test_twin_projects_all_steps_at_once")
    assert "2 products over x for 2 steps, 8 for 8" in projects
    assert len(found) > 8 and all("mask" in name for name in found)
    for name, said in found.items():
        function = "lstm_forward_torch" if "twin" in name else "lstm_forward"
        assert said == f"FAILED - NotImplementedError: {function} with a mask", name
