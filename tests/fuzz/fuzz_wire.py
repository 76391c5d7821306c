"""What the grading process does with bytes from a worker: decode, compare, tell.

An input is one byte that picks a case, and the bytes that a worker sent. ``check`` raises where a rule
is broken; ``mutate`` changes the structure of a message, so that most changes pass the decoder.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
from softmark.isolation import wire
from softmark.script import Operator, Output, Script, Trace, Unfit, Warned
from softmark.verdict import (
    Answer,
    Failure,
    describe,
    differences,
    misshapen,
    same_outputs,
    stopped,
)

MOST_SECONDS = 1.0

_MOST_TOLD = 6000
"""Characters of one message or hint, at most."""

_ARRAY = 1
_DTYPES = "bool int8 int64 uint64 float16 float32 float64 complex64 complex128".split()
_STEP = (
    Output("h", "array", ("N", "H")),
    Output("cache", "private"),
    Output("c", "array", ("N", "H")),
)
_PARAMS = Output(
    "grads",
    "dict",
    entries={
        "W": Output("W", "array", ("D + H", "4 H"), {1: ("f", "i", "c", "o")}),
        "b": Output("b", "array", ("4 H",), {0: ("f", "i", "c", "o")}),
    },
)
_CALLS = {
    "step": _STEP,
    "run": (Output("y", "array", ("N", "T", "H")),),
    "Cell": (),
    "Cell.grads": (_PARAMS,),
    "loss": (Output("loss", "scalar"),),
    "sizes": (Output("sizes", "list"),),
    "check": (Output("found", "scalar"),),
    **{dtype: (Output(dtype, "array", ("N", "N")),) for dtype in _DTYPES},
}


@dataclass(frozen=True)
class Case:
    """A Script, the reference's answer to it, and that of an implementation with a mistake."""

    answer: Answer
    wrong: Trace
    only: tuple[tuple[str, ...], ...]

    @property
    def script(self) -> Script:
        return self.answer.script


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def _lstm() -> Script:
    script = Script(_CALLS)
    cell = script.new("Cell", 3, 4)
    script.call("step", _random(2, 3), _random(2, 4))
    script.call("run", _random(2, 5, 3))
    script.read(cell.grads)
    script.call("loss", _random(2, 4))
    script.call("sizes")
    return script


def _numbers() -> Script:
    script = Script(_CALLS)
    for dtype in _DTYPES:
        script.call(dtype, _random(3, 3))
    script.call("run", _random(2, 5, 3))
    return script


def _raising() -> Script:
    script = Script(_CALLS)
    script.call("loss", 1)
    script.raises("check", -1)
    return script


def _scalars() -> Script:
    script = Script(_CALLS)
    script.count_operators()
    for _ in range(4):
        script.call("loss")
    script.call("sizes")
    return script


def _honest(script: Script, made: list[Any], **more: Any) -> Trace:
    numbers = [handle.number for _, handle, _ in script.outputs()]
    return Trace(dict(zip(numbers, made, strict=True)), seconds=0.01, **more)


def _cases() -> tuple[Case, ...]:
    lstm, numbers, raising, scalars = _lstm(), _numbers(), _raising(), _scalars()
    h, c, y, W, b = (_random(*s) for s in [(2, 4), (2, 4), (2, 5, 4), (7, 16), (16,)])
    values = [h, c, y, {"W": W, "b": b}, 0.5, [3, [1.5, None], "text", True]]
    wrong = [h, c, y / 2, {"W": -W, "b": b}, 1.0, [3, [1.5, None], "text", True]]
    squares = [(9 * _random(3, 3)).astype(dtype) for dtype in _DTYPES]
    odd = y.copy()
    odd[0, 0] = np.inf, -np.inf, 1e308, 5e-324
    raised = wire.unpack_trace(
        wire.pack([[[0, 1.5]], [1, "ValueError", "no", "lstm.py:3", "raise"], [], [], False, None]),
        raising,
        0.01,
    )
    plain = [3, "text", True, None, [3, [1.5, "text"], []]]
    return (
        Case(
            Answer(lstm, _honest(lstm, values)),
            _honest(lstm, wrong),
            ((), ("h",), ('grads["b"]',), ("loss", "sizes")),
        ),
        Case(
            Answer(numbers, _honest(numbers, [*squares, odd])),
            _honest(numbers, [*[-s if s.dtype != bool else ~s for s in squares], y]),
            ((), ("y",), ("float16", "complex64")),
        ),
        Case(Answer(raising, raised), _honest(raising, [1.5]), ((),)),
        Case(
            Answer(scalars, _honest(scalars, plain, operators=(Operator(1, "aten.mm", ()),))),
            _honest(scalars, [4, "text", True, None, []]),
            ((), ("loss",)),
        ),
    )


CASES = _cases()


def check(data: bytes) -> str:
    """Take an input as the grading process would: "refused", "agrees" or "differs".

    Raises AssertionError, or whatever else went wrong.
    """
    if not data:
        return "refused"
    case, body = CASES[data[0] % len(CASES)], data[1:]
    _read_as_stream(data)
    try:
        loaded = wire.unpack_loaded(body)
        _check_text(describe(loaded, "it") if loaded else "")
    except wire.BadFrame as error:
        _check_text(str(error))
    try:
        trace = wire.unpack_trace(body, case.script, 0.01)
    except wire.BadFrame as error:
        _check_text(str(error))
        return "refused"
    _check_trace(trace, case.script)
    with np.errstate(all="ignore"):  # nothing but noise on stderr
        return "differs" if _compare(case, trace) else "agrees"


def _read_as_stream(data: bytes) -> None:
    rest = memoryview(data)

    def receive(count: int) -> bytes:
        nonlocal rest
        assert 0 < count <= 1 << 20
        taken, rest = rest[: min(count, data[0] or 1)], rest[min(count, data[0] or 1) :]
        return bytes(taken)

    with contextlib.suppress(wire.BadFrame, wire.Closed):
        assert wire.read_frame(receive) in data


def _check_trace(trace: Trace, script: Script) -> None:
    """The types that ``Trace`` promises, and nothing that is not an output of the Script."""
    kinds = {handle.number: output.kind for _, handle, output in script.outputs()}
    assert trace.values.keys() <= kinds.keys()
    assert trace.raised or trace.cause or trace.values.keys() == kinds.keys()
    for number, value in trace.values.items():
        kind = {"array": np.ndarray, "list": list, "dict": dict}.get(kinds[number])
        assert kind is None or type(value) in (kind, Unfit), (kinds[number], type(value))
    assert trace.cause in (None, "out_of_memory")
    told = [trace.raised] if trace.raised else []
    for note in [*told, *trace.warnings, *trace.operators[:9]]:
        assert 0 <= note.step < len(script.steps)
    for warned in trace.warnings:
        assert type(warned) is Warned
        for text in (warned.category, warned.message, warned.where):
            _check_text(text)
    for step, name in trace.modified:
        assert 0 <= step < len(script.steps)
        _check_text(name)


def _compare(case: Case, trace: Trace) -> bool:
    """All that is said of a Trace, for what graders ask of it; whether anything is."""
    script, expected = case.script, case.answer.trace
    said = [stopped(script, expected, trace, "ended"), misshapen(script, expected, trace)]
    for only in case.only:
        full = differences(case.answer, trace, only, "ended")
        brief = differences(case.answer, trace, only, "ended", brief=True)
        assert (full is None) == (brief is None)
        said += [full, brief]
        exact = same_outputs(script, expected, trace, only, values_only=True)
        for other in (expected, case.wrong):
            same_outputs(script, other, trace, only, exact=exact)
    for failure in said:
        _check_failure(failure)
    return any(said)


def _check_failure(failure: Failure | None) -> None:
    if failure is not None:
        assert failure.message and len(failure.hints) < 50
        for text in (failure.message, *failure.hints):
            _check_text(text)


def _check_text(text: str) -> None:
    assert text.isprintable(), repr(text[:200])
    assert len(text) <= _MOST_TOLD, len(text)
    text.encode()


# ---- changing messages -----------------------------------------------------------------------------


def seeds() -> list[bytes]:
    """Honest answers to each case: right, wrong, with an error, with all there is to claim."""
    made = []
    for number, case in enumerate(CASES):
        right, wrong = case.answer.trace, case.wrong
        numbers = np.array([0, 0, 2, 2, 3, 4, 0, 0, 1, 0], np.int64)
        claims = [
            [[0, "RuntimeWarning", "overflow", "lstm.py:3"]],
            [[0, "x"]],
            False,
            [["aten.mm", "aten.t"], numbers, True, [[0, 800, 80]]],
        ]
        error = [0, "ValueError", "no", "lstm.py:7", "raise ValueError('no')"]
        for answer in (
            [list(right.values.items()), None, [], [], False, None],
            [list(wrong.values.items()), None, *claims],
            [[], error, [], [], False, None],
            [list(right.values.items()), error, [], [], True, None],
        ):
            made.append(bytes([number]) + wire.pack(answer))
        made.append(bytes([number]) + wire.pack(error))
    return made


def mutate(data: bytes, dice: random.Random) -> bytes:
    """``data`` with some parts of its message changed; random bytes where it is no message."""
    case = data[:1] or b"\0"
    if dice.random() < 0.05:
        case = dice.randbytes(1)
    try:
        message = msgpack.unpackb(data[1:], strict_map_key=False, unicode_errors="surrogateescape")
    except Exception:
        message = msgpack.unpackb(dice.choice(seeds())[1:])
    for _ in range(dice.choice((1, 1, 2, 4))):
        pair = _a_value(message, dice)
        if pair is None:
            message = _changed(message, dice)
        else:
            pair[1] = _changed(pair[1], dice)
    try:
        packed: bytes = msgpack.packb(message, unicode_errors="surrogateescape")
    except Exception:
        return dice.choice(seeds())
    return case + packed


def _a_value(message: Any, dice: random.Random) -> list[Any] | None:
    """One of the numbered results of an answer, more often than not."""
    values = message[0] if isinstance(message, list) and message else None
    if not isinstance(values, list) or not values or dice.random() < 0.4:
        return None
    pair = dice.choice(values)
    return pair if isinstance(pair, list) and len(pair) == 2 else None


def _changed(value: Any, dice: random.Random) -> Any:
    """The same with one part changed, anywhere in it."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        key = dice.choice(list(value))
        changed = dict(value)
        if dice.random() < 0.2:
            part = changed.pop(key)
            if dice.random() < 0.7:
                changed[_key(_odd(dice))] = part
        else:
            changed[key] = _changed(changed[key], dice)
        return changed
    if isinstance(value, list) and value and dice.random() < 0.9:
        place = dice.randrange(len(value))
        changed = list(value)
        if dice.random() < 0.15:
            other = dice.randrange(len(value))
            changed[place:place] = changed[other : other + dice.randrange(3)]
        elif dice.random() < 0.1:
            del changed[place]
        else:
            changed[place] = _changed(changed[place], dice)
        return changed
    if isinstance(value, msgpack.ExtType) and value.code == _ARRAY and dice.random() < 0.95:
        return _changed_array(value, dice)
    if isinstance(value, str) and dice.random() < 0.8:
        return dice.choice(_TEXTS)
    return _odd(dice)


def _key(value: Any) -> Any:
    """Something that a dict of Python's can have as key."""
    return value if isinstance(value, (str, bytes, int, float, type(None))) else "k"


def _changed_array(packed: msgpack.ExtType, dice: random.Random) -> msgpack.ExtType:
    try:
        array = wire.unpack(msgpack.packb(packed))
    except wire.BadFrame:
        return _packed(_random(2, 4))
    if not 0 < array.size <= 4096:
        return _packed(_random(2, 4))
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _packed(dice.choice(_CHANGES)(array, dice))
    except (ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError):
        return _packed(array[..., :1].copy() if array.ndim else array.reshape(1))


def _packed(array: Any) -> msgpack.ExtType:
    code, data = msgpack.unpackb(wire.pack(np.asarray(array)))
    return msgpack.ExtType(code, data)


_VALUES = (0, 1, -1, 2, 0.5, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 2.0**53, 255)


def _some(array: np.ndarray, dice: random.Random) -> np.ndarray:
    """Some entries replaced by odd ones."""
    changed = array.copy()
    for _ in range(dice.choice((1, 1, 2, 9))):
        value = dice.choice(_VALUES)
        changed.flat[dice.randrange(array.size)] = np.float64(value).astype(array.dtype)
    return changed


def _row(array: np.ndarray, dice: random.Random) -> np.ndarray:
    """One index of an axis replaced or scaled."""
    changed = np.moveaxis(array.copy(), dice.randrange(array.ndim), 0)
    place = dice.randrange(len(changed))
    changed[place] = dice.choice((0 * changed[place], 2 * changed[place], changed[0]))
    return changed


_CHANGES: tuple[Callable[[np.ndarray, random.Random], Any], ...] = (
    _some,
    _some,
    _row,
    lambda a, d: a.swapaxes(d.randrange(a.ndim), d.randrange(a.ndim)),
    lambda a, d: np.roll(a, d.randrange(1, 4), d.randrange(a.ndim)),
    lambda a, d: np.flip(a, d.randrange(a.ndim)),
    lambda a, d: (a * d.choice((-1, 2, 0.5, 1 / 3, 0, 1e300, 1e-300))).astype(a.dtype),
    lambda a, d: (a + d.choice((1, -1, 1e-7, 1e-12, a.flat[0]))).astype(a.dtype),
    lambda a, d: (1 - a).astype(a.dtype),
    lambda a, d: np.sort(a, axis=None).reshape(a.shape),
    lambda a, d: a.mean(d.randrange(a.ndim), keepdims=d.random() < 0.7),
    lambda a, d: np.broadcast_to(a.mean(d.randrange(a.ndim), keepdims=True), a.shape).copy(),
    lambda a, d: a.astype(d.choice(_DTYPES)),
    lambda a, d: np.frombuffer(d.randbytes(a.nbytes), a.dtype).reshape(a.shape),
    lambda a, d: np.concatenate([a, a], d.randrange(a.ndim)),
    lambda a, d: a.take(range(a.shape[0] - 1), 0),
    lambda a, d: np.expand_dims(a, d.randrange(a.ndim + 1)),
    lambda a, d: a.reshape(-1),
    lambda a, d: a.reshape(a.shape[::-1]),
    lambda a, d: np.zeros((*a.shape[:-1], 0), a.dtype),
    lambda a, d: np.full(a.shape, d.choice(_VALUES)).astype(a.dtype),
)

_TEXTS = (
    "",
    "W",
    "b",
    "NotImplementedError",
    "ReturnedWrong",
    "NotDefined",
    "ValueError",
    "\x1b[2J\r\n",
    "\u202e\u2028\ud7ff\U0010ffff",
    "x" * 12_000,
    "\x00" * 700,
    "e\u0301" * 400,
    "[bold]{0}%s`",
    b"\xff\xfe",
    "\udcff",
)
_NUMBERS = (0, 1, 2, -1, 7, 2**31, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 1.5, -0.0, 1e308)
_EXTENSIONS = (
    (1, b""),
    (1, b"\x00\x01\x02\x00\x00\x00\x00\x00\x00\x00\x02\xff"),
    (1, struct.pack("<BB8Q", 11, 8, *([2**26] * 7), 0)),
    (1, struct.pack("<BB2Q", 11, 2, 2**63, 2)),
    (1, struct.pack("<BB2Q", 5, 2, 0, 2**26)),
    (1, struct.pack("<BB", 10, 0) + struct.pack("<f", 1)),
    (2, bytes(4)),
    (3, bytes(8)),
    (4, b"a list of 3"),
    (4, b"\x1b]0;\x07\xff" * 200),
    (9, b"x"),
)


def _odd(dice: random.Random) -> Any:
    """A value of any kind."""
    kind = dice.randrange(8)
    if kind == 0:
        return dice.choice(_TEXTS)
    if kind == 1:
        return dice.choice((*_NUMBERS, float("nan"), float("inf"), 10**18))
    if kind == 2:
        return dice.choice((None, True, False, msgpack.Timestamp(1)))
    if kind == 3:
        return msgpack.ExtType(*dice.choice(_EXTENSIONS))
    if kind == 4:
        shape = [dice.choice((0, 1, 2, 3, 4, 5, 16)) for _ in range(dice.randrange(4))]
        return _packed(np.ones(shape).astype(dice.choice(_DTYPES)))
    if kind == 5:
        return _nested(dice)
    if kind == 6:
        return {_key(_odd(dice)): _odd(dice) for _ in range(dice.randrange(3))}
    numbers = [dice.choice((0, 1, 2, 3, 2**62, -1)) for _ in range(dice.randrange(12))]
    return [["aten.mm"], _packed(np.array(numbers, np.int64)), dice.random() < 0.5]


def _nested(dice: random.Random) -> Any:
    depth, width = dice.choice(((1, 0), (2, 2), (3, 5), (15, 1), (18, 1), (60, 1), (1, 300)))
    value: Any = dice.choice((1, "x", None, [], {}))
    for _ in range(depth):
        value = [value] * width if width > 1 or dice.random() < 0.7 else {"k": value}
    return value


def generate(count: int, seed: int) -> list[bytes]:
    """Inputs made from the honest answers by ``mutate``, the same for a seed."""
    dice = random.Random(seed)
    start = itertools.cycle(seeds())
    return [mutate(next(start), dice) for _ in range(count)]
