"""The whole model's time on a GPU, against the reference's: float32 without TF32, and bfloat16.

Reckoned for a large GPU, 50 and 600 · 10¹² operations a second: a step of the decoder is 12 and
24 · 10⁹ operations, two thirds of them for the logits, in 240 and 40 µs, beside which starting some
25 kernels takes 150. All steps take 10 and 6 ms, and making 4 · 10⁷ normals about 1. The logits,
512 MiB, would be hashed for half a second: they are weighed. Forward and backward keep some 4
arrays of their size, so that the workers of two fit into 8 GiB.
"""

import pytest
from softmark.plugin import item

# source and target lengths, source and target vocabulary
S, T, V_SRC, V, E, H = 48, 33, 8192, 16384, 512, 1024
# dtype, N, and the relative Frobenius error that outputs may have. In bfloat16 every step rounds
# its state anew, and its part of each gradient, by up to 2⁻⁹: right models are 0.02 apart, and of
# what a wrong one gives, something is off by 0.3 or more. TF32 is off by some 3e-4.
DTYPES = [("float32", 256, 3e-5), ("bfloat16", 512, 6e-2)]
each_dtype = pytest.mark.parametrize(("dtype", "N", "gate"), DTYPES)


def shapes(V):
    """Of an embedding and a GRU."""
    return {
        "embedding.weight": (V, E),
        "gru.weight_ih_l0": (3 * H, E),
        "gru.weight_hh_l0": (3 * H, H),
        "gru.bias_ih_l0": (3 * H,),
        "gru.bias_hh_l0": (3 * H,),
    }


def fresh(run, dtype, of):
    """Parameters, scaled so that neither gates nor weights of attention saturate."""
    scales = {name: shape[-1] ** -0.5 for name, shape in of.items() if ".weight" in name}
    scales |= {"embedding.weight": 0.3}
    return {
        name: run.fresh(name, *shape, dtype=dtype, scale=scales.get(name, 0.1))
        for name, shape in of.items()
    }


def logits(run, draw, device, dtype, N):
    """Encoder, decoder and what they give for a ragged batch, from parameters that are made anew."""
    lengths = draw.rng.integers(1, S + 1, size=N)
    parts = [run.new("Encoder", V_SRC, E, H), run.new("LuongDecoder", V, E, H)]
    model = run.new("Seq2Seq", *parts)
    run.convert(model, device)
    run.convert(model, dtype)
    more = {"combine.weight": (H, 2 * H), "out.weight": (V, H)}
    params = [fresh(run, dtype, of) for of in (shapes(V_SRC), shapes(V) | more)]
    src = run.fresh("src", N, S, dtype="int64", below=V_SRC)
    tgt = run.fresh("tgt", N, T, dtype="int64", below=V)
    run.start_clock()
    for part, given in zip(parts, params, strict=True):
        run.assign(part, given)
    return parts, model.forward(src, lengths, tgt)


@item("time.forward", requires="seq2seq.logits")
@each_dtype
def test_forward(script, timed, draw, device, dtype, N, gate):
    """The logits of every step, with teacher forcing."""
    run = script()
    _, found = logits(run, draw, device, dtype, N)
    run.weigh(found)
    timed(run, gate=gate, full=1.5, none=4)


@item("time.backward", requires=("seq2seq.logits", "seq2seq.gradients"))
@each_dtype
def test_backward(script, timed, draw, device, dtype, N, gate):
    """Forward, then backward from a gradient that is the logits themselves, to every parameter."""
    run = script()
    parts, found = logits(run, draw, device, dtype, N)
    run.backward((found, found))
    for output in (found, *map(run.gradients, parts)):
        run.weigh(output)
    timed(run, gate=gate, full=1.5, none=4)
