"""Between teacher forcing and free running: which token each step was fed, read off the logits.

With the bottleneck decoder, which is given, a step is a GRU and a product: the paths can be followed
here, from the state that the submission's own encoder hands over.
"""

import numpy as np
from softmark.plugin import item
from softmark.script import Rng

N, S, V, E, H = 3, 4, 6, 3, 5
SHAPES = {
    "embedding.weight": (V, E),
    "gru.weight_ih_l0": (3 * H, E),
    "gru.weight_hh_l0": (3 * H, H),
    "gru.bias_ih_l0": (3 * H,),
    "gru.bias_hh_l0": (3 * H,),
    "out.weight": (V, H),
}


def model(run, draw):
    """A model with random weights; its encoder, and the decoder's parameters."""
    of_encoder = {k: draw(*s) for k, s in SHAPES.items() if k != "out.weight"}
    params = {k: draw(*s) for k, s in SHAPES.items()}
    encoder = run.new("Encoder", V, E, H, params=of_encoder)
    decoder = run.new("BottleneckDecoder", V, E, H, params=params)
    return run.new("Seq2Seq", encoder, decoder), encoder, params


def batch(draw, T):
    """Sources of full length, and targets."""
    return draw.rng.integers(V, size=(N, S)), np.full(N, S), draw.rng.integers(V, size=(N, T))


@item("sampling.free", depends="seq2seq.logits")
def test_without_teacher_forcing(script, agree, draw):
    """After tgt[:, 0] every step is fed the arg-max of the one before; tgt is not looked at."""
    run = script()
    for _ in range(2):
        made, _, _ = model(run, draw)
        src, lengths, tgt = batch(draw, 6)
        made.forward(src, lengths, tgt, 0.0)
        made.forward(src, lengths, tgt, teacher_forcing=0.0)
    agree(run)


def step(params, token, state):
    """One step of the bottleneck decoder: logits and state."""
    x = params["embedding.weight"][token]
    gates = x @ params["gru.weight_ih_l0"].T + params["gru.bias_ih_l0"]
    of_state = state @ params["gru.weight_hh_l0"].T + params["gru.bias_hh_l0"]
    (r, z, n), (hr, hz, hn) = np.split(gates, 3, axis=1), np.split(of_state, 3, axis=1)
    r, z = 1 / (1 + np.exp(-(r + hr))), 1 / (1 + np.exp(-(z + hz)))
    state = (1 - z) * np.tanh(n + r * hn) + z * state
    return state @ params["out.weight"].T, state


def path(params, state, tgt, logits):
    """Of every step after the first whether it was fed the true tokens; None where both are the same.

    Raises AssertionError where it was neither.
    """
    found = []
    before = tgt[:, 0]
    for t in range(logits.shape[1]):
        choices = {True: tgt[:, t], False: before}
        if t == 0:
            choices = {True: tgt[:, 0]}
        made = {fed: step(params, token, state) for fed, token in choices.items()}
        fits = [fed for fed in made if np.allclose(made[fed][0], logits[:, t], 1e-8, 1e-10)]
        assert fits, (
            f"Step {t} was fed neither the true tokens nor the arg-max of step {t - 1}, the same for "
            "the whole batch."
            if t
            else "Step 0 was not fed tgt[:, 0]."
        )
        state = made[fits[0]][1]
        before = logits[:, t].argmax(axis=1)
        if t:
            found.append(fits[0] if len(fits) == 1 else None)
    return found


@item("sampling.paths", depends=("encoder.hidden", "seq2seq.logits", "sampling.free"))
def test_paths(script, student, draw):
    """One draw a step for the whole batch, true with the probability that is asked for."""
    run = script()
    made, encoder, params = model(run, draw)
    T, done = 40, []
    for probability in (0.25, 0.8):
        given = batch(draw, T)
        _, hidden = encoder.forward(*given[:2])
        done.append((probability, given[2], hidden, made.forward(*given, probability)))
    trace = student(run)
    for probability, tgt, hidden, logits in done:
        found = [
            fed for fed in path(params, trace[hidden][0], tgt, trace[logits]) if fed is not None
        ]
        error = np.sqrt(probability * (1 - probability) / len(found))
        assert abs(np.mean(found) - probability) < 5.5 * error, (
            f"Of {len(found)} steps {sum(found)} were fed the true token with teacher_forcing = "
            f"{probability}."
        )
        assert len(set(found)) == 2, "All steps were fed alike: draw anew at every step."


@item("sampling.generator", depends="seq2seq.logits")
def test_draws_are_the_generators(script, student, draw):
    """Equal generators give equal logits; of many others some give others."""
    run = script()
    made, _, _ = model(run, draw)
    given = batch(draw, 6)
    seeds = [int(seed) for seed in draw.rng.integers(2**31, size=9)]
    logits = [made.forward(*given, 0.5, Rng(seed)) for seed in (*seeds, *seeds[:3])]
    trace = student(run)
    found = [trace[handle] for handle in logits]
    for one, again in zip(found[:3], found[9:], strict=True):
        assert np.array_equal(one, again), (
            "Equal generators give different logits: draw from the generator that is given."
        )
    assert not all(np.array_equal(found[0], other) for other in found[1:9]), (
        "Whatever the generator, the logits are the same: draw from the generator that is given."
    )


@item("sampling.generator", depends="seq2seq.logits")
def test_the_default_stream_is_left_alone(script, student, draw):
    """New parameters are drawn from torch's own stream: a call before must not change them."""
    given, found = batch(draw, 8), []
    for calls in (0, 1):
        run = script()
        made, _, _ = model(run, draw)
        for _ in range(calls):
            made.forward(*given, 0.5, generator=Rng(7))
        fresh = run.parameters(run.new("BottleneckDecoder", V, E, H))
        found.append(student(run)[fresh]["out.weight"])
    assert np.array_equal(*found), (
        "Draws were taken from torch's own stream, not from the generator."
    )
