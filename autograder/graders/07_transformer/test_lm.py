"""The decoder-only model: logits, causality, caches, layers and tied weights."""

import numpy as np
from softmark.plugin import item

SIZES = (7, 6, 2, 9, 2, 8)  # V, E, h, d_ff, layers, max_len


def parameters(draw, *sizes):
    """Random parameters, out.weight by its own name too."""
    params = draw.params("TransformerLM", *sizes)
    return params | {"out.weight": params["embed.weight"]}


def model(run, draw, *sizes):
    return run.new("TransformerLM", *sizes, params=parameters(draw, *sizes))


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


@item("lm.logits", depends=("norm.layer", "ffn.relu", "block.pre", "block.mask"))
def test_logits(script, agree, draw):
    """Of the next token at every position."""
    run = script()
    for N, T, *sizes in ((3, 5, *SIZES), (1, 1, 3, 4, 1, 2, 1, 2)):
        model(run, draw, *sizes).forward(draw.rng.integers(sizes[0], size=(N, T)))
    agree(run)


@item("lm.causal", depends="block.mask")
def test_later_tokens(script, student, draw):
    """Other tokens from one position on change the logits from there on, and none before."""
    T = 5
    run = script()
    made = model(run, draw, *SIZES)
    tokens = draw.rng.integers(7, size=(3, T))
    logits = made.forward(tokens)
    others = []
    for place in (1, 4):
        other = np.where(np.arange(T) < place, tokens, (tokens + 1) % 7)
        others.append((place, made.forward(other)))
    trace = student(run)
    for place, other in others:
        assert near(trace[logits][:, :place], trace[other][:, :place]), (
            f"The logits before position {place} change with the tokens from there on."
        )
        same = np.isclose(trace[logits], trace[other], 1e-6).all(axis=2)
        assert not same[:, place:].any(), (
            f"With other tokens from position {place} on, logits there are as they were."
        )


@item("lm.cache", depends=("block.mask", "block.cache", "lm.causal"))
def test_in_pieces(script, student, draw):
    """Positions and attention go on from what the caches hold."""
    run = script()
    made = model(run, draw, *SIZES)
    tokens = draw.rng.integers(7, size=(2, 6))
    whole = made.forward(tokens)
    pieces = []
    caches = [run.new("KVCache"), run.new("KVCache")]
    for start, end in ((0, 2), (2, 3), (3, 6)):
        pieces.append((start, end, made.forward(tokens[:, start:end], caches)))
    trace = student(run)
    for start, end, piece in pieces:
        held = f"with {start} tokens in the caches" if start else "with empty caches"
        new = f"token {start}" if end == start + 1 else f"tokens {start} to {end - 1}"
        assert near(trace[whole][:, start:end], trace[piece]), (
            f"Given to the model {held}, {new} should have the same logits as in one call on all. "
            "They are others."
        )


@item("lm.layers")
def test_every_layer_is_its_own(script, student, draw):
    """Each layer is used, with parameters of its own: others in one of them give other logits."""
    run = script()
    params, others = parameters(draw, *SIZES), parameters(draw, *SIZES)
    made = run.new("TransformerLM", *SIZES, params=params)
    tokens = draw.rng.integers(7, size=(2, 3))
    logits, changed = made.forward(tokens), {}
    for layer in range(2):
        mixed = {k: others[k] if f"blocks.{layer}." in k else v for k, v in params.items()}
        run.assign(made, mixed)
        changed[layer] = made.forward(tokens)
    trace = student(run)
    for layer, other in changed.items():
        assert not near(trace[logits], trace[other]), (
            f"The logits do not depend on the parameters of layer {layer} of 2: is one block used for "
            "both?"
        )


@item("lm.tied")
def test_one_parameter(script, student, draw):
    """What is written to the one is seen in the other, and there is one gradient."""
    run = script()
    params = parameters(draw, *SIZES)
    made = run.new("TransformerLM", *SIZES, params=params)
    tokens = draw.rng.integers(7, size=(2, 3))
    new = draw(*params["embed.weight"].shape)
    run.assign(made, params | {"out.weight": new})  # embed.weight first, then out.weight
    written = made.forward(tokens)
    run.assign(made, params | {"embed.weight": new, "out.weight": new})
    due = made.forward(tokens)
    # an untied out.weight would now be a parameter that is not given
    run.assign(made, {k: v for k, v in params.items() if k != "out.weight"})
    trace = student(run)
    assert near(trace[written], trace[due]), (
        "What is written to out.weight does not reach embed.weight: they are two parameters."
    )
