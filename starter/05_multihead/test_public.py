"""Public tests for multi-head attention, in the order of the tasks. Run them here:

    softmark check                        the first thing to look at, with hints
    python -m pytest -x test_public.py    the same tests without the hints, up to the first that
                                          fails; extension and bonus not yet begun count as failures

"NotImplementedError: split_heads" says that split_heads is still to be written. The tests are yours to
read and to add to. They are fewer than the graders', and use other numbers. Core tasks come first (1 to
5), then grouped heads, cache and bytes (extension, 7 and 8) and latent attention (bonus, 9). They
compare with torch's own attention and with autograd, which your multihead.py may not use.
"""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from softmark.compare import check_close
from torch.nn import functional as F  # noqa: N812

sys.path.insert(0, str(Path(__file__).parent))  # the multihead.py beside this file

import multihead

LN2, LN3 = math.log(2), math.log(3)


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
    check_close(actual, np.array(expected, dtype=float), name, axes)


def check_mask(actual, expected):
    """Compare a mask with one that is written as rows of 0 and 1."""
    due = torch.tensor(expected).bool()
    assert actual.dtype == torch.bool, f"The mask is of dtype {actual.dtype}; it should be bool."
    assert actual.shape == due.shape, (
        f"The mask has shape {tuple(actual.shape)}, not {tuple(due.shape)}."
    )
    assert torch.equal(actual, due), f"The mask is\n{actual.int()}\nand should be\n{due.int()}"


def random(module):
    """The module with random parameters, biases included."""
    with torch.autograd.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module


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


# ---- 1. masks ------------------------------------------------------------------------------------


def test_causal_mask_by_hand():
    """As many keys as queries: query i sees the keys 0 to i."""
    check_mask(multihead.causal_mask(3), [[1, 0, 0], [1, 1, 0], [1, 1, 1]])


def test_causal_mask_is_aligned_at_the_end():
    """The last query stands beside the last key."""
    check_mask(multihead.causal_mask(2, 4), [[1, 1, 1, 0], [1, 1, 1, 1]])
    check_mask(multihead.causal_mask(3, 2), [[0, 0], [1, 0], [1, 1]])


def test_padding_mask_by_hand():
    """Lengths 2, 0 and 3 of 4."""
    due = [[[[1, 1, 0, 0]]], [[[0, 0, 0, 0]]], [[[1, 1, 1, 0]]]]
    check_mask(multihead.padding_mask(torch.tensor([2, 0, 3]), 4), due)


def test_masks_are_made_on_the_device():
    """On the device that is asked for, or that of the lengths."""
    made = multihead.causal_mask(2, 3, device="meta")
    assert made.device.type == "meta", f"causal_mask is on {made.device}; meta was asked for."
    lengths = torch.tensor([1, 2], device="meta")
    made = on_meta(lambda: multihead.padding_mask(lengths, 3))
    assert made.device.type == "meta", f"padding_mask is on {made.device}, the lengths on meta."


# ---- 2. scaled_dot_product_attention -------------------------------------------------------------


def by_hand():
    """The example of the handout: d = 4, scores 0, ln 2 and ln 3 after scaling."""
    q = torch.tensor([[2.0, 0, 0, 0]])
    k = torch.tensor([[0.0, 1, 0, 5], [LN2, 3, 0, 0], [LN3, 0, -2, 1]])
    return q, k, torch.tensor([[6.0, 0], [0, 6], [6, 6]])


def test_attention_by_hand():
    """Weights 1/6, 2/6 and 3/6; out (4, 5)."""
    out, weights = multihead.scaled_dot_product_attention(*by_hand())
    check(weights, [[1 / 6, 2 / 6, 3 / 6]], "weights", ("Tq", "Tk"))
    check(out, [[4, 5]], "out", ("Tq", "dv"))


def test_attention_mask_by_hand():
    """Without the second key: 1/4, 0 and 3/4."""
    mask = torch.tensor([True, False, True])
    out, weights = multihead.scaled_dot_product_attention(*by_hand(), mask)
    check(weights, [[1 / 4, 0, 3 / 4]], "weights", ("Tq", "Tk"))
    check(out, [[6, 4.5]], "out", ("Tq", "dv"))


@pytest.mark.parametrize("shape", [(4, 5), (2, 1, 1, 5), (3, 1, 5), (2, 3, 4, 5)])
def test_attention_as_torch_has_it(shape):
    """The library's own function, with masks that broadcast."""
    q, k, v = torch.randn(2, 3, 4, 6), torch.randn(2, 3, 5, 6), torch.randn(2, 3, 5, 2)
    mask = torch.rand(shape) < 0.6
    mask[..., 2] = True
    out, weights = multihead.scaled_dot_product_attention(q, k, v, mask)
    due = F.scaled_dot_product_attention(q, k, v, mask)
    check(out, due, "out", ("N", "h", "Tq", "dv"))
    check(weights.sum(-1), torch.ones(2, 3, 4), "the sums of the weights", ("N", "h", "Tq"))
    assert not weights[~mask.expand(2, 3, 4, 5)].any(), "Behind the mask weights must be exactly 0."


def test_attention_to_nothing():
    """A row without a True is 0, and so is its gradient."""
    q, k, v = (tensor.requires_grad_() for tensor in by_hand())
    out, weights = multihead.scaled_dot_product_attention(q, k, v, torch.zeros(1, 3).bool())
    assert not out.any() and not weights.any(), f"out {out} and weights {weights} should be 0."
    (out.sum() + weights.sum()).backward()
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        assert not tensor.grad.any(), f"The gradient of {name} should be 0; it is {tensor.grad}."


def test_attention_far_out():
    """Scores of 1e4 either way, in rows of very different size."""
    q = torch.tensor([[1e4], [-1e4], [0.0]])
    k = torch.tensor([[1.0], [1 - LN3 / 1e4]])
    _, weights = multihead.scaled_dot_product_attention(q, k, torch.ones(2, 1))
    due = np.array([[0.75, 0.25], [0.25, 0.75], [0.5, 0.5]])
    check_close(weights.numpy(), due, "weights", ("Tq", "Tk"), rtol=1e-9)


def test_attention_gradients():
    """Autograd comes through, also beside a row without a True."""
    mask = torch.tensor([[True, True, False], [False, False, False]])
    given = [torch.randn(2, 4), torch.randn(3, 4), torch.randn(3, 2)]
    given = [tensor.requires_grad_() for tensor in given]
    assert torch.autograd.gradcheck(
        lambda q, k, v: multihead.scaled_dot_product_attention(q, k, v, mask), given
    )


# ---- 3. attention_backward -----------------------------------------------------------------------


def test_backward_by_hand():
    """The example of the handout."""
    dout = torch.tensor([[1.0, 0]])
    dq, dk, dv = multihead.attention_backward(dout, *by_hand())
    check(dv, [[1 / 6, 0], [2 / 6, 0], [3 / 6, 0]], "dv", ("Tk", "dv"))
    check(dk, [[1 / 3, 0, 0, 0], [-4 / 3, 0, 0, 0], [1, 0, 0, 0]], "dk", ("Tk", "d"))
    due = [-2 / 3 * LN2 + LN3 / 2, 1 / 6 - 2, -1, 5 / 6 + 1 / 2]
    check(dq, [due], "dq", ("Tq", "d"))


@pytest.mark.parametrize("shape", [None, (4, 5), (2, 1, 1, 5)])
def test_backward_as_autograd_has_it(shape):
    """Autograd's gradients of torch's own function, without a mask and with two."""
    mask = None
    if shape:
        mask = torch.rand(shape) < 0.6
        mask[..., 2] = True
    given = [torch.randn(2, 3, 4, 6), torch.randn(2, 3, 5, 6), torch.randn(2, 3, 5, 2)]
    dout = torch.randn(2, 3, 4, 2)
    with torch.autograd.no_grad():
        found = multihead.attention_backward(dout, *given, mask)
    given = [tensor.requires_grad_() for tensor in given]
    due = torch.autograd.grad(F.scaled_dot_product_attention(*given, mask), given, dout)
    for name, one, other in zip(("dq", "dk", "dv"), found, due, strict=True):
        check(one, other, name, ("N", "h", "T", "d"))


def test_backward_of_nothing():
    """A row without a True gives nothing to dq, dk or dv."""
    given = torch.randn(2, 2), torch.randn(2, 4), torch.randn(3, 4), torch.randn(3, 2)
    mask = torch.tensor([[True, True, True], [False, False, False]])
    dq, dk, dv = multihead.attention_backward(*given, mask)
    due = multihead.attention_backward(given[0][:1], given[1][:1], *given[2:])
    check(dq[:1], due[0], "dq", ("Tq", "d"))
    assert not dq[1].any(), f"dq of a row without a True should be 0; it is {dq[1]}."
    check(dk, due[1], "dk", ("Tk", "d"))
    check(dv, due[2], "dv", ("Tk", "dv"))


# ---- 4. heads ------------------------------------------------------------------------------------


def test_split_by_hand():
    """Two tokens of six numbers, in three heads."""
    x = torch.tensor([[[0.0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]])
    due = [[[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]]]
    check(multihead.split_heads(x, 3), due, "heads", ("N", "h", "T", "d"))


def test_merge_is_the_inverse():
    """What split_heads made is put together again."""
    x = torch.randn(2, 5, 12)
    for h in (1, 3, 12):
        merged = multihead.merge_heads(multihead.split_heads(x, h))
        check(merged, x, "merged", ("N", "T", "E"))


# ---- 5. MultiHeadAttention -----------------------------------------------------------------------


def library(made, h):
    """torch's own module with the same parameters and h heads."""
    other = torch.nn.MultiheadAttention(made.o_proj.in_features, h, batch_first=True)
    parts = [made.q_proj, made.k_proj, made.v_proj]
    with torch.autograd.no_grad():
        other.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        other.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        other.out_proj.load_state_dict(made.o_proj.state_dict())
    return other


def test_multihead_as_torch_has_it():
    """Self-attention, and keys and values of their own; torch's mask is True where one may not look."""
    made = random(multihead.MultiHeadAttention(12, 3))
    x, key, value = torch.randn(2, 4, 12), torch.randn(2, 5, 12), torch.randn(2, 5, 12)
    due, _ = library(made, 3)(x, x, x)
    check(made(x), due, "out", ("N", "Tq", "E"))
    due, _ = library(made, 3)(x, key, key)
    check(made(x, key), due, "out with keys", ("N", "Tq", "E"))
    mask = torch.rand(4, 5) < 0.5
    mask[:, 1] = True
    due, _ = library(made, 3)(x, key, value, attn_mask=~mask)
    check(made(x, key, value, mask), due, "out with keys, values and a mask", ("N", "Tq", "E"))


def test_multihead_ragged():
    """A ragged batch gives what its sequences give one by one; with nothing to see, o_proj's bias."""
    made = random(multihead.MultiHeadAttention(6, 2))
    lengths = [3, 0, 5]
    x = torch.randn(3, 5, 6)
    real = torch.arange(5) < torch.tensor(lengths)[:, None]
    x[~real] = 1e4
    batch = made(x, mask=real[:, None, None])
    for n, length in enumerate(lengths):
        if length == 0:
            due = made.o_proj.bias.expand(5, 6)
            check(batch[n], due, "out of an empty sequence", ("Tq", "E"))
        else:
            alone = made(x[n : n + 1, :length])[0]
            check(batch[n, :length], alone, f"out of sequence {n}", ("Tq", "E"))


def test_multihead_does_not_see_the_future():
    """Another last token changes the last output alone."""
    made = random(multihead.MultiHeadAttention(6, 3))
    x = torch.randn(1, 4, 6)
    other = torch.cat([x[:, :3], torch.randn(1, 1, 6)], dim=1)
    mask = torch.ones(4, 4).tril().bool()
    one, two = made(x, mask=mask), made(other, mask=mask)
    check(one[:, :3], two[:, :3], "out before the last token", ("N", "Tq", "E"))
    assert not torch.allclose(one[:, 3], two[:, 3]), "The last output ignores its own token."


def test_multihead_gradients():
    """Gradients reach the inputs and every parameter, but for one that has no influence."""
    made = random(multihead.MultiHeadAttention(4, 2))
    given = [torch.randn(2, 3, 4, requires_grad=True) for _ in range(3)]
    made(*given).square().sum().backward()
    for name, tensor in (
        *zip(("query", "key", "value"), given, strict=True),
        *made.named_parameters(),
    ):
        if name != "k_proj.bias":  # see the questions
            assert tensor.grad is not None and tensor.grad.any(), f"{name} gets no gradient."


# ---- everything ----------------------------------------------------------------------------------


def test_inputs_are_left_alone():
    """No call changes what it is given."""
    made = random(multihead.MultiHeadAttention(4, 2))
    mask = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    given = {"dout": torch.randn(3, 2), "q": torch.randn(3, 4), "k": torch.randn(3, 4)}
    given |= {"v": torch.randn(3, 2), "mask": mask, "x": torch.randn(2, 3, 4)}
    before = {name: tensor.clone() for name, tensor in given.items()}
    dout, q, k, v, mask, x = given.values()
    multihead.scaled_dot_product_attention(q, k, v, mask)
    multihead.attention_backward(dout, q, k, v, mask)
    made(x, mask=mask)
    for name, tensor in given.items():
        assert torch.equal(tensor, before[name]), f"{name} was changed in place."


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtype_and_device_are_kept(dtype):
    """float32 in, float32 out; on the device meta, which has no values, everything is made there."""
    mask = torch.tensor([[True, True, False], [False, False, False]])
    q, k, v = (torch.ones(2, size, 4, dtype=dtype) for size in (2, 3, 3))
    for result in multihead.scaled_dot_product_attention(q, k, v, mask):
        assert result.dtype == dtype, f"A result is {result.dtype}, the inputs {dtype}."
    for result in multihead.attention_backward(q, q, k, v, mask):
        assert result.dtype == dtype, f"A gradient is {result.dtype}, the inputs {dtype}."
    q, k, v, mask = (tensor.to("meta") for tensor in (q, k, v, mask))
    out, _ = on_meta(lambda: multihead.scaled_dot_product_attention(q, k, v, mask))
    assert out.device.type == "meta", f"out is on {out.device}, the inputs on meta."


# ---- 7. extension: grouped heads and the cache ---------------------------------------------------


@pytest.mark.parametrize("h_kv", [1, 2])
def test_extension_grouped_heads(h_kv):
    """Extension: query head i reads the head i // (h / h_kv) of keys and values."""
    made = random(multihead.MultiHeadAttention(12, 4, h_kv))
    full = multihead.MultiHeadAttention(12, 4)
    state = made.state_dict()
    for name in ("k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias"):
        heads = state[name].reshape(h_kv, 3, *state[name].shape[1:])
        state[name] = torch.cat([heads[i // (4 // h_kv)] for i in range(4)])
    full.load_state_dict(state)
    x = torch.randn(2, 5, 12)
    check(made(x), full(x), "out", ("N", "Tq", "E"))


def test_extension_cache_by_hand():
    """Extension: what append returns, and the length; two caches share nothing."""
    cache, other = multihead.KVCache(), multihead.KVCache()
    assert len(cache) == 0, f"A new cache holds {len(cache)} tokens."
    k, v = torch.randn(2, 1, 5, 3), torch.randn(2, 1, 5, 3)
    held = 0
    for size in (2, 1, 2):
        now = slice(held, held + size)
        held += size
        keys, values = cache.append(k[:, :, now], v[:, :, now])
        check(keys, k[:, :, :held], "keys", ("N", "h_kv", "T", "d"))
        check(values, v[:, :, :held], "values", ("N", "h_kv", "T", "d"))
        assert len(cache) == held, f"After {held} tokens the length is {len(cache)}."
    assert len(other) == 0, "What was put into one cache is found in another."


@pytest.mark.parametrize("h_kv", [1, 4])
def test_extension_step_by_step(h_kv):
    """Extension: with a cache, one token after the other, what all of them give at once."""
    made = random(multihead.MultiHeadAttention(8, 4, h_kv))
    x = torch.randn(2, 5, 8)
    whole = made(x, mask=torch.ones(5, 5).tril().bool())
    cache = multihead.KVCache()
    steps = [made(x[:, t : t + 1], cache=cache) for t in range(5)]
    check(torch.cat(steps, dim=1), whole, "out of the steps", ("N", "Tq", "E"))


# ---- 8. extension: kv_cache_bytes ----------------------------------------------------------------


def test_extension_bytes_by_hand():
    """Extension: the table of the handout, for one token of one sequence."""
    sizes = 1, 1, 32, 128, 2
    found = multihead.kv_cache_bytes
    assert found("mha", *sizes) == 16384
    assert found("gqa", *sizes, num_kv_heads=8) == 4096
    assert found("mqa", *sizes) == 512
    assert found("mla", *sizes, kv_rank=512) == 1024
    for kind in ("gqa", "mla", "none"):
        with pytest.raises(ValueError, match=r"kind|num_kv_heads|kv_rank"):
            found(kind, *sizes)


# ---- 9. bonus: MultiHeadLatentAttention ----------------------------------------------------------


def test_bonus_latent_is_attention_with_products_for_weights():
    """Bonus: keys and values by k_up of kv_down, and v_up of kv_down."""
    made = random(multihead.MultiHeadLatentAttention(6, 2, 4))
    full = multihead.MultiHeadAttention(6, 2, bias=False)
    down = made.kv_down.weight
    with torch.autograd.no_grad():
        full.q_proj.weight.copy_(made.q_proj.weight)
        full.k_proj.weight.copy_(made.k_up.weight @ down)
        full.v_proj.weight.copy_(made.v_up.weight @ down)
        full.o_proj.weight.copy_(made.o_proj.weight)
    x, mask = torch.randn(2, 5, 6), torch.ones(5, 5).tril().bool()
    out, latents = made(x, mask)
    check(out, full(x, mask=mask), "out", ("N", "T", "E"))
    check(latents, x @ down.T, "latents", ("N", "T", "r"))


def test_bonus_latent_step_by_step():
    """Bonus: with the latents of before, what all tokens give at once."""
    made = random(multihead.MultiHeadLatentAttention(6, 3, 2))
    x = torch.randn(2, 4, 6)
    whole, _ = made(x, torch.ones(4, 4).tril().bool())
    latents, steps = None, []
    for t in range(4):
        out, latents = made(x[:, t : t + 1], latents=latents)
        steps.append(out)
    check(torch.cat(steps, dim=1), whole, "out of the steps", ("N", "T", "E"))
