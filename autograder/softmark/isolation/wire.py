"""What crosses between grader and worker: length-framed MessagePack, never pickle.

Arrays travel as (dtype, shape, bytes), handles and generators by number. A worker is not trusted:
the grader's side bounds a frame before it allocates, takes allow-listed dtypes only, and turns
whatever else arrives into ``BadFrame``. Lists and tuples both arrive as lists.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np

from softmark.script import (
    Handle,
    Memory,
    Operator,
    Output,
    Raised,
    Rng,
    Script,
    Step,
    Trace,
    Unfit,
    Warned,
)

MAX_FRAME = 64 << 20
"""Bytes in one frame, at most."""

MAX_ITEMS = 100_000
"""Lists, dicts and what is in them in one message, at most."""

MAX_OPERATORS, MAX_OPERATOR_NUMBERS = 50_000, 500_000
"""Operators that a Trace tells of, at most, and the numbers that tell of them."""

READY = b"confined"
"""What a worker says, before any frame, once it has taken on its layers."""

_LENGTH = struct.Struct("<Q")
_ARRAY, _HANDLE, _RNG, _UNFIT = 1, 2, 3, 4
_DTYPES = tuple(
    np.dtype(name)
    for name in (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
        "float16 float32 float64 complex64 complex128"
    ).split()
)
_DTYPE_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_MAX_DIMS = 8
_SHAPES = tuple(struct.Struct(f"<{dims}Q") for dims in range(_MAX_DIMS + 1))
_MAX_DEPTH = 16
_TEXT, _SCALAR_TEXT = 500, 10_000  # characters: what is shown to people, and what is compared
_MAX_NAMES, _NAME = 5000, 100

# MessagePack by first byte: bytes that follow; or the size of a length, and what follows besides
_FOLLOWING = {0xCA: 4, 0xCB: 8} | {0xCC + k: 1 << k % 4 for k in range(8)}
_FOLLOWING |= {0xD4 + k: 1 + (1 << k) for k in range(5)}
_SIZED = {0xC4 + k: (1 << k, 0) for k in range(3)} | {0xC7 + k: (1 << k, 1) for k in range(3)}
_SIZED |= {0xD9 + k: (1 << k, 0) for k in range(3)}
_COUNTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}  # parts to each that is counted


class BadFrame(Exception):
    """A frame that no honest worker sends."""


class Closed(Exception):
    """The other end is gone."""


def frame(body: bytes) -> bytes:
    """``body`` with its length in front."""
    return _LENGTH.pack(len(body)) + body


def read_frame(receive: Callable[[int], bytes]) -> bytes:
    """Read one frame with ``receive(n)``, which returns 1 to n bytes, or none at the end.

    Raises Closed at the end of the stream and BadFrame for a frame above ``MAX_FRAME``.
    """
    (length,) = _LENGTH.unpack(_exactly(receive, _LENGTH.size))
    if length > MAX_FRAME:
        raise BadFrame(f"a frame of {length} bytes")
    return _exactly(receive, length)


def _exactly(receive: Callable[[int], bytes], count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = receive(min(count - len(data), 1 << 20))
        if not piece:
            raise Closed
        data += piece
    return bytes(data)


# ---- values ------------------------------------------------------------------------------------


def pack(value: Any) -> bytes:
    """Encode plain data, arrays, handles, generators and Unfit.

    Raises TypeError for any other type, subclasses included, and ValueError or OverflowError for an
    array or integer that the wire does not carry.
    """
    packed: bytes = msgpack.packb(
        value, default=_encode, strict_types=True, unicode_errors="replace"
    )
    return packed


def _encode(value: Any) -> Any:
    kind = type(value)
    if kind is tuple:
        return list(value)
    if kind is np.ndarray:
        return msgpack.ExtType(_ARRAY, _encode_array(value))
    if kind is Handle:
        return msgpack.ExtType(_HANDLE, struct.pack("<I", value.number))
    if kind is Rng:
        return msgpack.ExtType(_RNG, struct.pack("<Q", value.seed))
    if kind is Unfit:
        return msgpack.ExtType(_UNFIT, value.text[:_TEXT].encode("utf-8", "replace"))
    raise TypeError(f"{kind.__name__} does not travel")


def carries(array: np.ndarray) -> bool:
    """Whether an array's dtype and shape travel."""
    return _code(array) is not None


def _code(array: np.ndarray) -> int | None:
    """The number of its dtype on the wire, whatever the byte order; None if it does not travel."""
    if array.ndim > _MAX_DIMS or max(array.shape, default=0) > MAX_FRAME:
        return None
    code = _DTYPE_CODES.get(array.dtype)
    return _DTYPE_CODES.get(array.dtype.newbyteorder("=")) if code is None else code


def _encode_array(array: np.ndarray) -> bytes:
    code = _code(array)
    if code is None:
        raise ValueError(f"an array of {array.dtype} and shape {array.shape} does not travel")
    if array.dtype.kind == "b":  # memory that was never written to holds other bytes than 0 and 1
        array = array.view(np.uint8) != 0
    native = array.astype(_DTYPES[code], order="C", copy=False)
    shape = _SHAPES[array.ndim].pack(*array.shape)
    return bytes((code, array.ndim)) + shape + native.tobytes("C")


def unpack_trusted(data: bytes) -> Any:
    """Decode what the grader's own side packed; arrays are read-only."""
    return msgpack.unpackb(data, ext_hook=_decode)


def unpack(data: bytes) -> Any:
    """Decode what ``pack`` made; arrays are read-only. Raises BadFrame for anything else, and for
    more than ``MAX_ITEMS``."""
    if not within_items(data):
        raise BadFrame("too many items")
    try:
        return msgpack.unpackb(data, ext_hook=_decode)
    except BadFrame:
        raise
    except Exception as error:  # msgpack has many ways to say no
        raise BadFrame(f"not a message: {type(error).__name__}") from None


def within_items(data: bytes) -> bool:
    """Whether a message announces no more than ``MAX_ITEMS``; also where it is cut short.

    Nothing is made of it, since a list of any length can be announced in five bytes, a thousand deep.
    """
    at, items, left = 0, 0, 1
    while left and at < len(data):
        first = data[at]
        at, left, parts = at + 1, left - 1, 0
        if 0xA0 <= first <= 0xBF:
            at += first & 31
        elif 0x80 <= first <= 0x9F:
            parts = (first & 15) * (1 if first >= 0x90 else 2)
            items += 1
        elif first in _COUNTED:
            size, each = _COUNTED[first]
            parts = each * int.from_bytes(data[at : at + size], "big")
            at += size
            items += 1
        elif first in _SIZED:
            size, more = _SIZED[first]
            at += size + more + int.from_bytes(data[at : at + size], "big")
        else:
            at += _FOLLOWING.get(first, 0)
        items, left = items + parts, left + parts
        if items > MAX_ITEMS:
            return False
    return True


def _decode(code: int, data: bytes) -> Any:
    if code == _ARRAY:
        return _decode_array(data)
    if code == _HANDLE and len(data) == 4:
        return Handle(struct.unpack("<I", data)[0])
    if code == _RNG and len(data) == 8:
        return Rng(struct.unpack("<Q", data)[0])
    if code == _UNFIT:
        return Unfit(data[: 4 * _TEXT].decode("utf-8", "replace")[:_TEXT])
    raise BadFrame(f"an unknown extension {code}")


def _decode_array(data: bytes) -> np.ndarray:
    if len(data) < 2 or data[0] >= len(_DTYPES) or data[1] > _MAX_DIMS:
        raise BadFrame("an array of unknown type")
    dtype, dims = _DTYPES[data[0]], data[1]
    start = 2 + 8 * dims
    if len(data) < start:
        raise BadFrame("an array without its shape")
    shape = _SHAPES[dims].unpack_from(data, 2)
    # Python integers: a shape of 2**63 by 2**63 cannot wrap around
    if math.prod(shape) * dtype.itemsize != len(data) - start or max(shape, default=0) > MAX_FRAME:
        raise BadFrame("an array whose bytes do not fill its shape")
    array = np.frombuffer(data, dtype=dtype, offset=start).reshape(shape)
    if dtype.kind == "b" and (array.view(np.uint8) > 1).any():
        raise BadFrame("a truth value that is neither")
    return array


# ---- scripts and traces ------------------------------------------------------------------------


def pack_script(script: Script) -> bytes:
    """The Script as the worker needs it. Equal Scripts give equal bytes."""
    return pack([_step_parts(step, [o.kind for o in step.outputs]) for step in script.steps])


def unread_steps(script: Script) -> list[list[Any]]:
    """The steps of a Script whose outputs are handed back unopened, as if all of them were private."""
    return [_step_parts(step, ["private"] * len(step.outputs)) for step in script.steps]


def _step_parts(step: Step, kinds: list[str]) -> list[Any]:
    outputs = [[output.name, kind] for output, kind in zip(step.outputs, kinds, strict=True)]
    named = dict(step.kwargs)
    return [step.operation, step.name, step.target, step.args, named, outputs, step.first]


def unpack_trace(data: bytes, script: Script, seconds: float) -> Trace:
    """A worker's answer to ``script``, checked piece by piece. Raises BadFrame."""
    answer = unpack(data)
    try:
        values, raised, warned, modified, out_of_memory, logged = answer
        known = {handle.number: output for _, handle, output in script.outputs()}
        steps = len(script.steps)
        if len(values) > len(known):
            raise BadFrame("an answer with more outputs than there are")
        whole = raised is None and not _exact(out_of_memory, bool)
        if whole and {n for n, _ in values} != set(known):
            raise BadFrame("an answer that leaves outputs out")
        operators, more, memory = _costs(logged, steps)
        return Trace(
            values={number: _value(known[number], value) for number, value in values},
            raised=None if raised is None else _raised(raised, steps),
            cause="out_of_memory" if _exact(out_of_memory, bool) else None,
            warnings=tuple(
                Warned(_step(n, steps), _text(category), _text(message), _text(where))
                for n, category, message, where in warned[:100]
            ),
            modified=tuple((_step(n, steps), _text(name)) for n, name in modified[:100]),
            operators=operators,
            more_operators=more,
            memory=memory,
            seconds=seconds,
        )
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise BadFrame(f"not a trace: {type(error).__name__}") from None


def _costs(logged: Any, steps: int) -> tuple[tuple[Operator, ...], bool, tuple[Memory, ...]]:
    """The operators that a worker lists, whether there were more, and the memory of steps.

    They come as names and one array of numbers, since there may be many: for each operator its step,
    the number of its name, how many shapes follow, and each of these as its length and sizes.
    """
    if logged is None:
        return (), False, ()
    names, numbers, more, measured = logged
    names = [_text(name, _NAME) for name in _exact(names, list)[:_MAX_NAMES]]
    if type(numbers) is not np.ndarray or numbers.dtype != np.int64 or numbers.ndim != 1:
        raise TypeError
    if numbers.size > MAX_OPERATOR_NUMBERS or (numbers.size and numbers.min() < 0):
        raise ValueError
    # the same ones come again and again; found by bytes, since whoever wants to can make any number of
    # tuples of integers that hash alike
    known: dict[bytes, Operator] = {}
    operators: list[Operator] = []
    todo, raw, place = numbers.tolist(), numbers.tobytes(), 0
    while place < len(todo):
        end = place + 3
        for _ in range(todo[place + 2]):
            end += 1 + todo[end]
        if end > len(todo) or len(operators) == MAX_OPERATORS:
            raise ValueError
        parts = raw[8 * place : 8 * end]
        if parts not in known:
            known[parts] = _operator(tuple(todo[place:end]), names, steps)
        operators.append(known[parts])
        place = end
    memory = [
        Memory(_step(step, steps), _bytes(peak), _bytes(left))
        for step, peak, left in _exact(measured, list)[:steps]
    ]
    return tuple(operators), _exact(more, bool), tuple(memory)


def _bytes(count: Any) -> int:
    if not 0 <= _exact(count, int) < 1 << 62:
        raise ValueError
    return int(count)


def _operator(parts: tuple[int, ...], names: list[str], steps: int) -> Operator:
    shapes, place = [], 3
    while place < len(parts):
        end = place + 1 + parts[place]
        shapes.append(parts[place + 1 : end])
        place = end
    return Operator(_step(parts[0], steps), names[parts[1]], tuple(shapes))


def _raised(parts: Any, steps: int) -> Raised:
    step, kind, message, where, line = parts
    return Raised(_step(step, steps), _text(kind), _text(message), _text(where), _text(line))


def unpack_loaded(data: bytes) -> Raised | None:
    """A worker's answer to the submission's files: None, or what importing them raised."""
    answer = unpack(data)
    return None if answer is None else unpack_raised(answer)


def unpack_raised(answer: Any) -> Raised:
    """What a worker says was raised, outside of any step. Raises BadFrame."""
    try:
        return _raised(answer, 1)
    except (TypeError, ValueError) as error:
        raise BadFrame(f"not an answer: {type(error).__name__}") from None


def _value(output: Output, value: Any) -> Any:
    """A result of the kind announced, as a worker reads it, or Unfit."""
    kind = type(value)
    if output.kind == "array":
        fits = kind is np.ndarray
    elif output.kind == "dict":
        fits = kind is dict and all(
            type(key) is str and (type(part) is np.ndarray or _is_scalar(part))
            for key, part in value.items()
        )
    elif output.kind == "list":
        fits = kind is list and _is_list(value, _MAX_DEPTH)
    else:
        fits = _is_scalar(value)
    if not (fits or kind is Unfit):
        raise BadFrame("a value of a kind that no worker sends")
    return value


def _is_list(value: Any, depth: int) -> bool:
    """Whether it is a list of scalars and such lists, not too deep; no arrays."""
    return all(
        (depth > 0 and _is_list(part, depth - 1)) if type(part) is list else _is_scalar(part)
        for part in value
    )


def _is_scalar(value: Any) -> bool:
    if type(value) is str:
        return len(value) <= _SCALAR_TEXT
    return type(value) in (float, int, bool, type(None), Unfit)


def _exact(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _text(value: Any, most: int = _TEXT) -> str:
    """Text of the student's on one line, without anything that moves a terminal's cursor."""
    text: str = _exact(value, str)[:most]
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def _step(value: Any, steps: int) -> int:
    if not 0 <= _exact(value, int) < steps:
        raise ValueError
    return int(value)
