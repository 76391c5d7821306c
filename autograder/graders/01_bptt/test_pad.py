"""Sequences of different lengths in one array, and which of its entries are real."""

import numpy as np
import pytest
from softmark.plugin import item


def some(draw, *lengths):
    """Random sequences of these lengths, of ids that no test pads with."""
    return [draw.rng.integers(10, 100, size=length).tolist() for length in lengths]


def padded(run, draw):
    """Batches in which the longest is first, last or in between; lists and arrays; other pad ids."""
    run.call("pad_sequences", some(draw, 3, 5, 1, 2))
    run.call("pad_sequences", some(draw, 7, 2))
    run.call("pad_sequences", some(draw, 1, 2, 6), -1)
    run.call("pad_sequences", some(draw, 2, 4, 3), pad_id=999)
    run.call("pad_sequences", [np.array(s, np.int32) for s in some(draw, 2, 4, 1)])
    run.call("pad_sequences", some(draw, 4))
    run.call("pad_sequences", some(draw, 1, 1))
    # the id that pads is a token too
    run.call("pad_sequences", [[0, 5, 0], [0], [7, 0]])
    run.call("pad_sequences", [[9, 3], [9], [3, 9, 9, 9]], pad_id=9)
    return run


@item("pad.{output}", draws="pad")
@pytest.mark.parametrize("output", ["tokens", "mask"])
def test_padding(script, agree, draw, output):
    """Every sequence from the first column on, padding behind it, for a real id that pads as well."""
    agree(padded(script(), draw), only=output)


@item("pad.edges", depends=("pad.tokens", "pad.mask"))
def test_nothing_to_pad(script, agree, draw):
    """No sequence: (0, 0). An empty one: a row of padding. Only empty ones: (N, 0)."""
    run = script()
    run.call("pad_sequences", [])
    run.call("pad_sequences", [[], *some(draw, 3)], 8)
    run.call("pad_sequences", [*some(draw, 4), [], *some(draw, 4), []])
    run.call("pad_sequences", [[], [], []], 5)
    agree(run)
