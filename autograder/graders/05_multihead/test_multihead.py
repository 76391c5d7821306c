"""MultiHeadAttention against the reference: self-attention, and keys and values of their own."""

import pytest
from softmark.plugin import item

PARTS = ("sdpa.weights", "sdpa.out", "heads.split", "heads.merge")
# N, Tq, Tk, E, h. Sizes that all differ, then each of them 1; d = E / h is 1 as well.
SIZES = [
    (3, 4, 5, 6, 2),
    (2, 5, 4, 12, 3),
    (1, 3, 4, 8, 4),
    (3, 1, 2, 4, 2),
    (2, 3, 1, 6, 3),
    (2, 4, 3, 5, 1),
    (2, 3, 4, 3, 3),
]


def multihead(run, draw, E, h, bias=True):
    """Attention with random weights."""
    params = {}
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        params[f"{name}.weight"] = draw(E, E)
        if bias:
            params[f"{name}.bias"] = draw(E)
    return run.new("MultiHeadAttention", E, h, bias=bias, params=params)


@item("mha.self", depends=PARTS)
def test_self_attention(script, agree, draw):
    """Queries, keys and values of the same tokens."""
    run = script()
    for N, T, _, E, h in SIZES:
        multihead(run, draw, E, h).forward(draw(N, T, E))
    multihead(run, draw, 6, 2, bias=False).forward(draw(2, 4, 6), None, None, None)
    agree(run)


@item("mha.cross", depends=(*PARTS, "mha.self"))
@pytest.mark.parametrize("values", ["of the keys", "of their own"])
def test_cross_attention(script, agree, draw, values):
    """Keys from elsewhere, more or fewer of them than queries; values of the keys or of their own."""
    run = script()
    for N, Tq, Tk, E, h in SIZES[:5] if values == "of their own" else SIZES[1:4]:
        given = [draw(N, Tq, E), draw(N, Tk, E), draw(N, Tk, E)]
        given = given[: 2 + (values == "of their own")]
        multihead(run, draw, E, h).forward(*given)
    N, T, _, E, h = SIZES[0]
    if values == "of their own":  # of self-attention's size, and without keys
        multihead(run, draw, E, h).forward(draw(N, T, E), draw(N, T, E), value=draw(N, T, E))
        multihead(run, draw, E, h).forward(draw(N, T, E), value=draw(N, T, E))
    agree(run)
