"""The encoder block: values, masks and cache."""

import numpy as np
import pytest
from softmark.plugin import item

SIZES = [(3, 4, 6, 2, 9), (1, 1, 4, 1, 3), (2, 3, 4, 4, 1)]  # N, T, E, h, d_ff


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


@item("block.{norm}", depends=("norm.layer", "ffn.relu"))
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_values(script, agree, draw, norm):
    """Where the norms stand, and what the residual connections add."""
    run = script()
    for N, T, *sizes in SIZES:
        params = draw.params("EncoderBlock", *sizes)
        run.new("EncoderBlock", *sizes, norm, params=params).forward(draw(N, T, sizes[0]))
    if norm == "pre":  # which is what it is where nothing is said
        run.new("EncoderBlock", *sizes, params=params).forward(draw(N, T, sizes[0]))
    agree(run)


@item("block.mask")
def test_masked_positions(script, student, draw):
    """A ragged batch gives what each sample gives alone, without its padding."""
    lengths, T, sizes = (1, 3), 3, (4, 2, 5)
    run = script()
    made = {
        norm: run.new("EncoderBlock", *sizes, norm, params=draw.params("EncoderBlock", *sizes))
        for norm in ("pre", "post")
    }
    x = draw(2, T, sizes[0])
    real = np.arange(T) < np.array(lengths)[:, None]
    found = []
    for block in made.values():
        whole = block.forward(x, real[:, None, None])
        alone = [block.forward(x[n : n + 1, :length]) for n, length in enumerate(lengths)]
        found.append((whole, alone, block.forward(x, mask=real[:, None, None])))
    trace = student(run)
    for whole, alone, named in found:
        assert near(trace[whole], trace[named]), (
            "mask given by name and by place gives two results."
        )
        for n, (one, length) in enumerate(zip(alone, lengths, strict=True)):
            assert near(trace[whole][n, :length], trace[one][0]), (
                f"With a padding mask, sample {n} is not what it is alone, without its padding."
            )


@item("block.cache")
def test_step_by_step(script, student, draw):
    """What a token attends to is what came before it, out of the cache, and itself."""
    N, T, sizes = 2, 4, (4, 2, 5)
    run = script()
    found = []
    for norm in ("pre", "post"):
        params = draw.params("EncoderBlock", *sizes)
        made, cache = run.new("EncoderBlock", *sizes, norm, params=params), run.new("KVCache")
        x = draw(N, T, sizes[0])
        for start, end in ((0, 2), (2, 3), (3, 4)):
            # without a mask the last token sees all of them, as it does in one call on all of them
            step = made.forward(x[:, start:end], cache=cache)
            found.append((end, step, made.forward(x[:, :end])))
    trace = student(run)
    for end, step, whole in found:
        assert near(trace[step][:, -1], trace[whole][:, -1]), (
            f"With a cache, token {end - 1} is not what it is in one call on tokens 0 to {end - 1}."
        )
