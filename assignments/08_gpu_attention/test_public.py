"""Public tests for attention in batches and blocks, in the order of the tasks. Run them here:

    softmark check                        the first thing to look at, with hints
    python -m pytest -x test_public.py    the same tests without the hints, up to the first that
                                          fails; extension and bonus not yet begun count as failures

"NotImplementedError: pack_padded" says that pack_padded is still to be written. The tests are yours to
read and to add to. They are fewer than the graders', and use other numbers. Core tasks come first (1 to
4), then the way back in blocks, the autograd function and decoding (extension, 6 to 8) and the kernel
(bonus, 9). They compare with torch's own attention and with autograd, which your gpu_attention.py may
not use, and need no GPU.
"""

import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from softmark.compare import check_close
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F  # noqa: N812
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is defined

sys.path.insert(0, str(Path(__file__).parent))  # the gpu_attention.py beside this file

import gpu_attention

LN2, LN3, LN6 = math.log(2), math.log(3), math.log(6)
QUERIES = "N", "h", "Tq", "d"
both_ways = pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])


@pytest.fixture(autouse=True)
def float64():
    """As the graders do: numbers are in float64, here from one seed."""
    before = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    yield
    torch.set_default_dtype(before[0])
    torch.set_num_threads(before[1])


def check(actual, expected, name, axes=()):
    """Compare a tensor with an array or a tensor."""
    if isinstance(actual, torch.Tensor):
        actual = actual.detach().numpy()
    if isinstance(expected, torch.Tensor):
        expected = expected.detach().numpy()
    check_close(actual, np.array(expected, dtype=float), name, axes)


def qkv(N=2, h=3, Tq=5, Tk=7, d=6):
    """Random queries, keys and values."""
    return torch.randn(N, h, Tq, d), torch.randn(N, h, Tk, d), torch.randn(N, h, Tk, d)


def seen(Tq, Tk):
    """True where query i may see key j: the last query stands beside the last key."""
    return torch.arange(Tk) <= torch.arange(Tq)[:, None] + Tk - Tq


def library(q, k, v, causal):
    """torch's own attention, on the rows that see something; the others are 0."""
    Tq, Tk = q.shape[-2], k.shape[-2]
    if not causal:
        return F.scaled_dot_product_attention(q, k, v)
    empty = max(Tq - Tk, 0)
    rest = F.scaled_dot_product_attention(q[..., empty:, :], k, v, seen(Tq, Tk)[empty:])
    return F.pad(rest, (0, 0, empty, 0))


def log_sums(q, k, causal):
    """lse from all the scores at once."""
    scores = torch.einsum("nhqd,nhkd->nhqk", q, k) / math.sqrt(q.shape[-1])
    hidden = ~seen(q.shape[-2], k.shape[-2]) if causal else torch.tensor(False)
    return scores.masked_fill(hidden, -math.inf).logsumexp(-1)


def by_hand():
    """The example of the handout: d = 4, scores 0, ln 2, ln 6 and ln 3 after scaling."""
    q = torch.tensor([[2.0, 0, 0, 0]])
    k = torch.tensor([[0, 12.0, 0, 0], [LN2, 0, 0, 0], [LN6, 0, 0, 0], [LN3, 0, 0, 0]])
    v = torch.tensor([[12.0, 0, 0, 0], [0, 12, 0, 0], [12, 12, 0, 0], [0, 0, 12, 0]])
    return q[None, None], k[None, None], v[None, None]


class Watch(TorchDispatchMode):
    """Counts the operators that run within it, and the bytes of what they make while it is there."""

    def __init__(self, *inputs):
        super().__init__()
        self.operators = self.peak = 0
        self.there = {}
        for tensor in inputs:
            self.note(tensor, 0)

    def note(self, tensor, size):
        storage = tensor.untyped_storage()
        if storage._cdata not in self.there:
            self.there[storage._cdata] = StorageWeakRef(storage), size

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.operators += 1
        gone = [key for key, (storage, _) in self.there.items() if storage.expired()]
        for key in gone:
            del self.there[key]
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self.note(tensor, tensor.untyped_storage().nbytes())
        self.peak = max(self.peak, sum(size for _, size in self.there.values()))
        return made


def watched(call, *inputs):
    """The Watch of one call on these inputs."""
    with torch.autograd.no_grad(), Watch(*inputs) as watch:
        call(*inputs)
    return watch


def check_memory(name, call, drawn):
    """Four times the tokens may take six times the bytes: blocks take four times at most, scores 15."""
    few, many = (watched(call, *drawn(T)).peak for T in (256, 1024))
    assert many <= 6 * few, (
        f"{name} takes {few:,} bytes beside its inputs at 256 tokens and {many:,} at 1024, "
        f"{many / few:.1f} times as many. Is there something of Tq · Tk or block_q · Tk numbers?"
    )


def on_meta(call):
    """What ``call`` gives on the device meta, where tensors have shapes and no values.

    What is made on the CPU by mistake does not fit in there. Code that looks at values, as boolean
    indices do, is right and cannot be tried like this.
    """
    try:
        return call()
    except (NotImplementedError, RuntimeError) as error:
        if not any(text in str(error) for text in ("nonzero", "no data", "on meta tensors")):
            raise
        pytest.skip("your code looks at values, so it cannot be tried without CUDA")


# ---- 1. batched_attention ------------------------------------------------------------------------


def test_batched_by_hand():
    """Weights 1/12, 2/12, 6/12 and 3/12."""
    check(gpu_attention.batched_attention(*by_hand()), [[[[7, 8, 3, 0]]]], "out", QUERIES)


@both_ways
@pytest.mark.parametrize("Tq, Tk", [(5, 7), (4, 4), (1, 6), (1, 1)])
def test_batched_as_torch_has_it(Tq, Tk, causal):
    """The library's own function; with causal, the last query stands beside the last key."""
    given = qkv(Tq=Tq, Tk=Tk)
    found = gpu_attention.batched_attention(*given, causal=causal)
    check(found, library(*given, causal), "out", QUERIES)


def test_batched_with_nothing_to_see():
    """Five queries and two keys: the first three see nothing, and the rest what they see alone."""
    q, k, v = qkv(Tq=5, Tk=2)
    found = gpu_attention.batched_attention(q, k, v, causal=True)
    assert not found[:, :, :3].any(), f"The first three rows should be 0: {found[0, 0, :3]}"
    check(found, library(q, k, v, True), "out", QUERIES)


def test_batched_far_out():
    """Scores of 1000 either way."""
    q = torch.tensor([[1e3], [-1e3], [0.0]])[None, None]
    k = torch.tensor([[1.0], [1 - LN3 / 1e3]])[None, None]
    v = torch.tensor([[4.0], [8.0]])[None, None]
    found = gpu_attention.batched_attention(q, k, v)
    check_close(found[0, 0].numpy(), np.array([[5.0], [7.0], [6.0]]), "out", ("Tq", "d"), rtol=1e-9)


def test_batched_runs_no_loop():
    """As many operators for more samples, heads or tokens."""
    sizes = {"few of all": (2, 3, 5), "more samples": (6, 3, 5)}
    sizes |= {"more heads": (2, 8, 5), "more tokens": (2, 3, 11)}
    counts = {
        what: watched(
            lambda *given: gpu_attention.batched_attention(*given, causal=True), *qkv(N, h, T, T)
        ).operators
        for what, (N, h, T) in sizes.items()
    }
    assert max(counts.values()) == counts["few of all"], (
        f"The number of operators should not grow, and is {counts}."
    )


# ---- 2. tiled_attention --------------------------------------------------------------------------


@pytest.mark.parametrize("block_k", [1, 2, 3, 64])
def test_tiled_by_hand(block_k):
    """The same, and lse = ln 12."""
    out, lse = gpu_attention.tiled_attention(*by_hand(), block_q=1, block_k=block_k)
    check(out, [[[[7, 8, 3, 0]]]], "out", QUERIES)
    check(lse, [[[math.log(12)]]], "lse", ("N", "h", "Tq"))


@both_ways
@pytest.mark.parametrize("blocks", [(2, 3), (4, 2), (1, 1), (64, 64)])
@pytest.mark.parametrize("Tq, Tk", [(5, 7), (8, 8), (1, 9), (1, 1)])
def test_tiled_as_torch_has_it(Tq, Tk, blocks, causal):
    """Blocks that divide the lengths or do not, or are longer."""
    given = qkv(Tq=Tq, Tk=Tk)
    out, lse = gpu_attention.tiled_attention(*given, causal, *blocks)
    check(out, library(*given, causal), "out", QUERIES)
    check(lse, log_sums(*given[:2], causal), "lse", ("N", "h", "Tq"))


def test_tiled_with_nothing_to_see():
    """Rows that see nothing are 0 with lse = -inf, also where blocks hold such rows and others."""
    q, k, v = qkv(Tq=7, Tk=3)
    out, lse = gpu_attention.tiled_attention(q, k, v, True, 3, 2)
    assert not out[:, :, :4].any(), f"The first four rows should be 0: {out[0, 0, :4]}"
    assert (lse[:, :, :4] == -math.inf).all(), f"Their lse should be -inf: {lse[0, 0, :4]}"
    check(out, library(q, k, v, True), "out", QUERIES)
    check(lse[:, :, 4:], log_sums(q, k, True)[:, :, 4:], "lse of the others", ("N", "h", "Tq"))


@pytest.mark.parametrize("sign", [1, -1])
def test_tiled_far_out(sign):
    """Scores of about 1000 that rise along the keys, or fall."""
    q = torch.full((1, 1, 2, 1), 100.0)
    k = sign * torch.linspace(9, 10, 8).reshape(1, 1, 8, 1)
    v = torch.randn(1, 1, 8, 1)
    out, lse = gpu_attention.tiled_attention(q, k, v, block_q=1, block_k=3)
    check(out, library(q, k, v, False), "out", QUERIES)
    check(lse, log_sums(q, k, False), "lse", ("N", "h", "Tq"))


def test_tiled_takes_little_memory():
    """As T grows, what is made beside the inputs grows as T, forward."""
    check_memory(
        "tiled_attention",
        lambda q, k, v: gpu_attention.tiled_attention(q, k, v, True, 128, 128),
        lambda T: qkv(1, 2, T, T, 8),
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tiled_in_half_precision(dtype):
    """out in the dtype of the inputs and rounded once; lse in float32."""
    given = [tensor.to(dtype) for tensor in qkv(1, 1, 40, 600, 8)]
    out, lse = gpu_attention.tiled_attention(*given, block_q=16, block_k=16)
    assert out.dtype == dtype, f"out is {out.dtype}, the inputs {dtype}."
    assert lse.dtype == torch.float32, f"lse is {lse.dtype}; float32 was asked for."
    due = library(*(tensor.double() for tensor in given), False)
    off = ((out.double() - due).norm() / due.norm()).item()
    unit = torch.finfo(dtype).eps / 2
    assert off < 2 * unit, f"out is off by {off:.1e}; rounding once is off by {unit:.1e} at most."


# ---- 3. pack_padded and unpack_padded ------------------------------------------------------------


def test_pack_by_hand():
    """Lengths 3, 0 and 2: five rows, and cu_seqlens 0, 3, 3, 5."""
    x = torch.arange(12.0).reshape(3, 4, 1, 1)
    packed, cu = gpu_attention.pack_padded(x, torch.tensor([3, 0, 2]))
    check(packed.flatten(), [0, 1, 2, 8, 9], "packed")
    assert packed.shape == (5, 1, 1), f"packed has shape {tuple(packed.shape)}, not (5, 1, 1)."
    assert cu.dtype == torch.int32, f"cu_seqlens is {cu.dtype}; int32 was asked for."
    assert cu.tolist() == [0, 3, 3, 5], f"cu_seqlens is {cu.tolist()}."


def test_unpack_is_the_inverse():
    """Behind each length there is 0, whatever was there."""
    lengths, T = torch.tensor([2, 5, 0, 1]), 6
    x = torch.randn(4, T, 2, 3)
    packed, cu = gpu_attention.pack_padded(x, lengths)
    real = torch.arange(T) < lengths[:, None]
    found = gpu_attention.unpack_padded(packed, cu, T)
    check(found, x * real[..., None, None], "x", ("N", "T", "h", "d"))


# ---- 4. varlen_attention -------------------------------------------------------------------------


@both_ways
def test_varlen_one_by_one(causal):
    """Each sequence gives what it gives alone; one of them is empty."""
    cu = torch.tensor([0, 4, 4, 5, 11], dtype=torch.int32)
    q, k, v = (torch.randn(11, 2, 3) for _ in range(3))
    found = gpu_attention.varlen_attention(q, k, v, cu, causal=causal)
    due = torch.zeros(11, 2, 3)
    for start, end in ((0, 4), (4, 5), (5, 11)):
        alone = (each[start:end].transpose(0, 1)[None] for each in (q, k, v))
        due[start:end] = library(*alone, causal)[0].transpose(0, 1)
    check(found, due, "out", ("sum", "h", "d"))


# ---- everything ----------------------------------------------------------------------------------


def test_inputs_are_left_alone():
    """No call changes what it is given."""
    q, k, v = qkv(Tq=4, Tk=4)
    lengths, cu = torch.tensor([4, 2]), torch.tensor([0, 1, 3], dtype=torch.int32)
    given = {"q": q, "k": k, "v": v, "lengths": lengths, "cu_seqlens": cu}
    before = {name: tensor.clone() for name, tensor in given.items()}
    gpu_attention.batched_attention(q, k, v, causal=True)
    gpu_attention.tiled_attention(q, k, v, True, 2, 3)
    gpu_attention.pack_padded(q.transpose(1, 2), lengths)
    gpu_attention.varlen_attention(q[0], k[0], v[0], cu, causal=True)
    for name, tensor in given.items():
        assert torch.equal(tensor, before[name]), f"{name} was changed in place."


def test_everything_is_made_on_the_device():
    """On the device meta, which has no values, as it would be on a GPU."""
    given = [tensor.to("meta") for tensor in qkv(Tq=4, Tk=6)]
    whole = on_meta(lambda: gpu_attention.batched_attention(*given, causal=True))
    out, lse = on_meta(lambda: gpu_attention.tiled_attention(*given, True, 2, 4))
    for name, tensor in (("batched out", whole), ("tiled out", out), ("lse", lse)):
        assert tensor.device.type == "meta", f"{name} is on {tensor.device}, the inputs on meta."


# ---- 6. extension: tiled_attention_backward ------------------------------------------------------


def backward(dout, q, k, v, causal=False, *blocks):
    """The function's results for out and lse as they should be, without autograd."""
    out, lse = library(q, k, v, causal), log_sums(q, k, causal)
    with torch.autograd.no_grad():
        return gpu_attention.tiled_attention_backward(dout, q, k, v, out, lse, causal, *blocks)


def test_extension_backward_by_hand():
    """Extension: the example of the handout."""
    dq, dk, dv = backward(torch.tensor([[[[1.0, 0, 0, 0]]]]), *by_hand(), False, 1, 3)
    check(dv[0, 0, :, 0], [1 / 12, 2 / 12, 6 / 12, 3 / 12], "the first column of dv")
    check(dk[0, 0, :, 0], [5 / 12, -7 / 6, 5 / 2, -7 / 4], "the first column of dk")
    check(dq[0, 0, 0], [-7 / 12 * LN2 + 5 / 4 * LN6 - 7 / 8 * LN3, 5 / 2, 0, 0], "dq")
    assert not dk[..., 1:].any() and not dv[..., 1:].any(), "The other columns should be 0."


@both_ways
@pytest.mark.parametrize("blocks", [(2, 3), (4, 1), (64, 64)])
@pytest.mark.parametrize("Tq, Tk", [(5, 7), (6, 6), (1, 4)])
def test_extension_backward_as_autograd_has_it(Tq, Tk, blocks, causal):
    """Extension: autograd's gradients of torch's own attention."""
    given, dout = qkv(Tq=Tq, Tk=Tk), torch.randn(2, 3, Tq, 6)
    found = backward(dout, *given, causal, *blocks)
    leaves = [tensor.requires_grad_() for tensor in given]
    due = torch.autograd.grad(library(*leaves, causal), leaves, dout)
    for name, one, other in zip(("dq", "dk", "dv"), found, due, strict=True):
        check(one, other, name, ("N", "h", "T", "d"))


def test_extension_backward_of_nothing():
    """Extension: rows that see nothing give nothing."""
    q, k, v = qkv(Tq=6, Tk=2)
    dout = torch.randn(2, 3, 6, 6)
    found = backward(dout, q, k, v, True, 3, 2)
    due = backward(dout[:, :, 4:], q[:, :, 4:], k, v, True, 3, 2)
    assert not found[0][:, :, :4].any(), f"dq of empty rows should be 0: {found[0][0, 0, :4]}"
    check(found[0][:, :, 4:], due[0], "dq", QUERIES)
    check(found[1], due[1], "dk", ("N", "h", "Tk", "d"))
    check(found[2], due[2], "dv", ("N", "h", "Tk", "d"))


def test_extension_backward_takes_little_memory():
    """Extension: the same rule on the way back."""

    def drawn(T):
        q, k, v = qkv(1, 2, T, T, 8)
        out, lse = gpu_attention.tiled_attention(q, k, v, True)
        return torch.randn(1, 2, T, 8), q, k, v, out, lse

    check_memory(
        "tiled_attention_backward",
        lambda *given: gpu_attention.tiled_attention_backward(*given, True, 128, 128),
        drawn,
    )


# ---- 7. extension: TiledAttention ----------------------------------------------------------------


@pytest.mark.parametrize("more", [(), (True,), (False, 2, 3), (True, 3, 2)])
def test_extension_function_gradcheck(more):
    """Extension: the gradients are those of its outputs, with blocks or without saying."""
    given = [tensor.requires_grad_() for tensor in qkv(1, 1, 3, 4, 2)]
    out = gpu_attention.TiledAttention.apply(*given, *more)
    check(out, library(*given, bool(more and more[0])), "out", QUERIES)
    assert torch.autograd.gradcheck(
        lambda q, k, v: gpu_attention.TiledAttention.apply(q, k, v, *more), given
    )


def test_extension_function_keeps_no_scores():
    """Extension: what is kept for the way back grows as T."""
    kept = []
    for T in (256, 1024):
        given = [tensor.requires_grad_() for tensor in qkv(1, 2, T, T, 8)]
        with Watch(*given) as watch:
            out = gpu_attention.TiledAttention.apply(*given, True, 128, 128)
        left = [size for storage, size in watch.there.values() if not storage.expired()]
        kept.append(sum(left))
        del out
    assert kept[1] <= 6 * kept[0], (
        f"{kept[0]:,} bytes are kept at 256 tokens and {kept[1]:,} at 1024: more than the tokens grow."
    )


# ---- 8. extension: decode_attention --------------------------------------------------------------


@pytest.mark.parametrize("h_kv", [1, 2, 6])
def test_extension_decode_as_torch_has_it(h_kv):
    """Extension: each sequence by itself, its keys repeated; the cache is a part of a longer one."""
    q, lengths = torch.randn(3, 6, 1, 5), torch.tensor([4, 0, 7])
    k, v = torch.randn(2, 3, h_kv, 12, 5)[:, :, :, :7]
    found = gpu_attention.decode_attention(q, k, v, lengths)
    for n in range(3):
        length = int(lengths[n])
        keys, values = (
            each[n : n + 1, :, :length].repeat_interleave(6 // h_kv, dim=1) for each in (k, v)
        )
        due = torch.zeros(1, 6, 1, 5)  # where the cache holds nothing
        if length:
            due = F.scaled_dot_product_attention(q[n : n + 1], keys, values)
        check(found[n : n + 1], due, f"out of sequence {n}", ("N", "h", "1", "d"))


@pytest.mark.parametrize("part", [False, True])
def test_extension_decode_never_copies_the_cache(part):
    """Extension: what is made beside the inputs is at most three quarters of the cache of keys."""
    k, v = torch.randn(2, 2, 2, 1600 if part else 1500, 64)[:, :, :, :1500]
    given = torch.randn(2, 4, 1, 64), k, v, torch.tensor([1500, 900])
    peak, bytes_of_keys = watched(gpu_attention.decode_attention, *given).peak, 8 * k.numel()
    assert peak <= 3 / 4 * bytes_of_keys, (
        f"decode_attention makes {peak:,} bytes beside its inputs, and the keys have {bytes_of_keys:,}: "
        "is the cache copied, or repeated for each query head?"
    )


# ---- 9. bonus: triton_attention ------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("Tq, Tk, d", [(5, 7, 16), (33, 70, 8)])
def test_bonus_triton_as_torch_has_it(Tq, Tk, d, causal):
    """Bonus: on a GPU, or in Triton's interpreter; skipped where Triton is not installed."""
    pytest.importorskip("triton", reason="Triton is not installed here: task 9 of the handout")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    given = [tensor.to(device, torch.float32) for tensor in qkv(1, 2, Tq, Tk, d)]
    found = gpu_attention.triton_attention(*given, causal=causal).double().cpu()
    due = library(*(tensor.double().cpu() for tensor in given), causal)
    off = ((found - due).norm() / due.norm()).item()
    assert off < 1e-3, f"out is off by {off:.1e} of its size."
