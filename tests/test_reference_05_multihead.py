"""The multi-head reference and its right variants against oracles that share nothing with them.

The oracles are torch's own attention, as a function and as a module with converted weights, autograd and
gradcheck, and brute force: loops over samples, heads, queries and keys.
"""

import importlib.util
import itertools
import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

SOLUTION = Path(__file__).parents[1] / "solutions" / "05_multihead"
FILES = [SOLUTION / "multihead.py", *sorted((SOLUTION / "variants").glob("*/multihead.py"))]
# The hidden graders compare the variants with the reference each time.
PARAMS = [FILES[0], *(pytest.param(file, marks=pytest.mark.slow) for file in FILES[1:])]
# leading axes, Tq, Tk, d, dv: all different, and each of them 1 in turn
SIZES = [
    ((2, 3), 4, 5, 6, 2),
    ((), 3, 4, 5, 2),
    ((2, 1, 3), 2, 3, 4, 5),
    ((1,), 1, 4, 3, 2),
    ((2,), 4, 1, 3, 5),
    ((2,), 3, 4, 1, 2),
    ((2,), 3, 4, 2, 1),
]


@pytest.fixture(autouse=True)
def float64():
    """Models are built in float64, from one seed, and run on one thread: they are small."""
    before = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before[0])
    torch.set_num_threads(before[1])


@pytest.fixture(params=PARAMS, ids=lambda path: path.parent.name)
def multihead(request):
    """The module under test: the reference, then each variant."""
    name = f"multihead_of_{request.param.parent.name}"
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


def drawn(lead, Tq, Tk, d, dv):
    return torch.randn(*lead, Tq, d), torch.randn(*lead, Tk, d), torch.randn(*lead, Tk, dv)


def some_mask(*shape):
    """A True in every row, and a False where there is room."""
    mask = torch.rand(shape) < 0.5
    mask[..., 0] = True
    return mask


# ---- masks ---------------------------------------------------------------------------------------


def test_causal_mask_entry_by_entry(multihead):
    for q_len, k_len in itertools.product(range(1, 6), range(1, 7)):
        mask = multihead.causal_mask(q_len, k_len)
        assert mask.shape == (q_len, k_len) and mask.dtype == torch.bool
        for i, j in itertools.product(range(q_len), range(k_len)):
            # counted from the end, the key comes no later than the query
            assert mask[i, j] == (k_len - 1 - j >= q_len - 1 - i)
    assert torch.equal(multihead.causal_mask(4), torch.ones(4, 4).tril().bool())


def test_padding_mask_entry_by_entry(multihead):
    for k_len in (1, 4):
        lengths = torch.tensor([k_len, 0, 1, max(1, k_len - 1)])
        mask = multihead.padding_mask(lengths, k_len)
        assert mask.shape == (4, 1, 1, k_len) and mask.dtype == torch.bool
        assert mask[:, 0, 0].tolist() == [[j < n for j in range(k_len)] for n in lengths]


# ---- attention -----------------------------------------------------------------------------------


def by_loop(q, k, v, mask):
    """One query at a time, in Python's floats, over what the mask allows."""
    lead, (Tq, d), Tk = q.shape[:-2], q.shape[-2:], k.shape[-2]
    mask = torch.ones(Tq, Tk).bool() if mask is None else mask
    mask = mask.expand(*lead, Tq, Tk)
    out, weights = torch.zeros(*lead, Tq, v.shape[-1]), torch.zeros(*lead, Tq, Tk)
    for where in itertools.product(*(range(size) for size in (*lead, Tq))):
        rest = where[:-1]
        scores = {
            j: math.fsum((q[where] * k[*rest, j]).tolist()) / math.sqrt(d)
            for j in range(Tk)
            if mask[*where, j]
        }
        top = max(scores.values(), default=0.0)
        total = math.fsum(math.exp(score - top) for score in scores.values())
        for j, score in scores.items():
            weights[*where, j] = math.exp(score - top) / total
            out[where] += weights[*where, j] * v[*rest, j]
    return out, weights


@pytest.mark.parametrize("size", SIZES)
def test_attention_query_by_query(multihead, size):
    q, k, v = drawn(*size)
    lead, Tq, Tk, _, _ = size
    empty = torch.rand(Tq, Tk) < 0.5
    empty[-1] = False
    for mask in (None, some_mask(Tk), some_mask(Tq, Tk), empty, torch.rand(*lead, 1, Tk) < 0.4):
        before = [tensor.clone() for tensor in (q, k, v)]
        close(multihead.scaled_dot_product_attention(q, k, v, mask), by_loop(q, k, v, mask))
        assert all(map(torch.equal, before, (q, k, v)))


@pytest.mark.parametrize("shape", [(4, 5), (5,), (2, 1, 1, 5), (2, 3, 4, 5), (3, 1, 5), (1, 5)])
def test_attention_as_the_library_has_it(multihead, shape):
    q, k, v = drawn((2, 3), 4, 5, 6, 2)
    mask = some_mask(*shape)
    out, weights = multihead.scaled_dot_product_attention(q, k, v, mask)
    close(out, F.scaled_dot_product_attention(q, k, v, mask.expand(2, 3, 4, 5)))
    assert weights[~mask.expand(2, 3, 4, 5)].count_nonzero() == 0


def test_large_scores(multihead):
    q, k, v = drawn((3,), 4, 5, 6, 2)
    for scale in (1e2, 1e4):
        close(
            multihead.scaled_dot_product_attention(scale * q, k, v),
            by_loop(scale * q, k, v, None),
        )


MASKS = {
    "none": None,
    "rows": torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0]]).bool(),
    "samples": torch.tensor([[[1, 1, 0, 1]], [[0, 0, 0, 0]]]).bool(),
    "all": torch.zeros(1, 1, 1).bool(),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_attention_gradcheck(multihead, mask):
    given = [tensor.requires_grad_() for tensor in drawn((2,), 3, 4, 3, 2)]

    def attend(q, k, v):
        return multihead.scaled_dot_product_attention(q, k, v, mask)

    assert torch.autograd.gradcheck(attend, given)
    attend(*given)[0].sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in given)


# ---- backward ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_backward_is_autograd_s(multihead, size):
    """Of the library's own attention, without a mask and with masks of several shapes."""
    lead, Tq, Tk, _, dv = size
    for mask in (None, some_mask(Tq, Tk), some_mask(*lead, 1, Tk), some_mask(Tk)):
        given = [tensor.requires_grad_() for tensor in drawn(*size)]
        dout = torch.randn(*lead, Tq, dv)
        full = None if mask is None else mask.expand(*lead, Tq, Tk)
        due = torch.autograd.grad(F.scaled_dot_product_attention(*given, full), given, dout)
        with torch.no_grad():
            found = multihead.attention_backward(dout, *given, mask)
        close(tuple(found), due)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_backward_with_empty_rows(multihead, mask):
    """The differences of out, computed by loops."""
    given = drawn((2,), 3, 4, 3, 2)
    dout = torch.randn(2, 3, 2)
    with torch.no_grad():
        found = multihead.attention_backward(dout, *given, mask)
    for place, gradient in enumerate(found):
        assert gradient.isfinite().all()
        direction, eps = torch.randn(gradient.shape), 1e-5
        above, below = (
            (
                by_loop(
                    *given[:place], given[place] + s * eps * direction, *given[place + 1 :], mask
                )[0]
            )
            for s in (1, -1)
        )
        slope = ((above - below) * dout).sum() / (2 * eps)
        torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-7, atol=1e-8)
    if mask is not None and mask.shape == (3, 4):
        assert found[0][:, 1].count_nonzero() == 0


# ---- heads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("N, T, h, d", [(3, 4, 2, 5), (1, 4, 3, 2), (2, 1, 2, 3), (2, 3, 1, 4)])
def test_heads_number_by_number(multihead, N, T, h, d):
    x = torch.randn(N, T, h * d)
    heads = multihead.split_heads(x, h)
    assert heads.shape == (N, h, T, d)
    for n, i, t, c in itertools.product(range(N), range(h), range(T), range(d)):
        assert heads[n, i, t, c] == x[n, t, i * d + c]
    assert torch.equal(multihead.merge_heads(heads), x)
    assert torch.equal(multihead.merge_heads(heads.contiguous()), x)


# ---- MultiHeadAttention --------------------------------------------------------------------------


def library(made, E, h, bias=True):
    """torch's own module with the same parameters."""
    other = nn.MultiheadAttention(E, h, bias=bias, batch_first=True)
    parts = [made.q_proj, made.k_proj, made.v_proj]
    with torch.no_grad():
        other.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        if bias:
            other.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    other.out_proj.load_state_dict(made.o_proj.state_dict())
    return other


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "N, Tq, Tk, E, h",
    [
        (3, 4, 5, 6, 2),
        (1, 3, 2, 8, 4),
        (2, 1, 3, 4, 2),
        (2, 3, 1, 6, 3),
        (2, 3, 4, 5, 1),
        (2, 2, 3, 3, 3),
    ],
)
def test_multihead_as_the_library_has_it(multihead, N, Tq, Tk, E, h, bias):
    made = random(multihead.MultiHeadAttention(E, h, bias=bias))
    other = library(made, E, h, bias)
    query, key, value = torch.randn(N, Tq, E), torch.randn(N, Tk, E), torch.randn(N, Tk, E)
    close(made(query), other(query, query, query)[0])
    close(made(query, key), other(query, key, key)[0])
    close(made(query, key, value), other(query, key, value)[0])
    mask = some_mask(N, 1, Tq, Tk)
    flat = mask.expand(-1, h, -1, -1).reshape(N * h, Tq, Tk)
    close(made(query, key, value, mask), other(query, key, value, attn_mask=~flat)[0])
    each = some_mask(N, h, Tq, Tk)
    due = other(query, key, value, attn_mask=~each.reshape(N * h, Tq, Tk))[0]
    close(made(query, key, value, each), due)
    real = some_mask(N, Tk)
    due = other(query, key, key, key_padding_mask=~real)[0]
    close(made(query, key, mask=real[:, None, None]), due)


def test_multihead_gradients_are_the_library_s(multihead):
    made = random(multihead.MultiHeadAttention(6, 2))
    other = library(made, 6, 2)
    given = [torch.randn(2, 3, 6, requires_grad=True) for _ in range(3)]
    dout = torch.randn(2, 3, 6)
    found = torch.autograd.grad(made(*given), [*given, *made.parameters()], dout)
    due = torch.autograd.grad(other(*given)[0], given, dout)
    close(found[:3], due)
    loss = (made(*given) * dout).sum()
    loss.backward()
    (other(*given)[0] * dout).sum().backward()
    parts = [made.q_proj, made.k_proj, made.v_proj]
    close(torch.cat([part.weight.grad for part in parts]), other.in_proj_weight.grad)
    close(torch.cat([part.bias.grad for part in parts]), other.in_proj_bias.grad)
    close(made.o_proj.weight.grad, other.out_proj.weight.grad)


def test_a_ragged_batch_is_the_sequences_it_is_made_of(multihead):
    made = random(multihead.MultiHeadAttention(6, 3))
    lengths, T = [3, 0, 5, 1], 5
    x = torch.randn(4, T, 6)
    real = multihead.padding_mask(torch.tensor(lengths), T)
    x[~real[:, 0, 0]] = 1e4
    batch = made(x, mask=multihead.causal_mask(T) & real)
    close(batch[1], made.o_proj.bias.expand(T, 6))
    for n, length in enumerate(lengths):
        if length:
            alone = made(x[n : n + 1, :length], mask=multihead.causal_mask(length))
            close(batch[n, :length], alone[0])


@pytest.mark.parametrize("h, h_kv", [(6, 1), (6, 2), (6, 3), (4, 4)])
def test_grouped_heads_one_by_one(multihead, h, h_kv):
    """Each head by itself, with the rows of the weights that are its own."""
    N, Tq, Tk, d = 2, 3, 4, 2
    E = h * d
    made = random(multihead.MultiHeadAttention(E, h, h_kv))
    query, key, value = torch.randn(N, Tq, E), torch.randn(N, Tk, E), torch.randn(N, Tk, E)
    mask = some_mask(Tq, Tk)
    heads = []
    for i in range(h):
        mine, shared = (slice(n * d, n * d + d) for n in (i, i // (h // h_kv)))
        q = query @ made.q_proj.weight[mine].T + made.q_proj.bias[mine]
        k = key @ made.k_proj.weight[shared].T + made.k_proj.bias[shared]
        v = value @ made.v_proj.weight[shared].T + made.v_proj.bias[shared]
        heads.append(by_loop(q, k, v, mask)[0])
    due = torch.cat(heads, -1) @ made.o_proj.weight.T + made.o_proj.bias
    close(made(query, key, value, mask), due)


def test_sizes_that_do_not_divide(multihead):
    for wrong in ((6, 4), (6, 3, 2)):
        with pytest.raises(ValueError, match="num"):
            multihead.MultiHeadAttention(*wrong)
    with pytest.raises(ValueError, match="num_heads"):
        multihead.MultiHeadLatentAttention(6, 4, 2)


# ---- cache ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("h_kv", [1, 2, 4])
@pytest.mark.parametrize("chunks", [(1, 1, 1, 1, 1), (3, 2), (5,), (2, 1, 2)])
def test_with_a_cache_the_steps_are_the_whole(multihead, h_kv, chunks, grad):
    made = random(multihead.MultiHeadAttention(8, 4, h_kv))
    x = torch.randn(2, 5, 8)
    with torch.set_grad_enabled(grad):
        whole = made(x, mask=multihead.causal_mask(5))
        cache, outs = multihead.KVCache(), []
        assert len(cache) == 0
        for part in x.split(chunks, dim=1):
            mask = multihead.causal_mask(part.shape[1], len(cache) + part.shape[1])
            outs.append(made(part, mask=mask, cache=cache))
        assert len(cache) == 5
        close(torch.cat(outs, dim=1), whole)
    if grad:
        dout = torch.randn(2, 5, 8)
        found = torch.autograd.grad(torch.cat(outs, dim=1), list(made.parameters()), dout)
        close(found, torch.autograd.grad(whole, list(made.parameters()), dout))


@pytest.mark.parametrize("grad", [True, False])
def test_what_a_cache_returned_stays_as_it_was(multihead, grad):
    cache, other = multihead.KVCache(), multihead.KVCache()
    k, v = (torch.randn(2, 3, 6, 4, requires_grad=grad) for _ in range(2))
    returned, held = [], 0
    for size in (2, 1, 3):
        now = slice(held, held + size)
        held += size
        returned.append(cache.append(k[:, :, now], v[:, :, now]))
        assert len(cache) == held and len(other) == 0
    for (keys, values), end in zip(returned, (2, 3, 6), strict=True):
        assert torch.equal(keys, k[:, :, :end]) and torch.equal(values, v[:, :, :end])


@pytest.mark.parametrize(
    "kind, h, more",
    [("mha", 4, {}), ("gqa", 4, {"num_kv_heads": 2}), ("mqa", 4, {}), ("mla", 4, {"kv_rank": 5})],
)
def test_bytes_are_those_of_the_tensors(multihead, kind, h, more):
    N, T, d = 3, 7, 2
    x = torch.randn(N, T, h * d)
    if kind == "mla":
        _, latents = multihead.MultiHeadLatentAttention(h * d, h, 5)(x)
        held = latents.nbytes
    else:
        cache = multihead.KVCache()
        heads = {"mha": None, "mqa": 1, "gqa": 2}[kind]
        multihead.MultiHeadAttention(h * d, h, heads)(x[:, :-1], cache=cache)
        part = torch.zeros(N, heads or h, 1, d)
        held = sum(tensor.nbytes for tensor in cache.append(part, part))
    assert multihead.kv_cache_bytes(kind, N, T, h, d, 8, **more) == held


def test_bytes_refuses(multihead):
    for kind, more in (
        ("gqa", {"kv_rank": 2}),
        ("mla", {"num_kv_heads": 2}),
        ("mhla", {}),
        ("", {}),
    ):
        with pytest.raises(ValueError, match=r"kind|num_kv_heads|kv_rank"):
            multihead.kv_cache_bytes(kind, 1, 2, 3, 4, 2, **more)


# ---- latent attention ----------------------------------------------------------------------------


@pytest.mark.parametrize("N, T, E, h, r", [(2, 5, 6, 2, 4), (1, 3, 4, 4, 1), (2, 1, 6, 3, 8)])
def test_latent_head_by_head(multihead, N, T, E, h, r):
    """With products of the weights for keys and values, each head by itself."""
    made = random(multihead.MultiHeadLatentAttention(E, h, r))
    x, before, d = torch.randn(N, T, E), torch.randn(N, 2, r), E // h
    latents = torch.cat([before, x @ made.kv_down.weight.T], dim=1)
    mask = torch.rand(T, T + 2) < 0.5
    mask[-1] = False
    heads = []
    for i in range(h):
        mine = slice(i * d, i * d + d)
        k, v = latents @ made.k_up.weight[mine].T, latents @ made.v_up.weight[mine].T
        heads.append(by_loop(x @ made.q_proj.weight[mine].T, k, v, mask)[0])
    out, found = made(x, mask, before)
    close(found, latents)
    close(out, torch.cat(heads, -1) @ made.o_proj.weight.T)


def test_latent_steps_are_the_whole(multihead):
    made = random(multihead.MultiHeadLatentAttention(6, 3, 4))
    x = torch.randn(2, 5, 6)
    whole, of_whole = made(x, multihead.causal_mask(5))
    latents, outs, held = None, [], 0
    for part in x.split((1, 3, 1), dim=1):
        held += part.shape[1]
        out, latents = made(part, multihead.causal_mask(part.shape[1], held), latents)
        outs.append(out)
    close(torch.cat(outs, dim=1), whole)
    close(latents, of_whole)


def test_latent_gradcheck(multihead):
    made = random(multihead.MultiHeadLatentAttention(4, 2, 3))
    given = torch.randn(1, 2, 4, requires_grad=True), torch.randn(1, 2, 3, requires_grad=True)
    mask = multihead.causal_mask(2, 4)
    assert torch.autograd.gradcheck(lambda x, before: made(x, mask, before), given)


# ---- dtype and device ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtype_is_kept(multihead, dtype):
    q, k, v = (tensor.to(dtype) for tensor in drawn((2, 3), 4, 5, 6, 2))
    mask = torch.rand(4, 5) < 0.5
    results = [*multihead.scaled_dot_product_attention(q, k, v, mask)]
    results += multihead.attention_backward(torch.randn(2, 3, 4, 2).to(dtype), q, k, v, mask)
    made = multihead.MultiHeadAttention(8, 4, 2).to(dtype)
    x = torch.randn(2, 4, 8).to(dtype)
    results += [made(x), made(x, mask=multihead.causal_mask(4), cache=multihead.KVCache())]
    results += multihead.MultiHeadLatentAttention(8, 2, 3).to(dtype)(x)
    assert {result.dtype for result in results} == {dtype}


def test_everything_stays_on_the_device(multihead):
    """On meta; boolean indices, which look at values, cannot be tried there."""
    q, k, v = (tensor.to("meta") for tensor in drawn((2, 3), 4, 5, 6, 2))
    lengths = torch.tensor([3, 1], device="meta")
    mask = multihead.padding_mask(lengths, 5)
    assert mask.device.type == multihead.causal_mask(2, 3, "meta").device.type == "meta"
    for given in ((), (mask,)):
        try:
            results = multihead.scaled_dot_product_attention(q, k, v, *given)
        except NotImplementedError as error:
            assert "nonzero" in str(error)
            continue
        assert {result.device.type for result in results} == {"meta"}
