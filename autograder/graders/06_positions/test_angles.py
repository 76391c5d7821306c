"""Cosines and sines: values in single precision, positions, bases, and precision in every dtype."""

import re

import numpy as np
from softmark.plugin import Disagreement, item
from softmark.script import Output, Script

AXES = ("T", "pair")


def unread(run):
    """An empty Script of this topic whose results are read where they are shown alone."""
    calls = {
        name: tuple(Output(o.name, "private") for o in each) for name, each in run.calls.items()
    }
    return Script(calls)


def single(run, found):
    """Show cosine and sine in float32: of more digits another item asks."""
    for name, handle in zip(("cos", "sin"), found, strict=True):
        run.show(name, run.convert(handle, "float32"), AXES)


@item("angles.values")
def test_values(script, agree):
    """Positions 0 to T - 1, in integers."""
    run = unread(script())
    for T, d in ((5, 8), (1, 6), (4, 2), (3, 10)):
        single(run, run.call("rope_angles", np.arange(T), d))
    agree(run)


@item("angles.positions", depends="angles.values")
def test_positions(script, agree, draw):
    """Later ones, shuffled ones, the same one twice, some before 0, and some in between."""
    run = unread(script())
    several = (
        np.arange(5) + 17,
        draw.rng.permutation(9),
        np.array([3, 3, 0, -2]),
        draw.rng.uniform(0, 30, size=6),
    )
    for positions in several:
        single(run, run.call("rope_angles", positions, 8))
    agree(run)


@item("angles.base", depends="angles.values")
def test_bases(script, agree, draw):
    """Other bases, as a whole number and by name."""
    run = unread(script())
    base = float(draw.rng.uniform(20, 900))
    single(run, run.call("rope_angles", np.arange(6), 8, base))
    single(run, run.call("rope_angles", np.arange(5), 6, base=500000))
    agree(run)


@item("angles.precision", depends="angles.values")
def test_far_out(script, agree, student, draw):
    """All the digits of float64, float32 and bfloat16 positions, and of integers, at many turns."""
    run, found = unread(script()), []
    far = 8192 + np.sort(draw.rng.integers(25000, size=5))
    farther = (8192 + draw.rng.integers(2**20, size=6)).astype(np.float32)
    for positions in (far.astype(float), far, farther, np.arange(4)):
        both = run.call("rope_angles", positions, 12)
        found.append(
            (
                positions,
                [
                    run.show(name, handle, AXES)
                    for name, handle in zip(("cos", "sin"), both, strict=True)
                ],
            )
        )
    whole = 2.0 ** draw.rng.permutation(np.arange(6, 17))  # bfloat16 holds them all
    single(run, run.call("rope_angles", run.convert(whole, "bfloat16"), 12))
    try:
        agree(run)
    except Disagreement as error:
        if said := lost_digits(student, run, found):
            raise AssertionError(said) from None
        raise error


def lost_digits(student, run, found):
    """What to say where all that is wrong is no more than angles lose in float32, or in bfloat16."""
    try:
        trace = student(run)
    except Disagreement:  # of another dtype or shape
        return ""
    right = True
    for positions, handles in found:
        angles = np.outer(positions.astype(float), 10000.0 ** (-np.arange(0, 12, 2) / 12))
        for handle, due in zip(handles, (np.cos(angles), np.sin(angles)), strict=True):
            error = np.abs(trace[handle] - due)
            least = 1e-6 if trace[handle].dtype == np.float32 else 1e-11
            if not np.all(error <= 16 * 2.0**-24 * (np.abs(angles) + 1)):
                return ""
            right = right and bool(np.all(error <= least))
    if right:
        return (
            "With positions in bfloat16 the digits are lost, and with all others they are right: "
            "bfloat16 has but three of them. Angles are computed in float64 whatever the dtype of the "
            "positions; cosine and sine are rounded to it."
        )
    return (
        "The digits that are wrong are those that an angle loses in float32: at position 8192 it is "
        "rounded in its fourth decimal. Of which dtype are your positions, your frequencies and their "
        "product? All three have to be float64; cosine and sine are rounded at the end."
    )


@item("angles.errors")
def test_odd_size(script, student):
    """An odd head_dim is a ValueError that names it."""
    run = script()
    run.raises("rope_angles", np.arange(3), 7)
    said = student(run).raised.message
    assert re.search(r"\bhead_dim\b", said), (
        "The ValueError for an odd head_dim must name head_dim."
    )
