"""The mixture of experts: output, balance loss, gradients, and that no expert works for nothing."""

from dataclasses import replace

import numpy as np
import pytest
from softmark.cost import flops
from softmark.plugin import item

# N, T, E, d_ff, experts, top_k
SIZES = [(3, 4, 5, 7, 4, 2), (1, 1, 3, 2, 3, 1), (2, 3, 4, 1, 3, 3), (2, 4, 3, 2, 6, 1)]
EPS = 1e-5


@item("moe.{which}", depends="swiglu.values")
@pytest.mark.parametrize("which", ["out", "balance"])
def test_values(script, agree, draw, which):
    """The sum of what the chosen experts give, and the Switch loss."""
    run = script()
    for N, T, *sizes in SIZES:
        params = draw.params("MixtureOfExperts", *sizes)
        run.new("MixtureOfExperts", *sizes, params=params).forward(draw(N, T, sizes[0]))
    agree(run, only={"out": "out", "balance": "balance_loss"}[which])


def clear(draw, N, T, E, d_ff, experts, top_k):
    """Parameters and x such that no choice hangs by a hair and every expert is chosen."""
    while True:
        params, x = draw.params("MixtureOfExperts", E, d_ff, experts, top_k), draw(N, T, E)
        logits = np.sort(x @ params["router.weight"].T, axis=2)
        order = np.argsort(-(x @ params["router.weight"].T), axis=2)[..., :top_k]
        if np.diff(logits, axis=2).min() > 1e-3 and len(np.unique(order)) == experts:
            return params, x


@item("moe.gradients")
def test_gradients(script, student, draw):
    """Of both results together, to x, the router and every expert."""
    N, T, *sizes = 2, 6, 4, 3, 3, 2
    params, x = clear(draw, N, T, *sizes)
    upstream = draw(N, T, 4), draw()
    run = script()
    made = run.new("MixtureOfExperts", *sizes, params=params)
    leaf = run.tensor("x", x)
    out, loss = made.forward(leaf)
    run.backward((out, upstream[0]), (loss, upstream[1]))
    read, grads = run.gradient(leaf), run.gradients(made)
    way, of_params = draw(*x.shape), {k: draw(*v.shape) for k, v in params.items()}
    moves = {"x": [made.forward(x + step * way) for step in (EPS, -EPS)]}
    for part in ("router", "experts"):
        moves[part] = []
        for step in (EPS, -EPS):
            moved = {k: v + step * of_params[k] * (part in k) for k, v in params.items()}
            run.assign(made, moved)
            moves[part].append(made.forward(x))
    trace = student(run)
    along = {"x": np.sum(trace[read] * way)}
    for part in ("router", "experts"):
        along[part] = sum(np.sum(g * of_params[k]) for k, g in trace[grads].items() if part in k)
    for part, sides in moves.items():
        ends = [sum(np.sum(trace[h] * u) for h, u in zip(s, upstream, strict=True)) for s in sides]
        slope = (ends[0] - ends[1]) / (2 * EPS)
        assert abs(along[part] - slope) < 1e-6 * max(1.0, abs(slope)), (
            f"The gradients of {part} are not the slope of out and balance_loss. Is something detached?"
        )


@item("moe.cost", requires="moe.out", claim=True)
def test_cost(script, student, draw):
    """Products of matrices for the chosen experts of each token, and no others."""
    N, T, E, d_ff, experts, top_k = 3, 8, 6, 5, 8, 2
    params, x = clear(draw, N, T, E, d_ff, experts, top_k)
    run = script()
    made = run.new("MixtureOfExperts", E, d_ff, experts, top_k, params=params)
    run.count_operators()
    made.forward(x)
    trace = student(run)
    last = len(run.steps) - 1
    taken = flops(replace(trace, operators=tuple(o for o in trace.operators if o.step == last)))
    due = 2 * N * T * (E * experts + top_k * 3 * E * d_ff)
    assert taken <= 1.5 * due, (
        f"{N * T} tokens take {taken:,} floating-point operations. The router and {top_k} experts for "
        f"each take {due:,}, and the bound is 1.5 times that: run each expert on the tokens that chose "
        "it, and on no others."
    )
