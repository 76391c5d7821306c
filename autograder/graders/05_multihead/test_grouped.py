"""Fewer heads of keys and values than of queries: the same as MultiHeadAttention with them repeated."""

import numpy as np
from softmark.plugin import item

N, TQ, TK, D = 3, 4, 5, 2


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


def grouped(draw, h, h_kv):
    """Parameters with h_kv heads of keys and values, and the same with each head written out."""
    E = h * D
    few = {f"{name}_proj.weight": draw(E, E) for name in "qo"}
    few |= {f"{name}_proj.bias": draw(E) for name in "qo"}
    few |= {f"{name}_proj.weight": draw(h_kv * D, E) for name in "kv"}
    few |= {f"{name}_proj.bias": draw(h_kv * D) for name in "kv"}
    rows = (np.arange(h)[:, None] // (h // h_kv) * D + np.arange(D)).ravel()
    return few, {key: a[rows] if key[0] in "kv" else a for key, a in few.items()}


def assert_same(run, student, draw, sizes):
    """Grouped attention is attention with the heads of each group alike, with a mask and without."""
    done = []
    mask = np.tril(np.ones((TQ, TK), dtype=bool), 1)
    for (h, h_kv), keys, more in zip(sizes, ((), (TK, TK)), ({}, {"mask": mask}), strict=True):
        few, all_of_them = grouped(draw, h, h_kv)
        made = run.new("MultiHeadAttention", h * D, h, h_kv, params=few)
        other = run.new("MultiHeadAttention", h * D, h, params=all_of_them)
        x = [draw(N, T, h * D) for T in (TQ, *keys)]
        done.append((made.forward(*x, **more), other.forward(*x, **more)))
    trace = student(run)
    for one, two in done:
        assert np.any(trace[two]), "out is 0 everywhere."
        assert near(trace[one], trace[two]), (
            "Query head i must attend to the head i // (h / h_kv) of keys and values."
        )
    assert not near(trace[done[0][0]], trace[done[0][0]][:, ::-1]), (
        "All tokens give the same output."
    )


@item("gqa.groups", depends=("heads.split", "mha.self", "mha.cross"))
def test_groups(script, student, draw):
    """More than one head of keys and values, and more than one head of queries for each."""
    assert_same(script(), student, draw, [(6, 2), (6, 3)])


@item("gqa.one", depends=("heads.split", "mha.self", "mha.cross"))
def test_one_head(script, student, draw):
    """One head of keys and values."""
    assert_same(script(), student, draw, [(4, 1), (2, 1)])
