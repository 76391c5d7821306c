"""Attention with masks: a submission's own numbers for a batch and for the samples it is made of."""

import numpy as np
import pytest
from softmark.plugin import item

MASK = np.array([[c == "1" for c in row] for row in ("111111", "111000", "100000", "010110")])
N, S, Q, C, A = *MASK.shape, 3, 5, 2
KINDS = {
    "bahdanau": {"W_a.weight": (A, Q), "U_a.weight": (A, C), "v_a.weight": (1, A)},
    "dot": {},
    "general": {"W_a.weight": (Q, C)},
    "concat": {"W_a.weight": (A, Q + C), "v_a.weight": (1, A)},
}


def attention(run, draw, kind):
    """Attention of this kind with random weights, and the size of its query."""
    params = {name: draw(*shape) for name, shape in KINDS[kind].items()}
    if kind == "bahdanau":
        return run.new("BahdanauAttention", Q, C, A, params=params), Q
    of_query = C if kind == "dot" else Q
    return run.new("LuongAttention", of_query, C, kind, A, params=params), of_query


def behind(draw, keys, mask):
    """Keys with other numbers where the mask is False, near 2 and near 1e4 in turn."""
    large = np.where(np.arange(keys.shape[1]) % 2, 1e4, 2.0)[:, None]
    other = draw.rng.uniform(0.5, 1, keys.shape) * draw.rng.choice([-1, 1], keys.shape) * large
    return np.where(mask[..., None], keys, other)


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


@item("{of}.mask", depends=("softmax.values", "softmax.mask"))
@pytest.mark.parametrize(
    "of, kind",
    [("bahdanau", "bahdanau"), ("luong", "dot"), ("luong", "general"), ("luong", "concat")],
)
def test_ragged_batch(script, student, draw, of, kind):
    """As each sample gives alone, without its padding; 0 at padding; nothing of it is heard."""
    run = script()
    module, of_query = attention(run, draw, kind)
    query, keys = draw(N, of_query), draw(N, S, C)
    batch = module.forward(query, behind(draw, keys, MASK), MASK)
    changed = module.forward(query, behind(draw, keys, MASK), MASK)
    other = module.forward(query + 1, behind(draw, keys, MASK), MASK)
    alone = [
        module.forward(query[n : n + 1], keys[n : n + 1, MASK[n]], *more)
        for n, more in zip(range(N), [(), (None,), (np.ones((1, 1), bool),), ()], strict=True)
    ]
    trace = student(run)
    context, weights = (trace[handle] for handle in batch)
    assert near(context, trace[changed[0]]) and near(weights, trace[changed[1]]), (
        "Context or weights change with what stands behind the mask."
    )
    assert not np.any(weights[~MASK]), "The weights must be exactly 0 where the mask is False."
    for n, (one_context, one_weights) in enumerate(alone):
        assert near(weights[n, MASK[n]], trace[one_weights][0]), (
            f"The weights of sample {n} are not those it has alone, without its padding."
        )
        assert near(context[n], trace[one_context][0]), (
            f"The context of sample {n} is not the one it has alone, without its padding."
        )
    assert not near(weights, trace[other[1]]), "The weights are the same for another query."


@item("softmax.empty", depends=("softmax.values", "softmax.mask"))
@pytest.mark.parametrize("kind", ["bahdanau", "dot"])
def test_sample_with_nothing_to_attend_to(script, student, draw, kind):
    """Context and weights of a sample without a True are exactly 0; others are not touched by it."""
    run = script()
    module, of_query = attention(run, draw, kind)
    mask = np.array([[True, True, False], [False, False, False]])
    query, keys = draw(2, of_query), behind(draw, draw(2, 3, C), mask)
    context, weights = module.forward(query, keys, mask)
    trace = student(run)
    for name, value in (("context", trace[context]), ("weights", trace[weights])):
        assert np.isfinite(value).all(), f"{name} is not finite beside a sample without a True."
        assert not np.any(value[1]), f"{name} must be exactly 0 for a sample without a True."
        assert np.any(value[0]), f"{name} is 0 for a sample that has a True."
