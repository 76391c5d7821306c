"""What a Script cost, from the operators that it ran: the same numbers each time.

They are claims: the list is made beside the submission's code, which can leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from softmark.script import Operator, Trace

_Shapes = tuple[tuple[int, ...], ...]

# What moves no number: it makes a view of a tensor, or asks for one.
_VIEWS = frozenset(
    "alias as_strided chunk detach diagonal expand movedim narrow permute real select slice split "
    "split_with_sizes squeeze swapaxes t transpose unbind unfold unsqueeze view _reshape_alias "
    "_unsafe_view lift_fresh".split()
)


def operators(trace: Trace) -> int:
    """How many ATen operators ran after ``count_operators``, those that only make a view left out.

    Raises AssertionError, with a message for the student, where the Trace has no room for all.
    """
    return sum(_name(operator) not in _VIEWS for operator in _all(trace))


def flops(trace: Trace) -> int:
    """The floating-point operations of all products of matrices: 2 for a product and its sum.

    Products are counted by the shapes of their factors, whichever operator makes them; what is done
    element by element is left out, but for multiplications: where one is broadcast to more elements
    than either factor has, it may be a product of matrices written out, and counts as one.

    Raises AssertionError, with a message for the student, where the Trace has no room for all.
    """
    return sum(_flops(operator) for operator in _all(trace))


def peak_bytes(trace: Trace) -> int:
    """The most that tensors made after ``measure_memory`` took at one time within a step, in bytes."""
    return max((memory.peak for memory in trace.memory), default=0)


def left_bytes(trace: Trace) -> int:
    """What tensors made after ``measure_memory`` take after the step that leaves most, in bytes: its
    results and all that is kept for the way back."""
    return max((memory.left for memory in trace.memory), default=0)


def _all(trace: Trace) -> tuple[Operator, ...]:
    assert not trace.more_operators, (
        f"It runs more than {len(trace.operators):,} operators, too many to be counted. "
        "Is there a loop over single numbers?"
    )
    return trace.operators


def _name(operator: Operator) -> str:
    return operator.name.removeprefix("aten.")


def _flops(operator: Operator) -> int:
    formula = _FORMULAS.get(_name(operator))
    return 0 if formula is None else formula(operator.shapes)


def _product(shapes: _Shapes) -> int:
    """Of (..., n, k) and (..., k, m): all of the first, for every column of the second."""
    a, b = shapes[:2]
    return 2 * prod(a) * (b[-1] if len(b) > 1 else 1)


def _added_product(shapes: _Shapes) -> int:
    return _product(shapes[1:])


def _linear(shapes: _Shapes) -> int:
    x, weight = shapes[:2]
    return 2 * prod(x) * weight[0]


def _attention(shapes: _Shapes) -> int:
    q, k, v = shapes[:3]
    return 2 * prod(q) * k[-2] + 2 * prod(q[:-1]) * k[-2] * v[-1]


def _broadcast_product(shapes: _Shapes) -> int:
    if len(shapes) < 2:
        return 0
    a, b = shapes[:2]
    longest = max(len(a), len(b))
    whole = prod(
        max(m, n) if m and n else 0
        for m, n in zip((1,) * (longest - len(a)) + a, (1,) * (longest - len(b)) + b, strict=True)
    )
    return 2 * whole if whole > max(prod(a), prod(b)) else 0


def _convolution(shapes: _Shapes) -> int:
    """Of input (N, C, *) and weight (K, C / groups, *): as if every place had an output."""
    x, weight = shapes[:2]
    return 2 * x[0] * prod(x[2:]) * prod(weight)


def _embedded(shapes: _Shapes) -> int:
    """Of three factors and the axes along which each is repeated: no more than their outer product."""
    return 2 * max(map(prod, shapes[:3]))


_FORMULAS: Mapping[str, Callable[[_Shapes], int]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "matmul", "_int_mm"), _product),
    **dict.fromkeys(("addmm", "baddbmm", "addmv", "addbmm", "_addmm_activation"), _added_product),
    "linear": _linear,
    **dict.fromkeys(("mul", "outer", "ger"), _broadcast_product),
    "_trilinear": _embedded,
    **dict.fromkeys(("convolution", "_convolution", "mkldnn_convolution"), _convolution),
    **dict.fromkeys(
        (
            "scaled_dot_product_attention",
            "_scaled_dot_product_attention_math",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
        ),
        _attention,
    ),
}
