"""Right, and unlike the reference: no packing, layers called by their functions, prefixes read anew."""

import math
import random

import numpy as np
import torch
from torch import nn
from torch.nn.functional import log_softmax


def masked_softmax(scores, mask=None):
    """Only rows with something in them go through the softmax."""
    if mask is not None:
        scores = torch.where(mask, scores, float("-inf"))
    some = torch.isfinite(scores).any(-1)
    weights = torch.zeros_like(scores)
    if some.dim() == 0:
        return scores.softmax(-1) if some else weights + 0 * torch.nan_to_num(scores, neginf=0.0)
    weights[some] = scores[some].softmax(-1)
    return weights


class BahdanauAttention(nn.Module):
    def __init__(self, query_dim, key_dim, attn_dim):
        super().__init__()
        self.W_a = nn.Linear(query_dim, attn_dim, bias=False)
        self.U_a = nn.Linear(key_dim, attn_dim, bias=False)
        self.v_a = nn.Linear(attn_dim, 1, bias=False)

    def forward(self, query, keys, mask=None):
        scores = [self.v_a(torch.tanh(self.W_a(query) + self.U_a(key))) for key in keys.unbind(1)]
        weights = masked_softmax(torch.cat(scores, 1), mask)
        return (weights[:, None] @ keys)[:, 0], weights


class LuongAttention(nn.Module):
    def __init__(self, query_dim, key_dim, score="dot", attn_dim=None):
        super().__init__()
        self.score = score
        if score not in ("dot", "general", "concat"):
            raise ValueError(f"score {score}")
        if score == "dot" and query_dim != key_dim:
            raise ValueError("dot: query_dim and key_dim differ")
        if score == "general":
            self.W_a = nn.Linear(key_dim, query_dim, bias=False)
        if score == "concat":
            self.W_a = nn.Linear(query_dim + key_dim, attn_dim or query_dim, bias=False)
            self.v_a = nn.Linear(attn_dim or query_dim, 1, bias=False)

    def of_one(self, query, key):
        if self.score == "dot":
            return (query * key).sum(1)
        if self.score == "general":  # on the side of the query
            return ((query @ self.W_a.weight) * key).sum(1)
        return self.v_a(self.W_a(torch.hstack((query, key))).tanh()).flatten()

    def forward(self, query, keys, mask=None):
        scores = torch.stack([self.of_one(query, keys[:, j]) for j in range(keys.shape[1])], dim=1)
        weights = masked_softmax(scores, mask)
        return torch.matmul(keys.transpose(1, 2), weights[..., None])[..., 0], weights


def real(lengths, S, device):
    return torch.stack([torch.arange(S, device=device) < int(length) for length in lengths])


class Encoder(nn.Module):
    def __init__(self, vocab_size, embed_dim, hidden_dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.gru = nn.GRU(embed_dim, hidden_dim, batch_first=True)

    def forward(self, src, lengths):
        """A GRU that reads forwards has not seen the padding when it reads the last token."""
        outputs, _ = self.gru(self.embedding(src))
        last = outputs[torch.arange(len(src)), [int(length) - 1 for length in lengths]]
        return outputs * real(lengths, src.shape[1], src.device)[..., None], last[None]


class LuongDecoder(nn.Module):
    def __init__(self, vocab_size, embed_dim, hidden_dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.gru = nn.GRU(embed_dim, hidden_dim, batch_first=True)
        self.attention = LuongAttention(hidden_dim, hidden_dim)
        self.combine = nn.Linear(2 * hidden_dim, hidden_dim, bias=False)
        self.out = nn.Linear(hidden_dim, vocab_size, bias=False)

    def forward(self, token, hidden, encoder_outputs, src_mask):
        hidden = self.gru(self.embedding(token), hidden)[1]
        context, weights = self.attention(hidden[-1], encoder_outputs, src_mask)
        return self.out(self.combine(torch.hstack((context, hidden[-1]))).tanh()), hidden, weights


class BahdanauDecoder(nn.Module):
    def __init__(self, vocab_size, embed_dim, hidden_dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.gru = nn.GRU(embed_dim + hidden_dim, hidden_dim, batch_first=True)
        self.attention = BahdanauAttention(hidden_dim, hidden_dim, hidden_dim)
        self.out = nn.Linear(hidden_dim, vocab_size, bias=False)

    def forward(self, token, hidden, encoder_outputs, src_mask):
        context, weights = self.attention(hidden[-1], encoder_outputs, src_mask)
        hidden = self.gru(torch.dstack((self.embedding(token), context[:, None])), hidden)[1]
        return self.out(hidden[-1]), hidden, weights


class BottleneckDecoder(nn.Module):
    def __init__(self, vocab_size, embed_dim, hidden_dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.gru = nn.GRU(embed_dim, hidden_dim, batch_first=True)
        self.out = nn.Linear(hidden_dim, vocab_size, bias=False)

    def forward(self, token, hidden, encoder_outputs, src_mask):
        outputs, hidden = self.gru(self.embedding(token), hidden)
        weights = encoder_outputs.new_zeros(encoder_outputs.shape[:2])
        return self.out(outputs.squeeze(1)), hidden, weights


class Seq2Seq(nn.Module):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, src, lengths, tgt, teacher_forcing=1.0, generator=None):
        keys, state = self.encoder(src, lengths)
        # by comparing and not by counting: works where lengths have no values, too
        mask = torch.arange(src.shape[1], device=src.device)[None] < lengths.to(src.device)[:, None]
        if tgt.shape[1] == 1:
            return keys.new_empty((len(src), 0, self.decoder.out.out_features))
        logits, state, _ = self.decoder(tgt[:, :1], state, keys, mask)
        every = [logits]
        for token in tgt[:, 1:-1].unbind(1):
            token = token[:, None]
            if self._own(teacher_forcing, generator):
                token = every[-1].argmax(1)[:, None]
            logits, state, _ = self.decoder(token, state, keys, mask)
            every.append(logits)
        return torch.stack(every).transpose(0, 1)

    def _own(self, teacher_forcing, generator):
        if teacher_forcing in (0.0, 1.0):
            return teacher_forcing == 0.0
        if generator is None:
            return random.random() >= teacher_forcing
        odds = torch.tensor([teacher_forcing, 1 - teacher_forcing], device=generator.device)
        return torch.multinomial(odds, 1, generator=generator).item() == 1


def scheduled_sampling(step, schedule, rate):
    if rate <= 0:
        raise ValueError("rate must be positive")
    match schedule:
        case "linear":
            return np.maximum(0.0, 1.0 - step * np.float64(rate))
        case "exponential" if rate <= 1:
            return np.float64(rate) ** step
        case "exponential":
            raise ValueError("rate must not be above 1")
        case "inverse_sigmoid":
            with np.errstate(over="ignore"):
                return np.float64(rate) / (rate + np.exp(np.float64(step) / rate))
    raise ValueError("schedule is unknown")


def greedy_decode(model, src, lengths, bos, eos, max_len):
    """One source at a time."""
    found = []
    for n, length in enumerate(lengths.tolist()):
        tokens = []
        while len(tokens) < max_len and (not tokens or tokens[-1] != eos):
            tokens.append(int(after(model, src[n, :length], [bos, *tokens]).argmax()))
        found.append(tokens)
    return found


def after(model, source, prefix):
    """The logits after a prefix, read from its beginning."""
    with torch.no_grad():
        keys, state = model.encoder(source[None], torch.tensor([len(source)]))
        mask = torch.ones(1, len(source), dtype=torch.bool, device=source.device)
        for token in prefix:
            fed = torch.tensor([[token]], device=source.device)
            logits, state, _ = model.decoder(fed, state, keys, mask)
    return logits[0]


def beam_search(model, src, lengths, bos, eos, max_len, beam_size, length_penalty=0.0):
    source = src[0, : int(lengths[0])]
    live, best = [(0.0, [])], (-math.inf, [])

    def offer(total, tokens):
        nonlocal best
        score = total * (6 / (5 + len(tokens))) ** length_penalty
        if score > best[0]:
            best = score, tokens

    while live and len(live[0][1]) < max_len:
        grown = []
        for total, tokens in live:
            steps = log_softmax(after(model, source, [bos, *tokens]), dim=-1)
            grown += [(total + float(step), [*tokens, k]) for k, step in enumerate(steps)]
        places = sorted(range(len(grown)), key=lambda k: (-grown[k][0], k))[:beam_size]
        live = []
        for place in places:
            total, tokens = grown[place]
            if tokens[-1] == eos:
                offer(total, tokens)
            else:
                live.append(grown[place])
    for total, tokens in live:
        offer(total, tokens)
    return best[1], best[0]
