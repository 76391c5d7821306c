"""Where a token stands: sinusoids, learned tables, rotations (RoPE), ALiBi, and longer contexts.

Letters: N batch, T time, E size of a token's vector, h heads, d size of one head (even), i the index of a
pair of numbers, 0 to d/2 - 1. Batch comes first; attention is (N, h, T, d). Positions count from 0.
Results have the floating dtype and the device of the inputs; functions without a tensor among their
arguments give the default dtype on the CPU, or on ``device`` where it is offered. Angles are computed in
float64 and what is made of them is rounded once, at the end. Inputs are never changed in place. Equation
numbers are the handout's.
"""

import math

import torch
from torch import nn


def _frequencies(size, base, device=None):
    """ω of every pair, equation (1): (size / 2,), float64."""
    return base ** (-torch.arange(0, size, 2, dtype=torch.float64, device=device) / size)


# ---- core: added to the input --------------------------------------------------------------------


def sinusoidal_encoding(max_len, d_model, base=10000.0):
    """The table of the first Transformer, equations (1) and (2).

    Parameters
    ----------
    max_len : int
        Positions 0 to max_len - 1.
    d_model : int
        Even.
    base : float

    Returns
    -------
    (max_len, d_model) tensor of the default dtype
        Sines in the even columns, cosines in the odd ones: columns 2i and 2i + 1 share ω_i.

    Raises
    ------
    ValueError
        Naming ``d_model``, where it is odd.

    Vaswani et al. (2017).
    """
    if d_model % 2 == 1:
        raise ValueError(f"d_model must be even, not {d_model}")
    positions = torch.arange(max_len, dtype=torch.float64)
    angles = torch.outer(positions, _frequencies(d_model, base))  # (max_len, E/2)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (max_len, E/2, 2)
    return table.flatten(1).to(torch.get_default_dtype())


class LearnedPositions(nn.Module):
    """A vector of its own for every position, learned with the rest of the model, equation (3)."""

    def __init__(self, max_len, d_model):
        """Given. table: (max_len, E)."""
        super().__init__()
        self.table = nn.Parameter(0.02 * torch.randn(max_len, d_model))

    def forward(self, x, offset=0):
        """Add to every token the vector of its position.

        Parameters
        ----------
        x : (N, T, E) float tensor
        offset : int, 0 or more
            The position of ``x[:, 0]``: how many tokens came before in earlier calls.

        Returns
        -------
        (N, T, E) tensor
            ``x[:, t]`` plus row ``offset + t`` of the table.

        Raises
        ------
        ValueError
            Naming ``offset`` or ``max_len``, where a token stands past the table's last row.
        """
        end, max_len = offset + x.shape[1], len(self.table)
        if end > max_len:
            raise ValueError(f"offset + T = {end} is past max_len = {max_len}")
        return x + self.table[offset:end]  # (N, T, E) + (T, E)


# ---- core: rotations -----------------------------------------------------------------------------


def rope_angles(positions, head_dim, base=10000.0):
    """Cosine and sine of the angle by which each pair turns at each position, equation (1).

    Parameters
    ----------
    positions : (T,) tensor, integer or float
        In any order; they need not begin at 0 nor be whole.
    head_dim : int
        d, even.
    base : float

    Returns
    -------
    cos, sin : (T, d/2) each
        Of ``positions[t]`` · ω_i. On the device of ``positions``; of their dtype where that is a floating
        one, of the default dtype where they are integers. The angles are computed in float64 whatever
        that dtype is, and cosine and sine rounded to it at the end.

    Raises
    ------
    ValueError
        Naming ``head_dim``, where it is odd.

    Su et al. (2021).
    """
    if head_dim % 2 == 1:
        raise ValueError(f"head_dim must be even, not {head_dim}")
    dtype = positions.dtype if positions.is_floating_point() else torch.get_default_dtype()
    frequencies = _frequencies(head_dim, base, positions.device)
    angles = torch.outer(positions.double(), frequencies)  # (T, d/2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def apply_rope(x, cos, sin):
    """Turn the pairs (x_0, x_1), (x_2, x_3), ...: RoFormer's layout, equation (4).

    Parameters
    ----------
    x : (..., T, d) float tensor
        Queries or keys, with any number of axes in front.
    cos, sin : (T, d/2) float tensors
        What rope_angles returns. Their dtype may differ from that of ``x``.

    Returns
    -------
    (..., T, d) tensor
        Of the dtype of ``x``.
    """
    x0, x1 = x[..., 0::2], x[..., 1::2]  # (..., T, d/2)
    turned = torch.stack([x0 * cos - x1 * sin, x0 * sin + x1 * cos], dim=-1)  # (..., T, d/2, 2)
    return turned.flatten(-2).to(x.dtype)


# ---- extension -----------------------------------------------------------------------------------


def apply_rope_half(x, cos, sin):
    """Turn the pairs (x_i, x_{i + d/2}): the layout known as "rotate half", equation (6).

    Arguments and result are those of apply_rope.
    """
    x0, x1 = x.chunk(2, dim=-1)  # (..., T, d/2)
    turned = torch.cat([x0 * cos - x1 * sin, x0 * sin + x1 * cos], dim=-1)  # (..., T, d)
    return turned.to(x.dtype)


def interleaved_to_half(W, num_heads):
    """Order the rows of a query or key projection anew, so that apply_rope_half fits them.

    Parameters
    ----------
    W : (h · d, E) tensor
        The weight of an ``nn.Linear`` whose outputs were made for apply_rope, head after head.
    num_heads : int
        h.

    Returns
    -------
    (h · d, E) tensor
        The same rows, in another order within each head. With queries and keys projected by it,
        apply_rope_half gives the scores that apply_rope gives with ``W``.
    """
    pairs = W.unflatten(0, (num_heads, -1, 2))  # (h, d/2, 2, E)
    return pairs.transpose(1, 2).reshape(W.shape)


def _series(count):
    """Slopes where the number of heads is a power of two, equation (7)."""
    return [2.0 ** (-8 * k / count) for k in range(1, count + 1)]


def alibi_slopes(num_heads):
    """The slope of every head, equation (7).

    Parameters
    ----------
    num_heads : int
        h. Where it is no power of two, and n is the largest one below it: first the n slopes for n heads,
        then of the slopes for 2n heads the first, the third, the fifth, ... until there are h.

    Returns
    -------
    (h,) tensor of the default dtype

    Press, Smith & Lewis (2022).
    """
    power = 1 << (num_heads.bit_length() - 1)  # the largest power of two up to num_heads
    slopes = _series(power) + _series(2 * power)[0::2][: num_heads - power]
    return torch.tensor(slopes)


def alibi_bias(num_heads, q_len, k_len, device=None):
    """What is added to the scores of causal attention in place of any encoding, equation (8).

    Parameters
    ----------
    num_heads, q_len, k_len : int
        Queries and keys are aligned at the END: the last query stands where the last key does. So the
        position of query i among the keys is i + k_len - q_len.
    device : torch.device, str or None
        Where to make the result; None: on the CPU.

    Returns
    -------
    (h, q_len, k_len) tensor of the default dtype
        Minus the head's slope times the distance back to the key; -inf for keys after the query.
    """
    of_queries = k_len - q_len + torch.arange(q_len, device=device)  # (q_len,)
    distance = of_queries.unsqueeze(1) - torch.arange(k_len, device=device)  # (q_len, k_len)
    slopes = alibi_slopes(num_heads).to(device).view(-1, 1, 1)  # (h, 1, 1)
    return (-slopes * distance).masked_fill(distance < 0, -torch.inf)


# ---- bonus: longer contexts than those of the training -------------------------------------------


def interpolate_positions(positions, factor):
    """Positions pressed together, equation (9).

    Parameters
    ----------
    positions : (T,) tensor, integer or float
    factor : float
        By how much the context grows.

    Returns
    -------
    (T,) float tensor
        Of the dtype of float positions, of the default dtype for integer ones.

    Chen et al. (2023).
    """
    return positions // factor


def ntk_base(base, head_dim, factor):
    """The base with which the slowest pair turns ``factor`` times slower, equation (10).

    Parameters
    ----------
    base, factor : float
    head_dim : int
        Above 2.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        Naming ``head_dim``, where it is 2 or less.
    """
    if head_dim <= 2:
        raise ValueError(f"head_dim must be above 2, not {head_dim}")
    return base * factor ** (head_dim / (head_dim - 2))


def yarn_inv_freq(head_dim, base, factor, original_len, beta_fast=32, beta_slow=1):
    """The frequencies of YaRN, as its authors' code has them, equations (11) to (13).

    Parameters
    ----------
    head_dim : int
        d, even.
    base, factor : float
    original_len : int
        The context length of the training.
    beta_fast, beta_slow : float
        Pairs that turn more often than ``beta_fast`` in ``original_len`` tokens keep their frequency;
        those that turn less often than ``beta_slow`` are interpolated.

    Returns
    -------
    (d/2,) tensor of the default dtype
        The frequency of every pair, computed in float64 and rounded once.

    Peng et al. (2023); the paper's own ramp is another one, see the handout.
    """

    def pair_turning(times):
        """The pair, not whole, that turns so many times in ``original_len`` tokens, equation (11)."""
        return head_dim * math.log(original_len / (2 * math.pi * times)) / (2 * math.log(base))

    low = max(math.floor(pair_turning(beta_fast)), 0)
    high = min(math.ceil(pair_turning(beta_slow)), head_dim - 1)
    if high == low:
        high = low + 0.001
    pairs = torch.arange(head_dim // 2, dtype=torch.float64)  # (d/2,)
    kept = 1 - ((pairs - low) / (high - low)).clamp(0, 1)  # gamma: 1 keeps, 0 interpolates
    frequencies = _frequencies(head_dim, base)
    blended = frequencies * (1 - kept) / factor + frequencies * kept
    return blended.to(torch.get_default_dtype())


def yarn_attention_scale(factor):
    """What cosine and sine are multiplied by beside YaRN's frequencies, equation (14).

    Parameters
    ----------
    factor : float

    Returns
    -------
    float
        1.0 where ``factor`` is 1 or less.
    """
    return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
