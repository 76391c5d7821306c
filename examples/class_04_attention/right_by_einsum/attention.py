"""Right, and unlike the reference: exponentials by hand, einsum, sorted batches, results filled in."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812


def masked_softmax(scores, mask=None):
    allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand_as(scores)
    allowed = allowed & (scores != -math.inf)
    lifted = torch.where(allowed, scores, scores.new_full((), -math.inf))
    highest = lifted.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    e = torch.where(allowed, torch.exp(lifted - highest), torch.zeros_like(scores))
    total = e.sum(-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1)


class BahdanauAttention(nn.Module):
    def __init__(self, query_dim, key_dim, attn_dim):
        super().__init__()
        self.W_a, self.U_a = (nn.Linear(d, attn_dim, bias=False) for d in (query_dim, key_dim))
        self.v_a = nn.Linear(attn_dim, 1, bias=False)

    def forward(self, query, keys, mask=None):
        q = torch.einsum("aq,nq->na", self.W_a.weight, query)
        k = torch.einsum("ac,nsc->nsa", self.U_a.weight, keys)
        weights = masked_softmax(
            torch.einsum("a,nsa->ns", self.v_a.weight[0], (q[:, None] + k).tanh()), mask
        )
        return torch.einsum("ns,nsc->nc", weights, keys), weights


class LuongAttention(nn.Module):
    def __init__(self, query_dim, key_dim, score="dot", attn_dim=None):
        super().__init__()
        self.score, self.query_dim = score, query_dim
        if score == "general":
            self.W_a = nn.Linear(key_dim, query_dim, bias=False)
        elif score == "concat":
            attn_dim = attn_dim or query_dim
            self.W_a = nn.Linear(query_dim + key_dim, attn_dim, bias=False)
            self.v_a = nn.Linear(attn_dim, 1, bias=False)
        elif score != "dot" or query_dim != key_dim:
            raise ValueError("score or query_dim")

    def forward(self, query, keys, mask=None):
        if self.score == "dot":
            scores = (query[:, None] * keys).sum(-1)
        elif self.score == "general":
            scores = torch.einsum("nq,qc,nsc->ns", query, self.W_a.weight, keys)
        else:  # the two halves of W_a by themselves
            of_query, of_keys = self.W_a.weight.split([self.query_dim, keys.shape[-1]], dim=1)
            mixed = F.linear(query, of_query)[:, None] + F.linear(keys, of_keys)
            scores = self.v_a(mixed.tanh())[..., 0]
        weights = masked_softmax(scores, mask)
        return (weights[..., None] * keys).sum(1), weights


class Encoder(nn.Module):
    def __init__(self, vocab_size, embed_dim, hidden_dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.gru = nn.GRU(embed_dim, hidden_dim, batch_first=True)

    def forward(self, src, lengths):
        lengths, order = torch.sort(lengths.to("cpu"), descending=True)
        back = torch.argsort(order).to(src.device)
        order = order.to(src.device)
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(src)[order], lengths, batch_first=True
        )
        packed, hidden = self.gru(packed)
        outputs = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)[0][back]
        filled = outputs.new_zeros(*src.shape, outputs.shape[-1])
        filled[:, : outputs.shape[1]] = outputs
        return filled, hidden[:, back]


class LuongDecoder(nn.Module):
    def __init__(self, vocab_size, embed_dim, hidden_dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.gru = nn.GRU(embed_dim, hidden_dim, batch_first=True)
        self.attention = LuongAttention(hidden_dim, hidden_dim, "dot")
        self.combine = nn.Linear(2 * hidden_dim, hidden_dim, bias=False)
        self.out = nn.Linear(hidden_dim, vocab_size, bias=False)

    def forward(self, token, hidden, encoder_outputs, src_mask):
        print("a step")
        outputs, hidden = self.gru(self.embedding(token), hidden)
        context, weights = self.attention.forward(outputs[:, 0], encoder_outputs, src_mask)
        H = outputs.shape[-1]
        W = self.combine.weight
        s = torch.tanh(context @ W[:, :H].T + outputs[:, 0] @ W[:, H:].T)
        return s @ self.out.weight.T, hidden, weights


class BahdanauDecoder(nn.Module):
    def __init__(self, vocab_size, embed_dim, hidden_dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.gru = nn.GRU(embed_dim + hidden_dim, hidden_dim, batch_first=True)
        self.attention = BahdanauAttention(hidden_dim, hidden_dim, hidden_dim)
        self.out = nn.Linear(hidden_dim, vocab_size, bias=False)

    def forward(self, token, hidden, encoder_outputs, src_mask):
        context, weights = self.attention(hidden.squeeze(0), encoder_outputs, src_mask)
        read = torch.cat((self.embedding(token[:, 0]), context), -1)
        outputs, hidden = self.gru(read[:, None], hidden)
        return self.out(outputs)[:, 0], hidden, weights


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
        self.encoder, self.decoder = encoder, decoder

    def encode(self, src, lengths):
        columns = torch.arange(src.size(1)).to(src.device)[None]
        return *self.encoder(src, lengths), columns < lengths.to(src.device)[:, None]

    def forward(self, src, lengths, tgt, teacher_forcing=1.0, generator=None):
        outputs, hidden, mask = self.encode(src, lengths)
        (N, T), V = tgt.shape, self.decoder.out.weight.shape[0]
        logits = torch.zeros(N, T - 1, V, dtype=outputs.dtype, device=outputs.device)
        token = tgt[:, 0]
        for t in range(T - 1):
            logits[:, t], hidden, _ = self.decoder(token[:, None], hidden, outputs, mask)
            at = torch.empty(1, device=generator.device if generator else "cpu")
            if at.uniform_(generator=generator).item() < teacher_forcing:
                token = tgt[:, t + 1]
            else:
                token = logits[:, t].detach().max(-1).indices
        return logits


def scheduled_sampling(step, schedule, rate):
    curves = {
        "linear": lambda: max(1 - rate * step, 0),
        "exponential": lambda: math.exp(step * math.log(rate)),
        # the same, multiplied by exp(-step / rate), which cannot overflow
        "inverse_sigmoid": lambda: (
            rate * math.exp(-step / rate) / (rate * math.exp(-step / rate) + 1)
        ),
    }
    if schedule not in curves:
        raise ValueError(f"schedule: {schedule}")
    if rate <= 0 or (schedule == "exponential" and rate > 1):
        raise ValueError(f"rate: {rate}")
    return float(curves[schedule]())


@torch.no_grad()
def greedy_decode(model, src, lengths, bos, eos, max_len):
    outputs, hidden, mask = model.encode(src, lengths)
    token = torch.full((src.shape[0], 1), bos, device=src.device)
    done = torch.zeros(src.shape[0], dtype=torch.bool, device=src.device)
    columns = []
    for _ in range(max_len):
        logits, hidden, _ = model.decoder(token, hidden, outputs, mask)
        token = logits.argmax(1, True)
        columns.append(torch.where(done, -1, token[:, 0]))
        done = done | (token[:, 0] == eos)
        if done.all():
            break
    rows = torch.stack(columns, 1).tolist() if columns else [[] for _ in range(src.shape[0])]
    return [[token for token in row if token != -1] for row in rows]


@torch.inference_mode()
def beam_search(model, src, lengths, bos, eos, max_len, beam_size, length_penalty=0.0):
    outputs, hidden, mask = model.encode(src, lengths)
    beams, totals, ends = [[]], outputs.new_zeros(1), []
    for _ in range(max_len):
        last = torch.tensor([[beam[-1] if beam else bos] for beam in beams], device=src.device)
        many = len(beams)
        logits, hidden, _ = model.decoder(
            last, hidden, outputs.expand(many, -1, -1), mask.expand(many, -1)
        )
        V = logits.shape[1]
        flat = (totals[:, None] + F.log_softmax(logits, -1)).flatten()
        best = flat.sort(descending=True, stable=True).indices[:beam_size]
        grown = [[*beams[i // V], i % V] for i in best.tolist()]
        ends += [(t, flat[i].item()) for t, i in zip(grown, best, strict=True) if t[-1] == eos]
        live = [k for k, tokens in enumerate(grown) if tokens[-1] != eos]
        beams = [grown[k] for k in live]
        totals, hidden = (
            flat[best[live]],
            hidden[:, torch.div(best[live], V, rounding_mode="floor")],
        )
        if not live:
            break
    ends += zip(beams, totals.tolist(), strict=True)
    winner, score = None, -math.inf
    for tokens, log_p in ends:
        value = log_p / math.pow((5 + len(tokens)) / 6, length_penalty)
        if value > score:
            winner, score = tokens, value
    return winner, score
