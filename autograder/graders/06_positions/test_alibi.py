"""ALiBi: slopes for powers of two and for others; distances, the future, and the device."""

import numpy as np
from softmark.plugin import item
from softmark.script import Output

SIZES = [(4, 3, 5), (2, 5, 5), (3, 1, 6), (8, 4, 1), (1, 2, 3), (5, 6, 4)]  # (h, q_len, k_len)


@item("alibi.slopes")
def test_powers_of_two(script, agree):
    """2^(-8/h), 2^(-16/h), ..."""
    run = script()
    for h in (8, 1, 2, 4, 16):
        run.call("alibi_slopes", h)
    agree(run)


@item("alibi.any_heads", depends="alibi.slopes")
def test_other_numbers_of_heads(script, agree):
    """The slopes of the next lower power of two, then every other one of twice as many."""
    run = script()
    for h in (3, 5, 6, 7, 9, 12, 20):
        run.call("alibi_slopes", h)
    agree(run)


def biases(run):
    """Slopes and bias for every size."""
    return [
        (*size, run.call("alibi_slopes", size[0]), run.call("alibi_bias", *size)) for size in SIZES
    ]


def distances(q_len, k_len):
    """How far each key is behind each query; negative in the future."""
    return np.arange(q_len)[:, None] + k_len - q_len - np.arange(k_len)


@item("alibi.bias", depends="alibi.slopes", draws="bias")
def test_bias(script, student):
    """Minus the submission's own slope times the distance, up to the query."""
    run = script()
    found = biases(run)
    trace = student(run)
    for _, q_len, k_len, slopes, bias in found:
        distance = distances(q_len, k_len)
        past, own = distance >= 0, trace[slopes]
        assert np.all(own > 0), "The slopes must be above 0."
        due = -own[:, None] * distance[past]
        assert np.allclose(trace[bias][:, past], due, 1e-9, 1e-12), (
            f"With q_len = {q_len} and k_len = {k_len} the bias is not minus the head's slope times "
            "the distance to the key: the last query stands where the last key does."
        )


@item("alibi.future", draws="bias")
def test_future(script, student):
    """-inf after the query, finite up to it."""
    run = script()
    found = biases(run)
    trace = student(run)
    for _, q_len, k_len, _, bias in found:
        future = distances(q_len, k_len) < 0
        assert np.all(trace[bias][:, future] == -np.inf), (
            f"With q_len = {q_len} and k_len = {k_len} keys after the query must have -inf."
        )
        assert np.isfinite(trace[bias][:, ~future]).all(), (
            f"With q_len = {q_len} and k_len = {k_len} the bias is not finite up to the query."
        )


@item("alibi.device", claim=True)
def test_device(script, student):
    """Made where it is asked for."""
    run = script()
    here = run.call("alibi_bias", 4, 3, 5)
    private = {"alibi_bias": (Output("bias", "private"),)}
    run.calls = {**run.calls, **private}
    form = run.form("bias", run.call("alibi_bias", 4, 3, 5, device="meta"))
    trace = student(run)
    came = trace[form]["device"]
    assert came == "meta", f"With device = meta the bias is on {came}."
    finite = trace[here][np.isfinite(trace[here])]
    assert finite.size and np.ptp(finite) > 0, "The bias is the same everywhere."
