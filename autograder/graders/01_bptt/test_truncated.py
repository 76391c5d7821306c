"""Windows of every length, below T, at T and above it."""

import re

import numpy as np
import pytest
from softmark.plugin import item
from softmark.script import Rng

GRADIENTS = {
    "dx": "dx",
    "dh0": "dh0",
    "params": ('grads["W_xh"]', 'grads["W_hh"]', 'grads["b_h"]'),
}
# (N, T, D, H) and the windows; T is a multiple of some of them, of others not.
WINDOWS = [
    ((3, 7, 4, 5), (1, 2, 3, 6, 7, 8, 100)),
    ((2, 6, 2, 3), (2, 3, 4, 5)),
    ((1, 5, 3, 1), (2, 4)),
    ((4, 1, 2, 3), (1, 2)),
]
EARLIER = (
    "step.forward.h",
    *(f"step.backward.{name}" for name in ("db_h", "dx", "dh_prev", "dW_xh", "dW_hh")),
    "step.accumulate",
    "sequence.forward.h",
    *(f"sequence.backward.{name}" for name in ("dx", "dh0", "dW_xh", "dW_hh", "db_h")),
)


def truncated(run, draw):
    """Each window by itself, with gradients at every step."""
    for (N, T, D, H), windows in WINDOWS:
        cell = run.new("RNNCell", D, H, Rng(0), params=draw.params("RNNCell", D, H, Rng(0)))
        x, h0, dh = draw(N, T, D), draw(N, H), draw(N, T, H)
        for window in windows:
            cell.zero_grad()
            _, cache = run.call("rnn_forward", cell, x, h0)
            run.call("truncated_rnn_backward", cell, dh, cache, window)
            run.read(cell.grads)
    return run


@item("truncated.{gradient}", depends=EARLIER, draws="truncated")
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_windows(script, agree, draw, gradient):
    """Nothing crosses a window's left edge, and nothing else is lost."""
    agree(truncated(script(), draw), only=GRADIENTS[gradient])


@item("truncated.errors")
@pytest.mark.parametrize("window", [0, -2])
def test_window_below_1(script, student, draw, window):
    """ValueError that names window; a window of 1 is none, and gives gradients that are alive."""
    run = script()
    cell = run.new("RNNCell", 2, 3, Rng(0), params=draw.params("RNNCell", 2, 3, Rng(0)))
    _, cache = run.call("rnn_forward", cell, draw(2, 4, 2), draw(2, 3))
    dh = draw(2, 4, 3)
    one, _ = run.call("truncated_rnn_backward", cell, dh, cache, 1)
    other, _ = run.call("truncated_rnn_backward", cell, dh + 1, cache, 1)
    run.raises("truncated_rnn_backward", cell, dh, cache, window)
    trace = student(run)
    assert re.search(r"\bwindow\b", trace.raised.message), (
        "The ValueError of truncated_rnn_backward should name the argument at fault, window."
    )
    assert not np.allclose(trace[one], trace[other]), "truncated_rnn_backward ignores dh."
