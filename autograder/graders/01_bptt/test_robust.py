"""Things that do not show in the values: inputs left alone, dtype kept."""

import numpy as np
from softmark.plugin import item
from softmark.script import Rng

# Zeros are of the right dtype and change nothing: these count for those who compute the right values,
# or, in part, values that are alive.
FORWARD = ("step.forward.h", "sequence.forward.h")
N, T, E, H, V = 4, 5, 2, 3, 6


def drawn(draw, dtype=np.float64):
    """Parameters, and the arguments of every core function, by name."""
    params = draw.params("RNNCell", E, H, Rng(0))
    given = {"x": draw(N, T, E), "h0": draw(N, H), "dh": draw(N, T, H), "logits": draw(N, T, V)}
    given |= {"embedding": draw(V, E), "W_hy": draw(H, V), "b_y": draw(V), "grad": 9 * draw(H, E)}
    params, given = (
        {name: a.astype(dtype) for name, a in arrays.items()} for arrays in (params, given)
    )
    tokens = draw.rng.integers(V, size=(N, T))
    return params, given | {"tokens": tokens, "mask": np.arange(T) < np.array([[5], [2], [4], [1]])}


def everything(run, params, given):
    """Every core function once: its floating arrays by name; and the cell."""
    cell = run.new("RNNCell", E, H, Rng(0), params=params)
    cell.zero_grad()  # in the dtype of params
    x, h0, dh, tokens, mask = (given[name] for name in ("x", "h0", "dh", "tokens", "mask"))
    h, cache = cell.forward(x[:, 0], h0)
    dx, dh_prev = cell.backward(dh[:, 0], cache)
    hs, caches = run.call("rnn_forward", cell, x, h0)
    dxs, dh0 = run.call("rnn_backward", cell, dh, caches)
    _, dlogits = run.call("sequence_cross_entropy", given["logits"], tokens, mask)
    model = (given["embedding"], given["W_hy"], given["b_y"])
    run.call("rnn_lm_loss", cell, *model, tokens, mask, h0)
    run.call("clip_by_global_norm", {"a": given["grad"], "b": given["b_y"]}, 1.0)
    named = {"h": h, "dx": dx, "dh_prev": dh_prev, "h of the sequence": hs}
    return named | {"dx of the sequence": dxs, "dh0": dh0, "dlogits": dlogits}, cell


def add_two(run, draw):
    """Two more runs of everything, which differ in x and the logits alone."""
    params, given = drawn(draw)
    moved = given | {"x": given["x"] + 1, "logits": given["logits"] ** 2}
    return [everything(run, params, each)[0] for each in (given, moved)]


def assert_alive(trace, runs):
    """No output is the same for another x, nor dlogits for other logits."""
    first, second = runs
    for name in first:
        assert not np.allclose(trace[first[name]], trace[second[name]]), (
            f"{name} ignores its input."
        )


def use_arguments(run, draw):
    """Everything; the parameters as given and as read afterwards."""
    params, given = drawn(draw)
    _, cell = everything(run, params, given)
    return params, run.read(cell.params)


def assert_left_alone(run, trace, given, after):
    """No argument and no parameter was written to."""
    changed = sorted({f"{which} of {run.steps[step].name}" for step, which in trace.modified})
    assert not changed, (
        f"Changed in place: {', '.join(changed)}. += and out= write into the array that the "
        "caller still uses; write a = a + b instead."
    )
    for key, before in given.items():
        assert np.array_equal(trace[after][key], before), (
            f'params["{key}"] is not what it was before forward and backward.'
        )


@item("robust.inputs", depends=FORWARD, claim=True)
def test_inputs_are_left_alone(script, agree, student, draw):
    """No argument and no parameter is written to, there or back."""
    run = script()
    given, after = use_arguments(run, draw)
    agree(run, only="h")
    assert_left_alone(run, student(run), given, after)


@item("robust.inputs", follow_through=True)
def test_inputs_are_left_alone_by_the_students_step(script, student, draw):
    """The same without a look at the values, which must be alive."""
    run = script()
    given, after = use_arguments(run, draw)
    runs = add_two(run, draw)
    trace = student(run)
    assert_left_alone(run, trace, given, after)
    assert_alive(trace, runs)


@item("robust.dtype", depends=FORWARD)
def test_float32_stays_float32(script, agree, student, draw):
    """With everything in float32 every output is float32, and so is what is added to grads."""
    run = script()
    params, given = drawn(draw, np.float32)
    _, cell = everything(run, params, given)
    run.read(cell.grads)
    tokens, nothing = given["tokens"], np.zeros((N, T), bool)
    run.call("sequence_cross_entropy", given["logits"], tokens, nothing)
    agree(run, only="h")
    student(run)


@item("robust.dtype", follow_through=True)
def test_float32_stays_float32_in_the_students_step(script, student, draw):
    """The same without a look at the values, which must be alive."""
    run = script()
    _, cell = everything(run, *drawn(draw, np.float32))
    run.read(cell.grads)
    runs = add_two(run, draw)
    assert_alive(student(run), runs)
