"""Dropout: exactly where it belongs, found out with sublayers that give 0 and with p = 1.

What is left in training is compared with what the same module gives where a layer is silent.
"""

import numpy as np
from softmark.plugin import item

N, T = 3, 5
BLOCK = (8, 2, 5)  # E, h, d_ff
SUBLAYERS = {"the self-attention": "self_attn.o_proj", "the feed-forward layer": "ffn.down"}


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


def silent(params, *parts):
    """The parameters with these layers giving 0."""
    return {k: 0 * v if any(part in k for part in parts) else v for k, v in params.items()}


def assert_dropped_out(what, found, whole):
    """Every number of ``found`` is 0 or twice that of ``whole``, either of them often."""
    zero, twice = np.abs(found) < 1e-9, np.abs(found - 2 * whole) < 1e-9
    assert (zero | twice).all(), (
        f"In training with dropout 0.5, what {what} adds is not, number by number, either 0 or twice "
        "what it adds without dropout: is there dropout in another place too, or in none?"
    )
    assert 0.1 < zero.mean() < 0.9, (
        f"Of what {what} adds, {zero.mean():.0%} is dropped with p = 0.5."
    )


@item("block.dropout")
def test_what_a_sublayer_adds(script, student, draw):
    """With the other sublayer silent, what is added to x tells what dropout did."""
    run = script()
    params, x = draw.params("EncoderBlock", *BLOCK), draw(N, T, 8)
    none = run.new("EncoderBlock", *BLOCK, params=silent(params, *SUBLAYERS.values())).forward(x)
    found = []
    for what, part in SUBLAYERS.items():
        others = [other for other in SUBLAYERS.values() if other != part]
        made = run.new("EncoderBlock", *BLOCK, "pre", 0.5, params=silent(params, *others))
        dropped = made.forward(x)
        made.eval()
        found.append((what, dropped, made.forward(x), made.forward(x)))
    trace = student(run)
    for what, dropped, *still in found:
        one, again = (trace[handle] - trace[none] for handle in still)
        assert near(one, again), (
            "In eval mode, two calls give two results: dropout is for training."
        )
        assert_dropped_out(what, trace[dropped] - trace[none], one)


@item("block.dropout")
def test_all_dropped(script, student, draw):
    """With p = 1 nothing of the sublayers is left in training, and all of x."""
    run = script()
    params, x = draw.params("EncoderBlock", *BLOCK), draw(N, T, 8)
    found = []
    for norm in ("pre", "post"):
        made = run.new("EncoderBlock", *BLOCK, norm, dropout=1.0, params=params)
        dropped = made.forward(x)
        run.assign(made, silent(params, *SUBLAYERS.values()))
        made.eval()
        found.append((norm, dropped, made.forward(x)))
    trace = student(run)
    for norm, dropped, left in found:
        assert near(trace[dropped], trace[left]), (
            f"In training with dropout 1.0, norm {norm}: what is left is not what would be if both "
            "sublayers gave 0. Dropout is on what a sublayer gives, before the sum, and nowhere else."
        )


V, E = 5, 6


def language_model(run, draw, *parts):
    """A model with dropout 0.5 and silent ``parts``, and its parameters."""
    params = silent(draw.params("TransformerLM", V, E, 2, 4, 1, T + 1), *parts)
    params["out.weight"] = params["embed.weight"]
    made = run.new("TransformerLM", V, E, 2, 4, 1, T + 1, dropout=0.5, params=params)
    return made, params


@item("lm.dropout", depends=("block.dropout", "lm.logits"))
def test_on_embedding_and_position(script, student, draw):
    """With silent sublayers, the logits tell which numbers of embedding + position were dropped."""
    run = script()
    made, params = language_model(run, draw, *SUBLAYERS.values())
    tokens = draw.rng.integers(V, size=(N, T))
    logits = made.forward(tokens)
    # all that x can be, through the submission's own block and norm
    x = (params["embed.weight"][tokens] + params["positions.weight"][:T]).reshape(-1, 1, E)
    kept = (np.arange(2**E)[:, None] >> np.arange(E) & 1).astype(bool)
    of_block = {k.removeprefix("blocks.0."): v for k, v in params.items() if "blocks" in k}
    of_norm = {k.removeprefix("final_norm."): v for k, v in params.items() if "final" in k}
    block = run.new("EncoderBlock", E, 2, 4, params=of_block)
    norm = run.new("LayerNorm", E, params=of_norm)
    candidates = norm.forward(block.forward(np.where(kept, 2 * x, 0.0)))
    trace = student(run)
    due = trace[candidates] @ params["embed.weight"].T  # (N T, 2 ** E, V)
    fits = np.abs(due - trace[logits].reshape(-1, 1, V)).max(axis=2) < 1e-9
    assert fits.any(axis=1).all(), (
        "In training with dropout 0.5, what goes into the blocks is not embedding + position with each "
        "number either dropped or doubled."
    )
    share = kept[fits.argmax(axis=1)].mean()
    assert 0.1 < share < 0.9, f"In training with dropout 0.5, {share:.0%} of x is kept."


@item("lm.dropout", depends=("block.dropout", "lm.logits", "lm.cache"))
def test_before_the_blocks_and_in_training_alone(script, student, draw):
    """What a cache got in training was made of less than all; in eval mode nothing is dropped."""
    run = script()
    made, _ = language_model(run, draw)
    tokens = draw.rng.integers(V, size=(N, T))
    after = []
    for in_eval in (False, True, True):
        if in_eval:
            made.eval()
        cache = run.new("KVCache")
        made.forward(tokens[:, :-1], [cache])
        made.eval()
        after.append(made.forward(tokens[:, -1:], [cache]))
        made.train()
    made.eval()
    after.append(made.forward(tokens[:, -1:], [run.new("KVCache")]))
    trace = student(run)
    training, still, again, alone = (trace[handle] for handle in after)
    assert near(still, again), "In eval mode, two calls give two results: dropout is for training."
    assert near(still, alone) or not near(training, still), (  # or else caches are not used at all
        "In training, the keys and values of the first block are made of x without dropout."
    )


@item("extension.dropout")
def test_decoder_block(script, student, draw):
    """As in the encoder block, each of three sublayers by itself."""
    run = script()
    params = draw.params("DecoderBlock", *BLOCK)
    x, memory = draw(N, T, 8), draw(N, 4, 8)
    parts = SUBLAYERS | {"the cross-attention": "cross_attn.o_proj"}
    none = run.new("DecoderBlock", *BLOCK, params=silent(params, *parts.values()))
    none, found = none.forward(x, memory), []
    for what, part in parts.items():
        others = [other for other in parts.values() if other != part]
        made = run.new("DecoderBlock", *BLOCK, "pre", 0.5, params=silent(params, *others))
        dropped = made.forward(x, memory)
        made.eval()
        found.append((what, dropped, made.forward(x, memory)))
    post = run.new("DecoderBlock", *BLOCK, "post", 1.0, params=params)
    dropped_post = post.forward(x, memory)
    run.assign(post, silent(params, *parts.values()))
    post.eval()
    left = post.forward(x, memory)
    trace = student(run)
    for what, dropped, still in found:
        assert_dropped_out(what, trace[dropped] - trace[none], trace[still] - trace[none])
    assert near(trace[dropped_post], trace[left]), (
        "In training with dropout 1.0, norm post: what is left is not what would be if all sublayers "
        "gave 0."
    )


@item("extension.dropout")
def test_models(script, student, draw):
    """With p = 1 nothing of the tokens is left in training; in eval mode nothing is dropped."""
    V, sizes = 5, (4, 2, 5, 1, 5)
    run = script()
    tokens, lengths = draw.rng.integers(V, size=(2, 4)), np.array([4, 4])
    given = {
        "Transformer": ((V, V, *sizes), (tokens, tokens, lengths, lengths)),
        "MaskedLM": ((V, *sizes), (tokens, lengths)),
    }
    found = {}
    for name, (args, inputs) in given.items():
        params = draw.params(name, *args)
        if name == "MaskedLM":
            params["out.weight"] = params["embed.weight"]
        made = run.new(name, *args, dropout=1.0, params=params)
        dropped = made.forward(*inputs)
        made.eval()
        found[name] = (dropped, made.forward(*inputs))
    trace = student(run)
    for name, (dropped, in_eval) in found.items():
        first = trace[dropped][:1, :1]
        assert near(trace[dropped], np.broadcast_to(first, trace[dropped].shape)), (
            f"{name} in training with dropout 1.0: something of the tokens or positions is left."
        )
        alike = near(trace[in_eval][:1, :1], trace[in_eval])
        assert not alike, f"{name}: in eval mode something is dropped."
