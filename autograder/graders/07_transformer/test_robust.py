"""Errors, inputs left alone, dtypes kept, and everything on the inputs' device."""

from dataclasses import replace

import numpy as np
import pytest
from softmark.plugin import Disagreement, item
from softmark.script import Output, Rng, Script

V, E, H, F, LAYERS, MAX_LEN = 5, 4, 2, 3, 1, 6
LM = (V, E, H, F, LAYERS, MAX_LEN)
N, T = 2, 3
MODULES = {
    "LayerNorm": (E,),
    "RMSNorm": (E,),
    "FeedForward": (E, F),
    "SwiGLU": (E, F),
    "EncoderBlock": (E, H, F),
    "TransformerLM": LM,
}


def modules(run, draw):
    """Every core module with random weights, by name."""
    made = {}
    for name, args in MODULES.items():
        params = draw.params(name, *args)
        if name == "TransformerLM":
            params["out.weight"] = params["embed.weight"]
        made[name] = run.new(name, *args, params=params)
    return made


def tokens(draw, *shape):
    return draw.rng.integers(V, size=shape)


def lost(failure):
    """Whether its process was lost, or there is nothing yet: then that is what to say."""
    return failure.cause not in (None, "error") or "is still to be written" in failure.message


def assert_ends(student, run, said):
    """Run it to its end; where it ends otherwise, say why that is due."""
    try:
        student(run)
    except Disagreement as error:
        failure = error.failure
        if lost(failure):
            raise
        raise Disagreement(replace(failure, message=f"{said} {failure.message}")) from None


def assert_legal(student, run, said):
    """No ValueError, and say why none is due. Another error is another item's."""
    try:
        student(run)
    except Disagreement as error:
        if lost(error.failure):
            raise
        told = error.failure.message
        assert "raised ValueError" not in told, f"{said} {told}"


@item("robust.errors")
@pytest.mark.parametrize("cached", [0, 4])
def test_as_many_as_max_len(script, student, draw, cached):
    """max_len tokens are legal, those in the caches counted."""
    run = unread(script())
    made = run.new("TransformerLM", *LM)
    caches = [run.new("KVCache") for _ in range(LAYERS)] if cached else None
    if cached:
        made.forward(tokens(draw, N, cached), caches)
    made.forward(tokens(draw, N, MAX_LEN - cached), caches)
    held = f", {cached} of them in the caches," if cached else ""
    assert_legal(
        student,
        run,
        f"{MAX_LEN} tokens{held} are legal where max_len is {MAX_LEN}: none is too many.",
    )


@item("robust.errors")
@pytest.mark.parametrize("cached", [0, 4])
def test_past_max_len(script, student, draw, cached):
    """One more than max_len is not legal; those in the caches count."""
    run = unread(script())
    made = run.new("TransformerLM", *LM)
    caches = [run.new("KVCache") for _ in range(LAYERS)] if cached else None
    if cached:
        made.forward(tokens(draw, N, cached), caches)
    made.forward.raises(tokens(draw, N, MAX_LEN - cached + 1), caches)
    held = f", {cached} of them in the caches," if cached else ""
    said = f"{MAX_LEN + 1} tokens{held} are one too many where max_len is {MAX_LEN}."
    assert_ends(student, run, said)


@item("robust.errors")
@pytest.mark.parametrize("T, new", [(T, MAX_LEN - T + 1), (MAX_LEN, 1)])
def test_written_to_the_end(script, student, draw, T, new):
    """T + max_new_tokens - 1 may be as much as max_len."""
    run = unread(script())
    made = run.new("TransformerLM", *LM)
    run.call("generate", made, tokens(draw, N, T), new, temperature=0)
    said = (
        f"To write {new} token{'s' * (new > 1)} after {T} is legal where max_len is {MAX_LEN}: the"
    )
    assert_legal(student, run, f"{said} last one is written and not fed back.")


@item("robust.errors")
@pytest.mark.parametrize(
    "new, more",
    [
        (2, {"temperature": -0.5}),
        (2, {"top_k": 0}),
        (2, {"top_p": 0.0}),
        (2, {"top_p": 1.1}),
        (2, {"temperature": 0, "top_k": 0}),
        (5, {"temperature": 0}),
    ],
)
def test_bad_arguments(script, agree, draw, new, more):
    """Of generate; T + max_new_tokens - 1 is more than max_len where 5 are to be written."""
    run = unread(script())
    made = run.new("TransformerLM", *LM)
    if "top_p" in more:  # which may be 1
        run.call("generate", made, tokens(draw, N, T), 1, top_p=1.0)
    run.raises("generate", made, tokens(draw, N, T), new, **more)
    agree(run)


@item("robust.inputs", claim=True)
def test_inputs_are_left_alone(script, student, draw):
    """No module changes its arguments, or its parameters."""
    run = script()
    made = modules(run, draw)
    parts = {name: module for name, module in made.items() if name != "TransformerLM"}
    before = {name: run.parameters(module) for name, module in parts.items()}
    for name in ("LayerNorm", "RMSNorm", "FeedForward", "SwiGLU"):
        out = made[name].forward(draw(N, T, E))
    made["EncoderBlock"].forward(draw(N, T, E), np.ones((T, T), dtype=bool))
    after = {name: run.parameters(module) for name, module in parts.items()}
    trace = student(run)
    assert np.any(trace[out]), "What SwiGLU gives is 0 everywhere."
    assert_arguments_kept(run, trace)
    for name, handle in before.items():
        for key, value in trace[handle].items():
            same = np.array_equal(value, trace[after[name]][key])
            assert same, f"The parameter {key} of {name} was changed by a call."


def assert_arguments_kept(run, trace):
    for place, name in trace.modified:
        raise AssertionError(f"{run.steps[place].name} changes its argument {name} in place.")


@item("robust.inputs", claim=True)
def test_generate_leaves_all_as_it_was(script, student, draw):
    """Neither its prompt nor the model is changed; where it raises an error, that is another item's."""
    run = script()
    made = modules(run, draw)["TransformerLM"]
    ids = tokens(draw, N, T)
    logits = made.forward(ids)
    for more in ({"temperature": 0}, {"top_k": 2, "top_p": 0.5, "generator": Rng(3)}):
        run.call("generate", made, ids, 2, **more)
    again = made.forward(ids)
    try:
        trace = student(run)
    except Disagreement:
        return
    assert_arguments_kept(run, trace)
    assert np.array_equal(trace[logits], trace[again]), (
        "After generate, the same tokens have other logits: something of the model was changed."
    )


def unread(run):
    """An empty Script whose results are not read: NumPy has neither bfloat16 nor devices."""
    calls = {
        name: tuple(Output(o.name, "private") for o in each) for name, each in run.calls.items()
    }
    return Script(calls)


def results(run, draw, to, names):
    """Forms of what every module of ``names`` gives, all converted."""
    made = {name: module for name, module in modules(run, draw).items() if name in names}
    read = {}
    for name, module in made.items():
        run.convert(module, to)
        if name == "TransformerLM":
            given = tokens(draw, N, T)
            given = run.convert(given, to) if to == "meta" else given
            read["the logits"] = run.form("logits", module.forward(given))
        else:
            found = module.forward(run.convert(draw(N, T, E), to))
            read[f"what {name} gives"] = run.form("out", found)
    return read


@item("robust.dtype", requires=("norm.layer", "ffn.relu"), claim=True)
def test_dtypes_are_kept(script, student, draw):
    """Every floating result has the dtype of the inputs."""
    dtype = "bfloat16"
    run = unread(script())
    read = results(run, draw, dtype, MODULES)
    trace = student(run)
    for what, handle in read.items():
        came = trace[handle]["dtype"]
        assert came == dtype, f"{what} is {came} where everything given is {dtype}."


@item("robust.device", requires=("norm.layer", "ffn.relu"), claim=True)
def test_devices_are_kept(script, student, draw):
    """On the device "meta", which has shapes and no values: what is made elsewhere does not fit in."""
    run = unread(script())
    read = results(run, draw, "meta", ("TransformerLM",))
    trace = student(run)
    for what, handle in read.items():
        came = trace[handle]["device"]
        assert came == "meta", f"{what} is on the device {came} where all given is on meta."


@item("extension.robust")
def test_masked_lm_past_max_len(script, student, draw):
    """max_len tokens are legal, one more is not."""
    lengths = np.array([3, 5])
    run = unread(script())
    run.new("MaskedLM", *LM).forward(tokens(draw, N, MAX_LEN), lengths)
    assert_legal(student, run, f"{MAX_LEN} tokens are legal where max_len is {MAX_LEN}.")
    run = unread(script())
    run.new("MaskedLM", *LM).forward.raises(tokens(draw, N, MAX_LEN + 1), lengths)
    said = f"{MAX_LEN + 1} tokens are one too many where max_len is {MAX_LEN}."
    assert_ends(student, run, said)


@item("extension.robust", claim=True)
def test_mask_tokens_leaves_its_tokens_alone(script, student, draw):
    """The inputs that it returns are a tensor of their own."""
    run = script()
    given = tokens(draw, 6, 5)
    run.call("mask_tokens", given, np.full(6, 5), V - 1, V, Rng(5), 0.9)
    trace = student(run)
    for _, name in trace.modified:
        raise AssertionError(f"mask_tokens changes its argument {name} in place.")
