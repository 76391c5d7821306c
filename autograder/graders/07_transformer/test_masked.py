"""The encoder-only model, and the tokens that are hidden from it."""

import numpy as np
from softmark.plugin import item
from softmark.script import Rng

SIZES = (7, 6, 2, 9, 2, 6)  # V, E, h, d_ff, layers, max_len


def model(run, draw, *sizes):
    params = draw.params("MaskedLM", *sizes)
    params["out.weight"] = params["embed.weight"]
    return run.new("MaskedLM", *sizes, params=params)


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


@item("masked.logits", depends=("norm.layer", "ffn.relu", "block.pre"))
def test_logits(script, agree, draw):
    """At every position, of a batch without padding."""
    run = script()
    for N, T, *sizes in ((3, 5, *SIZES), (1, 1, 3, 4, 1, 2, 1, 2)):
        made = model(run, draw, *sizes)
        made.forward(draw.rng.integers(sizes[0], size=(N, T)), np.full(N, T))
    agree(run)


@item("masked.masks", depends="block.mask")
def test_padding_and_both_sides(script, student, draw):
    """A ragged batch is the samples it is made of; every real token has an influence on all others."""
    N, T = 2, 4
    run = script()
    made = model(run, draw, 7, 6, 2, 9, 1, T + 1)
    tokens, lengths = draw.rng.integers(7, size=(N, T)), np.array([2, 4])
    whole = made.forward(tokens, lengths)
    alone = [
        made.forward(tokens[n : n + 1, :length], lengths[n : n + 1])
        for n, length in enumerate(lengths)
    ]
    last = np.where(np.arange(T) == lengths[:, None] - 1, (tokens + 1) % 7, tokens)
    changed = made.forward(last, lengths)
    trace = student(run)
    for n, (one, length) in enumerate(zip(alone, lengths, strict=True)):
        assert near(trace[whole][n, :length], trace[one][0]), (
            f"In a ragged batch, sample {n} does not have the logits it has alone, without padding."
        )
        same = np.isclose(trace[whole][n], trace[changed][n], 1e-6).all(axis=1)
        assert not same[:length].any(), "Some logits do not depend on a sequence's last token."


V, HIDDEN, LENGTH = 6, 2, 40
OTHERS = np.delete(np.arange(V), HIDDEN)


def masked(run, draw, rate, rows=60):
    """A large ragged batch and what mask_tokens makes of it: real, tokens, and handles."""
    tokens = draw.rng.choice(OTHERS, size=(rows, LENGTH))
    lengths = draw.rng.integers(1, LENGTH + 1, size=rows)
    lengths[0] = LENGTH
    seed = Rng(int(draw.rng.integers(2**31)))
    given = {} if rate == 0.15 else {"rate": rate}
    found = run.call("mask_tokens", tokens, lengths, HIDDEN, V, seed, **given)
    return np.arange(LENGTH) < lengths[:, None], tokens, found


@item("mask_tokens.chosen")
def test_chosen(script, student, draw):
    """Real tokens alone, each by itself, as often as asked; their originals are the targets."""
    run = script()
    found = [(rate, *masked(run, draw, rate)) for rate in (0.15, 0.6, 0.0, 1.0)]
    given = draw.rng.choice(OTHERS, size=(8, 9)), np.full(8, 9), HIDDEN, V
    first = int(draw.rng.integers(2**31))
    calls = [run.call("mask_tokens", *given, Rng(first + more), 0.5) for more in (0, 0, 1)]
    trace = student(run)
    for rate, real, tokens, (inputs, targets) in found:
        inputs, targets = trace[inputs], trace[targets]
        chosen = targets != -100
        assert np.array_equal(targets[chosen], tokens[chosen]), (
            "The targets are not the original tokens."
        )
        assert not chosen[~real].any(), "Padding is chosen: its target is not -100."
        assert np.array_equal(inputs[~chosen], tokens[~chosen]), (
            "Tokens are changed that are not chosen, which is where the target is -100."
        )
        error = np.sqrt(real.sum() * rate * (1 - rate))
        assert abs(chosen.sum() - rate * real.sum()) <= 6 * error, (
            f"With rate = {rate}, {chosen.sum()} of {real.sum()} real tokens are chosen, which is where "
            "the target is not -100."
        )
        if rate == 0.6:
            counts = np.unique(chosen[:, 0][real[:, 0]])
            assert len(counts) == 2, "All rows are chosen alike: draw for each token by itself."
    one, same, other = ([trace[h] for h in call] for call in calls)
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True)), (
        "Equal generators choose or change other tokens: all draws come from the generator."
    )
    assert not np.array_equal(one[1], other[1]), "Other generators choose the same tokens."


@item("mask_tokens.fates", depends="mask_tokens.chosen")
def test_fates(script, student, draw):
    """Of the chosen 80 % are hidden, 10 % are drawn from the whole vocabulary, 10 % stay."""
    run = script()
    _, tokens, (inputs, targets) = masked(run, draw, rate=0.9, rows=300)
    # with two tokens, who leaves out the first or the last draws the other each time
    zeros, seed = np.zeros((60, 120), np.int64), Rng(int(draw.rng.integers(2**31)))
    of_two, _ = run.call("mask_tokens", zeros, np.full(60, 120), 1, 2, seed, 1.0)
    trace = student(run)
    assert abs(trace[of_two].mean() - 0.85) < 6 * np.sqrt(0.85 * 0.15 / zeros.size), (
        f"Of {zeros.size} chosen tokens 0, in a vocabulary of two, {trace[of_two].mean():.1%} become "
        "the other, and about 85 % should: 80 % are hidden, and half of those that are drawn."
    )
    inputs, chosen = trace[inputs], trace[targets] != -100
    number = chosen.sum()
    assert ((inputs >= 0) & (inputs < V)).all(), "There are inputs outside the vocabulary."
    counts = np.zeros((V, V))  # of every token, what became of it
    np.add.at(counts, (tokens[chosen], inputs[chosen]), 1)
    # of those drawn, a sixth each are mask_id and the token that was there
    same, hidden = np.trace(counts) / number, counts[:, HIDDEN].sum() / number
    for what, share, due in (
        ("mask_id", hidden, 0.8 + 0.1 / V),
        ("the token itself", same, 0.1 + 0.1 / V),
        ("another token", 1 - same - hidden, 0.1 - 0.2 / V),
    ):
        assert abs(share - due) < 6 * np.sqrt(due * (1 - due) / number), (
            f"Of {number} chosen tokens {share:.1%} become {what}, and about {due:.1%} should."
        )
    others = (counts.sum(axis=0) - np.diag(counts))[OTHERS]
    assert (abs(others - others.mean()) < 6 * np.sqrt(others.mean())).all(), (
        "The tokens that are drawn are not uniform over the vocabulary."
    )
