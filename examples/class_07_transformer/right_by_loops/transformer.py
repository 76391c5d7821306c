"""Right, and unlike the reference: plain loops, written out case by case, draws by inverse distribution."""

import attention_layers as given
import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812


class LayerNorm(nn.Module):
    def __init__(self, d, eps=1e-5):
        super().__init__()
        self.d, self.eps = d, eps
        self.weight = nn.Parameter(torch.ones(d))
        self.bias = nn.Parameter(torch.zeros(d))

    def forward(self, x):
        centred = x - x.sum(dim=-1, keepdim=True) / self.d
        variance = (centred * centred).sum(dim=-1, keepdim=True) / self.d
        return centred / torch.sqrt(variance + self.eps) * self.weight + self.bias


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return self.weight * (x / (x.pow(2).mean(dim=-1, keepdim=True) + self.eps) ** 0.5)


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, activation="relu"):
        super().__init__()
        if activation == "relu":
            self.act = nn.ReLU()
        elif activation == "gelu":
            self.act = nn.GELU()
        else:
            raise ValueError(f"activation {activation!r}")
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class SwiGLU(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class MixtureOfExperts(nn.Module):
    def __init__(self, d_model, d_ff, num_experts, top_k):
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(d_model, num_experts, bias=False)
        self.experts = nn.ModuleList([SwiGLU(d_model, d_ff) for _ in range(num_experts)])

    def forward(self, x):
        N, T, E = x.shape
        number = len(self.experts)
        flat = x.reshape(N * T, E)
        logits = self.router(flat)
        # the logits of the experts that were not chosen, put aside before the softmax
        weights, left = logits, logits.detach().clone()
        first = left.argmax(dim=1)
        for _ in range(self.top_k):
            left[torch.arange(N * T, device=x.device), left.argmax(dim=1)] = float("-inf")
        weights = weights.masked_fill(left != float("-inf"), float("-inf")).softmax(dim=1)
        out = torch.zeros_like(flat)
        loss = flat.new_zeros(())
        mean = logits.softmax(dim=1).mean(dim=0)
        for e in range(number):
            rows = torch.nonzero(left[:, e] == float("-inf"))[:, 0]
            loss = loss + (first == e).to(mean.dtype).mean() * mean[e]
            if len(rows) == 0:
                continue
            out = out.index_put(
                (rows,), self.experts[e](flat[rows]) * weights[rows, e : e + 1], accumulate=True
            )
        return out.reshape(N, T, E), number * loss


class EncoderBlock(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, norm="pre", dropout=0.0):
        super().__init__()
        if norm != "pre" and norm != "post":
            raise ValueError("norm")
        self.pre = norm == "pre"
        self.self_attn = given.MultiHeadAttention(d_model, num_heads)
        self.ffn = FeedForward(d_model, d_ff)
        self.norm1 = LayerNorm(d_model)
        self.norm2 = LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask=None, cache=None):
        if self.pre:
            y = self.norm1(x)
            x = x + self.dropout(self.self_attn(y, None, None, mask, cache))
            y = self.norm2(x)
            x = x + self.dropout(self.ffn(y))
        else:
            y = self.self_attn(x, None, None, mask, cache)
            x = self.norm1(F.dropout(y, self.dropout.p, self.training).add_(x))
            y = self.ffn(x)
            x = self.norm2(F.dropout(y, self.dropout.p, self.training).add_(x))
        return x


class DecoderBlock(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, norm="pre", dropout=0.0):
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError("norm")
        self.pre = norm == "pre"
        self.self_attn = given.MultiHeadAttention(d_model, num_heads)
        self.cross_attn = given.MultiHeadAttention(d_model, num_heads)
        self.ffn = FeedForward(d_model, d_ff)
        self.norm1 = LayerNorm(d_model)
        self.norm2 = LayerNorm(d_model)
        self.norm3 = LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory, self_mask=None, memory_mask=None, cache=None):
        if self.pre:
            y = self.norm1(x)
            x = x + self.dropout(self.self_attn(y, mask=self_mask, cache=cache))
            y = self.norm2(x)
            x = x + self.dropout(self.cross_attn(y, memory, memory, memory_mask))
            y = self.norm3(x)
            return x + self.dropout(self.ffn(y))
        x = self.norm1(x + self.dropout(self.self_attn(x, mask=self_mask, cache=cache)))
        x = self.norm2(x + self.dropout(self.cross_attn(x, memory, memory, memory_mask)))
        return self.norm3(x + self.dropout(self.ffn(x)))


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
        self.d_model, self.pre = d_model, norm == "pre"
        self.src_embed = nn.Embedding(src_vocab, d_model)
        self.tgt_embed = nn.Embedding(tgt_vocab, d_model)
        table = torch.zeros(max_len, d_model, dtype=torch.float64)
        for column in range(d_model):
            angle = torch.arange(max_len).double() / 10000.0 ** (column // 2 * 2 / d_model)
            table[:, column] = angle.cos() if column % 2 else angle.sin()
        self.register_buffer("positions", table.to(self.src_embed.weight.dtype), persistent=False)
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        for _ in range(num_layers):
            self.encoder.append(EncoderBlock(d_model, num_heads, d_ff, norm, dropout))
            self.decoder.append(DecoderBlock(d_model, num_heads, d_ff, norm, dropout))
        self.encoder_norm = LayerNorm(d_model)
        self.decoder_norm = LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, tgt_vocab)

    def forward(self, src, tgt, src_lengths, tgt_lengths):
        S, T = src.size(1), tgt.size(1)
        src_mask = given.padding_mask(src_lengths, S)
        memory = self.src_embed(src) * self.d_model**0.5
        memory = self.dropout(memory + self.positions[:S])
        for block in self.encoder:
            memory = block(memory, src_mask)
        x = self.tgt_embed(tgt) * self.d_model**0.5
        x = self.dropout(x + self.positions[:T])
        # padding stands at the end, so under the causal mask no real target sees any of it
        tgt_mask = given.causal_mask(T, device=x.device)
        if self.pre:
            memory = self.encoder_norm(memory)
        for block in self.decoder:
            x = block(x, memory, tgt_mask, src_mask)
        if self.pre:
            x = self.decoder_norm(x)
        return self.out(x)


class TransformerLM(nn.Module):
    def __init__(self, vocab_size, d_model, num_heads, d_ff, num_layers, max_len=512, dropout=0.0):
        super().__init__()
        self.max_len = max_len
        self.embed = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_len, d_model)
        self.blocks = nn.ModuleList(
            [EncoderBlock(d_model, num_heads, d_ff, dropout=dropout) for _ in range(num_layers)]
        )
        self.final_norm = LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, vocab_size, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens, caches=None):
        held = 0
        if caches is not None:
            held = len(caches[0])
        T = tokens.size(1)
        if held + T > self.max_len:
            raise ValueError(f"max_len is {self.max_len}")
        at = torch.arange(held, held + T, device=tokens.device)
        x = self.dropout(self.embed(tokens) + self.positions(at))
        mask = given.causal_mask(T, held + T, device=tokens.device)
        if T == 1:
            mask = None  # one token sees all that is held
        for i in range(len(self.blocks)):
            x = self.blocks[i](x, mask, None if caches is None else caches[i])
        return self.out(self.final_norm(x))


class MaskedLM(TransformerLM):
    def forward(self, tokens, lengths):
        N, T = tokens.size()
        if self.max_len < T:
            raise ValueError(f"max_len is {self.max_len}")
        x = self.embed(tokens) + self.positions(torch.arange(T, device=tokens.device))
        x = self.dropout(x)
        real = torch.zeros(N, T, dtype=torch.bool, device=tokens.device)
        for t in range(T):
            real[:, t] = lengths.to(tokens.device) > t
        for block in self.blocks:
            x = block(x, mask=real.reshape(N, 1, 1, T))
        return self.out(self.final_norm(x))


def mask_tokens(tokens, lengths, mask_id, vocab_size, generator, rate=0.15):
    def draw():
        return torch.rand((), generator=generator, device=generator.device).item()

    inputs, targets = tokens.clone(), torch.full_like(tokens, -100)
    for n in range(tokens.size(0)):
        for t in range(int(lengths[n])):
            if draw() >= rate:
                continue
            targets[n, t] = tokens[n, t]
            kind = draw()
            if kind < 0.8:
                inputs[n, t] = mask_id
            elif kind < 0.9:
                inputs[n, t] = min(int(draw() * vocab_size), vocab_size - 1)
    return inputs, targets


def pick(logits, temperature, top_k, top_p, generator):
    """One token id for the logits (V,) of one row."""
    if temperature == 0:
        return int(logits.argmax())
    scaled = (logits - logits.max()) / temperature
    order = sorted(range(len(scaled)), key=scaled.tolist().__getitem__, reverse=True)
    if top_k is not None:
        order = order[:top_k]
    p = torch.softmax(scaled[order].double(), dim=0).tolist()
    kept, total = 0, 0.0
    while kept < len(p) and (top_p is None or total < top_p or kept == 0):
        total += p[kept]
        kept += 1
    where = "cpu" if generator is None else generator.device
    at = torch.rand((), generator=generator, dtype=torch.float64, device=where).item() * total
    for token, weight in zip(order[:kept], p, strict=False):
        at -= weight
        if at < 0:
            return token
    return order[0]


def generate(
    model, prompt, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None
):
    N, T = prompt.shape
    if temperature < 0:
        raise ValueError("temperature")
    if top_k is not None and top_k < 1:
        raise ValueError("top_k")
    if top_p is not None and (top_p <= 0 or top_p > 1):
        raise ValueError("top_p")
    if T + max_new_tokens - 1 > model.max_len:
        raise ValueError("max_new_tokens and max_len")
    training = model.training
    model.eval()
    result = prompt.new_zeros(N, T + max_new_tokens)
    result[:, :T] = prompt
    with torch.set_grad_enabled(False):
        caches = [given.KVCache() for _ in range(len(model.blocks))]
        seen = 0
        for t in range(T, T + max_new_tokens):
            logits = model(result[:, seen:t], caches)
            seen = t
            for n in range(N):
                result[n, t] = pick(logits[n, -1], temperature, top_k, top_p, generator)
    model.train(training)
    return result
