"""Weak patterns of testing an LSTM, each a rubric item: one step and one sequence, there and back.

N, D and H differ, parameters and x are random. Where nothing else is said first states and the gradient
at every output are random too, T is 5, and every output is compared.
"""
# ruff: noqa: ANN001, ANN002, ANN201

import numpy as np
from near import near
from softmark.plugin import item
from softmark.script import Rng

N, D, H = 3, 4, 6


def step_and_sequence(run, draw, T, state, dh, dc):
    """Every array that comes back, and what is then in grads. ``state``, ``dh`` and ``dc`` make arrays
    of a shape: first states, and the gradients of the loss with respect to h and to the last c."""
    outputs = []
    for sequence in (False, True):
        cell = run.new("LSTMCell", D, H, Rng(0), params=draw.params("LSTMCell", D, H, Rng(0)))
        states = state(N, H), state(N, H)
        if sequence:
            h, c, cache = run.call("lstm_forward", cell, draw(N, T, D), *states)
            back = run.call("lstm_backward", cell, dh(N, T, H), dc(N, H), cache)
        else:
            h, c, cache = cell.forward(draw(N, D), *states)
            back = cell.backward(dh(N, H), dc(N, H), cache)
        outputs += [h, c, *back, run.read(cell.grads)]
    return outputs


def zeros(*shape):
    return np.zeros(shape)


def ones(*shape):
    return np.ones(shape)


@item("shapes")
def test_shapes_and_dtypes_only(script, student, draw):
    run = script()
    step_and_sequence(run, draw, 5, draw, draw, draw)
    student(run)


@item("first_gradient")
def test_only_the_first_gradient(script, agree, draw):
    """Of what backward returns dx alone."""
    run = script()
    step_and_sequence(run, draw, 5, draw, draw, draw)
    agree(run, only=("h", "c", "c_last", "dx"))


@item("one_step")
def test_one_step_from_zeros(script, agree, draw):
    """T = 1 from a state of zeros."""
    run = script()
    step_and_sequence(run, draw, 1, zeros, draw, draw)
    agree(run)


@item("sum_of_h")
def test_the_loss_is_the_sum_of_h(script, agree, draw):
    """Every gradient at h is 1, and none reaches the last c."""
    run = script()
    step_and_sequence(run, draw, 5, draw, ones, zeros)
    agree(run)


@item("golden")
def test_golden_values(script, student, reference, draw):
    """All that comes back, to within 1e-2."""
    run = script()
    outputs = step_and_sequence(run, draw, 5, draw, draw, draw)
    assert all(near(student(run)[o], reference(run)[o]) for o in outputs), "A value is off."


@item("together")
def test_all_of_this_together(script, student, reference, draw):
    """One step from zeros, h.sum() as the loss, and h, c and dx to within 1e-2."""
    run = script()
    outputs = step_and_sequence(run, draw, 1, zeros, ones, zeros)
    compared = [outputs[k] for k in (0, 1, 2, 6, 7, 8)]
    assert all(near(student(run)[o], reference(run)[o]) for o in compared), "A value is off."
