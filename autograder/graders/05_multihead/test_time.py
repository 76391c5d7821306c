"""The layer's time on a GPU, against the reference's: float32 without TF32, and bfloat16.

A sample of T = 1024 tokens takes 8 T E² + 4 T² E = 13 · 10⁹ operations and makes h T² = 17 · 10⁶
scores, each of which is read or written about six times. Where a GPU does 50 and 600 · 10¹²
operations and moves 4 · 10¹² bytes a second, this is 350 µs in float32 and 70 in bfloat16: 64
samples forward take 22 and 5 ms; 24 there and back, which is three times as much, 25 and 5. Inputs,
7 and 3 · 10⁷ numbers that are made anew, take 1.4 and 0.6 ms at 5 · 10¹⁰ a second. Outputs have up
to 256 MiB, a quarter of a second of hashing: they are weighed. Two arrays of a batch's scores, of
512 MiB, are alive forward, and four of 384 MiB on the way back, so that two workers fit into 8 GiB.
"""

import pytest
from softmark.plugin import item

T, E, H = 1024, 1024, 16
# The relative Frobenius error that outputs may have: right layers are 1e-6 and 0.02 apart.
DTYPES = [("float32", 1e-4), ("bfloat16", 6e-2)]
each_dtype = pytest.mark.parametrize(("dtype", "gate"), DTYPES)


def layer(run, device, dtype):
    """The layer, and parameters that are made anew.

    It has no biases: that of v would hide what is attended to, a mean over many keys, and that of k has
    no gradient but what rounding leaves.
    """
    made = run.new("MultiHeadAttention", E, H, bias=False)
    run.convert(made, device)
    run.convert(made, dtype)
    names = [f"{part}_proj.weight" for part in "qkvo"]
    return made, {name: run.fresh(name, E, E, dtype=dtype, scale=E**-0.5) for name in names}


@item("time.forward", requires=("mha.self", "mha.operators"))
@each_dtype
def test_forward(script, timed, device, dtype, gate):
    """Eight batches, without gradients."""
    run = script()
    made, params = layer(run, device, dtype)
    batches = [run.fresh("query", 8, T, E, dtype=dtype) for _ in range(8)]
    run.start_clock()
    run.assign(made, params)
    run.no_grad()
    for x in batches:
        run.weigh(made.forward(x))
    timed(run, gate=gate, full=1.5, none=4)


@item("time.backward", requires=("mha.self", "mha.operators", "mha.gradients"))
@each_dtype
def test_backward(script, timed, device, dtype, gate):
    """Four batches there and back, each from a gradient that is out itself; parameters' add up."""
    run = script()
    made, params = layer(run, device, dtype)
    batches = [run.fresh("query", 6, T, E, dtype=dtype, gradient=True) for _ in range(4)]
    run.start_clock()
    run.assign(made, params)
    for x in batches:
        out = made.forward(x)
        run.weigh(out)
        run.backward((out, out))
    for gradient in (*map(run.gradient, batches), run.gradients(made)):
        run.weigh(gradient)
    timed(run, gate=gate, full=1.5, none=4)
