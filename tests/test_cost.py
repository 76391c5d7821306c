"""Costs from operators, beside PyTorch's own counter of floating-point operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from softmark import cost
from softmark.script import Operator, Trace

torch = pytest.importorskip("torch", reason="PyTorch is not installed here")
from softmark.isolation.tensors import _Log  # noqa: E402
from softmark.isolation.wire import _costs  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

F = torch.nn.functional
X, W, Q, K, V = (
    torch.ones(*shape, dtype=torch.float64)
    for shape in ((2, 5, 3), (7, 3), (2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 7))
)
COUNTED = {
    "mm": lambda: X[0] @ W.T,
    "bmm": lambda: torch.bmm(X, X.mT),
    "batched": lambda: Q @ K.mT,
    "einsum": lambda: torch.einsum("nhqd,nhkd->nhqk", Q, K),
    "addmm": lambda: F.linear(X, W, torch.ones(7, dtype=torch.float64)),
    "baddbmm": lambda: torch.baddbmm(torch.ones(2, 5, 5, dtype=torch.float64), X, X.mT),
}


def trace_of(run: Callable[[], Any]) -> Trace:
    log = _Log()
    with log:
        run()
    operators, more, _ = _costs(log.packed(), 1)
    return Trace({}, operators=operators, more_operators=more)


@pytest.mark.parametrize("name", COUNTED)
def test_flops_are_those_of_the_library_s_counter(name) -> None:
    with FlopCounterMode(display=False) as counter:
        COUNTED[name]()
    assert cost.flops(trace_of(COUNTED[name])) == counter.get_total_flops() > 0


@pytest.mark.parametrize(
    ("run", "flops"),
    [
        (lambda: torch.mv(W, W[0]), 2 * 7 * 3),
        (lambda: torch.dot(W[0], W[1]), 2 * 3),
        (lambda: (X[:, :, None] * W).sum(-1), 2 * 2 * 5 * 7 * 3),  # a product written out
        (lambda: X * X, 0),
        (lambda: X * 2.0, 0),
        (lambda: X * X[:1], 0),
        (lambda: torch.outer(W[0], W[1]), 2 * 9),
        (lambda: F.scaled_dot_product_attention(Q, K, V), 2 * 6 * 4 * 6 * (5 + 7)),
        (lambda: F.conv1d(torch.ones(2, 3, 9), torch.ones(4, 3, 1)), 2 * 2 * 9 * 3 * 4),
        (lambda: torch.ones(0, 3) @ torch.ones(3, 0), 0),
    ],
)
def test_flops_of_what_that_counter_leaves_out(run, flops) -> None:
    assert cost.flops(trace_of(run)) == flops


def test_views_are_no_operators() -> None:
    assert cost.operators(trace_of(lambda: X.view(10, 3).T[None, :2].transpose(0, 1))) == 0
    assert cost.operators(trace_of(lambda: (X + 1).mT.reshape(-1))) == 2  # the sum, and a copy


def test_a_loop_is_told_from_one_product() -> None:
    def loop(heads: int) -> Trace:
        q = torch.ones(2, heads, 4, 5)
        return trace_of(lambda: torch.stack([q[:, i] @ q[:, i].mT for i in range(heads)], 1))

    def batched(heads: int) -> Trace:
        q = torch.ones(2, heads, 4, 5)
        return trace_of(lambda: q @ q.mT)

    assert cost.operators(loop(8)) > cost.operators(loop(2))
    assert cost.operators(batched(8)) == cost.operators(batched(2))
    assert cost.flops(loop(8)) == cost.flops(batched(8))


def test_too_many_operators_are_not_counted() -> None:
    trace = Trace({}, operators=(Operator(0, "aten.mm", ((2, 3), (3, 4))),), more_operators=True)
    for count in (cost.operators, cost.flops):
        with pytest.raises(AssertionError, match="too many to be counted"):
            count(trace)
