"""The reference for positions and its right variants against oracles that share nothing with them.

The oracles are angles in decimals of fifty digits, complex numbers one at a time, matrices of rotation,
the slopes that ALiBi's authors print, YaRN's formula written out by hand and in its limits, and
autograd's gradcheck.
"""

import cmath
import importlib.util
import math
from decimal import Decimal, getcontext
from pathlib import Path

import pytest
import torch

SOLUTION = Path(__file__).parents[1] / "solutions" / "06_positions"
FILES = [SOLUTION / "positions.py", *sorted((SOLUTION / "variants").glob("*/positions.py"))]
# The hidden graders compare the variants with the reference each time.
PARAMS = [FILES[0], *(pytest.param(file, marks=pytest.mark.slow) for file in FILES[1:])]
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
getcontext().prec = 50


@pytest.fixture(autouse=True)
def float64():
    """The default dtype is float64, and every draw comes from one seed."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(params=PARAMS, ids=lambda path: path.parent.name)
def positions(request):
    """The module under test: the reference, then each variant."""
    name = f"positions_of_{request.param.parent.name}"
    spec = importlib.util.spec_from_file_location(name, request.param)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def close(actual, expected, atol=1e-12):
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=atol)


def exact(position, i, size, base):
    """Cosine and sine of position · base^(-2i / size), the angle in fifty digits."""
    angle = Decimal(position) * Decimal(base) ** (Decimal(-2 * i) / Decimal(size))
    turn = float(angle % (2 * PI))
    return math.cos(turn), math.sin(turn)


def table_of(values, size, base):
    """Exact cosines and sines, (T, size / 2) each."""
    both = [[exact(p, i, size, base) for i in range(size // 2)] for p in values]
    return tuple(torch.tensor([[pair[k] for pair in row] for row in both]) for k in (0, 1))


# ---- sinusoids -----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_len, d, base", [(7, 10, 10000), (1, 6, 10000), (5, 2, 3), (4, 8, 77)])
def test_sinusoids_entry_by_entry(positions, max_len, d, base):
    table = positions.sinusoidal_encoding(max_len, d, base)
    assert table.shape == (max_len, d)
    cos, sin = table_of(range(max_len), d, base)
    for p in range(max_len):
        for column in range(d):
            of = sin if column % 2 == 0 else cos
            assert table[p, column].item() == pytest.approx(of[p, column // 2].item(), abs=1e-13)


def test_the_first_row_and_the_default_base(positions):
    table = positions.sinusoidal_encoding(3, 4)
    assert table[0].tolist() == [0, 1, 0, 1]
    close(table[2, 2:], torch.tensor([math.sin(0.02), math.cos(0.02)]))


@pytest.mark.parametrize("dtype, atol", [(torch.float32, 6e-8), (torch.float64, 3e-12)])
def test_sinusoids_far_out_are_rounded_once(positions, dtype, atol):
    torch.set_default_dtype(dtype)
    table = positions.sinusoidal_encoding(8300, 6)
    assert table.dtype == dtype
    cos, sin = table_of([8192, 8299], 6, 10000)
    close(table[[8192, 8299], 0::2].double(), sin.double(), atol)
    close(table[[8192, 8299], 1::2].double(), cos.double(), atol)


def test_a_shift_of_sinusoids_is_one_rotation(positions):
    table = positions.sinusoidal_encoding(50, 12, 500.0)
    products = table @ table.T
    for k in range(50):
        along = products.diagonal(k)
        close(along, along[:1].expand_as(along))
    assert products.diagonal().max().item() == pytest.approx(6)


# ---- learned table -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "N, T, E, max_len, offset", [(3, 4, 5, 9, 2), (1, 1, 1, 1, 0), (2, 3, 4, 7, 4)]
)
def test_learned_token_by_token(positions, N, T, E, max_len, offset):
    made, x = positions.LearnedPositions(max_len, E), torch.randn(N, T, E)
    assert [(k, tuple(v.shape)) for k, v in made.named_parameters()] == [("table", (max_len, E))]
    before = x.clone()
    out = made(x, offset)
    for n in range(N):
        for t in range(T):
            close(out[n, t], x[n, t] + made.table[offset + t])
    assert torch.equal(x, before)
    if offset == 0:
        close(made(x), out)


def test_learned_gradients(positions):
    made = positions.LearnedPositions(6, 2)
    x, upstream = torch.randn(3, 4, 2, requires_grad=True), torch.randn(3, 4, 2)
    made(x, 1).backward(upstream)
    close(x.grad, upstream)
    due = torch.zeros(6, 2)
    due[1:5] = upstream.sum(0)
    close(made.table.grad, due)


@pytest.mark.parametrize("T, offset", [(8, 0), (4, 4), (1, 7), (3, 100)])
def test_past_the_table(positions, T, offset):
    made = positions.LearnedPositions(7, 2)
    with pytest.raises(ValueError, match=r"offset|max_len"):
        made(torch.zeros(2, T, 2), offset)


# ---- angles --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values", [[0, 1, 2], [7], [5, 0, 3, 3], [8192, 131071], [-2, 4], [0.5, 2.25, 1e4]]
)
@pytest.mark.parametrize("d, base", [(8, 10000), (2, 10000), (6, 500000)])
def test_angles_one_by_one(positions, values, d, base):
    found = positions.rope_angles(torch.tensor(values), d, float(base))
    for ours, due in zip(found, table_of(values, d, base), strict=True):
        assert ours.dtype == torch.float64
        close(ours, due, 2e-10)


@pytest.mark.parametrize("dtype, unit", [(torch.float32, 6e-8), (torch.bfloat16, 2.0**-9)])
def test_angles_far_out_are_rounded_once(positions, dtype, unit):
    """The largest error there can be is half a unit in the last place."""
    values = [8192, 65536, 3, 40960, 0]  # all of them have few binary digits
    found = positions.rope_angles(torch.tensor(values, dtype=dtype), 16)
    for ours, due in zip(found, table_of(values, 16, 10000), strict=True):
        assert ours.dtype == dtype
        assert (ours.double() - due).abs().max() <= unit


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_integer_positions_give_the_default_dtype(positions, dtype):
    torch.set_default_dtype(dtype)
    for of in (torch.int64, torch.int32):
        found = positions.rope_angles(torch.arange(3, dtype=of), 4)
        assert [each.dtype for each in found] == [dtype, dtype]


def test_what_float32_angles_cost():
    """The error that the handout speaks of, by the plain recipe, over the positions before 8192."""
    rates = 1.0 / 10000 ** (torch.arange(0, 64, 2, dtype=torch.float32) / 64)
    found = torch.outer(torch.arange(7993, 8193, dtype=torch.float32), rates).cos()
    error = (found.double() - table_of(range(7993, 8193), 64, 10000)[0]).abs().max().item()
    assert 2e-4 < error < 4e-4


@pytest.mark.parametrize("size", [1, 5, 7])
def test_odd_sizes(positions, size):
    with pytest.raises(ValueError, match="d_model"):
        positions.sinusoidal_encoding(3, size)
    with pytest.raises(ValueError, match="head_dim"):
        positions.rope_angles(torch.arange(3), size)


# ---- rotations -----------------------------------------------------------------------------------


SHAPES = [(5, 8), (2, 4, 6), (2, 3, 5, 8), (1, 1, 1, 2), (2, 1, 3, 4, 6)]


def turned_one_by_one(x, angles, first, second):
    """Every pair as one complex number; ``first(i)`` and ``second(i)`` say where it stands."""
    out = torch.zeros_like(x)
    rows, to = x.reshape(-1, *x.shape[-2:]), out.view(-1, *x.shape[-2:])
    for n, row in enumerate(rows.tolist()):
        for t, vector in enumerate(row):
            for i in range(len(vector) // 2):
                z = complex(vector[first(i)], vector[second(i)])
                z *= cmath.exp(1j * angles[t, i].item())
                to[n, t, first(i)], to[n, t, second(i)] = z.real, z.imag
    return out


@pytest.mark.parametrize("shape", SHAPES)
def test_rope_by_complex_numbers(positions, shape):
    T, d = shape[-2:]
    x, angles = torch.randn(shape), 3 * torch.randn(T, d // 2)
    before = x.clone()
    interleaved = positions.apply_rope(x, angles.cos(), angles.sin())
    close(interleaved, turned_one_by_one(x, angles, lambda i: 2 * i, lambda i: 2 * i + 1))
    half = positions.apply_rope_half(x, angles.cos(), angles.sin())
    close(half, turned_one_by_one(x, angles, lambda i: i, lambda i: i + d // 2))
    close(interleaved.norm(dim=-1), x.norm(dim=-1))
    close(half.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(x, before)


@pytest.mark.parametrize("name", ["apply_rope", "apply_rope_half"])
def test_heads_that_are_a_view(positions, name):
    """Split off a projection, as attention does it, heads are not contiguous."""
    turn, angles = getattr(positions, name), torch.randn(5, 4)
    x = torch.randn(2, 5, 3 * 8).unflatten(-1, (3, 8)).transpose(1, 2)
    assert not x.is_contiguous()
    found = turn(x, angles.cos(), angles.sin())
    close(found, turn(x.contiguous(), angles.cos(), angles.sin()))


@pytest.mark.parametrize("name", ["apply_rope", "apply_rope_half"])
def test_scores_depend_on_distances_alone(positions, name):
    turn, d = getattr(positions, name), 12
    q, k = torch.randn(2, 3, 6, d), torch.randn(2, 3, 6, d)
    where = torch.tensor([3.0, 0.0, 11.0, 4.5, 40.0, 7.0])

    def scores(at):
        cos, sin = positions.rope_angles(at, d, 700.0)
        return turn(q, cos, sin) @ turn(k, cos, sin).mT

    first = scores(where)
    for shift in (1, -5, 1000.25):
        close(scores(where + shift), first, 1e-10)
    assert not torch.allclose(scores(2 * where), first)


@pytest.mark.parametrize("name", ["apply_rope", "apply_rope_half"])
def test_rope_gradcheck(positions, name):
    angles = torch.randn(3, 2)
    x = torch.randn(2, 3, 4, requires_grad=True)
    turn = getattr(positions, name)
    assert torch.autograd.gradcheck(lambda x: turn(x, angles.cos(), angles.sin()), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtypes(positions, dtype):
    x = torch.randn(2, 3, 4).to(dtype)
    cos, sin = positions.rope_angles(torch.arange(3).to(dtype), 4)
    for turn in (positions.apply_rope, positions.apply_rope_half):
        assert turn(x, cos, sin).dtype == dtype
        assert turn(x, cos.double(), sin.double()).dtype == dtype
    assert positions.interleaved_to_half(x[0].new_ones(4, 3), 2).dtype == dtype
    assert positions.interpolate_positions(cos[0], 2).dtype == dtype
    assert positions.LearnedPositions(5, 4).to(dtype)(x).dtype == dtype


def test_devices(positions):
    x, where = torch.zeros(2, 3, 4, device="meta"), torch.arange(3, device="meta")
    cos, sin = positions.rope_angles(where, 4)
    made = positions.LearnedPositions(5, 4).to("meta")
    turned = [turn(x, cos, sin) for turn in (positions.apply_rope, positions.apply_rope_half)]
    converted = positions.interleaved_to_half(torch.zeros(8, 3, device="meta"), 2)
    bias = positions.alibi_bias(3, 2, 4, "meta")
    longer = positions.interpolate_positions(where, 2)
    for out in (cos, sin, made(x, 1), *turned, converted, bias, longer):
        assert out.device.type == "meta"


# ---- conversion ----------------------------------------------------------------------------------


@pytest.mark.parametrize("h, d, E", [(3, 8, 5), (1, 6, 4), (4, 2, 3), (2, 4, 1)])
def test_converted_weights_give_the_interleaved_scores(positions, h, d, E):
    weights = [torch.randn(h * d, E) for _ in range(2)]
    x = torch.randn(2, 6, E)
    cos, sin = positions.rope_angles(torch.arange(6), d)

    def scores(turn, rows):
        q, k = ((x @ W.T).unflatten(-1, (h, d)).transpose(1, 2) for W in rows)
        return turn(q, cos, sin) @ turn(k, cos, sin).mT

    rows = [positions.interleaved_to_half(W, h) for W in weights]
    close(scores(positions.apply_rope_half, rows), scores(positions.apply_rope, weights))
    if d > 2:
        wrong = scores(positions.apply_rope_half, weights)
        assert not torch.allclose(wrong, scores(positions.apply_rope, weights))


def test_rows_by_hand(positions):
    W = torch.arange(12.0).unsqueeze(1)  # two heads of six rows
    rows = positions.interleaved_to_half(W, 2).flatten().tolist()
    assert rows == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]


# ---- ALiBi ---------------------------------------------------------------------------------------

# As exponents of 2: what the authors' code gives, and for 8 heads their paper.
PUBLISHED = {
    1: [-8],
    2: [-4, -8],
    4: [-2, -4, -6, -8],
    6: [-2, -4, -6, -8, -1, -3],
    8: [-1, -2, -3, -4, -5, -6, -7, -8],
    12: [-1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5],
    16: [-k / 2 for k in range(1, 17)],
}


@pytest.mark.parametrize("h", PUBLISHED)
def test_published_slopes(positions, h):
    slopes = positions.alibi_slopes(h)
    assert slopes.dtype == torch.float64
    close(slopes, torch.tensor([2.0**k for k in PUBLISHED[h]]))


@pytest.mark.parametrize("h, q_len, k_len", [(2, 3, 5), (3, 4, 4), (1, 1, 6), (5, 4, 1), (2, 5, 3)])
def test_bias_entry_by_entry(positions, h, q_len, k_len):
    bias, slopes = positions.alibi_bias(h, q_len, k_len), positions.alibi_slopes(h)
    assert bias.shape == (h, q_len, k_len)
    for head in range(h):
        for i in range(q_len):
            for j in range(k_len):
                distance = i + k_len - q_len - j
                due = -slopes[head].item() * distance if distance >= 0 else -math.inf
                assert bias[head, i, j].item() == pytest.approx(due)


def test_bias_of_the_last_query_does_not_depend_on_how_many_there_are(positions):
    whole = positions.alibi_bias(6, 7, 7)
    close(positions.alibi_bias(6, 2, 7), whole[:, 5:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_a_tensor_the_default_dtype(positions, dtype):
    torch.set_default_dtype(dtype)
    assert positions.alibi_slopes(6).dtype == dtype
    assert positions.alibi_bias(6, 2, 3).dtype == dtype
    assert positions.yarn_inv_freq(8, 10000.0, 4.0, 2048).dtype == dtype
    assert positions.interpolate_positions(torch.arange(3), 2).dtype == dtype


# ---- longer contexts -----------------------------------------------------------------------------


def test_interpolation(positions):
    close(positions.interpolate_positions(torch.arange(4), 4), torch.tensor([0, 0.25, 0.5, 0.75]))
    given = torch.tensor([3.0, -1.5])
    close(positions.interpolate_positions(given, 2.5), torch.tensor([1.2, -0.6]))


@pytest.mark.parametrize("d, base, factor", [(64, 10000.0, 4.0), (4, 500.0, 2.0), (8, 100.0, 1.0)])
def test_ntk_slows_the_slowest_pair_alone(positions, d, base, factor):
    """The fastest pair keeps its frequency, the slowest one turns ``factor`` times slower."""
    grown = positions.ntk_base(base, d, factor)
    assert isinstance(grown, float)
    slowest = (d - 2) / d
    assert grown**-slowest == pytest.approx(base**-slowest / factor)
    with pytest.raises(ValueError, match="head_dim"):
        positions.ntk_base(base, 2, factor)


def test_yarn_by_hand(positions):
    """d = 8, base 10000, original 2048: the ramp runs from pair 1 to pair 3, so pair 2 is halfway."""
    assert 8 * math.log(2048 / (2 * math.pi * 32)) / (2 * math.log(10000)) == pytest.approx(
        1.0079, 1e-4
    )
    assert 8 * math.log(2048 / (2 * math.pi)) / (2 * math.log(10000)) == pytest.approx(2.513, 1e-3)
    found = positions.yarn_inv_freq(8, 10000.0, 4.0, 2048)
    close(found, torch.tensor([1.0, 0.1, 0.01 * (0.5 + 0.5 / 4), 0.001 / 4]))


@pytest.mark.parametrize(
    "d, base, factor, original, fast, slow",
    [(64, 1e4, 4.0, 2048, 32, 1), (128, 5e5, 8.0, 8192, 32, 1), (48, 1e3, 2.5, 700, 20, 2)],
)
def test_yarn_pair_by_pair(positions, d, base, factor, original, fast, slow):
    found = positions.yarn_inv_freq(d, base, factor, original, fast, slow).tolist()
    # the pair that turns r times in L tokens solves L base^(-2i / d) = 2 pi r
    ends = [d / 2 * math.log(original / math.tau / r, base) for r in (fast, slow)]
    lo, hi = math.floor(ends[0]), math.ceil(ends[1])
    assert 0 < lo < hi < d // 2
    for i, ours in enumerate(found):
        share = (i - lo) / (hi - lo)
        rate = base ** (-2 * i / d)
        due = rate if share <= 0 else rate / factor if share >= 1 else None
        due = rate * (1 - share + share / factor) if due is None else due
        assert ours == pytest.approx(due, rel=1e-12)


def test_yarn_s_limits(positions):
    """Low is cut off at 0, high at d - 1, and a ramp without width keeps its one pair."""
    short = positions.yarn_inv_freq(16, 100.0, 4.0, 64)  # c(32) = -1.99, c(1) = 4.03
    rates = 100.0 ** (-torch.arange(8) / 8)
    shares = (torch.arange(8) / 5).clamp(max=1)
    close(short, rates * (1 - shares * 3 / 4))
    long = positions.yarn_inv_freq(8, 10.0, 4.0, 10000, 1000, 1)  # c(1000) = 0.81, c(1) = 12.8
    close(long, 10.0 ** (-torch.arange(4) / 4) * (1 - torch.arange(4) / 7 * 3 / 4))
    both = positions.yarn_inv_freq(
        8, 10.0, 4.0, 15080
    )  # c(32) = 7.5 and c(1) = 13.5: both end at 7
    close(both, 10.0 ** (-torch.arange(4) / 4))
    none = positions.yarn_inv_freq(18, 10000.0, 4.0, 6)  # c(1) = -0.05, rounded up 0
    rates = 10000.0 ** (-torch.arange(9) / 9)
    close(none[:1], rates[:1])
    close(none[1:], rates[1:] / 4)


def test_yarn_of_factor_1_changes_nothing(positions):
    close(positions.yarn_inv_freq(32, 10000.0, 1.0, 4096), 10000.0 ** (-torch.arange(16) / 16))


@pytest.mark.parametrize("factor, due", [(1.0, 1.0), (0.5, 1.0), (math.e, 1.1), (math.e**10, 2.0)])
def test_yarn_s_scale(positions, factor, due):
    scale = positions.yarn_attention_scale(factor)
    assert isinstance(scale, float)
    assert scale == pytest.approx(due)
