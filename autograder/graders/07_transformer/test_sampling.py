"""Generation with draws: which tokens there are, and how often, given the submission's own logits.

The rows begin with prompts of their own, so that every draw has other probabilities. Among draws with
known probabilities p, the number of times that the token of a given rank came has the mean sum(p) and
at most the variance sum(p (1 - p)): the bounds are 6 standard deviations.
"""

import numpy as np
from softmark.plugin import item
from softmark.script import Rng

SIZES = (7, 6, 2, 5, 1, 8)  # V, E, h, d_ff, layers, max_len
N, T = 250, 2


def model(run, draw, spread):
    """A model with random weights; ``spread`` is about the standard deviation of its logits."""
    params = draw.params("TransformerLM", *SIZES)
    params["final_norm.weight"] = np.full(6, spread)
    for name, value in params.items():
        if name.endswith("bias"):  # what is the same everywhere would choose most tokens
            value *= 0
    params["out.weight"] = params["embed.weight"]
    return run.new("TransformerLM", *SIZES, params=params)


def seed(draw):
    return Rng(int(draw.rng.integers(2**31)))


def allowed(logits, temperature, top_k, top_p):
    """Probabilities of the tokens in falling order, (draws, V), and the order."""
    order = np.argsort(-logits, axis=1)
    ranked = np.take_along_axis(logits, order, axis=1) / temperature
    odds = np.exp(ranked - ranked[:, :1])
    if top_k is not None:
        odds[:, top_k:] = 0.0
    odds /= odds.sum(axis=1, keepdims=True)
    if top_p is not None:
        odds[np.cumsum(odds, axis=1) - odds >= top_p] = 0.0
        odds /= odds.sum(axis=1, keepdims=True)
    return odds, order


def assert_drawn(script, student, draw, *settings):
    """Each of the settings (temperature, top_k, top_p) on one model.

    Where the rows of a batch share their draws, which another item is about, each row is asked alone.
    """
    said = misdrawn(script, student, draw, settings, rows=N)
    if said and rows_go_on_alike(script, student, draw):
        said = misdrawn(script, student, draw, settings, rows=1)
    assert not said, said


def misdrawn(script, student, draw, settings, rows):
    """What is wrong with tokens drawn for ``rows`` prompts a call; nothing where they are right."""
    run = script()
    made = model(run, draw, spread=1.0)
    found = []
    for temperature, top_k, top_p in settings:
        prompt = draw.rng.integers(7, size=(N, T))
        named = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        named = {k: v for k, v in named.items() if v is not None}
        tokens = [
            run.call("generate", made, prompt[n : n + rows], 1, **named, generator=seed(draw))
            for n in range(0, N, rows)
        ]
        found.append(((temperature, top_k, top_p), named, tokens, made.forward(prompt)))
    trace = student(run)
    for setting, named, tokens, logits in found:
        said = ", ".join(f"{k} = {v}" for k, v in named.items())
        odds, order = allowed(trace[logits][:, -1], *setting)
        written = np.concatenate([trace[handle] for handle in tokens])
        came = order == written[:, T:]  # (N, V), in falling order
        if (came & (odds == 0)).any():
            return f"With {said}, tokens are drawn that are shut out by your own model's logits."
        due, error = odds.sum(axis=0), np.sqrt((odds * (1 - odds)).sum(axis=0))
        off = np.abs(came.sum(axis=0) - due) > 6 * error + 2
        if off.any():
            return (
                f"With {said}, the token of rank {off.argmax() + 1} comes {came.sum(axis=0)[off][0]} "
                f"times in {len(came)} draws; by your own model's logits about {due[off][0]:.0f}."
            )
    return ""


def rows_go_on_alike(script, student, draw):
    """Whether equal prompts in one batch all go on with one token, though all are about as likely."""
    run = script()
    made = model(run, draw, spread=0.0)
    prompt = np.repeat(draw.rng.integers(7, size=(1, T)), 30, axis=0)
    tokens = run.call("generate", made, prompt, 1, generator=seed(draw))
    return len(np.unique(student(run)[tokens][:, T])) == 1


@item("generate.temperature", depends="lm.logits")
def test_temperature(script, student, draw):
    """The logits are divided by it; 1 where nothing is said."""
    assert_drawn(script, student, draw, (0.4, None, None), (5.0, None, None))


@item("generate.top_k", depends="generate.temperature")
def test_top_k(script, student, draw):
    """The top_k tokens of the highest logits; all, where there are no more."""
    assert_drawn(script, student, draw, (1.0, 3, None), (1.0, 9, None))


@item("generate.top_p", depends=("generate.temperature", "generate.top_k"))
def test_top_p(script, student, draw):
    """The token that crosses top_p stays, and the probabilities are those that top_k left."""
    assert_drawn(script, student, draw, (1.0, None, 0.6), (1.0, 2, 0.55), (1.0, 2, 0.7))


@item("generate.generator", depends="generate.temperature")
def test_generator(script, student, draw):
    """Equal generators write the same, others not; every row and every step has its own draw."""
    run = script()
    made = model(run, draw, spread=0.5)
    prompt = np.repeat(draw.rng.integers(7, size=(1, T)), 30, axis=0)
    first = int(draw.rng.integers(2**31))
    calls = [
        run.call("generate", made, prompt, 2, generator=Rng(first + more)) for more in (0, 0, 1)
    ]
    free = [run.call("generate", made, prompt, 2) for _ in range(2)]
    flat = model(run, draw, spread=0.0)
    even = run.call("generate", flat, prompt, 2, generator=Rng(first))
    trace = student(run)
    one, same, other, *free = (trace[handle][:, T:] for handle in (*calls, *free))
    assert np.array_equal(one, same), (
        "Equal generators write different tokens: draw from the generator that is given."
    )
    for found, again in ((one, other), free):
        assert not np.array_equal(found, again), (
            "Other draws write the same tokens: draw anew in every call, from the generator if one is "
            "given."
        )
    assert not np.array_equal(trace[even][:, T], trace[even][:, T + 1]), (
        "Where all tokens are as likely, each row writes the same token twice: every step has a draw of "
        "its own."
    )
    assert len(np.unique(one[:, 0])) > 1, (
        "Equal prompts in one batch go on alike: every row has a draw of its own."
    )


@item("generate.generator", depends="generate.temperature")
def test_the_default_stream_is_left_alone(script, student, draw):
    """New parameters are drawn from torch's own stream: a call before must not change them."""
    prompt, found = draw.rng.integers(7, size=(2, T)), []
    for calls in (0, 1):
        run = script()
        made = model(run, draw, spread=1.0)
        for _ in range(calls):
            run.call("generate", made, prompt, 2, generator=Rng(7))
        found.append(run.parameters(run.new("SwiGLU", 2, 3)))
        found[-1] = student(run)[found[-1]]["up.weight"]
    assert np.array_equal(*found), (
        "Draws were taken from torch's own stream, not from the generator."
    )
