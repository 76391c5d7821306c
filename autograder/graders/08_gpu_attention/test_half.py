"""tiled_attention and its gradients for bfloat16 inputs, against float64."""

from dataclasses import replace

import numpy as np
from softmark.plugin import item
from softmark.script import Script

T, D = 256, 8
# Added one by one in bfloat16, with its 8 bits, numbers of one size no longer add up after 256 to 512.
BACK = 640
ERROR = 0.01  # relative, of Frobenius norms


def rounded(array):
    """Numbers that bfloat16 has, in float64."""
    bits = array.astype(np.float32).view(np.uint32)
    return ((bits + 0x8000) & 0xFFFF0000).view(np.float32).astype(np.float64)


def unread(run):
    """An empty Script in which results are converted before they are read: NumPy has no bfloat16."""
    private = {
        name: tuple(replace(o, kind="private") for o in each) for name, each in run.calls.items()
    }
    made = Script(private)
    made.no_grad()
    return made


def assert_near(name, found, due):
    off = np.linalg.norm(found - due) / np.linalg.norm(due)
    assert off <= ERROR, (
        f"For bfloat16 inputs {name} is off by {off:.1%} of itself from that for the same numbers in "
        f"float64; {ERROR:.0%} is allowed. Are sums over blocks kept in bfloat16?"
    )


@item("tiled.half", requires="tiled.out")
def test_sums_are_kept_in_float32(script, student, draw):
    """With blocks of two keys, and many of them."""
    run = unread(script())
    given = rounded(draw(1, 1, 4, D)), rounded(draw(1, 1, T, D)), rounded(draw(1, 1, T, D) + 1.0)
    whole = run.show("out", run.call("tiled_attention", *given, False, 4, T)[0])
    halves = [run.convert(x, "bfloat16") for x in given]
    out, lse = run.call("tiled_attention", *halves, False, 4, 2)
    forms = [run.form(name, x) for name, x in (("out", out), ("lse", lse))]
    wide = run.show("out", run.convert(out, "float64"))
    trace = student(run)
    for name, form, due in zip(("out", "lse"), forms, ("bfloat16", "float32"), strict=True):
        came = trace[form]["dtype"]
        assert came == due, f"{name} is {came} for bfloat16 inputs; it should be {due}."
    assert_near("out", trace[wide], trace[whole])


@item("robust.more", requires=("backward.dv", "backward.dk"))
def test_sums_on_the_way_back_are_kept_in_float32(script, student, draw):
    """With blocks of one query, and many of them."""
    run = unread(script())
    dout = rounded(1 + 0.3 * draw(1, 1, BACK, D))
    given = [rounded(draw(1, 1, size, D)) for size in (BACK, 4, 4, BACK)]  # q, k, v, out
    given[0] /= 16  # the weights are all about 1/4
    scores = given[0] @ given[1].swapaxes(2, 3) / np.sqrt(D)
    lse = np.log(np.exp(scores).sum(-1)).astype(np.float32)
    name = "tiled_attention_backward"
    whole = run.call(name, dout, *given, lse.astype(np.float64), False, BACK, 4)
    halves = [run.convert(x, "bfloat16") for x in (dout, *given)]
    found = run.call(name, *halves, lse, False, 1, 4)
    pairs = [
        (name, run.show(name, run.convert(one, "float64")), run.show(name, two))
        for name, one, two in zip(("dq", "dk", "dv"), found, whole, strict=True)
    ]
    trace = student(run)
    for name, one, two in pairs:
        assert_near(name, trace[one], trace[two])
