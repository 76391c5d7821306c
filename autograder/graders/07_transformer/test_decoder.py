"""The decoder block, and the encoder-decoder model."""

import numpy as np
import pytest
from softmark.plugin import item

# N, T, S, E, h, d_ff
SIZES = [(3, 4, 5, 6, 2, 7), (1, 1, 2, 4, 1, 3), (2, 3, 1, 4, 4, 1)]


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


@item("decoder.{norm}", depends=("norm.layer", "ffn.relu"))
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_block(script, agree, draw, norm):
    """Three sublayers in order, each with its own norm; none for the memory."""
    run = script()
    for N, T, S, *sizes in SIZES:
        params = draw.params("DecoderBlock", *sizes)
        made = run.new("DecoderBlock", *sizes, norm, params=params)
        made.forward(draw(N, T, sizes[0]), draw(N, S, sizes[0]))
    if norm == "pre":  # which is what it is where nothing is said
        made = run.new("DecoderBlock", *sizes, params=params)
        made.forward(draw(N, T, sizes[0]), draw(N, S, sizes[0]))
    agree(run)


def ragged(draw):
    """A padded batch with its memory: x, memory, and two masks."""
    x, memory = draw(2, 4, 4), draw(2, 3, 4)
    lengths, of_memory = np.array([2, 4]), np.array([3, 1])
    self_mask = (np.arange(4) < lengths[:, None])[:, None, None]
    memory_mask = (np.arange(3) < of_memory[:, None])[:, None, None]
    return x, memory, lengths, of_memory, self_mask, memory_mask


@item("decoder.masks")
def test_masks(script, student, draw):
    """A ragged batch gives what each sample gives alone; self_mask first, then memory_mask."""
    run = script()
    sizes = (4, 2, 5)
    found = []
    for norm in ("pre", "post"):
        params = draw.params("DecoderBlock", *sizes)
        made = run.new("DecoderBlock", *sizes, norm, params=params)
        x, memory, lengths, of_memory, *masks = ragged(draw)
        whole = made.forward(x, memory, *masks)
        named = made.forward(x, memory, memory_mask=masks[1], self_mask=masks[0])
        alone = [
            made.forward(x[n : n + 1, :length], memory[n : n + 1, : of_memory[n]])
            for n, length in enumerate(lengths)
        ]
        found.append((lengths, whole, named, alone))
    trace = student(run)
    for lengths, whole, named, alone in found:
        assert near(trace[whole], trace[named]), "Masks given by name and by place: two results."
        for n, (one, length) in enumerate(zip(alone, lengths, strict=True)):
            assert near(trace[whole][n, :length], trace[one][0]), (
                f"With both masks, sample {n} is not what it is alone, without any padding."
            )


@item("decoder.cache")
def test_step_by_step(script, student, draw):
    """The cache is the self-attention's; the memory is given anew in every call."""
    run = script()
    found = []
    for norm in ("pre", "post"):
        params = draw.params("DecoderBlock", 4, 2, 5)
        made, cache = run.new("DecoderBlock", 4, 2, 5, norm, params=params), run.new("KVCache")
        x, memory = draw(2, 4, 4), draw(2, 3, 4)
        for start, end in ((0, 2), (2, 3), (3, 4)):
            step = made.forward(x[:, start:end], memory, cache=cache)
            found.append((end, step, made.forward(x[:, :end], memory)))
    trace = student(run)
    for end, step, whole in found:
        assert near(trace[step][:, -1], trace[whole][:, -1]), (
            f"With a cache, token {end - 1} is not what it is in one call on tokens 0 to {end - 1}."
        )


def tokens(draw, *shape):
    return draw.rng.integers(5, size=shape)


@item("transformer.logits", depends=("decoder.pre", "decoder.post", "block.pre", "block.post"))
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_logits(script, agree, draw, norm):
    """Of the next target token at every position, without padding."""
    run = script()
    # N, S, T, two vocabularies, E, h, d_ff, layers, max_len: once fewer sources than targets, once more,
    # so that one's lengths in the other's mask shut something out
    shape = (2, 3, 5) if norm == "pre" else (3, 5, 4)
    cases = [(*shape, 7, 5, 6, 2, 9, 2, 6)]
    if norm == "pre":
        cases.append((1, 1, 2, 5, 6, 2, 1, 1, 1, 2))
    for N, S, T, *sizes in cases:
        made = run.new("Transformer", *sizes, norm=norm, params=draw.params("Transformer", *sizes))
        lengths = np.full(N, S), np.full(N, T)
        made.forward(tokens(draw, N, S), tokens(draw, N, T), *lengths)
    agree(run)


@item("transformer.masks", depends=("decoder.masks", "block.mask"))
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_no_influence(script, student, draw, norm):
    """In a ragged batch, neither padding nor targets that come later."""
    sizes = (5, 5, 4, 2, 5, 1, 6)
    run = script()
    made = run.new("Transformer", *sizes, norm=norm, params=draw.params("Transformer", *sizes))
    src, tgt = tokens(draw, 2, 5), tokens(draw, 2, 4)
    of_src, of_tgt = np.array([2, 5]), np.array([4, 2])
    whole = made.forward(src, tgt, of_src, of_tgt)
    alone = [
        made.forward(src[n : n + 1, :s], tgt[n : n + 1, :t], np.array([s]), np.array([t]))
        for n, s, t in ((0, 2, 4), (1, 5, 2), (0, 2, 1))
    ]
    trace = student(run)
    for n, one in zip((0, 1, 0), alone, strict=True):
        length = trace[one].shape[1]
        assert near(trace[whole][n, :length], trace[one][0]), (
            f"In a ragged batch, sample {n} does not have the logits it has alone, without padding "
            "and without targets that come later."
        )
    assert not near(trace[whole][:, :1], trace[whole][:, 1:2]), "All logits are alike."
