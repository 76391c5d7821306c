"""Gradients, against differences of the submission's own outputs along a random direction."""

import numpy as np
import pytest
from softmark.plugin import item

EPS = 1e-5
N, T = 2, 4
LENGTHS = np.array([4, 4])


def drawn(draw, name, *args):
    """Random parameters, out.weight by its own name too, with every relu far from its kink.

    Half of the relus are always on, the others always off: what is between two points is then smooth.
    """
    params = draw.params(name, *args)
    for key, value in params.items():
        if key.endswith("ffn.up.bias"):
            params[key] = np.where(np.arange(len(value)) % 2, 30.0, -30.0)
    if name in ("TransformerLM", "MaskedLM"):
        params["out.weight"] = params["embed.weight"]
    return params


def assert_slopes(script, student, draw, name, args, params, inputs, size):
    """The gradients of all parameters together, and of every floating input by itself."""
    run = script()
    made = run.new(name, *args, params=params)
    floating = [k for k, v in inputs.items() if v.dtype.kind == "f"]
    leaves = {k: run.tensor(k, v) if k in floating else v for k, v in inputs.items()}
    upstream = draw(N, T, size)
    run.backward((made.forward(*leaves.values()), upstream))
    read = {k: run.gradient(leaves[k]) for k in floating}
    grads = run.gradients(made)
    ways = {k: draw(*inputs[k].shape) for k in floating}
    of_params = {k: draw(*v.shape) for k, v in params.items()}
    if "embed.weight" in params:
        of_params["out.weight"] = of_params["embed.weight"]
    sides = {}
    for k, way in ways.items():
        moved = [inputs | {k: inputs[k] + step * way} for step in (EPS, -EPS)]
        sides[k] = [made.forward(*each.values()) for each in moved]
    sides["the parameters"] = []
    for step in (EPS, -EPS):
        run.assign(made, {k: v + step * of_params[k] for k, v in params.items()})
        sides["the parameters"].append(made.forward(*inputs.values()))
    trace = student(run)
    along = {k: np.sum(trace[read[k]] * way) for k, way in ways.items()}
    along["the parameters"] = sum(np.sum(g * of_params[k]) for k, g in trace[grads].items())
    for k, (above, below) in sides.items():
        slope = np.sum((trace[above] - trace[below]) * upstream) / (2 * EPS)
        assert abs(slope) > 1e-7, f"What {name} gives does not depend on {k}."
        assert abs(along[k] - slope) < 1e-6 * max(1.0, abs(slope)), (
            f"{name}: the gradients of {k} are not the slope of what it gives. Is something detached?"
        )


@item("norm.gradients")
@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm"])
def test_norms(script, student, draw, name):
    """Through the mean and the variance too."""
    given = (3,), draw.params(name, 3), {"x": draw(N, T, 3)}
    assert_slopes(script, student, draw, name, *given, 3)


@item("ffn.gradients")
@pytest.mark.parametrize("name, more", [("FeedForward", ["gelu"]), ("SwiGLU", [])])
def test_feed_forward(script, student, draw, name, more):
    """Through both products, and the gate."""
    given = (3, 5, *more), draw.params(name, 3, 5), {"x": draw(N, T, 3)}
    assert_slopes(script, student, draw, name, *given, 3)


@item("block.gradients")
def test_block(script, student, draw):
    """Through attention, the feed-forward layer, both norms and the residual connections."""
    args = (4, 2, 6)
    given = args, drawn(draw, "EncoderBlock", *args), {"x": draw(N, T, 4)}
    assert_slopes(script, student, draw, "EncoderBlock", *given, 4)


@item("lm.gradients")
def test_lm(script, student, draw):
    """To every layer, and to the embedding from both its ends."""
    args = (5, 4, 2, 6, 1, T + 1)
    tokens = draw.rng.integers(5, size=(N, T))
    given = args, drawn(draw, "TransformerLM", *args), {"tokens": tokens}
    assert_slopes(script, student, draw, "TransformerLM", *given, 5)


@item("extension.gradients")
def test_decoder_block(script, student, draw):
    """To x, to the memory and to every parameter."""
    args = (4, 2, 6)
    inputs = {"x": draw(N, T, 4), "memory": draw(N, 3, 4)}
    given = args, drawn(draw, "DecoderBlock", *args), inputs
    assert_slopes(script, student, draw, "DecoderBlock", *given, 4)


@item("extension.gradients")
@pytest.mark.parametrize("name", ["Transformer", "MaskedLM"])
def test_models(script, student, draw, name):
    """To every layer of encoder and decoder, and to the embeddings."""
    tokens = draw.rng.integers(5, size=(N, T))
    args, inputs = (5, 4, 2, 6, 1, T + 1), {"tokens": tokens, "lengths": LENGTHS}
    if name == "Transformer":
        args = (5, *args)
        inputs = {"src": tokens[:, ::-1].copy(), "tgt": tokens, "src_lengths": LENGTHS}
        inputs["tgt_lengths"] = LENGTHS
    given = args, drawn(draw, name, *args), inputs
    assert_slopes(script, student, draw, name, *given, 5)
