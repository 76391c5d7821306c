"""split_heads and merge_heads: every number in its place."""

import pytest
from softmark.plugin import item

# N, T, h, d. Sizes that all differ, then each of them 1.
SIZES = [(3, 4, 2, 5), (2, 3, 4, 2), (1, 4, 3, 2), (3, 1, 2, 4), (2, 4, 1, 3), (2, 4, 3, 1)]


@item("heads.split")
def test_split(script, agree, draw):
    """The last axis in h blocks of d columns; heads before time."""
    run = script()
    for N, T, h, d in SIZES:
        run.call("split_heads", draw(N, T, h * d), h)
    agree(run)


@item("heads.merge")
def test_merge(script, agree, draw):
    """Back again: (N, h, T, d) gives (N, T, h · d)."""
    run = script()
    for N, T, h, d in SIZES:
        run.call("merge_heads", draw(N, h, T, d))
    agree(run)


@item("heads.{which}", draws="inverse")
@pytest.mark.parametrize("which", ["split", "merge"])
def test_of_what_the_other_made(script, agree, draw, which):
    """Of tensors that are views, as the other function leaves them."""
    run = script()
    x = draw(2, 3, 8)
    if which == "split":
        run.call("split_heads", x.transpose(0, 2, 1).copy().transpose(0, 2, 1), 4)
    else:
        run.call("merge_heads", draw(2, 3, 4, 5).transpose(0, 2, 1, 3))
    agree(run)
