"""What crosses between grader and worker: length-framed MessagePack, never pickle.

Arrays travel as (dtype, shape, bytes), handles and generators by number. A worker is not trusted:
the grader's side bounds a frame before it allocates, takes allow-listed dtypes only, and turns
whatever else arrives into ``BadFrame``. Lists and tuples both arrive as lists.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
import numpy as np

from softmark.script import Handle, Operator, Output, Raised, Rng, Script, Trace, Unfit, Warned

MAX_FRAME = 64 << 20
"""Bytes in one frame, at most."""

MAX_OPERATORS, MAX_OPERATOR_NUMBERS = 100_000, 2_000_000
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
_MAX_ITEMS = 200_000
_MAX_DEPTH = 16
_TEXT = 2000
_MAX_NAMES = 5000


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
    """Whether an array's dtype and number of dimensions travel."""
    return _code(array.dtype) is not None and array.ndim <= _MAX_DIMS


def _code(dtype: np.dtype) -> int | None:
    """The number of a dtype on the wire, whatever its byte order."""
    code = _DTYPE_CODES.get(dtype)
    return _DTYPE_CODES.get(dtype.newbyteorder("=")) if code is None else code


def _encode_array(array: np.ndarray) -> bytes:
    code = _code(array.dtype)
    if code is None or array.ndim > _MAX_DIMS:
        raise ValueError(f"an array of {array.dtype} with {array.ndim} dimensions does not travel")
    native = array.astype(_DTYPES[code], order="C", copy=False)
    return struct.pack(f"<BB{array.ndim}Q", code, array.ndim, *array.shape) + native.tobytes("C")


def unpack_trusted(data: bytes) -> Any:
    """Decode what the grader's own side packed; arrays are read-only."""
    return msgpack.unpackb(data, ext_hook=_decode)


def unpack(data: bytes) -> Any:
    """Decode what ``pack`` made; arrays are read-only. Raises BadFrame for anything else, and for
    more items than an honest message has."""
    room = _MAX_ITEMS

    def count(container: Any) -> Any:
        nonlocal room
        room -= 1 + len(container)
        if room < 0:
            raise BadFrame("too many items")
        return container

    try:
        return msgpack.unpackb(
            data,
            ext_hook=_decode,
            list_hook=count,
            object_hook=count,
            max_array_len=_MAX_ITEMS,
            max_map_len=_MAX_ITEMS,
        )
    except BadFrame:
        raise
    except Exception as error:  # msgpack has many ways to say no
        raise BadFrame(f"not a message: {type(error).__name__}") from None


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
    shape = struct.unpack(f"<{dims}Q", data[2:start])
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
    return pack(
        [
            [
                step.operation,
                step.name,
                step.target,
                step.args,
                dict(step.kwargs),
                [[output.name, output.kind] for output in step.outputs],
                step.first,
            ]
            for step in script.steps
        ]
    )


def unpack_trace(data: bytes, script: Script, seconds: float) -> Trace:
    """A worker's answer to ``script``, checked piece by piece. Raises BadFrame."""
    answer = unpack(data)
    try:
        values, raised, warned, modified, out_of_memory, logged = answer
        known = {handle.number: output for _, handle, output in script.outputs()}
        steps = len(script.steps)
        if raised is None and not out_of_memory and {n for n, _ in values} != set(known):
            raise BadFrame("an answer that leaves outputs out")
        operators, more = _operators(logged, steps)
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
            seconds=seconds,
        )
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise BadFrame(f"not a trace: {type(error).__name__}") from None


def _operators(logged: Any, steps: int) -> tuple[tuple[Operator, ...], bool]:
    """The operators that a worker lists, and whether there were more.

    They come as names and one array of numbers, since there may be many: for each operator its step,
    the number of its name, how many shapes follow, and each of these as its length and sizes.
    """
    if logged is None:
        return (), False
    names, numbers, more = logged
    names = [_text(name) for name in _exact(names, list)[:_MAX_NAMES]]
    if type(numbers) is not np.ndarray or numbers.dtype != np.int64 or numbers.ndim != 1:
        raise TypeError
    if numbers.size > MAX_OPERATOR_NUMBERS or (numbers.size and numbers.min() < 0):
        raise ValueError
    known: dict[tuple[int, ...], Operator] = {}
    operators: list[Operator] = []
    todo, place = numbers.tolist(), 0
    while place < len(todo):
        end = place + 3
        for _ in range(todo[place + 2]):
            end += 1 + todo[end]
        parts = tuple(todo[place:end])
        if len(parts) != end - place or len(operators) == MAX_OPERATORS:
            raise ValueError
        if parts not in known:
            known[parts] = _operator(parts, names, steps)
        operators.append(known[parts])
        place = end
    return tuple(operators), _exact(more, bool)


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
    try:
        return None if answer is None else _raised(answer, 1)
    except (TypeError, ValueError) as error:
        raise BadFrame(f"not an answer: {type(error).__name__}") from None


def _value(output: Output, value: Any) -> Any:
    _check_kind(value, _MAX_DEPTH)
    if output.kind == "dict" and not isinstance(value, (Mapping, Unfit)):
        raise BadFrame("no dict where one was announced")
    return value


def _check_kind(value: Any, depth: int) -> None:
    """Only what a worker's results may be, all the way down."""
    if type(value) in (list, dict) and depth:
        for part in value.values() if type(value) is dict else value:
            _check_kind(part, depth - 1)
    elif type(value) not in (np.ndarray, Unfit, float, int, bool, str, type(None)):
        raise BadFrame("a value of a kind that no worker sends")


def _exact(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _text(value: Any) -> str:
    """Text of the student's on one line, without anything that moves a terminal's cursor."""
    text: str = _exact(value, str)[:_TEXT]
    return "".join(c if c.isprintable() else " " for c in text)


def _step(value: Any, steps: int) -> int:
    if not 0 <= _exact(value, int) < steps:
        raise ValueError
    return int(value)
