"""From two Traces of one Script to what is wrong, in words: trace -> compare -> message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmark.compare import Expected, Mismatch, compare, summary
from softmark.hints import sizes
from softmark.script import Cause, Handle, Output, Raised, Script, Step, Trace


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an item is not passed, for the student."""

    message: str
    hints: tuple[str, ...] = ()
    cause: Cause | None = None


class Answer:
    """The reference's Trace of one Script, ready to be compared with many others."""

    def __init__(self, script: Script, trace: Trace) -> None:
        self.script, self.trace, self.nbytes = script, trace, trace.nbytes
        self._asked: dict[tuple[str, ...], list[_Asked]] = {}
        self._arrays = {
            number: _expected(value)
            for number, value in trace.values.items()
            if isinstance(value, (np.ndarray, dict))
        }

    def asked(self, only: Sequence[str]) -> list[_Asked]:
        """The outputs that ``only`` names, or all."""
        key = tuple(only)
        if key not in self._asked:
            self._asked[key] = list(_asked(self.script, key))
        return self._asked[key]

    def agrees(self, handle: Handle, actual: Any, keys: Iterable[str] | None = None) -> bool:
        """A quick yes; False says that ``compare`` has to look. ``keys``: of a dict, only these."""
        expected = self._arrays.get(handle.number)
        if isinstance(expected, dict):
            if not isinstance(actual, dict):
                return False
            if keys is None and actual.keys() != expected.keys():
                return False
            asked = expected if keys is None else keys
            return all(key in actual and expected[key].agrees(actual[key]) for key in asked)
        return expected is not None and expected.agrees(actual)


def _expected(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return Expected(value)
    if all(isinstance(entry, np.ndarray) for entry in value.values()):
        return {key: Expected(entry) for key, entry in value.items()}
    return None


def differences(
    answer: Answer, actual: Trace, only: Sequence[str], ending: str, brief: bool = False
) -> Failure | None:
    """What of the outputs (those named in ``only``, or all) differs from the reference's answer.

    None if nothing does. ``ending`` tells how the process ended, if it did. ``brief``: the first
    difference is enough, without hints.
    """
    script, expected = answer.script, answer.trace
    found: dict[str, Mismatch] = {}
    where = ""
    for step, handle, output, wanted in answer.asked(only):
        if handle.number not in actual.values:
            if found:
                break
            return stopped(script, expected, actual, ending) or Failure(
                f"{output.name} was not returned.", cause="error"
            )
        if answer.agrees(handle, actual[handle], None if wanted is output else wanted.entries):
            continue
        reference, value = (_part(v, wanted, output) for v in (expected[handle], actual[handle]))
        if brief:
            for mismatch in compare(wanted, reference, value, hints=False):
                return Failure(mismatch.message)
            continue
        others, inputs = _arrays(script, expected), _inputs(script, step)
        for mismatch in compare(wanted, reference, value, others=others, inputs=inputs):
            where = where or _where(script, step, expected)
            # of an output that is wrong in several calls, the first call is told
            found.setdefault(mismatch.output, mismatch)
    if not found:
        return None if only else stopped(script, expected, actual, ending)
    message, hints = summary(list(found.values()))
    return Failure(message + where, hints)


def same_outputs(
    script: Script,
    first: Trace,
    second: Trace,
    only: Sequence[str],
    exact: bool = False,
    values_only: bool = False,
) -> bool:
    """Whether two Traces agree up to rounding (``exact``: to the last bit) in the outputs that
    ``only`` names. Where it names none: in all they tell, unless ``values_only``."""
    missing = False
    for _, handle, output, wanted in _asked(script, only):
        if (handle.number in first.values) != (handle.number in second.values):
            return False
        missing = missing or handle.number not in first.values
        one, two = (_part(t.values.get(handle.number), wanted, output) for t in (first, second))
        if not _same_value(one, two, exact):
            return False
    told = [(t.raised.step, t.raised.type) if t.raised else None for t in (first, second)]
    if missing and told[0] != told[1]:
        return False
    if only or values_only:
        return True
    noticed = [
        (told_of, {(w.step, w.category) for w in t.warnings}, set(t.modified))
        for t, told_of in zip((first, second), told, strict=True)
    ]
    return noticed[0] == noticed[1]


def _same_value(one: Any, two: Any, exact: bool) -> bool:
    if isinstance(one, dict) and isinstance(two, dict):
        same_keys = one.keys() == two.keys()
        return same_keys and all(_same_value(one[key], two[key], exact) for key in one)
    if not (isinstance(one, np.ndarray) and isinstance(two, np.ndarray)):
        return type(one) is type(two) and bool(one == two)
    if (one.shape, one.dtype) != (two.shape, two.dtype):
        return False
    if exact or one.dtype.kind not in "fc":
        return np.array_equal(one, two, equal_nan=one.dtype.kind in "fc")
    near = np.finfo(one.dtype).eps ** 0.6  # 4e-10 in float64
    finite = np.abs(one[np.isfinite(one)])
    return np.allclose(one, two, near, near * finite.max(initial=0.0), equal_nan=True)


def misshapen(script: Script, expected: Trace, actual: Trace) -> Failure | None:
    """What of the outputs has another type, shape or dtype than the reference's."""
    for _, handle, output in script.outputs():
        if handle.number not in actual.values:
            return Failure(f"{output.name} was not returned.", cause="error")
        if _same_form(expected[handle], actual[handle]):
            continue
        found = compare(output, expected[handle], actual[handle], form_only=True)
        if found:
            return Failure(*summary(found[:1]))
    return None


def _same_form(expected: Any, actual: Any) -> bool:
    """A quick yes; False says that ``compare`` has to look."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        same_keys = expected.keys() == actual.keys()
        return same_keys and all(_same_form(value, actual[key]) for key, value in expected.items())
    if not (isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray)):
        return False
    return (expected.shape, expected.dtype) == (actual.shape, actual.dtype)


def _where(script: Script, step: Step, expected: Trace) -> str:
    """The sizes of a call, from the axes of what it returns and of what is read after it."""
    known: dict[str, int] = {}
    for around in (step, _call_before(script, step)):
        for i, output in enumerate(around.outputs):
            value = expected.values.get(around.first + i)
            for array, about in _arrays_of(output, value):
                if len(about.axes) == array.ndim:
                    known |= sizes(about.axes, array.shape)
    order = sorted(known.items(), key=lambda item: ("NTSDH".find(item[0]) % 9, item[0]))
    named = ", ".join(f"{axis} = {size}" for axis, size in order)
    return f" Seen with {named}." if named else ""


def _arrays_of(output: Output, value: Any) -> list[tuple[np.ndarray, Output]]:
    pairs = [(value, output)]
    if isinstance(value, dict):
        pairs = [(v, output.entries[k]) for k, v in value.items() if k in output.entries]
    return [(array, about) for array, about in pairs if isinstance(array, np.ndarray)]


def _call_before(script: Script, step: Step) -> Step:
    """The step itself, or where it only reads something the call before it."""
    until = script.steps[: script.steps.index(step) + 1]
    calls = [s for s in until if s.operation in ("new", "call", "method")]
    return step if step in calls or not calls else calls[-1]


def _inputs(script: Script, step: Step) -> dict[str, np.ndarray]:
    call = _call_before(script, step)
    return {
        f"argument {place + 1} of {call.name}": argument
        for place, argument in enumerate(call.args)
        if isinstance(argument, np.ndarray)
    }


def stopped(script: Script, expected: Trace, actual: Trace, ending: str) -> Failure | None:
    """Why a trace ends before its Script does; None if it ends as the reference's."""
    if actual.cause == "timeout" and not actual.limit:
        return Failure("Not run: the time that a submission has is used up.", cause="timeout")
    if actual.cause == "timeout":
        return Failure(
            f"Not finished after {actual.limit:.3g} s; the reference takes "
            f"{_about(expected.seconds)}. Does a loop never end?",
            cause="timeout",
        )
    if actual.cause == "crashed":
        return Failure(f"Your code stopped the grading process: {ending}.", cause="crashed")
    if actual.cause == "out_of_memory":
        where = _at(actual.raised) if actual.raised else ""
        return Failure(f"Your code ran out of memory{where}.", cause="out_of_memory")
    if expected.raised is not None:
        return _wrong_error(script, expected.raised, actual.raised)
    if actual.raised is not None:
        step = script.steps[actual.raised.step]
        name = "Autograd, on the way back," if step.operation == "backward" else step.name
        message = describe(actual.raised, name)
        return Failure(message, _about_in_place(actual.raised), cause="error")
    return None


_OF_LEAF = (
    "Something writes into a tensor that was given: a line such as x *= 2 or x[mask] = 0, or a method "
    "whose name ends in _. The caller still needs it as it was, and autograd refuses it where a "
    "gradient is due. Make a new tensor: x = x * 2, or a method without the _."
)
_OF_KEPT = (
    "A tensor was changed after something had been computed from it, and the way back needs it as it "
    "was. A line such as x *= 2 or x[mask] = 0 changes x itself, as does a method whose name ends in _. "
    "Make a new tensor: x = x * 2, or a method without the _."
)


def _about_in_place(raised: Raised) -> tuple[str, ...]:
    """What autograd's errors on changes in place mean; nothing for any other error."""
    if "requires grad" in raised.message and "in-place operation" in raised.message:
        return (_OF_LEAF,)
    return (_OF_KEPT,) if "modified by an inplace operation" in raised.message else ()


def _wrong_error(script: Script, wanted: Raised, raised: Raised | None) -> Failure | None:
    step = script.steps[wanted.step]
    name = step.name
    plain = [f"{k} = {v}" for k, v in step.kwargs.items() if isinstance(v, (int, float, str))]
    given = f"for {', '.join(plain)}" if plain else "for these arguments"
    if raised is None:
        return Failure(f"{name} should raise {wanted.type} {given} and returned instead.")
    if raised.step != wanted.step:  # before it came to these arguments
        return Failure(describe(raised, script.steps[raised.step].name), cause="error")
    if wanted.type == raised.type or raised.type.endswith(f"({wanted.type})"):
        return None
    if raised.type in ("NotImplementedError", "NotDefined"):
        return Failure(describe(raised, script.steps[raised.step].name), cause="error")
    return Failure(
        f"{name} should raise {wanted.type} {given}; it raised {raised.type}.",
        cause="error",
    )


def describe(raised: Raised, name: str) -> str:
    """An exception of the student's, with its line."""
    if raised.type == "NotImplementedError":
        return f"{raised.message or name} is still to be written{_at(raised)}."
    if raised.type in ("ReturnedWrong", "NotDefined"):
        return f"{raised.message}."
    message, *_ = raised.message.split(". Hint: ")  # PyTorch's, on what no submission need import
    said = f": {message}" if message else ""
    return f"{name} raised {raised.type}{said}{_at(raised)}."


def _at(raised: Raised) -> str:
    if not raised.where:
        return ""
    return f" ({raised.where}, `{raised.line}`)" if raised.line else f" ({raised.where})"


def _about(seconds: float) -> str:
    return "under 0.01 s" if seconds < 0.01 else f"about {seconds:.1g} s"


_Asked = tuple[Step, Handle, Output, Output]
"""An output, its step and handle, and the part of it that is asked for."""


def _asked(script: Script, only: Sequence[str]) -> Iterator[_Asked]:
    for step, handle, output in script.outputs():
        wanted = _wanted(output, only)
        if wanted is not None:
            yield step, handle, output, wanted


def _wanted(output: Output, only: Sequence[str]) -> Output | None:
    """The part of ``output`` that is asked for: the whole, some of a dict's entries, or None."""
    if not only or output.name in only:
        return output
    names = {f'{output.name}["{key}"]': key for key in output.entries}
    keys = [names[name] for name in only if name in names]
    if not keys:
        return None
    entries = {key: output.entries[key] for key in keys}
    return Output(output.name, "dict", entries=entries)


def _part(value: Any, wanted: Output, output: Output) -> Any:
    """The part of a dict that is asked for; anything else as it is."""
    if wanted is output or not isinstance(value, dict):
        return value
    return {key: value[key] for key in wanted.entries if key in value}


def _arrays(script: Script, trace: Trace) -> Mapping[str, np.ndarray]:
    """Every array that the reference returned, by name."""
    arrays = {}
    for _, handle, output in script.outputs():
        value = trace.values.get(handle.number)
        if isinstance(value, np.ndarray):
            arrays[output.name] = value
        elif isinstance(value, dict):
            named = {f'{output.name}["{k}"]': v for k, v in value.items()}
            arrays |= {k: v for k, v in named.items() if isinstance(v, np.ndarray)}
    return arrays
