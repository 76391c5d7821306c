"""Feed-forward layers: values."""

import pytest
from softmark.plugin import item

SIZES = [(3, 4, 5, 7), (1, 2, 3, 1), (2, 1, 1, 4)]  # N, T, E, d_ff


@item("ffn.{activation}")
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward(script, agree, draw, activation):
    """down(activation(up(x)))."""
    run = script()
    for N, T, *sizes in SIZES:
        params = draw.params("FeedForward", *sizes)
        made = run.new("FeedForward", *sizes, activation, params=params)
        made.forward(2 * draw(N, T, sizes[0]))
    if activation == "relu":  # which is what it is where nothing is said
        run.new("FeedForward", *sizes, params=params).forward(2 * draw(N, T, sizes[0]))
    agree(run)


@item("swiglu.values")
def test_swiglu(script, agree, draw):
    """down(silu(gate(x)) * up(x))."""
    run = script()
    for N, T, *sizes in SIZES:
        params = draw.params("SwiGLU", *sizes)
        run.new("SwiGLU", *sizes, params=params).forward(2 * draw(N, T, sizes[0]))
    agree(run)
