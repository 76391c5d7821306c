"""Things that do not show in the values: inputs left alone, dtype kept, no overflow."""

import numpy as np
from softmark.plugin import item
from softmark.script import Rng

# Zeros are finite, of the right dtype and change nothing: these count for those who compute the
# right values, or, in part, values that are alive.
FORWARD = ("step.candidate", "step.update", "step.reset", "step.forward.h", "sequence.forward.h")
SHAPES = [(4, 5, 2), (4, 3), (4, 5, 3)]  # x, h, dh


def everything(run, cell, x, h, dh):
    """One step and one sequence over x (N, T, D), there and back: every output but the grads."""
    h1, cache = cell.forward(x[:, 0], h)
    dx, dh_prev = cell.backward(dh[:, 0], cache)
    hs, caches = run.call("gru_forward", cell, x, h)
    dxs, dh0 = run.call("gru_backward", cell, dh, caches)
    step = {"h": h1, "dx": dx, "dh_prev": dh_prev}
    return step | {"h of the sequence": hs, "dx of the sequence": dxs, "dh0": dh0}


def new_cell(run, params):
    """A cell with these parameters and gradients of zero."""
    cell = run.new("GRUCell", 2, 3, Rng(0), params=params)
    cell.zero_grad()
    return cell


def add_two(run, draw):
    """Two more runs of everything, which differ in x alone."""
    params = draw.params("GRUCell", 2, 3, Rng(0))
    x, *rest = (draw(*shape) for shape in SHAPES)
    return [everything(run, new_cell(run, params), given, *rest) for given in (x, x + 1)]


def assert_alive(trace, runs):
    """No output is the same for another x."""
    first, second = runs
    for name in first:
        assert not np.allclose(trace[first[name]], trace[second[name]]), f"{name} ignores x."


def use_arguments(run, draw):
    """Everything; the parameters as given and as read afterwards."""
    given = draw.params("GRUCell", 2, 3, Rng(0))
    cell = new_cell(run, given)
    everything(run, cell, *(draw(*shape) for shape in SHAPES))
    return given, run.read(cell.params)


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


def use_float32(run, draw):
    """Everything, with parameters and inputs in float32."""

    def single(a):
        return a.astype(np.float32)

    params = draw.params("GRUCell", 2, 3, Rng(0))
    cell = new_cell(run, {name: single(p) for name, p in params.items()})
    everything(run, cell, *(single(draw(*shape)) for shape in SHAPES))


@item("robust.dtype", depends=FORWARD)
def test_float32_stays_float32(script, agree, student, draw):
    """With parameters and inputs in float32 every output is float32."""
    run = script()
    use_float32(run, draw)
    agree(run, only="h")
    student(run)


@item("robust.dtype", follow_through=True)
def test_float32_stays_float32_in_the_students_step(script, student, draw):
    """The same without a look at the values, which must be alive."""
    run = script()
    use_float32(run, draw)
    runs = add_two(run, draw)
    assert_alive(student(run), runs)


def saturate(run, draw):
    """Everything with pre-activations of about 1e4, by name, and the gradients of the parameters."""
    params = {name: 1e4 * p for name, p in draw.params("GRUCell", 2, 3, Rng(0)).items()}
    cell = new_cell(run, params)
    outputs = everything(run, cell, *(draw(*shape) for shape in SHAPES))
    return outputs, run.read(cell.grads)


def assert_finite(trace, outputs, read):
    """No NaN, nothing infinite, and no warning on the way."""
    overflow = [w for w in trace.warnings if w.category == "RuntimeWarning"]
    assert not overflow, (
        f"A RuntimeWarning with gates far into saturation: {overflow[0].message}. np.where computes "
        "both of its branches; only take exp of numbers that are not positive."
    )
    values = {name: trace[out] for name, out in outputs.items()}
    values |= {f'grads["{key}"]': grad for key, grad in trace[read].items()}
    for name, value in values.items():
        assert np.isfinite(value).all(), f"{name} is not finite with gates far into saturation."


@item("robust.saturated", depends=FORWARD, claim=True)
def test_saturated_gates(script, agree, student, draw):
    """Pre-activations of about 1e4 either way: finite values and gradients, and no warning."""
    run = script()
    outputs, read = saturate(run, draw)
    # and the values where gates are open, since in saturation many mistakes vanish
    cell = new_cell(run, draw.params("GRUCell", 2, 3, Rng(0)))
    cell.forward(draw(4, 2), draw(4, 3))
    run.call("gru_forward", cell, draw(4, 2, 2), draw(4, 3))
    agree(run, only="h")
    assert_finite(student(run), outputs, read)


@item("robust.saturated", follow_through=True)
def test_saturated_gates_of_the_students_step(script, student, draw):
    """The same without a look at the values, which must be alive where gates are not saturated."""
    run = script()
    outputs, read = saturate(run, draw)
    runs = add_two(run, draw)
    trace = student(run)
    assert_finite(trace, outputs, read)
    assert_alive(trace, runs)
