"""Sequences with a mask: the state is carried over, and nothing is heard of what lies behind it.

Behind a mask stand numbers from 1 to 1e4: the small ones show a gradient that goes where it must not,
the large ones a value. Gradients arrive at every step, the masked ones included.
"""

import numpy as np
import pytest
from softmark.plugin import item
from softmark.script import Rng

# (D, H) and the mask: holes, False at the start, at the end, everywhere in a row; N = 1, T = 1, and
# batches without a single real step.
MASKS = [
    ((3, 5), ["001101", "000000", "111111", "110100"]),
    ((4, 2), ["01101"]),
    ((2, 4), ["1", "0", "1"]),
    ((3, 2), ["0"]),
    ((1, 3), ["00", "00"]),
    ((4, 1), ["1011", "0111", "1110"]),
]
GRADIENTS = {
    "dx": "dx",
    "dh0": "dh0",
    "params": ('grads["W_xh"]', 'grads["W_hh"]', 'grads["b_h"]'),
}


def behind(draw, x, mask):
    """x with other numbers where the mask is False, near 1 and near 1e4 in turn."""
    N, T, _ = x.shape
    every_second = (np.arange(N)[:, None] + np.arange(T)) % 2 == 1
    other = draw.rng.uniform(0.5, 1, x.shape) * draw.rng.choice([-1.0, 1.0], x.shape)
    other *= np.where(every_second, 1e4, 1.0)[..., None]
    return np.where(mask[..., None], x, other)


def from_rows(rows):
    """A mask (N, T)."""
    return np.array([[c == "1" for c in row] for row in rows])


def masked(run, draw):
    """Random batches under each mask and under a random one, there and then back."""
    masks = [(sizes, from_rows(rows)) for sizes, rows in MASKS]
    masks.append(((5, 4), draw.rng.random((6, 5)) < 0.6))
    done = []
    for (D, H), mask in masks:
        N, T = mask.shape
        cell = run.new("RNNCell", D, H, Rng(0), params=draw.params("RNNCell", D, H, Rng(0)))
        x = behind(draw, draw(N, T, D), mask)
        _, cache = run.call("rnn_forward", cell, x, draw(N, H), mask)
        done.append((cell, cache, draw(N, T, H)))
    for cell, cache, dh in done:
        run.call("rnn_backward", cell, dh, cache)
        run.read(cell.grads)
    return run


@item("mask.forward.h", depends=("step.forward.h", "sequence.forward.h"), draws="masks")
def test_forward(script, agree, draw):
    """Where the mask is False, h is that of the step before."""
    agree(masked(script(), draw), only="h")


@item(
    "mask.backward.{gradient}",
    depends=(
        "step.forward.h",
        *(f"step.backward.{name}" for name in ("db_h", "dx", "dh_prev", "dW_xh", "dW_hh")),
        "step.accumulate",
        *(f"sequence.backward.{name}" for name in ("dx", "dh0", "dW_xh", "dW_hh", "db_h")),
        "mask.forward.h",
    ),
    draws="masks",
)
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_backward(script, agree, draw, gradient):
    """What arrives at a masked step goes on to the step before, and to nothing of its own."""
    agree(masked(script(), draw), only=GRADIENTS[gradient])


@item(
    "mask.lm",
    depends=(
        *("lm.loss", "lm.output", "lm.cell", "lm.embedding"),
        *("mask.forward.h", "mask.backward.dx", "mask.backward.params"),
    ),
)
def test_language_model(script, agree, draw):
    """Holes, late starts and an empty row: a masked token is neither read nor predicted."""
    E, H, V = 3, 4, 6
    mask = from_rows(["0111011", "1011111", "0000000", "1110010", "0001111"])
    run = script()
    cell = run.new("RNNCell", E, H, Rng(0), params=draw.params("RNNCell", E, H, Rng(0)))
    weights = draw(V, E), draw(H, V) / np.sqrt(H), draw(V)
    tokens = draw.rng.integers(V, size=mask.shape)
    run.call("rnn_lm_loss", cell, *weights, tokens, mask, draw(len(mask), H))
    run.read(cell.grads)
    agree(run)
