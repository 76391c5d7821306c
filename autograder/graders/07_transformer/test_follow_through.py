"""What is right given the student's own earlier parts.

Asked only where something before them is wrong. The submission makes the same numbers twice: as a
whole, and chained from its own parts. They must agree, and they must be alive: what does not answer to
its inputs agrees with itself too, and earns nothing.
"""

import numpy as np
import pytest
from softmark.plugin import item

N, T, E, H, F = 2, 4, 6, 2, 5


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


def assert_follows(whole, chained, *others):
    """The two ways agree, in finite numbers; for other inputs others come out."""
    assert np.isfinite(whole).all()
    assert near(whole, chained)
    assert np.any(whole) and not any(near(whole, other) for other in others)


def part(params, name):
    """The parameters of one part."""
    return {k.removeprefix(f"{name}."): v for k, v in params.items() if k.startswith(f"{name}.")}


@item("block.{norm}", follow_through=True)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_block(script, student, draw, norm):
    """From the student's own LayerNorm and FeedForward, and the attention that is given."""
    params, x = draw.params("EncoderBlock", E, H, F), draw(N, T, E)
    others = {k: draw(*v.shape) for k, v in params.items()}
    run = script()
    made = run.new("EncoderBlock", E, H, F, norm, params=params)
    whole, found = made.forward(x), [made.forward(x + draw(N, T, E))]
    for name in ("self_attn", "ffn", "norm1", "norm2"):
        mixed = {k: others[k] if k.startswith(name) else v for k, v in params.items()}
        found.append(run.new("EncoderBlock", E, H, F, norm, params=mixed).forward(x))
    parts = (
        run.new("MultiHeadAttention", E, H, params=part(params, "self_attn")),
        run.new("FeedForward", E, F, params=part(params, "ffn")),
    )
    chained = x
    for name, sublayer in zip(("norm1", "norm2"), parts, strict=True):
        of_norm = run.new("LayerNorm", E, params=part(params, name))
        if norm == "pre":
            chained = run.add(chained, sublayer.forward(of_norm.forward(chained)))
        else:
            chained = of_norm.forward(run.add(chained, sublayer.forward(chained)))
    due = run.show("chained", chained)
    trace = student(run)
    assert_follows(trace[whole], trace[due], *(trace[each] for each in found))


@item("lm.logits", follow_through=True)
def test_lm(script, student, draw):
    """From the student's own blocks and LayerNorm."""
    V = 5
    params = draw.params("TransformerLM", V, E, H, F, 2, T + 1)
    params["out.weight"] = params["embed.weight"]
    tokens = draw.rng.integers(V, size=(N, T))
    run = script()
    made = run.new("TransformerLM", V, E, H, F, 2, T + 1, params=params)
    whole, others = made.forward(tokens), [made.forward((tokens + 1) % V)]
    for layer in ("blocks.0.", "blocks.1."):  # what the blocks make of x counts
        mixed = {k: draw(*v.shape) if layer in k else v for k, v in params.items()}
        run.assign(made, mixed)
        others.append(made.forward(tokens))
    x = params["embed.weight"][tokens] + params["positions.weight"][:T]
    for layer in range(2):
        block = run.new("EncoderBlock", E, H, F, params=part(params, f"blocks.{layer}"))
        x = block.forward(x, np.tri(T, dtype=bool))
    final = run.new("LayerNorm", E, params=part(params, "final_norm")).forward(x)
    trace = student(run)
    due = trace[final] @ params["embed.weight"].T
    assert_follows(trace[whole], due, *(trace[other] for other in others))
    assert trace[whole].std(axis=2).min() > 1e-6
