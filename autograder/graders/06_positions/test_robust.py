"""Inputs left alone, dtypes kept, and everything on the inputs' device."""

import numpy as np
from softmark.plugin import Disagreement, item
from softmark.script import Output, Script

N, H, T, D, MAX_LEN = 2, 3, 4, 6, 7


def unread(run):
    """An empty Script of this topic whose results are read where they are shown alone."""
    calls = {
        name: tuple(Output(o.name, "private") for o in each) for name, each in run.calls.items()
    }
    return Script(calls)


def alive(script, draw):
    """Everything of the core that takes a tensor, in float64: a Script, pairs of what is given and what
    comes, and the parameters before and after. All tests here draw the same, so that it runs once."""
    run = unread(script())
    table = draw(MAX_LEN, D)
    tokens, heads, turns = draw(N, T, D), draw(N, H, T, D), draw(T, D // 2)
    positions = draw(T)
    made = run.new("LearnedPositions", MAX_LEN, D, params={"table": table})
    pairs = [
        (tokens, made.forward(tokens, 2)),
        (positions[:, None], run.call("rope_angles", positions, D)[0]),
        (heads, run.call("apply_rope", heads, np.cos(turns), np.sin(turns))),
    ]
    shown = [(given, run.show("out", run.convert(out, "float32"))) for given, out in pairs]
    return run, shown, table, run.parameters(made)


def assert_alive(trace, shown):
    """What comes is no constant and not what was given: otherwise the rest says nothing."""
    for given, handle in shown:
        out = trace[handle]
        same = out.shape == given.shape and np.allclose(out, given, atol=1e-6)
        assert np.ptp(out) > 1e-3 and not same, "A call returns a constant, or what it was given."


@item("robust.inputs", claim=True, draws="alive")
def test_inputs_are_left_alone(script, student, draw):
    """No call changes its arguments, or the table of a module."""
    run, shown, table, after = alive(script, draw)
    trace = student(run)
    for place, name in trace.modified:
        raise AssertionError(f"{run.steps[place].name} changes its argument {name} in place.")
    assert np.array_equal(table, trace[after]["table"]), "The table was changed by a call."
    assert_alive(trace, shown)


def calls(run, draw, to, only=("learned", "angles", "rope")):
    """Everything of the core that takes a tensor, with all converted; results by name."""

    def given(*shape):
        return run.convert(draw(*shape), to)

    if "learned" in only:
        made = run.new("LearnedPositions", MAX_LEN, D, params={"table": draw(MAX_LEN, D)})
        run.convert(made, to)
        yield "out of LearnedPositions", made.forward(given(N, T, D), 2)
    if "angles" in only:
        cos, sin = run.call("rope_angles", given(T), D)
        yield "cos of rope_angles", cos
        yield "sin of rope_angles", sin
    if "rope" in only:
        turns, x = draw(T, D // 2), given(N, H, T, D)
        both = np.cos(turns), np.sin(turns)
        cos, sin = (run.convert(each, to) for each in both)
        yield "what apply_rope returns", run.call("apply_rope", x, cos, sin)
        if to != "meta":  # cosines of more digits than x has
            yield "what apply_rope returns", run.call("apply_rope", x, *both)


@item("robust.dtype", claim=True, draws="alive")
def test_dtypes_are_kept(script, student, draw):
    """Every result has the dtype of the inputs, that of x where there are several."""
    first, shown, *_ = alive(script, draw)
    run = unread(script())
    read = [
        (dtype, what, run.form(what, handle))
        for dtype in ("float32", "bfloat16")
        for what, handle in calls(run, draw, dtype)
    ]
    assert_alive(student(first), shown)
    trace = student(run)
    for dtype, what, handle in read:
        came = trace[handle]["dtype"]
        assert came == dtype, f"{what} is {came} where {dtype} is given."


# What is said where code looks at values. It may: on CUDA there are some.
LOOKS_AT_VALUES = ("nonzero", "no data", "on meta tensors", "local_scalar_dense")


@item("robust.device", claim=True, draws="alive")
def test_devices_are_kept(script, student, draw):
    """On the device "meta", which has shapes and no values: what is made elsewhere does not fit in."""
    first, shown, *_ = alive(script, draw)
    assert_alive(student(first), shown)
    together = "learned", "angles", "rope"
    for only in (together, *([name] for name in together)):
        run = unread(script())
        read = [(what, run.form(what, handle)) for what, handle in calls(run, draw, "meta", only)]
        try:
            trace = student(run)
        except Disagreement as error:
            if any(text in str(error) for text in LOOKS_AT_VALUES):
                continue  # the others by themselves
            raise
        for what, handle in read:
            came = trace[handle]["device"]
            assert came == "meta", f"{what} is on {came} where all given is on meta."
        if len(only) > 1:
            return
