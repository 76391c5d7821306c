"""Inputs left alone, dtypes kept, and everything on the inputs' device."""

import numpy as np
import pytest
from softmark.plugin import Disagreement, item
from softmark.script import Output, Script

N, T, E, H = 2, 3, 4, 2
MASK = np.array([[[[True, True, False]]], [[[False, False, False]]]])  # (N, 1, 1, T)


def multihead(run, draw):
    """Attention with random weights."""
    params = {}
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        params |= {f"{name}.weight": draw(E, E), f"{name}.bias": draw(E)}
    return run.new("MultiHeadAttention", E, H, params=params)


@item("robust.inputs", claim=True)
def test_inputs_are_left_alone(script, student, draw):
    """No call changes its arguments, or the parameters of a module."""
    run = unread(script())
    made = multihead(run, draw)
    before = run.parameters(made)
    q, k, v = draw(N, H, T, 5), draw(N, H, T, 5), draw(N, H, T, 4)
    mask = np.broadcast_to(MASK, (N, H, T, T)).copy()
    run.call("padding_mask", np.array([2, 0]), T)
    for more in ((), (mask,)):
        run.call("scaled_dot_product_attention", q, k, v, *more)
        run.call("attention_backward", draw(N, H, T, 4), q, k, v, *more)
    run.call("merge_heads", run.call("split_heads", draw(N, T, E), H))
    out = run.show("out", made.forward(draw(N, T, E), draw(N, T, E), draw(N, T, E), MASK))
    after = run.parameters(made)
    trace = student(run)
    assert np.any(trace[out]), "out is 0 everywhere."
    for place, name in trace.modified:
        raise AssertionError(f"{run.steps[place].name} changes its argument {name} in place.")
    for key, value in trace[before].items():
        assert np.array_equal(value, trace[after][key]), (
            f"The parameter {key} was changed by a call."
        )


def unread(run):
    """An empty Script whose results are not read: NumPy has neither bfloat16 nor devices."""
    calls = {
        name: tuple(Output(o.name, "private") for o in each) for name, each in run.calls.items()
    }
    return Script(calls)


def everything(run, draw, to, places):
    """Calls with all that is given converted: what is returned, by name."""

    def given(*shape):
        return run.convert(draw(*shape), to)

    mask = run.convert(MASK, to) if to == "meta" else MASK
    q, k, v = given(N, H, T, 5), given(N, H, T, 5), given(N, H, T, 4)
    read = {}

    def note(name, outputs, found):
        handles = found if isinstance(found, tuple) else (found,)
        for output, handle in zip(outputs, handles, strict=True):
            read[f"{output} of {name}"] = run.form(output, handle)

    if 0 in places and to == "meta":
        note("causal_mask", ("mask",), run.call("causal_mask", 3, 5, to))
        note("causal_mask", ("mask",), run.call("causal_mask", 3, device=to))
        lengths = run.convert(np.array([2, 0]), to)
        note("padding_mask", ("mask",), run.call("padding_mask", lengths, T))
    if 1 in places:
        name = "scaled_dot_product_attention"
        note(name, ("out", "weights"), run.call(name, q, k, v, mask))
    if 2 in places:
        found = run.call("attention_backward", given(N, H, T, 4), q, k, v, mask)
        note("attention_backward", ("dq", "dk", "dv"), found)
    if 3 in places:
        made = multihead(run, draw)
        run.convert(made, to)
        note("MultiHeadAttention", ("out",), made.forward(given(N, T, E), mask=mask))
    return read


def assert_alive(script, student, draw):
    """Whatever is 0, or all one number, has no dtype and no device that says anything."""
    run = script()
    q, k, v = draw(N, H, T, 5), draw(N, H, T, 5), draw(N, H, T, 4)
    found = (
        *run.call("scaled_dot_product_attention", q, k, v),
        *run.call("attention_backward", draw(N, H, T, 4), q, k, v),
        multihead(run, draw).forward(draw(N, T, E)),
    )
    trace = student(run)
    names = ("out", "weights", "dq", "dk", "dv", "out of MultiHeadAttention")
    for name, handle in zip(names, found, strict=True):
        assert np.ptp(trace[handle]) != 0, f"{name} is the same number everywhere."


@item("robust.dtype", claim=True)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtypes_are_kept(script, student, draw, dtype):
    """Every floating result has the dtype of the inputs."""
    assert_alive(script, student, draw)
    run = unread(script())
    run.no_grad()
    read = everything(run, draw, dtype, range(4))
    trace = student(run)
    for what, handle in read.items():
        came = trace[handle]["dtype"]
        assert came == dtype, f"{what} is {came} where everything given is {dtype}."


# What is said where code looks at values, as boolean indices do. It may: on CUDA there are some.
LOOKS_AT_VALUES = ("nonzero", "no data", "on meta tensors", "local_scalar_dense")


@item("robust.device", claim=True)
def test_devices_are_kept(script, student, draw):
    """On the device "meta", which has shapes and no values: what is made elsewhere does not fit in."""
    assert_alive(script, student, draw)
    for places in (range(4), *([place] for place in range(4))):
        run = unread(script())
        run.no_grad()
        read = everything(run, draw, "meta", places)
        try:
            trace = student(run)
        except Disagreement as error:
            if any(text in str(error) for text in LOOKS_AT_VALUES):
                continue  # whatever else there is, by itself
            raise
        for what, handle in read.items():
            came = trace[handle]["device"]
            assert came == "meta", f"{what} is on the device {came} where all given is on meta."
        if len(places) > 1:
            return
