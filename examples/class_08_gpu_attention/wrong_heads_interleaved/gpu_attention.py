"""Attention that fits a GPU: in batches, tile by tile, for ragged batches, and for decoding.

Letters: N batch, h heads, h_kv heads of keys and values, T time, Tq queries, Tk keys, L places in a
cache, d size of a head. Attention has the layout (N, h, T, d), packed sequences (total, h, d). Causal
means that a token sees no later one, the last query standing beside the last key; in boolean masks
True = may be attended to. A query that may see no key has out exactly 0. Results have the floating
dtype and the device of the inputs, and inputs are never changed in place. Equation numbers are the
handout's.
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812

try:
    import triton
    import triton.language as tl
except ImportError:  # it needs a GPU's compiler: all but the bonus works without it
    triton = tl = None



def visible(q_start, q_stop, k_start, k_stop, ahead, device):
    """Which keys come no later than each query, (queries, keys) bool; the first query sees key ``ahead``."""
    queries = torch.arange(q_start, q_stop, device=device).unsqueeze(1)  # (queries, 1)
    keys = torch.arange(k_start, k_stop, device=device)  # (keys,)
    return keys <= queries + ahead


def masked_softmax(scores, seen):
    """Softmax over the keys that are seen; 0 for all others, and in rows that see none."""
    lowest = torch.finfo(scores.dtype).min  # not -inf: a row of these would give NaN
    return torch.softmax(scores.masked_fill(~seen, lowest), dim=-1).masked_fill(~seen, 0.0)


# ---- 1. batched ----------------------------------------------------------------------------------


def batched_attention(q, k, v, causal=False):
    """Attention for all samples, heads and queries at once, equations (1) and (2).

    Parameters
    ----------
    q : (N, h, Tq, d),  k, v : (N, h, Tk, d)
        Float tensors.
    causal : bool
        Query i sees the keys j <= i + Tk - Tq only. Where there are more queries than keys, the first
        ones see none.

    Returns
    -------
    out : (N, h, Tq, d)
        A query that sees no key has out exactly 0, and no gradient comes from it: never NaN. There is no
        Python loop over samples, heads or time. Scores may reach ±1e4.
    """
    scores = q @ k.mT / math.sqrt(q.shape[-1])  # (N, h, Tq, Tk)
    if not causal:
        return torch.softmax(scores, dim=-1) @ v
    Tq, Tk = scores.shape[-2:]
    return masked_softmax(scores, visible(0, Tq, 0, Tk, Tk - Tq, q.device)) @ v


# ---- 2. tile by tile -----------------------------------------------------------------------------


def tiled_attention(q, k, v, causal=False, block_q=64, block_k=64):
    """The same from tiles of scores, by an online softmax over blocks of keys, equations (3) to (7).

    Milakov and Gimelshein (2018); Dao et al. (2022).

    Parameters
    ----------
    q : (N, h, Tq, d),  k, v : (N, h, Tk, d)
        Float tensors. Of float16 and bfloat16, running maximum, sums and products are kept in float32;
        out is rounded once, at the end.
    causal : bool
        As in ``batched_attention``.
    block_q, block_k : int
        How many queries and keys a tile has. Neither need divide Tq or Tk, or be smaller.

    Returns
    -------
    out : (N, h, Tq, d)
    lse : (N, h, Tq)
        The natural logarithm of the sum of the exponentials of a query's scores; -inf where it sees no
        key. float32 for float16 and bfloat16, else of the inputs' dtype.

    Notes
    -----
    Each score is computed once. A head takes memory for O(T · d + block_q · block_k) numbers at most,
    and each further token O(d) of them: there is no (Tq, Tk) matrix, and no strip (block_q, Tk) or
    (Tq, block_k), of masks neither.
    """
    (N, h, Tq, d), Tk = q.shape, k.shape[2]
    wide = torch.promote_types(q.dtype, torch.float32)
    out, lse = torch.empty_like(q), q.new_empty(N, h, Tq, dtype=wide)
    for i in range(0, Tq, block_q):
        rows = slice(i, min(i + block_q, Tq))
        queries = q[:, :, rows].to(wide) / math.sqrt(d)  # (N, h, rows, d)
        highest = queries.new_full((N, h, rows.stop - i, 1), -torch.inf)
        total, summed = torch.zeros_like(highest), torch.zeros_like(queries)
        for j in range(0, Tk, block_k):
            columns = slice(j, min(j + block_k, Tk))
            scores = queries @ k[:, :, columns].to(wide).mT  # (N, h, rows, columns)
            if causal:
                seen = visible(i, rows.stop, j, columns.stop, Tk - Tq, q.device)
                scores = scores.masked_fill(~seen, -torch.inf)
            before, highest = highest, torch.maximum(highest, scores.amax(dim=-1, keepdim=True))
            base = highest.masked_fill(highest == -torch.inf, 0.0)  # -inf - -inf would be NaN
            weights, shrink = torch.exp(scores - base), torch.exp(before - base)
            total = total * shrink + weights.sum(dim=-1, keepdim=True)
            summed = summed * shrink + weights @ v[:, :, columns].to(wide)
        out[:, :, rows] = (summed / total.masked_fill(total == 0, 1.0)).to(q.dtype)
        lse[:, :, rows] = (highest + torch.log(total)).squeeze(-1)
    return out, lse


# ---- 3. extension: its gradients, tile by tile ---------------------------------------------------


def tiled_attention_backward(dout, q, k, v, out, lse, causal=False, block_q=64, block_k=64):
    """The gradients of ``tiled_attention``'s out, from tiles computed again, equations (8) to (12).

    Without autograd: it is graded under torch.no_grad(). Dao (2023), section 3.

    Parameters
    ----------
    dout : (N, h, Tq, d) float tensor
        The gradient of out.
    q, k, v, causal, block_q, block_k
        As they were given to ``tiled_attention``.
    out, lse
        As it returned them.

    Returns
    -------
    dq : (N, h, Tq, d),  dk, dv : (N, h, Tk, d)
        Nothing comes from a query that sees no key: its dq is exactly 0.

    Notes
    -----
    The memory rule is that of ``tiled_attention``, and so is the one for float16 and bfloat16.
    """
    Tq, Tk, wide, root = q.shape[2], k.shape[2], lse.dtype, math.sqrt(q.shape[3])
    along = (dout.to(wide) * out.to(wide)).sum(dim=-1, keepdim=True)  # (N, h, Tq, 1)
    dq, dk, dv = (torch.zeros_like(part, dtype=wide) for part in (q, k, v))
    for i in range(0, Tq, block_q):
        rows = slice(i, min(i + block_q, Tq))
        queries, upstream = q[:, :, rows].to(wide), dout[:, :, rows].to(wide)
        for j in range(0, Tk, block_k):
            columns = slice(j, min(j + block_k, Tk))
            keys, values = k[:, :, columns].to(wide), v[:, :, columns].to(wide)
            weights = torch.exp(queries @ keys.mT / root - lse[:, :, rows, None])
            if causal:  # also where lse is -inf
                seen = visible(i, rows.stop, j, columns.stop, Tk - Tq, q.device)
                weights = weights.masked_fill(~seen, 0.0)
            dweights = upstream @ values.mT  # (N, h, rows, columns)
            dscores = weights * (dweights - along[:, :, rows]) / root
            dq[:, :, rows] += dscores @ keys
            dk[:, :, columns] += dscores.mT @ queries
            dv[:, :, columns] += weights.mT @ upstream
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


class TiledAttention(torch.autograd.Function):
    """``TiledAttention.apply(q, k, v, causal, block_q, block_k)`` gives the out of ``tiled_attention``.

    Autograd sends gradients back through it with ``tiled_attention_backward``. Arguments are given by
    position, and the last three may be left out.
    """

    @staticmethod
    def forward(ctx, q, k, v, causal=False, block_q=64, block_k=64):
        """out, (N, h, Tq, d). What ``ctx`` keeps for the way back grows with T, not with its square."""
        out, lse = tiled_attention(q, k, v, causal, block_q, block_k)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.settings = causal, block_q, block_k
        return out

    @staticmethod
    def backward(ctx, dout):
        """A gradient, or None, for each argument of ``forward`` but ``ctx``; dout is (N, h, Tq, d)."""
        gradients = tiled_attention_backward(dout, *ctx.saved_tensors, *ctx.settings)
        return *gradients, None, None, None


# ---- 4. ragged batches ---------------------------------------------------------------------------


def pack_padded(x, lengths):
    """The real tokens of a padded batch one after another, equation (13).

    Parameters
    ----------
    x : (N, T, h, d) tensor
        Behind the end of a sequence stands anything.
    lengths : (N,) int64 tensor
        Of every sequence, 0 to T, in any order.

    Returns
    -------
    packed : (total, h, d)
        The tokens of sequence 0, then those of sequence 1, ...; total is the sum of the lengths.
    cu_seqlens : (N + 1,) int32
        Where each sequence begins, on the device of ``x``; sequence n is packed[cu_seqlens[n] :
        cu_seqlens[n + 1]].
    """
    lengths = lengths.to(x.device)
    real = torch.arange(x.shape[1], device=x.device) < lengths.unsqueeze(1)  # (N, T)
    return x[real], F.pad(lengths.cumsum(dim=0), (1, 0)).to(torch.int32)


def unpack_padded(packed, cu_seqlens, T):
    """The inverse of ``pack_padded``: (total, h, d) gives (N, T, h, d), with 0 behind each sequence's end.

    ``cu_seqlens`` is (N + 1,) int32 and ``T`` an int, at least as long as the longest sequence.
    """
    lengths = cu_seqlens.diff()  # (N,)
    real = torch.arange(T, device=packed.device) < lengths.unsqueeze(1)  # (N, T)
    x = packed.new_zeros(*real.shape, *packed.shape[1:])
    x[real] = packed
    return x


def varlen_attention(q, k, v, cu_seqlens, causal=False):
    """Attention within each sequence of a packed batch.

    Parameters
    ----------
    q, k, v : (total, h, d)
        Float tensors, packed alike.
    cu_seqlens : (N + 1,) int32 tensor
        As ``pack_padded`` returns it; a sequence may have no token.
    causal : bool
        A token sees no later one of its sequence.

    Returns
    -------
    out : (total, h, d)
        No token attends to one outside of its own sequence. Going through the sequences one by one and
        padding them are both allowed; scores between the tokens of different sequences are not computed.
    """
    lengths = cu_seqlens.diff().tolist()
    sequences = zip(*(x.transpose(0, 1).split(lengths, dim=1) for x in (q, k, v)), strict=True)
    outs = [batched_attention(*each, causal) for each in sequences]  # (h, length, d) each
    return torch.cat(outs, dim=1).transpose(0, 1)


# ---- 5. extension: decoding ----------------------------------------------------------------------


def decode_attention(q, k_cache, v_cache, lengths):
    """One step of decoding for a whole batch, with shared heads of keys and values, equation (14).

    Parameters
    ----------
    q : (N, h, 1, d) float tensor
        The newest token of every sequence.
    k_cache, v_cache : (N, h_kv, L, d) float tensors
        h_kv divides h. Contiguous, or a slice [:, :, :L] of longer ones.
    lengths : (N,) int64 tensor
        How many places of the caches hold tokens, 0 to L, in any order; behind them stands anything.

    Returns
    -------
    out : (N, h, 1, d)
        Query head i attends to the head i // (h / h_kv) of keys and values. Exactly 0 where the length
        is 0.

    Notes
    -----
    Neither cache is ever copied whole, nor its heads repeated.
    """
    heads = k_cache.shape[1]
    grouped = q.squeeze(2).unflatten(1, (-1, heads)).transpose(1, 2)
    scores = grouped @ k_cache.mT / math.sqrt(q.shape[-1])  # (N, h_kv, h / h_kv, L)
    places = torch.arange(k_cache.shape[2], device=q.device)  # (L,)
    weights = masked_softmax(scores, places < lengths.to(q.device).reshape(-1, 1, 1, 1))
    return (weights @ v_cache).reshape(q.shape)


# ---- 6. bonus: a kernel in Triton ----------------------------------------------------------------

if triton is not None:

    @triton.jit
    def attention_kernel(
        q,
        k,
        v,
        out,
        Tq,
        Tk,
        d,
        scale,
        CAUSAL: tl.constexpr,
        BLOCK_Q: tl.constexpr,
        BLOCK_K: tl.constexpr,
        BLOCK_D: tl.constexpr,
    ):
        """One block of queries of one head: the loop of ``tiled_attention`` over blocks of keys."""
        block, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
        rows, columns = block * BLOCK_Q + tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
        dims = tl.arange(0, BLOCK_D)
        own = (rows < Tq)[:, None] & (dims < d)[None, :]
        at_queries = head * Tq * d + rows[:, None] * d + dims[None, :]
        queries = tl.load(q + at_queries, mask=own, other=0.0)
        highest = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK_Q,), tl.float32)
        summed = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
        stop = Tk
        if CAUSAL:  # no query of this block sees a later key
            stop = tl.minimum(Tk, (block + 1) * BLOCK_Q + Tk - Tq)
        for start in range(0, stop, BLOCK_K):
            places = start + columns
            there = (places < Tk)[:, None] & (dims < d)[None, :]
            at_keys = head * Tk * d + places[:, None] * d + dims[None, :]
            keys = tl.load(k + at_keys, mask=there, other=0.0)
            values = tl.load(v + at_keys, mask=there, other=0.0)
            scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
            seen = (places < Tk)[None, :]
            if CAUSAL:
                seen = seen & (places[None, :] <= rows[:, None] + Tk - Tq)
            scores = tl.where(seen, scores, float("-inf"))
            now = tl.maximum(highest, tl.max(scores, 1))
            base = tl.where(now == float("-inf"), 0.0, now)
            weights, shrink = tl.exp(scores - base[:, None]), tl.exp(highest - base)
            total = total * shrink + tl.sum(weights, 1)
            summed = summed * shrink[:, None]
            summed += tl.dot(weights.to(values.dtype), values, input_precision="ieee")
            highest = now
        summed = summed / tl.where(total == 0.0, 1.0, total)[:, None]
        tl.store(out + at_queries, summed.to(out.dtype.element_ty), mask=own)




def triton_attention(q, k, v, causal=False):
    """``batched_attention`` by one kernel written in Triton, which keeps a tile's numbers on the chip.

    Parameters
    ----------
    q : (N, h, Tq, d),  k, v : (N, h, Tk, d)
        float16, bfloat16 or float32 tensors on a GPU; d is at most 128.
    causal : bool
        As in ``batched_attention``.

    Returns
    -------
    out : (N, h, Tq, d)
        For float32 without TF32 (input_precision="ieee").

    Notes
    -----
    ``triton`` and ``tl`` are None where Triton is not installed: define your kernel above, under
    ``if triton is not None``, so that this file can be imported everywhere. With the environment variable
    TRITON_INTERPRET=1 kernels run on the CPU, slowly, for testing.
    """
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    (N, h, Tq, d), Tk = q.shape, k.shape[2]
    out = torch.empty_like(q)
    block_d = max(16, triton.next_power_of_2(d))
    size = 32 if q.dtype == torch.float32 else 64
    grid = (triton.cdiv(Tq, size), N * h)
    attention_kernel[grid](
        q, k, v, out, Tq, Tk, d, d**-0.5, causal, BLOCK_Q=size, BLOCK_K=size, BLOCK_D=block_d
    )
    return out
