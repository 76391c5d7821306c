"""Greedy decoding: the highest logit at each step, and where sequences end."""

import numpy as np
from softmark.plugin import item

N, S, V_SRC, V, E, H = 5, 4, 6, 5, 3, 4
GRU = {
    "gru.weight_ih_l0": (3 * H, E),
    "gru.weight_hh_l0": (3 * H, H),
    "gru.bias_ih_l0": (3 * H,),
    "gru.bias_hh_l0": (3 * H,),
}


def model(run, draw, name="BottleneckDecoder", V=V, without=None):
    """A model with large random weights, so that its tokens vary, and its parts.

    ``without``: a token that is not written.
    """
    of_encoder = GRU | {"embedding.weight": (V_SRC, E)}
    of_decoder = GRU | {"embedding.weight": (V, E), "out.weight": (V, H)}
    if name == "LuongDecoder":
        of_decoder |= {"combine.weight": (H, 2 * H)}
    drawn = [{k: 2 * draw(*s) for k, s in shapes.items()} for shapes in (of_encoder, of_decoder)]
    if without is not None:  # its logit is the mean of the others
        others = np.delete(drawn[1]["out.weight"], without, axis=0)
        drawn[1]["out.weight"][without] = others.mean(axis=0)
    encoder = run.new("Encoder", V_SRC, E, H, params=drawn[0])
    decoder = run.new(name, V, E, H, params=drawn[1])
    return run.new("Seq2Seq", encoder, decoder), encoder, decoder, drawn


def sources(draw, N=N):
    """Sources of full length: what is made of padding is asked elsewhere."""
    return draw.rng.integers(V_SRC, size=(N, S)), np.full(N, S)


def words(draw):
    """Embeddings of source tokens: the first number is -1 for tokens 0 to 2, and 1 for the others."""
    return np.concatenate([np.repeat([-1.0, 1.0], 3)[:, None], 0.1 * draw(V_SRC, E - 1)], axis=1)


def signs(draw, size, gain, bias):
    """A GRU that forgets its state: the new one is near the sign of gain * (the first of x) + bias."""
    to_state = 0.1 * draw(size, E)
    to_state[:, 0] = gain
    return {
        "gru.weight_ih_l0": np.concatenate([0.1 * draw(2 * size, E), to_state]),
        "gru.weight_hh_l0": np.zeros((3 * size, size)),
        "gru.bias_ih_l0": np.repeat([0.0, -1e3, bias], size),
        "gru.bias_hh_l0": np.zeros(3 * size),
    }


def counts_down(run, draw):
    """A decoder for which the token before decides: 2 is followed by 1, 1 by 0, and 0 by 2."""
    params = signs(draw, H, 0.0, 0.0)
    params["embedding.weight"] = np.eye(E)[[0, 1, 2, 0, 0]]
    params["gru.weight_ih_l0"] = np.concatenate([np.zeros((2 * H, E)), 3 * np.eye(H, E)])
    params["out.weight"] = np.eye(V, H)[[1, 2, 0, 3, 3]]
    return run.new("BottleneckDecoder", V, E, H, params=params)


@item("greedy.tokens", depends=("encoder.outputs", "encoder.hidden"))
def test_tokens(script, agree, draw):
    """Without an end in sight: each step is fed the token before, the first one bos."""
    run = script()
    for batch, bos in ((N, 0), (1, 2)):
        made, encoder, *_ = model(run, draw, without=4)
        run.call("greedy_decode", made, *sources(draw, batch), bos, 4, 7)
    made = run.new("Seq2Seq", encoder, counts_down(run, draw))
    run.call("greedy_decode", made, *sources(draw, 1), 2, 4, 4)
    agree(run)


@item("greedy.tokens", depends=("encoder.outputs", "encoder.hidden", "decoder.logits"))
def test_decoder_sees_the_source(script, student, draw):
    """With attention: the tokens of the submission's own encoder and decoder, step by step."""
    steps, (src, lengths) = 6, sources(draw)
    run = script()
    made, *_, drawn = model(run, draw, "LuongDecoder", without=4)
    tokens = run.call("greedy_decode", made, src, lengths, 0, 4, steps)
    found = np.array(student(run)[tokens])
    fed = np.concatenate([np.zeros((N, 1), dtype=np.int64), found[:, :-1]], axis=1)
    chain = script()
    outputs, hidden = chain.new("Encoder", V_SRC, E, H, params=drawn[0]).forward(src, lengths)
    decoder = chain.new("LuongDecoder", V, E, H, params=drawn[1])
    every = []
    for t in range(steps):
        mask = np.ones((N, S), dtype=bool)
        logits, hidden, _ = decoder.forward(fed[:, t : t + 1], hidden, outputs, mask)
        every.append(logits)
    trace = student(chain)
    for t, logits in enumerate(every):
        assert np.array_equal(trace[logits].argmax(axis=1), found[:, t]), (
            "The tokens are not those of the highest logits of your own encoder and decoder: are "
            "outputs and hidden handed on?"
        )


@item(
    "greedy.tokens", depends=("softmax.mask", "encoder.outputs", "decoder.logits", "decoder.mask")
)
def test_padding_is_not_read(script, agree, draw):
    """A decoder that would look at nothing but padding, and then write another token."""
    size = 8
    of_decoder = {
        "embedding.weight": draw(V, E),
        "combine.weight": np.concatenate([2 * np.eye(size), 0.3 * np.eye(size)], axis=1),
        "out.weight": np.outer([1.0, -1.0, 0, 0, 0], np.ones(size)),
    }
    run = script()
    of_encoder = {"embedding.weight": words(draw)} | signs(draw, size, 3.0, 0.0)
    encoder = run.new("Encoder", V_SRC, E, size, params=of_encoder)
    decoder = run.new("LuongDecoder", V, E, size, params=of_decoder | signs(draw, size, 0.0, 3.0))
    made = run.new("Seq2Seq", encoder, decoder)
    lengths = np.array([2, S, 1])
    padding = np.arange(S) >= lengths[:, None]
    src = draw.rng.integers(1, 3, size=(3, S)) + 3 * padding  # encoded, real ones give -1, others 1
    run.call("greedy_decode", made, src, lengths, 0, 4, 3)
    agree(run)


@item("greedy.eos", depends=("encoder.outputs", "encoder.hidden", "greedy.tokens"))
def test_ends(script, agree, draw):
    """Every token as eos in turn; max_len 0 and 1; bos is not written."""
    run = script()
    (made, *_), given = model(run, draw), sources(draw)
    for eos in range(V):
        run.call("greedy_decode", made, *given, (eos + 1) % V, eos, 6)
    for max_len in (0, 1):
        run.call("greedy_decode", made, *given, 0, 1, max_len)
    # the state stays as it comes from the encoder, which the last token decides: one ends at once
    keeps = signs(draw, H, 0.0, 0.0) | {"gru.bias_ih_l0": np.repeat([0.0, 1e3, 0.0], H)}
    keeps |= {"embedding.weight": draw(V, E), "out.weight": np.outer([1, -1, 0, 0, 0], np.ones(H))}
    of_encoder = {"embedding.weight": words(draw)} | signs(draw, H, 3.0, 0.0)
    encoder = run.new("Encoder", V_SRC, E, H, params=of_encoder)
    made = run.new("Seq2Seq", encoder, run.new("BottleneckDecoder", V, E, H, params=keeps))
    run.call("greedy_decode", made, np.array([[5, 1], [0, 4], [3, 2]]), np.full(3, 2), 2, 0, 3)
    made = run.new("Seq2Seq", encoder, counts_down(run, draw))
    run.call("greedy_decode", made, np.array([[5, 1]]), np.array([2]), 2, 0, 4)
    one, *_ = model(run, draw, V=1)
    run.call("greedy_decode", one, np.array([[1]]), np.array([1]), 0, 0, 3)
    agree(run)
