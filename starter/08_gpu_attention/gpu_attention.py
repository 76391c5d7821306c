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
    raise NotImplementedError("batched_attention")


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
    raise NotImplementedError("tiled_attention")


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
    raise NotImplementedError("tiled_attention_backward")


class TiledAttention(torch.autograd.Function):
    """``TiledAttention.apply(q, k, v, causal, block_q, block_k)`` gives the out of ``tiled_attention``.

    Autograd sends gradients back through it with ``tiled_attention_backward``. Arguments are given by
    position, and the last three may be left out.
    """

    @staticmethod
    def forward(ctx, q, k, v, causal=False, block_q=64, block_k=64):
        """out, (N, h, Tq, d). What ``ctx`` keeps for the way back grows with T, not with its square."""
        raise NotImplementedError("TiledAttention.forward")

    @staticmethod
    def backward(ctx, dout):
        """A gradient, or None, for each argument of ``forward`` but ``ctx``; dout is (N, h, Tq, d)."""
        raise NotImplementedError("TiledAttention.backward")


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
    raise NotImplementedError("pack_padded")


def unpack_padded(packed, cu_seqlens, T):
    """The inverse of ``pack_padded``: (total, h, d) gives (N, T, h, d), with 0 behind each sequence's end.

    ``cu_seqlens`` is (N + 1,) int32 and ``T`` an int, at least as long as the longest sequence.
    """
    raise NotImplementedError("unpack_padded")


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
    raise NotImplementedError("varlen_attention")


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
    raise NotImplementedError("decode_attention")


# ---- 6. bonus: a kernel in Triton ----------------------------------------------------------------



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
    raise NotImplementedError("triton_attention")
