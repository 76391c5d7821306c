"""What is kept between calls: caches belong to a step, gradients add up.

These compare a submission's numbers with each other, so a wrong gradient is not counted again. What
does not answer to its inputs agrees with itself too, and earns nothing.
"""

import numpy as np
from softmark.plugin import item
from softmark.script import Rng

KEYS = ("W_xh", "W_hh", "b_h")


def new_cell(run, draw):
    """A cell with random parameters."""
    return run.new("RNNCell", 5, 4, Rng(0), params=draw.params("RNNCell", 5, 4, Rng(0)))


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

    def backward(dh, cache):
        cell.zero_grad()
        return *cell.backward(dh, cache), run.read(cell.grads)

    handles = [backward(dh, caches[k]) for k in (1, 0, 0)] + [backward(dh + 1, caches[0])]
    trace = student(run)
    second, first, again, other = (
        {"dx": trace[dx], "dh_prev": trace[dh_prev]}
        | {f'grads["{key}"]': trace[grads][key] for key in KEYS}
        for dx, dh_prev, grads in handles
    )
    for name in first:
        assert same(first[name], again[name]), (
            f"{name} changes when the same cache is handed back a second time: "
            "backward must leave its cache as it was."
        )
        assert not same(first[name], other[name]), f"{name} is the same for another dh."
    assert any(not same(first[name], second[name]) for name in first), (
        "The gradients are the same for the caches of two different steps: backward must use the "
        "cache it is given, not what the last forward left on the cell."
    )


@item("step.accumulate")
def test_step_gradients_add_up(script, student, draw):
    """A second backward adds to grads, zero_grad clears them, another cell has its own."""
    run = script()
    cell, other = new_cell(run, draw), new_cell(run, draw)
    steps = [(draw(3, 5), draw(3, 4), draw(3, 4)) for _ in range(3)]
    x, h, dh = steps[0]

    def backward(x, h, dh):
        _, cache = cell.forward(x, h)
        cell.backward(dh, cache)

    alone = []  # at last with another dh
    for step in (*steps, (x, h, dh + 1)):
        cell.zero_grad()
        backward(*step)
        alone.append(run.read(cell.grads))
    cell.zero_grad()
    for step in steps:
        backward(*step)
    together = run.read(cell.grads)
    cell.zero_grad()
    cleared, untouched = run.read(cell.grads), run.read(other.grads)
    *alone, other_dh = alone
    trace = student(run)
    for key in KEYS:
        parts = [trace[read][key] for read in alone]
        assert all(np.any(part) for part in parts), f'grads["{key}"] is still zero after backward.'
        assert not same(parts[0], trace[other_dh][key]), (
            f'grads["{key}"] is the same for another dh.'
        )
        assert same(trace[together][key], sum(parts)), (
            f'grads["{key}"] after three backward calls is not the sum of the three: '
            "backward must add to grads, not replace them."
        )
        assert not np.any(trace[cleared][key]), f'zero_grad leaves grads["{key}"] non-zero.'
        assert not np.any(trace[untouched][key]), f'Two cells share grads["{key}"].'


def use_twice(run, draw):
    """rnn_backward twice from one cache: its outputs and grads after the first time and the second."""
    cell = new_cell(run, draw)
    _, cache = run.call("rnn_forward", cell, draw(3, 6, 5), draw(3, 4))
    dh = draw(3, 6, 4)
    first = run.call("rnn_backward", cell, dh, cache), run.read(cell.grads)
    again = run.call("rnn_backward", cell, dh, cache), run.read(cell.grads)
    other = run.call("rnn_backward", cell, dh + 1, cache)
    return first, again, other


def assert_added_up(trace, first, again, other):
    """The second time gives the same gradients, and doubles those of the parameters."""
    (outputs, once), (outputs_again, twice) = first, again
    for name, *handles in zip(("dx", "dh0"), outputs, outputs_again, other, strict=True):
        a, b, c = (trace[handle] for handle in handles)
        assert same(a, b), (
            f"{name} changes when the same cache is handed back a second time: "
            "rnn_backward must leave its cache as it was."
        )
        assert not same(a, c), f"{name} is the same for another dh."
    for key in KEYS:
        one, two = trace[once][key], trace[twice][key]
        assert np.any(one), f'grads["{key}"] is still zero after rnn_backward.'
        assert same(two, 2 * one), (
            f'grads["{key}"] does not double when rnn_backward runs a second time with the '
            "same cache: it must add to grads."
        )


@item(
    "sequence.accumulate",
    depends=("step.forward.h", "step.caches", "step.accumulate", "sequence.forward.h"),
)
def test_sequence_gradients_add_up(script, agree, student, draw):
    """rnn_backward adds to grads too, also the second time with the same cache."""
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
