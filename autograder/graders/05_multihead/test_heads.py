"""split_heads and merge_heads: every number in its place."""

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
