"""What is run: the number of operators, and the products of matrices in a step with a cache."""

from dataclasses import replace

import numpy as np
from softmark.cost import flops, operators
from softmark.plugin import item

E = 24


def params_of(draw, heads=None):
    """Random parameters for E columns."""
    of_keys = E if heads is None else heads
    shapes = {"q_proj": E, "k_proj": of_keys, "v_proj": of_keys, "o_proj": E}
    params = {f"{name}.weight": draw(rows, E) / E for name, rows in shapes.items()}
    return params | {f"{name}.bias": draw(rows) for name, rows in shapes.items()}


def of_step(trace, step):
    """The Trace with the operators of one step alone."""
    return replace(trace, operators=tuple(each for each in trace.operators if each.step == step))


@item("mha.operators", claim=True)
def test_operators_do_not_grow(script, student, draw):
    """Heads, samples and tokens are axes of tensors: no more of them takes more operators."""
    params, run, done, alive = params_of(draw), script(), [], []
    run.count_operators()
    for N, T, h in ((2, 3, 2), (2, 3, 8), (7, 3, 2), (2, 9, 2)):
        made = run.new("MultiHeadAttention", E, h, params=params)
        x, mask = draw(N, T, E), np.tril(np.ones((T, T), dtype=bool))
        done.append(len(run.steps))
        one = made.forward(x, mask=mask)
        alive.append((one, made.forward(draw(N, T, E), mask=mask)))
    trace = student(run)
    for one, two in alive:
        assert not np.isclose(trace[one], trace[two]).all(axis=-1).any(), (
            "For other inputs some tokens have the same outputs."
        )
    few, *counts = (operators(of_step(trace, step)) for step in done)
    for what, found in zip(("heads", "samples", "tokens"), counts, strict=True):
        assert found <= few, (
            f"With more {what} it runs {found} operators where it ran {few}: it should be no more. Is "
            f"there a loop over {what}?"
        )


@item("cache.flops", requires="cache.steps", claim=True)
def test_a_step_computes_its_own_token_only(script, student, draw):
    """A step with T tokens held: its projections, and one row of scores and weights for each head."""
    N, h, params, run, done = 2, 3, params_of(draw), script(), []
    made = run.new("MultiHeadAttention", E, h, params=params)
    run.count_operators()
    few, many = 6, 30
    for held in (few, many):
        cache = run.new("KVCache")
        made.forward(draw(N, held - 1, E), cache=cache)
        done.append(len(run.steps))
        made.forward(draw(N, 1, E), cache=cache)
    trace = student(run)
    less, more = (flops(of_step(trace, step)) for step in done)
    more, bound = more - less, 2 * 4 * N * E * (many - few)
    assert more <= bound, (
        f"A step with {many} tokens held takes {more} floating-point operations more than with "
        f"{few}. Attention to {many - few} more keys takes {bound // 2}, and twice that is allowed: is "
        "the past computed again?"
    )
