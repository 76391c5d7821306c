"""Right, and unlike the reference: a pair is a complex number, and turning it is a product."""

import cmath
import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn


def turns(positions, size, base):
    """e^(i angle), complex128."""
    logs = torch.linspace(0, 1 - 2 / size, size // 2, dtype=torch.float64) * math.log(base)
    rates = torch.exp(-logs).to(positions.device)
    angles = positions.to(torch.float64)[:, None] * rates[None, :]
    return torch.polar(torch.ones_like(angles), angles)


def sinusoidal_encoding(max_len, d_model, base=10000.0):
    assert_even(d_model, "d_model")
    z = turns(torch.arange(max_len), d_model, base)
    # (cos, sin) of i · conj(z) is (sin, cos)
    table = torch.view_as_real((1j * z.conj()).resolve_conj())
    return table.reshape(max_len, d_model).to(torch.get_default_dtype())


def assert_even(size, name):
    print(name, "is", size)
    if size & 1:
        raise ValueError(f"{name}={size}: pairs are needed")


class LearnedPositions(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_len, d_model))

    def forward(self, x, offset=0):
        rows = torch.arange(x.size(1), device=x.device) + offset
        if offset + x.size(1) > self.table.size(0):
            raise ValueError(f"max_len is {self.table.size(0)}")
        return x + F.embedding(rows, self.table)[None]


def rope_angles(positions, head_dim, base=10000.0):
    assert_even(head_dim, "head_dim")
    z = turns(positions, head_dim, base)
    to = positions.dtype if positions.dtype.is_floating_point else torch.get_default_dtype()
    return z.real.to(to), z.imag.to(to)


def apply_rope(x, cos, sin):
    wide = torch.promote_types(x.dtype, torch.float32)  # there are no complex numbers in bfloat16
    pairs = torch.view_as_complex(x.to(wide).reshape(*x.shape[:-1], -1, 2))
    by = torch.complex(cos.to(wide), sin.to(wide))
    return torch.view_as_real(pairs * by).flatten(-2).type_as(x)


def apply_rope_half(x, cos, sin):
    order = half_order(x.shape[-1])
    back = torch.argsort(torch.tensor(order)).tolist()
    return apply_rope(x[..., back], cos, sin)[..., order]


def half_order(d):
    """Which number of the interleaved layout stands where in the half layout."""
    return [*range(0, d, 2), *range(1, d, 2)]


def interleaved_to_half(W, num_heads):
    d = W.shape[0] // num_heads
    return W[[head * d + row for head in range(num_heads) for row in half_order(d)]]


def alibi_slopes(num_heads):
    """By the published recursion."""

    def slopes(n):
        if math.log2(n).is_integer():
            start = 2 ** (-(2 ** -(math.log2(n) - 3)))
            return [start * start**i for i in range(n)]
        closest = 2 ** math.floor(math.log2(n))
        return slopes(closest) + slopes(2 * closest)[0::2][: n - closest]

    return torch.tensor(slopes(num_heads), dtype=torch.get_default_dtype())


def alibi_bias(num_heads, q_len, k_len, device=None):
    slopes = alibi_slopes(num_heads)
    bias = torch.full((num_heads, q_len, k_len), float("-inf"))
    for i in range(q_len):
        for j in range(min(k_len, i + k_len - q_len + 1)):
            bias[:, i, j] = slopes * (j - (i + k_len - q_len))
    return bias.to(device)


def interpolate_positions(positions, factor):
    return torch.true_divide(positions, factor)


def ntk_base(base, head_dim, factor):
    if head_dim < 3:
        raise ValueError("head_dim")
    grown = math.log(base) + head_dim / (head_dim - 2) * math.log(factor)
    return cmath.exp(grown).real


def yarn_inv_freq(head_dim, base, factor, original_len, beta_fast=32, beta_slow=1):
    def pair(rotations):
        wavelength = original_len / rotations
        return math.log(wavelength / math.tau, base) * head_dim / 2

    lo, hi = math.floor(pair(beta_fast)), math.ceil(pair(beta_slow))
    lo, hi = max(lo, 0), min(hi, head_dim - 1)
    width = hi - lo or 0.001
    found = []
    for i in range(head_dim // 2):
        rate = base ** (-2 * i / head_dim)
        share = min(max((i - lo) / width, 0.0), 1.0)
        found.append(rate / factor * share + rate * (1 - share))
    return torch.tensor(found)


def yarn_attention_scale(factor):
    return max(1.0, 1 + math.log(factor) / 10)
