"""Beam search: tokens, scores, penalties and ties, with every token as eos in turn.

Most of it on models that are tables: the probabilities of the next token depend on the token before
alone. BottleneckDecoder, which is given, is such a model where its GRU forgets its state.
"""

import numpy as np
from softmark.plugin import item
from softmark.script import Output, Script

S, V_SRC, V, E, H = 4, 5, 4, 2, 3
# Rows: the token before. The end, 1, is near at hand after 0, the beginning, and far off after 2.
EARLY_END = np.array(
    [
        [0.02, 0.5, 0.45, 0.03],
        [0.01, 0.04, 0.92, 0.03],
        [0.01, 0.3, 0.67, 0.02],
        [0.4, 0.3, 0.2, 0.1],
    ]
)
LATE_END = np.array(
    [
        [0.02, 0.1, 0.85, 0.03],
        [0.4, 0.3, 0.2, 0.1],
        [0.02, 0.11, 0.84, 0.03],
        [0.01, 0.2, 0.7, 0.09],
    ]
)
# One way alone: its log-probability is 0 at every step.
CERTAIN = np.full((4, 4), 1e-300)
CERTAIN[[0, 2, 3, 1], [2, 3, 1, 0]] = 1.0


def of_encoder(draw, E, H):
    """Random parameters of an encoder."""
    shapes = {
        "embedding.weight": (V_SRC, E),
        "gru.weight_ih_l0": (3 * H, E),
        "gru.weight_hh_l0": (3 * H, H),
        "gru.bias_ih_l0": (3 * H,),
        "gru.bias_hh_l0": (3 * H,),
    }
    return {name: draw(*shape) for name, shape in shapes.items()}


def table_model(run, draw, table):
    """A model of these probabilities (V, V), and a source for it."""
    zeros = np.zeros((V, V))
    params = {
        "embedding.weight": np.eye(V),
        "gru.weight_ih_l0": np.concatenate([zeros, zeros, 3 * np.eye(V)]),  # blocks r, z, n
        "gru.weight_hh_l0": np.zeros((3 * V, V)),
        "gru.bias_ih_l0": np.repeat([0.0, -1e3, 0.0], V),  # z = 0: the state before is forgotten
        "gru.bias_hh_l0": np.zeros(3 * V),
        "out.weight": np.log(table).T / np.tanh(3),
    }
    encoder = run.new("Encoder", V_SRC, V, V, params=of_encoder(draw, V, V))
    decoder = run.new("BottleneckDecoder", V, V, V, params=params)
    source = draw.rng.integers(V_SRC, size=(1, S)), np.array([S])
    return run.new("Seq2Seq", encoder, decoder), *source


def random_table(draw):
    """Some tokens much likelier than others."""
    table = np.exp(2 * draw(V, V))
    return table / table.sum(axis=1, keepdims=True)


@item("beam.greedy")
def test_one_beam(script, agree, draw):
    """One beam takes the likeliest token at each step, and ends with eos."""
    run = script()
    for eos in range(V):
        given = table_model(run, draw, random_table(draw))
        run.call("beam_search", *given, (eos + 1) % V, eos, 5, 1)
    agree(run, only="tokens")


def searches(run, draw):
    """Some tables, ends and widths, without a length penalty."""
    for eos, beams in enumerate((2, 6, 3, 5)):
        given = table_model(run, draw, random_table(draw))
        run.call("beam_search", *given, (eos + 1) % V, eos, 4, beams)
    for table in (EARLY_END, LATE_END, CERTAIN):
        given = table_model(run, draw, table)
        for max_len in (0, 1, 3, 4):
            run.call("beam_search", *given, 0, 1, max_len, 2)
    return run


@item("beam.tokens", depends="beam.greedy", draws="beam")
def test_tokens(script, agree, draw):
    """Some widths, also more than there are tokens; where none is finished; max_len 0 and 1."""
    agree(searches(script(), draw), only="tokens")


@item("beam.score", depends=("beam.greedy", "beam.tokens"), draws="beam")
def test_score(script, agree, draw):
    """The log-probability of the tokens."""
    agree(searches(script(), draw), only="score")


@item("beam.score", depends=("encoder.outputs", "encoder.hidden", "decoder.logits", "beam.tokens"))
def test_score_of_its_tokens(script, student, draw):
    """With attention and padding: what the submission's own parts give to some tokens."""
    shapes = {
        "embedding.weight": (V, E),
        "gru.weight_ih_l0": (3 * H, E),
        "gru.weight_hh_l0": (3 * H, H),
        "gru.bias_ih_l0": (3 * H,),
        "gru.bias_hh_l0": (3 * H,),
        "combine.weight": (H, 2 * H),
        "out.weight": (V, H),
    }
    params = {name: draw(*shape) for name, shape in shapes.items()}
    src, lengths = draw.rng.integers(1, V_SRC, size=(1, S)), np.array([2])
    score_only = (Output("tokens", "private"), Output("score", "scalar"))
    run = Script({**script().calls, "beam_search": score_only})
    encoder = run.new("Encoder", V_SRC, E, H, params=of_encoder(draw, E, H))
    decoder = run.new("LuongDecoder", V, E, H, params=params)
    made = run.new("Seq2Seq", encoder, decoder)
    outputs, first = encoder.forward(src, lengths)
    mask = np.arange(S)[None] < lengths[:, None]
    # every path of up to three tokens, once
    paths, states = {(): 0.0}, {(): first}
    handles = {}
    for size in range(3):
        for path in [path for path in states if len(path) == size]:
            fed = np.array([[path[-1] if path else 0]])
            handles[path], hidden, _ = decoder.forward(fed, states[path], outputs, mask)
            states |= {(*path, token): hidden for token in range(V)}
    found = [
        run.call("beam_search", made, src, lengths, 0, eos, steps, beams)
        for eos, steps, beams in [(1, 1, 2), (2, 3, 2), (3, 3, 3)]
    ]
    trace = student(run)
    for path, handle in handles.items():
        logits = trace[handle][0]
        log_p = logits - np.log(np.exp(logits).sum())
        paths |= {(*path, token): paths[path] + log_p[token] for token in range(V)}
    for _, score in found:
        assert any(abs(trace[score] - due) < 1e-9 * max(1.0, abs(due)) for due in paths.values()), (
            "The score is not the log-probability that your own encoder and decoder give to any "
            "tokens: are outputs, hidden and the mask of the source handed on?"
        )


@item("beam.penalty", depends=("beam.greedy", "beam.tokens", "beam.score"))
def test_length_penalty(script, agree, draw):
    """Finished and unfinished hypotheses alike; kept by log-probability, chosen by score."""
    run = script()
    for eos in range(V):
        given = table_model(run, draw, random_table(draw))
        run.call("beam_search", *given, (eos + 1) % V, eos, 4, 3, (0.6, 8.0)[eos % 2])
        run.call("beam_search", *given, 0, eos, 3, 2, length_penalty=-1.0)
    for table in (EARLY_END, LATE_END):
        given = table_model(run, draw, table)
        for penalty in (1.0, 6.0):
            run.call("beam_search", *given, 0, 1, 4, 2, penalty)
    agree(run)


@item("beam.ties", depends=("beam.tokens", "beam.score"))
def test_ties(script, agree, draw):
    """All tokens equally likely: the earlier hypothesis, then the lower id, then what finished first."""
    run = script()
    given = table_model(run, draw, np.full((V, V), 0.25))
    for eos in range(V):
        for beams, penalty in ((2, 0.0), (3, 20.0)):
            run.call("beam_search", *given, 0, eos, 3, beams, penalty)
    agree(run)
