"""Given, whole: multi-head attention, its masks and its cache, on PyTorch's own attention.

The interface is that of topic 05. Import what you need: ``from attention_layers import causal_mask``.
This file is not handed in: grading uses the course's own copy of it.

Letters: N batch, T time, E size of the model, h heads, h_kv key and value heads, d head size. In every
boolean mask True = may be attended to: the opposite of nn.MultiheadAttention's key_padding_mask.
"""

import torch
from torch import nn


def causal_mask(q_len, k_len=None, device=None):
    """(q_len, k_len) bool: query i may attend to the keys j <= i + k_len - q_len.

    It is aligned at the end: the last query sees every key, as it must where the first keys come out of
    a cache. ``k_len`` None means q_len.
    """
    k_len = q_len if k_len is None else k_len
    queries = torch.arange(k_len - q_len, k_len, device=device)
    return torch.arange(k_len, device=device) <= queries.unsqueeze(1)


def padding_mask(lengths, k_len):
    """(N, 1, 1, k_len) bool: True where a key is real, for ``lengths`` (N,); on the lengths' device."""
    return torch.arange(k_len, device=lengths.device) < lengths[:, None, None, None]


class KVCache:
    """The keys and values of the tokens that one layer has seen. Gradients flow through it."""

    def __init__(self):
        self.keys = self.values = None

    def append(self, k, v):
        """Add k and v, (N, h_kv, T, d) each, behind what is held; returns all keys and all values."""
        if self.keys is not None:
            k, v = torch.cat([self.keys, k], dim=2), torch.cat([self.values, v], dim=2)
        self.keys, self.values = k, v
        return k, v

    def __len__(self):
        """The number of tokens held."""
        return 0 if self.keys is None else self.keys.shape[2]


class MultiHeadAttention(nn.Module):
    """Multi-head attention; grouped-query attention with num_kv_heads < num_heads."""

    def __init__(self, d_model, num_heads, num_kv_heads=None, bias=True):
        """q_proj and o_proj: (E -> E); k_proj and v_proj: (E -> h_kv d). ``num_kv_heads`` None means h.

        Raises ValueError where ``num_heads`` does not divide ``d_model``, or ``num_kv_heads`` not
        ``num_heads``.
        """
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if d_model % num_heads:
            raise ValueError(f"num_heads must divide d_model = {d_model}, and {num_heads} does not")
        if num_heads % num_kv_heads:
            raise ValueError(f"num_kv_heads must divide num_heads = {num_heads}: {num_kv_heads}")
        self.head_dim = d_model // num_heads
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, query, key=None, value=None, mask=None, cache=None):
        """Attend, and mix the heads.

        Parameters
        ----------
        query : (N, Tq, E) float tensor
        key, value : (N, Tk, E) float tensors or None
            key None: self-attention; value None: value = key.
        mask : bool tensor that broadcasts to (N, h, Tq, Tk), or None
            True = may be attended to. None means True everywhere: no mask is implied.
        cache : KVCache or None
            For self-attention only: the keys and values of this call are appended to it, and attended to
            with all it held before. ``mask`` then covers them all: Tk = len(cache) after the call.

        Returns
        -------
        (N, Tq, E) float tensor
            A query with no key to attend to gives 0 before o_proj, so o_proj's bias, and gradients of 0.

        Raises ValueError for a cache with a ``key``.
        """
        if cache is not None and key is not None:
            raise ValueError("cache is for self-attention: key must be None")
        key = query if key is None else key
        value = key if value is None else value
        q = self._split(self.q_proj(query))  # (N, h, Tq, d)
        k, v = self._split(self.k_proj(key)), self._split(self.v_proj(value))  # (N, h_kv, Tk, d)
        if cache is not None:
            k, v = cache.append(k, v)
        if self.num_kv_heads < self.num_heads:
            group = self.num_heads // self.num_kv_heads
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        if mask is None:
            out = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            empty = ~mask.any(dim=-1, keepdim=True)  # such rows attend to all, then are set to 0
            out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask | empty)
            out = out.masked_fill(empty, 0.0)  # (N, h, Tq, d)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def _split(self, x):
        """(N, T, heads * d) -> (N, heads, T, d)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
