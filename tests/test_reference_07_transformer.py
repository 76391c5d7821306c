"""The Transformer reference and its right variants against oracles that share nothing with them.

The oracles are PyTorch's own norms, encoder and decoder layers with converted weights, explicit loops
over tokens, generation computed anew at every step, autograd's gradcheck, and counts of many draws. The
given attention is held against nn.MultiheadAttention.
"""

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

ROOT = Path(__file__).parents[1]
GIVEN = ROOT / "assignments" / "07_transformer"
SOLUTION = ROOT / "solutions" / "07_transformer"
FILES = [SOLUTION / "transformer.py", *sorted((SOLUTION / "variants").glob("*/transformer.py"))]
# The hidden graders compare the variants with the reference each time.
PARAMS = [FILES[0], *(pytest.param(file, marks=pytest.mark.slow) for file in FILES[1:])]
NORMS = ["pre", "post"]


@pytest.fixture(autouse=True)
def float64():
    """Models are built in float64, from one seed."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def layers(monkeypatch):
    """The given attention layers."""
    monkeypatch.syspath_prepend(GIVEN)
    return importlib.import_module("attention_layers")


@pytest.fixture(params=PARAMS, ids=lambda path: path.parent.name)
def made(request, layers):
    """The module under test: the reference, then each variant."""
    name = f"transformer_of_{request.param.parent.name}"
    spec = importlib.util.spec_from_file_location(name, request.param)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


def random(module):
    """The module with random parameters, all of them."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=1.0 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5)
    return module


def lm(made, V=7, E=8, h=2, d_ff=12, layers=2, max_len=10, dropout=0.0):
    return random(made.TransformerLM(V, E, h, d_ff, layers, max_len, dropout))


# ---- the given attention ---------------------------------------------------------------------------


def copy_attention(ours, theirs):
    """Our projections into a nn.MultiheadAttention."""
    parts = [ours.q_proj, ours.k_proj, ours.v_proj]
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        theirs.out_proj.load_state_dict(ours.o_proj.state_dict())
    return theirs


def test_attention_is_the_librarys(layers):
    ours = random(layers.MultiHeadAttention(6, 3))
    theirs = copy_attention(ours, nn.MultiheadAttention(6, 3, batch_first=True))
    x, memory = torch.randn(2, 4, 6), torch.randn(2, 5, 6)
    close(ours(x), theirs(x, x, x)[0])
    close(ours(x, memory), theirs(x, memory, memory)[0])
    close(ours(x, memory, memory + 1), theirs(x, memory, memory + 1)[0])
    causal = layers.causal_mask(4)
    close(ours(x, mask=causal), theirs(x, x, x, attn_mask=~causal)[0])
    real = layers.padding_mask(torch.tensor([5, 2]), 5)
    close(
        ours(x, memory, mask=real),
        theirs(x, memory, memory, key_padding_mask=~real[:, 0, 0])[0],
    )


def test_masks_are_aligned(layers):
    assert layers.causal_mask(2, 4).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert layers.causal_mask(3).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    mask = layers.padding_mask(torch.tensor([2, 0]), 3)
    assert mask.shape == (2, 1, 1, 3) and mask[:, 0, 0].tolist() == [[1, 1, 0], [0, 0, 0]]
    assert layers.causal_mask(2, device="meta").device.type == "meta"
    assert layers.padding_mask(torch.zeros(2, device="meta"), 3).device.type == "meta"


def test_empty_rows_give_the_bias_and_no_gradient(layers):
    attention = random(layers.MultiHeadAttention(4, 2))
    x = torch.randn(2, 3, 4, requires_grad=True)
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]]).bool()
    out = attention(x, mask=mask)
    close(out[:, 1], attention.o_proj.bias.expand(2, 4))
    (out[:, 1] * torch.randn(2, 4)).sum().backward(retain_graph=True)
    assert x.grad.count_nonzero() == 0
    assert torch.autograd.gradcheck(lambda x: attention(x, mask=mask), x)


def test_grouped_queries_and_the_cache(layers):
    grouped = random(layers.MultiHeadAttention(8, 4, 2, bias=False))
    plain = layers.MultiHeadAttention(8, 4, bias=False)
    repeated = {
        k: v.view(2, 1, 2, 8).expand(2, 2, 2, 8).reshape(8, 8) if k[0] in "kv" else v
        for k, v in grouped.state_dict().items()
    }
    plain.load_state_dict(repeated)
    x = torch.randn(2, 5, 8, requires_grad=True)
    whole = grouped(x, mask=layers.causal_mask(5))
    close(whole, plain(x, mask=layers.causal_mask(5)))
    cache, pieces = layers.KVCache(), []
    assert len(cache) == 0
    for start, end in ((0, 2), (2, 3), (3, 5)):
        mask = layers.causal_mask(end - start, end)
        pieces.append(grouped(x[:, start:end], mask=mask, cache=cache))
        assert len(cache) == end
    close(torch.cat(pieces, 1), whole)
    upstream = torch.randn(2, 5, 8)
    close(
        *(
            torch.autograd.grad((out * upstream).sum(), x)[0]
            for out in (torch.cat(pieces, 1), whole)
        )
    )
    for bad in ((6, 4), (8, 4, 3)):
        with pytest.raises(ValueError, match="num_"):
            layers.MultiHeadAttention(*bad)
    with pytest.raises(ValueError, match="cache"):
        grouped(x, x, cache=cache)


# ---- norms and feed-forward layers -----------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 1, 3), (6, 8), (2,)])
def test_norms_are_the_librarys(made, shape):
    for eps in (1e-5, 0.5):
        ours = random(made.LayerNorm(shape[-1], eps=eps))
        x = (3 * torch.randn(shape) + 1).requires_grad_()
        close(ours(x), F.layer_norm(x, shape[-1:], ours.weight, ours.bias, eps))
        assert torch.autograd.gradcheck(ours, x)
        ours = random(made.RMSNorm(shape[-1], eps=eps))
        close(ours(x), F.rms_norm(x, shape[-1:], ours.weight, eps))
        assert torch.autograd.gradcheck(ours, x)
    assert (made.LayerNorm(4).eps, made.RMSNorm(4).eps) == (1e-5, 1e-6)


def product(layer, row):
    """A nn.Linear on one row, in Python's floats."""
    weight, bias = layer.weight.tolist(), [0.0] * layer.out_features
    if layer.bias is not None:
        bias = layer.bias.tolist()
    return [
        math.fsum(w * x for w, x in zip(ws, row, strict=True)) + b
        for ws, b in zip(weight, bias, strict=True)
    ]


def gelu(z):
    return z * 0.5 * (1 + math.erf(z / math.sqrt(2)))


def silu(z):
    return z / (1 + math.exp(-z))


@pytest.mark.parametrize("sizes", [(3, 5), (1, 4), (4, 1)])
def test_feed_forward_row_by_row(made, sizes):
    x = 2 * torch.randn(2, 3, sizes[0])
    for name, activation in (("relu", lambda z: max(z, 0.0)), ("gelu", gelu)):
        ours = random(made.FeedForward(*sizes, name))
        class_of = ours.down
        due = [
            product(class_of, [activation(z) for z in product(ours.up, row)])
            for row in x.view(6, -1).tolist()
        ]
        close(ours(x).flatten(0, 1), torch.tensor(due))
    gated = random(made.SwiGLU(*sizes))
    due = []
    for row in x.view(6, -1).tolist():
        gates, values = product(gated.gate, row), product(gated.up, row)
        due.append(product(gated.down, [silu(g) * v for g, v in zip(gates, values, strict=True)]))
    close(gated(x).flatten(0, 1), torch.tensor(due))
    assert torch.autograd.gradcheck(gated, x.requires_grad_())
    with pytest.raises(ValueError, match="activation"):
        made.FeedForward(2, 3, "tanh")


# ---- blocks ----------------------------------------------------------------------------------------


def copy_block(ours, theirs):
    """Our parameters into PyTorch's encoder or decoder layer."""
    copy_attention(ours.self_attn, theirs.self_attn)
    if hasattr(theirs, "multihead_attn"):
        copy_attention(ours.cross_attn, theirs.multihead_attn)
    pairs = [(ours.ffn.up, theirs.linear1), (ours.ffn.down, theirs.linear2)]
    pairs += [
        (getattr(ours, name), getattr(theirs, name))
        for name in ("norm1", "norm2", "norm3")
        if hasattr(theirs, name)
    ]
    for our, their in pairs:
        their.load_state_dict(our.state_dict())
    return theirs


SETTINGS = {"dropout": 0.0, "batch_first": True}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("N, T", [(3, 4), (1, 1)])
def test_encoder_block_is_the_librarys(made, layers, norm, N, T):
    ours = random(made.EncoderBlock(6, 2, 9, norm))
    theirs = nn.TransformerEncoderLayer(6, 2, 9, norm_first=norm == "pre", **SETTINGS)
    copy_block(ours, theirs)
    x = torch.randn(N, T, 6, requires_grad=True)
    close(ours(x), theirs(x))
    causal = layers.causal_mask(T)
    close(ours(x, causal), theirs(x, src_mask=~causal))
    real = layers.padding_mask(torch.arange(N) % T + 1, T)
    close(ours(x, mask=real), theirs(x, src_key_padding_mask=~real[:, 0, 0]))
    assert torch.autograd.gradcheck(lambda x: ours(x, causal), x, fast_mode=True)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("N, T, S", [(3, 4, 5), (1, 1, 1)])
def test_decoder_block_is_the_librarys(made, layers, norm, N, T, S):
    ours = random(made.DecoderBlock(6, 2, 9, norm))
    theirs = nn.TransformerDecoderLayer(6, 2, 9, norm_first=norm == "pre", **SETTINGS)
    copy_block(ours, theirs)
    x, memory = torch.randn(N, T, 6), torch.randn(N, S, 6, requires_grad=True)
    close(ours(x, memory), theirs(x, memory))
    causal, real = layers.causal_mask(T), layers.padding_mask(torch.arange(N) % S + 1, S)
    due = theirs(x, memory, tgt_mask=~causal, memory_key_padding_mask=~real[:, 0, 0])
    close(ours(x, memory, causal, real), due)
    cache, pieces = layers.KVCache(), []
    for t in range(T):
        pieces.append(ours(x[:, t : t + 1], memory, memory_mask=real, cache=cache))
    close(torch.cat(pieces, 1), due)
    assert torch.autograd.gradcheck(
        lambda memory: ours(x, memory, causal, real), memory, fast_mode=True
    )


def test_blocks_know_two_norms(made):
    for block in (made.EncoderBlock, made.DecoderBlock):
        with pytest.raises(ValueError, match="norm"):
            block(4, 2, 4, "both")


@pytest.mark.parametrize("norm", NORMS)
def test_dropout_of_blocks(made, norm):
    """The library's layers, inner dropouts off, drop the same (with N = 1 they draw in one order)."""
    x, memory, settings = torch.randn(1, 6, 4), torch.randn(1, 5, 4), SETTINGS | {"dropout": 0.5}
    for block, library, given in (
        (made.EncoderBlock, nn.TransformerEncoderLayer, (x,)),
        (made.DecoderBlock, nn.TransformerDecoderLayer, (x, memory)),
    ):
        ours = random(block(4, 2, 6, norm, dropout=0.5))
        theirs = copy_block(ours, library(4, 2, 6, norm_first=norm == "pre", **settings))
        theirs.dropout, theirs.self_attn.dropout = nn.Identity(), 0.0
        if library is nn.TransformerDecoderLayer:
            theirs.multihead_attn.dropout = 0.0
        found = []
        for layer in (ours, theirs):
            torch.manual_seed(1)
            found.append(layer(*given))
        close(*found)
        plain = block(4, 2, 6, norm)
        plain.load_state_dict(ours.state_dict())
        assert not torch.allclose(found[0], plain(*given))
        close(ours.eval()(*given), plain(*given))


# ---- models ----------------------------------------------------------------------------------------


def stack(ours, norm, final, decoder=False):
    """PyTorch's stack of layers with our parameters."""
    layer = nn.TransformerDecoderLayer if decoder else nn.TransformerEncoderLayer
    whole = nn.TransformerDecoder if decoder else nn.TransformerEncoder
    E, d_ff = ours[0].ffn.up.in_features, ours[0].ffn.up.out_features
    last = None
    if final is not None:
        last = nn.LayerNorm(E)
        last.load_state_dict(final.state_dict())
    more = {} if decoder else {"enable_nested_tensor": False}
    made = whole(
        layer(E, 2, d_ff, norm_first=norm == "pre", **SETTINGS), len(ours), norm=last, **more
    )
    for our, their in zip(ours, made.layers, strict=True):
        copy_block(our, their)
    return made


@pytest.mark.parametrize("N, T", [(3, 5), (1, 1)])
def test_lm_is_the_librarys_stack(made, layers, N, T):
    model = lm(made)
    tokens = torch.randint(7, (N, T))
    x = model.embed.weight[tokens] + model.positions.weight[:T]
    body = stack(model.blocks, "pre", model.final_norm)
    due = body(x, mask=~layers.causal_mask(T)) @ model.embed.weight.T
    close(model(tokens), due)
    caches = [layers.KVCache() for _ in range(2)]
    pieces = [model(tokens[:, :2], caches)] + [
        model(tokens[:, t : t + 1], caches) for t in range(2, T)
    ]
    close(torch.cat(pieces, 1), due)


def test_lm_past_max_len(made, layers):
    model = lm(made, max_len=4)
    assert model(torch.zeros(1, 4, dtype=torch.long)).shape == (1, 4, 7)
    with pytest.raises(ValueError):
        model(torch.zeros(1, 5, dtype=torch.long))
    caches = [layers.KVCache() for _ in range(2)]
    model(torch.zeros(1, 3, dtype=torch.long), caches)
    with pytest.raises(ValueError):
        model(torch.zeros(1, 2, dtype=torch.long), caches)


@pytest.mark.parametrize("name", ["TransformerLM", "MaskedLM"])
def test_weights_stay_tied(made, name):
    model = getattr(made, name)(5, 4, 2, 6, 1, 8)
    assert model.out.weight is model.embed.weight and model.out.bias is None
    names = dict(model.named_parameters())
    assert "out.weight" not in names and len({id(p) for p in names.values()}) == len(names)
    tokens = torch.randint(5, (2, 3))
    model(tokens, *([torch.tensor([3, 2])] if name == "MaskedLM" else [])).square().sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert torch.equal(model.out.weight, model.embed.weight)
    assert all(
        p.grad is not None and p.grad.abs().sum() > 0
        for k, p in names.items()
        if "k_proj.bias" not in k
    )


def sinusoid(T, E):
    """Number by number."""
    rows = [[0.0] * E for _ in range(T)]
    for t in range(T):
        for i in range(E):
            angle = t / 10000 ** (2 * (i // 2) / E)
            rows[t][i] = math.cos(angle) if i % 2 else math.sin(angle)
    return torch.tensor(rows)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("N, S, T", [(3, 5, 4), (1, 1, 1)])
def test_transformer_is_the_librarys_stacks(made, layers, norm, N, S, T):
    model = random(made.Transformer(7, 6, 8, 2, 12, 2, max_len=6, norm=norm))
    assert "positions" not in model.state_dict()
    close(model.positions, sinusoid(6, 8))
    src, tgt = torch.randint(7, (N, S)), torch.randint(6, (N, T))
    of_src, of_tgt = torch.arange(N) % S + 1, torch.arange(N, 0, -1).clamp(max=T)
    final = norm == "pre"
    encoder = stack(model.encoder, norm, model.encoder_norm if final else None)
    decoder = stack(model.decoder, norm, model.decoder_norm if final else None, decoder=True)
    padding = ~layers.padding_mask(of_src, S)[:, 0, 0]
    x = model.src_embed.weight[src] * math.sqrt(8) + sinusoid(S, 8)
    memory = encoder(x, src_key_padding_mask=padding)
    y = model.tgt_embed.weight[tgt] * math.sqrt(8) + sinusoid(T, 8)
    due = decoder(y, memory, tgt_mask=~layers.causal_mask(T), memory_key_padding_mask=padding)
    logits, due = model(src, tgt, of_src, of_tgt), model.out(due)
    for n, length in enumerate(of_tgt.tolist()):
        close(logits[n, :length], due[n, :length])
        one = model(
            src[n : n + 1, : of_src[n]],
            tgt[n : n + 1, :length],
            of_src[n : n + 1],
            of_tgt[n : n + 1],
        )
        close(logits[n, :length], one[0])


@pytest.mark.parametrize("N, T", [(3, 5), (1, 1)])
def test_masked_lm_is_the_librarys_stack(made, layers, N, T):
    model = random(made.MaskedLM(7, 8, 2, 12, 2, max_len=5))
    tokens, lengths = torch.randint(7, (N, T)), torch.arange(N) * 2 % T + 1
    x = model.embed.weight[tokens] + model.positions.weight[:T]
    body = stack(model.blocks, "pre", model.final_norm)
    due = (
        body(x, src_key_padding_mask=~layers.padding_mask(lengths, T)[:, 0, 0])
        @ model.embed.weight.T
    )
    logits = model(tokens, lengths)
    for n, length in enumerate(lengths.tolist()):
        close(logits[n, :length], due[n, :length])
        close(model(tokens[n : n + 1, :length], lengths[n : n + 1])[0], due[n, :length])
    with pytest.raises(ValueError):
        model(torch.zeros(1, 6, dtype=torch.long), torch.tensor([6]))


def test_dropout_of_models(made):
    """With p = 1 only final norm and output are left; in eval mode nothing is dropped."""
    tokens, lengths = torch.randint(5, (2, 4)), torch.tensor([4, 4])
    for name, args, given in (
        ("TransformerLM", (5, 4, 2, 6, 2), (tokens,)),
        ("MaskedLM", (5, 4, 2, 6, 2), (tokens, lengths)),
        ("Transformer", (5, 5, 4, 2, 6, 2), (tokens, tokens, lengths, lengths)),
    ):
        dropping = random(getattr(made, name)(*args, dropout=1.0))
        plain = getattr(made, name)(*args)
        plain.load_state_dict(dropping.state_dict())
        last = dropping.decoder_norm if name == "Transformer" else dropping.final_norm
        close(dropping(*given), dropping.out(last.bias).expand(2, 4, 5))
        dropping.eval()
        close(dropping(*given), plain(*given))


# ---- generation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("N, T, new", [(3, 2, 6), (1, 1, 1), (2, 3, 0), (1, 4, 7)])
def test_greedy_is_all_computed_anew(made, N, T, new):
    model = lm(made, dropout=0.5)
    prompt = torch.randint(7, (N, T))
    written = made.generate(model, prompt, new, temperature=0)
    assert model.training and all(module.training for module in model.modules())
    model.eval()
    tokens = prompt
    for _ in range(new):
        tokens = torch.cat([tokens, model(tokens)[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
    assert torch.equal(written, tokens) and written.dtype == torch.long
    assert torch.equal(made.generate(model, prompt, new, 0.0, top_k=1, top_p=0.1), tokens)
    assert torch.equal(made.generate(model, prompt, new, top_k=1), tokens)
    assert not model.training


def distribution(logits, temperature, top_k, top_p):
    """What can be drawn, by id, from one row of logits, in Python's floats."""
    order = sorted(range(len(logits)), key=lambda i: -logits[i])
    kept = order[:top_k]
    odds = {i: math.exp((logits[i] - logits[order[0]]) / temperature) for i in kept}
    total = math.fsum(odds.values())
    odds = {i: value / total for i, value in odds.items()}
    if top_p is not None:
        before, nucleus = 0.0, {}
        for i in kept:
            if before < top_p:
                nucleus[i] = odds[i]
            before += odds[i]
        total = math.fsum(nucleus.values())
        odds = {i: value / total for i, value in nucleus.items()}
    return odds


@pytest.mark.parametrize(
    "temperature, top_k, top_p",
    [
        (1.0, None, None),
        (0.5, None, None),
        (2.0, 3, None),
        (1.0, None, 0.7),
        (1.5, 4, 0.8),
        (1.0, 9, 1.0),
    ],
)
def test_draws_have_the_right_frequencies(made, temperature, top_k, top_p):
    model = lm(made)
    rows, prompt = 4000, torch.randint(7, (1, 3))
    generator = torch.Generator().manual_seed(1)
    stream = torch.get_rng_state()
    written = made.generate(
        model, prompt.expand(rows, 3), 2, temperature, top_k, top_p, generator=generator
    )
    assert torch.equal(torch.get_rng_state(), stream)
    # the first new token of all rows, then the second of the rows that began alike
    for before in (prompt[0].tolist(), written[written[:, 3].mode().indices][:4].tolist()):
        odds = distribution(
            model(torch.tensor([before]))[0, -1].tolist(), temperature, top_k, top_p
        )
        alike = written[(written[:, : len(before)] == torch.tensor(before)).all(dim=1)]
        counts = alike[:, len(before)].bincount(minlength=7).tolist()
        for token, count in enumerate(counts):
            p = odds.get(token, 0.0)
            assert abs(count - p * len(alike)) <= 5 * math.sqrt(p * (1 - p) * len(alike))


def test_generators_repeat_and_bad_arguments_are_refused(made):
    model, prompt = lm(made, max_len=6), torch.randint(7, (8, 2))
    one, same, other = (
        made.generate(model, prompt, 5, generator=torch.Generator().manual_seed(seed))
        for seed in (3, 3, 4)
    )
    assert torch.equal(one, same) and not torch.equal(one, other)
    for bad in ({"temperature": -1e-3}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.01}):
        for temperature in ({}, {"temperature": 0}):
            with pytest.raises(ValueError):
                made.generate(model, prompt, 2, **(temperature | bad))
    with pytest.raises(ValueError):
        made.generate(model, prompt, 6)
    assert model.training


# ---- masking tokens --------------------------------------------------------------------------------


def test_mask_tokens_in_numbers(made):
    V, mask_id, rows, T = 6, 5, 400, 50
    tokens, lengths = torch.randint(V - 1, (rows, T)), torch.randint(1, T + 1, (rows,))
    before, stream = tokens.clone(), torch.get_rng_state()
    inputs, targets = made.mask_tokens(
        tokens, lengths, mask_id, V, torch.Generator().manual_seed(2), 0.3
    )
    assert torch.equal(tokens, before) and torch.equal(torch.get_rng_state(), stream)
    assert inputs.dtype == targets.dtype == torch.long
    real = torch.arange(T) < lengths[:, None]
    chosen = targets != -100
    assert not chosen[~real].any()
    assert torch.equal(targets[chosen], tokens[chosen])
    assert torch.equal(inputs[~chosen], tokens[~chosen])
    n = int(real.sum())
    assert abs(int(chosen.sum()) - 0.3 * n) < 5 * math.sqrt(0.21 * n)
    n, of = int(chosen.sum()), (inputs[chosen], tokens[chosen])
    for count, p in (((of[0] == mask_id), 0.8 + 0.1 / V), ((of[0] == of[1]), 0.1 + 0.1 / V)):
        assert abs(int(count.sum()) - p * n) < 5 * math.sqrt(p * (1 - p) * n)
    for rate in (0.0, 1.0):
        _, targets = made.mask_tokens(tokens, lengths, mask_id, V, torch.Generator(), rate)
        assert torch.equal(targets != -100, real if rate else torch.zeros_like(real))


# ---- mixture of experts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "N, T, sizes",
    [(3, 4, (5, 7, 4, 2)), (1, 1, (3, 2, 3, 1)), (2, 3, (4, 2, 3, 3)), (2, 2, (3, 1, 1, 1))],
)
def test_experts_token_by_token(made, N, T, sizes):
    layer = random(made.MixtureOfExperts(*sizes))
    x = torch.randn(N, T, sizes[0], requires_grad=True)
    seen = [0] * sizes[2]

    def count(e):
        return lambda _, args: seen.__setitem__(e, seen[e] + args[0].numel() // sizes[0])

    for e, expert in enumerate(layer.experts):
        expert.register_forward_pre_hook(count(e))
    out, loss = layer(x)
    ran = list(seen)
    firsts, probabilities, chosen = [0] * sizes[2], [0.0] * sizes[2], [0] * sizes[2]
    for n in range(N):
        for t in range(T):
            logits = product(layer.router, x[n, t].tolist())
            best = sorted(range(sizes[2]), key=lambda e: -logits[e])[: sizes[3]]
            total = math.fsum(math.exp(logits[e]) for e in best)
            due = sum(math.exp(logits[e]) / total * layer.experts[e](x[n, t]) for e in best)
            close(out[n, t], due)
            firsts[best[0]] += 1
            whole = math.fsum(math.exp(z) for z in logits)
            for e in range(sizes[2]):
                probabilities[e] += math.exp(logits[e]) / whole
                chosen[e] += e in best
    tokens = N * T
    due = sizes[2] * math.fsum(
        f / tokens * p / tokens for f, p in zip(firsts, probabilities, strict=True)
    )
    close(loss, torch.tensor(due))
    assert loss.shape == () and sum(ran) in (0, tokens * sizes[3])  # 0: not run as modules
    assert torch.autograd.gradcheck(layer, x, fast_mode=True)


# ---- dtypes, devices, inputs -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtypes_are_kept(made, dtype):
    x, tokens, lengths = (
        torch.randn(2, 3, 4, dtype=dtype),
        torch.randint(5, (2, 3)),
        torch.tensor([3, 1]),
    )
    for module in (
        made.LayerNorm(4),
        made.RMSNorm(4),
        made.FeedForward(4, 6),
        made.FeedForward(4, 6, "gelu"),
        made.SwiGLU(4, 6),
        made.EncoderBlock(4, 2, 6),
        made.EncoderBlock(4, 2, 6, "post"),
    ):
        assert module.to(dtype)(x).dtype == dtype
    assert made.DecoderBlock(4, 2, 6).to(dtype)(x, x).dtype == dtype
    assert all(out.dtype == dtype for out in made.MixtureOfExperts(4, 6, 3, 2).to(dtype)(x))
    model = made.TransformerLM(5, 4, 2, 6, 2, 8).to(dtype)
    assert model(tokens).dtype == dtype
    assert made.generate(model, tokens, 3).dtype == torch.long
    assert made.MaskedLM(5, 4, 2, 6, 2, 8).to(dtype)(tokens, lengths).dtype == dtype
    model = made.Transformer(5, 5, 4, 2, 6, 2).to(dtype)
    assert model(tokens, tokens, lengths, lengths).dtype == dtype


def test_devices_are_kept(made, layers):
    if made.__name__.endswith("by_loops"):
        pytest.skip("it loops up to lengths, which are no numbers on the device meta")
    with torch.device("meta"):
        model, masked = made.TransformerLM(5, 4, 2, 6, 2, 8), made.MaskedLM(5, 4, 2, 6, 2, 8)
        both = made.Transformer(5, 5, 4, 2, 6, 2)
    tokens = torch.zeros(2, 3, dtype=torch.long, device="meta")
    lengths = torch.ones(2, dtype=torch.long, device="meta")
    caches = [layers.KVCache() for _ in range(2)]
    for out in (
        model(tokens, caches),
        model(tokens, caches),
        masked(tokens, lengths),
        both(tokens, tokens, lengths, lengths),
        made.generate(model, tokens, 3, temperature=0),
    ):
        assert out.device.type == "meta"


def test_inputs_are_left_alone(made, layers):
    x, mask = torch.randn(2, 3, 4), layers.causal_mask(3)
    tokens, lengths = torch.randint(5, (2, 3)), torch.tensor([3, 1])
    given = [x, mask, tokens, lengths]
    before = [each.clone() for each in given]
    for module in (made.LayerNorm(4), made.RMSNorm(4), made.FeedForward(4, 6), made.SwiGLU(4, 6)):
        module(x)
    made.MixtureOfExperts(4, 6, 3, 2)(x)
    made.EncoderBlock(4, 2, 6)(x, mask)
    made.DecoderBlock(4, 2, 6)(x, x, mask, mask)
    made.generate(made.TransformerLM(5, 4, 2, 6, 2, 8), tokens, 3, top_k=2, top_p=0.5)
    made.MaskedLM(5, 4, 2, 6, 2, 8)(tokens, lengths)
    made.Transformer(5, 5, 4, 2, 6, 2)(tokens, tokens, lengths, lengths)
    assert all(torch.equal(now, then) for now, then in zip(given, before, strict=True))
