"""What is right given the student's own earlier parts.

Asked only where something before them is wrong. The submission makes the same numbers twice: as a
whole, and chained from its own parts. They must agree, and they must be alive: what does not answer to
its inputs agrees with itself too, and earns nothing.
"""

import numpy as np
import pytest
from softmark.plugin import item

N, S, T, V_SRC, V, E, H = 4, 5, 4, 6, 5, 2, 3


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


def assert_follows(whole, chained, *others):
    """The two ways agree, in finite numbers; for other inputs others come out."""
    assert np.isfinite(whole).all()
    assert near(whole, chained)
    assert np.any(whole) and not any(near(whole, other) for other in others)


# ---- attention -----------------------------------------------------------------------------------


def scores(kind, params, query, keys):
    """The scores of each kind of attention, (N, S)."""
    queries = np.repeat(query[:, None], keys.shape[1], axis=1)
    if kind == "dot":
        return np.einsum("nq,nsq->ns", query, keys)
    if kind == "general":
        return np.einsum("nq,qc,nsc->ns", query, params["W_a.weight"], keys)
    if kind == "concat":
        mixed = np.concatenate([queries, keys], axis=2) @ params["W_a.weight"].T
    else:
        mixed = queries @ params["W_a.weight"].T + keys @ params["U_a.weight"].T
    return np.tanh(mixed) @ params["v_a.weight"][0]


def assert_weights(script, student, draw, kind):
    """The weights are what the submission's own masked_softmax makes of the scores."""
    Q, C, A = (4, 4, 2) if kind == "dot" else (4, 3, 2)
    shapes = {
        "bahdanau": {"W_a.weight": (A, Q), "U_a.weight": (A, C), "v_a.weight": (1, A)},
        "dot": {},
        "general": {"W_a.weight": (Q, C)},
        "concat": {"W_a.weight": (A, Q + C), "v_a.weight": (1, A)},
    }
    params = {name: draw(*shape) for name, shape in shapes[kind].items()}
    run = script()
    if kind == "bahdanau":
        module = run.new("BahdanauAttention", Q, C, A, params=params)
    else:
        module = run.new("LuongAttention", Q, C, kind, A, params=params)
    query, keys = draw(N, Q), draw(N, S, C)
    given = [(query, keys), (query + draw(N, Q), keys), (query, keys + draw(N, S, C))]
    weights = [module.forward(*each)[1] for each in given]
    due = run.call("masked_softmax", scores(kind, params, query, keys))
    trace = student(run)
    whole, *others = (trace[each] for each in weights)
    assert_follows(whole, trace[due], *others)


@item("bahdanau.weights", follow_through=True)
def test_additive(script, student, draw):
    """The right scores, through the student's own masked_softmax."""
    assert_weights(script, student, draw, "bahdanau")


@item("luong.{kind}", follow_through=True)
@pytest.mark.parametrize("kind", ["dot", "general", "concat"])
def test_scores(script, student, draw, kind):
    """The right scores, through the student's own masked_softmax."""
    assert_weights(script, student, draw, kind)


# ---- models --------------------------------------------------------------------------------------


def drawn(draw, gain=1.0):
    """Random parameters of an encoder and of a decoder."""
    gru = {
        "gru.weight_ih_l0": (3 * H, E),
        "gru.weight_hh_l0": (3 * H, H),
        "gru.bias_ih_l0": (3 * H,),
        "gru.bias_hh_l0": (3 * H,),
    }
    both = (
        {"embedding.weight": (V_SRC, E), **gru},
        {"embedding.weight": (V, E), **gru, "combine.weight": (H, 2 * H), "out.weight": (V, H)},
    )
    return [{name: gain * draw(*shape) for name, shape in each.items()} for each in both]


def model(run, params):
    """Seq2Seq, its encoder and its decoder."""
    encoder = run.new("Encoder", V_SRC, E, H, params=params[0])
    decoder = run.new("LuongDecoder", V, E, H, params=params[1])
    return run.new("Seq2Seq", encoder, decoder), encoder, decoder


def sources(draw):
    """A batch of full length, its lengths and its mask: padding is asked elsewhere."""
    return draw.rng.integers(V_SRC, size=(N, S)), np.full(N, S), np.ones((N, S), dtype=bool)


def chain(run, encoder, decoder, source, tokens):
    """The logits of every step that is fed these tokens (N, T), by encoder and decoder themselves."""
    src, lengths, mask = source
    outputs, hidden = encoder.forward(src, lengths)
    steps = []
    for t in range(tokens.shape[1]):
        logits, hidden, _ = decoder.forward(tokens[:, t : t + 1], hidden, outputs, mask)
        steps.append(logits)
    return steps


def stacked(trace, steps):
    return np.stack([trace[step] for step in steps], axis=1)


@item("decoder.{output}", follow_through=True)
@pytest.mark.parametrize("output", ["weights", "logits"])
def test_decoder(script, student, draw, output):
    """Weights and logits from the student's own state, weights and context."""
    _, params = drawn(draw)
    token, hidden, outputs = draw.rng.integers(V, size=(N, 1)), draw(1, N, H), draw(N, S, H)
    mask = np.ones((N, S), dtype=bool)
    run = script()
    decoder = run.new("LuongDecoder", V, E, H, params=params)
    given = [
        (hidden, outputs),
        (hidden + draw(1, N, H), outputs),
        (hidden, outputs + draw(N, S, H)),
    ]
    steps = [decoder.forward(token, *each, mask) for each in given]
    trace = student(run)
    state = trace[steps[0][1]][0]
    attend = script()
    query = attend.new("LuongAttention", H, H, params={}).forward(state, outputs, mask)
    context, weights = (student(attend)[handle] for handle in query)
    if output == "weights":
        whole, *others = (trace[step[2]] for step in steps)
        assert_follows(whole, weights, *others)
    else:
        whole, *others = (trace[step[0]] for step in steps)
        combined = np.tanh(np.concatenate([context, state], axis=1) @ params["combine.weight"].T)
        assert_follows(whole, combined @ params["out.weight"].T, *others)


@item("seq2seq.logits", follow_through=True)
def test_logits(script, student, draw):
    """The student's own encoder, then its own decoder step by step."""
    run = script()
    whole, encoder, decoder = model(run, drawn(draw))
    source, tgt = sources(draw), draw.rng.integers(V, size=(N, T))
    logits = whole.forward(*source[:2], tgt)
    others = [
        whole.forward((source[0] + 1) % V_SRC, source[1], tgt),
        whole.forward(*source[:2], (tgt + 1) % V),
    ]
    steps = chain(run, encoder, decoder, source, tgt[:, :-1])
    trace = student(run)
    assert_follows(trace[logits], stacked(trace, steps), *(trace[other] for other in others))
