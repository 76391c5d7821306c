"""How a state answers to an earlier one: Jacobians, their norms, and what these cost."""

import re

import numpy as np
import pytest
from softmark.plugin import item


def states(draw, T, H):
    """States of a run that is partly saturated."""
    return np.tanh(1.5 * draw(T, H))


@item("jacobian.values")
def test_jacobians(script, agree, draw):
    """From neighbours, between ends, k == t, T = 1, H = 1."""
    run = script()
    h, W_hh = states(draw, 7, 4), draw(4, 4)
    for k, t in [(0, 1), (3, 4), (5, 6), (0, 6), (1, 3), (2, 6), (0, 4), (0, 0), (3, 3), (6, 6)]:
        run.call("hidden_jacobian", h, W_hh, k, t)
    run.call("hidden_jacobian", states(draw, 1, 3), draw(3, 3), 0, 0)
    run.call("hidden_jacobian", states(draw, 5, 1), draw(1, 1), 1, 4)
    agree(run)


@item("jacobian.norms")
def test_spectral_norms(script, agree, draw):
    """The largest singular value for every k, that of the identity last."""
    run = script()
    for T, H in [(7, 4), (3, 5), (1, 3), (6, 1), (2, 2)]:
        run.call("jacobian_norms", states(draw, T, H), draw(H, H) / np.sqrt(H))
    agree(run)


@item("jacobian.cost", depends="jacobian.norms")
def test_a_long_sequence(script, agree, draw):
    """1500 steps: one product more for each is done at once, all products anew for each is not."""
    T, H = 1500, 3
    W_hh, _ = np.linalg.qr(draw(H, H))
    run = script()
    run.call("jacobian_norms", 0.05 * draw(T, H), W_hh)
    agree(run)


@item("jacobian.errors", claim=True)
@pytest.mark.parametrize("k, t", [(3, 1), (1, 0)])
def test_k_after_t(script, student, draw, k, t):
    """ValueError that names k, since a later step does not act on an earlier one.

    The calls before it: float32 gives float32, and nothing given is written to.
    """
    run = script()
    h, W_hh = states(draw, 6, 3), draw(3, 3)
    one, other = (run.call("hidden_jacobian", h, W, 1, 4) for W in (W_hh, W_hh + 1))
    single = h.astype(np.float32), W_hh.astype(np.float32)
    for from_step, to_step in [(1, 4), (2, 2)]:
        run.call("hidden_jacobian", *single, from_step, to_step)
    run.call("jacobian_norms", *single)
    run.raises("hidden_jacobian", h, W_hh, k, t)
    trace = student(run)
    assert re.search(r"\bk\b", trace.raised.message), (
        "The ValueError of hidden_jacobian should name the argument at fault, k."
    )
    changed = {f"{which} of {run.steps[step].name}" for step, which in trace.modified}
    assert not changed, f"Changed in place: {', '.join(sorted(changed))}. Work on a copy."
    assert not np.allclose(trace[one], trace[other]), "hidden_jacobian ignores W_hh."
