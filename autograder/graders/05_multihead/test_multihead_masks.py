"""MultiHeadAttention with masks, and its properties: a submission's own numbers with each other."""

import numpy as np
import pytest
from softmark.plugin import Disagreement, item

N, TQ, TK, E, H = 3, 4, 5, 6, 2
PARTS = ("sdpa.out", "sdpa.rows", "sdpa.mask", "heads.split", "heads.merge")


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


def handed_on(script, student, params, given, mask, whole):
    """Whether ``whole`` is what the submission's own parts make of inputs and mask, one by one.

    It does not count where they do not heed the mask.
    """
    run, outs = script(), []
    for more in ((mask,), ()):
        parts = [
            run.call("split_heads", x @ params[f"{name}.weight"].T + params[f"{name}.bias"], H)
            for name, x in zip(("q_proj", "k_proj", "v_proj"), given, strict=True)
        ]
        out, _ = run.call("scaled_dot_product_attention", *parts, *more)
        outs.append(run.call("merge_heads", out))
    try:
        trace = student(run)
    except Disagreement:
        return False
    masked, plain = (trace[out] @ params["o_proj.weight"].T + params["o_proj.bias"] for out in outs)
    return near(whole, masked) and not near(masked, plain)


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


@item("mha.mask", depends="sdpa.mask")
def test_query_by_query(script, student, draw):
    """(Tq, Tk): as each query gives by itself, with the keys that it may see and no others."""
    run = script()
    params = drawn(draw)
    made = run.new("MultiHeadAttention", E, H, params=params)
    given = query, key, value = draw(N, TQ, E), draw(N, TK, E), draw(N, TK, E)
    mask = np.array(
        [[1, 0, 0, 1, 1], [0, 1, 0, 0, 0], [1, 1, 1, 0, 1], [0, 0, 1, 1, 0]], dtype=bool
    )
    whole, plain = made.forward(*given, mask), made.forward(*given)
    alone = [
        [made.forward(query[:, i : i + 1], key[:, seen], value[:, seen]) for seen in (row, ~row)]
        for i, row in enumerate(mask)
    ]
    trace = student(run)
    found, due, opposite = (
        trace[whole],
        *(np.concatenate([trace[each[side]] for each in alone], axis=1) for side in (0, 1)),
    )
    shape = f"a mask of shape (Tq, Tk) = {mask.shape}"
    assert not near(found, trace[plain]), f"With {shape}, out is what it is without a mask."
    wrong = [i for i in range(TQ) if not near(found[:, i], due[:, i])]
    if not wrong or handed_on(script, student, params, given, mask, found):
        return
    assert not near(found, opposite), (
        f"With {shape}, each query attends to the keys where the mask is False: True means attend."
    )
    raise AssertionError(
        f"With {shape}, query {wrong[0]} may attend to {keys(mask[wrong[0]])}. It does not give what it "
        "gives where these are all the keys there are."
    )


def keys(row):
    """As in: keys 0, 3 and 4."""
    *more, last = map(str, np.flatnonzero(row))
    return f"keys {', '.join(more)} and {last}" if more else f"key {last} alone"


@item("mha.mask", depends="sdpa.mask")
def test_masks_broadcast(script, student, draw):
    """Over samples, heads and queries: as written out for each sample alone."""
    run = script()
    made = multihead(run, draw)
    given = draw(N, TQ, E), draw(N, TK, E), draw(N, TK, E)
    done = []
    for axes, shape in (
        ("(Tk,)", (TK,)),
        ("(1, Tk)", (1, TK)),
        ("(Tq, Tk)", (TQ, TK)),
        ("(h, 1, Tk)", (H, 1, TK)),
        ("(N, 1, 1, Tk)", (N, 1, 1, TK)),
        ("(N, 1, Tq, Tk)", (N, 1, TQ, TK)),
        ("(1, h, Tq, Tk)", (1, H, TQ, TK)),
        ("(N, h, Tq, Tk)", (N, H, TQ, TK)),
    ):
        mask = draw.rng.random(shape) < 0.5
        mask[..., 0] = True
        mask[..., 1] = False
        full = np.broadcast_to(mask, (N, H, TQ, TK)).copy()
        alone = [
            made.forward(*(x[n : n + 1] for x in given), mask=full[n : n + 1]) for n in range(N)
        ]
        done.append((f"{axes} = {shape}", made.forward(*given, mask=mask), alone))
    plain = made.forward(*given)
    trace = student(run)
    for shape, one, alone in done:
        assert not near(trace[one], trace[plain]), (
            f"With a mask of shape {shape}, out is what it is without a mask."
        )
        wrong = [n for n, two in enumerate(alone) if not near(trace[one][n], trace[two][0])]
        assert not wrong, (
            f"The same mask, written in two ways, gives two results: of shape {shape} for the batch, "
            f"and of shape (1, h, Tq, Tk) = {(1, H, TQ, TK)} for sample {wrong[0]} alone."
        )


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
    shape = f"a mask of shape (h, 1, Tk) = {(H, 1, TK)}"
    for one, what in ((aa, "first"), (bb, "last")):
        assert near(aa, bb) or not near(ab, one), (
            f"With {shape}, all heads attend by the mask of the {what} head."
        )
    assert not near(ab, ba), (
        f"With {shape}, nothing changes where the heads' masks are exchanged: head i has to attend by "
        "mask[i]."
    )
    assert near(ab + ba, aa + bb), (
        f"With {shape}, each head has to attend by its own mask, and by no other."
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


@item("mha.ragged", depends=(*PARTS, "mha.mask"))
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


@item("mha.causal", depends=(*PARTS, "mha.mask"))
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
