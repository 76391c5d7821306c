"""Bahdanau's and Luong's attention without a mask: weights against the reference, and the context."""

import numpy as np
import pytest
from softmark.plugin import item

# (N, S, Q, C, A). Sizes that all differ, then each of them 1.
SIZES = [(3, 5, 4, 6, 2), (2, 4, 3, 2, 5), (1, 4, 3, 2, 5), (3, 1, 2, 4, 3)]
SIZES += [(2, 3, 1, 2, 4), (2, 3, 2, 1, 4), (2, 3, 4, 2, 1), (1, 1, 1, 1, 1)]


def attention(run, draw, kind, Q, C, A):
    """Attention of this kind with random weights."""
    shapes = {
        "bahdanau": {"W_a.weight": (A, Q), "U_a.weight": (A, C), "v_a.weight": (1, A)},
        "dot": {},
        "general": {"W_a.weight": (Q, C)},
        "concat": {"W_a.weight": (A, Q + C), "v_a.weight": (1, A)},
    }
    params = {name: 1.5 * draw(*shape) for name, shape in shapes[kind].items()}
    if kind == "bahdanau":
        return run.new("BahdanauAttention", Q, C, A, params=params)
    more = {"attn_dim": A} if kind == "concat" else {}
    return run.new("LuongAttention", Q, C, kind, params=params, **more)


def attend(run, draw, kind):
    """Every size once: keys, and handles of context and weights."""
    done = []
    for N, S, Q, C, A in SIZES:
        Q = C if kind == "dot" else Q
        query, keys = draw(N, Q), draw(N, S, C)
        done.append((keys, *attention(run, draw, kind, Q, C, A).forward(query, keys)))
    return done


def assert_contexts(trace, done):
    for keys, context, weights in done:
        due = np.einsum("ns,nsc->nc", trace[weights], keys)
        assert np.allclose(trace[context], due, 1e-9, 1e-11), (
            "context is not the sum of the keys, each times its own weight."
        )
    assert all(np.any(trace[context]) for _, context, _ in done), "context is 0 everywhere."


@item("bahdanau.weights", depends="softmax.values", draws="bahdanau")
def test_additive(script, agree, draw):
    """The softmax of v_a^T tanh(W_a s + U_a h_j) over j."""
    run = script()
    attend(run, draw, "bahdanau")
    agree(run, only="weights")


@item("bahdanau.context", depends=("softmax.values", "bahdanau.weights"), draws="bahdanau")
def test_context_of_additive(script, student, draw):
    """The keys, each times its own weight."""
    run = script()
    done = attend(run, draw, "bahdanau")
    assert_contexts(student(run), done)


@item("luong.{kind}", depends="softmax.values")
@pytest.mark.parametrize("kind", ["dot", "general", "concat"])
def test_scores(script, agree, draw, kind):
    """The softmax of each kind of score."""
    run = script()
    attend(run, draw, kind)
    if kind == "concat":  # attn_dim is the query's size where it is not given
        params = {"W_a.weight": draw(3, 5), "v_a.weight": draw(1, 3)}
        default = run.new("LuongAttention", 3, 2, "concat", params=params)
        default.forward(draw(2, 3), draw(2, 4, 2))
    agree(run, only="weights")


@item("luong.context", depends=("softmax.values", "luong.dot", "luong.general", "luong.concat"))
def test_context(script, student, draw):
    """The keys, each times its own weight, for each kind of score."""
    run = script()
    done = [each for kind in ("dot", "general", "concat") for each in attend(run, draw, kind)]
    assert_contexts(student(run), done)
