"""The rotation of interleaved pairs: values, axes, lengths, shifts and gradients."""

import numpy as np
from softmark.plugin import item
from softmark.script import Output, Script

# (N, h, T, d): sizes that all differ, then each of them 1 or the least
SIZES = [(2, 3, 5, 8), (1, 2, 4, 6), (3, 1, 2, 4), (2, 4, 1, 6), (2, 4, 3, 2)]


def unread(run):
    """An empty Script of this topic whose results are read where they are shown alone."""
    calls = {
        name: tuple(Output(o.name, "private") for o in each) for name, each in run.calls.items()
    }
    return Script(calls)


def single(run, turned, axes=()):
    """Show what was turned in float32: the rotation may be done in that."""
    return run.show("turned", run.convert(turned, "float32"), axes)


def angles(draw, T, d):
    """Right cosines and sines (T, d/2), each of an angle of its own."""
    turns = draw.rng.uniform(0.3, 2.8, size=(T, d // 2)) * draw.rng.choice([-1, 1], (T, d // 2))
    return np.cos(turns), np.sin(turns)


@item("rope.values")
def test_values(script, agree, draw):
    """(x_0, x_1), (x_2, x_3), ...: each pair by the angle of its position."""
    run = unread(script())
    for N, h, T, d in SIZES:
        turned = run.call("apply_rope", draw(N, h, T, d), *angles(draw, T, d))
        single(run, turned, ("N", "h", "T", "d"))
    agree(run)


@item("rope.shapes", depends="rope.values")
def test_axes_in_front(script, student, draw):
    """Of two, three, four and five axes: every slice is what it is alone."""
    T, d = 3, 4
    cos, sin = angles(draw, T, d)
    run = unread(script())
    x = draw(2, 1, 2, T, d)
    given = (x, x[:, 0], x[0, 0], *x.reshape(-1, T, d))
    turned = [single(run, run.call("apply_rope", each, cos, sin)) for each in given]
    trace = student(run)
    whole, without, three, *alone = (trace[handle] for handle in turned)
    for found, shape in ((whole, x.shape), (without, x[:, 0].shape), (three, x[0, 0].shape)):
        slices = found.reshape(-1, T, d)
        assert np.allclose(slices, alone[: len(slices)], rtol=0, atol=1e-5), (
            f"With x of shape {shape} a slice (T, d) is not turned as it is alone."
        )
    assert not np.allclose(alone[0], given[3]), "x comes back as it was."


@item("rope.norms")
def test_lengths_are_kept(script, student, draw):
    """A rotation changes no length."""
    run = unread(script())
    x = draw(2, 3, 5, 6)
    turned = single(run, run.call("apply_rope", x, *angles(draw, 5, 6)))
    found = student(run)[turned]
    lengths = np.linalg.norm(x, axis=-1)
    assert np.allclose(np.linalg.norm(found, axis=-1), lengths, rtol=1e-5), (
        "The lengths of the vectors change: a rotation keeps them."
    )
    assert not np.allclose(found, x, atol=0.1), "x comes back as it was."


@item("rope.shift", depends=("angles.values", "rope.values"))
def test_shift(script, student, draw):
    """Queries and keys moved by the same number of positions have the scores that they had."""
    N, h, T, d = 2, 3, 5, 8
    q, k = draw(N, h, T, d), draw(N, h, T, d)
    first = np.sort(draw.rng.choice(40, size=T, replace=False)).astype(float)
    run = unread(script())
    turned = []
    for positions in (first, first + 7, first + 100.5):
        cos, sin = run.call("rope_angles", positions, d, 300.0)
        turned.append([single(run, run.call("apply_rope", each, cos, sin)) for each in (q, k)])
    trace = student(run)
    scores = [trace[a] @ np.swapaxes(trace[b], -1, -2) for a, b in turned]
    for moved in scores[1:]:
        assert np.allclose(moved, scores[0], rtol=0, atol=2e-3), (
            "The scores change where queries and keys move by the same number of positions."
        )
    apart = ~np.eye(T, dtype=bool)
    plain = q @ np.swapaxes(k, -1, -2)
    assert not np.allclose(scores[0][..., apart], plain[..., apart], rtol=0, atol=0.1), (
        "The scores are those without rotation."
    )


@item("rope.gradients")
def test_gradient(script, student, draw):
    """As the submission's own outputs change with x, which they do in a line."""
    shape = 2, 3, 4, 6
    cos, sin = angles(draw, 4, 6)
    run = script()
    x, change, upstream = draw(*shape), draw(*shape), draw(*shape)
    leaf = run.tensor("x", x)
    before = run.call("apply_rope", run.add(leaf, np.zeros(shape)), cos, sin)
    run.backward((before, upstream))
    gradient = run.gradient(leaf)
    after = run.call("apply_rope", x + change, cos, sin)
    trace = student(run)
    due = np.sum(upstream * (trace[after] - trace[before]))
    assert abs(due) > 1e-6, "The output does not depend on x."
    found = np.sum(trace[gradient] * change)
    assert abs(found - due) < 1e-4 * max(1.0, abs(due)), (
        "The gradient of x is not the slope of the output: is something detached?"
    )
