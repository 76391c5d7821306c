"""Public tests for the Transformer, in the order of the tasks. Run them here:

    softmark check                        the first thing to look at, with hints
    python -m pytest -x test_public.py    the same tests without the hints, up to the first that
                                          fails; extension and bonus not yet begun count as failures

"NotImplementedError: SwiGLU.forward" says that SwiGLU.forward is still to be written. The tests are
yours to read and to add to. They are fewer than the graders', and use other numbers. Where they can
they ask PyTorch's own layers, loaded with your weights. Core tasks come first (1 to 5), then the
encoder-decoder and the masked language model (extension) and the mixture of experts (bonus).
"""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from softmark.compare import check_close
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(
    0, str(Path(__file__).parent)
)  # transformer.py and attention_layers.py beside this file

import attention_layers
import transformer

LN3 = math.log(3)
V, E, HEADS, D_FF, LAYERS, MAX_LEN = 7, 6, 2, 5, 2, 9
TOKENS = torch.tensor([[3, 1, 4, 1, 5], [2, 6, 5, 3, 5], [0, 6, 2, 2, 4]])
LENGTHS = torch.tensor([3, 5, 1])


@pytest.fixture(autouse=True)
def float64():
    """As the graders do: models are built in float64, here from one seed."""
    before = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)  # for what is as small as here, more would wait for each other
    torch.manual_seed(1)
    yield
    torch.set_default_dtype(before[0])
    torch.set_num_threads(before[1])


def check(actual, expected, name, axes=()):
    """Compare a tensor with an array or a tensor."""
    if isinstance(actual, torch.Tensor):
        actual = actual.detach().numpy()
    if isinstance(expected, torch.Tensor):
        expected = expected.detach().numpy()
    number = isinstance(expected, float)
    check_close(actual, expected if number else np.array(expected, dtype=float), name, axes)


def drawn(module):
    """The module with random parameters, norms and biases included."""
    with torch.autograd.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module


def set_to(module, **values):
    """Give parameters values, by name with _ for the dot."""
    with torch.autograd.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.tensor(values[name.replace(".", "_")]))
    return module


def language_model(dropout=0.0):
    """A TransformerLM with random parameters, new ones at every call."""
    return drawn(transformer.TransformerLM(V, E, HEADS, D_FF, LAYERS, MAX_LEN, dropout))


def no_gradient_missing(module, result):
    """Nothing is detached: the gradient of a result reaches every parameter."""
    (result * torch.randn_like(result)).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), f"{name} gets no gradient."


# ---- PyTorch's own layers with your weights ------------------------------------------------------


def fill_attention(theirs, mine):
    """Weights of a MultiHeadAttention into nn.MultiheadAttention, which keeps q, k and v together."""
    parts = mine.q_proj, mine.k_proj, mine.v_proj
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.out_proj.load_state_dict(mine.o_proj.state_dict())


@torch.no_grad()
def library_layer(block, norm):
    """The layer of torch.nn that has the parts and the weights of a block."""
    kind = (
        nn.TransformerDecoderLayer if hasattr(block, "cross_attn") else nn.TransformerEncoderLayer
    )
    layer = kind(E, HEADS, D_FF, dropout=0.0, batch_first=True, norm_first=norm == "pre")
    fill_attention(layer.self_attn, block.self_attn)
    if hasattr(block, "cross_attn"):
        fill_attention(layer.multihead_attn, block.cross_attn)
        layer.norm3.load_state_dict(block.norm3.state_dict())
    for theirs, mine in (
        (layer.linear1, block.ffn.up),
        (layer.linear2, block.ffn.down),
        (layer.norm1, block.norm1),
        (layer.norm2, block.norm2),
    ):
        theirs.load_state_dict(mine.state_dict())
    return layer


def library_lm(model, tokens):
    """Logits of a TransformerLM by torch.nn's layers. Their masks say True where nothing may be seen."""
    _, T = tokens.shape
    x = F.embedding(tokens, model.embed.weight) + model.positions.weight[:T]
    for block in model.blocks:
        x = library_layer(block, "pre")(x, src_mask=torch.ones(T, T).triu(1).bool())
    x = F.layer_norm(x, (E,), model.final_norm.weight, model.final_norm.bias)
    return x @ model.embed.weight.T


# ---- 1. LayerNorm and RMSNorm --------------------------------------------------------------------


def test_layer_norm_by_hand():
    """x = (1, 3): mean 2, variance 1. With eps = 3 the root is 2."""
    made = set_to(transformer.LayerNorm(2, eps=3.0), weight=[10.0, 20.0], bias=[1.0, 2.0])
    check(made(torch.tensor([1.0, 3.0])), [1 - 5.0, 2 + 10.0], "the result")


def test_layer_norm_is_the_library_s():
    """The same numbers as torch's, for any number of axes, rows of one value included."""
    made = drawn(transformer.LayerNorm(E))
    x = 3 * torch.randn(2, 3, E) + 1
    x[0, 1] = 4.0
    check(made(x), F.layer_norm(x, (E,), made.weight, made.bias, 1e-5), "the result")
    check(made(x[0, 0]), F.layer_norm(x, (E,), made.weight, made.bias, 1e-5)[0, 0], "one vector")


def test_rms_norm_by_hand():
    """x = (1, 7): the mean square is 25. With eps = 11 the root is 6; nothing is subtracted."""
    made = set_to(transformer.RMSNorm(2, eps=11.0), weight=[12.0, 6.0])
    check(made(torch.tensor([1.0, 7.0])), [2.0, 7.0], "the result")


def test_rms_norm_is_the_library_s():
    """The same numbers as torch's, zeros included."""
    made = drawn(transformer.RMSNorm(E))
    x = torch.randn(2, 3, E)
    x[1, 2] = 0.0
    check(made(x), F.rms_norm(x, (E,), made.weight, 1e-6), "the result")


def test_norms_keep_the_dtype():
    """bfloat16 in, bfloat16 out."""
    for kind in (transformer.LayerNorm, transformer.RMSNorm):
        result = kind(E).to(torch.bfloat16)(torch.randn(2, E, dtype=torch.bfloat16))
        assert result.dtype == torch.bfloat16, f"{kind.__name__} gives {result.dtype}."


# ---- 2. FeedForward and SwiGLU -------------------------------------------------------------------


def feed_forward(activation):
    """up(x) = (x, -2 x + 1), down(h) = h_1 + 10 h_2 + 100."""
    made = transformer.FeedForward(1, 2, activation)
    return set_to(
        made,
        up_weight=[[1.0], [-2.0]],
        up_bias=[0.0, 1.0],
        down_weight=[[1.0, 10]],
        down_bias=[100.0],
    )


def test_feed_forward_relu_by_hand():
    """x = 1 gives (1, -1) inside; x = -1 gives (-1, 3)."""
    made = feed_forward("relu")
    check(made(torch.tensor([[1.0], [-1.0]])), [[101.0], [130.0]], "the result")


def test_feed_forward_gelu_is_exact():
    """gelu(1) = 0.8413447460685429: the normal distribution's, not the one by tanh, 0.84119…"""
    one = 0.8413447460685429
    check(feed_forward("gelu")(torch.tensor([1.0])), [100 + one + 10 * (one - 1)], "the result")


def test_swiglu_by_hand():
    """gate x = ln 3: silu(ln 3) = 3/4 ln 3, since sigmoid(ln 3) = 3/4."""
    made = set_to(
        transformer.SwiGLU(1, 2),
        gate_weight=[[LN3], [-LN3]],
        up_weight=[[4.0], [8.0]],
        down_weight=[[1.0, 10.0]],
    )
    check(made(torch.tensor([[1.0]])), [[3 * LN3 - 20 * LN3]], "the result")


# ---- 3. EncoderBlock -----------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_encoder_block_is_the_library_s(norm):
    """The same numbers as nn.TransformerEncoderLayer with your weights, under a mask."""
    block = drawn(transformer.EncoderBlock(E, HEADS, D_FF, norm))
    x, mask = torch.randn(3, 5, E), attention_layers.causal_mask(5)
    check(block(x, mask), library_layer(block, norm)(x, src_mask=~mask), "x", ("N", "T", "E"))
    real = attention_layers.padding_mask(LENGTHS, 5)
    due = library_layer(block, norm)(x, src_key_padding_mask=~real[:, 0, 0])
    check(block(x, mask=real), due, "x under a padding mask", ("N", "T", "E"))
    no_gradient_missing(block, block(x))


def test_encoder_block_drops_each_sublayer_s_output():
    """In training with dropout 1 both sublayers give 0: pre leaves x as it is, post norms it twice."""
    x = torch.randn(2, 3, E)
    block = drawn(transformer.EncoderBlock(E, HEADS, D_FF, "pre", dropout=1.0))
    check(block(x), x, "x")
    block = drawn(transformer.EncoderBlock(E, HEADS, D_FF, "post", dropout=1.0))
    check(block(x), block.norm2(block.norm1(x)), "x")
    block.eval()
    block.dropout.p = 0.5
    check(block(x), block(x), "x in eval mode")


# ---- 4. TransformerLM ----------------------------------------------------------------------------


def test_lm_is_the_library_s():
    """The same logits as torch's layers give with your weights; one token and max_len tokens too."""
    model = language_model()
    for tokens in (TOKENS, TOKENS[:, :1], torch.randint(V, (2, MAX_LEN))):
        check(model(tokens), library_lm(model, tokens), "logits", ("N", "T", "V"))


def test_lm_sees_no_future():
    """Another token at t changes logits from t on, and none before."""
    model = language_model()
    logits = model(TOKENS)
    for t in range(TOKENS.shape[1]):
        changed = TOKENS.clone()
        changed[:, t] = (changed[:, t] + 1) % V
        differs = (model(changed) - logits).abs().amax(dim=(0, 2)) > 1e-9
        assert differs.tolist() == [at >= t for at in range(TOKENS.shape[1])], (
            f"Another token {t} changes the logits at {differs.nonzero()[:, 0].tolist()}."
        )


def test_lm_with_caches():
    """Fed in pieces it gives what it gives at once: two tokens, one, two more."""
    model = language_model()
    caches = [attention_layers.KVCache() for _ in model.blocks]
    pieces = [model(piece, caches) for piece in TOKENS.split([2, 1, 2], dim=1)]
    check(torch.cat(pieces, dim=1), model(TOKENS), "logits", ("N", "T", "V"))
    held = [len(cache) for cache in caches]
    assert held == [5] * LAYERS, f"After 5 tokens the caches hold {held}."


def test_lm_stops_at_max_len():
    """More than max_len positions raise ValueError, in one call or in two."""
    model = language_model()
    with pytest.raises(ValueError, match=r"max_len|\d"):
        model(torch.zeros(1, MAX_LEN + 1, dtype=torch.long))
    caches = [attention_layers.KVCache() for _ in model.blocks]
    model(torch.zeros(1, MAX_LEN, dtype=torch.long), caches)
    with pytest.raises(ValueError, match=r"max_len|\d"):
        model(torch.zeros(1, 1, dtype=torch.long), caches)


def test_lm_gradients():
    """Gradients reach every parameter; embed gets them from both of its uses."""
    model = language_model()
    no_gradient_missing(model, model(torch.randint(V, (2, MAX_LEN))))
    model.zero_grad()
    model(TOKENS[:1])[
        ..., 0
    ].sum().backward()  # the tokens 1, 3, 4, 5 go in, the score of 0 comes out
    rows = model.embed.weight.grad.abs().sum(dim=1).nonzero()[:, 0].tolist()
    assert rows == [0, 1, 3, 4, 5], f"Rows {rows} of embed get gradients; it is used at both ends."


def test_lm_drops_once_before_the_blocks():
    """In training with dropout 1 the blocks add nothing to zeros: final_norm's bias is left."""
    model = language_model(dropout=1.0)
    due = (model.final_norm.bias @ model.embed.weight.T).expand(3, 5, V)
    check(model(TOKENS), due, "logits", ("N", "T", "V"))


def test_lm_stays_on_the_device():
    """Positions and mask are made on the tokens' device, here meta, which has no values."""
    made = language_model().to("meta")
    logits = made(TOKENS.to("meta"))
    assert logits.device.type == "meta", f"The logits are on {logits.device}, the tokens on meta."


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA here")
def test_lm_on_cuda():
    """The same numbers on CUDA."""
    model = language_model()
    due, written = model(TOKENS), transformer.generate(model, TOKENS, 3, temperature=0)
    model.to("cuda")
    assert torch.allclose(model(TOKENS.to("cuda")).cpu(), due)
    assert torch.equal(transformer.generate(model, TOKENS.to("cuda"), 3, 0).cpu(), written)
    generator = torch.Generator("cpu").manual_seed(0)
    transformer.generate(model, TOKENS.to("cuda"), 3, generator=generator)


# ---- 5. generate ---------------------------------------------------------------------------------


def fixed(probabilities):
    """A model that gives every next token these probabilities, whatever came before."""
    model = drawn(transformer.TransformerLM(len(probabilities), 2, 1, 3, 1, 40))
    with torch.autograd.no_grad():
        model.embed.weight[:, 0] = torch.tensor(probabilities).log()
        model.final_norm.weight.zero_()
        model.final_norm.bias.copy_(torch.tensor([1.0, 0.0]))
    return model


def test_generate_greedy():
    """With temperature 0 every token is the arg-max given all before it, to the last position."""
    model = language_model()
    written = transformer.generate(model, TOKENS[:, :3], MAX_LEN - 2, temperature=0).clone()
    assert written.shape == (3, MAX_LEN + 1), f"The result has shape {tuple(written.shape)}."
    assert torch.equal(written[:, :3], TOKENS[:, :3]), "The result begins with the prompt."
    for t in range(3, MAX_LEN + 1):
        due = library_lm(model, written[:, :t])[:, -1].argmax(dim=-1)
        assert torch.equal(written[:, t], due), f"Token {t} is not the arg-max of its logits."
    assert torch.equal(transformer.generate(model, TOKENS, 0), TOKENS), "0 new tokens: the prompt."


def test_generate_from_the_likeliest_alone():
    """top_k = 1, a small top_p and a temperature near 0 leave the arg-max alone."""
    model = language_model()
    due = transformer.generate(model, TOKENS, 4, temperature=0)
    for only in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-9}):
        found = transformer.generate(model, TOKENS, 4, **only)
        assert torch.equal(found, due), f"{only} must write what temperature 0 writes."


@pytest.mark.parametrize(
    ("how", "due"),
    [
        ({}, [0.1, 0.5, 0.15, 0.25]),
        ({"temperature": 0.5}, [0.01, 0.25, 0.0225, 0.0625]),
        ({"top_k": 2}, [0, 0.5, 0, 0.25]),
        ({"top_k": 9}, [0.1, 0.5, 0.15, 0.25]),
        ({"top_p": 0.6}, [0, 0.5, 0, 0.25]),
        ({"top_p": 0.8}, [0, 0.5, 0.15, 0.25]),
        ({"top_k": 3, "top_p": 0.85}, [0, 0.5, 0.15, 0.25]),
        ({"top_k": 2, "top_p": 0.6}, [0, 1, 0, 0]),
        ({"temperature": 2.0, "top_p": 0.4}, [0, 0.5**0.5, 0, 0.25**0.5]),
    ],
    ids=str,
)
def test_generate_frequencies(how, due):
    """4000 draws: what may not be drawn never is, the rest as often as it should be."""
    due = torch.tensor(due) / sum(due)
    prompt = torch.zeros(1000, 1, dtype=torch.long)
    generator = torch.Generator().manual_seed(5)
    written = transformer.generate(
        fixed([0.1, 0.5, 0.15, 0.25]), prompt, 4, generator=generator, **how
    )
    share = written[:, 1:].flatten().bincount(minlength=4) / 4000
    for token in range(4):
        assert (share[token] > 0) == (due[token] > 0), (
            f"Token {token} has a share of {share[token]:.3f}, due {due[token]:.3f}."
        )
    assert (share - due).abs().max() < 0.035, f"Shares {share.tolist()}, due {due.tolist()}."


def test_generate_generator():
    """Equal generators write the same, and torch's own stream is left alone."""
    model, prompt = fixed([0.25] * 4), torch.zeros(2, 1, dtype=torch.long)
    before = torch.get_rng_state()
    first, again, other = (
        transformer.generate(model, prompt, 20, generator=torch.Generator().manual_seed(seed))
        for seed in (3, 3, 4)
    )
    assert torch.equal(torch.get_rng_state(), before), "Draws were taken from torch's own stream."
    assert torch.equal(first, again), "Equal generators write different tokens."
    assert not torch.equal(first, other), "Different generators write the same tokens."


def test_generate_restores_the_mode():
    """It runs in eval mode, without gradients, and the model is in its own mode afterwards."""
    model = language_model(dropout=0.5)
    for mode in (True, False):
        model.train(mode)
        first, again = (transformer.generate(model, TOKENS, 4, temperature=0) for _ in range(2))
        assert torch.equal(first, again), "Dropout is active while tokens are written."
        modes = {module.training for module in model.modules()}
        assert modes == {mode}, f"train({mode}) is lost."


def test_generate_costs_one_token_a_step():
    """Floating-point operations grow with the tokens, not with the tokens of every step anew."""
    model = language_model()
    with FlopCounterMode(display=False) as all_at_once:
        model(torch.zeros(1, MAX_LEN, dtype=torch.long))
    with FlopCounterMode(display=False) as written:
        transformer.generate(model, TOKENS[:1, :1], MAX_LEN, temperature=0)
    times = written.get_total_flops() / all_at_once.get_total_flops()
    assert times < 2, (
        f"{MAX_LEN} tokens one by one took {times:.1f} times the operations of one forward of them all; "
        "with caches it is about 1."
    )


def test_generate_errors():
    """ValueError for a temperature, top_k or top_p out of range, and past max_len."""
    model = language_model()
    transformer.generate(model, TOKENS, MAX_LEN - 5 + 1)
    for wrong in (
        {"temperature": -0.1},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"max_new_tokens": MAX_LEN - 5 + 2},
    ):
        with pytest.raises(ValueError, match=r"temperature|top_k|top_p|max_len|new|\d"):
            transformer.generate(model, TOKENS, **({"max_new_tokens": 2} | wrong))


# ---- everything ----------------------------------------------------------------------------------


def test_inputs_are_left_alone():
    """No call changes what it is given."""
    model = language_model()
    tokens, x = TOKENS.clone(), torch.randn(2, 3, E)
    before = x.clone()
    drawn(transformer.EncoderBlock(E, HEADS, D_FF))(x)
    drawn(transformer.SwiGLU(E, D_FF))(x)
    transformer.generate(model, tokens, 2)
    assert torch.equal(tokens, TOKENS), "The tokens were changed in place."
    assert torch.equal(x, before), "x was changed in place."


# ---- 7. extension: DecoderBlock ------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_extension_decoder_block_is_the_library_s(norm):
    """Extension: the same numbers as nn.TransformerDecoderLayer with your weights."""
    block = drawn(transformer.DecoderBlock(E, HEADS, D_FF, norm))
    x, memory = torch.randn(3, 4, E), torch.randn(3, 5, E)
    mask, real = attention_layers.causal_mask(4), attention_layers.padding_mask(LENGTHS, 5)
    due = library_layer(block, norm)(
        x, memory, tgt_mask=~mask, memory_key_padding_mask=~real[:, 0, 0]
    )
    check(block(x, memory, mask, real), due, "x", ("N", "T", "E"))
    no_gradient_missing(block, block(x, memory))


# ---- 8. extension: Transformer -------------------------------------------------------------------


SRC_LENGTHS, TGT_LENGTHS = LENGTHS, torch.tensor([4, 1, 2])
TGT = torch.tensor([[0, 3, 1, 2], [0, 2, 2, 1], [0, 1, 3, 1]])


def encoder_decoder(norm):
    """A Transformer from V to 4 tokens with random parameters, and dropout where it is put on."""
    made = transformer.Transformer(V, 4, E, HEADS, D_FF, LAYERS, MAX_LEN, norm)
    return drawn(made)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_extension_transformer_is_the_library_s(norm):
    """Extension: the same logits as torch's layers give with your weights."""
    model = encoder_decoder(norm)
    logits = model(TOKENS, TGT, SRC_LENGTHS, TGT_LENGTHS)
    hidden = torch.arange(5) >= SRC_LENGTHS[:, None]
    table = torch.zeros(MAX_LEN, E)
    for position in range(MAX_LEN):
        for pair in range(E // 2):
            angle = position / 10000 ** (2 * pair / E)
            table[position, 2 * pair : 2 * pair + 2] = torch.tensor(
                [math.sin(angle), math.cos(angle)]
            )
    memory = F.embedding(TOKENS, model.src_embed.weight) * math.sqrt(E) + table[:5]
    for block in model.encoder:
        memory = library_layer(block, norm)(memory, src_key_padding_mask=hidden)
    x = F.embedding(TGT, model.tgt_embed.weight) * math.sqrt(E) + table[:4]
    if norm == "pre":
        last = model.encoder_norm
        memory = F.layer_norm(memory, (E,), last.weight, last.bias)
    for block in model.decoder:
        future = torch.ones(4, 4).triu(1).bool()
        x = library_layer(block, norm)(x, memory, future, memory_key_padding_mask=hidden)
    if norm == "pre":
        x = F.layer_norm(x, (E,), model.decoder_norm.weight, model.decoder_norm.bias)
    due = F.linear(x, model.out.weight, model.out.bias)
    for n, length in enumerate(TGT_LENGTHS):
        check(logits[n, :length], due[n, :length], f"logits of sample {n}", ("T", "V"))


def test_extension_transformer_ragged():
    """Extension: Transformer on a batch gives what its samples give one by one, without padding."""
    model = encoder_decoder("pre")
    logits = model(TOKENS, TGT, SRC_LENGTHS, TGT_LENGTHS)
    for n, (S, T) in enumerate(zip(SRC_LENGTHS.tolist(), TGT_LENGTHS.tolist(), strict=True)):
        one = slice(n, n + 1)
        alone = model(TOKENS[one, :S], TGT[one, :T], SRC_LENGTHS[one], TGT_LENGTHS[one])
        check(logits[one, :T], alone, f"logits of sample {n}", ("N", "T", "V"))


# ---- 9. extension: MaskedLM ----------------------------------------------------------------------


def masked_lm():
    """A MaskedLM with random parameters."""
    return drawn(transformer.MaskedLM(V, E, HEADS, D_FF, LAYERS, MAX_LEN))


def test_extension_masked_lm_ragged():
    """Extension: MaskedLM on a batch gives what its samples give one by one, without padding."""
    model = masked_lm()
    logits = model(TOKENS, LENGTHS)
    for n, length in enumerate(LENGTHS.tolist()):
        one = slice(n, n + 1)
        alone = model(TOKENS[one, :length], LENGTHS[one])
        check(logits[one, :length], alone, f"logits of sample {n}", ("N", "T", "V"))


def test_extension_masked_lm_sees_both_sides():
    """Extension: another token changes the logits at every position, before it and behind it."""
    model, lengths = masked_lm(), torch.tensor([5, 5, 5])
    changed = TOKENS.clone()
    changed[:, 2] = (changed[:, 2] + 1) % V
    differs = (model(changed, lengths) - model(TOKENS, lengths)).abs().amax(dim=2) > 1e-9
    assert differs.all(), "Some position does not see the token that was changed."
    with pytest.raises(ValueError, match=r"max_len|\d"):
        model(torch.zeros(1, MAX_LEN + 1, dtype=torch.long), torch.tensor([2]))


# ---- 10. extension: mask_tokens ------------------------------------------------------------------


def test_extension_mask_tokens():
    """Extension: who is chosen, what becomes of them, and how often."""
    tokens = torch.randint(100, (100, 50))
    lengths = torch.randint(1, 51, (100,))
    kept, generator = tokens.clone(), torch.Generator().manual_seed(2)
    inputs, targets = transformer.mask_tokens(tokens, lengths, 100, 101, generator, rate=0.4)
    assert torch.equal(tokens, kept), "The tokens were changed in place."
    real, chosen = torch.arange(50) < lengths[:, None], targets != -100
    assert not (chosen & ~real).any(), "Padding was chosen."
    assert torch.equal(inputs[~chosen], tokens[~chosen]), "A token that was not chosen was changed."
    assert torch.equal(targets[chosen], tokens[chosen]), "Targets hold the original tokens."
    assert ((inputs >= 0) & (inputs <= 100)).all(), "There are tokens outside the vocabulary."
    masked = inputs == 100
    stayed = chosen & (inputs == tokens)
    for name, share, due in (
        ("chosen", chosen[real], 0.4),
        ("masked, of the chosen", masked[chosen], 0.8 + 0.1 / 101),
        ("left as they are, of the chosen", stayed[chosen], 0.1 + 0.1 / 101),
    ):
        found = share.double().mean().item()
        assert abs(found - due) < 0.06, f"{name}: {found:.3f}, due {due:.3f}."


def test_extension_mask_tokens_generator():
    """Extension: equal generators choose the same, and torch's own stream is left alone."""
    tokens, lengths = TOKENS.repeat(20, 1), LENGTHS.repeat(20)
    before = torch.get_rng_state()
    first, again, other = (
        transformer.mask_tokens(tokens, lengths, 0, V, torch.Generator().manual_seed(seed), 0.5)[1]
        for seed in (3, 3, 7)
    )
    assert torch.equal(torch.get_rng_state(), before), "Draws were taken from torch's own stream."
    assert torch.equal(first, again), "Equal generators choose different tokens."
    assert not torch.equal(first, other), "Different generators choose the same tokens."
    none, _ = transformer.mask_tokens(tokens, lengths, 0, V, torch.Generator(), 0.0)
    assert torch.equal(none, tokens), "With rate 0 nothing is chosen."


# ---- 11. bonus: MixtureOfExperts -----------------------------------------------------------------


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_bonus_experts_token_by_token(top_k):
    """Bonus: each token through its own experts, weighted by the softmax over their logits alone."""
    made = drawn(transformer.MixtureOfExperts(E, D_FF, 4, top_k))
    x = torch.randn(2, 3, E)
    out, loss = made(x)
    share, probability = torch.zeros(4), torch.zeros(4)
    for n, t in np.ndindex(2, 3):
        logits = (made.router.weight @ x[n, t]).detach()
        order = sorted(range(4), key=logits.tolist().__getitem__, reverse=True)[:top_k]
        total = sum(math.exp(logits[e]) for e in order)
        due = sum(math.exp(logits[e]) / total * made.experts[e](x[n, t]) for e in order)
        check(out[n, t], due, f"out[{n}, {t}]", ("E",))
        share[order[0]] += 1 / 6
        probability += torch.softmax(logits, dim=0) / 6
    check(loss, 4 * share @ probability, "the balance loss")


def test_bonus_balance_loss_by_hand():
    """Bonus: the handout's example. Three of four tokens choose the first expert."""
    made = transformer.MixtureOfExperts(1, 2, 2, 1)
    set_to(made.router, weight=[[LN3], [0.0]])
    loss = made(torch.tensor([[[1.0], [1.0], [1.0], [-1.0]]]))[1]
    check(loss, torch.tensor(2 * (3 / 4 * 5 / 8 + 1 / 4 * 3 / 8)), "the balance loss")


def test_bonus_experts_cost():
    """Bonus: an expert runs on the tokens that chose it, and on no others."""
    made, N, T = drawn(transformer.MixtureOfExperts(8, 16, 8, 2)), 2, 16
    with FlopCounterMode(display=False) as counter:
        made(torch.randn(N, T, 8))
    tokens = N * T * 2  # two experts a token
    due = tokens * 6 * 8 * 16 + N * T * 2 * 8 * 8  # three products a SwiGLU, and the router
    times = counter.get_total_flops() / due
    assert times < 1.5, f"This takes {times:.1f} times the operations of two experts a token."
