"""From two Traces of one Script to what is wrong, in words: trace -> compare -> message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmark.compare import Mismatch, compare, summary
from softmark.script import Cause, Output, Raised, Script, Step, Trace


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an item is not passed, for the student."""

    message: str
    hints: tuple[str, ...] = ()
    cause: Cause | None = None


def differences(
    script: Script, expected: Trace, actual: Trace, only: Sequence[str], limit: float, ending: str
) -> Failure | None:
    """What of ``script``'s outputs (those named in ``only``, or all) differs; None if nothing does.

    ``limit`` are the seconds that it had, ``ending`` how its process ended, if it did.
    """
    mismatches: list[Mismatch] = []
    others = _arrays(script, expected)
    inputs = {
        f"argument {i + 1}": arg
        for step in script.steps
        for i, arg in enumerate(step.args)
        if isinstance(arg, np.ndarray)
    }
    for step, handle, output in script.outputs():
        wanted = _wanted(output, only)
        if wanted is None:
            continue
        if handle.number not in actual.values:
            return stopped(script, expected, actual, limit, ending) or Failure(
                f"{output.name} was not returned.", cause="error"
            )
        label = _label(script, step)
        reference, value = (_part(v, wanted, output) for v in (expected[handle], actual[handle]))
        found = compare(wanted, reference, value, others=others, inputs=inputs)
        mismatches += [_placed(m, label) for m in found]
    if not mismatches:
        return None if only else stopped(script, expected, actual, limit, ending)
    return Failure(*summary(mismatches))


def stopped(
    script: Script, expected: Trace, actual: Trace, limit: float, ending: str
) -> Failure | None:
    """Why a trace ends before its Script does; None if it ends as the reference's."""
    if actual.cause == "timeout":
        return Failure(
            f"not finished after {limit:.3g} s; the reference takes "
            f"{_about(expected.seconds)}. Does a loop never end?",
            cause="timeout",
        )
    if actual.cause == "crashed":
        return Failure(f"your code stopped the grading process: {ending}.", cause="crashed")
    if actual.cause == "out_of_memory":
        where = _at(actual.raised) if actual.raised else ""
        return Failure(f"your code ran out of memory{where}.", cause="out_of_memory")
    if expected.raised is not None:
        return _wrong_error(script, expected.raised, actual.raised)
    if actual.raised is not None:
        step = script.steps[actual.raised.step]
        return Failure(describe(actual.raised, step.name), cause="error")
    return None


def _wrong_error(script: Script, wanted: Raised, raised: Raised | None) -> Failure | None:
    name = script.steps[wanted.step].name
    if raised is None:
        return Failure(
            f"{name} should raise {wanted.type} for these arguments and returned instead."
        )
    if (raised.step, raised.type) == (wanted.step, wanted.type):
        return None
    return Failure(
        f"{name} should raise {wanted.type} for these arguments; it raised {raised.type}.",
        cause="error",
    )


def describe(raised: Raised, name: str) -> str:
    """An exception of the student's, with its line."""
    if raised.type == "NotImplementedError":
        return f"{raised.message or name} is still to be written{_at(raised)}."
    if raised.type == "ReturnedWrong":
        return f"{raised.message}."
    said = f": {raised.message}" if raised.message else ""
    return f"{name} raised {raised.type}{said}{_at(raised)}."


def _at(raised: Raised) -> str:
    if not raised.where:
        return ""
    return f" ({raised.where}, `{raised.line}`)" if raised.line else f" ({raised.where})"


def _about(seconds: float) -> str:
    return "under 0.01 s" if seconds < 0.01 else f"about {seconds:.1g} s"


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


def _label(script: Script, step: Step) -> str:
    """Which call an output is of, where a Script makes more than one that could be meant."""
    alike = [s for s in script.steps if s.name == step.name]
    if len(alike) == 1:
        return ""
    return f" (call {alike.index(step) + 1} of {len(alike)})"


def _placed(mismatch: Mismatch, label: str) -> Mismatch:
    if not label:
        return mismatch
    return Mismatch(mismatch.output, mismatch.kind, mismatch.message + label, mismatch.hints)
