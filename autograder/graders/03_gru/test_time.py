"""The twin's time on a GPU, against the reference's: float32 without TF32, and bfloat16.

Reckoned for a large GPU, 50 and 600 · 10¹² operations a second: a step is two products,
6 and 26 · 10⁹ operations in 130 and 43 µs, beside which starting a dozen small kernels takes 80. All
steps take 6 and 4 ms, and making 2 and 4 · 10⁷ normals about 1: N and H are large for that, and T
is small. h, 64 and 128 MiB, would be hashed for a tenth of a second: it is weighed. Forward and
backward keep some 15 arrays of its size, so that the workers of two fit into 8 GiB.
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
    """Parameters, x and h0. Matrices are scaled so that gates do not saturate."""
    kinds, scale = {"dtype": dtype, "gradient": gradient}, (D + H) ** -0.5
    params = {
        "W": run.fresh("W", D + H, 2 * H, scale=scale, **kinds),
        "b": run.fresh("b", 2 * H, **kinds),
        "W_h": run.fresh("W_h", D + H, H, scale=scale, **kinds),
        "b_h": run.fresh("b_h", H, **kinds),
    }
    return params, run.fresh("x", N, T, D, **kinds), run.fresh("h0", N, H, **kinds)


@item("time.forward", requires="twin.forward")
@each_dtype
def test_forward(twin, timed, dtype, N, gate):
    """A batch without a mask."""
    run = twin()
    given = fresh(run, dtype, N)
    run.start_clock()
    run.weigh(run.call("gru_forward_torch", *given))
    timed(run, gate=gate, full=1.5, none=4)


@item("time.backward", requires=("twin.forward", "twin.backward"))
@each_dtype
def test_backward(twin, timed, dtype, N, gate):
    """Forward, then backward from a gradient that is h itself."""
    run = twin()
    params, *others = given = fresh(run, dtype, N, gradient=True)
    run.start_clock()
    h = run.call("gru_forward_torch", *given)
    run.backward((h, h))
    for output in (h, *map(run.gradient, (*others, *params.values()))):
        run.weigh(output)
    timed(run, gate=gate, full=1.5, none=4)
