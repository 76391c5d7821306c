"""What students of 07_transformer read and run first: handout, figure, questions, public tests.

Every number is worked out again, in another way than where it was written: in plain Python, from the
parameters of the models, or by torch's own layers.
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

ROOT = Path(__file__).resolve().parent.parent
PUBLIC, PRIVATE = ROOT / "assignments" / "07_transformer", ROOT / "solutions" / "07_transformer"
HANDOUT = (PUBLIC / "handout.md").read_text(encoding="utf-8")
FIGURE = (PUBLIC / "depth_and_cost.svg").read_text(encoding="utf-8")
CURVES = json.loads(re.search(r"<dc:description>(.*?)</dc:description>", FIGURE)[1])
QUESTIONS = load_questions(PUBLIC / "questions.yaml", "questions.yaml")
ANSWERS = load_answers(PRIVATE / "answers.yaml", "answers.yaml", QUESTIONS)
GPT2 = (50257, 768, 12, 3072, 12, 1024)


@pytest.fixture(autouse=True)
def one_thread():
    """Models are small: more threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def load(file):
    spec = importlib.util.spec_from_file_location(f"handout_07_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def transformer(monkeypatch):
    monkeypatch.syspath_prepend(PUBLIC)
    monkeypatch.delitem(sys.modules, "attention_layers", raising=False)
    module = load(PRIVATE / "transformer.py")
    monkeypatch.delitem(sys.modules, "attention_layers", raising=False)
    return module


@pytest.fixture
def figure(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("transformer", "attention_layers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = load(PRIVATE / "make_figure.py")
    for name in ("transformer", "attention_layers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return module


def accepted(name, answer):
    return QUESTIONS[name].right(str(float(answer)), ANSWERS[name])


def says(*texts):
    """Each text stands in the handout, lines and spaces joined."""
    words = " ".join(HANDOUT.split())
    for text in texts:
        assert text in words, f"the handout does not say: {text}"


def numbers(module, *parts):
    """How many numbers the parameters hold whose names have one of these parts in them."""
    return sum(
        parameter.numel()
        for name, parameter in module.named_parameters()
        if not parts or any(part in name for part in parts)
    )


# ---- questions -----------------------------------------------------------------------------------


def test_block_parameters(transformer):
    count = numbers(transformer.EncoderBlock(384, 6, 1024))
    assert QUESTIONS["block_parameters"].right(str(count), ANSWERS["block_parameters"])
    matrices = 4 * 384**2 + 2 * 384 * 1024
    for wrong in (
        matrices,
        matrices + 4 * 384,
        count - 2 * 384,  # one norm
        count - 4 * 384,  # no norms, or attention without biases
        count - 2 * 384 - 2 * 384,
        count - 384,
    ):
        assert not accepted("block_parameters", wrong)


def test_feed_forward_share(transformer):
    made = transformer.DecoderBlock(32, 2, 96)
    weights = {name: p.numel() for name, p in made.named_parameters() if p.dim() == 2}
    share = sum(count for name, count in weights.items() if "ffn" in name) / sum(weights.values())
    assert accepted("feed_forward_share", share)
    for wrong in (
        2 / 3,
        6 / 10,
        1 / 2,
        numbers(made, "ffn") / numbers(made),
    ):  # the last: biases too
        assert not accepted("feed_forward_share", wrong)


def test_tokens_anew():
    anew = sum(10 + step for step in range(50))
    once = 10 + 50 - 1
    assert accepted("tokens_anew", anew / once)
    for wrong in (anew / 60, sum(range(11, 61)) / once, sum(range(11, 61)) / 60, 50, anew):
        assert not accepted("tokens_anew", wrong)


def after(p, top_k=None, top_p=1.0):
    """What top_k, then top_p leave of exact probabilities, the most likely first; scaled to 1."""
    kept = p[:top_k]
    kept = [each / sum(kept) for each in kept]
    left = [each for i, each in enumerate(kept) if sum(kept[:i]) < top_p]
    return [each / sum(left) for each in left]


def test_after_top_k():
    p = [Fraction(n, 20) for n in (10, 4, 3, 2, 1)]
    assert accepted("after_top_k", after(p, 3, Fraction(3, 4))[1])
    other_order = after(after(p, None, Fraction(3, 4)), 3)[1]
    for wrong in (other_order, after(p, 3)[1], after(p, None, Fraction(3, 4))[1], 0.2, 0):
        assert not accepted("after_top_k", wrong)


def test_padding_in_front():
    """Two layers of naive attention, one token of padding in front: NaN in the second, not before."""
    x = torch.randn(3, 4)
    mask = torch.ones(3, 3).tril().bool() & torch.tensor([False, True, True])

    def layer(x):
        return (x @ x.T).masked_fill(~mask, -math.inf).softmax(-1) @ x

    once, twice = layer(x), layer(layer(x))
    assert once[0].isnan().all() and not once[1:].isnan().any()
    assert twice.isnan().all()
    assert ANSWERS["padding_in_front"] == "d"


def test_there_are_five_core_questions():
    assert [question.tier for question in QUESTIONS.values()] == ["core"] * 5
    assert sum(question.points for question in QUESTIONS.values()) == 5


# ---- numbers in the text -------------------------------------------------------------------------


def test_the_norms_example():
    x = torch.tensor([1.0, 7.0], dtype=torch.float64)
    assert x.mean() == 4 and x.var(correction=0) == 9 and x.var() == 18
    assert x.square().mean() == 25 and 25 + 11 == 6**2
    due = F.layer_norm(x, (2,), eps=0.0).tolist(), F.rms_norm(x, (2,), eps=0.0).tolist()
    assert due[0] == [-1, 1] and due[1] == pytest.approx([0.2, 1.4])
    says("mean 4 and variance 9 (18 if one divided by E - 1), its mean square is 25")
    says("LayerNorm(x) = (-1, 1) RMSNorm(x) = (0.2, 1.4)", "RMSNorm divides by √36 = 6")


def test_the_activations():
    def gelu(z, approximate="none"):
        return F.gelu(torch.as_tensor(z, dtype=torch.float64), approximate=approximate)

    normal = torch.distributions.Normal(0.0, 1.0)
    assert gelu(1.0).item() == pytest.approx(normal.cdf(torch.tensor(1.0)).item(), rel=1e-6)
    says(f"gelu(1) = {gelu(1.0):.5f}, gelu(-1) = {gelu(-1.0):.5f}")
    says(f"{gelu(1.0):.6f} is exact, {gelu(1.0, 'tanh'):.6f} the approximation by tanh")
    z = torch.linspace(-8, 8, 100_001)
    says(f"off by up to {(gelu(z) - gelu(z, 'tanh')).abs().max():.1e}".replace("e-04", "e-4"))
    root = math.sqrt(2 / math.pi)
    by_hand = 0.5 * z * (1 + torch.tanh(root * (z + 0.044715 * z**3)))
    torch.testing.assert_close(by_hand.double(), gelu(z, "tanh"), atol=1e-5, rtol=1e-5)
    silu = F.silu(torch.tensor(math.log(3), dtype=torch.float64)).item()
    assert silu == pytest.approx(3 / 4 * math.log(3))
    says(f"silu(ln 3) = 3/4 ln 3 ≈ {silu:.4f}")


def test_the_residuals_example():
    x = torch.tensor([1.0, 7.0])

    def norm(x):
        return F.layer_norm(x, (2,), eps=0.0)

    assert (x + 2 * norm(x)).tolist() == [-1, 9]
    assert norm(x + 2 * x).tolist() == [-1, 1]
    assert (norm(x) + 2 * norm(x)).tolist() == [-3, 3]
    says("x + 2 · (-1, 1) = (-1, 9)", "norm(3 x) = (-1, 1)", "gets (-3, 3)")


def test_the_drawing_example():
    p = [Fraction(n, 16) for n in (8, 4, 3, 1)]
    assert [n / Fraction(90) for n in (64, 16, 9, 1)] == [
        each**2 / sum(other**2 for other in p) for each in p
    ]
    assert after(p, 3) == [Fraction(n, 15) for n in (8, 4, 3)]
    assert after(p, 3, 0.78) == [Fraction(2, 3), Fraction(1, 3)]
    assert len(after(p, None, 0.78)) == 3
    assert Fraction(12, 15) == Fraction("0.8") and Fraction(12, 16) == Fraction("0.75")
    says("(64, 16, 9, 1) / 90", "leaves (8, 4, 3) / 15", "top_p = 0.78 leaves (2/3, 1/3)")


def test_the_experts_example():
    chosen = torch.tensor([math.log(6), math.log(3)]).softmax(0).tolist()
    among_all = torch.tensor([math.log(6), math.log(3), 0.0]).softmax(0).tolist()
    assert chosen == pytest.approx([2 / 3, 1 / 3])
    assert among_all == pytest.approx([6 / 10, 3 / 10, 1 / 10])
    mean = [(3 * Fraction(3, 4) + Fraction(1, 4)) / 4, (3 * Fraction(1, 4) + Fraction(3, 4)) / 4]
    assert mean == [Fraction(5, 8), Fraction(3, 8)]
    assert 2 * (Fraction(3, 4) * mean[0] + Fraction(1, 4) * mean[1]) == Fraction(9, 8)
    says("the weights are (2/3, 1/3), not 6/10 and 3/10")
    says("balance = 2 · (3/4 · 5/8 + 1/4 · 3/8) = 9/8")


def row(name, module):
    attention, norms = numbers(module, "_attn."), numbers(module, "norm")
    parts = attention, numbers(module, "ffn."), norms, numbers(module)
    says(f"| {name} | " + " | ".join(f"{part:,}" for part in parts) + " |")
    return parts


def test_the_parameters(transformer):
    with torch.device("meta"):
        encoder = transformer.EncoderBlock(512, 8, 2048)
        decoder = transformer.DecoderBlock(512, 8, 2048)
        model = transformer.TransformerLM(*GPT2)
        swiglu, feed_forward = transformer.SwiGLU(48, 128), transformer.FeedForward(48, 192)
    for name, made in (("EncoderBlock", encoder), ("DecoderBlock", decoder)):
        assert sum((parts := row(f"{name}(512, 8, 2048)", made))[:3]) == parts[3]
    E, d_ff = 512, 2048
    assert numbers(encoder, "_attn.") == 4 * E**2 + 4 * E
    assert numbers(encoder, "ffn") == 2 * E * d_ff + d_ff + E
    assert numbers(encoder, "norm1") == 2 * E
    *parts, whole = row(f"TransformerLM{GPT2}", model)
    says(f"The last has {whole - sum(parts):,} more in embedding and positions")
    assert whole - sum(parts) == numbers(model, "embed", "positions")
    says(f"in the language model of the table it is {parts[1] / whole:.0%}".replace("%", " %"))
    assert numbers(swiglu) == sum(p.numel() for p in feed_forward.parameters() if p.dim() == 2)
    assert 128 == 8 / 3 * 48 and 192 == 4 * 48
    # errata: where the share is two thirds, and where it is half
    for made, share in ((encoder, 2 / 3), (decoder, 1 / 2)):
        matrices = {name: p.numel() for name, p in made.named_parameters() if p.dim() == 2}
        found = sum(count for name, count in matrices.items() if "ffn" in name)
        assert found / sum(matrices.values()) == pytest.approx(share)


def test_the_operations(transformer, figure):
    """Counted in a narrow model whose attention is written out, and so counted too."""
    from torch.utils.flop_counter import FlopCounterMode

    E, n = 768, 1
    assert 4 * E * (2 * E) == 8 * E**2 and 4 * E * (6 * E) == 24 * E**2
    says(f"n = 2 E = {2 * E}", f"n = 6 E = {6 * E}")
    a_token = 2 * 12 * 768 * 2
    says(f"{a_token:,} bytes a token", f"{a_token * 1024 // 2**20} MiB for 1024 tokens")
    assert a_token * 1024 % 2**20 == 0
    E = 8
    block, cache = transformer.EncoderBlock(E, 2, 4 * E), figure.transformer.KVCache()
    block(torch.randn(1, 5, E), cache=cache)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        block(torch.randn(1, n, E), cache=cache)
    # PyTorch's fused attention on the CPU is not in the counter's list: its 4 E a key are left out
    assert counter.get_total_flops() in (24 * E**2, 24 * E**2 + 4 * E * 6)
    cache_holds = cache.keys.numel() + cache.values.numel()
    assert cache_holds == 6 * 2 * E


def test_the_masked_tokens_example():
    chosen = 1000 * Fraction("0.15")
    parts = [int(chosen * share / 100) for share in (80, 10, 10)]
    says(f"on average, {parts[0]}, {parts[1]} and {parts[2]}", f"All {chosen} are targets")


def test_equations_are_numbered():
    assert [int(n) for n in re.findall(r"^    \((\d+)\) ", HANDOUT, re.MULTILINE)] == list(
        range(1, 12)
    )
    cited = {int(n) for n in re.findall(r"[Ee]quations? \((\d+)\)", HANDOUT)}
    cited |= {int(n) for n in re.findall(r"[Ee]quations \(\d+\) and \((\d+)\)", HANDOUT)}
    assert cited == set(range(1, 12))


def test_the_bounds_of_cost_are_the_graders():
    graders = ROOT / "autograder" / "graders" / "07_transformer"
    text = "".join(path.read_text("utf-8") for path in sorted(graders.glob("test_*.py")))
    assert re.findall(r"taken <= ([\d.]+) \*", text) == ["1.5", "1.5"]
    says("may take 1.5 times those of one forward of T + n - 1 tokens", "the experts 1.5 times")


def test_the_shares_and_hours_are_the_assignment_s():
    topic = load_topic(PUBLIC)
    hours = [int(n) for n in re.findall(r"\| core, part \d \|.*\| (\d) hours \|", HANDOUT)]
    assert sum(hours) == topic.hours
    shares = {item.follow_through for item in topic.rubric.values() if item.follow_through}
    assert shares == {0.6}
    says("still earn 60 % of their points")


# ---- the figure ----------------------------------------------------------------------------------


def test_the_numbers_of_the_figure(figure):
    assert figure.DEPTHS[0] == 1 and figure.DEPTHS[-1] == 32 and figure.LENGTHS[-1] == 1024
    pre, post, cached, anew = (CURVES[name] for name in ("pre", "post", "cached", "anew"))
    says(
        f"it goes from {post[0]:.3f} to {post[-1]:.3f}",
        f"it falls from {pre[0]:.3f} to {pre[-1]:.3f}",
        f"with caches {cached[0]:.3f} billion at the first token and {cached[-1]:.3f} billion at",
        f"computing all tokens anew {anew[-1]} billion",
    )
    assert pre == sorted(pre, reverse=True) and min(post[3:]) > max(pre)
    says(f"1 to {figure.DEPTHS[-1]} blocks")


def test_gradients_of_the_figure(figure):
    """The first points anew; the deep ones take minutes."""
    for norm in ("pre", "post"):
        found = sum(figure.last_gradient(norm, 1, seed) for seed in range(figure.SEEDS))
        assert found / figure.SEEDS == pytest.approx(CURVES[norm][0], rel=0.02)


def test_operations_of_the_figure(figure):
    """From the matrices that a token meets, and the keys and values."""
    with torch.device("meta"):
        model = figure.transformer.TransformerLM(*GPT2)
    assert (GPT2[0], GPT2[1], GPT2[4]) == (figure.VOCABULARY, figure.WIDTH, figure.BLOCKS)
    products = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2)
    products -= model.positions.weight.numel()  # looked up; embed is once a table, once a product
    for i, length in enumerate(figure.LENGTHS):
        due = 2 * products + 12 * 4 * 768 * length
        assert CURVES["cached"][i] == pytest.approx(due / 1e9, rel=1e-3)
        assert CURVES["anew"][i] == pytest.approx(length * due / 1e9, rel=1e-3)


def test_the_figure_is_drawn_the_same_each_time(figure, tmp_path):
    pytest.importorskip("matplotlib")
    drawn = []
    for name in ("one.svg", "two.svg"):
        figure.draw(CURVES, tmp_path / name)
        drawn.append((tmp_path / name).read_text(encoding="utf-8"))
    assert drawn[0] == drawn[1]
    words = [re.findall(r"<text[^>]*>([^<]*)</text>", svg) for svg in (drawn[0], FIGURE)]
    assert words[0] == words[1]
    assert "with caches" in words[0]


def test_the_figure_is_small_and_in_the_handout():
    assert len(FIGURE.encode()) < 60_000
    assert re.findall(r"!\[[^\]]{100,}\]\(([\w.]+)\)", HANDOUT) == ["depth_and_cost.svg"]


# ---- public tests --------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path):
    """A student's folder with everything written, as the reference does it."""
    for path in PUBLIC.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    shutil.copy(PRIVATE / "transformer.py", tmp_path)
    return tmp_path


def test_the_reference_passes_every_public_test(work):
    found = outcomes(work)
    assert set(found.values()) == {"PASSED"}
    assert len(found) > 40


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant", sorted(path.name for path in (PRIVATE / "variants").iterdir() if path.is_dir())
)
def test_right_variants_pass_every_public_test(work, variant):
    shutil.copy(PRIVATE / "variants" / variant / "transformer.py", work)
    assert set(outcomes(work).values()) == {"PASSED"}


@pytest.mark.slow
def test_an_untouched_starter_is_still_to_be_written(work):
    text = (PRIVATE / "transformer.py").read_text(encoding="utf-8")
    (work / "transformer.py").write_text(stub(text, "transformer.py"), encoding="utf-8")
    found = outcomes(work)
    assert len(found) > 40
    said = {outcome.partition(" - ")[2] for outcome in found.values()}
    assert all(line.startswith("NotImplementedError: ") for line in said), said


@pytest.mark.slow
def test_core_alone_leaves_extension_and_bonus_to_be_written(work):
    names = ["DecoderBlock", "Transformer", "MaskedLM", "MixtureOfExperts"]
    with (work / "transformer.py").open("a", encoding="utf-8") as file:
        file.write(
            "\n\ndef mask_tokens(*given, **named):\n    raise NotImplementedError('it')\n\n\n"
        )
        for name in names:
            file.write(f"{name}.forward = mask_tokens\n")
    found = outcomes(work)
    aside = {name for name, said in found.items() if said != "PASSED"}
    assert aside == {name for name in found if re.match("test_(extension|bonus)_", name)}
    assert all("NotImplementedError" in found[name] for name in aside)
    assert len(aside) >= 12
