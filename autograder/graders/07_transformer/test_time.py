"""Time on a GPU, against the reference's: float32 without TF32, and bfloat16.

A token takes 24 E² + 4 T E = 27 · 10⁶ operations in a block forward, and three times as many there
and back; norms, sums and the feed-forward layer read or write its E numbers about 60 times. Where a
GPU does 50 and 600 · 10¹² operations and moves 4 · 10¹² bytes a second, four times 16384 tokens
forward take 40 and 5 ms, and four times 8192 there and back 60 and 7. The mixture does 18 E d_ff
operations for each token and expert: 12 ms. Its kernels are started in 5, more than they take in
bfloat16: it is timed in float32 alone. Decoding, whose 32 steps copy and read caches of 270 MiB a
layer in float32, takes 20 to 30 ms, on the fastest GPUs for the start of its kernels. Inputs, up to
5 · 10⁷ numbers that are made anew, take 1 ms at 5 · 10¹⁰ a second. Outputs have up to 256 MiB, a
quarter of a second of hashing: they are weighed. No worker takes more than 2.5 GiB, so that two fit
into 8.
"""

import numpy as np
import pytest
from softmark.plugin import item
from softmark.script import Instance

# The relative Frobenius error that outputs may have: right blocks are 1e-6 and 0.01 apart. On the way
# back rounding switches a relu on or off, in one of 10⁷ places in float32 and one of 10³ in bfloat16,
# which moves gradients by the root of that: right blocks are 3e-4 and 0.03 apart.
GATES = {
    "forward": {"float32": 1e-4, "bfloat16": 4e-2},
    "back": {"float32": 2e-3, "bfloat16": 1e-1},
}
each_dtype = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])


def linear(name, rows, columns, bias=True):
    """Shapes of the parameters of a linear layer."""
    return {f"{name}.weight": (rows, columns)} | ({f"{name}.bias": (rows,)} if bias else {})


def block(E, F):
    """Shapes of the parameters of an EncoderBlock."""
    shapes = linear("ffn.up", F, E) | linear("ffn.down", E, F)
    for name in "qkvo":
        shapes |= linear(f"self_attn.{name}_proj", E, E)
    for norm in ("norm1", "norm2"):
        shapes |= {f"{norm}.weight": (E,), f"{norm}.bias": (E,)}
    return shapes


def fresh(run, dtype, shapes, times=()):
    """Parameters that are made anew, scaled so that scores and activations are of the order of 1.

    ``times``: pairs of an end of names and what their scale is multiplied by.
    """
    params = {}
    for name, shape in shapes.items():
        scale = 0.1 if name.endswith("bias") else shape[-1] ** -0.5 if len(shape) > 1 else 1.0
        for end, more in times:
            scale *= more if name.endswith(end) else 1
        params[name] = run.fresh(name, *shape, dtype=dtype, scale=scale)
    return params


def new(run, device, dtype, name, *sizes):
    """An object whose parameters are on the device, and of the dtype."""
    made = run.new(name, *sizes)
    run.convert(made, device)
    run.convert(made, dtype)
    return made


# ---- the block -----------------------------------------------------------------------------------

E, H, F, T = 1024, 16, 4096, 512


@item("time.forward", requires="block.pre")
@each_dtype
def test_forward(script, timed, device, dtype):
    """Four times the same block, each time on what it gave before, without gradients."""
    run = script()
    made = new(run, device, dtype, "EncoderBlock", E, H, F)
    params, x = fresh(run, dtype, block(E, F)), run.fresh("x", 32, T, E, dtype=dtype)
    run.start_clock()
    run.assign(made, params)
    run.no_grad()
    for _ in range(4):
        x = made.forward(x)
        run.weigh(x)
    timed(run, gate=GATES["forward"][dtype], full=1.5, none=4)


@item("time.backward", requires=("block.pre", "block.gradients"))
@each_dtype
def test_backward(script, timed, device, dtype):
    """Four batches there and back, each from a gradient that is out itself; parameters' add up.

    The gradient of the bias of k is left out: it is 0, but for what rounding leaves.
    """
    run = script()
    made = new(run, device, dtype, "EncoderBlock", E, H, F)
    params = fresh(run, dtype, block(E, F))
    batches = [run.fresh("x", 16, T, E, dtype=dtype, gradient=True) for _ in range(4)]
    run.start_clock()
    run.assign(made, params)
    for x in batches:
        out = made.forward(x)
        run.weigh(out)
        run.backward((out, out))
    of_params = run.gradients(made, without=["self_attn.k_proj.bias"])
    for gradient in (*map(run.gradient, batches), of_params):
        run.weigh(gradient)
    timed(run, gate=GATES["back"][dtype], full=1.5, none=4)


# ---- generation with caches ----------------------------------------------------------------------

# V, E, h, d_ff, layers, max_len; N, the prompt's length, and tokens to write
SIZES, N, PROMPT, NEW = (512, 512, 8, 1024, 2, 576), 128, 512, 32


def model(run, device, dtype):
    """A language model, and parameters with which what it writes hangs on all that it has read."""
    V, E, _, F, layers, max_len = SIZES
    shapes = {"embed.weight": (V, E), "positions.weight": (max_len, E)}
    shapes |= {"final_norm.weight": (E,), "final_norm.bias": (E,)}
    for i in range(layers):
        shapes |= {f"blocks.{i}.{name}": shape for name, shape in block(E, F).items()}
    times = (("o_proj.weight", 4.0), ("down.weight", 0.1), ("bias", 0.2))
    params = fresh(run, dtype, shapes, times)
    params["out.weight"] = params["embed.weight"]
    return new(run, device, dtype, "TransformerLM", *SIZES), params


@item("time.generate", requires=("generate.greedy", "generate.cost", "lm.cache"))
def test_generate(script, timed, device):
    """Without draws, in float32.

    Two logits that rounding brings into another order, now and then, change all of a row that comes
    after. The new tokens are a sixteenth of all, and where every one is another the error is 0.15: the
    gate lets a few rows of 128 differ. In bfloat16 most rows would.
    """
    run = script()
    made, params = model(run, device, "float32")
    prompt = run.fresh("prompt", N, PROMPT, dtype="int64", below=SIZES[0])
    run.start_clock()
    run.assign(made, params)
    run.call("generate", made, prompt, NEW, temperature=0.0)
    timed(run, gate=0.05, full=1.5, none=4)


@item("time.generate", requires=("generate.greedy", "generate.cost", "lm.cache"))
def test_steps(script, timed, device):
    """The same steps in bfloat16, with tokens that are given: their logits are compared.

    Those of right models are 0.04 apart.
    """
    run = script()
    made, params = model(run, device, "bfloat16")
    lengths = [PROMPT] + [1] * (NEW - 1)
    tokens = [run.fresh("tokens", N, T, dtype="int64", below=SIZES[0]) for T in lengths]
    run.start_clock()
    run.assign(made, params)
    run.no_grad()
    caches = [run.new("KVCache") for _ in range(SIZES[4])]
    for each in tokens:
        run.weigh(made.forward(each, caches))
    timed(run, gate=0.1, full=1.5, none=4)


# ---- the mixture of experts ----------------------------------------------------------------------

EXPERTS, D_FF, TOP_K = 8, 1024, 2


@item("time.experts", requires=("moe.out", "moe.balance", "moe.gradients", "moe.cost"))
def test_experts(script, timed, draw, device):
    """There and back, from gradients that are both results themselves, in float32.

    Tokens that lie between two experts would go to either, by how logits are rounded. So the router
    stays what it is, its rows orthonormal, and the logits of each token are -3.5, -2.5, ... 3.5 in
    one of eight orders; what is made anew moves each of them by 0.1.
    """
    rows = np.linalg.qr(draw(E, EXPERTS))[0].T  # (experts, E)
    levels = np.arange(EXPERTS) - (EXPERTS - 1) / 2
    orders = np.array([np.roll(levels, i) for i in range(EXPERTS)]) @ rows  # (8, E)
    run = script()
    made = new(run, device, "float32", "MixtureOfExperts", E, D_FF, EXPERTS, TOP_K)
    there = [run.convert(run.convert(each, device), "float32") for each in (rows, orders[None])]
    base = Instance(run, "Tensor", there[1]).repeat(32, T // EXPERTS, 1)
    shapes = {}
    for i in range(EXPERTS):
        for name, size in (("gate", (D_FF, E)), ("up", (D_FF, E)), ("down", (E, D_FF))):
            shapes |= {f"experts.{i}.{name}.weight": size}
    params = fresh(run, "float32", shapes) | {"router.weight": there[0]}
    noise = run.fresh("x", 32, T, E, scale=0.1, gradient=True)
    run.start_clock()
    run.assign(made, params)
    out, loss = made.forward(run.add(noise, base))
    run.backward((out, out), (loss, loss))
    for output in (out, run.gradient(noise), run.gradients(made)):
        run.weigh(output)
    timed(run, gate=1e-4, full=1.5, none=4)
