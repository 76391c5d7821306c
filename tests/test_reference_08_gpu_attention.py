"""The reference of 08_gpu_attention and its right variants against oracles that share nothing with them.

The oracles are torch's own attention, autograd and gradcheck, brute force in Python's floats, one query
at a time, and the allocator's own record of what it gave out. The Triton kernel runs in Triton's
interpreter for the CPU, in a process of its own.
"""

import importlib.util
import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F  # noqa: N812
from torch.profiler import ProfilerActivity, profile

SOLUTION = Path(__file__).parents[1] / "solutions" / "08_gpu_attention"
FILES = [SOLUTION / "gpu_attention.py", *sorted((SOLUTION / "variants").glob("*/gpu_attention.py"))]
# The hidden graders compare the variants with the reference each time.
PARAMS = [FILES[0], *(pytest.param(file, marks=pytest.mark.slow) for file in FILES[1:])]
# N, h, Tq, Tk, d: all different, each of them 1 in turn, more queries than keys, and equal lengths
SIZES = [
    (2, 3, 5, 7, 4),
    (1, 2, 4, 6, 3),
    (2, 1, 6, 5, 3),
    (3, 2, 1, 5, 4),
    (2, 3, 4, 1, 5),
    (2, 3, 4, 5, 1),
    (2, 2, 7, 3, 5),
    (1, 2, 6, 6, 4),
    (1, 1, 1, 1, 1),
]
BLOCKS = [(1, 1), (2, 3), (4, 2), (3, 64), (64, 64)]


@pytest.fixture(autouse=True)
def float64():
    """Tensors are made in float64, from one seed, and run on one thread: they are small."""
    before = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before[0])
    torch.set_num_threads(before[1])


@pytest.fixture(params=PARAMS, ids=lambda path: path.parent.name)
def gpu(request):
    """The module under test: the reference, then each variant."""
    name = f"gpu_attention_of_{request.param.parent.name}"
    spec = importlib.util.spec_from_file_location(name, request.param)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


def drawn(N, h, Tq, Tk, d):
    return torch.randn(N, h, Tq, d), torch.randn(N, h, Tk, d), torch.randn(N, h, Tk, d)


def by_loop(q, k, v, causal):
    """out and lse, one query at a time, in Python's floats, over the keys that it may see."""
    (N, h, Tq, d), Tk = q.shape, k.shape[-2]
    out, lse = torch.zeros(N, h, Tq, d), torch.full((N, h, Tq), -math.inf)
    for n, i, t in itertools.product(range(N), range(h), range(Tq)):
        # counted from the end, the key comes no later than the query
        keys = [j for j in range(Tk) if not causal or Tk - 1 - j >= Tq - 1 - t]
        if not keys:
            continue
        rows = [math.fsum((q[n, i, t] * k[n, i, j]).tolist()) / math.sqrt(d) for j in keys]
        top = max(rows)
        total = math.fsum(math.exp(row - top) for row in rows)
        lse[n, i, t] = top + math.log(total)
        for j, row in zip(keys, rows, strict=True):
            out[n, i, t] += math.exp(row - top) / total * v[n, i, j]
    return out, lse


def mask_of(q, k, causal):
    Tq, Tk = q.shape[-2], k.shape[-2]
    return torch.ones(Tq, Tk).tril(Tk - Tq).bool() if causal else None


def allocated(call):
    """The most bytes that the allocator has out at one time while a function runs."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        call()
    events = [e for e in watched.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(itertools.accumulate((event.nbytes() for event in events), initial=0))


# ---- batched_attention ---------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_batched_query_by_query(gpu, size, causal):
    given = drawn(*size)
    before = [tensor.clone() for tensor in given]
    close(gpu.batched_attention(*given, causal=causal), by_loop(*given, causal)[0])
    assert all(map(torch.equal, before, given))


def test_batched_as_the_library_has_it(gpu):
    for Tq, Tk, causal in ((65, 130, True), (63, 63, True), (65, 1, False)):
        given = drawn(2, 3, Tq, Tk, 16)
        due = F.scaled_dot_product_attention(*given, mask_of(*given[:2], causal))
        close(gpu.batched_attention(*given, causal=causal), due)


def test_batched_far_out(gpu):
    q, k, v = drawn(2, 3, 5, 7, 4)
    for scale in (1e3, 1e5):
        close(gpu.batched_attention(scale * q, k, v), by_loop(scale * q, k, v, False)[0])


@pytest.mark.parametrize("size", [(1, 2, 3, 4, 2), (1, 2, 4, 2, 3)])
def test_batched_gradcheck(gpu, size):
    """Also where the first queries see nothing: no NaN comes back."""
    given = [tensor.requires_grad_() for tensor in drawn(*size)]
    assert torch.autograd.gradcheck(lambda *qkv: gpu.batched_attention(*qkv, causal=True), given)
    gpu.batched_attention(*given, causal=True).sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in given)


# ---- tiled_attention -----------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_tiled_query_by_query(gpu, size, causal):
    given = drawn(*size)
    before = [tensor.clone() for tensor in given]
    due = by_loop(*given, causal)
    for blocks in BLOCKS:
        close(tuple(gpu.tiled_attention(*given, causal, *blocks)), due)
    close(tuple(gpu.tiled_attention(*given, causal=causal)), due)
    assert all(map(torch.equal, before, given))


@pytest.mark.parametrize("Tq, Tk", [(1, 63), (63, 65), (65, 130), (130, 63), (64, 64)])
def test_tiled_as_the_library_has_it(gpu, Tq, Tk):
    given = drawn(2, 3, Tq, Tk, 40)
    scores = torch.einsum("nhqd,nhkd->nhqk", *given[:2]) / math.sqrt(40)
    for causal, blocks in itertools.product((False, True), ((16, 24), (64, 64), (24, 16))):
        out, lse = gpu.tiled_attention(*given, causal, *blocks)
        mask = mask_of(*given[:2], causal)
        empty = max(0, Tq - Tk) if causal else 0
        rows = given[0][:, :, empty:], *given[1:]
        due = F.scaled_dot_product_attention(*rows, None if mask is None else mask[empty:])
        close(out, F.pad(due, (0, 0, empty, 0)))
        hidden = torch.zeros(1).bool() if mask is None else ~mask
        close(lse, scores.masked_fill(hidden, -math.inf).logsumexp(-1))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("size", [1e1, 1e3, 1e5])
def test_tiled_with_scores_that_rise(gpu, size, sign):
    """Along the keys or against them: each block makes all before it small, or none after it counts."""
    q, k, v = drawn(1, 2, 3, 40, 4)
    q = q.abs() + 0.1
    k = sign * torch.linspace(0.5, 1, 40)[:, None] * torch.ones(1, 2, 1, 4) * size
    for causal in (False, True):
        due = by_loop(q, k, v, causal)
        for blocks in ((2, 3), (16, 16)):
            close(tuple(gpu.tiled_attention(q, k, v, causal, *blocks)), due)


def test_tiled_with_every_score_far_below_zero(gpu):
    q, k, v = (
        torch.full((1, 1, 3, 4), 50.0),
        torch.full((1, 1, 9, 4), -50.0),
        torch.randn(1, 1, 9, 4),
    )
    out, lse = gpu.tiled_attention(q, k, v, block_q=2, block_k=2)
    close(out, v.mean(2, keepdim=True).expand(1, 1, 3, 4))
    close(lse, torch.full((1, 1, 3), -5000 + math.log(9)))


# ---- memory --------------------------------------------------------------------------------------


def growth(call, few=256, many=1024):
    return allocated(lambda: call(many)) / allocated(lambda: call(few))


def inputs(T, d=8):
    generator = torch.Generator().manual_seed(T)
    return [torch.randn(1, 2, T, d, generator=generator) for _ in range(4)]


def test_stored_scores_grow_as_their_square(gpu):
    """What the measure says of naive attention: this is what the bounds below are for."""
    _, q, k, v = inputs(64)
    gpu.batched_attention(q, k, v)  # what is made once does not count

    def run(T):
        _, q, k, v = inputs(T)
        gpu.batched_attention(q, k, v)

    assert growth(run) > 10


@pytest.mark.parametrize(
    "causal, blocks", [(True, (64, 64)), (False, (128, 32)), (True, (32, 128))]
)
def test_tiled_memory_grows_as_the_tokens(gpu, blocks, causal):
    def run(T):
        _, q, k, v = inputs(T)
        gpu.tiled_attention(q, k, v, causal, *blocks)

    assert growth(run) < 5


@pytest.mark.parametrize("causal", [False, True])
def test_backward_memory_grows_as_the_tokens(gpu, causal):
    def run(T):
        dout, q, k, v = inputs(T)
        out, lse = dout, dout[..., 0]
        with torch.no_grad():
            gpu.tiled_attention_backward(dout, q, k, v, out, lse, causal, 64, 64)

    assert growth(run) < 5


def test_no_strip_is_made(gpu):
    """One block of queries: what a further key takes is some numbers of d, not block_q of them."""
    block_q, d = 256, 4

    def forward(Tk):
        q, k = inputs(block_q, d)[0], inputs(Tk, d)
        return allocated(lambda: gpu.tiled_attention(q, k[0], k[1], False, block_q, 16))

    def backward(Tk):
        q, k = inputs(block_q, d), inputs(Tk, d)
        lse = q[2][..., 0]
        return allocated(
            lambda: gpu.tiled_attention_backward(
                q[0], q[1], k[0], k[1], q[2], lse, False, block_q, 16
            )
        )

    for measure in (forward, backward):
        a_key = (measure(2048) - measure(512)) / (2048 - 512) / 8 / 2  # numbers, of a head
        assert a_key <= 6 * d < block_q


def test_what_is_kept_for_the_way_back(gpu):
    """q, k, v, out and lse: the graph's tensors, counted from outside of the function."""
    T, d = 128, 8
    q, k, v = (torch.randn(2, 3, T, d, requires_grad=True) for _ in range(3))
    out = gpu.TiledAttention.apply(q, k, v, True, 32, 16)
    kept = {each.data_ptr(): each.numel() for each in out.grad_fn.saved_tensors}
    assert sum(kept.values()) <= 2 * 3 * T * (4 * d + 1)


# ---- tiled_attention_backward --------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [size for size in SIZES if size[2] <= size[3]])
def test_backward_is_autograd_s(gpu, size, causal):
    """Of the library's own attention, with a gradient that is different for each output."""
    given = [tensor.requires_grad_() for tensor in drawn(*size)]
    whole = F.scaled_dot_product_attention(*given, mask_of(*given[:2], causal))
    dout = torch.randn_like(whole)
    due = torch.autograd.grad(whole, given, dout)
    given = [tensor.detach() for tensor in given]
    before = [tensor.clone() for tensor in (dout, *given)]
    for blocks in BLOCKS:
        with torch.no_grad():
            found = gpu.tiled_attention_backward(
                dout, *given, *by_loop(*given, causal), causal, *blocks
            )
        close(tuple(found), due)
    assert all(map(torch.equal, before, (dout, *given)))


@pytest.mark.parametrize("Tq, Tk", [(63, 65), (65, 130), (64, 64)])
def test_backward_is_autograd_s_for_longer_ones(gpu, Tq, Tk):
    given = [tensor.requires_grad_() for tensor in drawn(2, 3, Tq, Tk, 40)]
    whole = F.scaled_dot_product_attention(*given, mask_of(*given[:2], True))
    dout = torch.randn_like(whole)
    due = torch.autograd.grad(whole, given, dout)
    with torch.no_grad():
        out, lse = gpu.tiled_attention(*given, True, 64, 16)
        found = gpu.tiled_attention_backward(dout, *given, out, lse, True, 16, 24)
    close(tuple(found), due)


def test_backward_with_empty_rows(gpu):
    """The differences of out, computed by loops; nothing comes from rows that see nothing."""
    given, dout = drawn(1, 2, 6, 3, 2), torch.randn(1, 2, 6, 2)
    with torch.no_grad():
        found = gpu.tiled_attention_backward(dout, *given, *by_loop(*given, True), True, 2, 2)
    assert found[0][:, :, :3].count_nonzero() == 0
    for place, gradient in enumerate(found):
        assert gradient.isfinite().all()
        direction, eps = torch.randn(gradient.shape), 1e-5
        above, below = (
            by_loop(*given[:place], given[place] + s * eps * direction, *given[place + 1 :], True)[
                0
            ]
            for s in (1, -1)
        )
        slope = ((above - below) * dout).sum() / (2 * eps)
        torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-7, atol=1e-8)


def test_backward_far_out(gpu):
    """Scores of 1000 that rise along the keys."""
    given = list(drawn(1, 2, 5, 9, 4))
    given[0], given[1] = given[0] * 100, given[1] + 10 * torch.linspace(0, 1, 9)[:, None]
    leaves = [tensor.clone().requires_grad_() for tensor in given]
    whole = F.scaled_dot_product_attention(*leaves)
    dout = torch.randn_like(whole)
    due = torch.autograd.grad(whole, leaves, dout)
    with torch.no_grad():
        found = gpu.tiled_attention_backward(dout, *given, *by_loop(*given, False), False, 2, 3)
    for one, other in zip(found, due, strict=True):  # autograd itself is off by some of the scores
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


# ---- TiledAttention ------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), (True,), (True, 2), (False, 2, 3), (True, 3, 2)])
@pytest.mark.parametrize("Tq, Tk", [(4, 5), (4, 2), (1, 1)])
def test_function_gradcheck(gpu, Tq, Tk, more):
    given = drawn(1, 2, Tq, Tk, 3)
    close(gpu.TiledAttention.apply(*given, *more), by_loop(*given, True in more[:1])[0])
    given = [tensor.requires_grad_() for tensor in given]
    assert torch.autograd.gradcheck(lambda *qkv: gpu.TiledAttention.apply(*qkv, *more), given)


def test_function_in_the_middle_of_a_graph(gpu):
    """Views that are not contiguous, one tensor thrice, and inputs that want no gradient."""
    x = torch.randn(2, 5, 3, 4, requires_grad=True)

    def loss(attend):
        q = x.transpose(1, 2)
        return (attend(q, q * 2, q.sin()) ** 2).sum()

    found = torch.autograd.grad(loss(lambda *qkv: gpu.TiledAttention.apply(*qkv, True, 2, 3)), x)
    due = torch.autograd.grad(
        loss(lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True)), x
    )
    close(found, due)
    q, k, v = drawn(1, 2, 3, 4, 5)
    gpu.TiledAttention.apply(q, k.requires_grad_(), v).sum().backward()
    assert k.grad is not None and q.grad is None and v.grad is None


# ---- packing and ragged batches ------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [(3, 0, 4, 1), (4,), (0, 0, 2), (1, 1), (0,), (0, 5, 0)])
def test_packing_token_by_token(gpu, lengths):
    T = max(*lengths, 1)
    x = torch.randn(len(lengths), T, 2, 3)
    packed, cu = gpu.pack_padded(x, torch.tensor(lengths))
    assert cu.dtype == torch.int32 and cu.tolist() == [0, *itertools.accumulate(lengths)]
    rows = [x[n, t] for n, length in enumerate(lengths) for t in range(length)]
    assert torch.equal(packed, torch.stack(rows) if rows else torch.zeros(0, 2, 3))
    for longer in (T, T + 2):
        back = gpu.unpack_padded(packed, cu, longer)
        assert back.shape == (len(lengths), longer, 2, 3)
        for n, length in enumerate(lengths):
            assert torch.equal(back[n, :length], x[n, :length])
            assert back[n, length:].count_nonzero() == 0


def test_packing_has_gradients(gpu):
    x = torch.randn(3, 4, 2, 3, requires_grad=True)
    lengths = torch.tensor([2, 0, 4])
    packed, cu = gpu.pack_padded(x, lengths)
    dout = torch.randn(3, 4, 2, 3)
    (gpu.unpack_padded(packed, cu, 4) * dout).sum().backward()
    close(x.grad, dout * (torch.arange(4) < lengths[:, None])[..., None, None])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(3, 0, 5, 1), (4,), (1, 1, 1), (0, 2)])
def test_varlen_sequence_by_sequence(gpu, lengths, causal):
    total, cu = sum(lengths), [0, *itertools.accumulate(lengths)]
    q, k, v = (torch.randn(total, 2, 3) for _ in range(3))
    before = [tensor.clone() for tensor in (q, k, v)]
    found = gpu.varlen_attention(q, k, v, torch.tensor(cu, dtype=torch.int32), causal=causal)
    assert found.shape == (total, 2, 3)
    for start, end in itertools.pairwise(cu):
        if end > start:
            alone = [each[start:end].transpose(0, 1)[None] for each in (q, k, v)]
            close(found[start:end], by_loop(*alone, causal)[0][0].transpose(0, 1))
    assert all(map(torch.equal, before, (q, k, v)))


# ---- decode_attention ----------------------------------------------------------------------------


@pytest.mark.parametrize("room", [7, 12])
@pytest.mark.parametrize("h, h_kv", [(6, 1), (6, 2), (6, 3), (4, 4), (1, 1)])
def test_decoding_head_by_head(gpu, h, h_kv, room):
    """With what is arbitrary behind each length, in a cache that may be longer than L."""
    q, lengths = torch.randn(4, h, 1, 5), torch.tensor([4, 1, 0, 7])
    k, v = (1e4 * torch.randn(2, 4, h_kv, room, 5))[:, :, :, :7]
    for n, length in enumerate(lengths.tolist()):
        k[n, :, :length] /= 1e4
        v[n, :, :length] /= 1e4
    before = [tensor.clone() for tensor in (q, k, v, lengths)]
    found = gpu.decode_attention(q, k, v, lengths)
    assert found.shape == (4, h, 1, 5)
    for n, i in itertools.product(range(4), range(h)):
        part = slice(n, n + 1), slice(i // (h // h_kv), i // (h // h_kv) + 1), slice(lengths[n])
        due, _ = by_loop(q[n : n + 1, i : i + 1], k[part], v[part], False)
        close(found[n : n + 1, i : i + 1], due)
    assert all(map(torch.equal, before, (q, k, v, lengths)))


@pytest.mark.parametrize("room", [1000, 1500])
def test_decoding_copies_no_cache(gpu, room):
    k, v = torch.randn(2, 2, 2, room, 64)[:, :, :, :1000]
    given = torch.randn(2, 4, 1, 64), k, v, torch.tensor([1000, 600])
    gpu.decode_attention(*given)
    assert allocated(lambda: gpu.decode_attention(*given)) < 0.75 * 8 * k.numel()


# ---- dtype and device ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtypes(gpu, dtype):
    q, k, v = (tensor.to(dtype) for tensor in drawn(2, 4, 5, 7, 8))
    out, lse = gpu.tiled_attention(q, k, v, True, 2, 3)
    assert lse.dtype == torch.float32
    found = [out, gpu.batched_attention(q, k, v, True), gpu.TiledAttention.apply(q, k, v)]
    found += gpu.tiled_attention_backward(q, q, k, v, out, lse, True, 2, 3)
    packed, cu = gpu.pack_padded(k.transpose(1, 2), torch.tensor([3, 7]))
    found += [packed, gpu.unpack_padded(packed, cu, 9)]
    found += [gpu.varlen_attention(packed, packed, packed, cu)]
    found += [gpu.decode_attention(q[:, :, :1], k[:, :2], v[:, :2], torch.tensor([3, 7]))]
    assert {each.dtype for each in found} == {dtype}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rounds_once(gpu, dtype):
    """Errors in the Frobenius norm, against float64: forward near one rounding, backward near two."""
    unit = torch.finfo(dtype).eps / 2
    dout, *given = (torch.randn(1, 2, T, 32).to(dtype) for T in (130, 130, 700, 700))
    exact = [tensor.double().requires_grad_() for tensor in given]
    due = F.scaled_dot_product_attention(*exact)
    gradients = torch.autograd.grad(due, exact, dout.double())
    out, lse = gpu.tiled_attention(*given, False, 16, 16)

    def off(found, due):
        return ((found.double() - due).norm() / due.norm()).item()

    assert off(out, due) < unit
    assert off(gpu.batched_attention(*given), due) < 8 * unit
    with torch.no_grad():
        found = gpu.tiled_attention_backward(dout, *given, out, lse, False, 16, 16)
    for one, other in zip(found, gradients, strict=True):
        assert off(one, other) < 3 * unit


def test_everything_stays_on_the_device(gpu):
    """On meta; code that looks at values cannot be tried there."""
    q, k, v = (tensor.to("meta") for tensor in drawn(2, 3, 5, 7, 4))
    calls = {
        "batched": lambda: gpu.batched_attention(q, k, v, True),
        "tiled": lambda: gpu.tiled_attention(q, k, v, True, 2, 3),
        "backward": lambda: gpu.tiled_attention_backward(
            q, q, k, v, q, torch.empty(2, 3, 5, device="meta"), True, 2, 3
        ),
        "decode": lambda: gpu.decode_attention(
            q[:, :, :1], k[:, :1], v[:, :1], torch.ones(2, dtype=torch.int64, device="meta")
        ),
    }
    for call in calls.values():
        try:
            made = call()
        except (NotImplementedError, RuntimeError) as error:
            assert any(text in str(error) for text in ("nonzero", "no data", "on meta tensors"))
            continue
        made = (made,) if isinstance(made, torch.Tensor) else made
        assert {tensor.device.type for tensor in made} == {"meta"}


# ---- triton_attention ----------------------------------------------------------------------------

KERNELS = [file for file in FILES if "@triton.jit" in file.read_text("utf-8")]
# In a process of its own: Triton reads the variable when a kernel is defined.
INTERPRETED = """
import importlib.util, json, sys
import torch
from torch.nn import functional as F

spec = importlib.util.spec_from_file_location("gpu_attention", sys.argv[1])
gpu_attention = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpu_attention)
torch.manual_seed(0)
found = {}
sizes = (1, 2, 5, 7, 16), (2, 1, 65, 130, 8), (1, 1, 33, 33, 40), (1, 1, 1, 3, 64), (2, 2, 9, 4, 16)
for size in sizes:
    for causal in (False, True):
        for dtype in (torch.float32, torch.float16):  # the interpreter's tl.dot has no bfloat16
            N, h, Tq, Tk, d = size
            given = [torch.randn(N, h, T, d).to(dtype) for T in (Tq, Tk, Tk)]
            out = gpu_attention.triton_attention(*given, causal=causal)
            empty = max(0, Tq - Tk) if causal else 0
            q, k, v = (tensor.double() for tensor in given)
            mask = torch.ones(Tq, Tk).tril(Tk - Tq).bool()[empty:] if causal else None
            due = F.scaled_dot_product_attention(q[:, :, empty:], k, v, mask)
            due = F.pad(due, (0, 0, empty, 0))
            off = ((out.double() - due).norm() / due.norm()).item()
            same = out.dtype == dtype and out.shape == due.shape and not out[:, :, :empty].any().item()
            found[f"{size} {causal} {dtype}"] = [off, bool(same)]
print(json.dumps(found))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="Triton is not installed here: pip install triton, on Linux",
)
@pytest.mark.parametrize("file", KERNELS, ids=lambda path: path.parent.name)
def test_the_kernel_in_triton_s_interpreter(file):
    """Against torch's attention in float64, with lengths and sizes of heads that no block divides."""
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED, str(file)],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 20
    for what, (off, same) in found.items():
        assert same and off < (1e-3 if "float16" in what else 1e-5), (what, off)


@pytest.mark.parametrize("file", KERNELS, ids=lambda path: path.parent.name)
def test_it_is_imported_where_there_is_no_triton(file):
    """With Triton hidden, all but the kernel is there."""
    code = (
        "import sys; sys.modules['triton'] = None; import importlib.util, torch; "
        "spec = importlib.util.spec_from_file_location('gpu_attention', sys.argv[1]); "
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module); "
        "x = torch.ones(1, 1, 2, 3); print(round(module.tiled_attention(x, x, x)[0].sum().item(), 3))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "6.0"
