"""Whether a result agrees with the reference's, and if not, what to tell the student.

The expected value is trusted and secret, the actual one neither. A message says which output, what
kind of fault, where and how large to a power of ten; it holds no number from which the expected
value could be had.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from softmark.hints import (
    Array,
    Pair,
    axis_names,
    listed,
    region,
    shape_hints,
    value_hints,
    widened,
)
from softmark.script import Output, Unfit

_NONE: Mapping[str, Array] = MappingProxyType({})
_NAMED = 3  # outputs that a summary names in full


@dataclass(frozen=True)
class Mismatch:
    """One output that does not agree, in words for the student."""

    output: str
    kind: Literal["missing", "type", "shape", "dtype", "nonfinite", "value"]
    message: str
    hints: tuple[str, ...] = ()


# ---- tolerance -----------------------------------------------------------------------------------


class Tolerance(NamedTuple):
    """``|a - e| <= rtol * (|e| + max |e|)``; if max |e| < ``least``, ``zero`` replaces its term."""

    rtol: float
    zero: float
    least: float


_EXACT = Tolerance(0.0, 0.0, 0.0)
_NOTHING = 1e-100
_RTOL = {
    np.dtype(np.float64): 1e-10,
    np.dtype(np.complex128): 1e-10,
    np.dtype(np.float32): 1e-5,
    np.dtype(np.complex64): 1e-5,
    np.dtype(np.float16): 8e-3,
}


@lru_cache(maxsize=1024)
def tolerance(dtype: np.dtype[Any], size: int) -> Tolerance:
    """How far a right answer of ``size`` entries may be from the reference's.

    Two errors have to be told apart. *The same sums in another order*: reversed, by einsum, the
    projections of all steps at once, tanh in the sigmoid. Over fifty LSTM steps of sizes up to 64,
    forward and backward, this moves float64 results by 1e-15 to 1e-14 of the largest entry of their
    array, and float32 ones by up to 2e-6. *Rounding to float32* moves float64 entries by 1e-8 to
    6e-8 of themselves. So float64 gets 1e-10: four decades above the one, two below the other.
    float32 gets 1e-5, which still tells the tanh form of GELU (1e-4) from the exact one. float16,
    where every step rounds, gets 8 units in the last place.

    Where sums cancel, the error is relative to their terms and not to the result: hence max |e|
    beside |e|, which makes entries that are exactly 0 safe too. The price: an entry ten decades
    below the largest is not seen, and should be graded in an array of its own.

    Larger arrays mean longer sums and a worse worst entry: above 4096 entries the tolerance grows
    with the square root of the size, up to 4 times.

    An array of zeros has no scale. It is allowed 64 roundings of 1, which is what the difference of
    equal numbers near 1 leaves. So is one of float64 whose entries are all below 1e-100, where gates are
    shut: there one right sigmoid gives 1e-190 and another 0.
    """
    info = np.finfo(dtype)
    least = max(float(info.tiny), _NOTHING if info.bits == 64 else 0.0)
    rtol = _RTOL[dtype] * min(4.0, max(1.0, math.sqrt(size / 4096)))
    return Tolerance(rtol, min(rtol, 64 * float(info.eps)), least)


def _loose(rtol: float) -> Tolerance:
    """For expectations that are inexact themselves: below 1e-3 the error counts as absolute."""
    return Tolerance(rtol, rtol * 1e-3, 1e-3)


def _bound(expected: Array, tol: Tolerance) -> Array:
    magnitude = np.abs(expected)
    scale = magnitude.max(initial=0.0)
    bound: Array = tol.rtol * magnitude + (tol.rtol * scale if scale >= tol.least else tol.zero)
    return bound


class Expected:
    """An expected array with its tolerance worked out: a quick yes for the many that agree."""

    def __init__(self, array: Array) -> None:
        """Raises ValueError for an array that nothing can agree with, as ``compare`` does."""
        self.array = array
        self._bound: Array | None = None
        if array.dtype in _RTOL and np.isfinite(array).all():
            self._bound = _bound(widened(array), tolerance(array.dtype, array.size))

    def agrees(self, actual: Any) -> bool:
        """True where ``compare`` finds no mismatch; False says that it has to look."""
        array = self.array
        return (
            self._bound is not None
            and type(actual) is np.ndarray
            and actual.dtype == array.dtype
            and actual.shape == array.shape
            and bool((np.abs(actual - array) <= self._bound).all())
        )


# ---- comparing -----------------------------------------------------------------------------------


class _Run(NamedTuple):
    """What else is known of the run that a value comes from."""

    others: Mapping[str, Array] = _NONE
    inputs: Mapping[str, Array] = _NONE
    rtol: float | None = None
    form_only: bool = False
    hints: bool = True


def compare(
    output: Output,
    expected: Any,
    actual: Any,
    *,
    others: Mapping[str, Array] = _NONE,
    inputs: Mapping[str, Array] = _NONE,
    form_only: bool = False,
    hints: bool = True,
) -> list[Mismatch]:
    """How ``actual`` differs from ``expected``; empty where it agrees.

    Type, shape, dtype, non-finite entries and values are checked in this order; the first that
    fails is told. A dict gives a Mismatch for each entry that differs, is missing or is too many;
    its order is free. Dtypes must be the same; integers and bools must be equal. A scalar must have
    the expected type, except that an int passes for the float that it equals; a bool is no number.
    A list must be a list of that length with such items, all the way down.

    ``others`` and ``inputs`` hold the run's other expected outputs and its inputs by name: a result
    that is one of them, or lacks one as a term, is recognised. With ``form_only`` types, shapes and
    dtypes are compared, and no values.

    Never raises for any ``actual``. Raises ValueError where ``expected`` holds NaN or is of a kind
    that has no comparison: that is the grader's fault.
    """
    with np.errstate(all="ignore"):
        return list(
            _differences(
                output.name, output, expected, actual, _Run(others, inputs, None, form_only, hints)
            )
        )


def _differences(
    label: str, output: Output, expected: Any, actual: Any, run: _Run
) -> Iterator[Mismatch]:
    if output.kind == "private":
        return
    found: Mismatch | None
    if isinstance(expected, np.ndarray):
        found = _array(label, output, expected, actual, run)
    elif isinstance(expected, Mapping):
        yield from _dict(label, output, expected, actual, run)
        return
    elif isinstance(expected, (list, tuple)):
        found = _list(label, expected, actual, run)
    elif expected is None or isinstance(expected, (bool, int, float, str)):
        found = _scalar(label, expected, actual, run)
    else:
        raise ValueError(f"the expected {label} is {_described(expected)}: nothing to compare with")
    if found:
        yield found


def _dict(
    label: str, output: Output, expected: Mapping[str, Any], actual: Any, run: _Run
) -> Iterator[Mismatch]:
    if not isinstance(actual, Mapping):
        yield _other_type(label, actual, f"a dict with the keys {_keys(expected)}")
        return
    for key, value in expected.items():
        entry = f'{label}["{key}"]'
        if key in actual:
            about = output.entries.get(key) or Output(key, "array")
            yield from _differences(entry, about, value, actual[key], run)
        else:
            there = f"it has {_keys(actual)}" if actual else "it is empty"
            yield Mismatch(entry, "missing", f"{label} has no entry {_keys([key])}: {there}.")
    extra = [key for key in actual if key not in expected]
    if extra:
        message = f"{label} has {_keys(extra)} too; only {_keys(expected)} belongs there."
        yield Mismatch(label, "type", message)


def _list(label: str, expected: Sequence[Any], actual: Any, run: _Run) -> Mismatch | None:
    if not isinstance(actual, list):
        return _other_type(label, actual, f"a list of {len(expected)}")
    if len(actual) != len(expected):
        if run.form_only and not any(isinstance(e, np.ndarray) for e in expected):
            return None  # of numbers, tokens say, how many there are belongs to the value
        message = f"{label} has length {len(actual)}; {len(expected)} was expected."
        return Mismatch(label, "shape", message)
    item = Output(label, "array")
    pairs = enumerate(zip(expected, actual, strict=True))
    found = (m for i, (e, a) in pairs for m in _differences(f"{label}[{i}]", item, e, a, run))
    return next(found, None)


def _scalar(label: str, expected: Any, actual: Any, run: _Run) -> Mismatch | None:
    if isinstance(expected, float):
        if isinstance(actual, float):
            both = np.array(expected, np.float64), np.array(actual, np.float64)
            return _array(label, Output(label, "scalar"), *both, run)
        if type(actual) is int and actual == expected:
            return None
        return _other_type(label, actual, "a float")
    if type(actual) is not type(expected):
        return _other_type(label, actual, _described(expected))
    if run.form_only or actual == expected:
        return None
    return Mismatch(label, "value", f"{label} is not the {type(expected).__name__} expected.")


def _array(label: str, output: Output, expected: Array, actual: Any, run: _Run) -> Mismatch | None:
    if type(actual) is not np.ndarray:
        return _other_type(label, actual, f"an array of shape {_shape(expected, output)}")
    if actual.shape != expected.shape:
        hints = shape_hints(actual.shape, expected.shape, output)
        came = _clean(str(actual.shape))
        message = f"{label} has shape {came}; {_shape(expected, output)} was expected."
        return Mismatch(label, "shape", message, tuple(hints))
    if actual.dtype != expected.dtype and actual.dtype.str[1:] != expected.dtype.str[1:]:
        return _other_dtype(label, expected.dtype, actual.dtype)
    if run.form_only:
        return None
    if expected.dtype.kind not in "biu" and expected.dtype not in _RTOL:
        raise ValueError(f"the expected {label} has dtype {expected.dtype}: it has no tolerance")
    return _values(label, output, expected, actual, run)


def _values(
    label: str, output: Output, expected: Array, actual: Array, run: _Run
) -> Mismatch | None:
    """Compare two arrays of one shape and dtype."""
    dtype, tol = expected.dtype, _EXACT
    a, e = widened(actual), widened(expected)
    if dtype.kind in "biu":
        wrong = np.asarray(actual != expected)
    else:
        tol = tolerance(dtype, expected.size) if run.rtol is None else _loose(run.rtol)
        bound = _bound(e, tol)
        # where the expectation is infinite or NaN, the bound is too
        if ((np.abs(a - e) <= bound) & (bound < np.inf)).all():
            return None
        if np.isnan(e).any():
            raise ValueError(f"the expected {label} holds NaN")
        infinite = np.isinf(e)
        bad = np.asarray(np.where(infinite, a != e, ~np.isfinite(a)))
        if bad.any():
            return _nonfinite(label, output, a, bad)
        a[infinite] = e[infinite] = 0
        wrong = np.asarray(~(np.abs(a - e) <= _bound(e, tol)))
    if not wrong.any():
        return None
    off = "" if tol is _EXACT else f"; off by {_magnitude(a, e, tol)}"
    # coarse and whole numbers agree by chance where there are few
    least = 2 if tol is not _EXACT and tol.rtol < 1e-4 else 8
    within = partial(_bound, tol=tol)
    pair = Pair(a, e, wrong, dtype, output, within, least, run.others, run.inputs)
    message = f"{label} is wrong{_extent(wrong, output)}{off}."
    return Mismatch(label, "value", message, value_hints(pair) if run.hints else ())


# ---- wording -------------------------------------------------------------------------------------


def _other_type(label: str, actual: Any, wanted: str) -> Mismatch:
    came = _described(actual)
    hints: tuple[str, ...] = ()
    if came == "None":
        hints = ("Is a return missing?",)
    elif wanted.startswith("an array") and came.startswith(("a list", "a tuple")):
        hints = ("Is np.stack, np.concatenate or np.array missing?",)
    return Mismatch(label, "type", f"{label} is {came}; {wanted} was expected.", hints)


def _other_dtype(label: str, expected: np.dtype[Any], actual: np.dtype[Any]) -> Mismatch:
    hint = "Is an array created or converted with another dtype than is asked for?"
    if expected.kind in "fc" and actual.kind in "biu":
        hint = "Is it made like an array of integers, or with //, so that fractions are lost?"
    elif expected.kind in "fc":
        hint = "Results keep the dtype of the inputs: where is another one created or cast to?"
    message = f"{label} has dtype {_clean(actual.name)}; {expected.name} was expected."
    return Mismatch(label, "dtype", message, (hint,))


def _nonfinite(label: str, output: Output, a: Array, bad: Array) -> Mismatch:
    nan, infinite = bad & np.isnan(a), bad & np.isinf(a)
    if nan.any():
        told, word, rest = nan, "NaN", ""
        hint = "is 0 divided by 0, inf taken from inf, or the root or log of a negative taken?"
        if infinite.any():
            rest = f", and infinite in {infinite.sum()}"
    elif infinite.any():
        told, word, rest = infinite, "infinite", ""
        hint = "does exp overflow, or is something divided by 0?"
    else:
        told, word, rest = bad, "finite", ", where infinity is due"
        hint = "is a large number used where infinity is meant, as in a mask?"
    names = axis_names(output, a.ndim)
    start = int(np.argwhere(told)[:, names.index("T")].min()) if "T" in names else 0
    hint = f"It begins at t = {start}: {hint}" if start else hint[0].upper() + hint[1:]
    message = f"{label} is {word}{_extent(np.asarray(told), output)}{rest}."
    return Mismatch(label, "nonfinite", message, (hint,))


def _extent(mask: Array, output: Output) -> str:
    """How many entries ``mask`` picks, and which."""
    if mask.size == 1:
        return ""
    if mask.all():
        return f" in all {mask.size} entries"
    where = region(mask, output)
    return f" in {mask.sum()} of {mask.size} entries{', ' if where else ''}{where}"


def _magnitude(a: Array, e: Array, tol: Tolerance) -> str:
    """The largest error to a power of ten, relative to the largest value where there is one."""
    error, scale = float(np.abs(a - e).max()), float(np.abs(e).max())
    ratio = error / scale if scale >= tol.least else error
    if not 0 < ratio < math.inf:
        return "more than can be told"
    power = round(math.log10(ratio))
    if scale < tol.least:
        return f"about 1e{power}"
    share = f"1e{power} " + ("of " if power < 0 else "times ") if power else ""
    return f"about {share}its {'value' if e.size == 1 else 'largest value'}"


def _described(value: Any) -> str:
    """What kind of thing came, without its value."""
    if value is None:
        return "None"
    if isinstance(value, Unfit):
        return _clean(value.text) or "of another kind"
    if type(value) is np.ndarray:
        return f"an array of shape {_clean(str(value.shape))}"
    name = {"str": "string"}.get(type(value).__name__, type(value).__name__)
    article = "an" if name[:1].lower() in "aeiou" else "a"
    count = f" of {len(value)}" if type(value) in (list, tuple, dict) else ""
    return f"{article} {_clean(name)}{count}"


def _shape(expected: Array, output: Output) -> str:
    names = axis_names(output, expected.ndim)
    named = f", that is ({', '.join(names)}{',' if len(names) == 1 else ''})," if any(names) else ""
    return f"{expected.shape}{named}"


def _keys(keys: Iterable[Any]) -> str:
    first = itertools.islice(keys, 9)
    names = [f'"{_clean(k, 30)}"' if isinstance(k, str) else _described(k) for k in first]
    return listed([*names[:8], "more"] if len(names) > 8 else names)


def _clean(text: str, most: int = 100) -> str:
    """Text of the student's on one printable line of bounded length."""
    text = "".join(c if c.isprintable() else "?" for c in text[: most + 1])
    return text if len(text) <= most else f"{text[:most]}..."


# ---- many, and in public -------------------------------------------------------------------------


def summary(mismatches: Sequence[Mismatch]) -> tuple[str, tuple[str, ...]]:
    """One message for several outputs, and their hints, each said once.

    A hint names its outputs where it is not about all of them.
    """
    messages = [m.message for m in mismatches[:_NAMED]]
    rest = list(dict.fromkeys(m.output for m in mismatches[_NAMED:]))
    if rest:
        outputs = "1 more output" if len(rest) == 1 else f"{len(rest)} more outputs"
        named = rest if len(rest) <= _NAMED else [*rest[:_NAMED], "others"]
        messages.append(f"And {outputs}: {listed(named)}.")
    outputs_of: dict[str, dict[str, None]] = {}
    for m in mismatches:
        for hint in m.hints:
            outputs_of.setdefault(hint, {})[m.output] = None
    everywhere = {m.output for m in mismatches}
    hints = (
        hint if outputs.keys() == everywhere else f"{listed(list(outputs))}: {hint}"
        for hint, outputs in outputs_of.items()
    )
    return " ".join(messages), tuple(hints)


def check_close(
    actual: Any,
    expected: Any,
    name: str,
    axes: tuple[str, ...] = (),
    rtol: float | None = None,
) -> None:
    """Assert that ``actual`` agrees with ``expected``, as the hidden graders would.

    For public tests. ``actual`` may be anything; ``axes`` names the axes of an expected array. With
    ``rtol``, values may be off by it relative to the largest one, for expectations that are inexact
    themselves such as central differences; errors then count as absolute below 1e-3.

    Raises AssertionError with the message and the hints, a line each.
    """
    __tracebackhide__ = True
    expected = _received(expected)
    output = Output(name, "array", axes)
    with np.errstate(all="ignore"):
        run = _Run(rtol=rtol)
        found = list(_differences(name, output, expected, _received(actual, expected), run))
    if found:
        message, hints = summary(found)
        raise AssertionError("\n".join([message, *hints]))


def _received(value: Any, like: Any = None) -> Any:
    """``value`` as it would arrive from a worker: arrays and numbers without NumPy's subclasses."""
    if isinstance(value, np.ndarray) or (
        isinstance(value, np.generic) and type(like) is np.ndarray
    ):
        number = value.dtype.kind in "biufc"
        return np.array(value, value.dtype.newbyteorder("=") if number else None, subok=False)
    if isinstance(value, (np.bool_, np.integer, np.float64)):
        return value.item()
    if isinstance(value, Mapping):
        known = like if isinstance(like, Mapping) else {}
        return {key: _received(v, known.get(key)) for key, v in value.items()}
    if type(value) is list:
        return [_received(v) for v in value]
    return value
