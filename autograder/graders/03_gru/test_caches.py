"""What is kept between calls: caches belong to a step, gradients add up.

These compare a submission's numbers with each other, so a wrong gradient is not counted again. What
does not answer to its inputs agrees with itself too, and earns nothing.
"""

import numpy as np
from softmark.plugin import item
from softmark.script import Rng

FORWARD = ("step.candidate", "step.update", "step.reset", "step.forward.h")
KEYS = ("W", "b", "W_h", "b_h")


def new_cell(run, draw):
    """A cell with random parameters and gradients of zero."""
    cell = run.new("GRUCell", 5, 4, Rng(0), params=draw.params("GRUCell", 5, 4, Rng(0)))
    cell.zero_grad()
    return cell


def same(first, second):
    """Equal up to rounding."""
    return np.allclose(first, second, 1e-10, 1e-12)


@item("step.caches")
def test_caches_in_any_order_and_twice(script, student, draw):
    """Handed back late, in another order or twice, a cache gives the gradients of its own step."""
    run = script()
    cell = new_cell(run, draw)
    caches = [cell.forward(draw(3, 5), draw(3, 4))[1] for _ in range(3)]
    dh = draw(3, 4)
    second = cell.backward(dh, caches[1])
    first = cell.backward(dh, caches[0])
    again = cell.backward(dh, caches[0])
    other = cell.backward(dh + 1, caches[0])
    trace = student(run)
    for name, *handles in zip(("dx", "dh_prev"), first, again, second, other, strict=True):
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


@item("step.accumulate")
def test_step_gradients_add_up(script, student, draw):
    """A second backward adds to grads, zero_grad clears them, another cell has its own."""
    run = script()
    cell, other = new_cell(run, draw), new_cell(run, draw)
    steps = [(draw(3, 5), draw(3, 4), draw(3, 4)) for _ in range(3)]
    x, h, dh = steps[0]
    others = {"x": (x + 1, h, dh), "dh": (x, h, dh + 1)}

    def backward(x, h, dh):
        _, cache = cell.forward(x, h)
        cell.backward(dh, cache)

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
    for key in KEYS:
        parts = [trace[read][key] for read in alone[: len(steps)]]
        assert all(np.any(part) for part in parts), f'grads["{key}"] is still zero after backward.'
        for name, read in zip(others, alone[len(steps) :], strict=True):
            assert not same(parts[0], trace[read][key]), (
                f'grads["{key}"] is the same for another {name}.'
            )
        assert same(trace[together][key], sum(parts)), (
            f'grads["{key}"] after three backward calls is not the sum of the three: '
            "backward must add to grads, not replace them."
        )
        assert not np.any(trace[cleared][key]), f'zero_grad leaves grads["{key}"] non-zero.'
        assert not np.any(trace[untouched][key]), f'Two cells share grads["{key}"].'


def use_twice(run, draw):
    """gru_backward twice from one cache: its outputs and grads after the first time and the second."""
    cell = new_cell(run, draw)
    _, cache = run.call("gru_forward", cell, draw(3, 4, 5), draw(3, 4))
    dh = draw(3, 4, 4)
    first = run.call("gru_backward", cell, dh, cache), run.read(cell.grads)
    again = run.call("gru_backward", cell, dh, cache), run.read(cell.grads)
    other = run.call("gru_backward", cell, dh + 1, cache)
    return first, again, other


def assert_added_up(trace, first, again, other):
    """The second time gives the same gradients, and doubles those of the parameters."""
    (outputs, once), (outputs_again, twice) = first, again
    for name, *handles in zip(("dx", "dh0"), outputs, outputs_again, other, strict=True):
        a, b, c = (trace[handle] for handle in handles)
        assert same(a, b), (
            f"{name} changes when the same cache is handed back a second time: "
            "gru_backward must leave its cache as it was."
        )
        assert not same(a, c), f"{name} is the same for another dh."
    for key in KEYS:
        one, two = trace[once][key], trace[twice][key]
        assert np.any(one), f'grads["{key}"] is still zero after gru_backward.'
        assert same(two, 2 * one), (
            f'grads["{key}"] does not double when gru_backward runs a second time with the '
            "same cache: it must add to grads."
        )


@item(
    "sequence.accumulate",
    depends=(*FORWARD, "step.caches", "step.accumulate", "sequence.forward.h"),
)
def test_sequence_gradients_add_up(script, agree, student, draw):
    """gru_backward adds to grads too, also the second time with the same cache."""
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
