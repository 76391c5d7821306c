"""Both norms: values."""

import pytest
from softmark.plugin import item

SIZES = [(3, 4, 5), (1, 2, 8), (2, 1, 3)]


@item("norm.{which}")
@pytest.mark.parametrize("which", ["layer", "rms"])
def test_values(script, agree, draw, which):
    """Every vector by itself: far from 0, small enough for eps to count, and with a large eps."""
    name = {"layer": "LayerNorm", "rms": "RMSNorm"}[which]
    run = script()
    for N, T, d in SIZES:
        params = draw.params(name, d)
        made = run.new(name, d, params=params)
        made.forward(draw(N, T, d) + 3 * draw(1, T, 1))
        made.forward(1e-3 * draw(N, T, d))
        run.new(name, d, eps=0.7, params=params).forward(draw(N, T, d))
    run.new(name, 4, params=draw.params(name, 4)).forward(draw(3, 4))
    agree(run)
