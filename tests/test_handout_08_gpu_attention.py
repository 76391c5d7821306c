"""What students of 08_gpu_attention read and run first: handout, figure, questions, public tests.

Every number is worked out again, in another way than where it was written: in plain Python, by torch's
own functions, or by counting what runs.
"""

import importlib.util
import json
import math
import re
import shutil
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from handouts import outcomes
from softmark.builders.stub import stub
from softmark.course import load_topic
from softmark.questions import load_answers, load_questions
from torch.nn import functional as F  # noqa: N812
from torch.utils.flop_counter import FlopCounterMode

ROOT = Path(__file__).resolve().parent.parent
PUBLIC, PRIVATE = ROOT / "assignments" / "08_gpu_attention", ROOT / "solutions" / "08_gpu_attention"
HANDOUT = (PUBLIC / "handout.md").read_text(encoding="utf-8")
FIGURE = (PUBLIC / "bytes.svg").read_text(encoding="utf-8")
CURVES = json.loads(re.search(r"<dc:description>(.*?)</dc:description>", FIGURE)[1])
QUESTIONS = load_questions(PUBLIC / "questions.yaml", "questions.yaml")
ANSWERS = load_answers(PRIVATE / "answers.yaml", "answers.yaml", QUESTIONS)
LN2, LN3, LN6 = math.log(2), math.log(3), math.log(6)
PEAK, PEAK32, BANDWIDTH = 312e12, 19.5e12, 2.0e12  # an A100's


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors are small: more threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def load(file):
    spec = importlib.util.spec_from_file_location(f"handout_08_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def gpu():
    return load(PRIVATE / "gpu_attention.py")


@pytest.fixture
def figure(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "gpu_attention", raising=False)
    module = load(PRIVATE / "make_figure.py")
    monkeypatch.delitem(sys.modules, "gpu_attention", raising=False)
    return module


def accepted(name, answer):
    return QUESTIONS[name].right(str(answer), ANSWERS[name])


def says(*texts):
    """Each text stands in the handout, lines and spaces joined."""
    words = " ".join(HANDOUT.split())
    for text in texts:
        assert " ".join(text.split()) in words, f"the handout does not say: {text}"


# ---- questions -----------------------------------------------------------------------------------


def test_bytes_of_scores():
    one = torch.empty(8192, 8192, dtype=torch.bfloat16, device="meta")
    right = 2 * 12 * one.numel() * one.element_size()
    assert accepted("bytes_of_scores", right)
    for wrong in (right // 2, right // 12, right * 2, right - 2**12):
        assert not accepted("bytes_of_scores", wrong)


def test_after_a_block():
    """As if the five of before were five scores of 1, of which each counts exp(1 - m')."""
    scores = [1.0] * 5 + [1 + math.log(5), 1.0]
    right = sum(math.exp(score - max(scores)) for score in scores)
    assert accepted("after_a_block", right)
    for wrong in (5 + 1.2, 5 + 6, 1.2, 1 + 5, 5 * 5 + 1.2, 11):
        assert not accepted("after_a_block", wrong)


def test_padded_work():
    lengths = 512, 128, 64, 320
    right = len(lengths) * max(lengths) ** 2 / sum(length**2 for length in lengths)
    assert accepted("padded_work", f"{right:.3g}")
    for wrong in (4 * 512 / sum(lengths), 1 / right, 4 * 512**2 / sum(lengths) ** 2):
        assert not accepted("padded_work", wrong)


def test_operations_a_byte():
    """For other sizes of batch and cache, too: they do not matter."""
    for N, L in ((1, 100), (7, 33)):
        products = 2 * N * 64 * L * 128  # q · k, and as many for the values
        assert accepted("operations_a_byte", 2 * products / (2 * N * 8 * L * 128 * 2))
    for wrong in (1, 4, 16, 64, 2):
        assert not accepted("operations_a_byte", wrong)


def test_why_faster():
    """14 operations against 12; the exponentials are as many, and more, and the sums no less exact."""
    assert 4 + 10 == 14 and 4 + 8 == 12
    stored = 3 * 4 * 16384**2 * 2 / BANDWIDTH  # P and dP both ways, forward and back, and dS
    arithmetic = 14 * 16384**2 * 64 / PEAK
    assert stored > 2 * arithmetic
    assert ANSWERS["why_faster"] == "a"


def test_there_are_five_core_questions():
    assert [question.tier for question in QUESTIONS.values()] == ["core"] * 5
    assert sum(question.points for question in QUESTIONS.values()) == 5


# ---- the example ---------------------------------------------------------------------------------

KEYS = [(0, 12, 0, 0), (LN2, 0, 0, 0), (LN6, 0, 0, 0), (LN3, 0, 0, 0)]
VALUES = [(12, 0, 0, 0), (0, 12, 0, 0), (12, 12, 0, 0), (0, 0, 12, 0)]
P = [Fraction(n, 12) for n in (1, 2, 6, 3)]


def test_the_example_at_once():
    says(
        "k = (0, 12, 0, 0), (ln 2, 0, 0, 0) | (ln 6, 0, 0, 0), (ln 3, 0, 0, 0)",
        "v = (12, 0, 0, 0), (0, 12, 0, 0) | (12, 12, 0, 0), (0, 0, 12, 0)",
    )
    scores = [2 * key[0] / 2 for key in KEYS]  # q = (2, 0, 0, 0), √d = 2
    assert scores == pytest.approx([0, LN2, LN6, LN3])
    total = sum(map(math.exp, scores))
    assert [math.exp(score) / total for score in scores] == pytest.approx([float(p) for p in P])
    out = [sum(p * value[c] for p, value in zip(P, VALUES, strict=True)) for c in range(4)]
    assert out == [7, 8, 3, 0]
    says("P = (1, 2, 6, 3) / 12, out = (7, 8, 3, 0), lse = ln 12", f"ln 12 ≈ {math.log(total):.4f}")


def blocks(rescaled):
    """m as its exponential, l and a after each of the two blocks, exactly."""
    exps = [Fraction(1), Fraction(2), Fraction(6), Fraction(3)]
    m, total, summed, steps = Fraction(0), Fraction(0), [Fraction(0)] * 4, []
    for block in ((0, 1), (2, 3)):
        new = max(m, *(exps[j] for j in block))
        shrink = m / new if rescaled else Fraction(1)
        total = shrink * total + sum(exps[j] / new for j in block)
        summed = [
            shrink * summed[c] + sum(exps[j] / new * VALUES[j][c] for j in block) for c in range(4)
        ]
        m = new
        steps.append((m, total, summed))
    return steps


def test_the_example_in_blocks():
    first, second = blocks(rescaled=True)
    assert first == (2, Fraction(3, 2), [6, 12, 0, 0])
    assert second == (6, 2, [14, 16, 6, 0])
    assert [each / second[1] for each in second[2]] == [7, 8, 3, 0]
    says(
        "first m = ln 2 l = 1/2 + 1 = 3/2 a = (6, 12, 0, 0)",
        "exp(ln 2 - ln 6) = 1/3 l = 1/3 · 3/2 + 1 + 1/2 = 2",
        "a = (2, 4, 0, 0) + (12, 12, 0, 0) + (0, 0, 6, 0)",
        "out = (14, 16, 6, 0) / 2 = (7, 8, 3, 0) lse = ln 6 + ln 2 = ln 12",
    )
    _, total, summed = blocks(rescaled=False)[1]
    assert total == 3 and summed == [18, 24, 6, 0]
    says("has l = 3, a = (18, 24, 6, 0), and out = (6, 8, 2, 0)")


def test_the_example_on_the_way_back():
    q = torch.tensor([[2.0, 0, 0, 0]], dtype=torch.float64, requires_grad=True)
    k, v = (torch.tensor(rows, dtype=torch.float64, requires_grad=True) for rows in (KEYS, VALUES))
    out = F.scaled_dot_product_attention(q, k, v)
    dq, dk, dv = torch.autograd.grad(out[0, 0], (q, k, v))  # dO = (1, 0, 0, 0)
    dP = [value[0] for value in VALUES]
    D = sum(p * each for p, each in zip(P, dP, strict=True))
    dS = [p * (each - D) for p, each in zip(P, dP, strict=True)]
    assert dP == [12, 0, 12, 0] and D == 7 == out[0, 0].item() and sum(dS) == 0
    assert dS == [Fraction(5, 12), Fraction(-7, 6), Fraction(5, 2), Fraction(-7, 4)]
    assert dk[:, 0].tolist() == pytest.approx([float(each) for each in dS])
    assert dv[:, 0].tolist() == pytest.approx([float(p) for p in P])
    assert dk[:, 1:].count_nonzero() == dv[:, 1:].count_nonzero() == 0
    x = -7 / 12 * LN2 + 5 / 4 * LN6 - 7 / 8 * LN3
    assert dq[0].tolist() == pytest.approx([x, 2.5, 0, 0])
    says(
        "D = 7 dO Vᵀ = (12, 0, 12, 0)",
        "dS = (1 · 5, 2 · (-7), 6 · 5, 3 · (-7)) / 12 = (5/12, -7/6, 5/2, -7/4)",
        "first column (1, 2, 6, 3) / 12",
        f"(-7/12 ln 2 + 5/4 ln 6 - 7/8 ln 3, 5/2, 0, 0) ≈ ({x:.4f}, 2.5, 0, 0)",
    )


def test_the_example_of_packing():
    lengths = 3, 0, 2
    cu = tuple(sum(lengths[:n]) for n in range(4))
    says(f"lengths {lengths} give cu = {cu}")


# ---- operations and bytes ------------------------------------------------------------------------


def test_the_operations():
    """Two products forward and five back, counted by torch's own counter."""
    N, h, Tq, Tk, d = 2, 3, 5, 7, 4
    q, k, v = torch.randn(N, h, Tq, d), torch.randn(N, h, Tk, d), torch.randn(N, h, Tk, d)
    with FlopCounterMode(display=False) as counter:
        weights = (q @ k.mT).softmax(-1)
        weights @ v
    assert counter.get_total_flops() == 4 * N * h * Tq * Tk * d
    with FlopCounterMode(display=False) as counter:
        scores, dweights = q @ k.mT, q @ v.mT
        _ = weights.mT @ q, dweights @ k, scores.mT @ q
    assert counter.get_total_flops() == 10 * N * h * Tq * Tk * d
    says("FLOPs = 4 N h Tq Tk d forward, 10 N h Tq Tk d backward", "10 where 8 would do")


def test_the_roof():
    says(
        "312 · 10¹² operations a second in bfloat16, 19.5 · 10¹² in float32, and moves 2.0 · 10¹² bytes",
        f"less than {PEAK / BANDWIDTH:.0f} operations a byte waits for the memory "
        f"(in float32 {PEAK32 / BANDWIDTH:.0f})",
        f"flat from {PEAK / BANDWIDTH:.0f} operations a byte",
    )


def test_one_head():
    T, d, b = 4096, 64, 2
    operations = 4 * T * T * d
    stored, once = 4 * T * T * b + 4 * T * d * b, 4 * T * d * b
    assert stored == 8 * T * T + 8 * T * d and once == 8 * T * d
    at_least = [max(operations / PEAK, moved / BANDWIDTH) * 1e6 for moved in (stored, once)]
    says(
        f"{operations / 1e9:.2f} · 10⁹ operations, {operations / PEAK * 1e6:.1f} µs at the peak",
        f"8 T² + 8 T d = {stored / 1e6:.0f} · 10⁶ | {operations / stored:.1f} | {at_least[0]:.1f} µs |",
        f"8 T d = {once / 1e6:.1f} · 10⁶ | {operations / once:.0f} | {at_least[1]:.1f} µs |",
    )
    block_q = 64
    assert 4 * block_q * T * d / (2 * T * d * b) == 2 * block_q / b == 64
    says("2 block_q / b operations a byte with b bytes a number, 64 for blocks of 64 in bfloat16")


def test_what_is_kept():
    rows = 4 * 16 * 8192
    says("for N = 4, h = 16, T = 8192 and d = 64 in bfloat16")
    assert (
        rows * 8192 * 2 == 8 * 2**30 and 4 * rows * 64 * 2 == 256 * 2**20 and rows * 4 == 2 * 2**20
    )
    says("it would be 8 GiB in one layer, where q, k, v and out are 256 MiB, and lse 2 MiB")


def test_decoding():
    h, h_kv, d, N, L, b = 32, 8, 128, 8, 4096, 2
    operations, moved = 4 * N * h * L * d, 2 * N * h_kv * L * d * b
    assert operations / moved == 2 * (h / h_kv) / b
    says(
        "With h = 32, h_kv = 8, d = 128, N = 8 sequences and L = 4096 tokens in bfloat16: "
        f"{moved / 2**20:.0f} MiB of cache, {operations / moved:.0f} operations a byte, "
        f"{moved / BANDWIDTH * 1e6:.0f} µs for the bytes and {operations / PEAK * 1e6:.1f} µs "
        "for the arithmetic",
        "to write four caches and to read them again: 9 times the traffic",
    )
    assert (moved + 2 * h // h_kv * moved) / moved == 9
    assert operations / 4 / PEAK < operations / PEAK < moved / BANDWIDTH  # a quarter saves no time


def test_launches():
    pairs = (4096 // 64) ** 2
    says(f"{pairs} pairs of blocks; with 10 operators each, {pairs * 10 * 5e-6:.1f} s")


# ---- how it is graded ----------------------------------------------------------------------------

MEMORY, OPERATORS, TIME = (
    (ROOT / "autograder" / "graders" / "08_gpu_attention" / name).read_text("utf-8")
    for name in ("test_memory.py", "test_operators.py", "test_time.py")
)


def test_the_bounds_are_the_graders():
    says(
        "of 1024 tokens | 6 times those of 256 |",
        "beside a block of 512 queries, and for each further query, beside a block of 512 keys | 16 · d",
        "| 1.4 times equation (15) |",
        "| 2 times equation (15) |",
        "| 3/4 of one of the two caches |",
        "All points up to 1.5 times its time, none from 4 times on",
    )
    for line in ("SHORT, LONG = 256, 1024", "MATRIX = 6 ", "WIDE, D = 512, ", "STRIP = 16 * D "):
        assert f"\n{line}" in MEMORY
    assert "<= 0.75 * size" in MEMORY
    assert re.findall(r"found <= (.+) [*] floor", OPERATORS) == ["1.4", "2"]
    bounds = set(re.findall(r"full=([\d.e]+), none=([\d.e]+)", TIME))
    assert bounds == {("1.5", "4")}


# ---- numbers on a GPU ----------------------------------------------------------------------------


def test_sizes_of_roundings():
    for dtype, power, sign in (
        (torch.float64, 53, "⁻⁵³"),
        (torch.float32, 24, "⁻²⁴"),
        (torch.bfloat16, 8, "⁻⁸"),
        (torch.float16, 11, "⁻¹¹"),
    ):
        assert torch.finfo(dtype).eps / 2 == 2.0**-power
        says(f"| {str(dtype).removeprefix('torch.')} | 2{sign} |")
    assert torch.finfo(torch.float16).max == 65504
    for dtype in (torch.float32, torch.bfloat16):
        assert math.floor(math.log10(torch.finfo(dtype).max)) == 38
    assert math.floor(math.log10(torch.finfo(torch.float64).max)) == 308
    assert not torch.backends.cuda.matmul.allow_tf32
    says("PyTorch's default is not to")


def test_a_sum_that_stops():
    for dtype, due in ((torch.bfloat16, 256), (torch.float16, 2048)):
        total, one = torch.zeros((), dtype=dtype), torch.ones((), dtype=dtype)
        for _ in range(4096):
            total = total + one
        assert total == due
    says("4096 ones added one by one in bfloat16 make 256, in float16 2048")


def test_a_rounded_lse():
    near = torch.linspace(9, 11, 2001, dtype=torch.float64)
    worst = (near.to(torch.bfloat16).double() - near).abs().max().item()
    assert 0.031 <= worst <= 1 / 32 and round(math.expm1(worst), 2) == 0.03
    says("rounded in bfloat16 by up to 0.031, and exp makes 3 % in every weight of that")


def test_where_exp_overflows():
    for dtype, first in ((torch.float32, 89), (torch.float16, 12)):
        last, over = torch.tensor([first - 1.0, first], dtype=dtype).exp()
        assert last.isfinite() and over.isinf()
    says("exp overflows from 89 on in float32, from 12 in float16")


# ---- the text and the rest of the topic ----------------------------------------------------------


def test_equations_are_numbered_as_the_docstrings_cite_them():
    numbers = [int(n) for n in re.findall(r"^    \((\d+)\) ", HANDOUT, re.MULTILINE)]
    assert numbers == list(range(1, 17))
    source = (PRIVATE / "gpu_attention.py").read_text("utf-8")
    cited = {
        int(number)
        for place in re.findall(r"[Ee]quations?((?:\s+(?:to\s+|and\s+)?\(\d+\))+)", source)
        for number in re.findall(r"\d+", place)
    }
    assert cited and cited <= set(numbers)


def test_it_says_what_takes_a_gpu_and_how_long_it_takes():
    topic = load_topic(PUBLIC)
    assert HANDOUT.startswith(f"# {topic.title}\n")
    says(f"five questions | {topic.hours:g} hours |")
    need = {name for name, item in topic.rubric.items() if item.device == "cuda" or item.package}
    assert need == {name for name in topic.rubric if name.startswith(("time.", "triton."))}
    assert all(topic.rubric[name].tier != "core" for name in need)
    start = HANDOUT.index("## Start")
    assert HANDOUT.index("| `time.*` |") < start and HANDOUT.index("| `triton.*` |") < start


# ---- the figure ----------------------------------------------------------------------------------


def test_the_numbers_of_the_figure(figure):
    assert figure.LENGTHS == [128, 256, 512, 1024, 2048]
    stored, forward, backward = (CURVES[name] for name in ("stored", "forward", "backward"))
    says(
        f"with a score matrix {stored[0]:g} MiB at 128 tokens and {stored[-1]:g} at 2048; "
        f"in blocks of 128, {forward[0]:g} and {forward[-1]:g} forward, "
        f"{backward[0]:g} and {backward[-1]:g} backward",
    )
    marked = CURVES["intensity"]
    for name, text in {
        "decoding": "a step of decoding at {:g}",
        "decoding, 4 heads share": "four query heads for a head of keys at {:g}",
        "scores stored": "stored scores at {:g}",
        "blocks of 64": "blocks of 64 queries at {:g}",
        "of 128": "of 128 at {:g}",
        "read once": "everything read once at {:g}",
    }.items():
        says(text.format(marked[name]))
    assert len(marked) == 6


def test_the_figure_is_measured(figure):
    """The left curves again, and beside what has to be there: T² scores, or some times T · d numbers."""
    again = figure.curves()
    assert again["intensity"] == CURVES["intensity"]
    for name in ("stored", "forward", "backward"):
        assert again[name] == pytest.approx(CURVES[name], rel=0.05)
    numbers = {name: CURVES[name][-1] * 2**20 / 8 for name in ("stored", "forward", "backward")}
    assert 2 <= numbers["stored"] / 2048**2 < 5
    assert 1 <= numbers["forward"] / (2048 * 64) < 3 <= numbers["backward"] / (2048 * 64) < 5
    times = {name: CURVES[name][3] / CURVES[name][1] for name in ("stored", "forward", "backward")}
    says(f"stored scores take {times['stored']:.0f} times the bytes in the figure")
    assert max(times["forward"], times["backward"]) < 4


def test_the_figure_is_drawn_the_same_each_time(figure, tmp_path):
    pytest.importorskip("matplotlib")
    drawn = []
    for name in ("one.svg", "two.svg"):
        figure.draw(CURVES, tmp_path / name)
        drawn.append((tmp_path / name).read_text(encoding="utf-8"))
    assert drawn[0] == drawn[1]
    words = [re.findall(r"<text[^>]*>([^<]*)</text>", svg) for svg in (drawn[0], FIGURE)]
    assert words[0] == words[1]
    assert "scores stored" in words[0]


def test_the_figure_is_small_and_in_the_handout():
    assert len(FIGURE.encode()) < 60_000
    assert re.findall(r"!\[[^\]]{100,}\]\(([\w.]+)\)", HANDOUT) == ["bytes.svg"]


# ---- public tests --------------------------------------------------------------------------------

# The kernel's run in tests/test_reference_08_gpu_attention.py, where Triton is installed.
KERNEL_APART = "not triton"


@pytest.fixture
def work(tmp_path):
    """A student's folder with everything written, as the reference does it."""
    for path in PUBLIC.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    shutil.copy(PRIVATE / "gpu_attention.py", tmp_path)
    return tmp_path


def test_the_reference_passes_every_public_test(work):
    found = outcomes(work, KERNEL_APART)
    assert set(found.values()) == {"PASSED"}, found
    assert len(found) > 90


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant", sorted(path.parent.name for path in (PRIVATE / "variants").glob("*/*.py"))
)
def test_right_variants_pass_every_public_test(work, variant):
    """A test that a variant cannot be tried on, for looking at values, is skipped and not listed."""
    shutil.copy(PRIVATE / "variants" / variant / "gpu_attention.py", work)
    assert set(outcomes(work, KERNEL_APART).values()) == {"PASSED"}


@pytest.mark.slow
def test_an_untouched_starter_is_still_to_be_written(work):
    text = (PRIVATE / "gpu_attention.py").read_text(encoding="utf-8")
    (work / "gpu_attention.py").write_text(stub(text, "gpu_attention.py"), encoding="utf-8")
    found = outcomes(work, KERNEL_APART)
    assert len(found) > 90
    said = {outcome.partition(" - ")[2] for outcome in found.values()}
    assert all(line.startswith("NotImplementedError: ") for line in said), said


# What extension and bonus ask for, still to be written.
CORE_ALONE = """


def _unwritten(*_, **__):
    raise NotImplementedError("extension or bonus")


tiled_attention_backward = decode_attention = triton_attention = _unwritten
TiledAttention.forward = TiledAttention.backward = staticmethod(_unwritten)
"""


@pytest.mark.slow
def test_core_alone_leaves_the_extension_to_be_written(work):
    with (work / "gpu_attention.py").open("a", encoding="utf-8") as file:
        file.write(CORE_ALONE)
    aside = {name for name, said in outcomes(work, KERNEL_APART).items() if said != "PASSED"}
    assert aside and all(name.startswith("test_extension") for name in aside)


NAIVE = """


def tiled_attention(q, k, v, causal=False, block_q=64, block_k=64):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        Tq, Tk = scores.shape[-2:]
        hidden = ~torch.ones(Tq, Tk, device=q.device).tril(Tk - Tq).bool()
        scores = scores.masked_fill(hidden, -torch.inf)
    lse = scores.logsumexp(-1)
    return (scores.softmax(-1).nan_to_num() @ v), lse.to(torch.promote_types(q.dtype, torch.float32))
"""
REPEATED = """


def decode_attention(q, k_cache, v_cache, lengths):
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k_cache, v_cache))
    hidden = torch.arange(k.shape[2]) >= lengths.reshape(-1, 1, 1, 1)
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(hidden, -torch.inf)
    return scores.softmax(-1).nan_to_num() @ v
"""


def test_what_is_right_and_costs_too_much_is_caught(work):
    """Stored scores, and heads that are repeated: the values are right."""
    with (work / "gpu_attention.py").open("a", encoding="utf-8") as file:
        file.write(NAIVE + REPEATED)
    found = outcomes(work, "tiled or decode")
    failed = {name for name, said in found.items() if said != "PASSED"}
    assert {"test_tiled_takes_little_memory"} < failed
    assert any("never_copies_the_cache" in name for name in failed)
    assert all(re.search("memory|half_precision|copies", name) for name in failed), failed
