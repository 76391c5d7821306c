"""The sinusoidal table: values in single precision, bases, shifts, precision, and what it refuses."""

import re

import numpy as np
from softmark.plugin import item
from softmark.script import Output, Script

SIZES = [(7, 10), (1, 6), (5, 2), (3, 8)]  # (max_len, d_model)


def single(run, *tables):
    """Show tables in float32, named as the call's output: of more digits another item asks."""
    for table in tables:
        run.show("encoding", run.convert(table, "float32"), ("T", "E"))


def unread(run):
    """An empty Script of this topic whose results are read where they are shown alone."""
    calls = {
        name: tuple(Output(o.name, "private") for o in each) for name, each in run.calls.items()
    }
    return Script(calls)


@item("sinusoid.values")
def test_values(script, agree):
    """Sines in the even columns, cosines in the odd ones, from position 0 on."""
    run = unread(script())
    single(run, *(run.call("sinusoidal_encoding", *size) for size in SIZES))
    agree(run)


@item("sinusoid.base", depends="sinusoid.values")
def test_bases(script, agree, draw):
    """Other bases, as a whole number and by name."""
    run = unread(script())
    base = float(draw.rng.uniform(20, 900))
    found = [
        run.call("sinusoidal_encoding", 6, 8, base),
        run.call("sinusoidal_encoding", 5, 6, base=500000),
    ]
    single(run, *found)
    agree(run)


@item("sinusoid.shift", depends="sinusoid.values")
def test_shift(script, student):
    """The product of rows p and p + k is the same for every p: a shift is one rotation for all."""
    run = unread(script())
    table = run.call("sinusoidal_encoding", 40, 12)
    shown = run.show("encoding", run.convert(table, "float32"), ("T", "E"))
    rows = student(run)[shown].astype(float)
    products = rows @ rows.T
    for k in range(30):
        along = np.diagonal(products, k)
        assert np.allclose(along, along[0], rtol=0, atol=1e-4), (
            f"The product of rows p and p + {k} changes with p: do the sine and the cosine of a pair "
            "have the same frequency?"
        )
    first = products[0]
    assert first[0] > first[1] > first[2], "The products of rows do not fall with their distance."


@item("sinusoid.precision", depends="sinusoid.values")
def test_precision(script, agree):
    """All digits of float64, near and far out."""
    run = script()
    run.call("sinusoidal_encoding", 2100, 4)
    run.call("sinusoidal_encoding", 5, 10)
    agree(run)


@item("sinusoid.errors")
def test_odd_size(script, student):
    """An odd d_model is a ValueError that names it."""
    run = script()
    run.raises("sinusoidal_encoding", 4, 5)
    said = student(run).raised.message
    assert re.search(r"\bd_model\b", said), "The ValueError for an odd d_model must name d_model."
