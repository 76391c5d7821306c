"""Right, and unlike the reference: tables by loops in Python's floats, rotations as matrices."""

import math

import numpy as np
import torch
from torch import nn


def sinusoidal_encoding(max_len, d_model, base=10000.0):
    if d_model % 2 != 0:
        raise ValueError("d_model: " + str(d_model))
    table = torch.zeros(max_len, d_model)
    for pos in range(max_len):
        for i in range(0, d_model, 2):
            angle = pos / base ** (i / d_model)
            table[pos, i], table[pos, i + 1] = math.sin(angle), math.cos(angle)
    return table


class LearnedPositions(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_len, d_model).normal_())

    def forward(self, x, offset=0):
        T = x.shape[1]
        if self.table.shape[0] - offset < T:
            raise ValueError("offset %d and %d tokens do not fit" % (offset, T))  # noqa: UP031
        return torch.stack([row + self.table.narrow(0, offset, T) for row in x])


def rope_angles(positions, head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("head_dim is odd")
    kept = torch.is_floating_point(positions)
    dtype = positions.dtype if kept else torch.get_default_dtype()
    columns = [
        positions.to(torch.float64) / float(base) ** (2 * i / head_dim)
        for i in range(head_dim // 2)
    ]
    angles = torch.stack(columns, dim=1)
    return torch.cos(angles).to(dtype=dtype), torch.sin(angles).to(dtype=dtype)


def rotations(cos, sin):
    """(T, d/2, 2, 2): a matrix for every position and pair."""
    return torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)


def apply_rope(x, cos, sin):
    R = rotations(cos, sin).to(x.dtype)
    *front, T, d = x.shape
    columns = x.view(-1, T, d // 2, 2, 1) if x.is_contiguous() else x.reshape(-1, T, d // 2, 2, 1)
    return (R @ columns).view(*front, T, d)


def apply_rope_half(x, cos, sin):
    """As the libraries do it."""
    x1, x2 = torch.tensor_split(x, 2, dim=-1)
    rotated = torch.cat((-x2, x1), -1)
    return (x * torch.cat([cos, cos], -1) + rotated * torch.cat([sin, sin], -1)).to(x.dtype)


def interleaved_to_half(W, num_heads):
    heads = W.chunk(num_heads)
    return torch.cat([part for head in heads for part in (head[0::2], head[1::2])])


def alibi_slopes(num_heads):
    below = 1
    while 2 * below <= num_heads:
        below *= 2
    exponents = list(8 * np.arange(1, below + 1) / below)
    k = 1
    while len(exponents) < num_heads:
        exponents.append(8 * k / (2 * below))
        k += 2
    return torch.as_tensor(np.exp2(-np.array(exponents)), dtype=torch.get_default_dtype())


def alibi_bias(num_heads, q_len, k_len, device=None):
    behind = torch.ones(q_len, k_len, device=device).triu(k_len - q_len + 1).bool()
    keys = torch.arange(k_len, device=device)[None, None]
    last = torch.arange(k_len - q_len, k_len, device=device)[None, :, None]
    bias = alibi_slopes(num_heads).to(device)[:, None, None] * (keys - last)
    return torch.where(behind, torch.tensor(-math.inf, dtype=bias.dtype, device=device), bias)


def interpolate_positions(positions, factor):
    if not torch.is_floating_point(positions):
        positions = positions.to(torch.get_default_dtype())
    return positions.div(factor)


def ntk_base(base, head_dim, factor):
    if head_dim in (1, 2):
        raise ValueError(f"{head_dim=}")
    return np.float64(base) * np.float64(factor) ** (1 + 2 / (head_dim - 2))


def yarn_inv_freq(head_dim, base, factor, original_len, beta_fast=32, beta_slow=1):
    theta = base ** (-np.arange(0, head_dim, 2) / head_dim)
    low, high = (
        head_dim * np.log(original_len / (2 * np.pi * beta)) / 2 / np.log(base)
        for beta in (beta_fast, beta_slow)
    )
    low, high = np.maximum(np.floor(low), 0), np.minimum(np.ceil(high), head_dim - 1)
    high = np.where(high == low, high + 0.001, high)
    gamma = 1 - np.clip((np.arange(head_dim // 2) - low) / (high - low), 0, 1)
    return torch.from_numpy(theta * ((1 - gamma) / factor + gamma)).to(torch.get_default_dtype())


def yarn_attention_scale(factor):
    return np.float64(1.0) if factor <= 1 else 1 + 0.1 * np.log(factor)
