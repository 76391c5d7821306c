"""Errors, inputs left alone, dtypes kept, and everything on the inputs' device."""

import numpy as np
import pytest
from softmark.plugin import item
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


@item("robust.errors")
@pytest.mark.parametrize("cached", [0, 4])
def test_past_max_len(script, agree, draw, cached):
    """max_len tokens are legal, one more is not; those in the caches count."""
    run = unread(script())
    made = run.new("TransformerLM", *LM)
    caches = [run.new("KVCache") for _ in range(LAYERS)] if cached else None
    if cached:
        made.forward(tokens(draw, N, cached), caches)
    else:
        made.forward(tokens(draw, N, MAX_LEN))
    made.forward.raises(tokens(draw, N, MAX_LEN - cached + 1), caches)
    agree(run)


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
    """Of generate; T + max_new_tokens - 1 may be as much as max_len, top_p may be 1."""
    run = unread(script())
    made = run.new("TransformerLM", *LM)
    if new == 5:
        run.call("generate", made, tokens(draw, N, T), 4, temperature=0)
        run.call("generate", made, tokens(draw, N, T), 1, top_p=1.0)
    run.raises("generate", made, tokens(draw, N, T), new, **more)
    agree(run)


@item("robust.inputs", claim=True)
def test_inputs_are_left_alone(script, student, draw):
    """No call changes its arguments, or the parameters of a module."""
    run = script()
    made = modules(run, draw)
    ids = tokens(draw, N, T)
    logits = made["TransformerLM"].forward(ids)
    parts = {name: module for name, module in made.items() if name != "TransformerLM"}
    before = {name: run.parameters(module) for name, module in parts.items()}
    for name in ("LayerNorm", "RMSNorm", "FeedForward", "SwiGLU"):
        out = made[name].forward(draw(N, T, E))
    made["EncoderBlock"].forward(draw(N, T, E), np.ones((T, T), dtype=bool))
    for more in ({"temperature": 0}, {"top_k": 2, "top_p": 0.5, "generator": Rng(3)}):
        run.call("generate", made["TransformerLM"], ids, 2, **more)
    again = made["TransformerLM"].forward(ids)
    after = {name: run.parameters(module) for name, module in parts.items()}
    trace = student(run)
    assert np.any(trace[out]), "What SwiGLU gives is 0 everywhere."
    for place, name in trace.modified:
        raise AssertionError(f"{run.steps[place].name} changes its argument {name} in place.")
    assert np.array_equal(trace[logits], trace[again]), (
        "After generate, the same tokens have other logits: something of the model was changed."
    )
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
def test_masked_lm_past_max_len(script, agree, draw):
    """max_len tokens are legal, one more is not."""
    run = unread(script())
    made = run.new("MaskedLM", *LM)
    lengths = np.array([3, 5])
    made.forward(tokens(draw, N, MAX_LEN), lengths)
    made.forward.raises(tokens(draw, N, MAX_LEN + 1), lengths)
    agree(run)


@item("extension.robust", claim=True)
def test_mask_tokens_leaves_its_tokens_alone(script, student, draw):
    """The inputs that it returns are a tensor of their own."""
    run = script()
    given = tokens(draw, 6, 5)
    run.call("mask_tokens", given, np.full(6, 5), V - 1, V, Rng(5), 0.9)
    trace = student(run)
    for _, name in trace.modified:
        raise AssertionError(f"mask_tokens changes its argument {name} in place.")
