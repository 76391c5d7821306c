"""causal_mask and padding_mask: every entry, at many sizes."""

import numpy as np
from softmark.plugin import item


@item("causal.square")
def test_square(script, agree):
    """Query i sees the keys 0 to i."""
    run = script()
    for q_len in (5, 2, 1):
        run.call("causal_mask", q_len)
    run.call("causal_mask", 4, None)
    run.call("causal_mask", 3, 3)
    agree(run)


@item("causal.end", depends="causal.square")
def test_aligned_at_the_end(script, agree):
    """The last query stands beside the last key, however many there are of either."""
    run = script()
    for q_len, k_len in ((2, 5), (1, 4), (3, 4), (5, 3), (4, 1), (6, 2)):
        run.call("causal_mask", q_len, k_len)
    run.call("causal_mask", 3, k_len=7, device="cpu")
    agree(run)


@item("padding")
def test_padding(script, agree, draw):
    """Lengths in any order, from nothing to all, and none of them all."""
    run = script()
    run.call("padding_mask", np.array([2, 5, 0, 4]), 5)
    run.call("padding_mask", np.array([1, 3]), 6)
    run.call("padding_mask", np.array([3, 2, 1]), 3)
    run.call("padding_mask", np.array([1]), 1)
    run.call("padding_mask", draw.rng.integers(8, size=3), 7)
    agree(run)
