"""Things that do not show in the values: inputs left alone, dtype kept, no overflow."""

import numpy as np
from softmark.plugin import item
from softmark.script import Rng

# Zeros are finite, of the right dtype and change nothing: these count for those who compute.
FORWARD = ("step.forward.h", "sequence.forward.h")


def everything(run, cell, x, h, c, dh, dc):
    """One step and one sequence over x (N, T, D), there and back: every output but the grads."""
    h1, c1, cache = cell.forward(x[:, 0], h, c)
    step = cell.backward(dh[:, 0], dc, cache)
    hs, c_last, caches = run.call("lstm_forward", cell, x, h, c)
    sequence = run.call("lstm_backward", cell, dh, dc, caches)
    return {
        "h": h1,
        "c": c1,
        **dict(zip(("dx", "dh_prev", "dc_prev"), step, strict=True)),
        "h of the sequence": hs,
        "c_last": c_last,
        **dict(zip(("dx of the sequence", "dh0", "dc0"), sequence, strict=True)),
    }


@item("robust.inputs", requires=FORWARD, claim=True)
def test_inputs_are_left_alone(script, student, draw):
    """No argument and no parameter is written to, there or back."""
    run = script()
    given = draw.params("LSTMCell", 2, 3, Rng(0))
    cell = run.new("LSTMCell", 2, 3, Rng(0), params=given)
    everything(run, cell, draw(4, 5, 2), draw(4, 3), draw(4, 3), draw(4, 5, 3), draw(4, 3))
    after = run.read(cell.params)
    run.call("sigmoid", draw(4, 3))
    trace = student(run)
    changed = sorted({f"{which} of {run.steps[step].name}" for step, which in trace.modified})
    assert not changed, (
        f"Changed in place: {', '.join(changed)}. += and out= write into the array that the "
        "caller still uses; write a = a + b instead."
    )
    for key, before in given.items():
        assert np.array_equal(trace[after][key], before), (
            f'params["{key}"] is not what it was before forward and backward.'
        )


@item("robust.dtype", requires=FORWARD)
def test_float32_stays_float32(script, student, draw):
    """With parameters and inputs in float32 every output is float32."""
    run = script()

    def single(a):
        return a.astype(np.float32)

    params = {name: single(p) for name, p in draw.params("LSTMCell", 2, 3, Rng(0)).items()}
    cell = run.new("LSTMCell", 2, 3, Rng(0), params=params)
    shapes = [(4, 5, 2), (4, 3), (4, 3), (4, 5, 3), (4, 3)]
    everything(run, cell, *(single(draw(*shape)) for shape in shapes))
    run.call("sigmoid", single(draw(4, 3)))
    student(run)


@item("robust.saturated", depends="sigmoid.stable", requires=FORWARD, claim=True)
def test_saturated_gates(script, student, draw):
    """Pre-activations of about 1e4 either way: finite values and gradients, and no warning."""
    run = script()
    params = {name: 1e4 * p for name, p in draw.params("LSTMCell", 2, 3, Rng(0)).items()}
    cell = run.new("LSTMCell", 2, 3, Rng(0), params=params)
    shapes = [(4, 5, 2), (4, 3), (4, 3), (4, 5, 3), (4, 3)]
    outputs = everything(run, cell, *(draw(*shape) for shape in shapes))
    read = run.read(cell.grads)
    trace = student(run)
    overflow = [w for w in trace.warnings if w.category == "RuntimeWarning"]
    assert not overflow, f"A RuntimeWarning with gates far into saturation: {overflow[0].message}."
    values = {name: trace[out] for name, out in outputs.items()}
    values |= {f'grads["{key}"]': grad for key, grad in trace[read].items()}
    for name, value in values.items():
        assert np.isfinite(value).all(), f"{name} is not finite with gates far into saturation."
