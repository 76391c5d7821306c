"""Time on a GPU, against the reference's: float32 without TF32, and bfloat16.

Sizes keep what is made and sent short beside what is computed, and fit into 8 GiB.

A kernel takes 4 h T² d operations, 1.4 · 10¹¹ in float32 and 2.2 · 10¹² in float16, where a large GPU
does 50 and 600 · 10¹² a second. That is 3 and 4 ms for what uses it well, and some times as much for
a plain kernel. Inputs, 1 and 5 · 10⁷ numbers that are made anew, take 0.3 and 1 ms at 5 · 10¹⁰ a
second. out, 16 and 32 MiB, would be hashed for up to 30 ms: it is weighed. A program for each block
of 64 queries makes 1000 and 4000 of them, enough to fill any GPU.
"""

import pytest
from softmark.plugin import item

# The relative Frobenius error that outputs may have.
DTYPES = [("float32", 1e-4), ("bfloat16", 3e-2)]
each_dtype = pytest.mark.parametrize(("dtype", "gate"), DTYPES)


def fresh(run, dtype, N, h, Tq, Tk, d, gradient=False):
    """q, k and v."""
    sizes = {"q": Tq, "k": Tk, "v": Tk}
    return [
        run.fresh(name, N, h, T, d, dtype=dtype, gradient=gradient) for name, T in sizes.items()
    ]


@item("time.batched", requires=("batched.out", "batched.operators"))
@each_dtype
def test_batched(script, timed, dtype, gate):
    """Few queries and many keys."""
    run = script()
    given = fresh(run, dtype, 1, 8, 256, 131072, 64)
    run.start_clock()
    run.call("batched_attention", *given)
    timed(run, gate=gate, full=1.5, none=4)


@item("time.tiled", requires=("tiled.out", "tiled.memory"))
@each_dtype
def test_tiled(script, timed, dtype, gate):
    """The same in tiles."""
    run = script()
    given = fresh(run, dtype, 1, 8, 256, 131072, 64)
    run.start_clock()
    run.call("tiled_attention", *given, False, 256, 4096)
    timed(run, gate=gate, full=1.5, none=4)


@item("time.function", requires=("function.gradients", "function.saved"))
@each_dtype
def test_function(script, timed, draw, dtype, gate):
    """Forward, then backward from a gradient that is out itself."""
    run = script()
    given = fresh(run, dtype, 1, 1, 65536, 65536, 64, gradient=True)
    run.start_clock()
    out = run.new("TiledAttention").apply(*given, False, 4096, 4096)
    run.backward((out, out))
    for x in given:
        run.gradient(x)
    timed(run, gate=gate, full=1.5, none=4)


@item("time.decode", requires=("decode.out", "decode.memory"))
@each_dtype
def test_decode(script, timed, dtype, gate):
    """Sixteen steps with caches of 128 MiB each in float32."""
    run = script()
    N, h, shared, L, d = 4, 8, 2, 32768, 128
    caches = [run.fresh(name, N, shared, L, d, dtype=dtype) for name in ("k_cache", "v_cache")]
    queries = [run.fresh("q", N, h, 1, d, dtype=dtype) for _ in range(16)]
    lengths = run.fresh("lengths", N, dtype="int64", below=L + 1)
    run.start_clock()
    for q in queries:
        run.call("decode_attention", q, *caches, lengths)
    timed(run, gate=gate, full=1.5, none=4)


# Right kernels are 1e-6 and 5e-4 apart, and TF32 6e-4 from float32. In the place of bfloat16, which
# Triton's interpreter cannot multiply, so that nobody could try it without a GPU, there is float16.
@item("time.triton", requires="triton.values")
@pytest.mark.parametrize(
    ("dtype", "T", "gate"), [("float32", 8192, 1e-4), ("float16", 32768, 5e-3)]
)
def test_triton(script, timed, dtype, T, gate):
    """As many queries as keys."""
    run = script()
    given = fresh(run, dtype, 1, 8, T, T, 64)
    run.start_clock()
    run.weigh(run.call("triton_attention", *given))
    timed(run, gate=gate, full=1.5, none=4)
