"""Public tests for positions, in the order of the tasks. Run them here:

    softmark check                        the first thing to look at, with hints
    python -m pytest -x test_public.py    the same tests without the hints, up to the first that
                                          fails; extension and bonus not yet begun count as failures

"NotImplementedError: apply_rope" says that apply_rope is still to be written. The tests are yours to
read and to add to. They are fewer than the graders', and use other numbers. Core tasks come first (1 to
4), then the half layout and ALiBi (extension), and longer contexts (bonus).
"""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from softmark.compare import check_close

sys.path.insert(0, str(Path(__file__).parent))  # the positions.py beside this file

import positions

SIN, COS = math.sin, math.cos


@pytest.fixture(autouse=True)
def float64():
    """As the graders do: the default dtype is float64, and draws come from one seed."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(1)
    yield
    torch.set_default_dtype(before)


def check(actual, expected, name, axes=()):
    """Compare a tensor or a number with a tensor, a list or a number."""
    if isinstance(actual, torch.Tensor):
        actual = actual.detach().numpy()
    if isinstance(expected, torch.Tensor):
        expected = expected.detach().numpy()
    number = isinstance(expected, float)
    check_close(actual, expected if number else np.array(expected, dtype=float), name, axes)


def near(actual, expected, most, name):
    """Every entry is off by ``most`` at the utmost."""
    off = (actual.double() - torch.tensor(expected)).abs().max().item()
    assert off <= most, f"{name} is off by {off:.1e}: are its angles computed in float64?"


def on_meta(call):
    """What ``call`` gives on the device meta, where tensors have shapes and no values.

    What is made on the CPU by mistake does not fit in there. Code that looks at values is right and
    cannot be tried like this.
    """
    try:
        return call()
    except (NotImplementedError, RuntimeError) as error:
        if not any(text in str(error) for text in ("nonzero", "no data", "on meta tensors")):
            raise
        pytest.skip("your code looks at values, so it cannot be tried without CUDA")


# ---- 1. sinusoidal_encoding ----------------------------------------------------------------------


def test_sinusoid_by_hand():
    """d_model = 4 and base 100: frequencies 1 and 1/10."""
    table = positions.sinusoidal_encoding(3, 4, base=100.0)
    rows = [[SIN(p), COS(p), SIN(p / 10), COS(p / 10)] for p in range(3)]
    check(table, rows, "encoding", ("T", "E"))


def test_sinusoid_default_base():
    """d_model = 8 and base 10000: frequencies 1, 1/10, 1/100 and 1/1000."""
    row = positions.sinusoidal_encoding(6, 8)[5]
    due = [f(5 / 10**i) for i in range(4) for f in (SIN, COS)]
    check(row, due, "row 5 of the encoding", ("E",))


def test_sinusoid_shift():
    """The product of two rows depends on how far they are apart, and on nothing else."""
    table = positions.sinusoidal_encoding(20, 6, 50.0)
    products = table @ table.T
    for k in range(1, 5):
        along = products.diagonal(k)
        check(along, along[:1].expand_as(along), f"the product of rows {k} apart", ("T",))


def test_sinusoid_far_out_in_float32():
    """Where the default dtype is float32 the table is rounded to it, and the angles are not."""
    torch.set_default_dtype(torch.float32)
    table = positions.sinusoidal_encoding(8200, 8)
    assert table.dtype == torch.float32, f"The table is {table.dtype}, not the default dtype."
    torch.set_default_dtype(torch.float64)
    due = [f(8199 / 10**i) for i in range(4) for f in (SIN, COS)]
    near(table[8199], due, 1e-7, "row 8199")


def test_sinusoid_odd_size():
    """ValueError for an odd d_model, and it says so."""
    with pytest.raises(ValueError, match="d_model"):
        positions.sinusoidal_encoding(4, 3)


# ---- 2. LearnedPositions -------------------------------------------------------------------------


def learned():
    """A table whose row p is (p, 10 p)."""
    made = positions.LearnedPositions(5, 2)
    made.load_state_dict({"table": torch.tensor([[p, 10.0 * p] for p in range(5)])})
    return made


def test_learned_by_hand():
    """From position 0, from position 2, and to the very end."""
    x = torch.zeros(2, 3, 2) + 0.5
    due = torch.tensor([[0.5, 0.5], [1.5, 10.5], [2.5, 20.5]])
    check(learned()(x), due.expand(2, 3, 2), "out", ("N", "T", "E"))
    due = torch.tensor([[2.5, 20.5], [3.5, 30.5], [4.5, 40.5]])
    check(learned()(x, offset=2), due.expand(2, 3, 2), "out with offset 2", ("N", "T", "E"))


def test_learned_gradients():
    """Of x, and of those rows of the table that were used: one for each sample."""
    made, x = learned(), torch.zeros(3, 2, 2, requires_grad=True)
    made(x, 1).sum().backward()
    assert x.grad is not None and made.table.grad is not None, "A gradient is missing."
    check(x.grad, torch.ones(3, 2, 2), "dx", ("N", "T", "E"))
    check(made.table.grad, [[0, 0], [3, 3], [3, 3], [0, 0], [0, 0]], "dtable", ("T", "E"))


@pytest.mark.parametrize("T, offset", [(6, 0), (3, 3), (1, 5)])
def test_learned_past_the_table(T, offset):
    """ValueError where a token stands past the last row, and it says of what."""
    with pytest.raises(ValueError, match=r"offset|max_len"):
        learned()(torch.zeros(1, T, 2), offset)


# ---- 3. rope_angles ------------------------------------------------------------------------------


def test_angles_by_hand():
    """head_dim = 4 and base 100: frequencies 1 and 1/10. Positions come as they come."""
    where = [2, 0, 7, 2]
    cos, sin = positions.rope_angles(torch.tensor(where), 4, base=100.0)
    check(cos, [[COS(p), COS(p / 10)] for p in where], "cos", ("T", "pair"))
    check(sin, [[SIN(p), SIN(p / 10)] for p in where], "sin", ("T", "pair"))


def test_angles_between_positions():
    """Positions need not be whole; the default base is 10000."""
    where = [0.5, 3.25]
    cos, sin = positions.rope_angles(torch.tensor(where), 8)
    check(cos, [[COS(p / 10**i) for i in range(4)] for p in where], "cos", ("T", "pair"))
    check(sin, [[SIN(p / 10**i) for i in range(4)] for p in where], "sin", ("T", "pair"))


@pytest.mark.parametrize("dtype, most", [(torch.float32, 1e-7), (torch.bfloat16, 2.0**-9)])
def test_angles_far_out(dtype, most):
    """As exact as the dtype of the positions allows, at many turns."""
    cos, sin = positions.rope_angles(torch.tensor([8192.0, 98304.0], dtype=dtype), 8)
    assert cos.dtype == dtype and sin.dtype == dtype, f"cos is {cos.dtype}, positions are {dtype}."
    for f, found, name in ((COS, cos, "cos"), (SIN, sin, "sin")):
        near(found, [[f(p / 10**i) for i in range(4)] for p in (8192, 98304)], most, name)


def test_angles_odd_size():
    """ValueError for an odd head_dim, and it says so."""
    with pytest.raises(ValueError, match="head_dim"):
        positions.rope_angles(torch.arange(4), 3)


# ---- 4. apply_rope -------------------------------------------------------------------------------


def test_rope_by_hand():
    """Pairs (1, 2) and (3, 4): at position 0 by 0 and 90 degrees, at position 1 by 90 and 180."""
    x = torch.tensor([[1.0, 2, 3, 4], [1, 2, 3, 4]])
    cos, sin = torch.tensor([[1.0, 0], [0, -1]]), torch.tensor([[0.0, 1], [1, 0]])
    check(positions.apply_rope(x, cos, sin), [[1, 2, -4, 3], [-2, 1, -3, -4]], "turned", ("T", "d"))


def test_rope_of_many_axes():
    """(N, h, T, d): every head of every sample is turned as it is alone, and keeps its lengths."""
    x, angles = torch.randn(2, 3, 4, 6), torch.randn(4, 3)
    turned = positions.apply_rope(x, angles.cos(), angles.sin())
    for n in range(2):
        for head in range(3):
            alone = positions.apply_rope(x[n, head], angles.cos(), angles.sin())
            check(turned[n, head], alone, f"head {head} of sample {n}", ("T", "d"))
    check(turned.norm(dim=-1), x.norm(dim=-1), "the length of what is turned", ("N", "h", "T"))


def test_rope_scores_know_distances_alone():
    """All positions moved by 100: the scores stay. Spread out twice as far: they do not."""
    q, k, where = torch.randn(5, 8), torch.randn(5, 8), torch.tensor([0, 2, 3, 7, 11])

    def scores(at):
        cos, sin = positions.rope_angles(at, 8)
        return positions.apply_rope(q, cos, sin) @ positions.apply_rope(k, cos, sin).T

    check(scores(where + 100), scores(where), "the scores of positions moved by 100", ("T", "T"))
    assert not torch.allclose(scores(2 * where), scores(where)), "The scores know no distance."


def test_rope_gradient():
    """Gradients pass through: nothing is detached."""
    x, angles = torch.randn(2, 3, 4, requires_grad=True), torch.randn(3, 2)
    assert torch.autograd.gradcheck(
        lambda x: positions.apply_rope(x, angles.cos(), angles.sin()), x
    )


# ---- all of the core -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtypes_are_kept(dtype):
    """float32 and bfloat16 in, the same out; of the angles in apply_rope it is x that counts."""
    x = torch.randn(2, 3, 4).to(dtype)
    cos, sin = positions.rope_angles(torch.arange(3).to(dtype), 4)
    out = [
        cos,
        positions.apply_rope(x, cos, sin),
        positions.apply_rope(x, cos.double(), sin.double()),
    ]
    out.append(positions.LearnedPositions(4, 4).to(dtype)(x))
    assert [each.dtype for each in out] == [dtype] * 4


def test_devices_are_kept():
    """What is made is made on the device of the inputs."""
    x = torch.randn(2, 3, 4, device="meta")
    cos, sin = on_meta(lambda: positions.rope_angles(torch.arange(3, device="meta"), 4))
    turned = on_meta(lambda: positions.apply_rope(x, cos, sin))
    added = on_meta(lambda: positions.LearnedPositions(4, 4).to("meta")(x, 1))
    for out in (cos, sin, turned, added):
        assert out.device.type == "meta", f"A result is on {out.device}; the inputs are on meta."


def test_inputs_are_left_alone():
    """No call changes what it is given."""
    where, x, angles = torch.tensor([3.0, 1, 4]), torch.randn(2, 3, 4), torch.randn(3, 2)
    given = {"positions": where, "x": x, "angles": angles}
    before = {name: tensor.clone() for name, tensor in given.items()}
    positions.rope_angles(where, 4)
    positions.apply_rope(x, angles, angles)
    positions.LearnedPositions(5, 4)(x, 2)
    for name, tensor in given.items():
        assert torch.equal(tensor, before[name]), f"{name} was changed in place."


# ---- 6. extension: the half layout ---------------------------------------------------------------


def test_extension_half_by_hand():
    """Extension: pairs (1, 3) and (2, 4): by 0 and 90 degrees, then by 90 and 180."""
    x = torch.tensor([[1.0, 2, 3, 4], [1, 2, 3, 4]])
    cos, sin = torch.tensor([[1.0, 0], [0, -1]]), torch.tensor([[0.0, 1], [1, 0]])
    due = [[1, -4, 3, 2], [-3, -2, 1, -4]]
    check(positions.apply_rope_half(x, cos, sin), due, "turned", ("T", "d"))


def test_extension_rows_by_hand():
    """Extension: two heads of four rows."""
    W = torch.arange(8.0)[:, None] * torch.tensor([1.0, 10.0])
    found = positions.interleaved_to_half(W, 2)
    check(found[:, 0], [0, 2, 1, 3, 4, 6, 5, 7], "the order of the rows", ("row",))
    check(found[:, 1], 10 * found[:, 0], "the second column", ("row",))


def test_extension_converted_weights():
    """Extension: the half layout with converted weights gives the scores of the interleaved one."""
    x, weights = torch.randn(4, 5), [torch.randn(12, 5) for _ in range(2)]
    angles = torch.randn(4, 3)

    def scores(turn, rows):
        heads = [(x @ W.T).view(4, 2, 6).transpose(0, 1) for W in rows]
        q, k = (turn(each, angles.cos(), angles.sin()) for each in heads)
        return q @ k.mT

    converted = [positions.interleaved_to_half(W, 2) for W in weights]
    found = scores(positions.apply_rope_half, converted)
    check(found, scores(positions.apply_rope, weights), "the scores", ("h", "T", "T"))


# ---- 7. extension: ALiBi -------------------------------------------------------------------------


def test_extension_slopes_by_hand():
    """Extension: four heads, and three: those of two, then the first of four."""
    check(positions.alibi_slopes(4), [1 / 4, 1 / 16, 1 / 64, 1 / 256], "slopes of 4", ("h",))
    check(positions.alibi_slopes(3), [1 / 16, 1 / 256, 1 / 4], "slopes of 3", ("h",))


def test_extension_bias_by_hand():
    """Extension: two queries, the last of three tokens; one head of slope 1/256."""
    bias = positions.alibi_bias(1, 2, 3)
    assert tuple(bias.shape) == (1, 2, 3), f"The bias has shape {tuple(bias.shape)}."
    check(256 * bias[0, 1], [-2, -1, 0], "256 times the bias of the last query", ("key",))
    check(256 * bias[0, 0, :2], [-1, 0], "256 times the bias of the query before", ("key",))
    assert bias[0, 0, 2] == -math.inf, "The last key is in the future of the first query."
    on = on_meta(lambda: positions.alibi_bias(2, 3, 3, device="meta"))
    assert on.device.type == "meta", f"The bias is on {on.device}, and was asked for on meta."


# ---- 8. bonus: longer contexts -------------------------------------------------------------------


def test_bonus_interpolation():
    """Bonus: four times as long."""
    found = positions.interpolate_positions(torch.arange(5), 4)
    check(found, [0, 0.25, 0.5, 0.75, 1], "positions", ("T",))


def test_bonus_ntk():
    """Bonus: d = 4, so the exponent is 2."""
    check(positions.ntk_base(100.0, 4, 3.0), 900.0, "base")
    with pytest.raises(ValueError, match="head_dim"):
        positions.ntk_base(100.0, 2, 3.0)


def test_bonus_yarn_by_hand():
    """Bonus: the example of the handout, then in float32."""
    due = [1.0, 0.1, 0.00625, 0.00025]
    check(positions.yarn_inv_freq(8, 10000.0, 4.0, 2048), due, "frequencies", ("pair",))
    torch.set_default_dtype(torch.float32)
    found = positions.yarn_inv_freq(8, 10000.0, 4.0, 2048)
    assert found.dtype == torch.float32, (
        f"The frequencies are {found.dtype}, not the default dtype."
    )


def test_bonus_yarn_scale():
    """Bonus: 0.1 ln 4 + 1, and 1 where nothing is stretched."""
    check(positions.yarn_attention_scale(4.0), 1 + 0.1 * math.log(4), "scale")
    check(positions.yarn_attention_scale(1.0), 1.0, "scale")
