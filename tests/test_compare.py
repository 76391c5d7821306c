"""What compare accepts, what it says about the rest, and what it must never say."""

import re
import warnings

import numpy as np
import pytest
from softmark.compare import Mismatch, check_close, compare, summary, tolerance
from softmark.script import Output, Unfit

pytestmark = pytest.mark.filterwarnings("error")

N, T, D, H = 3, 5, 4, 6
GATES = ("f", "i", "c", "o")
RNG = np.random.default_rng(20260101)


def out(name, *axes, blocks=()):
    return Output(name, "array", axes, {len(axes) - 1: blocks} if blocks else {})


DX, HID, SQUARE = out("dx", "N", "T", "D"), out("h", "N", "H"), out("W_hh", "H", "H")
W, B = out("W", "D + H", "4 H", blocks=GATES), out("b", "4 H", blocks=GATES)
SCORES, TOKENS = out("scores", "N", "Tq", "Tk"), out("tokens", "N", "T")
LOSS, COUNT, IDS = Output("loss", "scalar"), Output("n", "scalar"), Output("ids", "list")
GRADS = Output("grads", "dict", entries={"W": W, "b": B})

dx, hid, other, square = (RNG.standard_normal(s) for s in [(N, T, D), (N, H), (N, H), (H, H)])
w, b, scores = (RNG.standard_normal(s) for s in [(D + H, 4 * H), (4 * H,), (N, 4, 6)])
tokens = RNG.integers(0, 50, (N, T))
weights = RNG.random((N, T)) / 10
mask = RNG.random((4, 6)) > 0.4
bias = np.where(np.tri(4, 6, 2) > 0, scores[0], -np.inf)


def noise(a):
    return a + 0.1 * RNG.standard_normal(a.shape)


def at(a, where, change=noise):
    """A copy of ``a`` changed at ``where``."""
    a = a.copy()
    a[where] = change(a[where])
    return a


def only(output, expected, actual, **known):
    found = compare(output, expected, actual, **known)
    assert len(found) == 1, found
    return found[0]


# ---- agreeing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "output, expected, actual",
    [
        (DX, dx, dx.copy()),
        (DX, dx, np.asfortranarray(dx)),
        (DX, dx, dx[::-1].copy()[::-1]),
        (DX, dx, dx.astype(">f8")),
        (DX, dx, dx * (1 + 1e-13)),
        (HID, np.zeros((N, H)), -np.zeros((N, H))),
        (HID, np.zeros((N, H)), np.full((N, H), 1e-17)),
        (HID, np.full((N, H), 5e-324), np.full((N, H), 1e-323)),
        (HID, at(hid, np.s_[1], lambda v: 0 * v), at(hid, np.s_[1], lambda v: 0 * v + 1e-16)),
        (out("bias", "Tq", "Tk"), bias, bias + 1e-15),
        (HID, hid.astype(np.float32), (hid * (1 + 1e-6)).astype(np.float32)),
        (HID, hid.astype(np.float16), (hid * 1.001).astype(np.float16)),
        (HID, hid + 1j * other, (hid + 1j * other) * (1 + 1e-14)),
        (out("logits", "N", "T - 1", "V"), np.zeros((2, 0, 3)), np.zeros((2, 0, 3))),
        (out("s"), np.array(0.25), np.array(0.25)),
        (TOKENS, tokens, tokens.copy()),
        (out("mask", "Tq", "Tk"), mask, mask.copy()),
        (LOSS, 0.0, 0),
        (LOSS, 1.25, np.float64(1.25)),
        (LOSS, float("inf"), float("inf")),
        (COUNT, 12, 12),
        (Output("name", "scalar"), "lstm", "lstm"),
        (Output("nothing", "scalar"), None, None),
        (IDS, [[1, 2], [], [3]], [[1, 2], [], [3]]),
        (Output("beam", "list"), [[1, 2], -0.5], [[1, 2], -0.5 - 1e-14]),
        (GRADS, {"W": w, "b": b}, {"b": b, "W": w}),
        (Output("cache", "private"), dx, None),
    ],
)
def test_agrees(output, expected, actual):
    assert compare(output, expected, actual) == []


# ---- disagreeing ---------------------------------------------------------------------------------

# output, expected, actual, kind, a piece of the message, a piece of a hint (None: no hint)
MISTAKES = {
    "none": (DX, dx, None, "type", "dx is None; an array of shape (3, 5, 4), that", "return"),
    "list": (DX, dx, Unfit("a list of 3"), "type", "that is (N, T, D), was expected", "np.stack"),
    "bare number": (DX, dx, 1.5, "type", "dx is a float; an array", None),
    "reversed axes": (DX, dx, dx.T, "shape", "dx has shape (4, 5, 3); (3, 5, 4), that", "reverse"),
    "other axes": (DX, dx, dx.swapaxes(1, 2), "shape", "(3, 4, 5); (3, 5, 4)", "another order"),
    "summed": (DX, dx, dx.sum(1), "shape", "(3, 4); (3, 5, 4)", "Axis T is gone: was it summed"),
    "squeezed": (HID, hid[:1], hid[0], "shape", "(6,); (1, 6)", "Axis N is gone: was it squeezed"),
    "kept axis": (HID, hid, hid.sum(0, keepdims=True), "shape", "(1, 6)", "Axis N has size 1"),
    "axis of 1": (HID, hid, hid[:, None], "shape", "(3, 1, 6); (3, 6)", "Only axes of size 1"),
    "flattened": (DX, dx, dx.reshape(N, -1), "shape", "(3, 20)", "reshape"),
    "short": (DX, dx, dx[:, 1:], "shape", "(3, 4, 4)", "Axis T is one too short"),
    "float32": (DX, dx, dx.astype(np.float32), "dtype", "float32; float64 was", "dtype of the inp"),
    "integers": (DX, dx, dx.astype(np.int64), "dtype", "dtype int64; float64", "integers"),
    "float16": (DX, dx.astype("f4"), dx.astype("f2"), "dtype", "float16; float32", "Results keep"),
    "complex": (DX, dx, dx + 0j, "dtype", "complex128", "Results keep"),
    "int32": (TOKENS, tokens, tokens.astype(np.int32), "dtype", "int32; int64", "Is an array"),
    "mask of ints": (TOKENS, tokens > 9, tokens, "dtype", "int64; bool", "Is an array"),
    "NaN later": (DX, dx, at(dx, np.s_[:, 2:], lambda v: v * np.nan), "nonfinite",
                  "dx is NaN in 36 of 60 entries, only from t = 2 on.", "begins at t = 2: is 0 div"),
    "NaN all": (DX, dx, dx * np.nan, "nonfinite", "dx is NaN in all 60 entries.", "Is 0 divided"),
    "inf": (HID, hid, at(hid, np.s_[0], lambda v: v * np.inf), "nonfinite",
            "h is infinite in 6 of 18 entries, only in sample n = 0.", "Does exp overflow"),
    "NaN and inf": (HID, hid, at(hid, np.s_[0, :2], lambda v: [np.nan, np.inf]), "nonfinite",
                    "h is NaN in 1 of 18 entries", "Is 0 divided"),
    "not -inf": (out("bias", "Tq", "Tk"), bias, np.maximum(bias, -1e9), "nonfinite",
                 "finite in 6 of 24 entries, only above the diagonal", "large number"),
    "inf turned": (out("bias", "Tq", "Tk"), bias, np.abs(bias), "nonfinite", "is infinite", "exp"),
    "zeros": (DX, dx, 0 * dx, "value", "dx is wrong in all 60 entries; off by about", "entry is 0"),
    "sign": (DX, dx, -dx, "value", "all 60", "Every entry has the wrong sign"),
    "mean over N": (DX, dx, dx / N, "value", "all 60", "3 times too small (N = 3): was something "
                    "averaged over the batch?"),
    "sum over T": (DX, dx, dx * T, "value", "all 60", "5 times too large (T = 5): was something "
                   "summed over time instead"),
    "mean, sign": (DX, dx, -dx / (N * T), "value", "all 60", "wrong sign and is 15 times too small"),
    "twice": (HID, hid, 2 * hid, "value", "all 18", "2 times too large: is a term counted"),
    "half": (HID, hid, hid / 2, "value", "off by about its largest", "2 times too small"),
    "root": (HID, hid, hid * np.sqrt(H), "value", "all 18", "√6 times too large (H = 6)"),
    "odd factor": (HID, hid, hid * 1.37, "value", "all 18", "by the same factor"),
    "large": (HID, hid, noise(hid) * 1e4, "value", "off by about 1e4 times its largest value", None),
    "small": (HID, hid, hid + 1e-3 * noise(hid) ** 2, "value", "largest value", None),
    "first step": (DX, dx, at(dx, np.s_[:, 0]), "value", "12 of 60 entries, only at t = 0;", None),
    "last step": (DX, dx, at(dx, np.s_[:, -1]), "value", "only at t = 4, the last step;", None),
    "not last": (DX, dx, at(dx, np.s_[:, :-1]), "value", "everywhere but at t = 4, the last", None),
    "middle": (DX, dx, at(dx, np.s_[:, 1:3]), "value", "only at t = 1 to 2;", None),
    "column": (DX, dx, at(dx, np.s_[..., 2]), "value", "only at index 2 of axis D;", None),
    "last dropped": (DX, dx, at(dx, np.s_[:, -1], lambda v: 0 * v), "value", "t = 4",
                     "Every wrong entry is 0"),
    "gate": (W, w, at(w, np.s_[:, 3 * H :]), "value", "60 of 240 entries, only in the columns of "
             "block o;", None),
    "gate sign": (W, w, at(w, np.s_[:, H : 2 * H], np.negative), "value", "of block i;",
                  "Every wrong entry has the wrong sign"),
    "gates": (B, b, at(b, np.s_[: 2 * H]), "value", "only in the entries of blocks f and i;", None),
    "all but a gate": (B, b, at(b, np.s_[H:]), "value", "everywhere but in the entries of block f",
                       None),
    "rows": (W, w, at(w, np.s_[5:9]), "value", "only in rows 5 to 8 of D + H (the H part);", None),
    "x rows": (W, w, at(w, np.s_[:D]), "value", "only in rows 0 to 3 of D + H (the D part);", None),
    "even rows": (W, w, at(w, np.s_[::2]), "value", "only in rows 0, 2 and so on of D + H;", None),
    "corner": (W, w, at(w, np.s_[5:7, H : 3 * H]), "value",
               "only in rows 5 to 6 of D + H (the H part), in the columns of blocks i and c;", None),
    "unknown parts": (W, w[:, :10], at(w[:, :10], np.s_[8:]), "value", "in rows 8 to 9 of D + H;",
                      None),
    "two entries": (SQUARE, square, at(square, np.s_[[0, 1], [3, 5]]), "value",
                    "only in rows 0 to 1 of H, in columns 3 and 5 of H;", None),
    "entry": (TOKENS, tokens, at(tokens, np.s_[1, 3], lambda v: v + 1), "value",
              "tokens is wrong in 1 of 15 entries, only in sample n = 1, at t = 3.", None),
    "scattered": (HID, hid, at(hid, np.s_[[0, 1, 2, 0], [0, 2, 3, 5]]), "value",
                  "only at 4 of the 6 indices of axis H", None),
    "causal": (SCORES, scores, np.where(np.tri(4, 6, 2) > 0, scores, noise(scores)), "value",
               "only above the diagonal of the last two axes", None),
    "diagonal": (SQUARE, square, square + np.diag(noise(b)[:H]), "value", "only on the diagonal",
                 None),
    "transposed": (SQUARE, square, square.T, "value", "30 of 36", "It is the transpose"),
    "axes swapped": (out("A", "N", "h", "T"), (a := RNG.random((2, 3, 3))), a.swapaxes(1, 2),
                     "value", "A is wrong", "Exchanging axis h and axis T"),
    "time reversed": (DX, dx, dx[:, ::-1], "value", "but at t = 2", "along axis T is reversed"),
    "late": (DX, dx, np.roll(dx, 1, 1), "value", "all 60", "Each step t holds what belongs one bef"),
    "early": (HID, hid, np.roll(hid, -1, 1), "value", "all", "index of axis H holds what belongs "
              "one after it"),
    "two gates": (B, b, b.reshape(4, H)[[0, 2, 1, 3]].ravel(), "value", "blocks i and c",
                  "Blocks i and c are exchanged"),
    "gate order": (B, b, b.reshape(4, H)[[3, 0, 1, 2]].ravel(), "value", "all 24",
                   "come in the order o, f, i, c"),
    "x and h": (W, w, np.concatenate([w[D:], w[:D]]), "value", "all", "The parts D and H of axis "
                "D + H are exchanged"),
    "no transpose": (out("q", "N", "h", "T", "d"), (q := RNG.random((2, 3, 4, 5))),
                     q.swapaxes(1, 2).reshape(q.shape), "value", "q is", "does a reshape stand"),
    "constant": (DX, dx, dx + 0.5, "value", "all 60", "off by the same amount"),
    "bias": (HID, hid, hid - b[:H], "value", "all 18", "same all along axis N"),
    "counting": (TOKENS, tokens, tokens + 1, "value", "all 15", "does counting start at 0"),
    "inverted": (out("mask", "Tq", "Tk"), mask, ~mask, "value", "all 24", "is inverted"),
    "rest": (out("z", "N", "T"), weights, 1 - weights, "value", "all", "1 minus what it should be"),
    "first only": (HID, hid, at(hid, np.s_[1:]), "value", "but in sample n = 0", "Only the first "
                   "sample is right"),
    "not first": (HID, hid, at(hid, np.s_[0]), "value", "only in sample n = 0", "Only the first "
                  "sample is wrong"),
    "one for all": (DX, dx, dx[:, :1] + 0 * dx, "value", "but at t = 0", "Nothing varies along axis "
                    "T"),
    "one value": (HID, hid, 0 * hid + 0.3, "value", "all", "Every entry is the same"),
    "normalisation": (out("p", "N", "T"), weights, weights * RNG.random((N, 1)), "value", "all",
                      "Along axis T everything is right up to a factor"),
    "cast": (DX, dx, dx.astype("f4").astype("f8"), "value", "off by about 1e-8 of", "of float32"),
    "loss": (LOSS, 1.5, 1.65, "value", "loss is wrong; off by about 1e-1 of its value.", None),
    "zero loss": (LOSS, 0.0, 1e-3, "value", "loss is wrong; off by about 1e-3.", None),
    "int loss": (LOSS, 1.5, 1, "type", "loss is an int; a float was expected.", None),
    "bool loss": (LOSS, 1.0, True, "type", "loss is a bool; a float", None),
    "NaN loss": (LOSS, 1.5, float("nan"), "nonfinite", "loss is NaN.", "Is 0 divided by 0"),
    "count": (COUNT, 12, 13, "value", "n is not the int expected.", None),
    "float count": (COUNT, 12, 12.0, "type", "n is a float; an int was", None),
    "bool count": (COUNT, 1, True, "type", "n is a bool; an int was", None),
    "int for bool": (COUNT, True, 1, "type", "n is an int; a bool was", None),
    "ids": (IDS, [[1, 2], [3]], [[1, 2], [4]], "value", "ids[1][0] is not the int", None),
    "longer ids": (IDS, [[1, 2], [3]], [[1, 2], [3, 4]], "shape", "ids[1] has length 2; 1", None),
    "float ids": (IDS, [[1, 2], [3]], [[1, 2.0], [3]], "type", "ids[0][1] is a float", None),
    "no list": (IDS, [[1, 2], [3]], Unfit("a str"), "type", "ids is a str; a list of 2 was", None),
    "no dict": (GRADS, {"W": w, "b": b}, Unfit("None"), "type", 'the keys "W" and "b" was', "return"),
    "no entry": (GRADS, {"W": w, "b": b}, {"w": w, "b": b}, "missing", 'no entry "W": it has "w"',
                 None),
    "extra": (GRADS, {"W": w, "b": b}, {"W": w, "b": b, "c": 1}, "type", 'has "c" too; only', None),
    "entry wrong": (GRADS, {"W": w, "b": b}, {"W": w, "b": -b}, "value", 'grads["b"] is wrong',
                    "sign"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_described(mistake):
    output, expected, actual, kind, message, hint = MISTAKES[mistake]
    found = compare(output, expected, actual)
    assert found[0].kind == kind
    assert message in found[0].message
    if hint is None:
        assert found[0].hints == ()
    else:
        assert hint in found[0].hints[0]


def test_dict_entries_are_told_apart():
    found = compare(GRADS, {"W": w, "b": b}, {"W": w.T, "c": b})
    assert [(m.output, m.kind) for m in found] == [
        ('grads["W"]', "shape"),
        ('grads["b"]', "missing"),
        ("grads", "type"),
    ]


def test_values_of_the_run_are_recognised():
    known = {"others": {"dc_prev": other}, "inputs": {"x": dx, "c_prev": dx[:, 0, :1] * hid}}
    c_prev = known["inputs"]["c_prev"]
    for actual, hint in [
        (other, "It is the value of dc_prev:"),
        (c_prev, "It is c_prev, an input:"),
        (hid - c_prev, "What is missing is exactly c_prev, an input:"),
        (hid + other, "What is too much is exactly the value of dc_prev:"),
    ]:
        assert only(HID, hid, actual, **known).hints[0].startswith(hint)
    # the gradient of a parameter has no batch axis: its length is known from the inputs
    (hint,) = only(B, b, b / N, **known).hints
    assert "3 times too small (3 is the size of axis 0 of x)" in hint


def test_no_hint_that_could_be_chance():
    """One entry is always some multiple, and few whole numbers are often some rearrangement."""
    assert only(out("s", "N"), np.array([0.5]), np.array([-0.5])).hints == ()
    assert only(LOSS, 0.5, -0.5).hints == ()
    assert only(out("y", "N"), np.array([1, 2, 3]), np.array([3, 2, 1])).hints == ()
    assert only(out("y", "N"), np.arange(8), np.roll(np.arange(8), 1)).hints == ()
    halves = hid[:1].astype("f2")
    assert only(HID, halves, -halves).hints == ()
    assert only(HID, hid, noise(noise(hid))).hints == ()
    # a shift explains nothing where neighbours are equal anyway
    steps = np.ones((N, T, D))
    assert only(DX, steps, at(steps, np.s_[:, 0])).hints == ()


# ---- tolerance -----------------------------------------------------------------------------------


def sigmoid(z):
    return np.where(z >= 0, 1, np.exp(-np.abs(z))) / (1 + np.exp(-np.abs(z)))


def lstm(x, h, c, dh, W, b, other_way):
    """All values and gradients of an LSTM over T steps, in two orders of computation."""
    size = x.shape[-1]
    dtype, steps, caches, states = x.dtype, x.shape[1], [], []
    if other_way:
        projected = np.einsum("ntd,dk->ntk", x[..., ::-1], W[:size][::-1]) + b
    for t in range(steps):
        h_prev, c_prev = h, c
        if other_way:
            z = projected[:, t] + np.einsum("nh,hk->nk", h[:, ::-1], W[size:][::-1])
        else:
            z = np.concatenate([x[:, t], h], 1) @ W + b
        f, i, g, o = np.split(z, 4, 1)
        f, i, o = ((1 + np.tanh(v / 2)) / 2 if other_way else sigmoid(v) for v in (f, i, o))
        g = np.tanh(g)
        c = f * c + i * g
        h = o * np.tanh(c)
        states.append(h)
        caches.append((h_prev, c_prev, f, i, g, o, c))
    dW, db, dx, dh_next, dc = (np.zeros_like(v) for v in (W, b, x, h, c))
    rows = []
    for t in reversed(range(steps)):
        h_prev, c_prev, f, i, g, o, c_t = caches[t]
        d = dh[:, t] + dh_next
        dc = dc + d * o * (1 - np.tanh(c_t) ** 2)
        dz = [dc * c_prev * f * (1 - f), dc * g * i * (1 - i), dc * i * (1 - g * g)]
        dz = np.concatenate([*dz, d * np.tanh(c_t) * o * (1 - o)], 1)
        inputs = np.concatenate([x[:, t], h_prev], 1)
        rows.append((inputs, dz))
        dW, db = dW + inputs.T @ dz, db + dz.sum(0)
        back = np.einsum("nk,dk->nd", dz[:, ::-1], W[:, ::-1]) if other_way else dz @ W.T
        dx[:, t], dh_next, dc = back[:, :size], back[:, size:], dc * f
    if other_way:
        dW, db = (np.concatenate(v) for v in zip(*rows, strict=True))
        dW, db = np.einsum("nr,nk->rk", dW, db), db[::-1].sum(0)
    values = {"h": np.stack(states, 1), "c": c, "dW": dW, "db": db, "dx": dx, "dh0": dh_next}
    assert all(v.dtype == dtype for v in values.values())
    return values | {"dc0": dc}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "n, t, d, k", [(1, 1, 2, 2), (3, 5, 4, 6), (4, 50, 64, 64), (2, 50, 3, 64)]
)
@pytest.mark.parametrize("gain", [1, 3])
def test_order_of_computation_is_free(dtype, n, t, d, k, gain):
    shapes = [(n, t, d), (n, k), (n, k), (n, t, k), (d + k, 4 * k), (4 * k,)]
    args = [RNG.standard_normal(s).astype(dtype) for s in shapes]
    args[4] *= dtype(gain / np.sqrt(d + k))
    one, two = lstm(*args, other_way=False), lstm(*args, other_way=True)
    for name, expected in one.items():
        assert compare(out(name), expected, two[name]) == []
        loosest = tolerance(np.dtype(dtype), expected.size).rtol
        error = np.abs(two[name] - expected).max() / np.abs(expected).max()
        assert error < loosest / 3, "the tolerance has no margin left"


@pytest.mark.parametrize("shape", [(4,), (3, 5), (4, 50, 64), (100, 200)])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_single_precision_does_not_pass(shape, scale):
    """Not even when it is cast back, however large the array, at any magnitude."""
    for _ in range(5):
        expected = RNG.standard_normal(shape) * scale
        found = only(out("h"), expected, expected.astype(np.float32).astype(np.float64))
        assert "rounding of float32" in found.hints[0]
        for error in (1e-7, 1e-8):
            assert compare(out("h"), expected, expected * (1 + error)) != []


def test_tolerance_grows_slowly_with_size():
    for name in ("float64", "float32", "float16", "complex128"):
        rtol = [tolerance(np.dtype(name), size).rtol for size in (0, 1, 4096, 10**5, 10**9)]
        assert rtol == sorted(rtol)
        assert rtol[-1] <= 4 * rtol[0]
    # the exact GELU and its tanh form differ by up to 4.7e-4 where the result is about 2
    assert 4 * tolerance(np.dtype(np.float32), 1).rtol * 2 * 2 < 4.7e-4


def test_small_expectations_are_not_zeros():
    tiny = RNG.standard_normal((N, H)) * 1e-40
    assert only(HID, tiny, 0 * tiny).hints[0].startswith("Every entry is 0")
    assert only(HID, 0 * tiny, 0 * tiny + 1e-12).message.endswith("off by about 1e-12.")


# ---- trust ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "output, expected",
    [
        (DX, at(dx, np.s_[0, 0], lambda v: v * np.nan)),
        (LOSS, float("nan")),
        (DX, Unfit("a list")),
        (DX, np.array(["a"])),
        (GRADS, {"W": w, "b": b * np.nan}),
    ],
)
def test_fault_of_the_grader(output, expected):
    with pytest.raises(ValueError, match="the expected "):
        compare(output, expected, {"W": w, "b": b} if output is GRADS else expected)


def hostile(rng, shape):
    """Anything that could come back instead of an array of this shape."""
    dtypes = "bool i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 >f8".split()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind = rng.integers(8)
        if kind == 0:
            text = ["", "x\n\x1b[31m" * 99, "None", "a list of 3"][rng.integers(4)]
            others = [None, True, 0, 2**63, 1.5, "a\nb", b"c", [], [[1]], [hid], {}, {"W": 1}]
            others += [{1: 2, "\ud800" * 50: None}, object(), Unfit(text), np.float64(1), {"b": b}]
            others += [float("nan"), -float("inf"), np.array(None), np.array(["a"]), 10**5000]
            others += [{10**5000: 1}, np.zeros((0, 3)), np.zeros((1,) * 30), np.ma.zeros(shape)]
            return others[rng.integers(len(others))]
        if kind == 1:
            shape = tuple(rng.integers(0, 4, rng.integers(0, 5)))
        a = np.asarray(rng.standard_normal(shape) * 10.0 ** rng.integers(-320, 309))
        if kind == 2:
            a = np.asarray(a + 1j * rng.standard_normal(shape) * 1e308)
        if kind > 2 and a.size:
            special = [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1.7e308, -1.7e308, 1.0]
            a.flat[rng.integers(0, a.size, 1 + rng.integers(6))] = special[rng.integers(9)]
        return a.astype(dtypes[rng.integers(len(dtypes))] if kind < 6 else np.float64)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_that_comes_back_breaks_it(seed):
    rng = np.random.default_rng(seed)
    for turn in range(500):
        shape = [(), (1,), (2,), (N, T, D), (H, H), (0, 3), (2, 2, 2, 2)][rng.integers(7)]
        dtype = ["f8", "f8", "f4", "f2", "c16", "i8", "bool", "u8"][rng.integers(8)]
        with np.errstate(all="ignore"):
            scale = 10.0 ** rng.integers(-320, 309) if turn % 2 and dtype == "f8" else 1.0
            expected = np.asarray(rng.standard_normal(shape) * scale).astype(dtype)
            if turn % 5 == 0 and dtype == "f8":
                expected = np.asarray(np.where(rng.random(shape) > 0.5, expected, -np.inf))
        axes = [(), ("N", "T", "D"), ("H", "H"), ("D + H", "4 H"), ("T",), ("N", "T - 1", "2·")]
        output = Output("dx", "array", axes[rng.integers(6)], {0: ("a", "b"), 1: ("c", "d")})
        actual = hostile(rng, shape)
        known = {"others": {"a": hid, "dx": expected}, "inputs": {"x": np.ones(shape), "i": tokens}}
        cases = [(output, expected), (LOSS, 1.5), (COUNT, 3), (IDS, [[1, 2], [hid]])]
        for case in [*cases, (GRADS, {"W": w, "b": b}), (Output("s", "scalar"), "text")]:
            for value in (actual, [actual, [actual]], {"W": actual, "b": actual}):
                for found in compare(*case, value, **known):
                    assert found.message.isprintable()
                    assert len(found.message) < 500
                    assert all(h.isprintable() and len(h) < 300 for h in found.hints)


def leading(value):
    """The first four digits of a number, cut off and rounded."""
    return {f"{abs(value):.{n}e}".replace(".", "")[:4] for n in (3, 17)}


@pytest.mark.parametrize("seed", range(3))
def test_no_expected_value_is_told(seed):
    """Whatever is wrong: no message shows a number with the digits of a value or of an error."""
    rng = np.random.default_rng(seed)
    for output, shape in [(DX, (N, T, D)), (W, (D + H, 4 * H)), (B, (4 * H,)), (SQUARE, (H, H))]:
        for _ in range(5):
            e = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4)
            x = rng.standard_normal(shape)
            near = [-e, e / 3, e + 0.25, e * 1.7, e + x, at(e, np.s_[0]), at(e, np.s_[..., -1])]
            near += [e[::-1], 0 * e, e + 1e-6 * x, x, 1 - e, e.astype("f4").astype("f8"), e * 1234]
            far = [
                e.T,
                e * np.nan,
                at(e, np.s_[0], lambda v: v * np.inf),
                e.astype("f4"),
                e[:1],
                1.5,
            ]
            for actual in near + far:
                found = compare(output, e, actual, others={"x": x}, inputs={"y": e - x})
                text = " ".join(t for m in found for t in (m.message, *m.hints))
                secret = set().union(*(leading(v) for v in e.flat))
                if any(actual is a for a in near):
                    secret = secret.union(*(leading(v) for v in (e - actual).flat))
                shown = {n.replace(".", "").lstrip("0")[:4] for n in re.findall(r"[\d.]+", text)}
                assert not shown & secret, text
                # nor any number of so many digits, but for dtypes and counts of entries
                assert all(len(n) < 4 for n in shown), text


def test_loss_is_not_told():
    for value, wrong in RNG.standard_normal((200, 2)) * 100:
        found = only(LOSS, float(value), float(wrong))
        assert re.fullmatch(r"loss is wrong; off by about (1e-?\d (of|times) )?its value\.",
                            found.message), found.message  # fmt: skip


# ---- joined, and in public tests -----------------------------------------------------------------


def test_summary_names_three_and_counts_the_rest():
    twice, sign = "Is it counted twice?", "Is a minus missing?"
    found = [
        Mismatch("dx", "value", "dx is wrong.", (sign,)),
        Mismatch("dh0", "value", "dh0 is wrong.", (sign, twice)),
        Mismatch("dc0", "value", "dc0 is wrong.", (sign,)),
    ]
    assert summary(found[:1]) == ("dx is wrong.", (sign,))
    assert summary(found) == ("dx is wrong. dh0 is wrong. dc0 is wrong.", (sign, f"dh0: {twice}"))
    more = [Mismatch(name, "value", f"{name} is wrong.") for name in ("h", "c")]
    message, hints = summary(found + more)
    assert message == "dx is wrong. dh0 is wrong. dc0 is wrong. And 2 more outputs: h and c."
    assert hints == (f"dx, dh0 and dc0: {sign}", f"dh0: {twice}")
    assert summary([]) == ("", ())


def test_check_close_takes_what_students_return():
    check_close(hid * (1 + 1e-14), hid, "h", ("N", "H"))
    check_close(np.float64(0.25), np.array(0.25), "s")
    check_close(np.float64(0.25), 0.25, "loss")
    check_close(np.int64(3), 3, "n")
    check_close({"norm": np.float64(2.0), "W": w}, {"W": w, "norm": 2.0}, "clipped")
    check_close([np.int64(1), 2], [1, 2], "ids")
    for actual in (
        None,
        [1.0],
        (hid,),
        {},
        "h",
        object(),
        hid.astype(object),
        np.float32(1),
        hid.T,
    ):
        with pytest.raises(AssertionError, match=r"^h (is|has)"):
            check_close(actual, hid, "h", ("N", "H"))
    with pytest.raises(AssertionError) as caught:
        check_close(-hid, hid, "h", ("N", "H"))
    first, hint = str(caught.value).splitlines()
    assert first.startswith("h is wrong in all 18 entries")
    assert "wrong sign" in hint
    assert [entry.name for entry in caught.traceback if not entry.ishidden(caught)] == [
        "test_check_close_takes_what_students_return"
    ]


def test_check_close_with_inexact_expectations():
    check_close(hid, hid + 1e-7, "dx", rtol=1e-6)
    check_close(np.zeros(5), np.full(5, 1e-10), "dx", rtol=1e-6)
    with pytest.raises(AssertionError, match="dx is wrong in all 18 entries"):
        check_close(hid, hid + 1e-7, "dx")
    with pytest.raises(AssertionError, match="off by about 1e-4"):
        check_close(hid, hid * (1 + 1e-4), "dx", rtol=1e-6)


def test_what_gates_that_are_shut_leave_is_nothing() -> None:
    shut = np.full((N, H), 1e-190)
    for right in (shut, 0 * shut, -shut):
        assert compare(HID, shut, right) == compare(HID, right, shut) == []
    assert compare(HID, shut, shut + 1e-12)
