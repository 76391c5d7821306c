"""The half layout: values, the conversion of weights, and both together."""

import numpy as np
from softmark.plugin import item
from softmark.script import Output

SIZES = [(2, 3, 5, 8), (1, 2, 4, 6), (3, 1, 2, 12), (2, 4, 1, 6), (2, 4, 3, 2)]  # (N, h, T, d)


def angles(draw, T, d):
    """Right cosines and sines (T, d/2), each of an angle of its own."""
    turns = draw.rng.uniform(0.3, 2.8, size=(T, d // 2)) * draw.rng.choice([-1, 1], (T, d // 2))
    return np.cos(turns), np.sin(turns)


@item("half.values")
def test_values(script, agree, draw):
    """(x_i, x_{i + d/2}): each pair by the angle of its position; any axes in front."""
    run = script()
    for N, h, T, d in SIZES:
        run.call("apply_rope_half", draw(N, h, T, d), *angles(draw, T, d))
    run.call("apply_rope_half", draw(3, 4), *angles(draw, 3, 4))
    run.call("apply_rope_half", draw(2, 5, 6), *angles(draw, 5, 6))
    agree(run)


@item("half.like", claim=True)
def test_like_x(script, student, draw):
    """The gradient of x is the slope of the submission's own outputs; bfloat16 stays bfloat16."""
    shape = 2, 4, 6
    cos, sin = angles(draw, 4, 6)
    x, change, upstream = draw(*shape), draw(*shape), draw(*shape)
    run = script()
    leaf = run.tensor("x", x)
    before = run.call("apply_rope_half", leaf, cos, sin)
    run.backward((before, upstream))
    gradient = run.gradient(leaf)
    after = run.call("apply_rope_half", x + change, cos, sin)
    run.calls = {**run.calls, "apply_rope_half": (Output("turned", "private"),)}
    form = run.form("turned", run.call("apply_rope_half", run.convert(x, "bfloat16"), cos, sin))
    trace = student(run)
    due = np.sum(upstream * (trace[after] - trace[before]))
    found = np.sum(trace[gradient] * change)
    assert abs(found - due) < 1e-4 * max(1.0, abs(due)) and abs(due) > 1e-6, (
        "The gradient of x is not the slope of the output: is something detached?"
    )
    assert not np.allclose(trace[before], x, atol=0.1), "x comes back as it was."
    came = trace[form]["dtype"]
    assert came == "bfloat16", f"With x in bfloat16 the result is {came}."


@item("half.conversion")
def test_rows(script, agree, draw):
    """Of every head the rows of its pairs' first members, then those of their second ones."""
    run = script()
    for h, d, E in ((3, 8, 5), (1, 6, 4), (4, 2, 3), (2, 4, 1), (5, 10, 7)):
        run.call("interleaved_to_half", draw(h * d, E), h)
    agree(run)


def interleaved(x, cos, sin):
    """Interleaved pairs turned, by complex numbers."""
    pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * (cos + 1j * sin)
    return np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)


@item("half.scores", depends=("half.values", "half.conversion"))
def test_scores(script, student, draw):
    """Queries and keys of the student's own converted weights, turned by its own apply_rope_half."""
    N, h, T, d, E = 2, 3, 4, 6, 5
    cos, sin = angles(draw, T, d)
    x, weights = draw(N, T, E), [draw(h * d, E) for _ in range(2)]

    def heads(rows):
        return np.moveaxis((x @ rows.T).reshape(N, T, h, d), 2, 1)

    convert = script()
    handles = [convert.call("interleaved_to_half", W, h) for W in weights]
    trace = student(convert)
    turn = script()
    turned = [turn.call("apply_rope_half", heads(trace[W]), cos, sin) for W in handles]
    q, k = (student(turn)[handle] for handle in turned)
    due_q, due_k = (interleaved(heads(W), cos, sin) for W in weights)
    assert np.allclose(q @ np.swapaxes(k, -1, -2), due_q @ np.swapaxes(due_k, -1, -2), 1e-5), (
        "With converted weights the half layout does not give the scores of the interleaved one."
    )
