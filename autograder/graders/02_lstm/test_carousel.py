"""The direct path along the cell state, and the whole derivative, which is more than that."""

import re

import numpy as np
import pytest
from softmark.plugin import item
from softmark.script import Rng


@item("carousel.values")
def test_products_of_forget_gates(script, agree, draw):
    """From step k to step t: neighbours, ends, k == t, T = 1, H = 1, and a gate that is shut."""
    run = script()
    gates = 1 / (1 + np.exp(-draw(7, 4)))
    for k, t in [(0, 6), (2, 5), (0, 1), (3, 4), (5, 6), (1, 6), (0, 3), (0, 0), (4, 4), (6, 6)]:
        run.call("carousel_gradient", gates, k, t)
    shut = gates.copy()
    shut[3, 1] = 0.0
    for k, t in [(1, 5), (3, 5), (2, 3)]:
        run.call("carousel_gradient", shut, k, t)
    for T, H in [(1, 3), (5, 1), (60, 2)]:
        run.call("carousel_gradient", 1 / (1 + np.exp(-draw(T, H))), 0, T - 1)
    agree(run)


@item("carousel.errors", claim=True)
@pytest.mark.parametrize("k, t", [(3, 1), (1, 0)])
def test_k_after_t(script, student, draw, k, t):
    """ValueError that names k, since a later step does not act on an earlier one.

    The calls before it: float32 gates give a float32 product, and gates are not written to.
    """
    run = script()
    gates = 1 / (1 + np.exp(-draw(6, 3)))
    first, other = (run.call("carousel_gradient", each, 1, 4) for each in (gates, gates**2))
    for from_step, to_step in [(1, 4), (2, 2)]:
        run.call("carousel_gradient", gates.astype(np.float32), from_step, to_step)
    run.raises("carousel_gradient", gates, k, t)
    trace = student(run)
    named = re.search(r"\bk\b", trace.raised.message)
    assert named, "The ValueError of carousel_gradient should name the argument at fault, k."
    assert not trace.modified, "carousel_gradient writes into forget_gates: work on a copy."
    assert np.isfinite(trace[first]).all(), "carousel_gradient is not finite."
    assert not np.allclose(trace[first], trace[other]), "carousel_gradient ignores forget_gates."


@item(
    "sequence.backward.dc0", depends=("step.forward.h", "step.forward.c", "step.backward.dc_prev")
)
def test_dc0_is_more_than_the_direct_path(script, agree, reference, draw):
    """With gradient at c_last alone, dc0 holds the paths through h as well as the direct one.

    The forget gates of this cell do not look at h, so that they are known beforehand; the other
    gates do.
    """
    N, T, D, H = 2, 4, 3, 5
    run, params = script(), draw.params("LSTMCell", D, H, Rng(0))
    params["W"][D:, :H] = 0
    x, dc_last = draw(N, T, D), draw(N, H)
    cell = run.new("LSTMCell", D, H, Rng(0), params=params)
    cell.zero_grad()  # whatever __init__ made
    _, _, cache = run.call("lstm_forward", cell, x, draw(N, H), draw(N, H))
    _, _, dc0 = run.call("lstm_backward", cell, np.zeros((N, T, H)), dc_last, cache)
    f = 1 / (1 + np.exp(-(x @ params["W"][:D, :H] + params["b"][:H])))
    direct = dc_last * f.prod(axis=1)
    assert np.abs(reference(run)[dc0] - direct).max() > 1e-6  # the two are not the same
    agree(run, only="dc0")
