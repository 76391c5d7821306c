"""pack_padded and unpack_padded: every entry, and the way back."""

import numpy as np
from softmark.plugin import item

# The lengths of a batch, and T.
BATCHES = [([2, 5, 0, 4], 5), ([0, 3, 1], 6), ([3], 3), ([1, 1], 1), ([0], 2), ([4, 0, 0, 2, 0], 4)]


def packed(run, draw):
    """Calls of pack_padded."""
    for lengths, T in BATCHES:
        run.call("pack_padded", draw(len(lengths), T, 2, 3), np.array(lengths))
    lengths = draw.rng.integers(8, size=3)
    run.call("pack_padded", draw(3, 7, 1, 4), lengths)


def offsets(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


@item("pack.packed", draws="packed")
def test_packed(script, agree, draw):
    """The real tokens, sequence after sequence."""
    run = script()
    packed(run, draw)
    agree(run, only="packed")


@item("pack.offsets", draws="packed")
def test_offsets(script, agree, draw):
    """Where each sequence begins, and where the last one ends."""
    run = script()
    packed(run, draw)
    agree(run, only="cu_seqlens")


@item("pack.unpack")
def test_unpack(script, agree, draw):
    """Each token in its place again, for a T that the longest sequence may not reach."""
    run = script()
    for lengths, T in BATCHES:
        for longer in (0, 3):
            x = draw(sum(lengths), 2, 3)
            run.call("unpack_padded", x, offsets(lengths), T + longer)
    agree(run)


@item("pack.gradient", depends=("pack.packed", "pack.unpack"))
def test_gradients(script, student, draw):
    """There and back: what reaches a real token comes through, and nothing else does."""
    run = script()
    lengths, T = [2, 5, 0, 4], 6
    x, upstream = draw(4, T, 2, 3), draw(4, T, 2, 3)
    leaf = run.tensor("x", x)
    tokens, starts = run.call("pack_padded", leaf, np.array(lengths))
    again = run.call("unpack_padded", tokens, starts, T)
    run.backward((again, upstream))
    gradient = run.gradient(leaf)
    trace = student(run)
    real = (np.arange(T) < np.array(lengths)[:, None])[..., None, None]
    assert np.array_equal(trace[gradient], np.where(real, upstream, 0)), (
        "Packed and unpacked again, the gradient of a real token is not what reached it, or there is "
        "one behind a sequence's end."
    )
