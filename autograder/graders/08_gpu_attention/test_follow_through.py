"""What is right given the student's own earlier parts.

Asked only where something before them is wrong. The submission makes the same numbers twice: as a
whole, and chained from its own parts. They must agree, and they must be alive: what does not answer to
its inputs agrees with itself too, and earns nothing.
"""

from itertools import pairwise

import numpy as np
from softmark.plugin import item


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


@item("varlen.out", follow_through=True)
def test_varlen(script, student, draw):
    """The student's own attention, for each sequence."""
    run = script()
    lengths = [4, 2, 3]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    (q, k, v), moved = draw(3, 9, 2, 3), draw(3, 9, 2, 3)
    whole = run.call("varlen_attention", q, k, v, starts)
    other = run.call("varlen_attention", *moved, starts)
    parts = []
    for start, stop in pairwise(starts):
        one = (x[None, start:stop].swapaxes(1, 2).copy() for x in (q, k, v))
        parts.append(run.call("batched_attention", *one))
    trace = student(run)
    chained = np.concatenate([trace[part][0].swapaxes(0, 1) for part in parts])
    assert np.isfinite(trace[whole]).all()
    assert near(trace[whole], chained)
    assert not near(trace[whole], trace[other])
    for axis in range(3):
        assert np.ptp(trace[whole], axis=axis).any()


@item("function.gradients", follow_through=True)
def test_function(script, student, draw):
    """The student's own tiled_attention_backward, after their own tiled_attention."""
    run = script()
    made = run.new("TiledAttention")
    done = []
    for more in ((False, 2, 3), (True, 3, 2)):
        given = [draw(2, 1, T, 3) for T in (4, 5, 5)]
        upstream, other = draw(2, 1, 4, 3), draw(2, 1, 4, 3)
        found = []
        for sent in (upstream, other):
            tensors = [run.tensor(name, x) for name, x in zip("qkv", given, strict=True)]
            run.backward((made.apply(*tensors, *more), sent))
            found.append([run.gradient(tensor) for tensor in tensors])
        own = run.call("tiled_attention", *given, *more)
        chained = run.call("tiled_attention_backward", upstream, *given, *own, *more)
        done += zip(*found, chained, strict=True)
    trace = student(run)
    for one, moved, chained in done:
        assert np.isfinite(trace[one]).all() and np.ptp(trace[one])
        assert near(trace[one], trace[chained])
        assert not near(trace[one], trace[moved])
