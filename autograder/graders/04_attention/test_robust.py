"""Inputs left alone, dtypes kept, and everything on the inputs' device."""

import numpy as np
import pytest
from softmark.plugin import Disagreement, item
from softmark.script import Output, Script

N, S, V, E, H = 2, 4, 5, 3, 3
MASK = np.array([[True, True, True, False], [True, False, False, False]])
SHAPES = {
    "embedding.weight": (V, E),
    "gru.weight_ih_l0": (3 * H, E),
    "gru.weight_hh_l0": (3 * H, H),
    "gru.bias_ih_l0": (3 * H,),
    "gru.bias_hh_l0": (3 * H,),
}


def modules(run, draw):
    """Every core module with random weights, by name."""
    shapes = {
        "Bahdanau": {"W_a.weight": (H, H), "U_a.weight": (H, H), "v_a.weight": (1, H)},
        "dot": {},
        "general": {"W_a.weight": (H, H)},
        "concat": {"W_a.weight": (H, 2 * H), "v_a.weight": (1, H)},
        "LuongDecoder": SHAPES | {"combine.weight": (H, 2 * H), "out.weight": (V, H)},
        "Encoder": SHAPES,
    }
    params = {name: {k: draw(*s) for k, s in each.items()} for name, each in shapes.items()}
    made = {"Bahdanau": run.new("BahdanauAttention", H, H, H, params=params["Bahdanau"])}
    for score in ("dot", "general", "concat"):
        made[score] = run.new("LuongAttention", H, H, score, params=params[score])
    made["LuongDecoder"] = run.new("LuongDecoder", V, E, H, params=params["LuongDecoder"])
    made["Encoder"] = run.new("Encoder", V, E, H, params=params["Encoder"])
    return made


def tokens(draw, *shape):
    return draw.rng.integers(V, size=shape)


@item("robust.inputs", claim=True)
def test_inputs_are_left_alone(script, student, draw):
    """No call changes its arguments, or the parameters of a module."""
    run = script()
    made = modules(run, draw)
    before = {name: run.parameters(module) for name, module in made.items()}
    run.call("masked_softmax", draw(2, 3, S), np.broadcast_to(MASK[:, None], (2, 3, S)).copy())
    for name in ("Bahdanau", "dot", "general", "concat"):
        made[name].forward(draw(N, H), draw(N, S, H), MASK)
    lengths = np.array([4, 2])
    made["Encoder"].forward(tokens(draw, N, S), lengths)
    made["LuongDecoder"].forward(tokens(draw, N, 1), draw(1, N, H), draw(N, S, H), MASK)
    whole = run.new("Seq2Seq", made["Encoder"], made["LuongDecoder"])
    logits = whole.forward(tokens(draw, N, S), lengths, tokens(draw, N, 3))
    after = {name: run.parameters(module) for name, module in made.items()}
    trace = student(run)
    assert np.any(trace[logits]), "The logits are 0 everywhere."
    for place, name in trace.modified:
        raise AssertionError(f"{run.steps[place].name} changes its argument {name} in place.")
    for name, handle in before.items():
        for key, value in trace[handle].items():
            same = np.array_equal(value, trace[after[name]][key])
            assert same, f"The parameter {key} of {name} was changed by a call."


def unread(run):
    """An empty Script whose results are not read: NumPy has neither bfloat16 nor devices."""
    calls = {
        name: tuple(Output(o.name, "private") for o in each) for name, each in run.calls.items()
    }
    return Script(calls)


def of_attention(run, draw, made, to, places=range(7)):
    """Calls of everything up to the decoder with all converted; floating results by name."""

    def given(*shape):
        return run.convert(draw(*shape), to)

    def plain(array):
        return run.convert(array, to) if to == "meta" else array

    if 0 in places:
        yield "masked_softmax", ("weights",), run.call("masked_softmax", given(N, S), plain(MASK))
    if 1 in places:
        yield "masked_softmax", ("weights",), run.call("masked_softmax", given(N, S))
    for place, name in enumerate(("Bahdanau", "dot", "general", "concat"), start=2):
        if place in places:
            found = made[name].forward(given(N, H), given(N, S, H), plain(MASK))
            yield name, ("context", "weights"), found
    if 6 in places:
        state, keys = given(1, N, H), given(N, S, H)
        found = made["LuongDecoder"].forward(plain(tokens(draw, N, 1)), state, keys, plain(MASK))
        yield "LuongDecoder", ("logits", "hidden", "weights"), found


def of_model(run, draw, made):
    """Calls of encoder and model; floating results by name."""
    src, lengths = tokens(draw, N, S), np.array([4, 2])
    yield "Encoder", ("outputs", "hidden"), made["Encoder"].forward(src, lengths)
    whole = run.new("Seq2Seq", made["Encoder"], made["LuongDecoder"])
    for T in (3, 1):
        yield "Seq2Seq", ("logits",), whole.forward(src, lengths, tokens(draw, N, T))


def converted(run, draw, to):
    """Every core module with random weights, converted."""
    made = modules(run, draw)
    for module in made.values():
        run.convert(module, to)
    return made


def forms(run, name, outputs, found):
    """Read the form of each floating result of a call."""
    handles = found if isinstance(found, tuple) else (found,)
    return {f"{o} of {name}": run.form(o, h) for o, h in zip(outputs, handles, strict=True)}


@item("robust.dtype", requires=("softmax.values", "encoder.outputs"), claim=True)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtypes_are_kept(script, student, draw, dtype):
    """Every floating result has the dtype of the inputs."""
    run = unread(script())
    made = converted(run, draw, dtype)
    read = {}
    for name, outputs, found in (
        *of_attention(run, draw, made, dtype),
        *of_model(run, draw, made),
    ):
        read |= forms(run, name, outputs, found)
    trace = student(run)
    for what, handle in read.items():
        came = trace[handle]["dtype"]
        assert came == dtype, f"{what} is {came} where everything given is {dtype}."


# What is said where code looks at values, as boolean indices do. It may: on CUDA there are some.
LOOKS_AT_VALUES = ("nonzero", "no data", "on meta tensors", "local_scalar_dense")


@item("robust.device", requires="softmax.values", claim=True)
def test_devices_are_kept(script, student, draw):
    """On the device "meta", which has shapes and no values: what is made elsewhere does not fit in."""
    for places in (range(7), *([place] for place in range(7))):
        run = unread(script())
        calls = list(of_attention(run, draw, converted(run, draw, "meta"), "meta", places))
        read = {}
        for name, outputs, found in calls:
            read |= forms(run, name, outputs, found)
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
