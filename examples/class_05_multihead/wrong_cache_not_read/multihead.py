"""Scaled dot-product attention with its gradients by hand, many heads of it, and what decoding costs.

Letters: N batch, T time, Tq queries, Tk keys, E size of the model (d_model), h heads, d = E / h size of a
head, h_kv heads of keys and values, r rank of the latents. Batch comes first. In every boolean mask
True = may be attended to: the sense of F.scaled_dot_product_attention, the opposite of the masks of
nn.MultiheadAttention. Results have the floating dtype and the device of the inputs, and inputs are never
changed in place. Equation numbers are the handout's.
"""

import math

import torch
from torch import nn

# ---- 1. masks ------------------------------------------------------------------------------------


def causal_mask(q_len, k_len=None, device=None):
    """Which keys come no later than each query, equation (4).

    Parameters
    ----------
    q_len : int
    k_len : int or None
        None: as many keys as queries.
    device : where the mask is made; None: on the CPU

    Returns
    -------
    (q_len, k_len) bool tensor
        True = may be attended to. The last query stands beside the last key: query i sees the keys
        j <= i + k_len - q_len. Where there are fewer keys than queries, the first rows have no True.
    """
    before = 0 if k_len is None else k_len - q_len  # keys that come before the first query's own
    queries = torch.arange(q_len, device=device).unsqueeze(1)  # (q_len, 1)
    keys = torch.arange(q_len + before, device=device)  # (k_len,)
    return keys <= queries + before


def padding_mask(lengths, k_len):
    """Which keys are real, equation (5).

    Parameters
    ----------
    lengths : (N,) int64 tensor
        Of every sequence, 0 to ``k_len``, in any order.
    k_len : int

    Returns
    -------
    (N, 1, 1, k_len) bool tensor, on the device of ``lengths``
        True = real token, may be attended to (the opposite of torch's key_padding_mask). The two axes of
        size 1 stand for heads and queries.
    """
    real = torch.arange(k_len, device=lengths.device) < lengths.unsqueeze(1)  # (N, k_len)
    return real.unsqueeze(1).unsqueeze(1)


# ---- 2. scaled dot-product attention -------------------------------------------------------------


def scaled_dot_product_attention(q, k, v, mask=None):
    """Attention of every query to every key, equations (1) to (3).

    Vaswani et al. (2017), section 3.2.1.

    Parameters
    ----------
    q : (..., Tq, d),  k : (..., Tk, d),  v : (..., Tk, dv)
        Float tensors; the leading axes, any number of them, are equal.
    mask : bool tensor that broadcasts to (..., Tq, Tk), or None
        True = may be attended to. None means True everywhere.

    Returns
    -------
    out : (..., Tq, dv),  weights : (..., Tq, Tk)
        Weights are exactly 0 where the mask is False; the others of a row sum to 1. A row without a True
        is exactly 0 in both, and no gradient comes from it: never NaN. Scores may reach ±1e4.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (..., Tq, Tk)
    if mask is None:
        weights = torch.softmax(scores, dim=-1)
    else:
        some = mask.any(dim=-1, keepdim=True)  # False in rows without a True, (..., Tq, 1)
        scores = scores.masked_fill(~mask & some, -torch.inf)  # such rows stay finite
        weights = torch.softmax(scores, dim=-1).masked_fill(~some, 0.0)
    return weights @ v, weights


# ---- 3. its gradients, by hand -------------------------------------------------------------------


def attention_backward(dout, q, k, v, mask=None):
    """The gradients of scaled dot-product attention, equations (6) to (9), without autograd.

    Graded under torch.no_grad().

    Parameters
    ----------
    dout : (..., Tq, dv) float tensor
        The gradient of ``out``.
    q, k, v, mask
        As they were given to ``scaled_dot_product_attention``.

    Returns
    -------
    dq : (..., Tq, d),  dk : (..., Tk, d),  dv : (..., Tk, dv)
        A row without a True has dq exactly 0, and nothing of its dout reaches dk or dv.
    """
    _, weights = scaled_dot_product_attention(q, k, v, mask)  # (..., Tq, Tk)
    dv = weights.transpose(-2, -1) @ dout
    dweights = dout @ v.transpose(-2, -1)  # (..., Tq, Tk)
    along = (weights * dweights).sum(dim=-1, keepdim=True)  # (..., Tq, 1)
    dscores = weights * (dweights - along) / math.sqrt(q.shape[-1])  # (..., Tq, Tk)
    return dscores @ k, dscores.transpose(-2, -1) @ q, dv


# ---- 4. heads ------------------------------------------------------------------------------------


def split_heads(x, num_heads):
    """Cut the last axis into heads: (N, T, h · d) gives (N, h, T, d), equation (10).

    Head i has the columns i · d to (i + 1) · d - 1.
    """
    N, T, size = x.shape
    return x.reshape(N, T, num_heads, size // num_heads).transpose(1, 2)


def merge_heads(x):
    """The inverse of ``split_heads``: (N, h, T, d) gives (N, T, h · d), the heads side by side."""
    return x.transpose(1, 2).flatten(2)


class MultiHeadAttention(nn.Module):
    """Attention with many heads, equations (11) and (12). Vaswani et al. (2017), section 3.2.2.

    With fewer heads of keys and values than of queries (extension) it is grouped-query attention
    (GQA: Ainslie et al., 2023), with one of them multi-query attention (MQA: Shazeer, 2019).
    """

    def __init__(self, d_model, num_heads, num_kv_heads=None, bias=True):
        """Given. q_proj: (E -> h · d), k_proj and v_proj: (E -> h_kv · d), o_proj: (h · d -> E).

        ``num_kv_heads`` None: h_kv = h. ``d_model``, ``num_heads``, ``num_kv_heads`` and ``head_dim`` are
        kept. Raises ValueError where h does not divide E, or h_kv does not divide h.
        """
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if d_model % num_heads:
            raise ValueError(f"num_heads = {num_heads} does not divide d_model = {d_model}")
        if num_heads % num_kv_heads:
            raise ValueError(
                f"num_kv_heads = {num_kv_heads} does not divide num_heads = {num_heads}"
            )
        self.d_model, self.num_heads, self.num_kv_heads = d_model, num_heads, num_kv_heads
        self.head_dim = d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, query, key=None, value=None, mask=None, cache=None):
        """Attend with every head at once.

        Parameters
        ----------
        query : (N, Tq, E) float tensor
        key : (N, Tk, E) float tensor or None
            None: self-attention, the keys are made of ``query``.
        value : (N, Tk, E) float tensor or None
            None: the values are made of what the keys are made of.
        mask : bool tensor that broadcasts to (N, h, Tq, Tk), or None
            True = may be attended to. None means True everywhere: no mask is implied.
        cache : KVCache or None
            Extension; with self-attention only. Keys and values of this call are appended to it, and
            attention is to all that it holds then: Tk of the mask counts them all.

        Returns
        -------
        (N, Tq, E) float tensor
            Query head i attends to the head i // (h / h_kv) of keys and values. A query with nothing to
            attend to has 0 before o_proj, so it gives o_proj's bias.
        """
        source = query if key is None else key
        q = split_heads(self.q_proj(query), self.num_heads)  # (N, h, Tq, d)
        k = split_heads(self.k_proj(source), self.num_kv_heads)  # (N, h_kv, Tk, d)
        v = split_heads(self.v_proj(source if value is None else value), self.num_kv_heads)
        _ = None if cache is None else cache.append(k, v)
        shared_by = self.num_heads // self.num_kv_heads
        k, v = (part.repeat_interleave(shared_by, dim=1) for part in (k, v))  # (N, h, Tk, d)
        out, _ = scaled_dot_product_attention(q, k, v, mask)  # (N, h, Tq, d)
        return self.o_proj(merge_heads(out))


# ---- 5. extension: a cache of keys and values ----------------------------------------------------


class KVCache:
    """Keys and values of the tokens so far, so that each is computed once. ``KVCache()`` is empty."""

    def __init__(self):
        """An empty cache, which shares nothing with any other."""
        self.held = []  # one pair of keys and values, if any

    def append(self, k, v):
        """Add the keys and values of new tokens behind those held.

        Parameters
        ----------
        k, v : (N, h_kv, T, d) float tensors
            T >= 1 new tokens; N, h_kv and d are those of the first call.

        Returns
        -------
        keys, values : (N, h_kv, len(self), d) float tensors
            All that are held now, oldest first. Gradients flow back to every k and v, and what an earlier
            call returned stays as it was.
        """
        pairs = zip(*self.held, (k, v), strict=True)
        keys, values = (torch.cat(parts, dim=2) for parts in pairs)  # (N, h_kv, T, d)
        self.held = [(keys, values)]
        return keys, values

    def __len__(self):
        """How many tokens are held, an int."""
        return sum(keys.shape[2] for keys, _ in self.held)


def kv_cache_bytes(
    kind, batch, seq_len, num_heads, head_dim, bytes_per_value, num_kv_heads=None, kv_rank=None
):
    """The bytes that a cache of one layer takes, equations (13) and (14).

    Parameters
    ----------
    kind : str
        "mha": keys and values of num_heads heads; "gqa": of num_kv_heads; "mqa": of one; "mla": one latent
        of size kv_rank a token, for both.
    batch, seq_len, num_heads, head_dim, bytes_per_value : int
    num_kv_heads : int or None
        Needed for "gqa", not looked at otherwise.
    kv_rank : int or None
        Needed for "mla", not looked at otherwise.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        Naming ``kind``, ``num_kv_heads`` or ``kv_rank``: for an unknown kind, or where its number is missing.
    """
    if kind == "mla":
        if kv_rank is None:
            raise ValueError("kv_rank is needed for mla")
        return batch * seq_len * kv_rank * bytes_per_value
    if kind == "gqa" and num_kv_heads is None:
        raise ValueError("num_kv_heads is needed for gqa")
    heads = {"mha": num_heads, "mqa": 1, "gqa": num_kv_heads}
    if kind not in heads:
        raise ValueError(f"kind must be mha, mqa, gqa or mla, not {kind!r}")
    return 2 * batch * seq_len * heads[kind] * head_dim * bytes_per_value


# ---- 6. bonus: latent attention ------------------------------------------------------------------


class MultiHeadLatentAttention(nn.Module):
    """Keys and values rebuilt from one small latent a token, which is all that a cache need hold.

    Equations (15) to (17); without the rotary part. DeepSeek-AI (2024).
    """

    def __init__(self, d_model, num_heads, kv_rank):
        """Given. q_proj, o_proj: (E -> E), kv_down: (E -> r), k_up, v_up: (r -> E), without biases.

        ``d_model``, ``num_heads``, ``head_dim`` and ``kv_rank`` are kept. Raises ValueError where
        ``num_heads`` does not divide ``d_model``.
        """
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"num_heads = {num_heads} does not divide d_model = {d_model}")
        self.d_model, self.num_heads, self.kv_rank = d_model, num_heads, kv_rank
        self.head_dim = d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.kv_down = nn.Linear(d_model, kv_rank, bias=False)
        self.k_up = nn.Linear(kv_rank, d_model, bias=False)
        self.v_up = nn.Linear(kv_rank, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, mask=None, latents=None):
        """Self-attention through the latents.

        Parameters
        ----------
        x : (N, T, E) float tensor
        mask : bool tensor that broadcasts to (N, h, T, T_total), or None
            True = may be attended to. None means True everywhere: no mask is implied.
        latents : (N, T_before, r) float tensor or None
            Those of earlier tokens, as an earlier call returned them.

        Returns
        -------
        out : (N, T, E) float tensor
        latents : (N, T_total, r) float tensor
            The earlier ones, then those of ``x``. T_total = T_before + T.
        """
        new = self.kv_down(x)  # (N, T, r)
        latents = new if latents is None else torch.cat([latents, new], dim=1)  # (N, T_total, r)
        q = split_heads(self.q_proj(x), self.num_heads)  # (N, h, T, d)
        k = split_heads(self.k_up(latents), self.num_heads)  # (N, h, T_total, d)
        v = split_heads(self.v_up(latents), self.num_heads)
        out, _ = scaled_dot_product_attention(q, k, v, mask)
        return self.o_proj(merge_heads(out)), latents
