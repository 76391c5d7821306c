"""Right, and unlike the reference: all leading axes flattened into one, boolean indices, a full buffer."""

import torch
from torch import nn


def causal_mask(q_len, k_len=None, device=None):
    width = q_len if k_len is None else k_len
    later = torch.full((q_len, width), True, device=device).triu(width - q_len + 1)
    return later.logical_not()


def padding_mask(lengths, k_len):
    mask = torch.zeros(len(lengths), 1, 1, k_len, dtype=torch.bool, device=lengths.device)
    steps = torch.arange(k_len, device=lengths.device)
    mask[:] = lengths.view(-1, 1, 1, 1).gt(steps)
    return mask


def softmax_of_rows(scores, allowed):
    """scores (B, Tq, Tk), allowed the same or None: rows with nothing left are 0."""
    if allowed is None:
        return (scores - scores.logsumexp(2, keepdim=True)).exp()
    some = allowed.any(2)
    weights = torch.zeros_like(scores)
    rows = scores[some].masked_fill(~allowed[some], float("-inf"))
    weights[some] = torch.log_softmax(rows, 1).exp()
    return weights


def flat(tensor):
    return tensor.reshape(-1, *tensor.shape[-2:])


def scaled_dot_product_attention(q, k, v, mask=None):
    lead, Tq, Tk = q.shape[:-2], q.shape[-2], k.shape[-2]
    allowed = None if mask is None else flat(mask.broadcast_to(*lead, Tq, Tk))
    scores = torch.bmm(flat(q), flat(k).mT).div(float(q.shape[-1]) ** 0.5)
    weights = softmax_of_rows(scores, allowed)
    out = torch.bmm(weights, flat(v))
    return out.reshape(*lead, Tq, v.shape[-1]), weights.reshape(*lead, Tq, Tk)


def attention_backward(dout, q, k, v, mask=None):
    _, weights = scaled_dot_product_attention(q, k, v, mask)
    shapes = q.shape, k.shape, v.shape
    weights, dout, q, k, v = map(flat, (weights, dout, q, k, v))
    dweights = torch.bmm(dout, v.mT)
    # the whole Jacobian of each row's softmax: diag(p) - p pᵀ
    jacobian = torch.diag_embed(weights) - weights.unsqueeze(3) * weights.unsqueeze(2)
    dscores = (jacobian @ dweights.unsqueeze(3)).squeeze(3) / float(q.shape[-1]) ** 0.5
    found = torch.bmm(dscores, k), torch.bmm(dscores.mT, q), torch.bmm(weights.mT, dout)
    return tuple(gradient.reshape(shape) for gradient, shape in zip(found, shapes, strict=True))


def split_heads(x, num_heads):
    return x.unflatten(2, (num_heads, -1)).permute(0, 2, 1, 3).contiguous()


def merge_heads(x):
    N, h, T, d = x.shape
    merged = x.new_empty(N, T, h, d)
    for i in range(h):
        merged[:, :, i] = x[:, i]
    return merged.view(N, T, h * d)


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads, num_kv_heads=None, bias=True):
        super().__init__()
        if num_kv_heads is None:
            num_kv_heads = num_heads
        if d_model % num_heads:
            raise ValueError(f"num_heads {num_heads} and d_model {d_model}")
        if num_heads % num_kv_heads:
            raise ValueError(f"num_kv_heads {num_kv_heads} and num_heads {num_heads}")
        self.sizes = num_heads, num_kv_heads, d_model // num_heads
        self.o_proj = nn.Linear(d_model, d_model, bias=bias)
        self.v_proj = nn.Linear(d_model, num_kv_heads * self.sizes[2], bias=bias)
        self.k_proj = nn.Linear(d_model, num_kv_heads * self.sizes[2], bias=bias)
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, query, key=None, value=None, mask=None, cache=None):
        h, h_kv, d = self.sizes
        source = query if key is None else key
        k = self.k_proj(source).unflatten(2, (h_kv, d)).transpose(1, 2)
        v = self.v_proj(source if value is None else value).unflatten(2, (h_kv, d)).transpose(1, 2)
        if isinstance(cache, KVCache):
            k, v = cache.append(k=k, v=v)
        read = torch.arange(h, device=k.device).div(h // h_kv, rounding_mode="floor")
        q = self.q_proj(query).unflatten(2, (h, d)).transpose(1, 2)
        out, _ = scaled_dot_product_attention(q, k[:, read], v[:, read], mask)
        return self.o_proj(out.transpose(1, 2).reshape(query.shape))


class KVCache:
    """Grows by doubling where nothing has to be differentiated, and by concatenation elsewhere."""

    def __init__(self):
        self.held, self.buffer, self.given = 0, None, []

    def append(self, k, v):
        if k.requires_grad or v.requires_grad or self.given:
            if not self.given and self.buffer is not None:
                self.given.append(self.buffer[..., : self.held, :])
            self.given.append(torch.stack([k, v]))
            self.held += k.shape[2]
            return torch.cat(self.given, dim=3).unbind(0)
        new = torch.stack([k, v])
        end = self.held + k.shape[2]
        if self.buffer is None or end > self.buffer.shape[3]:
            grown = new.new_zeros(*new.shape[:3], 2 * end, new.shape[4])
            if self.buffer is not None:
                grown[..., : self.held, :] = self.buffer[..., : self.held, :]
            self.buffer = grown
        self.buffer[..., self.held : end, :] = new
        self.held = end
        return self.buffer[0, ..., :end, :], self.buffer[1, ..., :end, :]

    def __len__(self):
        return self.held


def kv_cache_bytes(
    kind, batch, seq_len, num_heads, head_dim, bytes_per_value, num_kv_heads=None, kv_rank=None
):
    needed = {"gqa": num_kv_heads, "mla": kv_rank}
    if kind not in ("mha", "mqa", "gqa", "mla") or needed.get(kind, 1) is None:
        raise ValueError(f"kind {kind} with num_kv_heads {num_kv_heads}, kv_rank {kv_rank}")
    if kind == "mla":
        numbers = kv_rank
    else:
        numbers = 2 * head_dim * {"mha": num_heads, "mqa": 1, "gqa": num_kv_heads}[kind]
    return bytes_per_value * batch * seq_len * numbers


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model, num_heads, kv_rank):
        super().__init__()
        if d_model % num_heads != 0:
            raise ValueError(f"num_heads {num_heads} and d_model {d_model}")
        self.h = num_heads
        for name, (rows, columns) in {
            "q_proj": (d_model, d_model),
            "kv_down": (kv_rank, d_model),
            "k_up": (d_model, kv_rank),
            "v_up": (d_model, kv_rank),
            "o_proj": (d_model, d_model),
        }.items():
            setattr(self, name, nn.Linear(columns, rows, bias=False))

    def forward(self, x, mask=None, latents=None):
        held = [] if latents is None else [latents]
        latents = torch.cat([*held, self.kv_down(x)], dim=1)
        both = torch.cat([self.k_up.weight, self.v_up.weight])
        k, v = (latents @ both.T).chunk(2, dim=2)
        q, k, v = (split_heads(part, self.h) for part in (self.q_proj(x), k, v))
        out, _ = scaled_dot_product_attention(q, k, v, mask)
        return self.o_proj(merge_heads(out)), latents
