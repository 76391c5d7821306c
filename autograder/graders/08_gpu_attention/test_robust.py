"""Inputs left alone, dtypes kept, and everything on the inputs' device."""

import numpy as np
import pytest
from softmark.plugin import Disagreement, item
from softmark.script import Output, Script

N, T, H, D = 2, 3, 2, 3
LENGTHS = np.array([3, 2])
STARTS = np.array([0, 3, 5], np.int32)


def unread(run):
    """An empty Script whose results are not read: NumPy has neither bfloat16 nor devices."""
    calls = {
        name: tuple(Output(o.name, "private") for o in each) for name, each in run.calls.items()
    }
    return Script(calls)


def assert_inputs_are_kept(run, trace):
    for place, name in trace.modified:
        raise AssertionError(f"{run.steps[place].name} changes its argument {name} in place.")


def assert_forms(trace, read, kind, due, wide):
    """Each result has the dtype, or is on the device, of all that is given."""
    for what, handle in read.items():
        came = trace[handle][kind]
        wanted = wide if what.startswith("lse") else due
        assert came == wanted, f"{what} is {came} where everything given is {due}."


@item("robust.inputs", claim=True)
def test_inputs_are_left_alone(script, student, draw):
    """No call changes its arguments."""
    run = unread(script())
    q, k, v = draw(3, N, H, T, D)
    for causal in (False, True):
        out = run.call("batched_attention", q, k, v, causal)
        run.call("tiled_attention", q, k, v, causal, 2, 2)
        run.call("varlen_attention", *draw(3, 5, H, D), STARTS, causal)
    run.call("pack_padded", draw(N, T, H, D), LENGTHS)
    run.call("unpack_padded", draw(5, H, D), STARTS, T)
    shown = run.show("out", out)
    trace = student(run)
    assert np.any(trace[shown]), "out is 0 everywhere."
    assert_inputs_are_kept(run, trace)


DENSE = ("batched_attention", "tiled_attention")


def attention(run, draw, to, names):
    """Calls of the dense functions with all that is given converted: what is returned, by name."""
    read = {}
    for causal in (True,) if to == "meta" else (False, True):
        q, k, v = (run.convert(x, to) for x in draw(3, N, H, T, D))
        if "batched_attention" in names:
            found = run.call("batched_attention", q, k, v, causal)
            read[f"out of batched_attention, {causal=}"] = run.form("out", found)
        if "tiled_attention" in names:
            for name, found in zip(
                ("out", "lse"), run.call("tiled_attention", q, k, v, causal, 2, 2), strict=True
            ):
                read[f"{name} of tiled_attention, {causal=}"] = run.form(name, found)
    return read


@item("robust.dtype", requires=("batched.out", "tiled.out"), claim=True)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtypes_are_kept(script, student, draw, dtype):
    """Every floating result has the dtype of the inputs; lse has at least float32."""
    run = unread(script())
    run.no_grad()
    read = attention(run, draw, dtype, DENSE)
    packed, _ = run.call("pack_padded", run.convert(draw(N, T, H, D), dtype), LENGTHS)
    read["packed of pack_padded"] = run.form("packed", packed)
    packed = run.convert(draw(5, H, D), dtype)
    read["x of unpack_padded"] = run.form("x", run.call("unpack_padded", packed, STARTS, T))
    read["out of varlen_attention"] = run.form(
        "out", run.call("varlen_attention", packed, packed, packed, STARTS, True)
    )
    assert_forms(student(run), read, "dtype", dtype, "float32")


# What is said where code looks at values, as `if mask.any()` does. It may: on CUDA there are some.
LOOKS_AT_VALUES = ("nonzero", "no data", "on meta tensors", "local_scalar_dense")


def assert_on_meta(student, run, read):
    """On the device "meta", which has shapes and no values: what is made elsewhere does not fit in."""
    try:
        trace = student(run)
    except Disagreement as error:
        if any(text in str(error) for text in LOOKS_AT_VALUES):
            return
        raise
    assert_forms(trace, read, "device", "meta", "meta")


@item("robust.device", requires=("batched.out", "tiled.out"), claim=True)
@pytest.mark.parametrize("name", DENSE)
def test_devices_are_kept(script, student, draw, name):
    """Masks, accumulators and results are made where the inputs are."""
    run = unread(script())
    run.no_grad()
    read = attention(run, draw, "meta", [name])
    assert_on_meta(student, run, read)


def extension(run, draw, to, names):
    """Calls of the extension's functions, with all that is given converted: what comes back, by name."""

    def given(*shape, dtype=to):
        return run.convert(draw(*shape), dtype) if dtype else draw(*shape)

    read, q = {}, [given(N, H, T, D) for _ in range(5)]
    if "tiled_attention_backward" in names:
        lse = given(N, H, T, dtype="float32" if to == "bfloat16" else to)
        found = run.call("tiled_attention_backward", *q, lse, True, 2, 2)
        for name, handle in zip(("dq", "dk", "dv"), found, strict=True):
            read[f"{name} of tiled_attention_backward"] = run.form(name, handle)
    if "TiledAttention" in names:
        out = run.new("TiledAttention").apply(*q[:3], True, 2, 2)
        read["out of TiledAttention"] = run.form("out", out)
    if "decode_attention" in names:
        lengths = run.convert(LENGTHS, to) if to == "meta" else LENGTHS
        out = run.call("decode_attention", given(N, 2 * H, 1, D), *q[:2], lengths)
        read["out of decode_attention"] = run.form("out", out)
    return read


EXTENSION = ("tiled_attention_backward", "TiledAttention", "decode_attention")
of_the_extension = item(
    "robust.more", requires=("backward.dv", "backward.dq", "function.out", "decode.out"), claim=True
)


@of_the_extension
def test_inputs_of_the_extension(script, student, draw):
    """No call changes its arguments."""
    run = unread(script())
    run.no_grad()
    extension(run, draw, "", EXTENSION)
    assert_inputs_are_kept(run, student(run))


@of_the_extension
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtypes_of_the_extension(script, student, draw, dtype):
    """Every result has the dtype of the inputs."""
    run = unread(script())
    run.no_grad()
    read = extension(run, draw, dtype, EXTENSION)
    assert_forms(student(run), read, "dtype", dtype, dtype)


@of_the_extension
@pytest.mark.parametrize("name", ["tiled_attention_backward", "decode_attention"])
def test_devices_of_the_extension(script, student, draw, name):
    """Masks, accumulators and results are made where the inputs are."""
    run = unread(script())
    run.no_grad()
    read = extension(run, draw, "meta", [name])
    assert_on_meta(student, run, read)
