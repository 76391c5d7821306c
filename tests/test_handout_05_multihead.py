"""What students of 05_multihead read and run first: handout, figure, questions, public tests.

Every number is worked out again, in another way than where it was written: in plain Python, or by
torch's own layers.
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
PUBLIC, PRIVATE = ROOT / "assignments" / "05_multihead", ROOT / "solutions" / "05_multihead"
HANDOUT = (PUBLIC / "handout.md").read_text(encoding="utf-8")
FIGURE = (PUBLIC / "costs.svg").read_text(encoding="utf-8")
CURVES = json.loads(re.search(r"<dc:description>(.*?)</dc:description>", FIGURE)[1])
QUESTIONS = load_questions(PUBLIC / "questions.yaml", "questions.yaml")
ANSWERS = load_answers(PRIVATE / "answers.yaml", "answers.yaml", QUESTIONS)
LN2, LN3 = math.log(2), math.log(3)


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors are small: more threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def load(file):
    spec = importlib.util.spec_from_file_location(f"handout_05_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def multihead():
    return load(PRIVATE / "multihead.py")


@pytest.fixture
def figure(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "multihead", raising=False)
    module = load(PRIVATE / "make_figure.py")
    monkeypatch.delitem(sys.modules, "multihead", raising=False)
    return module


def accepted(name, answer):
    return QUESTIONS[name].right(str(answer), ANSWERS[name])


def says(*texts):
    """Each text stands in the handout, lines and spaces joined."""
    words = " ".join(HANDOUT.split())
    for text in texts:
        assert " ".join(text.split()) in words, f"the handout does not say: {text}"


# ---- questions -----------------------------------------------------------------------------------


def test_size_of_a_score():
    products = (torch.randn(40_000, 128) * torch.randn(40_000, 128)).sum(dim=1)
    deviation = products.std().item()
    assert abs(deviation / float(ANSWERS["size_of_a_score"]) - 1) < 0.02
    assert accepted("size_of_a_score", math.sqrt(128))
    for wrong in (128, 3 * math.sqrt(128), 1, 8):
        assert not accepted("size_of_a_score", wrong)


def test_parameters(multihead):
    made = multihead.MultiHeadAttention(512, 8, num_kv_heads=2)
    count = sum(parameter.numel() for parameter in made.parameters())
    assert accepted("parameters", count)
    without = sum(p.numel() for name, p in made.named_parameters() if "bias" not in name)
    for wrong in (without, 4 * (512 * 512 + 512)):
        assert not accepted("parameters", wrong)


def test_without_influence(multihead):
    made = multihead.MultiHeadAttention(8, 2).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    out = made(torch.randn(3, 4, 8, dtype=torch.float64))
    (out * torch.randn(3, 4, 8, dtype=torch.float64)).sum().backward()
    size = {name: parameter.grad.abs().max().item() for name, parameter in made.named_parameters()}
    assert size.pop("k_proj.bias") < 1e-12 < 1e-3 < min(size.values())
    assert ANSWERS["without_influence"] == "b"


def test_bytes_of_a_cache(multihead):
    numbers = 2 * 4096 * 8 * 128  # of a layer
    assert accepted("bytes_of_a_cache", 32 * numbers * 2)
    assert 32 * multihead.kv_cache_bytes("gqa", 1, 4096, 64, 128, 2, 8) == 32 * numbers * 2
    for wrong in (32 * numbers, 32 * numbers * 2 * 8, numbers * 2, 16 * numbers * 2):
        assert not accepted("bytes_of_a_cache", wrong)


def test_memory_of_attention(multihead):
    """Block by block, with a running maximum and a running sum, the same comes out."""
    q, k, v = (torch.randn(7, 4, dtype=torch.float64) for _ in range(3))
    most, total = torch.full((7, 1), -math.inf), torch.zeros(7, 1)
    out = torch.zeros(7, 4, dtype=torch.float64)
    for start in range(0, 7, 3):
        block = slice(start, start + 3)
        scores = q @ k[block].T / 2
        highest = torch.maximum(most, scores.amax(1, keepdim=True))
        e, old = torch.exp(scores - highest), torch.exp(most - highest)
        total, out, most = old * total + e.sum(1, keepdim=True), old * out + e @ v[block], highest
    torch.testing.assert_close(out / total, multihead.scaled_dot_product_attention(q, k, v)[0])
    assert ANSWERS["memory_of_attention"] == "d"


def test_there_are_five_core_questions():
    assert [question.tier for question in QUESTIONS.values()] == ["core"] * 5
    assert sum(question.points for question in QUESTIONS.values()) == 5


# ---- numbers in the text -------------------------------------------------------------------------


def softmax(scores):
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def test_the_example():
    q = (2, 0, 0, 0)
    keys = [(0, 1, 0, 5), (LN2, 3, 0, 0), (LN3, 0, -2, 1)]
    values = [(6, 0), (0, 6), (6, 6)]
    says("k = (0, 1, 0, 5), (ln 2, 3, 0, 0), (ln 3, 0, -2, 1)", "v = (6, 0), (0, 6), (6, 6)")
    scores = [sum(a * b for a, b in zip(q, key, strict=True)) / 2 for key in keys]
    assert scores == pytest.approx([0, LN2, LN3])
    weights = softmax(scores)
    assert weights == pytest.approx([1 / 6, 2 / 6, 3 / 6])
    out = [sum(p * value[c] for p, value in zip(weights, values, strict=True)) for c in (0, 1)]
    assert out == pytest.approx([4, 5])
    masked = softmax([scores[0], scores[2]])
    assert masked == pytest.approx([1 / 4, 3 / 4])
    out = [masked[0] * values[0][c] + masked[1] * values[2][c] for c in (0, 1)]
    assert out == pytest.approx([6, 4.5])
    says("P = (1, 2, 3) / 6", "out = (4, 5)", "P = (1, 0, 3) / 4 and out = (6, 4.5)")
    # back, from dO = (1, 0)
    dP = [value[0] for value in values]
    common = sum(p * d for p, d in zip(weights, dP, strict=True))
    dS = [p * (d - common) for p, d in zip(weights, dP, strict=True)]
    assert dP == [6, 0, 6] and common == pytest.approx(4)
    assert dS == pytest.approx([1 / 3, -4 / 3, 1]) and sum(dS) == pytest.approx(0)
    assert [d / 2 * q[0] for d in dS] == pytest.approx([1 / 3, -4 / 3, 1])
    dQ = [sum(d / 2 * key[c] for d, key in zip(dS, keys, strict=True)) for c in range(4)]
    assert dQ == pytest.approx([-2 / 3 * LN2 + LN3 / 2, -11 / 6, -1, 4 / 3])
    says(
        "dP = (6, 0, 6)",
        "= (1/3, -4/3, 1)",
        "first column (1/3, -4/3, 1)",
        f"≈ ({dQ[0]:.4f}, {dQ[1]:.4f}, -1, {dQ[3]:.4f})",
    )


def test_the_table_of_caches():
    for name, numbers in {
        "MHA | 2 · 32 · 128": 2 * 32 * 128,
        "GQA, 8 heads of keys and values | 2 · 8 · 128": 2 * 8 * 128,
        "MQA | 2 · 128": 2 * 128,
        "latents of 512 | 512": 512,
    }.items():
        says(f"| {name} | {2 * numbers} |")
    assert 32 * 32768 * 2 * 2 * 32 * 128 == 16 * 2**30
    says("With 32 layers and 32768 tokens that is 16 GiB")


def test_the_sizes_of_scores():
    says(
        f"8 for d = {8**2}",
        f"±3√128 ≈ ±{3 * math.sqrt(128):.0f}",
        "34 is three of them for d = 128",
    )


def test_what_a_layer_costs(multihead):
    """8 n d² for the projections, 4 n² d for scores and values; equal at n = 2 d."""
    from torch.utils.flop_counter import FlopCounterMode

    d, n = 12, 20
    made = multihead.MultiHeadAttention(d, 3, bias=False)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        made(torch.randn(1, n, d))
    assert counter.get_total_flops() == 8 * n * d**2 + 4 * n**2 * d
    says("until n reaches 2 d: 8 n d² against 4 n² d operations")
    assert 8 * (2 * d) * d**2 == 4 * (2 * d) ** 2 * d


def test_a_step_with_one_more_key(multihead):
    """4 N E operations for attention to one more key; the graders allow twice that."""
    from torch.utils.flop_counter import FlopCounterMode

    N, E, counts = 2, 12, []
    for held in (5, 6):
        made, cache = multihead.MultiHeadAttention(E, 3), multihead.KVCache()
        with torch.no_grad():
            made(torch.randn(N, held, E), cache=cache)
            with FlopCounterMode(display=False) as counter:
                made(torch.randn(N, 1, E), cache=cache)
        counts.append(counter.get_total_flops())
    assert counts[1] - counts[0] == 4 * N * E
    says("for each further token held it may take 8 · N · E more, twice what attention")


def test_not_a_number_on_the_way_back():
    """nan_to_num lets NaN through on the way back, unless masked_fill stands before the softmax."""
    minus = torch.full((3,), -math.inf)
    scores = torch.zeros(3, requires_grad=True)
    (scores + minus).softmax(0).nan_to_num().sum().backward()
    assert scores.grad.isnan().all()
    scores = torch.zeros(3, requires_grad=True)
    every = torch.ones(3, dtype=torch.bool)
    scores.masked_fill(every, -math.inf).softmax(0).nan_to_num().sum().backward()
    assert scores.grad.tolist() == [0, 0, 0]
    says("0 · NaN is NaN", "as `masked_fill` does")


def test_equations_are_numbered_as_the_docstrings_cite_them():
    numbers = [int(n) for n in re.findall(r"^    \((\d+)\) ", HANDOUT, re.MULTILINE)]
    assert numbers == list(range(1, 18))
    source = (PRIVATE / "multihead.py").read_text("utf-8")
    cited = {
        int(number)
        for place in re.findall(r"[Ee]quations?((?:\s+(?:to\s+|and\s+)?\(\d+\))+)", source)
        for number in re.findall(r"\d+", place)
    }
    assert cited and cited <= set(numbers)


# ---- the figure ----------------------------------------------------------------------------------


def test_the_numbers_of_the_figure(figure):
    scaled, plain = CURVES["scaled"], CURVES["plain"]
    assert [2**n for n in range(9)] == figure.SIZES
    says(
        f"stays between {min(scaled):.2f} and {max(scaled):.2f} from d = 1 to 256",
        f"rises from {plain[0]:.2f} to {plain[6]:.2f} at d = 64 and {plain[8]:.2f} at d = 256",
        f"With 32 heads it takes {CURVES['mha'][-1]:g} GiB there, with 8 heads of keys and values "
        f"{CURVES['gqa'][-1]:g}, with latents of 512 numbers {CURVES['mla'][-1]:g}, with one head "
        f"{CURVES['mqa'][-1]:g}.",
    )


def test_the_figure_is_measured(figure):
    """The left curves in another way: plain products and softmax, and other random numbers."""
    for name, place in (("plain", 6), ("scaled", 6), ("plain", 0)):
        d = figure.SIZES[place]
        q, k = torch.randn(4000, 1, d), torch.randn(4000, 16, d)
        scores = (q * k).sum(-1) / (math.sqrt(d) if name == "scaled" else 1)
        found = scores.softmax(-1).amax(-1).mean().item()
        assert found == pytest.approx(CURVES[name][place], abs=0.03)
    assert CURVES["mha"][-1] == 32 * 2 * 32768 * 32 * 128 * 2 / 2**30
    assert figure.curves() == CURVES


def test_the_figure_is_drawn_the_same_each_time(figure, tmp_path):
    pytest.importorskip("matplotlib")
    drawn = []
    for name in ("one.svg", "two.svg"):
        figure.draw(CURVES, tmp_path / name)
        drawn.append((tmp_path / name).read_text(encoding="utf-8"))
    assert drawn[0] == drawn[1]
    words = [re.findall(r"<text[^>]*>([^<]*)</text>", svg) for svg in (drawn[0], FIGURE)]
    assert words[0] == words[1]
    assert "MQA, one head" in words[0]


def test_the_figure_is_small_and_in_the_handout():
    assert len(FIGURE.encode()) < 60_000
    assert re.findall(r"!\[[^\]]{100,}\]\(([\w.]+)\)", HANDOUT) == ["costs.svg"]


# ---- public tests --------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path):
    """A student's folder with everything written, as the reference does it."""
    for path in PUBLIC.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    shutil.copy(PRIVATE / "multihead.py", tmp_path)
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
    """A test that a variant cannot be tried on, for looking at values, is skipped and not listed."""
    shutil.copy(PRIVATE / "variants" / variant / "multihead.py", work)
    assert set(outcomes(work).values()) == {"PASSED"}


def test_an_untouched_starter_is_still_to_be_written(work):
    text = (PRIVATE / "multihead.py").read_text(encoding="utf-8")
    (work / "multihead.py").write_text(stub(text, "multihead.py"), encoding="utf-8")
    found = outcomes(work)
    assert len(found) > 28
    said = {outcome.partition(" - ")[2] for outcome in found.values()}
    assert all(line.startswith("NotImplementedError: ") for line in said), said


# What extension and bonus ask for, still to be written; key words that core has no use for included.
CORE_ALONE = """

_core = MultiHeadAttention.forward


def _forward(self, query, key=None, value=None, mask=None, cache=None):
    if cache is not None or self.num_kv_heads != self.num_heads:
        raise NotImplementedError("extension")
    return _core(self, query, key, value, mask)


def _unwritten(*_, **__):
    raise NotImplementedError("extension or bonus")


MultiHeadAttention.forward = _forward
KVCache.append = KVCache.__len__ = kv_cache_bytes = _unwritten
MultiHeadLatentAttention.forward = _unwritten
"""


@pytest.mark.slow
def test_core_alone_leaves_the_extension_to_be_written(work):
    with (work / "multihead.py").open("a", encoding="utf-8") as file:
        file.write(CORE_ALONE)
    aside = {name for name, said in outcomes(work).items() if said != "PASSED"}
    assert aside and all(name.startswith(("test_extension", "test_bonus")) for name in aside)
