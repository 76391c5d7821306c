"""The attention reference and its right variants against oracles that share nothing with them.

The oracles are explicit loops over samples and positions, F.scaled_dot_product_attention, autograd's
gradcheck, a GRU written out and run sequence by sequence, and for beam search every hypothesis there is.
"""

import importlib.util
import itertools
import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

SOLUTION = Path(__file__).parents[1] / "solutions" / "04_attention"
FILES = [SOLUTION / "attention.py", *sorted((SOLUTION / "variants").glob("*/attention.py"))]
# The hidden graders compare the variants with the reference each time.
PARAMS = [FILES[0], *(pytest.param(file, marks=pytest.mark.slow) for file in FILES[1:])]
# (N, S, Q, C, A): all different, and each of them 1 in turn
SIZES = [(3, 5, 4, 6, 2), (1, 4, 3, 2, 5), (3, 1, 2, 4, 3), (2, 3, 1, 2, 4), (2, 3, 2, 1, 4)]
DECODERS = ["LuongDecoder", "BahdanauDecoder", "BottleneckDecoder"]


@pytest.fixture(autouse=True)
def float64():
    """Models are built in float64, from one seed."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(params=PARAMS, ids=lambda path: path.parent.name)
def attention(request):
    """The module under test: the reference, then each variant."""
    name = f"attention_of_{request.param.parent.name}"
    spec = importlib.util.spec_from_file_location(name, request.param)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


def random(module):
    """The module with random parameters, all of them."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module


def attentions(attention, Q, C, A):
    made = [attention.BahdanauAttention(Q, C, A)]
    made += [attention.LuongAttention(Q, C, score, A) for score in ("general", "concat")]
    if Q == C:
        made.append(attention.LuongAttention(Q, C))
    return [random(each) for each in made]


# ---- masked softmax ------------------------------------------------------------------------------


def by_loop(scores, mask):
    """Softmax of each row by itself, over what the mask allows, in Python's floats."""
    rows, allowed = scores.reshape(-1, scores.shape[-1]), mask.expand(scores.shape)
    out = torch.zeros_like(rows)
    for i, row in enumerate(rows.tolist()):
        real = [j for j, ok in enumerate(allowed.reshape(rows.shape)[i].tolist()) if ok]
        real = [j for j in real if row[j] > -math.inf]
        top = max((row[j] for j in real), default=0.0)
        total = math.fsum(math.exp(row[j] - top) for j in real)
        for j in real:
            out[i, j] = math.exp(row[j] - top) / total
    return out.reshape(scores.shape)


@pytest.mark.parametrize(
    "shape, of_mask",
    [((4, 5), (4, 5)), ((2, 3, 4), (2, 1, 4)), ((2, 3, 4), (4,)), ((3, 4), (3, 1)), ((6,), (6,))],
)
def test_masked_softmax_row_by_row(attention, shape, of_mask):
    for scale in (1.0, 1e4):
        scores, mask = scale * torch.randn(shape), torch.rand(of_mask) < 0.6
        before = scores.clone()
        weights = attention.masked_softmax(scores, mask)
        close(weights, by_loop(scores, mask))
        assert not weights[~mask.expand(shape)].any()
        close(attention.masked_softmax(scores), by_loop(scores, torch.tensor(True)))
        assert torch.equal(scores, before)


def test_rows_with_nothing_are_zero_and_so_are_their_gradients(attention):
    scores = torch.randn(4, 3)
    scores[1], scores[2, 0] = -math.inf, -math.inf
    mask = torch.tensor([[1, 0, 1], [1, 1, 1], [1, 0, 0], [0, 0, 0]]).bool()
    scores.requires_grad_()
    weights = attention.masked_softmax(scores, mask)
    assert weights[1:].count_nonzero() == 0
    (weights * torch.randn(4, 3)).sum().backward()
    assert scores.grad.isfinite().all() and scores.grad[1:].count_nonzero() == 0
    assert scores.grad[0, 1] == 0 and scores.grad[0, 0] != 0


def test_masked_softmax_gradcheck(attention):
    mask = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()
    scores = torch.randn(3, 4, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: attention.masked_softmax(s, mask), scores)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_masked_softmax_keeps_dtype(attention, dtype):
    scores, mask = torch.randn(3, 4, dtype=dtype), torch.rand(3, 4) < 0.5
    assert attention.masked_softmax(scores, mask).dtype == dtype
    assert attention.masked_softmax(scores).dtype == dtype


def on_meta(call):
    """What a call gives where there are shapes and no values; skipped where it looks at values."""
    try:
        return call()
    except NotImplementedError as error:
        assert "nonzero" in str(error)
        pytest.skip("boolean indices look at values")


def test_masked_softmax_stays_on_the_device(attention):
    scores, mask = torch.zeros(3, 4, device="meta"), torch.ones(3, 4, device="meta").bool()
    assert on_meta(lambda: attention.masked_softmax(scores, mask)).device.type == "meta"


# ---- attention -----------------------------------------------------------------------------------


def score_of(module, s, h):
    """The score of one key for one query."""
    if hasattr(module, "U_a"):
        return module.v_a.weight[0] @ torch.tanh(module.W_a.weight @ s + module.U_a.weight @ h)
    if module.score == "dot":
        return s @ h
    if module.score == "general":
        return s @ module.W_a.weight @ h
    return module.v_a.weight[0] @ torch.tanh(module.W_a.weight @ torch.cat([s, h]))


def attend_by_loop(module, query, keys, mask):
    contexts, weights = torch.zeros(len(keys), keys.shape[2]), torch.zeros(mask.shape)
    for n in range(len(keys)):
        real = mask[n].nonzero().flatten().tolist()
        scores = [score_of(module, query[n], keys[n, j]).item() for j in real]
        for j, score in zip(real, scores, strict=True):
            weights[n, j] = math.exp(score) / sum(math.exp(other) for other in scores)
            contexts[n] += weights[n, j] * keys[n, j]
    return contexts, weights


@pytest.mark.parametrize("sizes", SIZES)
def test_attention_sample_by_sample(attention, sizes):
    N, S, Q, C, A = sizes
    for of_query in {Q, C}:
        for module in attentions(attention, of_query, C, A):
            query, keys, mask = (
                torch.randn(N, of_query),
                torch.randn(N, S, C),
                torch.rand(N, S) < 0.7,
            )
            mask[0] = False
            with torch.no_grad():
                context, weights = module(query, keys, mask)
                due = attend_by_loop(module, query, keys, mask)
                every = module(query, keys)
                due_every = attend_by_loop(module, query, keys, torch.ones(N, S).bool())
            close((context, weights), due)
            close(every, due_every)
            assert not context[0].any()


def test_dot_is_the_library_s(attention):
    query, keys = torch.randn(4, 3), torch.randn(4, 6, 3)
    mask = torch.rand(4, 6) < 0.6
    mask[:, 2] = True
    context, _ = attention.LuongAttention(3, 3)(query, keys, mask)
    due = F.scaled_dot_product_attention(query[:, None], keys, keys, mask[:, None], scale=1.0)
    close(context, due[:, 0])


def test_attention_gradcheck(attention):
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]]).bool()
    for module in attentions(attention, 2, 2, 3):
        inputs = torch.randn(2, 2, requires_grad=True), torch.randn(2, 3, 2, requires_grad=True)
        assert torch.autograd.gradcheck(lambda q, k, m=module: m(q, k, mask), inputs)


# ---- encoder and decoders ------------------------------------------------------------------------


def gru_step(gru, x, h):
    """torch's GRU equations for one vector."""
    ir, iz, i_n = (gru.weight_ih_l0 @ x + gru.bias_ih_l0).chunk(3)
    hr, hz, hn = (gru.weight_hh_l0 @ h + gru.bias_hh_l0).chunk(3)
    r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
    return (1 - z) * torch.tanh(i_n + r * hn) + z * h


@pytest.mark.parametrize("lengths", [(2, 5, 1, 4), (3, 2), (1,)])
def test_encoder_sequence_by_sequence(attention, lengths):
    S = 6
    encoder = random(attention.Encoder(7, 2, 3))
    src = torch.randint(7, (len(lengths), S))
    with torch.no_grad():
        outputs, hidden = encoder(src, torch.tensor(lengths))
        due, last = torch.zeros(len(lengths), S, 3), torch.zeros(1, len(lengths), 3)
        for n, length in enumerate(lengths):
            h = torch.zeros(3)
            for t in range(length):
                h = gru_step(encoder.gru, encoder.embedding.weight[src[n, t]], h)
                due[n, t] = h
            last[0, n] = h
    close((outputs, hidden), (due, last))


def decoder_step(decoder, token, state, outputs, mask):
    """One step of one sample, by the equations of each decoder."""
    y = decoder.embedding.weight[token]
    if hasattr(decoder, "combine"):
        state = gru_step(decoder.gru, y, state)
        context, weights = attend_by_loop(decoder.attention, state[None], outputs[None], mask[None])
        combined = torch.tanh(decoder.combine.weight @ torch.cat([context[0], state]))
        return decoder.out.weight @ combined, state, weights[0]
    if hasattr(decoder, "attention"):
        context, weights = attend_by_loop(decoder.attention, state[None], outputs[None], mask[None])
        state = gru_step(decoder.gru, torch.cat([y, context[0]]), state)
        return decoder.out.weight @ state, state, weights[0]
    state = gru_step(decoder.gru, y, state)
    return decoder.out.weight @ state, state, torch.zeros(len(mask))


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("N, S", [(3, 4), (1, 3), (2, 1)])
def test_decoders_sample_by_sample(attention, name, N, S):
    decoder = random(getattr(attention, name)(5, 2, 3))
    token, hidden, outputs = torch.randint(5, (N, 1)), torch.randn(1, N, 3), torch.randn(N, S, 3)
    mask = torch.arange(S) < torch.randint(1, S + 1, (N, 1))
    with torch.no_grad():
        found = decoder(token, hidden, outputs, mask)
        each = [
            decoder_step(decoder, int(token[n]), hidden[0, n], outputs[n], mask[n])
            for n in range(N)
        ]
    logits, states, weights = (torch.stack(parts) for parts in zip(*each, strict=True))
    close(found, (logits, states[None], weights))


# ---- the model -----------------------------------------------------------------------------------


def model(attention, name="LuongDecoder", V=4):
    encoder, decoder = attention.Encoder(6, 2, 3), getattr(attention, name)(V, 2, 3)
    return random(attention.Seq2Seq(encoder, decoder))


def ragged(N=3, S=5):
    return torch.randint(6, (N, S)), torch.randint(1, S + 1, (N,))


def steps_by_hand(made, src, length, tokens):
    """The logits after each prefix of ``tokens``, for one source."""
    outputs, hidden = made.encoder(src[None, :length], torch.tensor([length]))
    state, mask, found = hidden[0, 0], torch.ones(length).bool(), []
    for token in tokens:
        logits, state, _ = decoder_step(made.decoder, token, state, outputs[0], mask)
        found.append(logits)
    return found


@pytest.mark.parametrize("name", DECODERS)
def test_teacher_forcing_sample_by_sample(attention, name):
    made, (src, lengths), tgt = model(attention, name), ragged(), torch.randint(4, (3, 5))
    with torch.no_grad():
        logits = made(src, lengths, tgt)
        for n in range(3):
            due = steps_by_hand(made, src[n], int(lengths[n]), tgt[n, :-1].tolist())
            close(logits[n], torch.stack(due))
        assert made(src, lengths, tgt[:, :1]).shape == (3, 0, 4)


def test_free_running_follows_its_own_arg_max(attention):
    made, (src, lengths), tgt = model(attention), ragged(), torch.randint(4, (3, 6))
    with torch.no_grad():
        logits = made(src, lengths, tgt, teacher_forcing=0.0)
        own = torch.cat([tgt[:, :1], logits.argmax(-1)], dim=1)
        close(logits, made(src, lengths, own))


def test_in_between_one_of_all_paths(attention):
    """Of the 2^(T-2) ways to feed true tokens or arg-maxes, one gives the logits."""
    made, (src, lengths), tgt = model(attention), ragged(), torch.randint(4, (3, 6))

    def along(choices):
        fed = tgt.clone()
        for t, true in enumerate(choices, start=1):
            if not true:
                fed[:, t] = made(src, lengths, fed)[:, t - 1].argmax(-1)
        return made(src, lengths, fed)

    with torch.no_grad():
        paths = [along(choices) for choices in itertools.product([True, False], repeat=4)]
        before = torch.get_rng_state()
        seen = set()
        for seed in range(12):
            logits = made(src, lengths, tgt, 0.5, torch.Generator().manual_seed(seed))
            again = made(src, lengths, tgt, 0.5, torch.Generator().manual_seed(seed))
            assert torch.equal(logits, again)
            fits = [k for k, path in enumerate(paths) if torch.allclose(path, logits, 1e-9, 1e-12)]
            assert fits
            seen.add(fits[0])
        assert len(seen) > 2
        assert torch.equal(torch.get_rng_state(), before)


def test_every_parameter_learns(attention):
    made, (src, lengths), tgt = model(attention), ragged(), torch.randint(4, (3, 5))
    made(src, lengths, tgt).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in made.parameters())


class Meta(torch.nn.Module):
    """An encoder whose results are on the device meta, where there are shapes and no values."""

    def forward(self, src, lengths):
        N, S = src.shape
        return torch.zeros(N, S, 3, device="meta"), torch.zeros(1, N, 3, device="meta")


@pytest.mark.parametrize("T", [1, 3])
def test_the_model_stays_on_the_inputs_device(attention, T):
    made = attention.Seq2Seq(Meta(), attention.LuongDecoder(4, 2, 3).to("meta"))
    src, tgt = (torch.zeros(2, size, dtype=torch.long, device="meta") for size in (5, T))
    logits = on_meta(lambda: made(src, torch.tensor([3, 5]), tgt))
    assert (logits.device.type, tuple(logits.shape)) == ("meta", (2, T - 1, 4))


# ---- schedules -----------------------------------------------------------------------------------


def test_schedules(attention):
    schedule = attention.scheduled_sampling
    for step in (0, 3, 40):
        assert schedule(step, "linear", 0.05) == pytest.approx(min(1, max(0, 1 - step / 20)))
        assert schedule(step, "exponential", 0.5) == pytest.approx(1 / 2**step)
        sigmoid = 1 / (1 + math.exp(step / 9) / 9)
        assert schedule(step, "inverse_sigmoid", 9.0) == pytest.approx(sigmoid)
    assert schedule(10**5, "inverse_sigmoid", 1.0) == 0.0
    for wrong in [("cosine", 0.5), ("linear", 0), ("exponential", 1.5), ("inverse_sigmoid", -1)]:
        with pytest.raises(ValueError, match=r"schedule|rate"):
            schedule(1, *wrong)


# ---- decoding ------------------------------------------------------------------------------------


def greedy_by_hand(made, src, length, bos, eos, max_len):
    tokens = []
    while len(tokens) < max_len and eos not in tokens:
        tokens.append(int(steps_by_hand(made, src, length, [bos, *tokens])[-1].argmax()))
    return tokens


def test_greedy_source_by_source(attention):
    for eos, max_len in itertools.product(range(4), (0, 1, 5)):
        made, (src, lengths) = model(attention), ragged(4)
        found = attention.greedy_decode(made, src, lengths, (eos + 1) % 4, eos, max_len)
        with torch.no_grad():
            assert found == [
                greedy_by_hand(made, src[n], int(lengths[n]), (eos + 1) % 4, eos, max_len)
                for n in range(4)
            ]


def complete(made, src, length, bos, eos, max_len, V):
    """Every hypothesis there is, finished or of max_len tokens, with its log-probability."""
    found = []
    for size in range(1, max_len + 1):
        for tokens in itertools.product(range(V), repeat=size):
            ends = tokens[-1] == eos
            if eos in tokens[:-1] or not (ends or size == max_len):
                continue
            steps = steps_by_hand(made, src, length, [bos, *tokens[:-1]])
            log_p = sum(
                torch.log_softmax(step, 0)[token].item()
                for step, token in zip(steps, tokens, strict=True)
            )
            found.append((list(tokens), log_p))
    return found


@pytest.mark.parametrize("penalty", [0.0, 0.7, 2.0])
def test_a_wide_beam_finds_the_best_of_all(attention, penalty):
    """With as many beams as there are hypotheses, nothing is left out."""
    V, max_len = 3, 4
    for eos in range(V):
        made, (src, _) = model(attention, V=V), ragged(1)
        bos = (eos + 1) % V
        with torch.no_grad():
            every = complete(made, src[0], 3, bos, eos, max_len, V)
        scored = [(log_p / ((5 + len(t)) / 6) ** penalty, t) for t, log_p in every]
        best, tokens = max(scored)
        assert sum(math.exp(log_p) for _, log_p in every) == pytest.approx(1)
        found, score = attention.beam_search(
            made, src, torch.tensor([3]), bos, eos, max_len, V**max_len, penalty
        )
        assert found == tokens and score == pytest.approx(best, rel=1e-10)


def beam_by_table(made, src, length, bos, eos, max_len, beams, penalty):
    """The rules of the docstring on explicit tables of tokens; states are computed anew each time."""
    live, finished = [((), 0.0)], []
    for _ in range(max_len):
        table = []
        for rank, (tokens, log_p) in enumerate(live):
            logits = steps_by_hand(made, src, length, [bos, *tokens])[-1]
            for token, more in enumerate(torch.log_softmax(logits, 0).tolist()):
                table.append((-(log_p + more), rank, token, (*tokens, token)))
        kept = [(tokens, -minus) for minus, _, _, tokens in sorted(table)[:beams]]
        finished += [each for each in kept if each[0][-1] == eos]
        live = [each for each in kept if each[0][-1] != eos]
        if not live:
            break
    ends = [
        (-log_p / ((5 + len(tokens)) / 6) ** penalty, k, tokens)
        for k, (tokens, log_p) in enumerate(finished + live)
    ]
    minus, _, tokens = min(ends)
    return list(tokens), -minus


@pytest.mark.parametrize("beams", [1, 2, 3])
def test_beam_search_by_its_rules(attention, beams):
    for eos, penalty in itertools.product(range(4), (0.0, 1.0, -1.0)):
        made, (src, _) = model(attention), ragged(1)
        call = (eos + 1) % 4, eos, 4, beams, penalty
        with torch.no_grad():
            tokens, score = beam_by_table(made, src[0], 3, *call)
        found, its_score = attention.beam_search(made, src, torch.tensor([3]), *call)
        assert found == tokens and its_score == pytest.approx(score, rel=1e-10)
        assert isinstance(its_score, float)
        if beams == 1:
            greedy = attention.greedy_decode(made, src, torch.tensor([3]), *call[:3])
            assert greedy == [found]


def test_ties_and_nothing(attention):
    made, (src, _) = model(attention), ragged(1)
    lengths = torch.tensor([3])
    assert attention.beam_search(made, src, lengths, 0, 1, 0, 2) == ([], 0.0)
    with torch.no_grad():
        made.decoder.out.weight.zero_()
    # all alike: the lower id first, the earlier hypothesis first, the shorter one has the higher score
    assert attention.beam_search(made, src, lengths, 3, 1, 3, 2)[0] == [1]
    assert attention.beam_search(made, src, lengths, 3, 3, 3, 2)[0] == [0, 0, 0]
    assert attention.beam_search(made, src, lengths, 3, 0, 3, 3)[0] == [0]
