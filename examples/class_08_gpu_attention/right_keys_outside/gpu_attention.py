"""Right, and unlike the reference: blocks of keys outermost, two passes back, ragged batches by padding."""

import math
from itertools import pairwise

import torch
from torch import einsum

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


def _weights(scores, seen):
    lifted = scores.where(seen, scores.new_tensor(-math.inf))
    top = lifted.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    e = torch.exp(lifted - top)
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total == 0, torch.ones_like(total), total)


def batched_attention(q, k, v, causal=False):
    scores = einsum("nhid,nhjd->nhij", q * q.shape[-1] ** -0.5, k)
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    if causal:
        seen = seen.tril(k.shape[2] - q.shape[2])
    return einsum("nhij,nhjd->nhid", _weights(scores, seen), v)


def _steps(length, size):
    edges = [*range(0, length, size), length]
    return [slice(a, b) for a, b in pairwise(edges)]


def _tile(q, k, rows, cols, causal, dtype):
    """Scores of a tile, and where they count."""
    scores = einsum("nhid,nhjd->nhij", q[:, :, rows].to(dtype), k[:, :, cols].to(dtype))
    scores = scores * q.shape[-1] ** -0.5
    if causal:
        late = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device)
        late = late.triu(1 + k.shape[2] - q.shape[2] + rows.start - cols.start)
        scores = scores.masked_fill(late, -math.inf)
    return scores


def tiled_attention(q, k, v, causal=False, block_q=64, block_k=64):
    print("tiles of", block_q, "by", block_k)
    dtype = torch.float32 if q.dtype.itemsize < 4 else q.dtype
    m = torch.full(q.shape[:3], -math.inf, dtype=dtype, device=q.device)
    l = torch.zeros_like(m)  # noqa: E741
    acc = torch.zeros(q.shape, dtype=dtype, device=q.device)
    for cols in _steps(k.shape[2], block_k):
        for rows in _steps(q.shape[2], block_q):
            last = rows.stop - 1 + k.shape[2] - q.shape[2]
            if causal and cols.start > last:
                continue
            scores = _tile(q, k, rows, cols, causal, dtype)
            old = m[:, :, rows].clone()
            new = torch.maximum(old, scores.amax(-1))
            safe = torch.where(torch.isinf(new), torch.zeros_like(new), new)
            p = (scores - safe[..., None]).exp()
            shrink = (old - safe).exp()
            l[:, :, rows] = l[:, :, rows] * shrink + p.sum(-1)
            acc[:, :, rows] *= shrink[..., None]
            acc[:, :, rows] += einsum("nhij,nhjd->nhid", p, v[:, :, cols].to(dtype))
            m[:, :, rows] = new
    out = torch.nan_to_num(acc / l[..., None], nan=0.0)
    return out.type_as(q), m + l.log()


def tiled_attention_backward(dout, q, k, v, out, lse, causal=False, block_q=64, block_k=64):
    dtype, root = lse.dtype, q.shape[-1] ** -0.5
    delta = einsum("nhid,nhid->nhi", dout.to(dtype), out.to(dtype))

    def pair(rows, cols):
        scores = _tile(q, k, rows, cols, causal, dtype)
        p = (scores - lse[:, :, rows, None]).exp()
        p = torch.where(torch.isinf(scores), torch.zeros_like(p), p)
        up = dout[:, :, rows].to(dtype)
        dp = einsum("nhid,nhjd->nhij", up, v[:, :, cols].to(dtype))
        return p, up, p * (dp - delta[:, :, rows, None])

    dks, dvs, dqs = [], [], []
    for cols in _steps(k.shape[2], block_k):
        dk = dv = 0
        for rows in _steps(q.shape[2], block_q):
            p, up, ds = pair(rows, cols)
            dv = dv + einsum("nhij,nhid->nhjd", p, up)
            dk = dk + einsum("nhij,nhid->nhjd", ds, q[:, :, rows].to(dtype))
        dks.append(dk * root)
        dvs.append(dv)
    for rows in _steps(q.shape[2], block_q):
        dqs.append(
            sum(
                einsum("nhij,nhjd->nhid", pair(rows, cols)[2], k[:, :, cols].to(dtype))
                for cols in _steps(k.shape[2], block_k)
            )
            * root
        )
    return [torch.cat(parts, dim=2).to(q.dtype) for parts in (dqs, dks, dvs)]


class TiledAttention(torch.autograd.Function):
    @staticmethod
    def forward(q, k, v, causal=False, block_q=64, block_k=64):
        return tiled_attention(q, k, v, causal, block_q, block_k)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:3], *output)
        ctx.rest = inputs[3:]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dout, _):
        dq, dk, dv = tiled_attention_backward(dout, *ctx.saved_tensors, *ctx.rest)
        return dq, dk, dv, None, None, None

    @classmethod
    def apply(cls, *args):
        return super().apply(*args)[0]


def pack_padded(x, lengths):
    parts = [row[:length] for row, length in zip(x, lengths.tolist(), strict=True)]
    cu = [0]
    for part in parts:
        cu.append(cu[-1] + len(part))
    return torch.cat(parts), torch.tensor(cu, dtype=torch.int32, device=x.device)


def unpack_padded(packed, cu_seqlens, T):
    rows = []
    for a, b in pairwise(cu_seqlens.tolist()):
        rows.append(torch.nn.functional.pad(packed[a:b], (0, 0, 0, 0, 0, T - (b - a))))
    return torch.stack(rows)


def varlen_attention(q, k, v, cu_seqlens, causal=False):
    lengths = cu_seqlens.diff().long()
    T = int(lengths.max())
    q, k, v = (unpack_padded(x, cu_seqlens, T).transpose(1, 2) for x in (q, k, v))
    seen = (torch.arange(T, device=q.device) < lengths[:, None])[:, None, None, :]
    if causal:
        seen = seen & torch.ones(T, T, dtype=torch.bool, device=q.device).tril()
    scores = einsum("nhid,nhjd->nhij", q, k) / math.sqrt(q.shape[-1])
    if T == 0:
        return q.transpose(1, 2).reshape(0, q.shape[1], q.shape[3])
    return pack_padded(
        einsum("nhij,nhjd->nhid", _weights(scores, seen), v).transpose(1, 2), lengths
    )[0]


def decode_attention(q, k_cache, v_cache, lengths):
    outs = []
    for n in range(len(q)):
        real = torch.arange(k_cache.shape[2], device=q.device) < lengths[n]
        grouped = q[n, :, 0].reshape(k_cache.shape[1], -1, q.shape[-1])
        scores = torch.bmm(grouped, k_cache[n].transpose(1, 2)) * q.shape[-1] ** -0.5
        outs.append(torch.bmm(_weights(scores, real), v_cache[n]).flatten(0, 1))
    return torch.stack(outs)[:, :, None]


if triton is not None:

    @triton.jit
    def _rows(q, k, v, out, tq, tk, d, causal, D: tl.constexpr, BLOCK: tl.constexpr):
        """A block of queries: first their largest scores, then the sums."""
        row, head = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1)
        dims = tl.arange(0, D)[None, :]
        mine = (row < tq)[:, None] & (dims < d)
        query = tl.load(q + (head * tq + row)[:, None] * d + dims, mask=mine, other=0.0)
        end = tl.zeros((BLOCK,), tl.int32) + tk
        if causal:
            end = row + 1 + tk - tq
        top = tl.full((BLOCK,), -1e30, tl.float32)
        for start in range(0, tk, BLOCK):
            at = start + tl.arange(0, BLOCK)
            there = (at < tk)[:, None] & (dims < d)
            key = tl.load(k + (head * tk + at)[:, None] * d + dims, mask=there, other=0.0)
            score = tl.dot(query, tl.trans(key), input_precision="ieee") / tl.sqrt(d * 1.0)
            seen = (at[None, :] < end[:, None]) & (at < tk)[None, :]
            top = tl.maximum(top, tl.max(tl.where(seen, score, -1e30), 1))
        total = tl.zeros((BLOCK,), tl.float32)
        found = tl.zeros((BLOCK, D), tl.float32)
        for start in range(0, tk, BLOCK):
            at = start + tl.arange(0, BLOCK)
            there = (at < tk)[:, None] & (dims < d)
            where = (head * tk + at)[:, None] * d + dims
            key = tl.load(k + where, mask=there, other=0.0)
            value = tl.load(v + where, mask=there, other=0.0)
            score = tl.dot(query, tl.trans(key), input_precision="ieee") / tl.sqrt(d * 1.0)
            seen = (at[None, :] < end[:, None]) & (at < tk)[None, :]
            weight = tl.where(seen, tl.exp(score - top[:, None]), 0.0)
            total += tl.sum(weight, 1)
            found += tl.dot(weight.to(value.dtype), value, input_precision="ieee")
        found = found / tl.maximum(total, 1e-30)[:, None]
        tl.store(out + (head * tq + row)[:, None] * d + dims, found, mask=mine)


def triton_attention(q, k, v, causal=False):
    n, h, tq, d = q.shape
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    q, k, v = (x.contiguous() for x in (q, k, v))
    wide = max(16, triton.next_power_of_2(d))
    grid = (triton.cdiv(tq, 64), n * h)
    _rows[grid](q, k, v, out, tq, k.shape[2], d, causal, D=wide, BLOCK=64)
    return out
