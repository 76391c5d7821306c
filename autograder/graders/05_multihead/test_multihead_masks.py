"""MultiHeadAttention with masks, and its properties: a submission's own numbers with each other."""

import numpy as np
import pytest
from softmark.plugin import item

N, TQ, TK, E, H = 3, 4, 5, 6, 2


def drawn(draw, bias=True):
    """Random parameters, such that every key that may be seen has some weight."""
    params = {}
    for name, gain in (("q_proj", 0.3), ("k_proj", 0.3), ("v_proj", 1.0), ("o_proj", 1.0)):
        params[f"{name}.weight"] = gain * draw(E, E)
        if bias:
            params[f"{name}.bias"] = draw(E)
    return params


def multihead(run, draw):
    """Attention with random weights."""
    return run.new("MultiHeadAttention", E, H, params=drawn(draw))


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


@item("mha.mask", depends="sdpa.mask")
def test_query_by_query(script, student, draw):
    """(Tq, Tk): as each query gives by itself, with the keys that it may see and no others."""
    run = script()
    made = multihead(run, draw)
    query, key, value = draw(N, TQ, E), draw(N, TK, E), draw(N, TK, E)
    mask = np.array(
        [[1, 0, 0, 1, 1], [0, 1, 0, 0, 0], [1, 1, 1, 0, 1], [0, 0, 1, 1, 0]], dtype=bool
    )
    whole = made.forward(query, key, value, mask)
    other = made.forward(query, key, value)
    alone = [
        made.forward(query[:, i : i + 1], key[:, seen], value[:, seen])
        for i, seen in enumerate(mask)
    ]
    trace = student(run)
    assert not near(trace[whole], trace[other]), "The mask changes nothing."
    for i, one in enumerate(alone):
        assert near(trace[whole][:, i], trace[one][:, 0]), (
            f"With a mask of shape (Tq, Tk), query {i} is not answered as it is by the keys that it may "
            "see alone."
        )


@item("mha.mask", depends="sdpa.mask")
def test_masks_broadcast(script, student, draw):
    """Over samples, heads and queries: as the mask written out."""
    run = script()
    made = multihead(run, draw)
    given = draw(N, TQ, E), draw(N, TK, E), draw(N, TK, E)
    done, full = [], []
    for shape in (
        (TK,),
        (1, TK),
        (TQ, TK),
        (H, 1, TK),
        (N, 1, 1, TK),
        (N, 1, TQ, TK),
        (1, H, TQ, TK),
    ):
        mask = draw.rng.random(shape) < 0.5
        mask[..., 0] = True
        mask[..., 1] = False
        full.append(np.broadcast_to(mask, (N, H, TQ, TK)))
        done.append((shape, made.forward(*given, mask=mask)))
    many = [np.concatenate([x] * len(full)) for x in given]  # all that is written out in one call
    written = made.forward(*many, mask=np.concatenate(full))
    plain = made.forward(*given)
    trace = student(run)
    for (shape, one), two in zip(done, np.split(trace[written], len(full)), strict=True):
        assert near(trace[one], two), (
            f"A mask of shape {shape} does not give what it gives written out for every sample, head "
            "and query."
        )
        assert not near(trace[one], trace[plain]), f"A mask of shape {shape} changes nothing."


@item("mha.mask", depends="sdpa.mask")
def test_masks_of_heads(script, student, draw):
    """Two masks, one a head: what they give and what they give exchanged is what each gives to both."""
    run = script()
    made = multihead(run, draw)
    given = draw(N, TQ, E), draw(N, TK, E), draw(N, TK, E)
    a, b = (np.array([[c == "1" for c in row]]) for row in ("11010", "00101"))
    pairs = [made.forward(*given, mask=np.stack(two)) for two in ((a, b), (b, a), (a, a), (b, b))]
    trace = student(run)
    ab, ba, aa, bb = (trace[pair] for pair in pairs)
    assert near(ab + ba, aa + bb), "Each head has to have the mask that is its own."
    assert not near(ab, aa) and not near(ab, bb) and not near(ab, ba), (
        "All heads have the mask of one of them."
    )


@item("mha.empty", depends=("sdpa.empty", "mha.mask"))
@pytest.mark.parametrize("bias", [True, False])
def test_query_with_nothing_to_attend_to(script, student, draw, bias):
    """It gives the bias of o_proj, or 0 where there is none; other queries give what they gave."""
    run = script()
    params = drawn(draw, bias)
    made = run.new("MultiHeadAttention", E, H, bias=bias, params=params)
    x = draw(N, TQ, E)
    mask = np.ones((N, 1, TQ, TQ), dtype=bool)
    mask[0] = mask[1, 0, 2] = False
    out, plain = made.forward(x, mask=mask), made.forward(x)
    trace = student(run)
    empty = ~mask.any(-1)[:, 0]
    assert np.isfinite(trace[out]).all(), "out is not finite beside a query without a True."
    due = params.get("o_proj.bias", np.zeros(E))
    assert near(trace[out][empty], np.broadcast_to(due, (empty.sum(), E))), (
        "A query without a True must give o_proj's bias, or 0 where there is none."
    )
    assert near(trace[out][~empty], trace[plain][~empty]), (
        "out is another at queries that have a True, where one beside them has none."
    )


@item("mha.ragged", depends="mha.mask")
def test_ragged_batch(script, student, draw):
    """With padding and causal masks: as each sequence gives alone, whatever stands in the padding."""
    run = script()
    made = multihead(run, draw)
    lengths = (3, 5, 1)
    real = np.arange(TK) < np.array(lengths)[:, None]
    x = draw(N, TK, E)
    padded = np.where(real[..., None], x, draw.rng.choice([-1e4, 2.0, 1e4], x.shape))
    causal = np.tril(np.ones((TK, TK), dtype=bool))
    batch = made.forward(padded, mask=causal & real[:, None, None])
    alone = [
        made.forward(x[n : n + 1, :length], mask=causal[:length, :length])
        for n, length in enumerate(lengths)
    ]
    other = made.forward(x + 1, mask=causal & real[:, None, None])
    trace = student(run)
    for n, (one, length) in enumerate(zip(alone, lengths, strict=True)):
        assert near(trace[batch][n, :length], trace[one][0]), (
            f"What comes out for sequence {n} is not what it gives alone, without its padding."
        )
    assert not near(trace[batch][real], trace[other][real]), "out does not depend on the input."


@item("mha.causal", depends="mha.mask")
def test_nothing_comes_from_the_future(script, student, draw):
    """Another token at t: outputs before t stay as they are, at t and behind it they do not."""
    run = script()
    made = multihead(run, draw)
    T = 5
    x = np.repeat(draw(1, T, E), T, axis=0)
    moved = x.copy()
    moved[np.arange(T), np.arange(T)] += draw(T, E)  # sample t has another token at t
    mask = np.tril(np.ones((T, T), dtype=bool))
    before, after = made.forward(x, mask=mask), made.forward(moved, mask=mask)
    trace = student(run)
    same = np.isclose(trace[before], trace[after], 1e-9, 1e-11).all(-1)
    for t in range(T):
        assert same[t, :t].all(), f"Another token at {t} changes what comes out before it."
        assert not same[t, t:].any(), (
            f"Another token at {t} does not change what comes out from it on."
        )


@item("mha.permutation", depends="mha.self")
def test_permuted_inputs(script, student, draw):
    """The tokens in another order: the same outputs in that order."""
    run = script()
    made = multihead(run, draw)
    x, order = draw(N, TK, E), np.array([3, 0, 4, 1, 2])
    plain, permuted = made.forward(x), made.forward(x[:, order])
    trace = student(run)
    assert near(trace[plain][:, order], trace[permuted]), (
        "Tokens in another order do not give the same outputs in that order."
    )
    assert np.ptp(trace[plain], axis=1).all(), "All tokens give the same output."
