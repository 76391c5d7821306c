"""The learned table: values, offsets, gradients, and where it ends."""

import re

import numpy as np
import pytest
from softmark.plugin import item
from softmark.script import Output, Script

# (N, T, E, max_len): sizes that all differ, then each of them 1
SIZES = [(3, 4, 5, 7), (1, 3, 2, 5), (2, 1, 4, 3), (4, 3, 1, 5)]


def module(run, draw, max_len, E):
    """A random table in a module."""
    return run.new("LearnedPositions", max_len, E, params={"table": draw(max_len, E)})


@item("learned.values")
def test_values(script, agree, draw):
    """Row t of the table is added to every x[:, t]."""
    run = script()
    for N, T, E, max_len in SIZES:
        module(run, draw, max_len, E).forward(draw(N, T, E))
    agree(run)


@item("learned.offset", depends="learned.values")
def test_offsets(script, agree, draw):
    """Row offset + t of the table is added to x[:, t]."""
    run = script()
    for N, T, E, max_len, offset in ((3, 4, 5, 9, 2), (2, 1, 3, 6, 4), (2, 3, 4, 8, 3)):
        made, x = module(run, draw, max_len, E), draw(N, T, E)
        made.forward(x, offset)
        made.forward(x, offset=1)
        made.forward(x, max_len - T - 1)
    agree(run)


@item("learned.gradients")
def test_gradients(script, student, draw):
    """As the submission's own outputs change with x and with the table, which they do in a line."""
    N, T, E, max_len = 3, 4, 2, 6
    run = script()
    table, x, upstream = draw(max_len, E), draw(N, T, E), draw(N, T, E)
    more = {"x": draw(N, T, E), "table": draw(max_len, E)}
    made = run.new("LearnedPositions", max_len, E, params={"table": table})
    leaf = run.tensor("x", x)
    before = made.forward(leaf)
    run.backward((before, upstream))
    of_x, of_table = run.gradient(leaf), run.gradients(made)
    after = {"x": made.forward(x + more["x"])}
    run.assign(made, {"table": table + more["table"]})
    after["table"] = made.forward(x)
    trace = student(run)
    found = {"x": trace[of_x], **trace[of_table]}
    for name, change in more.items():
        due = np.sum(upstream * (trace[after[name]] - trace[before]))
        assert abs(due) > 1e-6, f"The output does not depend on {name}."
        assert np.isclose(np.sum(found[name] * change), due, 1e-8, 1e-10), (
            f"The gradient of {name} is not the slope of the output: is something detached?"
        )


@item("learned.errors", depends="learned.offset")
@pytest.mark.parametrize("T, offset", [(4, 4), (8, 0)])
def test_past_the_table(script, student, draw, T, offset):
    """A token past the last row is a ValueError that names an argument."""
    run = script()
    module(run, draw, 7, 2).forward.raises(draw(2, T, 2), offset)
    said = student(run).raised.message
    assert re.search(r"\b(offset|max_len)\b", said), (
        "The ValueError past the table's end must name offset or max_len."
    )


@item("learned.errors", depends="learned.offset")
def test_up_to_the_last_row(script, student, draw):
    """The last row is there to be used."""
    run = Script({**script().calls, "LearnedPositions.forward": (Output("out", "private"),)})
    made, shown = module(run, draw, 7, 2), []
    for T, offset in ((7, 0), (3, 4), (1, 6)):
        out = made.forward(draw(2, T, 2), offset)
        shown.append(run.show("out", out, ("N", "T", "E")))
    trace = student(run)
    assert all(np.any(trace[out]) for out in shown), "The output is 0 everywhere."
