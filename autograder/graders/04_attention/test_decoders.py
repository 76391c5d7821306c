"""One step of each decoder, and a second one from the state that it returns."""

import numpy as np
import pytest
from softmark.plugin import item

# (N, S, V, E, H). Sizes that all differ, then each of them 1.
SIZES = [(3, 5, 6, 2, 4), (2, 3, 4, 5, 3), (1, 4, 5, 2, 3), (3, 1, 4, 2, 3)]
SIZES += [(2, 3, 4, 1, 2), (2, 3, 5, 4, 1), (2, 3, 1, 2, 4)]


def decoder(run, draw, name, V, E, H):
    """A decoder with random weights."""
    more = {
        "LuongDecoder": {"combine.weight": (H, 2 * H)},
        "BahdanauDecoder": {
            "attention.W_a.weight": (H, H),
            "attention.U_a.weight": (H, H),
            "attention.v_a.weight": (1, H),
        },
    }
    shapes = {
        "embedding.weight": (V, E),
        "gru.weight_ih_l0": (3 * H, E if name == "LuongDecoder" else E + H),
        "gru.weight_hh_l0": (3 * H, H),
        "gru.bias_ih_l0": (3 * H,),
        "gru.bias_hh_l0": (3 * H,),
        "out.weight": (V, H),
    }
    params = {key: draw(*shape) for key, shape in (shapes | more[name]).items()}
    return run.new(name, V, E, H, params=params)


def steps(run, draw, name, ragged=False):
    """Two steps of every size; where ``ragged``, with a mask that has False in it."""
    for N, S, V, E, H in SIZES:
        module = decoder(run, draw, name, V, E, H)
        outputs, mask = draw(N, S, H), np.ones((N, S), dtype=bool)
        if ragged:
            mask[-1, (S + 1) // 2 :] = False
        hidden = draw(1, N, H)
        for _ in range(2):
            token = draw.rng.integers(V, size=(N, 1))
            _, hidden, _ = module.forward(token, hidden, outputs, mask)
    return run


@item("decoder.hidden", draws="luong")
def test_state(script, agree, draw):
    """The GRU's new state, from the token before and the state before."""
    agree(steps(script(), draw, "LuongDecoder"), only="hidden")


@item("decoder.weights", depends=("softmax.values", "luong.dot", "decoder.hidden"), draws="luong")
def test_weights(script, agree, draw):
    """The query is the new state."""
    agree(steps(script(), draw, "LuongDecoder"), only="weights")


@item(
    "decoder.logits",
    depends=("softmax.values", "luong.dot", "luong.context", "decoder.hidden", "decoder.weights"),
    draws="luong",
)
def test_logits(script, agree, draw):
    """W_s tanh(W_c [c; s]): the context first, and no softmax."""
    agree(steps(script(), draw, "LuongDecoder"), only="logits")


@item("decoder.mask", depends=("softmax.mask", "luong.mask"))
def test_padding_of_the_source(script, student, draw):
    """As each sample gives alone, without its padding."""
    N, S, V, E, H = 3, 5, 6, 2, 4
    lengths = (5, 2, 3)
    run = script()
    module = decoder(run, draw, "LuongDecoder", V, E, H)
    token, hidden, outputs = draw.rng.integers(V, size=(N, 1)), draw(1, N, H), draw(N, S, H)
    mask = np.arange(S) < np.array(lengths)[:, None]
    outputs = np.where(mask[..., None], outputs, 10 * draw(N, S, H))
    batch = module.forward(token, hidden, outputs, mask)
    other = module.forward(token, hidden, outputs + mask[..., None], mask)
    alone = []
    for n, length in enumerate(lengths):
        here, real = slice(n, n + 1), np.ones((1, length), dtype=bool)
        alone.append(module.forward(token[here], hidden[:, here], outputs[here, :length], real))
    trace = student(run)
    logits, _, weights = (trace[handle] for handle in batch)
    for n, (one_logits, _, one_weights) in enumerate(alone):
        one_logits, one_weights = trace[one_logits], trace[one_weights]
        assert np.allclose(weights[n, : lengths[n]], one_weights[0], 1e-9, 1e-11), (
            f"The weights of sample {n} are not those it has alone, without its padding."
        )
        assert np.allclose(logits[n], one_logits[0], 1e-9, 1e-11), (
            f"The logits of sample {n} are not those it has alone, without its padding."
        )
    assert not np.any(weights[~mask]), "The weights must be exactly 0 at padding."
    assert not np.allclose(logits, trace[other[0]]), "The logits do not depend on encoder_outputs."


@item(
    "bahdanau_decoder.{output}",
    depends=("softmax.values", "softmax.mask", "bahdanau.weights", "bahdanau.context"),
    draws="bahdanau",
)
@pytest.mark.parametrize("output", ["weights", "hidden", "logits"])
def test_bahdanau(script, agree, draw, output):
    """The state before attends; the GRU gets [token; context]; logits come from the new state."""
    agree(steps(script(), draw, "BahdanauDecoder", ragged=True), only=output)


@item(
    "bahdanau_decoder.logits",
    depends=("attention.gradients", "bahdanau_decoder.weights", "bahdanau_decoder.hidden"),
)
def test_gradients_of_bahdanau(script, agree, draw):
    """From the logits back to every parameter, the embedding included."""
    run = script()
    N, S, V, E, H = SIZES[0]
    module = decoder(run, draw, "BahdanauDecoder", V, E, H)
    token, mask = draw.rng.integers(V, size=(N, 1)), np.ones((N, S), dtype=bool)
    logits, _, _ = module.forward(token, draw(1, N, H), draw(N, S, H), mask)
    run.backward((logits, draw(N, V)))
    run.gradients(module)
    agree(run, only="grads")
