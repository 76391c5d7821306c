"""The twin's time on a GPU, against the reference's: float32 without TF32, and bfloat16.

Reckoned for a large GPU, 50 and 600 · 10¹² operations a second: a step is one product,
9 and 34 · 10⁹ operations in 170 and 57 µs, beside which starting a dozen small kernels takes 80. All
steps take 8 and 4 ms, and making 3 and 4 · 10⁷ normals about 1: N and H are large for that, and T
is small. h, 64 and 128 MiB, would be hashed for a tenth of a second: it is weighed. Forward and
backward keep some 20 arrays of its size, so that the workers of two fit into 8 GiB.
"""

import pytest
from softmark.plugin import item

T, D, H = 32, 512, 2048
# dtype, N, and the relative Frobenius error that outputs may have. In bfloat16 every step rounds
# its state anew, and its part of each gradient, by up to 2⁻⁹: right twins are 0.02 apart, and of
# what a wrong one gives, something is off by 0.3 or more. TF32 is off by some 3e-4.
DTYPES = [("float32", 256, 3e-5), ("bfloat16", 1024, 6e-2)]
each_dtype = pytest.mark.parametrize(("dtype", "N", "gate"), DTYPES)


def fresh(run, dtype, N, gradient=False):
    """Parameters, x, h0 and c0. W is scaled so that gates do not saturate."""
    kinds = {"dtype": dtype, "gradient": gradient}
    params = {
        "W": run.fresh("W", D + H, 4 * H, scale=(D + H) ** -0.5, **kinds),
        "b": run.fresh("b", 4 * H, **kinds),
    }
    states = [run.fresh(name, N, H, **kinds) for name in ("h0", "c0")]
    return params, run.fresh("x", N, T, D, **kinds), *states


@item("time.forward", requires="twin.forward")
@each_dtype
def test_forward(twin, timed, dtype, N, gate):
    """A batch without a mask."""
    run = twin()
    given = fresh(run, dtype, N)
    run.start_clock()
    for output in run.call("lstm_forward_torch", *given):
        run.weigh(output)
    timed(run, gate=gate, full=1.5, none=4)


@item("time.backward", requires=("twin.forward", "twin.backward"))
@each_dtype
def test_backward(twin, timed, dtype, N, gate):
    """Forward, then backward from gradients that are h and c_last themselves."""
    run = twin()
    params, *others = given = fresh(run, dtype, N, gradient=True)
    run.start_clock()
    h, c_last = run.call("lstm_forward_torch", *given)
    run.backward((h, h), (c_last, c_last))
    for output in (h, c_last, *map(run.gradient, (*others, *params.values()))):
        run.weigh(output)
    timed(run, gate=gate, full=1.5, none=4)
