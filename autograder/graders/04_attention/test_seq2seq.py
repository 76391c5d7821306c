"""The whole model with teacher forcing: logits, source padding, and gradients."""

import numpy as np
import pytest
from softmark.plugin import item

# N, S, T, source and target vocabulary, E, H. Sizes that all differ, then N, S and H = 1, and T = 2.
SIZES = [(3, 5, 4, 7, 6, 2, 3), (1, 3, 5, 4, 5, 3, 2), (2, 1, 2, 3, 4, 2, 3), (2, 3, 4, 5, 3, 2, 1)]
DECODERS = ("LuongDecoder", "BottleneckDecoder")
PARTS = (
    "softmax.values",
    "luong.dot",
    "luong.context",
    "encoder.outputs",
    "encoder.hidden",
    "decoder.hidden",
    "decoder.weights",
    "decoder.logits",
)
EPS = 1e-5


def shapes(V, E, H):
    """Of an embedding and a GRU."""
    return {
        "embedding.weight": (V, E),
        "gru.weight_ih_l0": (3 * H, E),
        "gru.weight_hh_l0": (3 * H, H),
        "gru.bias_ih_l0": (3 * H,),
        "gru.bias_hh_l0": (3 * H,),
    }


def drawn(draw, V_src, V, E, H, decoder):
    """Random parameters of an encoder and of a decoder."""
    of_decoder = shapes(V, E, H) | {"out.weight": (V, H)}
    if decoder == "LuongDecoder":
        of_decoder["combine.weight"] = (H, 2 * H)
    both = shapes(V_src, E, H), of_decoder
    return [{name: draw(*shape) for name, shape in each.items()} for each in both]


def model(run, draw, V_src, V, E, H, decoder="LuongDecoder"):
    """A model with random weights."""
    of_encoder, of_decoder = drawn(draw, V_src, V, E, H, decoder)
    encoder = run.new("Encoder", V_src, E, H, params=of_encoder)
    return run.new("Seq2Seq", encoder, run.new(decoder, V, E, H, params=of_decoder))


@item("seq2seq.logits", depends=PARTS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_logits(script, agree, draw, decoder):
    """logits[:, t] scores tgt[:, t + 1] after tgt[:, 0] to tgt[:, t]."""
    run = script()
    for N, S, T, V_src, V, E, H in SIZES:
        lengths = np.full(N, S)
        src, tgt = draw.rng.integers(V_src, size=(N, S)), draw.rng.integers(V, size=(N, T))
        made = model(run, draw, V_src, V, E, H, decoder)
        made.forward(src, lengths, tgt)
    made.forward(src, lengths, tgt[:, ::-1].copy(), 1.0)
    agree(run)


@item("seq2seq.short")
def test_target_of_one_token(script, agree, draw):
    """There is nothing to predict: (N, 0, V)."""
    run = script()
    for N, V in ((3, 5), (1, 4)):
        made = model(run, draw, 6, V, 2, 3, "BottleneckDecoder")
        made.forward(draw.rng.integers(6, size=(N, 4)), np.full(N, 4), np.ones((N, 1), dtype=int))
    agree(run)


@item("seq2seq.padding", depends=("softmax.mask", "encoder.outputs", "encoder.hidden"))
def test_ragged_batch(script, student, draw):
    """As each sample gives alone, without its padding, whatever tokens stand there."""
    N, S, V_src, V = 3, 6, 7, 5
    lengths = np.array([2, 5, 1])
    run = script()
    made = model(run, draw, V_src, V, 2, 4)
    src, tgt = draw.rng.integers(V_src, size=(N, S)), draw.rng.integers(V, size=(N, 4))
    logits = made.forward(src, lengths, tgt)
    real = np.arange(S) < lengths[:, None]
    changed = made.forward(np.where(real, src, (src + 1) % V_src), lengths, tgt)
    other = made.forward(np.where(real, (src + 1) % V_src, src), lengths, tgt)
    alone = [
        made.forward(src[n : n + 1, :length], lengths[n : n + 1], tgt[n : n + 1])
        for n, length in enumerate(lengths)
    ]
    trace = student(run)
    batch = trace[logits]
    assert np.allclose(batch, trace[changed], 1e-9, 1e-11), (
        "The logits change with the tokens that stand behind the end of a source."
    )
    for n, one in enumerate(alone):
        assert np.allclose(batch[n], trace[one][0], 1e-9, 1e-11), (
            f"The logits of sample {n} are not those it has alone, without its padding."
        )
    assert not np.allclose(batch, trace[other]), "The logits do not depend on the source."


@item("seq2seq.gradients", depends="attention.gradients")
def test_gradients(script, student, draw):
    """Autograd's, of encoder and decoder, against differences of the submission's own logits."""
    sizes = N, S, T, V_src, V, E, H = 2, 4, 4, 5, 3, 2, 3
    run = script()
    params = dict(zip(("encoder", "decoder"), drawn(draw, *sizes[3:], "LuongDecoder"), strict=True))
    parts = {
        "encoder": run.new("Encoder", V_src, E, H, params=params["encoder"]),
        "decoder": run.new("LuongDecoder", V, E, H, params=params["decoder"]),
    }
    made = run.new("Seq2Seq", parts["encoder"], parts["decoder"])
    src, tgt = draw.rng.integers(V_src, size=(N, S)), draw.rng.integers(V, size=(N, T))
    given = src, np.array([4, 2]), tgt
    upstream = draw(N, T - 1, V)
    run.backward((made.forward(*given), upstream))
    found = {name: run.gradients(part) for name, part in parts.items()}
    directions, sides = {}, {}
    for name, part in parts.items():
        directions[name] = {key: draw(*a.shape) for key, a in params[name].items()}
        sides[name] = []
        for step in (EPS, -EPS):
            moved = {key: a + step * directions[name][key] for key, a in params[name].items()}
            run.assign(part, moved)
            sides[name].append(made.forward(*given))
        run.assign(part, params[name])
    trace = student(run)
    for name, gradients in found.items():
        above, below = (np.sum(trace[side] * upstream) for side in sides[name])
        slope = (above - below) / (2 * EPS)
        along = sum(np.sum(g * directions[name][key]) for key, g in trace[gradients].items())
        assert abs(slope) > 1e-6, f"The logits do not depend on the {name}."
        assert abs(along - slope) < 1e-6 * max(1.0, abs(slope)), (
            f"The gradients of the {name} are not the slope of the logits: is something detached?"
        )
