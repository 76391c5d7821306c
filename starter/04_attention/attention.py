"""Attention, and sequence to sequence with it: read a source, write a target token by token.

Letters: N batch, S source length, T target length, Q query size, C key size, A attention size, E size of
an embedding, H hidden size, V vocabulary. Batch comes first. In every boolean mask True = real token, may
be attended to: the opposite of torch's key_padding_mask. Results have the floating dtype and the device
of the inputs, and inputs are never changed in place. Equation numbers are the handout's.
"""

import math

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

# ---- part 1: attention ---------------------------------------------------------------------------


def masked_softmax(scores, mask=None):
    """Softmax over the last axis, among the entries that the mask allows, equation (1).

    Parameters
    ----------
    scores : (..., S) float tensor
        Finite up to ±1e4, or -inf. Behind the mask anything finite.
    mask : bool tensor that broadcasts to the shape of ``scores``, or None
        True = may be attended to (the opposite of torch's key_padding_mask). None means True everywhere.

    Returns
    -------
    (..., S) float tensor
        Exactly 0 where the mask is False; the others of a row sum to 1. A row with no True, or whose
        allowed scores are all -inf, is exactly 0 everywhere, and the gradients of its scores are 0: never
        NaN.
    """
    raise NotImplementedError("masked_softmax")


class BahdanauAttention(nn.Module):
    """Additive attention, equation (3): e_j = v_a^T tanh(W_a s + U_a h_j).

    Bahdanau, Cho & Bengio (2015).
    """

    def __init__(self, query_dim, key_dim, attn_dim):
        """Given. W_a: (Q -> A), U_a: (C -> A), v_a: (A -> 1), without biases."""
        super().__init__()
        self.W_a = nn.Linear(query_dim, attn_dim, bias=False)
        self.U_a = nn.Linear(key_dim, attn_dim, bias=False)
        self.v_a = nn.Linear(attn_dim, 1, bias=False)

    def forward(self, query, keys, mask=None):
        """Attend with one query a sample.

        Parameters
        ----------
        query : (N, Q) float tensor
            The decoder's state s.
        keys : (N, S, C) float tensor
            The encoder's outputs h_j. They are the values too.
        mask : (N, S) bool tensor or None
            True = real token (the opposite of torch's key_padding_mask).

        Returns
        -------
        context : (N, C),  weights : (N, S)
            Both exactly 0 for a sample whose mask has no True.
        """
        raise NotImplementedError("BahdanauAttention.forward")


class LuongAttention(nn.Module):
    """Multiplicative attention and its kin, equations (4) to (6).

    Luong, Pham & Manning (2015).
    """

    def __init__(self, query_dim, key_dim, score="dot", attn_dim=None):
        """Given. ``score`` is "dot", "general" or "concat"; ``self.score`` keeps it.

        dot has no parameters and needs Q = C. general has W_a: (C -> Q). concat has W_a: (Q + C -> A) and
        v_a: (A -> 1), with A = ``attn_dim``, or Q where that is None. No biases.

        Raises ValueError for an unknown score, and for dot with unequal sizes.
        """
        super().__init__()
        self.score = score
        if score == "dot":
            if query_dim != key_dim:
                raise ValueError(f"dot needs query_dim = key_dim, not {query_dim} and {key_dim}")
        elif score == "general":
            self.W_a = nn.Linear(key_dim, query_dim, bias=False)
        elif score == "concat":
            attn_dim = query_dim if attn_dim is None else attn_dim
            self.W_a = nn.Linear(query_dim + key_dim, attn_dim, bias=False)
            self.v_a = nn.Linear(attn_dim, 1, bias=False)
        else:
            raise ValueError(f"score must be dot, general or concat, not {score!r}")

    def forward(self, query, keys, mask=None):
        """Attend with one query a sample: interface and results are those of BahdanauAttention.

        The score e_j of key h_j for the query s is, by ``self.score``:

        - dot, equation (4): s · h_j
        - general, equation (5): s^T W_a h_j
        - concat, equation (6): v_a^T tanh(W_a [s; h_j]), the query first
        """
        raise NotImplementedError("LuongAttention.forward")


# ---- part 2: sequence to sequence ----------------------------------------------------------------


class Encoder(nn.Module):
    """An embedding, then a GRU over packed sequences."""

    def __init__(self, vocab_size, embed_dim, hidden_dim):
        """Given. embedding: (V, E); gru: E -> H, batch first."""
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.gru = nn.GRU(embed_dim, hidden_dim, batch_first=True)

    def forward(self, src, lengths):
        """Encode a padded batch so that nothing is heard of the padding.

        Parameters
        ----------
        src : (N, S) int64 tensor
            Token ids; behind the end of a sequence any legal id.
        lengths : (N,) int64 tensor
            Of every sequence, 1 to S, in any order and on any device; none need be S.

        Returns
        -------
        outputs : (N, S, H) float tensor
            The GRU's output at every token; 0 at padding.
        hidden : (1, N, H) float tensor
            The GRU's state after the last token of each sequence.
        """
        raise NotImplementedError("Encoder.forward")


class LuongDecoder(nn.Module):
    """One step of Luong's decoder: first the recurrence, then attention with its new state.

    Equations (7) to (9). Luong, Pham & Manning (2015).
    """

    def __init__(self, vocab_size, embed_dim, hidden_dim):
        """Given. embedding, gru: E -> H, attention: dot, combine: (2 H -> H), out: (H -> V)."""
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.gru = nn.GRU(embed_dim, hidden_dim, batch_first=True)
        self.attention = LuongAttention(hidden_dim, hidden_dim)
        self.combine = nn.Linear(2 * hidden_dim, hidden_dim, bias=False)
        self.out = nn.Linear(hidden_dim, vocab_size, bias=False)

    def forward(self, token, hidden, encoder_outputs, src_mask):
        """One step for every sample of a batch.

        Parameters
        ----------
        token : (N, 1) int64 tensor
            The token before, y_{i-1}.
        hidden : (1, N, H) float tensor
            The state before, s_{i-1}; in the first step the encoder's ``hidden``.
        encoder_outputs : (N, S, H) float tensor
        src_mask : (N, S) bool tensor
            True = real token (the opposite of torch's key_padding_mask).

        Returns
        -------
        logits : (N, V),  hidden : (1, N, H),  weights : (N, S)
            Scores of the next token (no softmax), the new state s_i, and what was attended to.
        """
        raise NotImplementedError("LuongDecoder.forward")


class BahdanauDecoder(nn.Module):
    """One step of Bahdanau's decoder: attention with the state before, then the recurrence.

    Equations (10) to (12), with a GRU and without the maxout layer of the paper. Bahdanau, Cho & Bengio
    (2015).
    """

    def __init__(self, vocab_size, embed_dim, hidden_dim):
        """Given. embedding, gru: (E + H) -> H, attention: additive, out: (H -> V)."""
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.gru = nn.GRU(embed_dim + hidden_dim, hidden_dim, batch_first=True)
        self.attention = BahdanauAttention(hidden_dim, hidden_dim, hidden_dim)
        self.out = nn.Linear(hidden_dim, vocab_size, bias=False)

    def forward(self, token, hidden, encoder_outputs, src_mask):
        """One step for every sample of a batch: interface and results are those of LuongDecoder.

        The query is the state before, s_{i-1}; the GRU's input is the embedding of the token, then the
        context: [y_{i-1}; c_i].
        """
        raise NotImplementedError("BahdanauDecoder.forward")


class BottleneckDecoder(nn.Module):
    """Given, whole: a decoder without attention, for comparison.

    Of the source it sees the encoder's last state and nothing else: Sutskever, Vinyals & Le (2014).
    """

    def __init__(self, vocab_size, embed_dim, hidden_dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.gru = nn.GRU(embed_dim, hidden_dim, batch_first=True)
        self.out = nn.Linear(hidden_dim, vocab_size, bias=False)

    def forward(self, token, hidden, encoder_outputs, src_mask):
        """LuongDecoder's interface; the weights are zeros."""
        outputs, hidden = self.gru(self.embedding(token), hidden)
        weights = encoder_outputs.new_zeros(encoder_outputs.shape[:2])
        return self.out(outputs.squeeze(1)), hidden, weights


class Seq2Seq(nn.Module):
    """An encoder and a decoder as one model."""

    def __init__(self, encoder, decoder):
        """Given. ``decoder`` is any of the three decoders."""
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, src, lengths, tgt, teacher_forcing=1.0, generator=None):
        """Logits of every target token given those before it, equation (13).

        Parameters
        ----------
        src : (N, S) int64 tensor,  lengths : (N,) int64 tensor
            As for Encoder.
        tgt : (N, T) int64 tensor
            Each row begins with the token for the beginning; T >= 1.
        teacher_forcing : float from 0 to 1
            The first input is ``tgt[:, 0]``. Of every later step the input is, with this probability, the
            true token ``tgt[:, t]``, else the arg-max of the logits before. One draw a step, for the whole
            batch (extension; 1.0 is core).
        generator : torch.Generator or None
            Where the draws come from, on its own device; None: torch's default generator. Where one is
            given, the default generator stays as it was.

        Returns
        -------
        (N, T - 1, V) float tensor
            ``logits[:, t]`` scores ``tgt[:, t + 1]``. On the device of the inputs; (N, 0, V) for T = 1.
        """
        raise NotImplementedError("Seq2Seq.forward")


def scheduled_sampling(step, schedule, rate):
    """The probability of teacher forcing at a training step, equations (14) to (16).

    Parameters
    ----------
    step : int
        Counted from 0.
    schedule : str
        "linear": max(0, 1 - rate · step); "exponential": rate ** step; "inverse_sigmoid":
        rate / (rate + exp(step / rate)), 0.0 where exp overflows.
    rate : float
        Above 0; for "exponential" at most 1.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        Naming ``schedule`` or ``rate``, for an unknown schedule or a rate outside its range.

    Bengio et al. (2015).
    """
    raise NotImplementedError("scheduled_sampling")


def greedy_decode(model, src, lengths, bos, eos, max_len):
    """Write a target for every source, each time with the token of the highest logit.

    Parameters
    ----------
    model : Seq2Seq
    src : (N, S) int64 tensor,  lengths : (N,) int64 tensor
        As for Encoder.
    bos, eos : int
        The ids of the tokens for beginning and end. bos is the first input.
    max_len : int
        The most tokens of one target; 0 is legal.

    Returns
    -------
    list of N lists of int
        Without bos. A sequence ends with eos where it was reached, and holds nothing after it.
    """
    raise NotImplementedError("greedy_decode")


def beam_search(model, src, lengths, bos, eos, max_len, beam_size, length_penalty=0.0):
    """Write the target of one source, following several hypotheses at a time.

    Each step extends every live hypothesis by every token and keeps the ``beam_size`` extensions of the
    highest log-probability (not score); of equal ones that of the earlier hypothesis, then the lower id.
    Those kept that end in eos are finished and never extended; the rest live on. It stops when none is
    live, or after ``max_len`` tokens, eos counted; those still live then compete as equals.

    Parameters
    ----------
    model : Seq2Seq
    src : (1, S) int64 tensor,  lengths : (1,) int64 tensor
    bos, eos, max_len : int
        As for greedy_decode.
    beam_size : int
        At least 1, which gives what greedy_decode gives.
    length_penalty : float
        The exponent of equation (17).

    Returns
    -------
    tokens : list of int
        The hypothesis of the highest score; of equal ones the one finished earlier. Without bos, with eos.
    score : float
        log-probability / ((5 + length) / 6) ** length_penalty, equation (17), length = len(tokens).
        For ``max_len`` 0: ([], 0.0).

    Wu et al. (2016) for the length penalty.
    """
    raise NotImplementedError("beam_search")
