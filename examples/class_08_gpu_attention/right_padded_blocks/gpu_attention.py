"""Right, and unlike the reference: padded to whole blocks, normalised outputs merged by their lse."""

import math

import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None
import torch.nn.functional as F  # noqa: N812
from torch.autograd import Function


def batched_attention(q, k, v, causal=False):
    scores = torch.matmul(q, k.mT).div(q.shape[-1] ** 0.5)
    if causal:
        tq, tk = q.size(2), k.size(2)
        i = torch.arange(tq, device=q.device).view(-1, 1)
        bad = torch.arange(tk, device=q.device).view(1, -1) > i + (tk - tq)
        none = bad.all(dim=1, keepdim=True)
        scores = scores.masked_fill(bad & ~none, float("-inf"))
        return (scores - scores.logsumexp(-1, keepdim=True)).exp().masked_fill(none, 0) @ v
    return (scores - scores.logsumexp(-1, keepdim=True)).exp() @ v


def _padded(x, size, dtype=None):
    more = -x.shape[2] % size
    return F.pad(x if dtype is None else x.to(dtype), (0, 0, 0, more))


class _Tiles:
    """Where scores of a tile count: real keys, and no later ones."""

    def __init__(self, q, k, causal, block_q, block_k):
        self.tq, self.tk, self.causal = q.shape[2], k.shape[2], causal
        self.bq, self.bk, self.device = block_q, block_k, q.device
        self.rows = range(0, -(-self.tq // block_q))
        self.cols = range(0, -(-self.tk // block_k))

    def bias(self, i, j, dtype):
        row = torch.arange(self.bq, device=self.device) + i * self.bq
        col = torch.arange(self.bk, device=self.device) + j * self.bk
        bad = (col >= self.tk).expand(self.bq, -1)
        if self.causal:
            bad = bad | (col[None] > row[:, None] + self.tk - self.tq)
        return torch.zeros(self.bq, self.bk, dtype=dtype, device=self.device).masked_fill(
            bad, -math.inf
        )


def tiled_attention(q, k, v, causal=False, block_q=64, block_k=64):
    dtype = torch.promote_types(q.dtype, torch.float32)
    tiles = _Tiles(q, k, causal, block_q, block_k)
    scale = 1 / math.sqrt(q.shape[-1])
    keys, values = _padded(k, block_k, dtype), _padded(v, block_k, dtype)
    outs, lses = [], []
    for i in tiles.rows:
        rows = _padded(q[:, :, i * block_q : (i + 1) * block_q], block_q, dtype)
        out = torch.zeros_like(rows)
        lse = torch.full(rows.shape[:3], -math.inf, dtype=dtype, device=q.device)
        for j in reversed(tiles.cols):
            part = slice(j * block_k, (j + 1) * block_k)
            scores = torch.matmul(rows, keys[:, :, part].mT) * scale + tiles.bias(i, j, dtype)
            of_block = torch.logsumexp(scores, dim=-1)
            both = torch.logaddexp(lse, of_block)
            base = torch.nan_to_num(both, neginf=0.0)
            out = out * torch.exp(lse - base).unsqueeze(-1)
            out = out + torch.matmul(torch.exp(scores - base.unsqueeze(-1)), values[:, :, part])
            lse = both
        left = tiles.tq - i * block_q
        outs.append(out[:, :, :left].to(q.dtype))
        lses.append(lse[:, :, :left])
    return torch.cat(outs, dim=2), torch.cat(lses, dim=2)


def tiled_attention_backward(dout, q, k, v, out, lse, causal=False, block_q=64, block_k=64):
    dtype = lse.dtype
    tiles = _Tiles(q, k, causal, block_q, block_k)
    scale = 1 / math.sqrt(q.shape[-1])
    delta = (dout.to(dtype) * out.to(dtype)).sum(-1)
    rows_of = [_padded(x, block_q, dtype) for x in (q, dout)]
    more = rows_of[0].shape[2] - tiles.tq
    delta, base = F.pad(delta, (0, more)), F.pad(torch.nan_to_num(lse, neginf=0.0), (0, more))
    keys, values = _padded(k, block_k, dtype), _padded(v, block_k, dtype)
    dq, dk, dv = (torch.zeros_like(x) for x in (rows_of[0], keys, values))
    for j in tiles.cols:
        cols = slice(j * block_k, (j + 1) * block_k)
        for i in tiles.rows:
            rows = slice(i * block_q, (i + 1) * block_q)
            a, up = (x[:, :, rows] for x in rows_of)
            scores = torch.matmul(a, keys[:, :, cols].mT) * scale + tiles.bias(i, j, dtype)
            p = torch.exp(scores - base[:, :, rows].unsqueeze(-1))
            dv[:, :, cols].add_(torch.matmul(p.mT, up))
            ds = torch.matmul(up, values[:, :, cols].mT).sub_(delta[:, :, rows].unsqueeze(-1))
            ds.mul_(p).mul_(scale)
            dk[:, :, cols].add_(torch.matmul(ds.mT, a))
            dq[:, :, rows].add_(torch.matmul(ds, keys[:, :, cols]))
    return (
        dq[:, :, : tiles.tq].to(q.dtype),
        dk[:, :, : tiles.tk].to(q.dtype),
        dv[:, :, : tiles.tk].to(q.dtype),
    )


class TiledAttention(Function):
    @staticmethod
    def forward(ctx, *args):
        q, k, v, *rest = args
        out, lse = tiled_attention(q, k, v, *rest)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.rest = rest
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, lse = ctx.saved_tensors
        found = tiled_attention_backward(dout.contiguous(), q, k, v, out, lse, *ctx.rest)
        kept = [
            g if wanted else None for g, wanted in zip(found, ctx.needs_input_grad, strict=False)
        ]
        return (*kept, *[None] * len(ctx.rest))


def pack_padded(x, lengths):
    starts = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=x.device)
    torch.cumsum(lengths.to(x.device), dim=0, out=starts[1:])
    sequence = torch.repeat_interleave(torch.arange(len(lengths), device=x.device), lengths)
    place = torch.arange(len(sequence), device=x.device) - starts[:-1].long()[sequence]
    return x[sequence, place], starts


def unpack_padded(packed, cu_seqlens, T):
    grid = cu_seqlens[:-1, None].long() + torch.arange(T, device=packed.device)
    real = grid < cu_seqlens[1:, None]
    rows = torch.cat([packed, packed.new_zeros(1, *packed.shape[1:])])
    return rows[torch.where(real, grid, len(packed))]


def varlen_attention(q, k, v, cu_seqlens, causal=False):
    out = torch.zeros_like(q)
    starts = [int(s) for s in cu_seqlens]
    for n in range(len(starts) - 1):
        part = slice(starts[n], starts[n + 1])
        if starts[n] < starts[n + 1]:
            one = [x[part].movedim(0, 1)[None] for x in (q, k, v)]
            out[part] = tiled_attention(*one, causal, 32, 32)[0][0].movedim(1, 0)
    return out


def decode_attention(q, k_cache, v_cache, lengths):
    """A block of the cache at a time, its heads repeated."""
    groups = q.shape[1] // k_cache.shape[1]
    dtype = torch.promote_types(q.dtype, torch.float32)
    high = torch.full((*q.shape[:3], 1), -math.inf, dtype=dtype, device=q.device)
    total, out = torch.zeros_like(high), torch.zeros(q.shape, dtype=dtype, device=q.device)
    for start in range(0, k_cache.shape[2], 64):
        keys, values = (
            c[:, :, start : start + 64].repeat_interleave(groups, dim=1).to(dtype)
            for c in (k_cache, v_cache)
        )
        place = torch.arange(start, start + keys.shape[2], device=q.device)
        scores = q.to(dtype) @ keys.mT / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(place >= lengths[:, None, None, None], -math.inf)
        now = torch.maximum(high, scores.amax(-1, keepdim=True))
        base = torch.nan_to_num(now, neginf=0.0)
        e, shrink = torch.exp(scores - base), torch.exp(high - base)
        total, out, high = total * shrink + e.sum(-1, keepdim=True), out * shrink + e @ values, now
    return (out / total.clamp(min=torch.finfo(dtype).tiny)).to(q.dtype)


if triton is not None:

    @triton.jit
    def _padded_kernel(q, k, v, out, last, tk, ROWS: tl.constexpr, D: tl.constexpr):
        """Whole blocks of padded inputs, keys backwards; ``last`` (queries,) is the last key of each."""
        place = tl.program_id(1)
        rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        padded_q, padded_k = tl.num_programs(0) * ROWS, tl.cdiv(tk, ROWS) * ROWS
        dims = tl.arange(0, D)[None, :]
        mine = tl.load(q + (place * padded_q + rows)[:, None] * D + dims)
        ends = tl.load(last + rows)[:, None]
        m = tl.full((ROWS, 1), -1e30, tl.float32)
        total = tl.zeros((ROWS, 1), tl.float32)
        found = tl.zeros((ROWS, D), tl.float32)
        for start in range(padded_k - ROWS, -1, -ROWS):
            keys = start + tl.arange(0, ROWS)
            where = (place * padded_k + keys)[:, None] * D + dims
            s = tl.dot(mine, tl.trans(tl.load(k + where)), input_precision="ieee")
            seen = (keys[None, :] <= ends) & (keys < tk)[None, :]
            new = tl.maximum(m, tl.max(tl.where(seen, s, -1e30), 1)[:, None])
            e = tl.where(seen, tl.exp2(s - new), 0.0)
            shrink = tl.exp2(m - new)
            total = total * shrink + tl.sum(e, 1)[:, None]
            found = found * shrink + tl.dot(e, tl.load(v + where), input_precision="ieee")
            m = new
        tl.store(
            out + (place * padded_q + rows)[:, None] * D + dims, found / (total + (total == 0))
        )


def triton_attention(q, k, v, causal=False):
    rows, (tq, d), tk = 16, q.shape[2:], k.shape[2]
    wide = max(16, 1 << (d - 1).bit_length())
    sized = [
        F.pad(x.to(torch.float32), (0, wide - d, 0, -x.shape[2] % rows)).contiguous()
        for x in (q * (math.log2(math.e) / math.sqrt(d)), k, v)
    ]
    padded = sized[0].shape[2]
    last = torch.arange(padded, device=q.device) + (tk - tq if causal else tk)
    out = torch.empty_like(sized[0])
    grid = (padded // rows, q.shape[0] * q.shape[1])
    _padded_kernel[grid](*sized, out, last, tk, ROWS=rows, D=wide)
    return out[:, :, :tq, :d].to(q.dtype)
