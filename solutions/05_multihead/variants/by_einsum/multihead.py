"""Right, and unlike the reference: exponentials by hand, einsum everywhere, a cache that keeps lists."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812


def causal_mask(q_len, k_len=None, device=None):
    if k_len is None:
        k_len = q_len
    return torch.ones(q_len, k_len, dtype=torch.bool, device=device).tril(k_len - q_len)


def padding_mask(lengths, k_len):
    places = torch.ones_like(lengths).unsqueeze(-1).expand(-1, k_len).cumsum(-1)
    return (places <= lengths[:, None])[:, None, None, :]


def _weights(q, k, mask):
    scores = torch.einsum("...id,...jd->...ij", q * q.shape[-1] ** -0.5, k)
    allowed = torch.ones_like(scores, dtype=torch.bool)
    if mask is not None:
        allowed = allowed & mask
    lifted = scores.where(allowed, scores.new_tensor(-math.inf))
    highest = lifted.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    e = torch.exp(lifted - highest)
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total == 0, torch.ones_like(total), total)


def scaled_dot_product_attention(q, k, v, mask=None):
    weights = _weights(q, k, mask)
    return torch.einsum("...ij,...jv->...iv", weights, v), weights


def attention_backward(dout, q, k, v, mask=None):
    p = _weights(q, k, mask)
    out = torch.einsum("...ij,...jv->...iv", p, v)
    delta = torch.einsum("...iv,...iv->...i", dout, out)  # the same as the sum over the weights
    ds = p * (torch.einsum("...iv,...jv->...ij", dout, v) - delta[..., None])
    root = q.shape[-1] ** -0.5
    dq = torch.einsum("...ij,...jd->...id", ds, k) * root
    dk = torch.einsum("...ij,...id->...jd", ds, q) * root
    return dq, dk, torch.einsum("...ij,...iv->...jv", p, dout)


def split_heads(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


def merge_heads(x):
    return torch.cat(x.unbind(1), dim=-1)


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads, num_kv_heads=None, bias=True):
        super().__init__()
        num_kv_heads = num_kv_heads or num_heads
        if d_model % num_heads or num_heads % num_kv_heads:
            raise ValueError("num_heads or num_kv_heads does not divide")
        self.h, self.g, self.d = num_kv_heads, num_heads // num_kv_heads, d_model // num_heads
        width = num_kv_heads * self.d
        self.q_proj, self.o_proj = (nn.Linear(d_model, d_model, bias=bias) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(d_model, width, bias=bias) for _ in range(2))

    def forward(self, query, key=None, value=None, mask=None, cache=None):
        if key is None:
            key = query
        if value is None:
            value = key
        N, Tq, _ = query.shape
        q = self.q_proj(query).view(N, Tq, self.h, self.g, self.d)
        k = self.k_proj(key).view(N, -1, self.h, self.d)
        v = self.v_proj(value).view(N, -1, self.h, self.d)
        decoding = cache is not None
        if decoding:
            held = cache.append(*(part.transpose(1, 2) for part in (k, v)))
            k, v = (part.transpose(1, 2) for part in held)
        scores = torch.einsum("niagd,njad->nagij", q, k) / math.sqrt(self.d)
        if mask is not None:
            while mask.dim() < 4:
                mask = mask[None]
            mask = mask.expand(-1, self.h * self.g, -1, -1).unflatten(1, (self.h, self.g))
            scores = scores.masked_fill(~mask, -math.inf)
        weights = F.softmax(scores, dim=-1)
        if mask is not None:  # rows of -inf; no gradient passes masked_fill there
            weights = weights.nan_to_num()
        out = torch.einsum("nagij,njad->niagd", weights, v)
        return self.o_proj(out.reshape(N, Tq, -1))


class KVCache:
    def __init__(self):
        self.parts = []

    def append(self, k, v):
        self.parts.append((k, v))
        return [torch.cat([pair[i] for pair in self.parts], dim=-2) for i in (0, 1)]

    def __len__(self):
        return sum(k.size(2) for k, _ in self.parts)


def kv_cache_bytes(
    kind, batch, seq_len, num_heads, head_dim, bytes_per_value, num_kv_heads=None, kv_rank=None
):
    widths = {
        "mha": lambda: 2 * num_heads * head_dim,
        "mqa": lambda: 2 * head_dim,
        "gqa": lambda: 2 * num_kv_heads * head_dim,
        "mla": lambda: 1 * kv_rank,
    }
    try:
        return widths[kind]() * batch * seq_len * bytes_per_value
    except (KeyError, TypeError):
        raise ValueError("kind, num_kv_heads or kv_rank") from None


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model, num_heads, kv_rank):
        super().__init__()
        if d_model % num_heads:
            raise ValueError("num_heads does not divide d_model")
        self.h, self.d = num_heads, d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.kv_down = nn.Linear(d_model, kv_rank, bias=False)
        self.k_up = nn.Linear(kv_rank, d_model, bias=False)
        self.v_up = nn.Linear(kv_rank, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, mask=None, latents=None):
        """The up-projections absorbed: queries look at the latents themselves."""
        new = self.kv_down(x)
        if latents is not None:
            new = torch.cat([latents, new], dim=1)
        k_up = self.k_up.weight.view(self.h, self.d, -1)
        v_up = self.v_up.weight.view(self.h, self.d, -1)
        q = self.q_proj(x).unflatten(-1, (self.h, self.d))
        q = torch.einsum("nihd,hdr->nhir", q, k_up) * (k_up.shape[-1] / self.d) ** 0.5
        keys = new[:, None].expand(-1, self.h, -1, -1)
        seen, _ = scaled_dot_product_attention(q, keys, keys, mask)
        out = torch.einsum("nhir,hdr->nihd", seen, v_up)
        return self.o_proj(out.flatten(2)), new
