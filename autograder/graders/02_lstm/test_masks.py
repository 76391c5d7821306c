"""Sequences with a mask: the state is carried over, and nothing is heard of what lies behind it.

Behind a mask stand numbers from 1 to 1e4: the small ones show a gradient that goes where it must not,
the large ones a value. Gradients arrive at every step, the masked ones included.
"""

import numpy as np
import pytest
from softmark.plugin import item
from softmark.script import Rng

# (D, H) and the mask: holes, False at the start, at the end, everywhere in a row; N = 1, T = 1, and
# a batch without a single real step.
MASKS = [
    ((3, 5), ["001101", "000000", "111111", "110100"]),
    ((4, 2), ["0110"]),
    ((2, 4), ["1", "0", "1"]),
    ((1, 3), ["00", "00"]),
]
GRADIENTS = {
    "dx": "dx",
    "state": ("dh0", "dc0"),
    "params": ('grads["W"]', 'grads["b"]'),
}


def new_cell(run, D, H, params):
    """A cell with these parameters, and gradients of their shapes whatever __init__ made."""
    cell = run.new("LSTMCell", D, H, Rng(0), params=params)
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
    masks.append(((4, 1), draw.rng.random((5, 4)) < 0.6))
    done = []
    for (D, H), mask in masks:
        N, T = mask.shape
        cell = new_cell(run, D, H, draw.params("LSTMCell", D, H, Rng(0)))
        x = behind(draw, draw(N, T, D), mask)
        _, _, cache = run.call("lstm_forward", cell, x, draw(N, H), draw(N, H), mask)
        done.append((cell, cache, draw(N, T, H), draw(N, H)))
    for cell, cache, dh, dc_last in done:
        run.call("lstm_backward", cell, dh, dc_last, cache)
        run.read(cell.grads)
    return run


@item(
    "mask.forward.{output}",
    depends=("step.forward.h", "step.forward.c", "sequence.forward.h", "sequence.forward.c_last"),
    draws="masks",
)
@pytest.mark.parametrize("output", ["h", "c_last"])
def test_forward(script, agree, draw, output):
    """Where the mask is False, h and c are those of the step before."""
    agree(masked(script(), draw), only=output)


@item(
    "mask.backward.{gradient}",
    depends=(
        "sigmoid.stable",  # a NaN behind the mask
        "step.forward.h",
        "step.forward.c",
        *(f"step.backward.{name}" for name in ("dh_prev", "dc_prev", "dx", "dW", "db")),
        "step.accumulate",
        "mask.forward.h",
        "mask.forward.c_last",
        *(f"sequence.backward.{name}" for name in ("dx", "dh0", "dc0", "dW", "db")),
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


def there_and_back(run, cell, x, h0, c0, mask, dh, dc_last):
    """Every output of a sequence, by name."""
    h, c_last, cache = run.call("lstm_forward", cell, x, h0, c0, mask)
    dx, dh0, dc0 = run.call("lstm_backward", cell, dh, dc_last, cache)
    named = {"h": h, "c_last": c_last, "dx": dx, "dh0": dh0, "dc0": dc0}
    return {**named, "grads": run.read(cell.grads)}


def values(trace, outputs):
    """The arrays of ``there_and_back``, those of grads by their own names."""
    named = {name: trace[handle] for name, handle in outputs.items() if name != "grads"}
    return named | {f'grads["{key}"]': grad for key, grad in trace[outputs["grads"]].items()}


@item("mask.padding", depends=("sigmoid.stable", "mask.forward.h", "mask.forward.c_last"))
def test_nothing_is_heard_from_behind_the_mask(script, student, draw):
    """Other numbers behind the mask change no output; x and mask stay as they are given.

    Other real steps do change the outputs, and the first step the last h, else this would say nothing.
    """
    N, T, D, H = 4, 3, 2, 5
    mask = np.array([[c == "1" for c in row] for row in ["111", "010", "101", "000"]])
    x, h0, c0, rest = draw(N, T, D), draw(N, H), draw(N, H), (mask, draw(N, T, H), draw(N, H))
    run, params = script(), draw.params("LSTMCell", D, H, Rng(0))

    def new():
        return new_cell(run, D, H, params)

    xs = [behind(draw, x, mask), behind(draw, x, mask, large=1.0), np.where(mask[..., None], -x, x)]
    runs = [there_and_back(run, new(), each, h0, c0, *rest) for each in xs]
    first_step = np.where(np.arange(T)[:, None] == 0, x + 1, x)
    h, c_last, _ = run.call("lstm_forward", new(), first_step, h0, c0, mask)
    trace = student(run)
    first, padded, real = (values(trace, outputs) for outputs in runs)
    for name in first:
        assert near(first[name], padded[name]), (
            f"{name} changes with what x holds where the mask is False: nothing of a masked step "
            "may reach it."
        )
    for name in ("h", "c_last", "dx", 'grads["W"]'):
        assert not near(first[name], real[name]), (
            f"{name} does not change with what x holds where the mask is True."
        )
    for name, last, other in (("h", (0, -1), h), ("c_last", (0,), c_last)):
        assert not near(first[name][last], trace[other][last]), (
            f"{name} at the end does not change with x at the first step."
        )
    changed = {
        f"{which} of {run.steps[step].name}"
        for step, which in trace.modified
        if which in ("x", "mask", "dh")
    }
    assert not changed, f"Changed in place under a mask: {', '.join(sorted(changed))}. Copy first."


@item("mask.padding", depends=("sigmoid.stable", "mask.forward.h", "mask.forward.c_last"))
def test_a_ragged_batch_is_the_singles_it_is_made_of(script, student, draw):
    """Sequences of different lengths padded to one batch, and each of them alone, without a mask.

    What arrives at the padding of a sequence belongs to its last real state.
    """
    N, T, D, H = 3, 3, 2, 5
    lengths = [2, 3, 1]
    mask = np.arange(T) < np.array(lengths)[:, None]
    x, h0, c0 = behind(draw, draw(N, T, D), mask), draw(N, H), draw(N, H)
    dh, dc_last = draw(N, T, H), draw(N, H)
    run, params = script(), draw.params("LSTMCell", D, H, Rng(0))
    cells = [new_cell(run, D, H, params) for _ in range(N + 1)]
    together = there_and_back(run, cells[N], x, h0, c0, mask, dh, dc_last)
    alone = []
    for n, length in enumerate(lengths):
        row, upto = slice(n, n + 1), slice(length)
        arriving = dh[row, upto].copy()
        arriving[:, -1] += dh[row, length:].sum(axis=1)
        given = x[row, upto], h0[row], c0[row], None, arriving, dc_last[row]
        alone.append(there_and_back(run, cells[n], *given))
    trace = student(run)
    batch = values(trace, together)
    for n, (length, outputs) in enumerate(zip(lengths, alone, strict=True)):
        single = values(trace, outputs)
        for name in ("h", "dx"):
            same = near(batch[name][n, :length], single[name][0])
            assert same, f"{name} of a padded sequence is not what the sequence gives alone."
        for name in ("c_last", "dh0", "dc0"):
            same = near(batch[name][n], single[name][0])
            assert same, f"{name} of a padded sequence is not what the sequence gives alone."
    assert not batch["dx"][~mask].any(), "dx is not 0 at padding."
