"""What students of 01_bptt read and run first: handout, figures, questions, public tests.

Every number is worked out again, in another way than where it was written: by torch's autograd on
the bare equations, by central differences, by eigenvalues.
"""

import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from handouts import outcomes
from softmark.builders.stub import stub
from softmark.questions import load_answers, load_questions

ROOT = Path(__file__).resolve().parent.parent
PUBLIC, PRIVATE = ROOT / "assignments" / "01_bptt", ROOT / "solutions" / "01_bptt"
HANDOUT = (PUBLIC / "handout.md").read_text(encoding="utf-8")
FIGURES = {
    name: (PUBLIC / f"{name}.svg").read_text(encoding="utf-8") for name in ("jacobians", "radius")
}
QUESTIONS = load_questions(PUBLIC / "questions.yaml", "questions.yaml")
ANSWERS = load_answers(PRIVATE / "answers.yaml", "answers.yaml", QUESTIONS)
LN2, LN3 = math.log(2), math.log(3)
RHO = "\N{GREEK SMALL LETTER RHO}"


def load(file, monkeypatch):
    """A module of the solution's folder; what it imports from there is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "bptt", raising=False)
    spec = importlib.util.spec_from_file_location(f"handout_{file.stem}_01", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delitem(sys.modules, "bptt", raising=False)
    return module


@pytest.fixture
def bptt(monkeypatch):
    return load(PRIVATE / "bptt.py", monkeypatch)


@pytest.fixture
def figure(monkeypatch):
    return load(PRIVATE / "make_figure.py", monkeypatch)


def accepted(name, answer):
    return QUESTIONS[name].right(str(answer), ANSWERS[name])


def says(*texts):
    """Each text stands in the handout, lines and spaces joined."""
    words = " ".join(HANDOUT.split())
    for text in texts:
        assert text in words, f"the handout does not say: {text}"


def spectral_radius(matrix):
    return np.abs(np.linalg.eigvals(matrix)).max()


# ---- questions -----------------------------------------------------------------------------------


def test_first_loss(bptt):
    V = 5000
    cell = bptt.RNNCell(2, 3, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    tokens, mask = rng.integers(V, size=(2, 5)), np.ones((2, 5), bool)
    given = (
        rng.normal(size=(V, 2)),
        np.zeros((3, V)),
        np.full(V, 0.7),
        tokens,
        mask,
        np.zeros((2, 3)),
    )
    loss, _ = bptt.rnn_lm_loss(cell, *given)
    assert float(ANSWERS["first_loss"]) == pytest.approx(loss, abs=5e-4)
    # in bits, to base 10, as a probability
    for wrong in (math.log2(V), math.log10(V), 1 / V):
        assert not accepted("first_loss", wrong)


def test_gradient_check(bptt):
    cell = bptt.RNNCell(30, 20, np.random.default_rng(0))
    count = sum(param.size for param in cell.params.values())
    assert accepted("gradient_check", 2 * count)
    # one-sided, without the bias, for the three arrays only
    for wrong in (count, count + 1, 2 * (count - 20), 6):
        assert not accepted("gradient_check", wrong)


def test_entry_of_a_jacobian():
    W = torch.tensor([[0.0, 5.0], [-1.0, 0.0]], dtype=torch.float64)
    before = torch.tensor([0.3, -0.2], dtype=torch.float64)
    from_input = torch.atanh(torch.tensor([0.6, 0.8], dtype=torch.float64)) - W @ before

    def step(h):
        return torch.tanh(W @ h + from_input)

    J = torch.autograd.functional.jacobian(step, before)
    assert float(ANSWERS["entry_of_a_jacobian"]) == pytest.approx(J[0, 1].item())
    D = torch.diag(1 - step(before) ** 2)
    # the transpose; the slopes on the other side, with either; the entry below; no slopes
    for wrong in ((D @ W.T)[0, 1], (W @ D)[0, 1], (W.T @ D)[0, 1], J[1, 0], W[0, 1]):
        assert not accepted("entry_of_a_jacobian", wrong.item())


def test_sure_to_vanish():
    held = np.diag([1, 1 / 2])
    # a: every eigenvalue of W is 0, and the products grow
    W = 4 * np.array([[1, -1], [1, -1]])
    assert spectral_radius(W) < 1e-6
    assert np.linalg.norm(np.linalg.matrix_power(held @ W, 20), 2) > 1e6
    # b: small entries, and with h = 0 the powers of W grow
    W = np.full((4, 4), 0.9)
    assert np.linalg.norm(np.linalg.matrix_power(W, 20), 2) > 1e6
    # d: the slopes are at most 1, and with h = 0 and a large W the products grow
    assert np.linalg.norm(np.linalg.matrix_power(2 * np.eye(2), 20), 2) > 1e6
    # c: each factor shrinks by the largest singular value at least
    rng = np.random.default_rng(0)
    W = rng.normal(size=(4, 4))
    W *= 0.9 / np.linalg.norm(W, 2)
    product = np.eye(4)
    for n in range(1, 100):
        product = np.diag(1 - np.tanh(rng.normal(size=4)) ** 2) @ W @ product
        assert np.linalg.norm(product, 2) <= 0.9**n
    assert ANSWERS["sure_to_vanish"] == "c"


def test_sum_or_mean(bptt):
    rng = np.random.default_rng(2)
    max_norm = float(ANSWERS["sum_or_mean"])
    for size in (9.9, 10.1):  # norms of the sum's gradient, on both sides of its max_norm
        total = rng.normal(size=30)
        total *= size / np.linalg.norm(total)
        mean = total / 250
        clipped, _ = bptt.clip_by_global_norm({"a": mean}, max_norm)
        of_sum, _ = bptt.clip_by_global_norm({"a": total}, 10.0)
        np.testing.assert_allclose(250 * clipped["a"], of_sum["a"], rtol=1e-12)
    for wrong in (10, 2500, 0.4, 10 / math.sqrt(250)):
        assert not accepted("sum_or_mean", wrong)


def test_neither_nor():
    w = float(ANSWERS["neither_nor"])
    D = np.diag([1, 1 - 3 / 4])
    pattern = np.array([[1, -1], [1, -1]])
    assert spectral_radius(D @ pattern) * w == pytest.approx(1, abs=5e-4)
    exact = 1 / spectral_radius(D @ pattern)
    norms = [
        np.linalg.norm(np.linalg.matrix_power(exact * D @ pattern, n), 2) for n in (1, 10, 1000)
    ]
    np.testing.assert_allclose(norms, norms[0], rtol=1e-6)
    # of the handout's own h, of the norm of W or of D W, and as if W alone decided
    wrongs = [2, 1 / np.linalg.norm(pattern, 2), 1 / np.linalg.norm(D @ pattern, 2), 1]
    for wrong in wrongs:
        assert not accepted("neither_nor", wrong)


@pytest.mark.parametrize("name", [name for name, q in QUESTIONS.items() if q.number])
def test_three_digits_are_enough_and_the_handout_does_not_give_them(name):
    assert QUESTIONS[name].number.within < 1e-3 or accepted(name, f"{float(ANSWERS[name]):.3g}")
    public = HANDOUT + (PUBLIC / "questions.yaml").read_text(encoding="utf-8")
    numbers = re.findall(r"(?<![\w.])\d+(?:\.\d+)?", public)
    assert not [number for number in numbers if accepted(name, number)]


def test_there_are_five_core_questions_and_a_bonus_one():
    assert [q.tier for q in QUESTIONS.values()] == ["core"] * 5 + ["bonus"]
    assert {q.points for q in QUESTIONS.values()} == {1}


# ---- the handout's numbers -----------------------------------------------------------------------


def test_the_step_with_numbers():
    """Forward and backward by torch's autograd on equations (1) and (2)."""
    given = {
        "x": [[1.0]],
        "h_prev": [[1 / 2, -1 / 2]],
        "W_xh": [[1.0, 2.0]],
        "W_hh": [[2.0, 1.0], [4.0, -1.0]],
        "b_h": [LN2, LN3 - 3],
    }
    leaf = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in given.items()}
    a = leaf["x"] @ leaf["W_xh"] + leaf["h_prev"] @ leaf["W_hh"] + leaf["b_h"]
    a.retain_grad()
    h = torch.tanh(a)
    dh = torch.tensor([[25.0, 50.0]], dtype=torch.float64)
    h.backward(dh)
    found = {"a": a, "h": h, "da": a.grad} | {f"d{k}": v.grad for k, v in leaf.items()}
    expected = {
        "a": [[LN2, LN3]],
        "h": [[3 / 5, 4 / 5]],
        "da": [[16, 18]],
        "dx": [[52]],
        "dh_prev": [[50, 46]],
        "dW_xh": [[16, 18]],
        "dW_hh": [[8, 9], [-8, -9]],
        "db_h": [16, 18],
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].detach().numpy(), value, atol=1e-12, err_msg=name)
    not_transposed = (a.grad @ leaf["W_hh"]).detach().numpy()
    np.testing.assert_allclose(not_transposed, [[104, -2]], atol=1e-12)
    J = torch.autograd.functional.jacobian(
        lambda state: torch.tanh(leaf["x"][0] @ leaf["W_xh"] + state @ leaf["W_hh"] + leaf["b_h"]),
        leaf["h_prev"][0],
    )
    np.testing.assert_allclose(J.numpy(), [[32 / 25, 64 / 25], [9 / 25, -9 / 25]], atol=1e-12)
    says(
        "x = 1, h_prev = (1/2, -1/2)",
        "W_xh = [1 2] W_hh = [2 1] b_h = (ln 2, ln 3 - 3) so that a = (ln 2, ln 3) [4 -1]",
        "h = (3/5, 4/5). Backward, let dh = (25, 50) arrive. The slopes are 16/25 and 9/25",
        "da = db_h = dW_xh = (16, 18) dx = 52 dh_prev = (50, 46) dW_hh = [ 8 9] [-8 -9]",
        "dh_prev would be (104, -2)",
        "∂h/∂h_prev = [32/25 64/25] [ 9/25 -9/25]",
    )


def test_the_loss_with_numbers():
    logits = torch.tensor([[0, LN2, math.log(5)], [0, 0, LN2], [9, 9, 9]], requires_grad=True)
    p = torch.softmax(logits, dim=1)[:2].detach()
    torch.testing.assert_close(p, torch.tensor([[1 / 8, 1 / 4, 5 / 8], [1 / 4, 1 / 4, 1 / 2]]))
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor([1, 2, -100]))
    loss.backward()
    assert loss.item() == pytest.approx((2 * LN2 + LN2) / 2)
    dlogits = [[1 / 16, -3 / 8, 5 / 16], [1 / 8, 1 / 8, -1 / 4], [0, 0, 0]]
    torch.testing.assert_close(logits.grad, torch.tensor(dlogits))
    says(
        "logits (0, ln 2, ln 5), target 1 p = (1/8, 1/4, 5/8) -ln p = ln 4",
        "logits (0, 0, ln 2), target 2 p = (1/4, 1/4, 1/2) -ln p = ln 2",
        f"3/2 ln 2 ≈ {3 / 2 * LN2:.4f}",
        "dlogits is (1/16, -3/8, 5/16), (1/8, 1/8, -1/4) and, at padding, zeros",
    )


def test_the_other_examples(bptt):
    tokens, mask = bptt.pad_sequences([[7, 3], [5, 0, 2, 5], [4]])
    assert tokens.tolist() == [[7, 3, 0, 0], [5, 0, 2, 5], [4, 0, 0, 0]]
    assert mask.sum(axis=1).tolist() == [2, 4, 1]
    clipped, norm = bptt.clip_by_global_norm({"a": np.array([1.0, 2]), "b": np.array([-2.0, 4])}, 2)
    assert norm == 5 and clipped["a"] == pytest.approx([2 / 5, 4 / 5])
    says(
        "`[[7, 3], [5, 0, 2, 5], [4]]` becomes tokens (7 3 0 0), (5 0 2 5), (4 0 0 0)",
        "a mask with 2, 4 and 1 True",
        "(1, 2) and (-2, 4) together have norm 5; with max_norm = 2 all is scaled by 2/5",
    )


def test_what_is_said_of_central_differences():
    """Off by about 1e-10 at a step of 1e-5; by about the step if one-sided; noise at 1e-12."""

    def error(step, one_sided=False):
        z = np.linspace(-2, 2, 201)
        below = z if one_sided else z - step
        quotient = (np.tanh(z + step) - np.tanh(below)) / (z + step - below)
        return np.abs(quotient - (1 - np.tanh(z) ** 2)).max()

    assert 1e-12 < error(1e-5) < 1e-9
    assert 1e-6 < error(1e-5, one_sided=True) < 1e-4
    assert error(1e-12) > 1e-6
    says("ε = 1e-5 in float64", "both near 1e-10", "One-sided differences are off by about ε")


# ---- the spectral radius guarantees nothing -------------------------------------------------------

W = 4 * np.array([[1.0, -1.0], [1.0, -1.0]])  # acts on columns
HELD = np.array([0.0, math.sqrt(1 / 2)])


def test_the_demonstration_in_numbers():
    """rho(W) = 0 and W W = 0; each D W has rho 2; 20 steps reach a norm of 3.3e6."""
    np.testing.assert_array_equal(W @ W, 0)
    assert spectral_radius(W) < 1e-6
    D = np.diag(1 - HELD**2)
    np.testing.assert_allclose(np.diag(D), [1, 1 / 2], rtol=1e-15)
    np.testing.assert_allclose(D @ W, [[4, -4], [2, -2]], rtol=1e-15)
    assert sorted(np.linalg.eigvals(D @ W).real) == pytest.approx([0, 2], abs=1e-12)
    product = np.eye(2)
    norms = []
    for _ in range(20):
        product = D @ W @ product
        norms.append(np.linalg.norm(product, 2))
    np.testing.assert_allclose(np.divide(norms[1:], norms[:-1]), 2, rtol=1e-12)
    assert norms[-1] == pytest.approx(3.3e6, rel=0.01)
    says(
        "W = 4 [1 -1]",
        f"{RHO}(W) = 0: both eigenvalues are 0, and W W = 0",
        "the inputs hold h = (0, √½) in every step. The slopes are 1 and 1/2",
        f"D W = [4 -4] with the eigenvalues 0 and 2: {RHO}(D W) = 2 [2 -2]",
        "after 20 steps its norm is 3.3 · 10⁶",
        "after two steps the product is W W = 0",
    )


def test_the_demonstration_by_autograd():
    """Inputs that hold h exist; through them ∂h_20/∂h_0 is what torch's autograd finds too."""
    columns, held = torch.tensor(W), torch.tensor(HELD)
    from_input = torch.atanh(held) - columns @ held

    def twenty_steps(h, inputs):
        for _ in range(20):
            h = torch.tanh(columns @ h + inputs)
        return h

    torch.testing.assert_close(twenty_steps(held, from_input), held, rtol=0, atol=1e-8)
    J = torch.autograd.functional.jacobian(lambda h: twenty_steps(h, from_input), held)
    assert torch.linalg.matrix_norm(J, 2).item() == pytest.approx(3.3e6, rel=0.01)
    zero = torch.zeros(2, dtype=torch.float64)
    silent = torch.autograd.functional.jacobian(lambda h: twenty_steps(h, zero), zero)
    assert not silent.any()


def test_the_demonstration_by_the_students_functions(bptt):
    """In the code's rows W is transposed, and the numbers are the same."""
    h = np.tile(HELD, (21, 1))
    J = bptt.hidden_jacobian(h, W.T, 0, 20)
    assert np.linalg.norm(J, 2) == pytest.approx(3.3e6, rel=0.01)
    assert bptt.jacobian_norms(h, W.T)[0] == pytest.approx(np.linalg.norm(J, 2))
    silent = bptt.jacobian_norms(np.zeros((4, 2)), W.T)
    np.testing.assert_allclose(silent, [0, 0, 8, 1], atol=1e-15)


# ---- the figures ---------------------------------------------------------------------------------


def shown(name):
    return json.loads(re.search(r"<dc:description>(.*?)</dc:description>", FIGURES[name])[1])


def test_the_numbers_of_the_figures():
    random, one = shown("jacobians"), shown("radius")
    after_20 = {name: curve[19] for name, curve in random.items()}
    assert round(after_20["large"], -3) == 6000
    assert random["large"][39] / random["large"][19] == pytest.approx(1.5**20, rel=0.05)
    assert all(a <= b for a, b in zip(random["small"], random["bound"], strict=True))
    assert max(random["orthogonal"]) < 1
    for name in ("small", "orthogonal", "large_saturated"):
        assert random[name][39] < 1e-3, "the others fall"
    says(
        "to 6000 after 20 steps",
        f"after 20 steps an orthogonal W has {after_20['orthogonal']:.2g}",
        f"W of norm 0.9 has {after_20['small']:.2g}",
        f"well below its bound of {after_20['bound']:.2g}",
        f"{RHO} = 1.5 with large inputs {after_20['large_saturated']:.7f}",
        f"rises from {one['held'][0]:.1f} after one step to {round(one['held'][19], -5):.0f} after 20",
        f"it is {one['silent'][0]:.0f} after one step and exactly 0 from two steps on",
        "it falls below 1e-23 in 10 steps",
    )
    assert not any(one["silent"][1:])
    assert one["saturated"][9] < 1e-23 < one["saturated"][8]


def test_the_figures_show_what_the_script_computes(figure):
    for name, found in figure.all_curves().items():
        assert found.keys() == shown(name).keys()
        for curve, values in found.items():
            # three digits, and what rounding makes of products of forty Jacobians
            np.testing.assert_allclose(values, shown(name)[curve], rtol=0.02, err_msg=curve)


def test_the_figures_are_drawn_the_same_each_time(figure, tmp_path):
    pytest.importorskip("matplotlib")
    for name, svg in FIGURES.items():
        drawn = []
        for file in ("one.svg", "two.svg"):
            figure.draw(shown(name), name, tmp_path / file)
            drawn.append((tmp_path / file).read_text(encoding="utf-8"))
        assert drawn[0] == drawn[1]
        words = [re.findall(r"<text[^>]*>([^<]*)</text>", text) for text in (drawn[0], svg)]
        assert words[0] == words[1] and len(words[0]) > 8


def test_the_figures_are_small_and_in_the_handout():
    assert all(len(svg.encode()) < 60_000 for svg in FIGURES.values())
    assert re.findall(r"!\[[^!]{100,}?\]\(([\w.]+)\)", HANDOUT) == ["jacobians.svg", "radius.svg"]


def test_equations_are_numbered_as_the_docstrings_cite_them():
    numbers = [int(n) for n in re.findall(r"^    \((\d+)\) ", HANDOUT, re.MULTILINE)]
    assert numbers == list(range(1, 13))
    cited = {
        int(number)
        for name in ("bptt.py", "bptt_torch.py")
        for place in re.findall(
            r"equations?((?:\s+(?:to\s+|and\s+)?\(\d+\))+)", (PRIVATE / name).read_text("utf-8")
        )
        for number in re.findall(r"\d+", place)
    }
    assert cited and cited <= set(numbers)


# ---- public tests --------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path):
    """A student's folder with everything written, as the reference does it."""
    for path in PUBLIC.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    for name in ("bptt.py", "bptt_torch.py"):
        shutil.copy(PRIVATE / name, tmp_path)
    return tmp_path


def test_the_reference_passes_every_public_test(work):
    found = outcomes(work)
    assert set(found.values()) == {"PASSED"}
    assert len(found) > 50 and any(name.startswith("test_twin") for name in found)


def test_an_untouched_starter_is_still_to_be_written(work):
    for name in ("bptt.py", "bptt_torch.py"):
        text = (PRIVATE / name).read_text(encoding="utf-8")
        (work / name).write_text(stub(text, name), encoding="utf-8")
    found = outcomes(work)
    assert len(found) > 50
    said = {outcome.partition(" - ")[2] for outcome in found.values()}
    assert all(line.startswith("NotImplementedError: ") for line in said), said


@pytest.mark.slow
def test_what_is_left_aside_is_still_to_be_written(work):
    """An RNN without masks, and a twin without them that has x beside h in its loop."""
    with (work / "bptt.py").open("a", encoding="utf-8") as file:
        file.write("\n\nwhole = rnn_forward\n\n\ndef rnn_forward(cell, x, h0, mask=None):\n")
        file.write("    return whole(cell, x, h0)\n")
    (work / "bptt_torch.py").write_text(
        "import torch\n\n\n"
        "def rnn_forward_torch(params, x, h0, mask=None):\n"
        "    h, hs, W = h0, [], torch.cat([params['W_xh'], params['W_hh']])\n"
        "    for t in range(x.shape[1]):\n"
        "        h = torch.tanh(torch.cat([x[:, t], h], dim=1) @ W + params['b_h'])\n"
        "        hs.append(h)\n"
        "    return torch.stack(hs, dim=1)\n",
        encoding="utf-8",
    )
    found = {name: said for name, said in outcomes(work).items() if said != "PASSED"}
    projects = found.pop("test_twin_projects_all_steps_at_once")
    assert "2 products over x for 2 steps, 8 for 8" in projects
    assert len(found) > 8 and all("mask" in name for name in found)
    for name, said in found.items():
        function = "rnn_forward_torch" if "twin" in name else "rnn_forward"
        assert said == f"FAILED - NotImplementedError: {function} with a mask", name


def test_check_says_what_the_handout_shows(work):
    """Of W_hh for its transpose in backward, which the shapes allow."""
    right = (work / "bptt.py").read_text(encoding="utf-8")
    wrong = right.replace('da @ self.params["W_hh"].T', 'da @ self.params["W_hh"]')
    assert wrong != right
    (work / "bptt.py").write_text(wrong, encoding="utf-8")
    command = [sys.executable, "-m", "softmark", "check"]
    wide = os.environ | {"COLUMNS": "200", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, cwd=work, env=wide, capture_output=True, encoding="utf-8")
    said = done.stdout.partition("Next:")[2].strip().splitlines()[:2]
    shown = "\n".join(f"    {line}".rstrip() for line in said)
    assert shown in HANDOUT, shown
