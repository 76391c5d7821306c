"""What students of 04_attention read and run first: handout, figure, questions, public tests.

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
PUBLIC, PRIVATE = ROOT / "assignments" / "04_attention", ROOT / "solutions" / "04_attention"
HANDOUT = (PUBLIC / "handout.md").read_text(encoding="utf-8")
FIGURE = (PUBLIC / "reversing.svg").read_text(encoding="utf-8")
CURVES = json.loads(re.search(r"<dc:description>(.*?)</dc:description>", FIGURE)[1])
QUESTIONS = load_questions(PUBLIC / "questions.yaml", "questions.yaml")
ANSWERS = load_answers(PRIVATE / "answers.yaml", "answers.yaml", QUESTIONS)
LN2, LN3, LN5, LN10 = (math.log(n) for n in (2, 3, 5, 10))


@pytest.fixture(autouse=True)
def one_thread():
    """Models are small: more threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def load(file):
    spec = importlib.util.spec_from_file_location(f"handout_04_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def attention():
    return load(PRIVATE / "attention.py")


@pytest.fixture
def figure(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "attention", raising=False)
    module = load(PRIVATE / "make_figure.py")
    monkeypatch.delitem(sys.modules, "attention", raising=False)
    return module


def softmax(scores):
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def accepted(name, answer):
    return QUESTIONS[name].right(str(answer), ANSWERS[name])


def says(*texts):
    """Each text stands in the handout, lines and spaces joined."""
    words = " ".join(HANDOUT.split())
    for text in texts:
        assert text in words, f"the handout does not say: {text}"


# ---- questions -----------------------------------------------------------------------------------


def test_weight_beside_padding():
    assert accepted("weight_beside_padding", softmax([LN2, LN3, LN5])[-1])
    after = softmax([LN2, LN3, LN10, LN5])[-1]  # padding took part
    zero = softmax([LN2, LN3, 0.0, LN5])[-1]  # a score of 0 for padding
    for wrong in (after, zero, 1 / 3, LN5):
        assert not accepted("weight_beside_padding", wrong)


def test_parameters(attention):
    made = attention.BahdanauAttention(20, 30, 10)
    count = sum(parameter.numel() for parameter in made.parameters())
    assert accepted("parameters", count)
    other = attention.LuongAttention(20, 30, "concat", attn_dim=10)
    assert count == sum(parameter.numel() for parameter in other.parameters())
    # why: W_a of concat is W_a and U_a side by side
    with torch.no_grad():
        other.W_a.weight.copy_(torch.cat([made.W_a.weight, made.U_a.weight], dim=1))
        other.v_a.weight.copy_(made.v_a.weight)
        query, keys = torch.randn(2, 20), torch.randn(2, 4, 30)
        torch.testing.assert_close(made(query, keys), other(query, keys))
    for wrong in (count + 21, count - 10, 20 * 30 + 10):  # biases; without v_a; one bilinear form
        assert not accepted("parameters", wrong)


def test_which_state_asks(attention):
    """The weights of each decoder are those of its attention for one of the two states."""
    keys, before, mask = torch.randn(1, 3, 4), torch.randn(1, 1, 4), torch.ones(1, 3).bool()
    for name, of_new in (("BahdanauDecoder", False), ("LuongDecoder", True)):
        decoder = getattr(attention, name)(5, 2, 4)
        _, after, weights = decoder(torch.tensor([[1]]), before, keys, mask)
        for query, is_it in ((before[0], not of_new), (after[0], of_new)):
            assert torch.allclose(decoder.attention(query, keys, mask)[1], weights) == is_it
    assert ANSWERS["which_state_asks"] == "b"


def test_not_a_number():
    scores = torch.full((3,), -math.inf, requires_grad=True)
    weights = torch.softmax(scores, dim=0)
    kept = torch.where(weights.isnan(), 0.0, weights)
    assert kept.tolist() == [0, 0, 0]
    kept.sum().backward()
    assert scores.grad.isnan().all()
    assert ANSWERS["not_a_number"] == "c"


def test_copying(attention):
    """Trained against its own input, a model learns to give that back, and writes bos for ever."""
    torch.manual_seed(0)
    model = attention.Seq2Seq(attention.Encoder(5, 4, 8), attention.LuongDecoder(5, 4, 8))
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    src, lengths = torch.randint(5, (32, 4)), torch.full((32,), 4)
    for _ in range(80):
        tgt = torch.randint(1, 5, (32, 5))
        tgt[:, 0] = 0
        logits = model(src, lengths, tgt)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tgt[:, :-1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    written = attention.greedy_decode(model, src, lengths, 0, 4, 5)
    assert sum(tokens == [0] * 5 for tokens in written) > 28
    assert ANSWERS["copying"] == "b"


def test_there_are_five_core_questions():
    assert [question.tier for question in QUESTIONS.values()] == ["core"] * 5
    assert sum(question.points for question in QUESTIONS.values()) == 5


# ---- numbers in the text -------------------------------------------------------------------------


def test_the_additive_example():
    inside = [LN2 + key for key in (-LN2, 0.0, LN3 - LN2)]
    assert inside == pytest.approx([0, LN2, LN3])
    assert [math.tanh(x) for x in inside] == pytest.approx([0, 3 / 5, 4 / 5])
    weights = softmax([5 * LN2 * math.tanh(x) for x in inside])
    assert weights == pytest.approx([1 / 25, 8 / 25, 16 / 25])
    context = -weights[0] * LN2 + weights[2] * (LN3 - LN2)
    says(f"c = 16/25 (ln 3 - ln 2) - 1/25 ln 2 ≈ {context:.4f}")
    masked = softmax([0.0, 3 * LN2])
    assert masked == pytest.approx([1 / 9, 8 / 9])
    says(f"= (1/9, 8/9, 0) and c = -1/9 ln 2 ≈ {-masked[0] * LN2:.4f}")


def test_the_decoder_s_example():
    weights = softmax([LN2 * key for key in (0, 1, 2)])
    assert weights == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    context = weights[1] + 2 * weights[2]
    assert context == pytest.approx(10 / 7)
    inside = context * 7 / 10 * (LN3 - 1) + LN2 * 1 / LN2
    assert inside == pytest.approx(LN3)
    assert [w * math.tanh(inside) for w in (5, -5 / 2)] == pytest.approx([4, -2])
    says("= (1, 2, 4) / 7", "c = 10/7", "s̃ = 4/5", "logits are 4 and -2")


def test_the_beams_example():
    says(f"0.6 · 0.4 = {0.6 * 0.4:.2f}", f"with 0.4 · 0.9 = {0.4 * 0.9:.2f}")


def test_equations_are_numbered_as_the_docstrings_cite_them():
    numbers = [int(n) for n in re.findall(r"^    \((\d+)\) ", HANDOUT, re.MULTILINE)]
    assert numbers == list(range(1, 18))
    source = (PRIVATE / "attention.py").read_text("utf-8")
    cited = {
        int(number)
        for place in re.findall(r"[Ee]quations?((?:\s+(?:to\s+|and\s+)?\(\d+\))+)", source)
        for number in re.findall(r"\d+", place)
    }
    assert cited and cited <= set(numbers)


# ---- the figure ----------------------------------------------------------------------------------


def test_the_numbers_of_the_figure(figure):
    assert figure.LONGEST == 12
    at_12 = {name: curve[11] for name, curve in CURVES.items()}
    says(
        f"is {at_12['luong']:.2f} and {at_12['bahdanau']:.2f} at length 12",
        f"falls from length 6 on, to {at_12['bottleneck']:.2f} at length 12",
    )
    assert min(CURVES["bottleneck"][:5]) == 1.0 and CURVES["bottleneck"][5] < 1.0
    for name in ("luong", "bahdanau"):
        assert min(CURVES[name][:11]) > 0.96 and CURVES[name][15] < 0.2
    assert all(curve[-1] < 0.3 for curve in CURVES.values())


def test_the_figure_s_task_is_to_write_backwards(figure):
    """Its targets, and an accuracy that is 1 for a model that is right, and lower for another."""
    lengths = torch.tensor([3, 1])
    src, tgt, real = figure.batch(lengths, torch.Generator().manual_seed(0))
    assert tgt[0].tolist() == [0, *src[0].tolist()[::-1], 1]
    assert tgt[1].tolist() == [0, src[1, 0].item(), 1, 1, 1]
    assert real.sum(dim=1).tolist() == [4, 2]
    torch.manual_seed(0)
    untrained = figure.attention.Seq2Seq(
        figure.attention.Encoder(figure.V, 4, 4), figure.attention.LuongDecoder(figure.V, 4, 4)
    )
    assert figure.accuracy(untrained, 5) < 0.5


def test_the_figure_is_drawn_the_same_each_time(figure, tmp_path):
    pytest.importorskip("matplotlib")
    drawn = []
    for name in ("one.svg", "two.svg"):
        figure.draw(CURVES, tmp_path / name)
        drawn.append((tmp_path / name).read_text(encoding="utf-8"))
    assert drawn[0] == drawn[1]
    words = [re.findall(r"<text[^>]*>([^<]*)</text>", svg) for svg in (drawn[0], FIGURE)]
    assert words[0] == words[1]
    assert "no attention" in words[0]


def test_the_figure_is_small_and_in_the_handout():
    assert len(FIGURE.encode()) < 60_000
    assert re.findall(r"!\[[^\]]{100,}\]\(([\w.]+)\)", HANDOUT) == ["reversing.svg"]


# ---- public tests --------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path):
    """A student's folder with everything written, as the reference does it."""
    for path in PUBLIC.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    shutil.copy(PRIVATE / "attention.py", tmp_path)
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
    shutil.copy(PRIVATE / "variants" / variant / "attention.py", work)
    assert set(outcomes(work).values()) == {"PASSED"}


@pytest.mark.slow
def test_an_untouched_starter_is_still_to_be_written(work):
    text = (PRIVATE / "attention.py").read_text(encoding="utf-8")
    (work / "attention.py").write_text(stub(text, "attention.py"), encoding="utf-8")
    found = outcomes(work)
    assert len(found) > 28
    said = {outcome.partition(" - ")[2] for outcome in found.values()}
    assert all(line.startswith("NotImplementedError: ") for line in said), said


@pytest.mark.slow
def test_core_alone_leaves_the_extension_to_be_written(work):
    with (work / "attention.py").open("a", encoding="utf-8") as file:
        file.write("\n\n_whole = Seq2Seq.forward\n\n\n")
        file.write("def _forced(self, src, lengths, tgt, teacher_forcing=1.0, generator=None):\n")
        file.write("    return _whole(self, src, lengths, tgt)\n\n\nSeq2Seq.forward = _forced\n")
    found = outcomes(work)
    aside = {name for name, said in found.items() if said != "PASSED"}
    assert aside == {"test_extension_free_running", "test_extension_generator"}
    assert all("NotImplementedError: Seq2Seq.forward" in found[name] for name in aside)
