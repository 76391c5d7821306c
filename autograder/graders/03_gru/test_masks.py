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
FORWARD = ("step.candidate", "step.update", "step.reset", "step.forward.h")
KEYS = ("W", "b", "W_h", "b_h")
GRADIENTS = {"dx": "dx", "dh0": "dh0", "params": tuple(f'grads["{key}"]' for key in KEYS)}


def new_cell(run, D, H, params):
    """A cell with these parameters and gradients of zero."""
    cell = run.new("GRUCell", D, H, Rng(0), params=params)
    cell.zero_grad()
    return cell


def behind(draw, x, mask, large=1e4):
    """x with other numbers where the mask is False, those of every second step near ``large``."""
    N, T, _ = x.shape
    every_second = (np.arange(N)[:, None] + np.arange(T)) % 2 == 1
    other = draw.rng.uniform(0.5, 1, x.shape) * draw.rng.choice([-1.0, 1.0], x.shape)
    other *= np.where(every_second, large, 2.0)[..., None]
    return np.where(mask[..., None], x, other)


def masked(run, draw):
    """Random batches under each mask and under a random one, there and then back."""
    masks = [(sizes, np.array([[c == "1" for c in row] for row in rows])) for sizes, rows in MASKS]
    masks.append(((5, 4), draw.rng.random((6, 5)) < 0.6))
    done = []
    for (D, H), mask in masks:
        N, T = mask.shape
        cell = new_cell(run, D, H, draw.params("GRUCell", D, H, Rng(0)))
        x = behind(draw, draw(N, T, D), mask)
        _, cache = run.call("gru_forward", cell, x, draw(N, H), mask)
        done.append((cell, cache, draw(N, T, H)))
    for cell, cache, dh in done:
        run.call("gru_backward", cell, dh, cache)
        run.read(cell.grads)
    return run


@item("mask.forward.h", depends=(*FORWARD, "sequence.forward.h"), draws="masks")
def test_forward(script, agree, draw):
    """Where the mask is False, h is that of the step before."""
    agree(masked(script(), draw), only="h")


@item(
    "mask.backward.{gradient}",
    depends=(
        *FORWARD,
        *(f"step.backward.{name}" for name in ("db_h", "dW_h", "db", "dW", "dx", "dh_prev")),
        "step.accumulate",
        "robust.saturated",  # a NaN behind the mask
        "mask.forward.h",
        *(f"sequence.backward.{name}" for name in ("dx", "dh0", "dW", "db", "dW_h", "db_h")),
    ),
    draws="masks",
)
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_backward(script, agree, draw, gradient):
    """What arrives at a masked step goes on to the step before, and to nothing of its own."""
    agree(masked(script(), draw), only=GRADIENTS[gradient])


# ---- numbers of one submission, compared with each other -----------------------------------------


def near(a, b):
    """Equal up to rounding, for values of about the size of the larger array's largest."""
    return np.allclose(a, b, 1e-10, 1e-10 * max(np.abs(a).max(initial=0), np.abs(b).max(initial=0)))


def there_and_back(run, cell, x, h0, mask, dh):
    """Every output of a sequence, by name."""
    h, cache = run.call("gru_forward", cell, x, h0, mask)
    dx, dh0 = run.call("gru_backward", cell, dh, cache)
    return {"h": h, "dx": dx, "dh0": dh0, "grads": run.read(cell.grads)}


def values(trace, outputs):
    """The arrays of ``there_and_back``, those of grads by their own names."""
    named = {name: trace[handle] for name, handle in outputs.items() if name != "grads"}
    return named | {f'grads["{key}"]': grad for key, grad in trace[outputs["grads"]].items()}


@item("mask.padding", depends=("mask.forward.h", "robust.saturated"))
def test_nothing_is_heard_from_behind_the_mask(script, student, draw):
    """Other numbers behind the mask change no output; x and mask stay as they are given.

    Other real steps do change the outputs, and the first step the last h, else this would say nothing.
    """
    N, T, D, H = 4, 4, 3, 5
    mask = np.array([[c == "1" for c in row] for row in ["1111", "0110", "1101", "0000"]])
    x, h0, dh = draw(N, T, D), draw(N, H), draw(N, T, H)
    run, params = script(), draw.params("GRUCell", D, H, Rng(0))

    def new():
        return new_cell(run, D, H, params)

    xs = [behind(draw, x, mask), behind(draw, x, mask, large=1.0), np.where(mask[..., None], -x, x)]
    runs = [there_and_back(run, new(), each, h0, mask, dh) for each in xs]
    first_step = np.where(np.arange(T)[:, None] == 0, x + 1, x)
    other, _ = run.call("gru_forward", new(), first_step, h0, mask)
    trace = student(run)
    first, padded, real = (values(trace, outputs) for outputs in runs)
    for name in first:
        assert near(first[name], padded[name]), (
            f"{name} changes with what x holds where the mask is False: nothing of a masked step "
            "may reach it."
        )
    for name in ("h", "dx", 'grads["W"]', 'grads["W_h"]'):
        assert not near(first[name], real[name]), (
            f"{name} does not change with what x holds where the mask is True."
        )
    last = (0, -1)
    assert not near(first["h"][last], trace[other][last]), (
        "h at the end does not change with x at the first step."
    )
    changed = {
        f"{which} of {run.steps[step].name}"
        for step, which in trace.modified
        if which in ("x", "mask")
    }
    assert not changed, f"Changed in place under a mask: {', '.join(sorted(changed))}. Copy first."


@item("mask.padding", depends=("mask.forward.h", "robust.saturated"))
def test_a_ragged_batch_is_the_singles_it_is_made_of(script, student, draw):
    """Sequences of different lengths padded to one batch, and each of them alone, without a mask.

    What arrives at the padding of a sequence belongs to its last real state.
    """
    N, T, D, H = 3, 4, 2, 5
    lengths = [2, 4, 1]
    mask = np.arange(T) < np.array(lengths)[:, None]
    x, h0, dh = behind(draw, draw(N, T, D), mask), draw(N, H), draw(N, T, H)
    run, params = script(), draw.params("GRUCell", D, H, Rng(0))
    cells = [new_cell(run, D, H, params) for _ in range(N + 1)]
    together = there_and_back(run, cells[N], x, h0, mask, dh)
    alone = []
    for n, length in enumerate(lengths):
        row, upto = slice(n, n + 1), slice(length)
        arriving = dh[row, upto].copy()
        arriving[:, -1] += dh[row, length:].sum(axis=1)
        alone.append(there_and_back(run, cells[n], x[row, upto], h0[row], None, arriving))
    trace = student(run)
    batch = values(trace, together)
    for n, (length, outputs) in enumerate(zip(lengths, alone, strict=True)):
        single = values(trace, outputs)
        for name, of_batch in (
            ("h", batch["h"][n, :length]),
            ("dx", batch["dx"][n, :length]),
            ("dh0", batch["dh0"][n]),
        ):
            same = near(of_batch, single[name][0])
            assert same, f"{name} of a padded sequence is not what the sequence gives alone."
    assert not batch["dx"][~mask].any(), "dx is not 0 at padding."
