"""The logistic function: values, shapes, and the far ends."""

import numpy as np
from softmark.plugin import item


@item("sigmoid.values")
def test_values_on_any_shape(script, agree, draw):
    """Right on both sides of zero, for arrays of 0 to 4 dimensions and one in Fortran order."""
    run = script()
    for shape in [(), (1,), (7,), (3, 5), (2, 3, 4), (2, 1, 3, 2)]:
        run.call("sigmoid", np.asarray(4 * draw(*shape)))
    run.call("sigmoid", np.asfortranarray(draw(4, 6)))
    agree(run)


@item("sigmoid.values")
def test_error_at_most_1e_12(script, agree, student, reference, draw):
    """Float64 accuracy everywhere: no clipping at moderate z, no float32 and no table inside."""
    z = np.concatenate([np.linspace(-40, 40, 801), draw(200), [0.0]])
    run = script()
    s = run.call("sigmoid", z)
    agree(run)
    error = np.abs(student(run)[s] - reference(run)[s]).max()
    assert error <= 1e-12, "s is off by more than 1e-12 somewhere between z = -40 and z = 40."


@item("sigmoid.stable", requires="sigmoid.values", claim=True)
def test_far_out(script, student):
    """Exactly 0 and 1 at -1e4 and 1e4 and beyond, finite and silent for any finite z."""
    far = np.array([1e4, 2e4, 1e8, 1e100, np.finfo(np.float64).max])
    steps = np.array([30.0, 36.0, 40.0, 100.0, 700.0, 709.0, 710.0, 745.0, 746.0, 800.0, 1000.0])
    run = script()
    low, high = run.call("sigmoid", -far), run.call("sigmoid", far)
    down, up = run.call("sigmoid", -steps), run.call("sigmoid", steps)
    mixed = run.call("sigmoid", np.array([[-1e4, 0.0, 1e4], [1000.0, -1000.0, 1.0]]))
    trace = student(run)
    overflow = [w for w in trace.warnings if w.category == "RuntimeWarning"]
    assert not overflow, (
        f"sigmoid warns for large z: {overflow[0].message}. np.where computes both of its "
        "branches; only take exp of numbers that are not positive."
    )
    for s in (low, high, down, up, mixed):
        assert isinstance(trace[s], np.ndarray), "sigmoid does not return an array."
        assert np.isfinite(trace[s]).all(), "sigmoid gives NaN or infinity for some finite z."
    assert (trace[low] == 0).all(), "sigmoid(-1e4) and below must be exactly 0."
    assert (trace[high] == 1).all(), "sigmoid(1e4) and above must be exactly 1."
    assert (trace[down] <= 1e-13).all(), "sigmoid(z) must go to 0 as z goes below -30."
    assert (trace[up] >= 1 - 1e-13).all(), "sigmoid(z) must go to 1 as z goes above 30."
