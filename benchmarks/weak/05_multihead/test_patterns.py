"""Weak patterns of testing attention, each a rubric item: every function, there and back.

Where nothing else is said all sizes differ, leading axes are none, one and two, heads of keys and values
are as many as those of queries, fewer, and one, masks broadcast and some rows have no True, some scores
are near 1e4, the gradient at every output is random, and every output is compared.
"""
# ruff: noqa: ANN001, ANN002, ANN201

import numpy as np
import pytest
from near import near
from softmark.plugin import item

ALL = ("one_head", "equal", "no_mask", "sum_of_out", "calm")


def everything(script, draw, *weak):
    """A Script with calls of every function; ``weak``: those of ALL that it has."""
    run = script()
    mask_functions(run, draw, weak)
    attention(run, draw, weak)
    heads(run, draw, weak)
    modules(run, draw, weak)
    return run


def mask_functions(run, draw, weak):
    """Also where no mask is given to anything: the functions by themselves are then as well tested."""
    run.call("causal_mask", 5)
    run.call("causal_mask", 4, 4)
    if "equal" not in weak:
        for q_len, k_len in ((2, 5), (3, 4), *(() if "calm" in weak else ((5, 3), (4, 1)))):
            run.call("causal_mask", q_len, k_len)
    run.call("padding_mask", np.array([2, 5, 1 if "calm" in weak else 0, 4]), 5)
    run.call("padding_mask", draw.rng.integers(1, 7, size=3), 6)


def masks(draw, weak, shapes):
    """None, and random masks of these shapes with two True and a False in every row, but in one."""
    if "no_mask" in weak:
        return [None]
    made = [draw(*shape).argsort(-1).argsort(-1) for shape in shapes]
    made = [(rank < 2) | ((rank > 2) & (draw(*rank.shape) > 0)) for rank in made]
    if "calm" not in weak:
        for mask in made:
            mask.reshape(-1, mask.shape[-1])[0] = False
    return [None, *made]


def attention(run, draw, weak):
    """Its gradients by autograd, then by hand."""
    h, upstream = (1 if "one_head" in weak else 3), loss(draw, weak)
    for lead in ((), (3,), (2, h)):
        Tq, Tk, d, dv = (5, 5, 6, 6) if "equal" in weak else (5, 4, 6, 7)
        shapes = [(Tq, Tk)] if len(lead) < 2 else [(2, 1, 1, Tk), (h, Tq, Tk)]
        given = [draw(*lead, Tq, d), draw(*lead, Tk, d), draw(*lead, Tk, dv)]
        if "calm" in weak:  # scores as large as those of a new module
            given[:2] = [0.6 * each for each in given[:2]]
        for mask in masks(draw, weak, shapes):
            tensors = [run.tensor(name, x) for name, x in zip("qkv", given, strict=True)]
            out, weights = run.call("scaled_dot_product_attention", *tensors, mask)
            pairs = [(out, upstream(*lead, Tq, dv))]
            if "sum_of_out" not in weak:
                pairs.append((weights, draw(*lead, Tq, Tk)))
            run.backward(*pairs)
            for tensor in tensors:
                run.gradient(tensor)
            run.call("attention_backward", upstream(*lead, Tq, dv), *given, mask)
        if "calm" not in weak:
            run.call("scaled_dot_product_attention", *(100 * x for x in given), mask)


def heads(run, draw, weak):
    sizes = ((2, 3, 1, 4),) if "one_head" in weak else ((2, 3, 4, 5), (3, 4, 2, 1))
    for N, T, h, d in sizes:
        run.call("split_heads", draw(N, T, h * d), h)
        run.call("merge_heads", draw(N, h, T, d))


def modules(run, draw, weak):
    """Self-attention, keys of their own, values of their own, and a mask; all gradients of the last."""
    N, E, Tq, Tk = (5, 12, 6, 6) if "equal" in weak else (5, 12, 6, 7)
    upstream = loss(draw, weak)
    sizes = ((1, 1),) if "one_head" in weak else ((3, 3), (4, 2), (3, 1))
    for h, h_kv in sizes:
        params = draw.params("MultiHeadAttention", E, h, h_kv)
        if "calm" in weak:
            params = {k: 0.6 * a if k[0] in "qk" else a for k, a in params.items()}
        made = run.new("MultiHeadAttention", E, h, h_kv, params=params)
        made.forward(draw(N, Tq, E))
        made.forward(draw(N, Tq, E), draw(N, Tk, E))
        made.forward(draw(N, Tq, E), value=draw(N, Tq, E))
        for mask in masks(draw, weak, [(N, 1, 1, Tk), (Tq, Tk), (N, h, Tq, Tk)]):
            given = [draw(N, Tq, E), draw(N, Tk, E), draw(N, Tk, E)]
            names = ("query", "key", "value")
            tensors = [run.tensor(name, x) for name, x in zip(names, given, strict=True)]
            out = made.forward(*tensors, mask)
        run.backward((out, upstream(N, Tq, E)))
        for tensor in tensors:
            run.gradient(tensor)
        run.gradients(made)


def loss(draw, weak):
    """What makes the gradient at an output."""
    return (lambda *shape: np.ones(shape)) if "sum_of_out" in weak else draw


def compare(run, student, reference):
    """All that comes back, to within 1e-2."""
    asked = [handle for _, handle, _ in run.outputs()]
    assert all(near(student(run)[o], reference(run)[o]) for o in asked), "A value is off."


@item("shapes", draws="strong")
def test_shapes_and_dtypes_only(script, student, draw):
    student(everything(script, draw))


@item("golden", draws="strong")
def test_golden_values(script, student, reference, draw):
    compare(everything(script, draw), student, reference)


@item("{weakness}")
@pytest.mark.parametrize("weakness", ALL)
def test_one_weakness(script, agree, draw, weakness):
    agree(everything(script, draw, weakness))


@item("together")
def test_all_of_this_together(script, student, reference, draw):
    compare(everything(script, draw, *ALL), student, reference)


@item("strong", draws="strong")
def test_none_of_this(script, agree, draw):
    agree(everything(script, draw))
