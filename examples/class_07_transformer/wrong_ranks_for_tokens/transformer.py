"""The Transformer: norms, feed-forward layers, blocks, and the three families of models made of them.

Letters: N batch, T time (of a target, where there are two sequences), S source length, E size of the model
(d_model), V vocabulary. Batch comes first. In every boolean mask True = real token, may be attended to: the
opposite of nn.MultiheadAttention's key_padding_mask. Results have the floating dtype and the device of the
inputs, and inputs are never changed in place.
"""

import math

import torch
from attention_layers import KVCache, MultiHeadAttention, causal_mask, padding_mask
from torch import nn

# ---- norms and feed-forward layers ---------------------------------------------------------------


class LayerNorm(nn.Module):
    """weight * (x - mean) / sqrt(variance + eps) + bias, over the last axis.

    Ba, Kiros & Hinton (2016).
    """

    def __init__(self, d, eps=1e-5):
        """Given. weight: (d,), of ones; bias: (d,), of zeros."""
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d))
        self.bias = nn.Parameter(torch.zeros(d))

    def forward(self, x):
        """Normalise every vector of x (..., d) by itself; the result has the shape of x.

        The variance is the biased one: the mean of the squared deviations.
        """
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)
        return self.weight * centred / torch.sqrt(variance + self.eps) + self.bias


class RMSNorm(nn.Module):
    """weight * x / sqrt(mean of x² + eps), over the last axis. Zhang & Sennrich (2019)."""

    def __init__(self, d, eps=1e-6):
        """Given. weight: (d,), of ones."""
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        """Scale every vector of x (..., d) by itself; the result has the shape of x."""
        mean_square = x.square().mean(dim=-1, keepdim=True)
        return self.weight * x / torch.sqrt(mean_square + self.eps)


class FeedForward(nn.Module):
    """down(activation(up(x))), at every position by itself."""

    def __init__(self, d_model, d_ff, activation="relu"):
        """Given. up: (E -> d_ff), down: (d_ff -> E). ``activation`` is "relu" or "gelu", kept under that name.

        Raises ValueError for any other activation.
        """
        super().__init__()
        if activation not in ("relu", "gelu"):
            raise ValueError(f"activation must be relu or gelu, not {activation!r}")
        self.activation = activation
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)

    def forward(self, x):
        """x (..., E) -> (..., E). gelu is the exact one, z Φ(z) with the normal distribution function Φ.

        Hendrycks & Gimpel (2016).
        """
        activation = torch.relu if self.activation == "relu" else nn.functional.gelu
        return self.down(activation(self.up(x)))


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)), with silu(z) = z sigmoid(z). Shazeer (2020)."""

    def __init__(self, d_model, d_ff):
        """Given. gate and up: (E -> d_ff), down: (d_ff -> E), without biases."""
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        """x (..., E) -> (..., E)."""
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class MixtureOfExperts(nn.Module):
    """Every token goes through the top_k of many feed-forward layers that a router chooses for it (bonus).

    Shazeer et al. (2017); the balance loss is that of Fedus, Zoph & Shazeer (2022).
    """

    def __init__(self, d_model, d_ff, num_experts, top_k):
        """Given. router: (E -> num_experts), without bias; experts: a list of SwiGLU."""
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(d_model, num_experts, bias=False)
        self.experts = nn.ModuleList(SwiGLU(d_model, d_ff) for _ in range(num_experts))

    def forward(self, x):
        """Route every token by itself.

        Parameters
        ----------
        x : (N, T, E) float tensor

        Returns
        -------
        out : (N, T, E) float tensor
            For each token the sum of what its ``top_k`` experts (those of the highest router logits) make
            of it, weighted by the softmax over these top_k logits alone. An expert runs on the tokens that
            chose it and on no others: that is what the layer is for, and the cost is graded.
        balance_loss : () float tensor
            num_experts * Σ_e share_e * probability_e: share_e is the share of the tokens whose FIRST
            choice is e, probability_e the mean over the tokens of the softmax over all router logits. It
            is 1 where both are uniform. Gradients reach it through the probabilities.
        """
        tokens = x.flatten(0, 1)  # (N T, E)
        logits = self.router(tokens)  # (N T, experts)
        chosen, ids = logits.topk(self.top_k, dim=-1)  # (N T, top_k), the highest first
        weights = torch.softmax(chosen, dim=-1)
        out = torch.zeros_like(tokens)
        for e, expert in enumerate(self.experts):
            token, place = (ids == e).nonzero(as_tuple=True)
            out = out.index_add(0, token, weights[token, place, None] * expert(tokens[token]))
        first = nn.functional.one_hot(ids[:, 0], len(self.experts))  # (N T, experts)
        share = first.to(x.dtype).mean(dim=0)  # (experts,)
        probability = torch.softmax(logits, dim=-1).mean(dim=0)
        return out.view_as(x), len(self.experts) * (share * probability).sum()


# ---- blocks --------------------------------------------------------------------------------------


def _sublayer(x, norm, pre, dropout, function):
    """x plus what ``function`` makes of it: normed before the function (pre) or after the sum."""
    if pre:
        return x + dropout(function(norm(x)))
    return norm(x + dropout(function(x)))


class EncoderBlock(nn.Module):
    """Self-attention, then a feed-forward layer, each with its norm and its residual connection.

    Vaswani et al. (2017), who put the norm after the sum; Xiong et al. (2020) for the norm before.
    """

    def __init__(self, d_model, num_heads, d_ff, norm="pre", dropout=0.0):
        """Given. self_attn, ffn (relu), norm1 and norm2 (LayerNorm), dropout; ``norm`` is kept under that name.

        Raises ValueError for a ``norm`` that is neither "pre" nor "post".
        """
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f"norm must be pre or post, not {norm!r}")
        self.norm = norm
        self.self_attn = MultiHeadAttention(d_model, num_heads)
        self.ffn = FeedForward(d_model, d_ff)
        self.norm1 = LayerNorm(d_model)
        self.norm2 = LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask=None, cache=None):
        """Self-attention with norm1, then the feed-forward layer with norm2.

        For each of the two, with f the sublayer: "pre" gives x + dropout(f(norm(x))), "post" gives
        norm(x + dropout(f(x))). Dropout is there and nowhere else.

        Parameters
        ----------
        x : (N, T, E) float tensor
        mask : bool tensor that broadcasts to (N, h, T, keys), or None
            True = may be attended to. With a cache it covers all keys held after this call.
        cache : KVCache or None
            Given on to the self-attention.

        Returns
        -------
        (N, T, E) float tensor
        """
        pre = self.norm == "pre"

        def attend(x):
            return self.self_attn(x, mask=mask, cache=cache)

        x = _sublayer(x, self.norm1, pre, self.dropout, attend)
        return _sublayer(x, self.norm2, pre, self.dropout, self.ffn)


class DecoderBlock(nn.Module):
    """Self-attention, cross-attention to an encoder's output, then a feed-forward layer (extension).

    Vaswani et al. (2017).
    """

    def __init__(self, d_model, num_heads, d_ff, norm="pre", dropout=0.0):
        """Given. self_attn, cross_attn, ffn (relu), norm1, norm2 and norm3 (LayerNorm), dropout.

        ``norm`` is kept under that name. Raises ValueError where it is neither "pre" nor "post".
        """
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f"norm must be pre or post, not {norm!r}")
        self.norm = norm
        self.self_attn = MultiHeadAttention(d_model, num_heads)
        self.cross_attn = MultiHeadAttention(d_model, num_heads)
        self.ffn = FeedForward(d_model, d_ff)
        self.norm1 = LayerNorm(d_model)
        self.norm2 = LayerNorm(d_model)
        self.norm3 = LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory, self_mask=None, memory_mask=None, cache=None):
        """Self-attention with norm1, cross-attention with norm2, the feed-forward layer with norm3.

        Norms, dropout and residuals are where EncoderBlock has them. ``memory`` is taken as it is: no norm
        of this block is applied to it.

        Parameters
        ----------
        x : (N, T, E) float tensor
        memory : (N, S, E) float tensor
            The keys and the values of the cross-attention.
        self_mask : bool tensor that broadcasts to (N, h, T, keys), or None
            True = may be attended to. With a cache it covers all keys held after this call.
        memory_mask : bool tensor that broadcasts to (N, h, T, S), or None
        cache : KVCache or None
            Given on to the self-attention.

        Returns
        -------
        (N, T, E) float tensor
        """
        pre = self.norm == "pre"

        def attend(x):
            return self.self_attn(x, mask=self_mask, cache=cache)

        def attend_to_memory(x):
            return self.cross_attn(x, memory, mask=memory_mask)

        x = _sublayer(x, self.norm1, pre, self.dropout, attend)
        x = _sublayer(x, self.norm2, pre, self.dropout, attend_to_memory)
        return _sublayer(x, self.norm3, pre, self.dropout, self.ffn)


# ---- the decoder-only model ----------------------------------------------------------------------


class TransformerLM(nn.Module):
    """A decoder-only language model: pre-norm EncoderBlocks under a causal mask, learned positions.

    Radford et al. (2019).
    """

    def __init__(self, vocab_size, d_model, num_heads, d_ff, num_layers, max_len=512, dropout=0.0):
        """Given. embed: (V, E), positions: (max_len, E), blocks, final_norm, dropout, out: (E -> V).

        ``out`` has no bias, and its weight is embed's weight: one parameter, used twice.
        """
        super().__init__()
        self.embed = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_len, d_model)
        self.blocks = nn.ModuleList(
            EncoderBlock(d_model, num_heads, d_ff, "pre", dropout) for _ in range(num_layers)
        )
        self.final_norm = LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, vocab_size, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens, caches=None):
        """Scores of the next token at every position, given the tokens up to it.

        The embedding of a token plus that of its position (the embedding is not scaled), dropout, the
        blocks, final_norm, out.

        Parameters
        ----------
        tokens : (N, T) int64 tensor
        caches : list of KVCache or None
            One for each block. They hold what earlier calls appended: ``tokens`` go on from there, in their
            positions too, the first of which is len(caches[0]), and attend to all of it.

        Returns
        -------
        (N, T, V) float tensor
            Logits (no softmax). ``logits[:, t]`` does not depend on later tokens.

        Raises ValueError where the tokens held and those given are more than max_len.
        """
        T = tokens.shape[1]
        start = len(caches[0]) if caches is not None else 0
        x = self.dropout(self.embed(tokens) + _position_vectors(self.positions, start, start + T))
        mask = causal_mask(T, start + T, device=tokens.device)
        for i, block in enumerate(self.blocks):
            x = block(x, mask, None if caches is None else caches[i])
        return self.out(self.final_norm(x))


def _position_vectors(positions, start, end):
    """Rows ``start`` to ``end`` of an embedding of positions."""
    if end > positions.num_embeddings:
        raise ValueError(f"{end} positions, and max_len is {positions.num_embeddings}")
    return positions.weight[start:end]


def generate(
    model, prompt, max_new_tokens, temperature=1.0, top_k=None, top_p=None, generator=None
):
    """Write on after a prompt, token by token.

    Parameters
    ----------
    model : TransformerLM
        In any mode. It runs in eval mode and without gradients, and is in its own mode again afterwards.
    prompt : (N, T) int64 tensor
        T >= 1.
    max_new_tokens : int
        How many tokens to add to each row, at least 0.
    temperature : float
        The logits are divided by it. 0 means the arg-max, without any draw.
    top_k : int or None
        Only the top_k tokens of the highest logits can be drawn; more than V means all.
    top_p : float or None
        Of what top_k left, and with its probabilities: the fewest tokens, the most likely first, whose
        probabilities sum to at least top_p. The token that crosses top_p stays. Holtzman et al. (2020).
    generator : torch.Generator or None
        Where the draws come from, on its own device: one draw for each row and step. None: torch's default
        generator. Where one is given, the default generator stays as it was.

    Returns
    -------
    (N, T + max_new_tokens) int64 tensor
        The prompt and what was written, on the prompt's device.

    With a KVCache for each block: after the prompt every token costs the forward of one single token. What
    comes out is the same as if all were computed anew at every step.

    Raises ValueError for temperature < 0, top_k < 1, top_p outside (0, 1], and where
    T + max_new_tokens - 1 (the last token is not fed back) is more than the model's max_len.
    """
    if temperature < 0:
        raise ValueError(f"temperature must be at least 0, not {temperature}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, not {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1, not {top_p}")
    needed, max_len = prompt.shape[1] + max_new_tokens - 1, model.positions.num_embeddings
    if needed > max_len:
        raise ValueError(f"max_new_tokens: {needed} positions are needed, and max_len is {max_len}")
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            caches = [KVCache() for _ in model.blocks]
            tokens = new = prompt
            for _ in range(max_new_tokens):
                logits = model(new, caches)[:, -1]  # (N, V)
                new = _next_token(logits, temperature, top_k, top_p, generator)  # (N, 1)
                tokens = torch.cat([tokens, new], dim=1)
    finally:
        model.train(training)
    return tokens


def _next_token(logits, temperature, top_k, top_p, generator):
    """(N, 1) int64: one token for each row of logits (N, V)."""
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    ranked, ids = (logits / temperature).sort(dim=-1, descending=True)
    ranked = ranked[:, :top_k]
    probabilities = torch.softmax(ranked, dim=-1)  # (N, min(top_k, V)), the most likely first
    if top_p is not None:
        before = probabilities.cumsum(dim=-1) - probabilities  # the sum of those more likely
        probabilities = probabilities.masked_fill(before >= top_p, 0.0)
    if generator is not None:
        probabilities = probabilities.to(generator.device)
    place = torch.multinomial(probabilities, 1, generator=generator)  # (N, 1)
    return place.to(ids.device)


# ---- the encoder-decoder model -------------------------------------------------------------------


def sinusoidal_encoding(max_len, d_model):
    """Given, as in topic 06: (max_len, E), sin at even, cos at odd columns."""
    column = torch.arange(d_model).double()  # (E,)
    wavelengths = torch.pow(10000.0, (column - column % 2) / d_model)
    turns = torch.arange(max_len).double()[:, None] / wavelengths  # (max_len, E)
    # cos x is sin (x + a quarter of a turn)
    return torch.sin(turns + column % 2 * torch.pi / 2).to(torch.get_default_dtype())


class Transformer(nn.Module):
    """The encoder-decoder model (extension). Vaswani et al. (2017)."""

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
        """Given. src_embed, tgt_embed, positions, encoder, decoder, encoder_norm, decoder_norm, dropout, out.

        positions: the sinusoid (max_len, E), a buffer that is not in the state dict. encoder: num_layers
        EncoderBlocks; decoder: num_layers DecoderBlocks. encoder_norm and decoder_norm are always there and
        used with "pre" only. out: (E -> V), with bias. ``norm`` is kept under that name.
        """
        super().__init__()
        self.norm = norm
        self.src_embed = nn.Embedding(src_vocab, d_model)
        self.tgt_embed = nn.Embedding(tgt_vocab, d_model)
        self.register_buffer("positions", sinusoidal_encoding(max_len, d_model), persistent=False)
        self.encoder = nn.ModuleList(
            EncoderBlock(d_model, num_heads, d_ff, norm, dropout) for _ in range(num_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderBlock(d_model, num_heads, d_ff, norm, dropout) for _ in range(num_layers)
        )
        self.encoder_norm = LayerNorm(d_model)
        self.decoder_norm = LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, tgt_vocab)

    def forward(self, src, tgt, src_lengths, tgt_lengths):
        """Scores of the next target token, given the source and the target tokens up to it.

        Both sides begin with the embedding times √E plus the sinusoid of the position, then dropout. With
        "pre", encoder_norm follows the last block of the encoder and decoder_norm that of the decoder. The
        decoder attends to its own tokens under a causal mask, and to what the encoder made of the source;
        nothing attends to padding.

        Parameters
        ----------
        src : (N, S) int64 tensor,  tgt : (N, T) int64 tensor
            Token ids; behind the end of a sequence any legal id.
        src_lengths, tgt_lengths : (N,) int64 tensors
            Of every sequence, 1 to S and 1 to T, in any order.

        Returns
        -------
        (N, T, V) float tensor
            Logits (no softmax). Those at padded targets are not looked at.
        """
        src_mask = padding_mask(src_lengths, src.shape[1])  # (N, 1, 1, S)
        T = tgt.shape[1]
        tgt_mask = padding_mask(tgt_lengths, T) & causal_mask(T, device=tgt.device)  # (N, 1, T, T)
        memory = self._embed(self.src_embed, src)
        for block in self.encoder:
            memory = block(memory, src_mask)
        if self.norm == "pre":
            memory = self.encoder_norm(memory)
        x = self._embed(self.tgt_embed, tgt)
        for block in self.decoder:
            x = block(x, memory, tgt_mask, src_mask)
        if self.norm == "pre":
            x = self.decoder_norm(x)
        return self.out(x)

    def _embed(self, embed, tokens):
        """(N, T) tokens -> (N, T, E), with positions."""
        scaled = embed(tokens) * math.sqrt(embed.embedding_dim)
        return self.dropout(scaled + self.positions[: tokens.shape[1]])



# ---- the encoder-only model ----------------------------------------------------------------------


class MaskedLM(nn.Module):
    """An encoder-only model that fills in hidden tokens, from both sides (extension).

    Devlin et al. (2019), with pre-norm blocks.
    """

    def __init__(self, vocab_size, d_model, num_heads, d_ff, num_layers, max_len=512, dropout=0.0):
        """Given. The parts and names of TransformerLM, ``out`` tied to ``embed`` too."""
        super().__init__()
        self.embed = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_len, d_model)
        self.blocks = nn.ModuleList(
            EncoderBlock(d_model, num_heads, d_ff, "pre", dropout) for _ in range(num_layers)
        )
        self.final_norm = LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, vocab_size, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens, lengths):
        """Scores of the original token at every position, given all real tokens of the sequence.

        As TransformerLM, with a padding mask in place of the causal one.

        Parameters
        ----------
        tokens : (N, T) int64 tensor
            Behind the end of a sequence any legal id.
        lengths : (N,) int64 tensor
            Of every sequence, 1 to T, in any order.

        Returns
        -------
        (N, T, V) float tensor
            Logits (no softmax). Those at padding are not looked at.

        Raises ValueError where T is more than max_len.
        """
        T = tokens.shape[1]
        x = self.dropout(self.embed(tokens) + _position_vectors(self.positions, 0, T))
        mask = padding_mask(lengths, T)
        for block in self.blocks:
            x = block(x, mask)
        return self.out(self.final_norm(x))


def mask_tokens(tokens, lengths, mask_id, vocab_size, generator, rate=0.15):
    """Hide some tokens and keep them as targets (extension). Devlin et al. (2019).

    Each real token is chosen with probability ``rate``, by itself. Of the chosen 80 % become ``mask_id``,
    10 % a token that is uniform over the whole vocabulary (so now and then the same or ``mask_id``), 10 %
    stay as they are.

    Parameters
    ----------
    tokens : (N, T) int64 tensor
    lengths : (N,) int64 tensor
        Tokens from there on are padding, and never chosen.
    mask_id, vocab_size : int
    generator : torch.Generator
        All draws come from it, on its own device; torch's default generator stays as it was.
    rate : float from 0 to 1

    Returns
    -------
    inputs : (N, T) int64 tensor
        ``tokens`` where nothing was chosen.
    targets : (N, T) int64 tensor
        The original token where one was chosen, whatever became of it; -100, which
        torch.nn.functional.cross_entropy leaves out, everywhere else.
    """

    def uniform():
        return torch.rand(tokens.shape, generator=generator, device=generator.device)

    real = padding_mask(lengths, tokens.shape[1])[:, 0, 0]  # (N, T)
    chosen = real & (uniform() < rate).to(tokens.device)
    fate = uniform().to(tokens.device)
    drawn = torch.randint(vocab_size, tokens.shape, generator=generator, device=generator.device)
    inputs = tokens.masked_fill(chosen & (fate < 0.8), mask_id)
    inputs = torch.where(chosen & (fate >= 0.9), drawn.to(tokens.device), inputs)
    return inputs, tokens.masked_fill(~chosen, -100)
