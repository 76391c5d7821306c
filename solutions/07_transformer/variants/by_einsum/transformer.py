"""Right, and unlike the reference: einsum, functions shared by the classes, experts' tokens by sorting."""

import math
from functools import partial

import torch
from attention_layers import KVCache, MultiHeadAttention, causal_mask, padding_mask
from torch import nn


def linear(layer, x):
    y = torch.einsum("...i,oi->...o", x, layer.weight)
    return y if layer.bias is None else y + layer.bias


class LayerNorm(nn.Module):
    def __init__(self, d, eps=1e-5):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        self.eps = eps

    def forward(self, x):
        var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return torch.addcmul(self.bias, (x - mean) * (var + self.eps).rsqrt(), self.weight)


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.eps = eps

    def forward(self, x):
        square = torch.einsum("...i,...i->...", x, x) / x.shape[-1]
        return torch.einsum("...i,i,...->...i", x, self.weight, (square + self.eps).rsqrt())


ACTIVATIONS = {
    "relu": torch.relu,
    "gelu": lambda x: x * (1 + torch.erf(x * math.sqrt(0.5))) / 2,
}


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, activation="relu"):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError("activation: relu or gelu")
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.activation = activation

    def forward(self, x):
        return linear(self.down, ACTIVATIONS[self.activation](linear(self.up, x)))


class SwiGLU(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        gate = linear(self.gate, x)
        return torch.einsum(
            "...f,...f,...f,ef->...e", gate, gate.sigmoid(), linear(self.up, x), self.down.weight
        )


class MixtureOfExperts(nn.Module):
    def __init__(self, d_model, d_ff, num_experts, top_k):
        super().__init__()
        self.router = nn.Linear(d_model, num_experts, bias=False)
        self.experts = nn.ModuleList(SwiGLU(d_model, d_ff) for _ in range(num_experts))
        self.num_experts, self.top_k = num_experts, top_k

    def forward(self, x):
        """Places, a token and an expert each, sorted by expert: every expert's are a run of them."""
        tokens = x.flatten(0, 1)
        logits = linear(self.router, tokens)
        order = logits.argsort(dim=-1, descending=True)[:, : self.top_k]
        chosen = logits.gather(-1, order)
        weights = (chosen - chosen.logsumexp(-1, keepdim=True)).exp()
        places = order.flatten().argsort()
        owners = places.div(self.top_k, rounding_mode="floor")
        counts = order.flatten().bincount(minlength=self.num_experts).tolist()
        runs = tokens[owners].split(counts)
        done = torch.cat([expert(run) for expert, run in zip(self.experts, runs, strict=True)])
        mixed = torch.zeros_like(tokens)
        mixed = mixed.index_add(0, owners, done * weights.flatten()[places, None])
        share = (order[:, :1] == torch.arange(self.num_experts, device=x.device)).to(x.dtype)
        balance = torch.einsum("te,se->", share, logits.softmax(-1))
        return mixed.view_as(x), balance * (self.num_experts / len(tokens) ** 2)


def sublayer(block, number, x, function):
    """Residual sum around one sublayer, its norm before or after."""
    norm = getattr(block, f"norm{number}")
    if block.norm == "pre":
        return block.dropout(function(norm(x))) + x
    return norm(block.dropout(function(x)) + x)


def build(block, d_model, num_heads, d_ff, norm, dropout, norms):
    if norm not in {"pre", "post"}:
        raise ValueError("norm is pre or post")
    block.norm = norm
    block.self_attn = MultiHeadAttention(d_model, num_heads)
    if norms == 3:
        block.cross_attn = MultiHeadAttention(d_model, num_heads)
    block.ffn = FeedForward(d_model, d_ff)
    for number in range(1, norms + 1):
        setattr(block, f"norm{number}", LayerNorm(d_model))
    block.dropout = nn.Dropout(dropout)


class EncoderBlock(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, norm="pre", dropout=0.0):
        super().__init__()
        build(self, d_model, num_heads, d_ff, norm, dropout, 2)

    def forward(self, x, mask=None, cache=None):
        x = sublayer(self, 1, x, partial(self.self_attn, mask=mask, cache=cache))
        return sublayer(self, 2, x, self.ffn)


class DecoderBlock(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, norm="pre", dropout=0.0):
        super().__init__()
        build(self, d_model, num_heads, d_ff, norm, dropout, 3)

    def forward(self, x, memory, self_mask=None, memory_mask=None, cache=None):
        x = sublayer(self, 1, x, partial(self.self_attn, mask=self_mask, cache=cache))
        x = sublayer(self, 2, x, partial(self.cross_attn, key=memory, mask=memory_mask))
        return sublayer(self, 3, x, self.ffn)


def sinusoid(max_len, d_model):
    angles = torch.arange(max_len, dtype=torch.float64)[:, None] * torch.exp(
        torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model)
    )
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).to(torch.get_default_dtype())


class Transformer(nn.Module):
    def __init__(
        self,
        src_vocab,
        tgt_vocab,
        d_model,
        num_heads,
        d_ff,
        num_layers,
        max_len=512,
        norm="pre",
        dropout=0.0,
    ):
        super().__init__()
        sizes = d_model, num_heads, d_ff, norm, dropout
        self.src_embed = nn.Embedding(src_vocab, d_model)
        self.tgt_embed = nn.Embedding(tgt_vocab, d_model)
        self.register_buffer("positions", sinusoid(max_len, d_model), persistent=False)
        self.encoder = nn.ModuleList(EncoderBlock(*sizes) for _ in range(num_layers))
        self.decoder = nn.ModuleList(DecoderBlock(*sizes) for _ in range(num_layers))
        self.encoder_norm, self.decoder_norm = LayerNorm(d_model), LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, tgt_vocab)
        self.norm, self.scale = norm, math.sqrt(d_model)

    def read(self, embed, tokens):
        return self.dropout(embed(tokens) * self.scale + self.positions[: tokens.shape[1]])

    def forward(self, src, tgt, src_lengths, tgt_lengths):
        of_src = padding_mask(src_lengths, src.shape[1])
        of_tgt = padding_mask(tgt_lengths, tgt.shape[1])
        of_tgt = of_tgt & causal_mask(tgt.shape[1], device=tgt.device)
        memory = self.read(self.src_embed, src)
        for block in self.encoder:
            memory = block(memory, mask=of_src)
        if self.norm == "pre":
            memory = self.encoder_norm(memory)
        x = self.read(self.tgt_embed, tgt)
        for block in self.decoder:
            x = block(x, memory, self_mask=of_tgt, memory_mask=of_src)
        logits = linear(self.out, self.decoder_norm(x) if self.norm == "pre" else x)
        # at padding there is nothing to say
        real = torch.arange(tgt.shape[1], device=tgt.device) < tgt_lengths.to(tgt.device)[:, None]
        return logits.masked_fill(~real[..., None], 0.0)


def stack(model, vocab_size, d_model, num_heads, d_ff, num_layers, max_len, dropout):
    model.embed = nn.Embedding(vocab_size, d_model)
    model.positions = nn.Embedding(max_len, d_model)
    model.blocks = nn.ModuleList(
        EncoderBlock(d_model, num_heads, d_ff, "pre", dropout) for _ in range(num_layers)
    )
    model.final_norm = LayerNorm(d_model)
    model.dropout = nn.Dropout(dropout)
    model.out = nn.Linear(d_model, vocab_size, bias=False)
    model.out.weight = model.embed.weight


def through(model, tokens, start, mask, caches):
    end = start + tokens.shape[1]
    if end > model.positions.num_embeddings:
        raise ValueError(f"{end} tokens are more than max_len")
    x = model.dropout(model.embed(tokens) + model.positions.weight[start:end])
    for block, cache in zip(model.blocks, caches, strict=True):
        x = block(x, mask, cache)
    return linear(model.out, model.final_norm(x))


class TransformerLM(nn.Module):
    def __init__(self, vocab_size, d_model, num_heads, d_ff, num_layers, max_len=512, dropout=0.0):
        super().__init__()
        stack(self, vocab_size, d_model, num_heads, d_ff, num_layers, max_len, dropout)

    def forward(self, tokens, caches=None):
        T, start = tokens.shape[1], len(caches[0]) if caches else 0
        mask = causal_mask(T, start + T, device=tokens.device)
        return through(self, tokens, start, mask, caches or [None] * len(self.blocks))


class MaskedLM(nn.Module):
    def __init__(self, vocab_size, d_model, num_heads, d_ff, num_layers, max_len=512, dropout=0.0):
        super().__init__()
        stack(self, vocab_size, d_model, num_heads, d_ff, num_layers, max_len, dropout)

    def forward(self, tokens, lengths):
        mask = padding_mask(lengths.to(tokens.device), tokens.shape[1])
        logits = through(self, tokens, 0, mask, [None] * len(self.blocks))
        return torch.where(mask[:, 0, 0, :, None], logits, torch.full_like(logits, 7.0))


def mask_tokens(tokens, lengths, mask_id, vocab_size, generator, rate=0.15):
    """One number a token says all: below 0.8 rate mask, below 0.9 rate another, below rate stay."""
    draws = torch.rand(tokens.shape, generator=generator, device=generator.device)
    words = torch.randint(
        vocab_size, tokens.shape, generator=generator, device=generator.device
    ).to(tokens.device)
    draws = draws.to(tokens.device)
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    draws = draws.masked_fill(columns >= lengths.to(tokens.device)[:, None], 2.0)
    inputs = torch.where(draws < 0.9 * rate, words, tokens)
    inputs = inputs.masked_fill(draws < 0.8 * rate, mask_id)
    return inputs, tokens.masked_fill(draws >= rate, -100)


def cut(logits, top_k, top_p):
    """Logits of shape (N, V), -inf at what may not be drawn."""
    ranked, ids = logits.sort(dim=-1, descending=True)
    if top_k is not None:
        ranked[:, top_k:] = -math.inf
    if top_p is not None:
        p = ranked.softmax(-1)
        before = p.cumsum(-1) - p
        gone = before >= top_p
        gone[:, 0] = False
        ranked[gone] = -math.inf
    return torch.empty_like(logits).scatter_(-1, ids, ranked)


@torch.inference_mode()
def generate(
    model, prompt, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None
):
    if temperature < 0:
        raise ValueError("temperature below 0")
    if top_k is not None and top_k < 1:
        raise ValueError("top_k below 1")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError("top_p must be above 0 and at most 1")
    if prompt.shape[1] + max_new_tokens - 1 > model.positions.num_embeddings:
        raise ValueError("max_new_tokens go past max_len")
    modes = {module: module.training for module in model.modules()}
    model.eval()
    caches = [KVCache() for _ in model.blocks]
    tokens = [prompt]
    try:
        while len(tokens) <= max_new_tokens:
            logits = model(tokens[-1], caches)[:, -1]
            if temperature > 0:
                logits = cut(logits / temperature, top_k, top_p)
                where = generator.device if generator else logits.device
                race = torch.empty(logits.shape, dtype=logits.dtype, device=where)
                race.exponential_(generator=generator)
                logits = logits - race.to(logits.device).log()
            tokens.append(logits.argmax(-1, keepdim=True))
    finally:
        for module, mode in modes.items():
            module.training = mode
    return torch.cat(tokens, dim=1)
