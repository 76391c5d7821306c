"""Public tests for attention and sequence to sequence, in the order of the tasks. Run them here:

    softmark check                        the first thing to look at, with hints
    python -m pytest -x test_public.py    the same tests without the hints, up to the first that
                                          fails; extension and bonus not yet begun count as failures

"NotImplementedError: Encoder.forward" says that Encoder.forward is still to be written. The tests are
yours to read and to add to. They are fewer than the graders', and use other numbers. Core tasks come
first (1 to 3 are part 1, 4 to 7 part 2), then scheduled sampling and BahdanauDecoder (extension) and
beam search (bonus).
"""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from softmark.compare import check_close

sys.path.insert(0, str(Path(__file__).parent))  # the attention.py beside this file

import attention

LN2, LN3, LN5 = math.log(2), math.log(3), math.log(5)
V, E, H = 5, 3, 4
SRC = torch.tensor([[2, 4, 1, 3, 0], [3, 1, 4, 2, 2], [1, 1, 2, 0, 3]])
LENGTHS = torch.tensor([2, 4, 1])  # no sequence is as long as the batch is wide


@pytest.fixture(autouse=True)
def float64():
    """As the graders do: models are built in float64, here from one seed."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(1)
    yield
    torch.set_default_dtype(before)


def check(actual, expected, name, axes=()):
    """Compare a tensor with an array or a tensor."""
    if isinstance(actual, torch.Tensor):
        actual = actual.detach().numpy()
    if isinstance(expected, torch.Tensor):
        expected = expected.detach().numpy()
    number = isinstance(expected, float)
    check_close(actual, expected if number else np.array(expected, dtype=float), name, axes)


def set_to(module, **values):
    """Give parameters values, by name with _ for the dot; every other parameter is 0."""
    with torch.autograd.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.tensor(values.get(name.replace(".", "_"), 0.0)))
    return module


def model(decoder="LuongDecoder"):
    """A model with random parameters, new ones at every call."""
    made = attention.Seq2Seq(attention.Encoder(V, E, H), getattr(attention, decoder)(V, E, H))
    with torch.autograd.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    return made


def on_meta(call):
    """What ``call`` gives on the device meta, where tensors have shapes and no values.

    What is made on the CPU by mistake does not fit in there. Code that looks at values, as boolean
    indices do, is right and cannot be tried like this.
    """
    try:
        return call()
    except (NotImplementedError, RuntimeError) as error:
        if not any(text in str(error) for text in ("nonzero", "no data", "on meta tensors")):
            raise
        pytest.skip("your code looks at values, so it cannot be tried without CUDA")


# ---- 1. masked_softmax ---------------------------------------------------------------------------


def test_softmax_by_hand():
    """Scores ln 2, ln 3, ln 5 give weights 2/10, 3/10, 5/10."""
    scores = torch.tensor([[LN2, LN3, LN5], [0.0, LN3, 0.0]])
    weights = attention.masked_softmax(scores)
    check(weights, [[0.2, 0.3, 0.5], [0.2, 0.6, 0.2]], "weights")


def test_softmax_mask_by_hand():
    """Without the second: 2/7 and 5/7, whatever stands behind the mask; a mask may broadcast."""
    scores = torch.tensor([[[LN2, 900.0, LN5], [LN5, -900.0, LN5]]])
    weights = attention.masked_softmax(scores, torch.tensor([True, False, True]))
    check(weights, [[[2 / 7, 0, 5 / 7], [0.5, 0, 0.5]]], "weights")
    assert torch.all(weights[..., 1] == 0), "Behind the mask the weights must be exactly 0."


def test_softmax_of_nothing():
    """A row with no True, or of scores -inf, is 0, and so is its gradient."""
    minus = -math.inf
    scores = torch.tensor(
        [[LN2, LN3], [LN2, LN3], [minus, minus], [minus, LN2]], requires_grad=True
    )
    mask = torch.tensor([[True, True], [False, False], [True, True], [True, False]])
    weights = attention.masked_softmax(scores, mask)
    check(weights, [[0.4, 0.6], [0, 0], [0, 0], [0, 0]], "weights")
    (weights[:, 0]).sum().backward()
    check(scores.grad, [[0.24, -0.24], [0, 0], [0, 0], [0, 0]], "the gradient of scores")


def test_softmax_far_out():
    """Scores of 1e4 either way, in rows of very different size."""
    scores = torch.tensor([[1e4, 1e4 - LN3], [-1e4, -1e4 + LN3], [0.0, -math.inf]])
    weights = attention.masked_softmax(scores)
    check_close(
        weights.numpy(), np.array([[0.75, 0.25], [0.25, 0.75], [1, 0]]), "weights", rtol=1e-9
    )


def test_softmax_keeps_dtype_and_device():
    """float32 in, float32 out; on the device meta, which has no values, everything is made there."""
    for dtype in (torch.float32, torch.bfloat16):
        scores, mask = torch.zeros(2, 3, dtype=dtype), torch.tensor([True, True, False])
        for weights in (attention.masked_softmax(scores), attention.masked_softmax(scores, mask)):
            assert weights.dtype == dtype, f"The weights are {weights.dtype}, the scores {dtype}."
    scores, mask = torch.zeros(2, 3, device="meta"), torch.ones(3, device="meta") > 0
    weights = on_meta(lambda: attention.masked_softmax(scores, mask))
    assert weights.device.type == "meta", (
        f"The weights are on {weights.device}, the scores on meta."
    )


# ---- 2. BahdanauAttention ------------------------------------------------------------------------


def bahdanau_by_hand():
    """The example of the handout: v_a = 5 ln 2, W_a = U_a = 1, s = ln 2."""
    made = attention.BahdanauAttention(1, 1, 1)
    set_to(made, W_a_weight=1.0, U_a_weight=1.0, v_a_weight=5 * LN2)
    keys = torch.tensor([[[-LN2], [0.0], [LN3 - LN2]]])
    return made, torch.tensor([[LN2]]), keys


def test_bahdanau_by_hand():
    """Scores 0, 3 ln 2 and 4 ln 2: weights 1/25, 8/25 and 16/25."""
    made, query, keys = bahdanau_by_hand()
    context, weights = made(query, keys)
    check(weights, [[1 / 25, 8 / 25, 16 / 25]], "weights", ("N", "S"))
    check(context, [[16 / 25 * (LN3 - LN2) - LN2 / 25]], "context", ("N", "C"))


def test_bahdanau_mask_by_hand():
    """Without the third key: weights 1/9, 8/9 and 0."""
    made, query, keys = bahdanau_by_hand()
    context, weights = made(query, keys, torch.tensor([[True, True, False]]))
    check(weights, [[1 / 9, 8 / 9, 0]], "weights", ("N", "S"))
    check(context, [[-LN2 / 9]], "context", ("N", "C"))


def alone_and_together(made, Q, C):
    """A ragged batch gives what its samples give one by one, without their padding."""
    lengths = [3, 1, 4]
    query, keys = torch.randn(3, Q), torch.randn(3, 4, C)
    mask = torch.arange(4) < torch.tensor(lengths)[:, None]
    keys[~mask] = 1e4
    context, weights = made(query, keys, mask)
    for n, length in enumerate(lengths):
        one, of_one = made(query[n : n + 1], keys[n : n + 1, :length])
        check(context[n : n + 1], one, f"context of sample {n}", ("N", "C"))
        check(weights[n : n + 1, :length], of_one, f"weights of sample {n}", ("N", "S"))
    assert not weights[~mask].any(), "The weights of padding must be exactly 0."
    nothing, none = made(query, keys, torch.zeros(3, 4).bool())
    assert not nothing.any() and not none.any(), "Without a True, context and weights must be 0."


def test_bahdanau_ragged():
    """A ragged batch gives what its samples give one by one."""
    alone_and_together(attention.BahdanauAttention(2, 3, 4), 2, 3)


# ---- 3. LuongAttention ---------------------------------------------------------------------------


KEYS = [[[0.0], [1.0], [2.0]]]


def test_luong_dot_by_hand():
    """s = ln 2 and keys 0, 1, 2: weights 1/7, 2/7, 4/7 and context 10/7."""
    context, weights = attention.LuongAttention(1, 1)(torch.tensor([[LN2]]), torch.tensor(KEYS))
    check(weights, [[1 / 7, 2 / 7, 4 / 7]], "weights", ("N", "S"))
    check(context, [[10 / 7]], "context", ("N", "C"))


def test_luong_general_by_hand():
    """Two numbers in the query, one in a key: s^T W_a h = (ln 2 - 2 ln 3) h."""
    made = set_to(attention.LuongAttention(2, 1, "general"), W_a_weight=[[1.0], [-2.0]])
    _, weights = made(torch.tensor([[LN2, LN3]]), torch.tensor(KEYS))
    check(weights, [[81 / 103, 18 / 103, 4 / 103]], "weights", ("N", "S"))


def test_luong_concat_by_hand():
    """The query comes first: v_a tanh(2 s + h)."""
    made = attention.LuongAttention(1, 1, "concat", attn_dim=1)
    set_to(made, W_a_weight=[[2.0, 1.0]], v_a_weight=5 * LN2)
    keys = torch.tensor([[[-LN2], [0.0], [LN3 - LN2]]])
    _, weights = made(torch.tensor([[LN2 / 2]]), keys)
    check(weights, [[1 / 25, 8 / 25, 16 / 25]], "weights", ("N", "S"))


@pytest.mark.parametrize("score", ["dot", "general", "concat"])
def test_luong_ragged(score):
    """A ragged batch gives what its samples give one by one."""
    alone_and_together(attention.LuongAttention(3, 3, score, 2), 3, 3)


def test_attention_gradients():
    """Gradients reach query, keys and every parameter: nothing is detached."""
    for made in (attention.BahdanauAttention(2, 2, 3), attention.LuongAttention(2, 2, "concat", 3)):
        query = torch.randn(2, 2, requires_grad=True)
        keys = torch.randn(2, 3, 2, requires_grad=True)
        assert torch.autograd.gradcheck(lambda q, k, made=made: made(q, k), (query, keys))
        sum(part.square().sum() for part in made(query, keys)).backward()
        for name, parameter in made.named_parameters():
            assert parameter.grad is not None and parameter.grad.any(), f"{name} gets no gradient."


# ---- 4. Encoder ----------------------------------------------------------------------------------


def test_encoder_sequence_by_sequence():
    """outputs and hidden are those of each sequence alone; outputs are 0 at padding."""
    encoder = attention.Encoder(V, E, H)
    outputs, hidden = encoder(SRC, LENGTHS)
    assert tuple(outputs.shape) == (3, 5, H), f"outputs has shape {tuple(outputs.shape)}."
    assert tuple(hidden.shape) == (1, 3, H), f"hidden has shape {tuple(hidden.shape)}."
    for n, length in enumerate(LENGTHS.tolist()):
        alone, last = encoder.gru(encoder.embedding(SRC[n, :length])[None])
        check(outputs[n : n + 1, :length], alone, f"outputs of sequence {n}", ("N", "S", "H"))
        check(hidden[:, n : n + 1], last, f"hidden of sequence {n}", ("1", "N", "H"))
        assert not outputs[n, length:].any(), f"outputs of sequence {n} must be 0 at its padding."


# ---- 5. LuongDecoder -----------------------------------------------------------------------------


def test_luong_decoder_by_hand():
    """A GRU that keeps its state ln 2; context 10/7; s̃ = tanh(ln 3) = 4/5; logits 4 and -2."""
    decoder = attention.LuongDecoder(2, 1, 1)
    set_to(
        decoder,
        gru_bias_ih_l0=[0.0, 1e3, 0.0],  # an update gate of 1: torch's z keeps the state
        combine_weight=[[7 / 10 * (LN3 - 1), 1 / LN2]],
        out_weight=[[5.0], [-2.5]],
    )
    token, state = torch.tensor([[1]]), torch.tensor([[[LN2]]])
    logits, hidden, weights = decoder(token, state, torch.tensor(KEYS), torch.ones(1, 3) > 0)
    check(hidden, [[[LN2]]], "hidden", ("1", "N", "H"))
    check(weights, [[1 / 7, 2 / 7, 4 / 7]], "weights", ("N", "S"))
    check(logits, [[4.0, -2.0]], "logits", ("N", "V"))


def test_luong_decoder_asks_with_its_new_state():
    """The weights are those of the attention for the state that comes out."""
    decoder = model().decoder
    token, state, keys = torch.tensor([[1], [3]]), torch.randn(1, 2, H), torch.randn(2, 4, H)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    _, hidden, weights = decoder(token, state, keys, mask)
    check(weights, decoder.attention(hidden[0], keys, mask)[1], "weights", ("N", "S"))


# ---- 6. Seq2Seq ----------------------------------------------------------------------------------


TGT = torch.tensor([[0, 3, 1, 4], [0, 2, 2, 1], [0, 4, 3, 1]])


@pytest.mark.parametrize("decoder", ["LuongDecoder", "BottleneckDecoder"])
def test_seq2seq_step_by_step(decoder):
    """logits[:, t] come out of the step that is fed tgt[:, t]."""
    made = model(decoder)
    logits = made(SRC, LENGTHS, TGT)
    keys, state = made.encoder(SRC, LENGTHS)
    real = torch.tensor(
        [[True, True, False, False, False], [True] * 4 + [False], [True] + [False] * 4]
    )
    for t in range(3):
        due, state, _ = made.decoder(TGT[:, [t]], state, keys, real)
        check(logits[:, t], due, f"logits[:, {t}]", ("N", "V"))


def test_seq2seq_ragged():
    """A batch gives what its sources give one by one, without their padding."""
    made = model()
    logits = made(SRC, LENGTHS, TGT)
    for n, length in enumerate(LENGTHS.tolist()):
        alone = made(SRC[n : n + 1, :length], LENGTHS[n : n + 1], TGT[n : n + 1])
        check(logits[n : n + 1], alone, f"logits of sample {n}", ("N", "T - 1", "V"))


def test_seq2seq_nothing_to_predict():
    """A target of one token: (N, 0, V)."""
    shape = tuple(model()(SRC, LENGTHS, TGT[:, :1]).shape)
    assert shape == (3, 0, V), f"For T = 1 the logits have shape {shape}; they must be (3, 0, {V})."


class OnMeta(torch.nn.Module):
    """Stands for an encoder on the device meta, where packing cannot work."""

    def forward(self, src, lengths):
        N, S = src.shape
        return torch.zeros(N, S, H, device="meta"), torch.zeros(1, N, H, device="meta")


def test_seq2seq_stays_on_the_device():
    """What Seq2Seq makes, masks and all, is made on the inputs' device."""
    made = attention.Seq2Seq(OnMeta(), attention.LuongDecoder(V, E, H).to("meta"))
    for tgt in (TGT, TGT[:, :1]):
        device = on_meta(lambda tgt=tgt: made(SRC.to("meta"), LENGTHS, tgt.to("meta"))).device
        assert device.type == "meta", f"The logits are on {device}; the inputs are on meta."


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA here")
def test_all_of_it_on_cuda():
    """The same numbers on CUDA, lengths on the CPU or there."""
    made = model()
    due = made(SRC, LENGTHS, TGT)
    made.to("cuda")
    for lengths in (LENGTHS, LENGTHS.to("cuda")):
        logits = made(SRC.to("cuda"), lengths, TGT.to("cuda"))
        assert logits.device.type == "cuda", f"The logits are on {logits.device}."
        assert torch.allclose(logits.cpu(), due)
        attention.greedy_decode(made, SRC.to("cuda"), lengths, 0, 1, 4)


# ---- 7. greedy_decode ----------------------------------------------------------------------------


def test_greedy_step_by_step():
    """Each token has the highest logit after those before; a sequence ends with its own eos."""
    made = model()
    for eos in range(1, V):
        found = attention.greedy_decode(made, SRC, LENGTHS, 0, eos, 6)
        assert len(found) == 3, f"There are 3 sources and {len(found)} targets."
        for n, tokens in enumerate(found):
            assert all(type(token) is int for token in tokens), "The targets are lists of int."
            assert eos not in tokens[:-1], f"Target {n} goes on after eos."
            assert len(tokens) == 6 or tokens[-1] == eos, f"Target {n} stops before eos."
            tgt = torch.tensor([[0, *tokens]])
            best = made(SRC[[n]], LENGTHS[[n]], tgt)[0].argmax(-1).tolist()
            assert tokens == best, f"Target {n} does not hold the tokens of the highest logits."
    assert attention.greedy_decode(made, SRC, LENGTHS, 0, 1, 0) == [[], [], []]


# ---- everything ----------------------------------------------------------------------------------


def test_inputs_are_left_alone():
    """No call changes what it is given."""
    made = model()
    scores, mask = torch.randn(2, 3), torch.tensor([[True, False, True], [True, True, False]])
    given = {"scores": scores, "mask": mask, "src": SRC, "lengths": LENGTHS, "tgt": TGT}
    before = {name: tensor.clone() for name, tensor in given.items()}
    attention.masked_softmax(scores, mask)
    made(SRC, LENGTHS, TGT)
    attention.greedy_decode(made, SRC, LENGTHS, 0, 1, 3)
    for name, tensor in given.items():
        assert torch.equal(tensor, before[name]), f"{name} was changed in place."


# ---- 9. extension: scheduled sampling ------------------------------------------------------------


def test_extension_schedules_by_hand():
    """Extension: the three schedules of the handout."""
    schedule = attention.scheduled_sampling
    check(schedule(30, "linear", 0.01), 0.7, "linear")
    check(schedule(300, "linear", 0.01), 0.0, "linear")
    check(schedule(3, "exponential", 0.5), 0.125, "exponential")
    check(schedule(0, "inverse_sigmoid", 4.0), 0.8, "inverse_sigmoid")
    check(schedule(10**6, "inverse_sigmoid", 4.0), 0.0, "inverse_sigmoid")
    for wrong in (("cosine", 0.5), ("linear", 0.0), ("exponential", 1.5)):
        with pytest.raises(ValueError, match=r"schedule|rate"):
            schedule(1, *wrong)


def test_extension_free_running():
    """Extension: without teacher forcing each step is fed the arg-max of the one before."""
    made = model()
    logits = made(SRC, LENGTHS, TGT, teacher_forcing=0.0)
    if torch.equal(logits, made(SRC, LENGTHS, TGT)):
        raise NotImplementedError("Seq2Seq.forward with teacher_forcing below 1")
    own = torch.cat([TGT[:, :1], logits.argmax(-1)[:, :2], TGT[:, :1]], dim=1)
    check(logits, made(SRC, LENGTHS, own), "logits", ("N", "T - 1", "V"))


def test_extension_generator():
    """Extension: equal generators give equal paths, and torch's own stream is left alone."""
    made, tgt = model(), torch.randint(V, (3, 30))
    before = torch.get_rng_state()
    first, again, other = (
        made(SRC, LENGTHS, tgt, 0.5, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)
    )
    after = torch.get_rng_state()
    if torch.equal(first, made(SRC, LENGTHS, tgt)):
        raise NotImplementedError("Seq2Seq.forward with teacher_forcing below 1")
    assert torch.equal(first, again), "Equal generators give different logits."
    assert not torch.equal(first, other), "Different generators give the same logits."
    assert torch.equal(after, before), "Draws were taken from torch's own stream."


# ---- 10. extension: BahdanauDecoder --------------------------------------------------------------


def test_extension_bahdanau_decoder():
    """Extension: the state before asks; the GRU reads token and context, the token first."""
    decoder = model("BahdanauDecoder").decoder
    token, state, keys = torch.tensor([[1], [3]]), torch.randn(1, 2, H), torch.randn(2, 4, H)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    logits, hidden, weights = decoder(token, state, keys, mask)
    context, due = decoder.attention(state[0], keys, mask)
    check(weights, due, "weights", ("N", "S"))
    for n in range(2):
        read = torch.tensor([*decoder.embedding.weight[token[n, 0]].tolist(), *context[n].tolist()])
        _, new = decoder.gru(read[None, None], state[:, [n]])
        check(hidden[:, [n]], new, f"hidden of sample {n}", ("1", "N", "H"))
        check(logits[n], decoder.out.weight @ new[0, 0], f"logits of sample {n}", ("V",))


# ---- 11. bonus: beam_search ----------------------------------------------------------------------


def test_bonus_one_beam_is_greedy():
    """Bonus: with one beam, what greedy_decode writes, and its log-probability."""
    made = model()
    for eos in range(1, V):
        tokens, score = attention.beam_search(made, SRC[:1], LENGTHS[:1], 0, eos, 5, 1)
        assert [tokens] == attention.greedy_decode(made, SRC[:1], LENGTHS[:1], 0, eos, 5)
        logits = made(SRC[:1], LENGTHS[:1], torch.tensor([[0, *tokens]]))
        steps = logits[0].log_softmax(-1)
        check(score, sum(steps[k, token].item() for k, token in enumerate(tokens)), "score")


def test_bonus_two_beams_by_hand():
    """Bonus: the example of the handout. Greedy takes the likelier token first, and regrets it."""
    made = attention.Seq2Seq(attention.Encoder(4, 1, 1), Table())
    call = made, torch.zeros(1, 1, dtype=torch.long), torch.tensor([1]), 0, 1, 4
    for beams, tokens, probability in ((1, [2, 1], 0.6 * 0.4), (2, [3, 1], 0.4 * 0.9)):
        found, score = attention.beam_search(*call, beams)
        assert found == tokens, (
            f"With beam_size = {beams} the tokens must be {tokens}, not {found}."
        )
        check(score, math.log(probability), "score")


class Table(torch.nn.Module):
    """A decoder whose probabilities depend on the token before alone: a row for each of 0 to 3."""

    def forward(self, token, hidden, encoder_outputs, src_mask):
        rows = [[0.0, 0, 0.6, 0.4], [0.25] * 4, [0.3, 0.4, 0.3, 0], [0.1, 0.9, 0, 0]]
        logits = torch.tensor(rows)[token[:, 0]].log()
        return logits, hidden, encoder_outputs.new_zeros(encoder_outputs.shape[:2])
