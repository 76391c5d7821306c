"""What students of 06_positions read and run first: handout, figure, questions, public tests.

Every number is worked out again, in another way than where it was written: in plain Python.
"""

import importlib.util
import json
import math
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from handouts import outcomes
from softmark.builders.stub import stub
from softmark.questions import load_answers, load_questions

ROOT = Path(__file__).resolve().parent.parent
PUBLIC, PRIVATE = ROOT / "assignments" / "06_positions", ROOT / "solutions" / "06_positions"
HANDOUT = (PUBLIC / "handout.md").read_text(encoding="utf-8")
FIGURE = (PUBLIC / "distances.svg").read_text(encoding="utf-8")
CURVES = json.loads(re.search(r"<dc:description>(.*?)</dc:description>", FIGURE)[1])
QUESTIONS = load_questions(PUBLIC / "questions.yaml", "questions.yaml")
ANSWERS = load_answers(PRIVATE / "answers.yaml", "answers.yaml", QUESTIONS)


def load(file):
    spec = importlib.util.spec_from_file_location(f"handout_06_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def positions():
    return load(PRIVATE / "positions.py")


@pytest.fixture
def figure(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "positions", raising=False)
    module = load(PRIVATE / "make_figure.py")
    monkeypatch.delitem(sys.modules, "positions", raising=False)
    return module


def accepted(name, answer):
    return QUESTIONS[name].right(str(answer), ANSWERS[name])


def says(*texts):
    """Each text stands in the handout, lines and spaces joined."""
    words = " ".join(HANDOUT.split())
    for text in texts:
        assert text in words, f"the handout does not say: {text}"


def turned(pair, angle):
    """A pair as a complex number, turned."""
    z = complex(*pair) * complex(math.cos(angle), math.sin(angle))
    return z.real, z.imag


# ---- questions -----------------------------------------------------------------------------------


def test_slowest_pair():
    frequency = 10000 ** (-2 * 31 / 64)
    turn = 2 * math.pi / frequency
    assert accepted("slowest_pair", turn)
    says(f"with d = 64 a turn takes {turn:.0f} tokens, not {2 * math.pi * 10000:.0f}")
    # the base itself; without the turn; by i / d; counted from 1
    exponents = (1, 31 / 64, 2 * 32 / 64)
    wrong = [2 * math.pi * 10000**each for each in exponents]
    for each in (*wrong, 1 / frequency):
        assert not accepted("slowest_pair", each)


def test_score_of_a_pair():
    q, k = turned((3, 0), 10), turned((0, 2), 11)
    score = q[0] * k[0] + q[1] * k[1]
    assert accepted("score_of_a_pair", score)
    for wrong in (0, -score, 6 * math.cos(1), score / math.sqrt(2)):
        assert not accepted("score_of_a_pair", wrong)


def test_twelve_heads():
    """The fourth of the four that are added: the seventh of sixteen."""
    assert accepted("twelve_heads", 2 ** (-8 * 7 / 16))
    for wrong in (2.0**-8, 2 ** (-8 * 4 / 16), 2 ** (-8 * 12 / 16), 2 ** (-8 * 8 / 16)):
        assert not accepted("twelve_heads", wrong)


def test_which_layout(positions):
    """c alone: changing x_1 changes outputs 0 and 1, or 1 and 33; a, b and d hold for both."""
    x = torch.randn(1, 64, dtype=torch.float64)
    other = x.clone()
    other[0, 1] += 1
    cos, sin = positions.rope_angles(torch.tensor([5.0]).double(), 64)
    changed = {}
    for turn in (positions.apply_rope, positions.apply_rope_half):
        out = turn(x, cos, sin)
        changed[turn.__name__] = (turn(other, cos, sin) - out)[0].nonzero().flatten().tolist()
        torch.testing.assert_close(out.norm(), x.norm())
        still = positions.rope_angles(torch.tensor([0.0]).double(), 64)
        assert torch.equal(turn(x, *still), x)
    assert changed == {"apply_rope": [0, 1], "apply_rope_half": [1, 33]}
    assert ANSWERS["which_layout"] == "c"


def test_float32_angles():
    """b: the spacing of float32 there. Not a, c or d: positions, cosines and ω are right."""
    near = torch.tensor([8192.0], dtype=torch.float32)
    after = torch.nextafter(near, near + 1)
    assert (after - near).item() == 2.0**-10 == pytest.approx(0.001, rel=0.03)
    assert near.item() == 8192  # a: whole numbers are exact up to 2^24
    assert near.cos().item() == pytest.approx(math.cos(8192), abs=1e-7)  # c
    slowest = torch.tensor(10000.0, dtype=torch.float32) ** (-126 / 128)
    assert slowest.item() == pytest.approx(10000 ** (-126 / 128), rel=1e-6)  # d
    assert ANSWERS["float32_angles"] == "b"


def test_there_are_five_core_questions():
    assert [question.tier for question in QUESTIONS.values()] == ["core"] * 5
    assert sum(question.points for question in QUESTIONS.values()) == 5


# ---- numbers in the text -------------------------------------------------------------------------


def test_the_sinusoidal_example():
    row = [f(1 / 10**i) for i in range(2) for f in (math.sin, math.cos)]
    frequency = 100 ** (-2 / 4)
    assert frequency == pytest.approx(1 / 10)
    says("row 1 is (" + ", ".join(f"{x:.4f}" for x in row) + ")", "Row 0 is (0, 1, 0, 1)")


def test_the_rotated_examples():
    x = (1, 2, 3, 4)
    for layout, pairs in (("interleaved", ((0, 1), (2, 3))), ("half", ((0, 2), (1, 3)))):
        out = [0.0] * 4
        for (a, b), angle in zip(pairs, (math.pi / 2, math.pi), strict=True):
            out[a], out[b] = turned((x[a], x[b]), angle)
        named = " and ".join(f"({x[a]}, {x[b]})" for a, b in pairs)
        says(f"{layout} pairs {named} → ({', '.join(f'{each:.0f}' for each in out)})")


def test_the_score_three_positions_apart():
    for m, n in ((5, 2), (105, 102)):
        q, k = turned((1, 0), m), turned((1, 0), n)
        assert q[0] * k[0] + q[1] * k[1] == pytest.approx(math.cos(3))
    says(f"their product is cos 3 ≈ {math.cos(3):.4f}", "positions 105 and 102")


def test_the_slopes_and_the_bias():
    four = [2 ** (-8 * k / 4) for k in range(1, 5)]
    eight = [2 ** (-8 * k / 8) for k in range(1, 9)]
    assert four == [1 / 4, 1 / 16, 1 / 64, 1 / 256] and [eight[0], eight[2]] == [1 / 2, 1 / 8]
    says("Four heads: 1/4, 1/16, 1/64, 1/256.", "the first and the third of eight, 1/2 and 1/8")
    rows = [[-(i + 4 - 2 - j) / 2 for j in range(4)] for i in range(2)]
    assert rows == [[-1, -1 / 2, 0, 0.5], [-3 / 2, -1, -1 / 2, 0]]
    says("-1 -1/2 0 -inf -3/2 -1 -1/2 0")


def test_the_larger_base():
    base = 10000 * 4 ** (64 / 62)
    says(f"base 10000 becomes 10000 · 4^(64/62) ≈ {base:.0f}")
    assert base ** (-62 / 64) == pytest.approx(10000 ** (-62 / 64) / 4)


def test_the_yarn_example():
    def turning(times):
        return 8 * math.log(2048 / (2 * math.pi * times)) / (2 * math.log(10000))

    says(f"c(32) = {turning(32):.2f} and c(1) = {turning(1):.2f}, so lo = 1 and hi = 3")
    assert math.floor(turning(32)) == 1 and math.ceil(turning(1)) == 3
    kept = [1 - min(max((i - 1) / 2, 0), 1) for i in range(4)]
    assert kept == [1, 1, 0.5, 0]
    old = [10.0**-i for i in range(4)]
    new = [w * (1 - g) / 4 + w * g for w, g in zip(old, kept, strict=True)]
    assert new == pytest.approx([1, 0.1, 0.00625, 0.00025])
    says("the frequencies 1, 0.1, 0.01, 0.001 become 1, 0.1, 0.00625, 0.00025")
    scale = 0.1 * math.log(4) + 1
    says(f"The scale is {scale:.4f}", f"by its square, {scale**2:.4f}")


def test_the_ramp_of_the_paper():
    turns = 2048 * 0.01 / (2 * math.pi)
    kept = (turns - 1) / (32 - 1)
    says(f"pair 2 turns {turns:.2f} times", f"= {kept:.4f} and its frequency")
    says(f"its frequency is {0.01 * (kept + (1 - kept) / 4):.5f}; by the code")


def test_the_digits():
    """Cosines by float32 angles, against Python's floats, over 200 positions."""
    after = torch.nextafter(torch.tensor(4096.0), torch.tensor(4097.0)).item() - 4096
    assert after == 2**-11 and after == pytest.approx(0.0005, rel=0.03)
    says("3e-4 at positions just below 8192, by up to 5e-3 just below 131072")
    rates = 1.0 / 10000 ** (torch.arange(0, 64, 2, dtype=torch.float32) / 64)
    exact = [10000 ** (-2 * i / 64) for i in range(32)]
    for end, most in ((8192, 3e-4), (131072, 5e-3)):
        where = torch.arange(end - 200, end, dtype=torch.float32)
        found = torch.outer(where, rates).cos().double()
        due = [[math.cos(p * rate) for rate in exact] for p in range(end - 200, end)]
        worst = (found - torch.tensor(due, dtype=torch.float64)).abs().max().item()
        assert 0.7 * most < worst < 1.1 * most
    assert torch.tensor(257.0).bfloat16().item() == 256
    says("257 becomes 256")


def test_equations_are_numbered_as_the_docstrings_cite_them():
    numbers = [int(n) for n in re.findall(r"^    \((\d+)\) ", HANDOUT, re.MULTILINE)]
    assert numbers == list(range(1, 15))
    source = (PRIVATE / "positions.py").read_text("utf-8")
    cited = {
        int(number)
        for place in re.findall(r"[Ee]quations?((?:\s+(?:to\s+|and\s+)?\(\d+\))+)", source)
        for number in re.findall(r"\d+", place)
    }
    assert cited and cited <= set(numbers)


# ---- the figure ----------------------------------------------------------------------------------


def test_the_numbers_of_the_figure(figure):
    assert figure.curves() == CURVES
    left, far = CURVES["kept, base 10000"], CURVES["kept, base 500000"]
    at = figure.DISTANCES.index

    def kept(distance, base):
        return sum(math.cos(distance * base ** (-i / 32)) for i in range(32)) / 32

    for distance, base, curve in ((8, 1e4, left), (128, 1e4, left), (1024, 5e5, far)):
        assert curve[at(distance)] == pytest.approx(kept(distance, base), abs=1e-3)
    says(f"to {left[at(8)]:.2f} at a distance of 8, {left[at(128)]:.2f} at 128, and about 0 at 724")
    says(f"is {far[at(1024)]:.2f} at 1024")
    assert abs(left[at(724)]) < 0.01
    yarn, ntk = CURVES["YaRN"], CURVES["NTK"]
    assert [i for i, ratio in enumerate(yarn) if ratio == 1] == list(range(9))
    assert [i for i, ratio in enumerate(yarn) if ratio == 0.25] == list(range(21, 32))
    assert (ntk[0], ntk[-1]) == (1, 0.25) and set(CURVES["interpolation"]) == {0.25}


def test_the_figure_is_drawn_the_same_each_time(figure, tmp_path):
    pytest.importorskip("matplotlib")
    drawn = []
    for name in ("one.svg", "two.svg"):
        figure.draw(CURVES, tmp_path / name)
        drawn.append((tmp_path / name).read_text(encoding="utf-8"))
    assert drawn[0] == drawn[1]
    words = [re.findall(r"<text[^>]*>([^<]*)</text>", svg) for svg in (drawn[0], FIGURE)]
    assert words[0] == words[1]
    assert "YaRN" in words[0]


def test_the_figure_is_small_and_in_the_handout():
    assert len(FIGURE.encode()) < 60_000
    assert re.findall(r"!\[[^\]]{100,}\]\(([\w.]+)\)", HANDOUT) == ["distances.svg"]


# ---- public tests --------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path):
    """A student's folder with everything written, as the reference does it."""
    for path in PUBLIC.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    shutil.copy(PRIVATE / "positions.py", tmp_path)
    return tmp_path


def test_the_reference_passes_every_public_test(work):
    found = outcomes(work)
    assert set(found.values()) == {"PASSED"}
    assert len(found) > 28


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant", sorted(path.name for path in (PRIVATE / "variants").iterdir() if path.is_dir())
)
def test_right_variants_pass_every_public_test(work, variant):
    shutil.copy(PRIVATE / "variants" / variant / "positions.py", work)
    assert set(outcomes(work).values()) == {"PASSED"}


@pytest.mark.slow
def test_an_untouched_starter_is_still_to_be_written(work):
    text = (PRIVATE / "positions.py").read_text(encoding="utf-8")
    (work / "positions.py").write_text(stub(text, "positions.py"), encoding="utf-8")
    found = outcomes(work)
    assert len(found) > 28
    said = {outcome.partition(" - ")[2] for outcome in found.values()}
    assert all(line.startswith("NotImplementedError: ") for line in said), said


@pytest.mark.slow
def test_the_other_layout_is_noticed_by_values_alone(work):
    """Both layouts exchanged: what is worked out by hand fails, no property does."""
    with (work / "positions.py").open("a", encoding="utf-8") as file:
        file.write("\n\napply_rope, apply_rope_half = apply_rope_half, apply_rope\n")
    failed = {name for name, said in outcomes(work).items() if said != "PASSED"}
    assert failed == {
        "test_rope_by_hand",
        "test_extension_half_by_hand",
        "test_extension_converted_weights",
    }
