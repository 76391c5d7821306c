"""What two arrays of one shape tell about a mistake: where it shows, and what would undo it.

All of this ends up before a student, so it speaks of positions, sizes and names, never of values. A
hint is given where its statement holds, within tolerance, on the whole of what is wrong.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softmark.script import Output

Array = NDArray[Any]
Mask = NDArray[np.bool_]

_MOST_ENTRIES = 1 << 18  # larger arrays are located, not explained
_FLOAT32_NOISE = 5e-6  # of the largest value: what fifty steps in float32 leave, and a little more


# ---- axes ----------------------------------------------------------------------------------------


def axis_names(output: Output, ndim: int) -> tuple[str, ...]:
    """The names of the axes; empty ones where the output does not name exactly ``ndim``."""
    return output.axes if len(output.axes) == ndim else ("",) * ndim


def sizes(axes: Sequence[str], shape: Sequence[int]) -> dict[str, int]:
    """The size behind each symbol: ``("D + H", "4 H")`` and ``(9, 16)`` give H = 4 and D = 5."""
    known: dict[str, int] = {}
    equations = [(_terms(axis), n) for axis, n in zip(axes, shape, strict=True)]
    for terms, n in equations * len(equations):
        unknown = {symbol for _, symbol in terms if symbol and symbol not in known}
        if len(unknown) == 1:
            rest = n - sum(k * known.get(s, 1) for k, s in terms if s not in unknown)
            factor = sum(k for k, s in terms if s in unknown)
            if factor and rest % factor == 0:
                known[unknown.pop()] = rest // factor
    return known


def _terms(axis: str) -> list[tuple[int, str]]:
    """``"T - 1"`` as [(1, "T"), (-1, "")]; empty for anything but a sum of multiples of symbols."""
    terms = []
    for sign, text in re.findall(r"([+-]?)([^+-]+)", axis):
        match = re.fullmatch(r"\s*(\d*)\s*[*·]?\s*([A-Za-z_]\w*)?\s*", text)
        if match is None or not (match[1] or match[2]):
            return []
        terms.append(((-1 if sign == "-" else 1) * int(match[1] or 1), match[2] or ""))
    return terms


def _parts(axis: str, known: Mapping[str, int], n: int) -> list[tuple[str, int, int]]:
    """The stretches of a sum such as ``"D + H"``, each as (name, start, stop)."""
    terms = _terms(axis)
    if len(terms) < 2 or any(k < 1 or s not in known for k, s in terms):
        return []
    stops = list(itertools.accumulate(k * known[s] for k, s in terms))
    names = [s if k == 1 else f"{k} {s}" for k, s in terms]
    return list(zip(names, [0, *stops], stops, strict=False)) if stops[-1] == n else []


def listed(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


# ---- where ---------------------------------------------------------------------------------------


def region(wrong: Mask, output: Output) -> str:
    """Where the True entries are, as in "only at t = 0"; "" where nothing short is true."""
    right = ~wrong
    if 0 < 2 * right.sum() <= wrong.sum() and right[np.ix_(*_hit(right))].all():
        return f"everywhere but {' '.join(_box(right, output))}"
    box = _box(wrong, output)
    if wrong.ndim >= 2 and not wrong[np.ix_(*_hit(wrong))].all():
        rows, columns = np.indices(wrong.shape[-2:])
        # aligned at the end, as causal masks are
        ahead = (columns - rows) - (wrong.shape[-1] - wrong.shape[-2])
        for words, place in [("on", ahead == 0), ("above", ahead > 0), ("below", ahead < 0)]:
            place = np.broadcast_to(place, wrong.shape)
            if not wrong[~place].any() and 2 * wrong.sum() >= place.sum():
                return f"only {words} the diagonal of the last two axes"
    return f"only {', '.join(box)}" if box else ""


def _hit(mask: Mask) -> list[NDArray[np.intp]]:
    """The smallest box around the True entries: which indices it takes of each axis."""
    axes = range(mask.ndim)
    return [np.flatnonzero(mask.any(axis=tuple(k for k in axes if k != axis))) for axis in axes]


def _box(mask: Mask, output: Output) -> list[str]:
    """That box in words, an axis at a time; axes taken whole are left out."""
    names = axis_names(output, mask.ndim)
    known = sizes(names, mask.shape)
    words = []
    for axis, (index, n) in enumerate(zip(_hit(mask), mask.shape, strict=True)):
        if not 0 < len(index) < n:
            continue
        blocks = output.blocks.get(axis, ())
        hit = sorted({int(i) * len(blocks) // n for i in index}) if blocks else []
        if len(hit) < len(blocks) and n % len(blocks) == 0:
            named = f"{'block' if len(hit) == 1 else 'blocks'} {listed([blocks[i] for i in hit])}"
            kind = {1: "the entries of ", 2: "the rows of " if axis == 0 else "the columns of "}
            words.append(f"in {kind.get(mask.ndim, '')}{named}")
            continue
        inside = [p for p, i, j in _parts(names[axis], known, n) if i <= index[0] and index[-1] < j]
        part = f" (the {inside[0]} part)" if inside else ""
        words.append(_indices(index, n, names[axis], axis, mask.ndim) + part)
    return words


def _indices(index: NDArray[np.intp], n: int, name: str, axis: int, ndim: int) -> str:
    """Some of the ``n`` indices of an axis, in words."""
    of = f" of {name}" if name else ""
    if name == "T":
        one, many, of = "at t =", "at t =", ""
    elif name == "N":
        one, many, of = "in sample n =", "in samples n =", ""
    elif ndim == 1:
        one, many = "in entry", "in entries"
    elif ndim == 2:
        one, many = ("in row", "in rows") if axis == 0 else ("in column", "in columns")
    else:
        one, many, of = "at index", "at indices", f" of axis {name or axis}"
    first, last, count = int(index[0]), int(index[-1]), len(index)
    if count == 1:
        return f"{one} {first}{of}" + (", the last step" if name == "T" and first == n - 1 else "")
    if count == last - first + 1:
        onward = name == "T" and last == n - 1
        return f"from t = {first} on" if onward else f"{many} {first} to {last}{of}"
    if count == len(range(first, n, 2)) and first < 2 and (np.diff(index) == 2).all():
        return f"{many} {first}, {first + 2}{' and so on' if count > 2 else ''}{of}"
    if count <= 3:
        return f"{many} {listed([str(i) for i in index])}{of}"
    return f"at {count} of the {n} indices of axis {name or axis}"


# ---- why: a wrong shape --------------------------------------------------------------------------


def shape_hints(actual: tuple[int, ...], expected: tuple[int, ...], output: Output) -> list[str]:
    """What a wrong shape suggests; the entries are not looked at."""
    names = [name or str(k) for k, name in enumerate(axis_names(output, len(expected)))]
    for k, n in enumerate(expected):
        if actual == expected[:k] + expected[k + 1 :]:
            why = "squeezed or indexed away" if n == 1 else "summed over, or is only one index kept"
            return [f"Axis {names[k]} is gone: was it {why}?"]
    if len(actual) == len(expected):
        if sorted(actual) == sorted(expected):
            if actual == expected[::-1]:
                return ["The axes are in reverse order: is a transpose missing, or one too many?"]
            return ["The sizes are right but in another order: is a transpose missing or wrong?"]
        off = [k for k, n in enumerate(actual) if n != expected[k]]
        if all(actual[k] == 1 for k in off):
            return [f"Axis {listed([names[k] for k in off])} has size 1: was it summed over?"]
        if len(off) == 1 and abs(actual[off[0]] - expected[off[0]]) == 1:
            more = "one too long" if actual[off[0]] > expected[off[0]] else "one too short"
            return [f"Axis {names[off[0]]} is {more}: where does the range start and stop?"]
    if tuple(n for n in actual if n != 1) == tuple(n for n in expected if n != 1):
        return ["Only axes of size 1 differ: is an index, a squeeze or a keepdims in the way?"]
    if math.prod(actual) == math.prod(expected):
        return ["The number of entries is right: is a reshape missing or wrong?"]
    return []


# ---- why: wrong values ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two finite arrays of one shape, widened to float64 or complex128, that do not agree.

    They differ where ``wrong``. ``dtype`` is the one before widening, ``bound(x)`` how far off an
    entry may be where ``x`` is expected, and ``least`` the number of entries below which a likeness
    could be chance.
    """

    actual: Array
    expected: Array
    wrong: Mask
    dtype: np.dtype[Any]
    output: Output
    bound: Callable[[Array], Array]
    least: int
    others: Mapping[str, Array]
    inputs: Mapping[str, Array]

    def fits(self, x: Array, y: Array, bound: Array | None = None) -> bool:
        """Whether ``x`` can be taken for ``y``, and they are large enough for that to say much."""
        if x.size < self.least:
            return False
        return bool((np.abs(x - y) <= (self.bound(y) if bound is None else bound)).all())

    @property
    def names(self) -> tuple[str, ...]:
        return axis_names(self.output, self.expected.ndim)

    def along(self, axis: int) -> str:
        return f"axis {self.names[axis] or axis}"

    def known(self) -> Iterator[tuple[str, Array]]:
        """The inputs and the other outputs of this shape, but for constant ones."""
        for words, arrays in (("{}, an input", self.inputs), ("the value of {}", self.others)):
            for name, array in arrays.items():
                if array.shape == self.expected.shape and array.dtype.kind in "biufc":
                    wide = widened(array)
                    if np.isfinite(wide).all() and (wide != wide.flat[0]).any():
                        yield words.format(name), wide


def widened(array: Array) -> Array:
    """A copy in float64, or complex128."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def value_hints(pair: Pair) -> tuple[str, ...]:
    """What would turn the actual array into the expected one, else what is odd about it."""
    if not pair.least <= pair.actual.size <= _MOST_ENTRIES:
        return ()
    if not pair.actual.any():
        return ("Every entry is 0: what should have reached it?",)
    for explain in (_copied, _scaled, _moved, _term):
        for hint in explain(pair):
            return (hint,)
    return tuple(itertools.chain(_precision(pair), _uniform(pair), _rows(pair), _sample(pair)))


def _copied(pair: Pair) -> Iterator[str]:
    """Another array of the same run."""
    for what, array in pair.known():
        if pair.fits(pair.actual, array):
            yield f"It is {what}: is the right variable returned, and in the right place?"


def _scaled(pair: Pair) -> Iterator[str]:
    """A sign, a factor or zeros: in every entry, or in every one that is wrong."""
    bound = pair.bound(pair.expected)
    if pair.dtype.kind == "b":
        if pair.wrong.all():
            yield "Every entry is inverted: which sense does True have here?"
        return
    for every, part in (("entry", np.ones_like(pair.wrong)), ("wrong entry", pair.wrong)):
        a, e, b = pair.actual[part], pair.expected[part], bound[part]
        if a.size < pair.least:
            return
        if not e.any():  # that it is 0 times something says nothing
            continue
        if not a.any():
            yield f"Every {every} is 0: is that part of the result ever filled in?"
        if pair.fits(1 - a, e, b):
            yield f"Every {every} is 1 minus what it should be: are a gate and its rest exchanged?"
        if pair.fits(-a, e, b):
            yield f"Every {every} has the wrong sign: is a minus missing, or one too many?"
        peak = np.argmax(np.abs(e))
        ratio = e[peak] / a[peak]
        if not np.isfinite(ratio) or not pair.fits(ratio * a, e, b):
            continue
        sign, also = (-1, "has the wrong sign and is") if ratio.real < 0 else (1, "is")
        for size, power in (("small", 1), ("large", -1)):
            factors = [f for f in _factors(pair) if pair.fits(sign * f[0] ** power * a, e, b)]
            if factors:
                number, facts, asks = _blame(factors, size)
                yield f"Every {every} {also} {number} times too {size}{facts}: {asks}?"
        if a.size >= 4 and pair.dtype.kind in "fc":
            yield f"Every {every} is off by the same factor, and it is no size: is a scale wrong?"


def _factors(pair: Pair) -> list[tuple[float, str, str]]:
    """Factors that explain themselves: (3, "N = 3", "the batch")."""
    known = {s: n for s, n in sizes(pair.names, pair.expected.shape).items() if n > 1}
    over = {"N": "the batch", "T": "time"}
    found = [(float(n), f"{s} = {n}", over.get(s, s)) for s, n in known.items()]
    if known.keys() >= over.keys():
        both = known["N"] * known["T"]
        found.append((both, f"N T = {both}", "batch and time"))
    for s, n in known.items():
        root = math.isqrt(n)
        found.append((math.sqrt(n), f"√{s} = {root}" if root * root == n else f"{s} = {n}", "√"))
    # the gradient of a parameter has no batch axis: the inputs tell how long that is
    for name, array in pair.inputs.items():
        for axis, n in enumerate(array.shape):
            if n > 1 and all(f != n for f, _, _ in found):
                found.append((n, f"{n} is the size of axis {axis} of {name}", "that axis"))
    return [*found, (2.0, "", ""), (3.0, "", "")]


def _blame(factors: list[tuple[float, str, str]], size: str) -> tuple[str, str, str]:
    """The number, what it is equal to, and what to ask."""
    value = factors[0][0]
    number = f"{value:.0f}" if value == round(value) else f"√{value * value:.0f}"
    facts = ", ".join(fact for _, fact, _ in factors if fact)
    asks = []
    for _, _, over in factors:
        if over == "√":
            asks.append("is a scale by the root of a size left out, or used twice")
        elif over and size == "small":
            asks.append(f"was something averaged over {over}")
        elif over:
            asks.append(f"was something summed over {over} instead of averaged")
        elif value == 2 or not facts:
            asks.append(f"is a term {'left out' if size == 'small' else 'counted more than once'}")
    return number, f" ({facts})" if facts else "", ", or ".join(asks[:3])


def _moved(pair: Pair) -> Iterator[str]:
    """The right values in the wrong places."""
    a, e, bound = pair.actual, pair.expected, pair.bound(pair.expected)
    axes = [axis for axis, n in enumerate(e.shape) if n > 1]
    for i, j in itertools.combinations(axes, 2):
        if e.shape[i] == e.shape[j] and pair.fits(a.swapaxes(i, j), e):
            if e.ndim == 2:
                yield "It is the transpose of what is expected: is a .T missing, or one too many?"
            both = f"{pair.along(i)} and {pair.along(j)}"
            yield f"Exchanging {both} would make it right: is a transpose missing or wrong?"
    for axis in axes:
        if pair.fits(np.flip(a, axis), e):
            along = pair.along(axis)
            yield f"The order along {along} is reversed: does a loop or list run the wrong way?"
        yield from _exchanged(pair, axis)
        ends = slice(1, None), slice(None, -1)
        a_, e_, b_ = (np.moveaxis(x, axis, 0) for x in (a, e, bound))
        for (here, there), word in ((ends, "before"), (ends[::-1], "after")):
            # where neighbours are alike, a shift explains nothing
            shifted = len(a_) > 2 and pair.fits(a_[here], e_[there], b_[there])
            if shifted and not pair.fits(a_[here], e_[here], b_[here]):
                step = "step t" if pair.names[axis] == "T" else f"index of {pair.along(axis)}"
                yield f"Each {step} holds what belongs one {word} it: where does the range start?"
    if pair.dtype.kind in "fc" and pair.fits(np.sort(a, axis=None), np.sort(e, axis=None)):
        yield (
            "The values are right but in the wrong places: is an order wrong, or does a reshape "
            "stand where a transpose belongs?"
        )


def _exchanged(pair: Pair, axis: int) -> Iterator[str]:
    """Blocks, or the two parts of a sum, in another order."""
    n, names = pair.expected.shape[axis], pair.output.blocks.get(axis, ())
    if names and n % len(names) == 0:
        came = np.split(pair.actual, len(names), axis)
        bounds = np.split(pair.bound(pair.expected), len(names), axis)
        due = list(zip(np.split(pair.expected, len(names), axis), bounds, strict=True))
        order = [next((k for k, d in enumerate(due) if pair.fits(x, *d)), -1) for x in came]
        if sorted(order) == list(range(len(names))):
            moved = [names[k] for k, home in enumerate(order) if k != home]
            if len(moved) == 2:
                yield f"Blocks {listed(moved)} are exchanged: which order is asked for?"
            blocks = ", ".join(names[k] for k in order)
            yield f"The blocks come in the order {blocks}: which order is asked for?"
    parts = _parts(pair.names[axis], sizes(pair.names, pair.expected.shape), n)
    if len(parts) == 2 and pair.fits(np.roll(pair.actual, parts[0][2], axis), pair.expected):
        both = listed([name for name, _, _ in parts])
        yield f"The parts {both} of {pair.along(axis)} are exchanged: which one comes first?"


def _term(pair: Pair) -> Iterator[str]:
    """A sum with one term too few or too many."""
    lack, bound = pair.expected - pair.actual, pair.bound(pair.expected)
    for what, array in pair.known():
        if pair.fits(lack, array, bound + pair.bound(array)):
            yield f"What is missing is exactly {what}: is that term left out?"
        if pair.fits(-lack, array, bound + pair.bound(array)):
            yield f"What is too much is exactly {what}: is that term added where it should not be?"
    axes = [axis for axis, n in enumerate(lack.shape) if n > 1]
    same = [k for k in axes if pair.fits(lack, lack.mean(k, keepdims=True), bound)]
    if pair.dtype.kind == "b" or lack.size < 3 or not same:
        return
    if same == axes:
        if pair.dtype.kind in "iu" and abs(lack.flat[0]) == 1:
            yield "Every entry is off by one: does counting start at 0 or at 1?"
        yield "Every entry is off by the same amount: is a term missing, or added twice?"
    yield (
        f"The error is the same all along {pair.along(same[0])}: is a term that does not depend on "
        "it, such as a bias, missing or added twice?"
    )


def _precision(pair: Pair) -> Iterator[str]:
    error = np.abs(pair.actual - pair.expected).max()
    double = pair.dtype in (np.float64, np.complex128)
    if double and error <= _FLOAT32_NOISE * np.abs(pair.expected).max():
        yield (
            "The error is as small as the rounding of float32: is something computed in single "
            "precision, or a small epsilon added?"
        )


def _uniform(pair: Pair) -> Iterator[str]:
    """No variation along an axis where there should be some."""
    a, e = pair.actual, pair.expected
    if (a == a.flat[0]).all():
        yield "Every entry is the same: is one value used for all?"
        return
    for axis, n in enumerate(a.shape):
        first = a.take([0], axis)
        if n > 1 and (a == first).all() and not pair.fits(e.take([0], axis) + 0 * e, e):
            yield f"Nothing varies along {pair.along(axis)}: is one index of it used for all?"
            return


def _rows(pair: Pair) -> Iterator[str]:
    """Each vector along the last axis right but for its length."""
    a, e = pair.actual, pair.expected
    if pair.dtype.kind not in "fc" or not 3 <= e.shape[-1] < e.size:
        return
    peak = np.argmax(np.abs(e), -1)[..., None]
    ratio = np.take_along_axis(e, peak, -1) / np.take_along_axis(a, peak, -1)
    if np.isfinite(ratio).all() and ratio.all() and pair.fits(ratio * a, e):
        yield (
            f"Along {pair.along(e.ndim - 1)} everything is right up to a factor, another one each "
            "time: is a normalisation missing, or taken over another axis?"
        )


def _sample(pair: Pair) -> Iterator[str]:
    """A batch in which the first sample is apart."""
    if pair.names[:1] == ("N",) and len(pair.expected) > 1:
        wrong = [bool(sample.any()) for sample in pair.wrong]
        if not wrong[0] and all(wrong[1:]):
            yield "Only the first sample is right: is index 0 used where all samples are meant?"
        if wrong[0] and not any(wrong[1:]) and len(wrong) > 2:
            yield "Only the first sample is wrong: is it treated apart, or overwritten?"
