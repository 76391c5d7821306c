"""What is kept between calls: caches belong to a step, gradients add up.

These compare a submission's numbers with each other, so a wrong gradient is not counted again. What
does not answer to its inputs agrees with itself too, and earns nothing.
"""

import numpy as np
from softmark.plugin import item
from softmark.script import Rng

FORWARD = ("step.forward.h", "step.forward.c")


def new_cell(run, draw):
    """A cell with random parameters, and gradients of their shapes whatever __init__ made."""
    cell = run.new("LSTMCell", 5, 4, Rng(0), params=draw.params("LSTMCell", 5, 4, Rng(0)))
    cell.zero_grad()
    return cell


def same(first, second):
    """Equal up to rounding."""
    return np.allclose(first, second, 1e-10, 1e-12)


@item("step.caches", depends="cell.params")
def test_caches_in_any_order_and_twice(script, student, draw):
    """Handed back late, in another order or twice, a cache gives the gradients of its own step."""
    run = script()
    cell = new_cell(run, draw)
    caches = [cell.forward(draw(3, 5), draw(3, 4), draw(3, 4))[2] for _ in range(3)]
    dh, dc = draw(3, 4), draw(3, 4)
    second = cell.backward(dh, dc, caches[1])
    first = cell.backward(dh, dc, caches[0])
    again = cell.backward(dh, dc, caches[0])
    other = cell.backward(dh + 1, dc, caches[0])
    trace = student(run)
    names = ("dx", "dh_prev", "dc_prev")
    for name, *handles in zip(names, first, again, second, other, strict=True):
        a, b, c, d = (trace[handle] for handle in handles)
        assert same(a, b), (
            f"{name} changes when the same cache is handed back a second time: "
            "backward must leave its cache as it was."
        )
        assert not same(a, c), (
            f"{name} is the same for the caches of two different steps: backward must use the "
            "cache it is given, not what the last forward left on the cell."
        )
        assert not same(a, d), f"{name} is the same for another dh."


@item("step.accumulate", depends="cell.params")
def test_step_gradients_add_up(script, student, draw):
    """A second backward adds to grads, zero_grad clears them, another cell has its own."""
    run = script()
    cell, other = new_cell(run, draw), new_cell(run, draw)
    steps = [(draw(3, 5), draw(3, 4), draw(3, 4), draw(3, 4), draw(3, 4)) for _ in range(2)]
    x, h, c, dh, dc = steps[0]
    others = {"x": (x + 1, h, c, dh, dc), "dh": (x, h, c, dh + 1, dc)}

    def backward(x, h, c, dh, dc):
        _, _, cache = cell.forward(x, h, c)
        cell.backward(dh, dc, cache)

    alone = []
    for step in (*steps, *others.values()):
        cell.zero_grad()
        backward(*step)
        alone.append(run.read(cell.grads))
    cell.zero_grad()
    for step in steps:
        backward(*step)
    together = run.read(cell.grads)
    cell.zero_grad()
    cleared, untouched = run.read(cell.grads), run.read(other.grads)
    trace = student(run)
    for key in ("W", "b"):
        parts = [trace[read][key] for read in alone[: len(steps)]]
        assert all(np.any(part) for part in parts), f'grads["{key}"] is still zero after backward.'
        for name, read in zip(others, alone[len(steps) :], strict=True):
            assert not same(parts[0], trace[read][key]), (
                f'grads["{key}"] is the same for another {name}.'
            )
        assert same(trace[together][key], sum(parts)), (
            f'grads["{key}"] after two backward calls is not the sum of the two: '
            "backward must add to grads, not replace them."
        )
        assert not np.any(trace[cleared][key]), f'zero_grad leaves grads["{key}"] non-zero.'
        assert not np.any(trace[untouched][key]), (
            f'Two cells share grads["{key}"]: make the arrays in __init__.'
        )


def use_twice(run, draw):
    """lstm_backward twice from one cache: its outputs and grads after the first time and the second."""
    cell = new_cell(run, draw)
    _, _, cache = run.call("lstm_forward", cell, draw(3, 2, 5), draw(3, 4), draw(3, 4))
    dh, dc_last = draw(3, 2, 4), draw(3, 4)
    first = run.call("lstm_backward", cell, dh, dc_last, cache), run.read(cell.grads)
    again = run.call("lstm_backward", cell, dh, dc_last, cache), run.read(cell.grads)
    other = run.call("lstm_backward", cell, dh + 1, dc_last, cache)
    return first, again, other


def assert_added_up(trace, first, again, other):
    """The second time gives the same gradients, and doubles those of the parameters."""
    (outputs, once), (outputs_again, twice) = first, again
    for name, *handles in zip(("dx", "dh0", "dc0"), outputs, outputs_again, other, strict=True):
        a, b, c = (trace[handle] for handle in handles)
        assert same(a, b), (
            f"{name} changes when the same cache is handed back a second time: "
            "lstm_backward must leave its cache as it was."
        )
        assert not same(a, c), f"{name} is the same for another dh."
    for key in ("W", "b"):
        one, two = trace[once][key], trace[twice][key]
        assert np.any(one), f'grads["{key}"] is still zero after lstm_backward.'
        assert same(two, 2 * one), (
            f'grads["{key}"] does not double when lstm_backward runs a second time with the '
            "same cache: it must add to grads."
        )


@item(
    "sequence.accumulate",
    depends=(*FORWARD, "step.caches", "step.accumulate", "sequence.forward.h"),
)
def test_sequence_gradients_add_up(script, agree, student, draw):
    """lstm_backward adds to grads too, also the second time with the same cache."""
    run = script()
    handles = use_twice(run, draw)
    agree(run, only="h")
    assert_added_up(student(run), *handles)


@item("sequence.accumulate", follow_through=True)
def test_sequence_gradients_of_the_students_step_add_up(script, student, draw):
    """The same without a look at the values."""
    run = script()
    handles = use_twice(run, draw)
    assert_added_up(student(run), *handles)
