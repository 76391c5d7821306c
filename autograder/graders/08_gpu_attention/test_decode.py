"""decode_attention: out against the reference, lengths in the submission's own numbers."""

import numpy as np
from softmark.plugin import item


@item("decode.out")
def test_out(script, agree, draw):
    """Each head of queries with its head of keys and values, all places full."""
    run = script()
    for N, h, shared, L, d in (
        (3, 6, 2, 5, 4),
        (2, 6, 3, 7, 3),
        (3, 4, 4, 6, 5),
        (2, 3, 1, 4, 7),
        (1, 2, 2, 3, 1),
        (2, 4, 2, 1, 3),
    ):
        caches = draw(2, N, shared, L, d)
        run.call("decode_attention", draw(N, h, 1, d), *caches, np.full(N, L))
    agree(run)


@item("decode.lengths", depends="decode.out")
def test_lengths(script, student, draw):
    """What each sample gives alone, with a cache that ends where its tokens do."""
    run = script()
    N, h, shared, L, d = 5, 6, 2, 7, 3
    q, (keys, values), lengths = draw(N, h, 1, d), draw(2, N, shared, L, d), [4, 0, 7, 1, 6]
    for n, length in enumerate(lengths):
        for cache in (keys, values):
            cache[n, :, length:] = draw.rng.choice([-1e4, 1e4], (shared, L - length, d))
    whole = run.call("decode_attention", q, keys, values, np.array(lengths))
    alone = []
    for n, length in enumerate(lengths):
        if length:
            caches = (cache[n : n + 1, :, :length] for cache in (keys, values))
            given = q[n : n + 1], *caches, np.array([length])
            alone.append((n, run.call("decode_attention", *given)))
    trace = student(run)
    assert np.isfinite(trace[whole]).all(), "out is not finite for a length of 0, or beside one."
    assert not np.any(trace[whole][1]), "out must be exactly 0 for a length of 0."
    for n, one in alone:
        assert np.any(trace[one]), "out is 0 everywhere."
        assert np.allclose(trace[whole][n], trace[one][0], 1e-9, 1e-11), (
            "out changes with what stands in a cache behind a sample's length."
        )
