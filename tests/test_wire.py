"""The wire carries exact values there and back, and turns everything else into BadFrame."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from fractions import Fraction
from typing import Any

import msgpack
import numpy as np
import pytest
from softmark.isolation import wire
from softmark.isolation.wire import BadFrame, Closed
from softmark.script import Handle, Memory, Operator, Output, Raised, Rng, Script, Unfit, Warned

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float16 float32 float64 complex64 complex128"
).split()
RNG = np.random.default_rng(0)


def _same(before: np.ndarray, after: Any) -> None:
    assert type(after) is np.ndarray
    assert after.dtype == before.dtype.newbyteorder("=")
    assert after.shape == before.shape
    assert np.array_equal(after, before, equal_nan=before.dtype.kind in "fc")


# ---- there and back --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4), (1,) * 8])
def test_arrays_of_every_dtype(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.asarray(RNG.normal(size=shape) * 50).astype(dtype)
    _same(array, wire.unpack(wire.pack(array)))


LAYOUTS = {
    "Fortran": np.asfortranarray(RNG.normal(size=(3, 4))),
    "big-endian": RNG.normal(size=(3, 4)).astype(">f8"),
    "big-endian integers": np.arange(6, dtype=">i4"),
    "negative strides": RNG.normal(size=(3, 4))[::-1, ::-2],
    "broadcast": np.broadcast_to(RNG.normal(size=(1, 4)), (3, 4)),
    "transposed": RNG.normal(size=(2, 3, 4)).transpose(2, 0, 1),
    "read-only": np.frombuffer(b"\1\2\3", dtype=np.uint8),
    "not finite": np.array([np.nan, np.inf, -np.inf, -0.0]),
}


@pytest.mark.parametrize("array", LAYOUTS.values(), ids=LAYOUTS)
def test_arrays_of_every_layout(array: np.ndarray) -> None:
    _same(array, wire.unpack(wire.pack(array)))


def test_bits_survive() -> None:
    array = np.array([0x7FF8_0000_0000_1234, 0x8000_0000_0000_0000], np.uint64).view(np.float64)
    assert wire.unpack(wire.pack(array)).tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "value",
    [
        *(
            None,
            True,
            False,
            0,
            -1,
            2**63,
            2**64 - 1,
            -(2**63),
            0.1,
            float("inf"),
            "",
            "é\n\0",
            b"\xff",
        ),
        *([], [1, [2.0, ["x"]]], {}, {"a": {"b": None}}, Handle(0), Handle(2**32 - 1)),
        *(Rng(0), Rng(2**64 - 1), Unfit("a list"), [Handle(1), Rng(2)]),
    ],
    ids=repr,
)
def test_plain_values(value: Any) -> None:
    back = wire.unpack(wire.pack(value))
    assert back == value
    assert type(back) is type(value)


def test_nan_and_tuples() -> None:
    assert np.isnan(wire.unpack(wire.pack(float("nan"))))
    assert wire.unpack(wire.pack((1, (2, [3])))) == [1, [2, [3]]]


def test_equal_values_have_equal_bytes() -> None:
    fortran = np.asfortranarray(np.eye(3, 4))
    assert wire.pack([fortran]) == wire.pack([np.eye(3, 4)])
    assert wire.pack(np.arange(3, dtype=">i8")) == wire.pack(np.arange(3))


class _Float(float):
    pass


class _Dict(dict):
    pass


class _Array(np.ndarray):
    pass


REFUSED = {
    "object": object(),
    "class": int,
    "function": print,
    "set": {1},
    "complex": 1j,
    "fraction": Fraction(1, 2),
    "numpy scalar": np.float64(1),
    "numpy bool": np.bool_(True),
    "float subclass": _Float(1),
    "dict subclass": _Dict(a=1),
    "array subclass": np.eye(2).view(_Array),
    "matrix": np.eye(2).view(np.matrix),
    "masked": np.ma.array([1, 2]),
    "object array": np.array([None]),
    "structured": np.zeros(2, [("a", "f8")]),
    "text array": np.array(["a"]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "long double": np.zeros(2, np.longdouble),
    "too big": 2**64,
    "too small": -(2**63) - 1,
    "generator": (i for i in ()),
    "nine axes": np.zeros((1,) * 9),
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_what_does_not_travel(value: Any) -> None:
    for wrapped in (value, [value], {"a": value}):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            wire.pack(wrapped)


def test_arrays_arrive_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        wire.unpack(wire.pack(np.zeros(3)))[0] = 1


# ---- frames ----------------------------------------------------------------------------------------


def _reader(data: bytes, piece: int = 1 << 20) -> Any:
    rest = memoryview(data)

    def receive(count: int) -> bytes:
        nonlocal rest
        taken, rest = rest[: min(count, piece)], rest[min(count, piece) :]
        return bytes(taken)

    return receive


@pytest.mark.parametrize("piece", [1, 3, 1 << 20])
def test_a_frame_in_pieces(piece: int) -> None:
    receive = _reader(wire.frame(b"hello") + wire.frame(b"") + wire.frame(b"you"), piece)
    assert [wire.read_frame(receive) for _ in range(3)] == [b"hello", b"", b"you"]
    with pytest.raises(Closed):
        wire.read_frame(receive)


@pytest.mark.parametrize("cut", [1, 7, 8, 12])
def test_a_frame_cut_short(cut: int) -> None:
    with pytest.raises(Closed):
        wire.read_frame(_reader(wire.frame(b"hello")[:cut]))


@pytest.mark.parametrize("length", [wire.MAX_FRAME + 1, 2**63, 2**64 - 1])
def test_a_frame_above_the_bound_is_refused_before_it_is_read(length: int) -> None:
    asked = []

    def receive(count: int) -> bytes:
        asked.append(count)
        return struct.pack("<Q", length)[:count]

    with pytest.raises(BadFrame):
        wire.read_frame(receive)
    assert asked == [8]


# ---- malformed messages ----------------------------------------------------------------------------


def _ext(code: int, data: bytes) -> bytes:
    packed: bytes = msgpack.packb(msgpack.ExtType(code, data))
    return packed


def _array(dtype: int, shape: tuple[int, ...], data: bytes = b"", dims: int | None = None) -> bytes:
    dims = len(shape) if dims is None else dims
    return _ext(1, struct.pack(f"<BB{len(shape)}Q", dtype, dims, *shape) + data)


MALFORMED = {
    "nothing": b"",
    "never used": b"\xc1",
    "two messages": b"\xc0\xc0",
    "text that is no text": b"\xa2\xff\xfe",
    "a list cut short": b"\x93\x01",
    "a long list cut short": b"\xdd\xff\xff\xff\xff",
    "a long map cut short": b"\xdf\xff\xff\xff\xff",
    "long text cut short": b"\xdb\xff\xff\xff\xffx",
    "long bytes cut short": b"\xc6\xff\xff\xff\xffx",
    "a long extension cut short": b"\xc9\xff\xff\xff\xff\x01",
    "a number as key": b"\x81\x01\x01",
    "nothing as key": b"\x81\xc0\x01",
    "a list as key": b"\x81\x90\x01",
    "a handle as key": b"\x81" + _ext(2, bytes(4)) + b"\x01",
    "deep lists": b"\x91" * 100_000 + b"\xc0",
    "deep maps": b"\x81\xa1a" * 100_000 + b"\xc0",
    "unknown extension": _ext(9, b"x"),
    "extension 0": _ext(0, b"x"),
    "an extension without data": _ext(1, b""),
    "a short handle": _ext(2, b"\1\2\3"),
    "a long handle": _ext(2, bytes(8)),
    "a short generator": _ext(3, b"\1"),
    "unknown dtype": _array(14, (1,), bytes(8)),
    "dtype 255": _array(255, (1,), bytes(8)),
    "no shape": _ext(1, b"\x0b\x02"),
    "half a shape": _ext(1, b"\x0b\x01\1\2\3"),
    "nine axes": _array(11, (1,) * 9, bytes(8)),
    "255 axes": _array(11, (), b"", dims=255),
    "too few bytes": _array(11, (2,), bytes(8)),
    "too many bytes": _array(11, (1,), bytes(16)),
    "a billion elements": _array(11, (10**9,)),
    "a billion elements and none": _array(11, (10**9, 0)),
    "wraps to nothing": _array(11, (2**32, 2**32)),
    "wraps to one": _array(5, (2**63, 2, 2**63), bytes(1)),
    "largest axis": _array(5, (2**64 - 1,)),
    "largest axis by none": _array(5, (2**64 - 1, 0)),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_malformed_messages_are_bad_frames(data: bytes) -> None:
    for wrapped in (data, b"\x91" + data):
        with pytest.raises(BadFrame):
            wire.unpack(wrapped)
    if data:
        with pytest.raises(BadFrame):
            wire.unpack_loaded(data)


EVERY_KIND: list[Any] = [
    *(0, -1, -33, 200, 2**15, 2**16, 2**32, 2**64 - 1, -200, -(2**15), -(2**31), -(2**63)),
    *(1.5, None, True, "", "a" * 31, "a" * 255, "a" * 65_535, "a" * 70_000, msgpack.Timestamp(0)),
    *(
        b"",
        bytes(255),
        bytes(65_535),
        bytes(70_000),
        Handle(0),
        Rng(0),
        Unfit("x"),
        Unfit("x" * 300),
    ),
    *(
        np.zeros(()),
        np.zeros(3, np.int8),
        np.zeros(100),
        np.zeros(10_000),
        [],
        {},
        [0] * 15,
        [0] * 16,
    ),
    *([0] * 70_000, {"a": 0}, {str(k): 0 for k in range(15)}, {str(k): 0 for k in range(16)}),
]


@pytest.mark.parametrize("value", EVERY_KIND, ids=lambda value: type(value).__name__)
def test_items_are_counted_behind_any_kind_of_value(value: Any) -> None:
    """One byte too few or too many passed over, and the count would be of something else."""
    taken = 1 if isinstance(value, (list, dict)) else 0
    taken += len(value) * (1 + isinstance(value, dict)) if taken else 0
    room = wire.MAX_ITEMS - taken - 4
    assert wire.unpack(wire.pack([value, [0] * room]))[1] == [0] * room
    with pytest.raises(BadFrame, match="too many"):
        wire.unpack(wire.pack([value, [0] * (room + 1)]))


BOMBS = {
    "long lists in each other": b"\xdd\x00\x01\x80\x00" * 1000,
    "long lists that are there": b"\x9f" + (b"\xdd\x00\x01\x80\x00" + bytes(98_304)) * 15,
    "long maps in each other": b"\xdf\x00\x01\x80\x00\xa1a" * 1000,
    "one key again and again": b"\x9f" + (b"\xdf\x00\x01\x80\x00" + b"\xa0\xc0" * 98_304) * 15,
    "millions of empty lists": b"\xdd\x00\x40\x00\x00" + b"\x90" * (4 << 20),
    "the longest list": b"\xdd\xff\xff\xff\xff" + bytes(1000),
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_more_items_than_a_message_may_have_are_not_made(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadFrame, match="too many"):
            wire.unpack(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_bool_array_holds_only_true_and_false() -> None:
    """A byte that is neither would be a value that no NumPy operation gives."""
    try:
        array = wire.unpack(_array(0, (2,), b"\x02\xff"))
    except BadFrame:
        return
    assert array.view(np.uint8).tolist() == [1, 1]


@pytest.mark.parametrize("length", [1 << 20, 40 << 20])
def test_text_from_a_worker_is_cut(length: int) -> None:
    assert len(wire.unpack(_ext(4, b"a" * length)).text) <= 10_000


def _script() -> Script:
    calls = {
        "f": (Output("a", "array"), Output("hidden", "private"), Output("d", "dict")),
        "g": (Output("s", "scalar"),),
    }
    script = Script(calls)
    script.call("f", np.eye(2), [1, {"k": Rng(3)}], x="text")
    script.call("g", Handle(1))
    return script


def _answer(**changes: Any) -> bytes:
    parts = {
        "values": [[0, np.eye(2)], [2, {"W": np.ones(3)}], [3, 1.5]],
        "raised": None,
        "warned": [[0, "RuntimeWarning", "overflow", "lstm.py:3"]],
        "modified": [[1, "x"]],
        "memory": False,
        "operators": None,
    }
    return wire.pack(list((parts | changes).values()))


def test_an_honest_answer() -> None:
    trace = wire.unpack_trace(_answer(), _script(), 0.5)
    assert set(trace.values) == {0, 2, 3}
    assert np.array_equal(trace[Handle(0)], np.eye(2))
    assert trace[Handle(3)] == 1.5
    assert trace.warnings == (Warned(0, "RuntimeWarning", "overflow", "lstm.py:3"),)
    assert trace.modified == ((1, "x"),)
    assert (trace.raised, trace.cause, trace.seconds) == (None, None, 0.5)


def test_an_error_in_an_answer() -> None:
    data = _answer(
        raised=[1, "ValueError", "no", "lstm.py:7", "raise ValueError('no')"], memory=True
    )
    trace = wire.unpack_trace(data, _script(), 0.0)
    assert trace.raised == Raised(1, "ValueError", "no", "lstm.py:7", "raise ValueError('no')")
    assert trace.cause == "out_of_memory"


def _listed(
    *numbers: int, names: Any = ("aten.mm", "aten.t"), more: Any = False, memory: Any = ()
) -> Any:
    return [names, np.array(numbers, np.int64), more, memory]


def test_operators_in_an_answer() -> None:
    numbers = (0, 0, 2, 2, 3, 4, 2, 4, 5, 1, 1, 1, 0, 1, 0, 0, 0, 0, 2, 2, 3, 4, 2, 4, 5)
    trace = wire.unpack_trace(_answer(operators=_listed(*numbers, more=True)), _script(), 0.0)
    product = Operator(0, "aten.mm", ((3, 4), (4, 5)))
    transpose = Operator(1, "aten.t", ((),))
    assert trace.operators == (product, transpose, Operator(1, "aten.mm", ()), product)
    assert trace.more_operators
    none = wire.unpack_trace(_answer(operators=_listed()), _script(), 0.0)
    assert (none.operators, none.more_operators) == ((), False)
    wide = wire.unpack_trace(_answer(operators=_listed(0, 0, 10**5, *[0] * 10**5)), _script(), 0.0)
    assert [len(operator.shapes) for operator in wide.operators] == [10**5]
    named = wire.unpack_trace(
        _answer(operators=_listed(0, 0, 0, names=["\n" * 9999])), _script(), 0.0
    )
    assert named.operators[0].name.isprintable() and len(named.operators[0].name) <= 100


def test_memory_in_an_answer() -> None:
    data = _answer(operators=_listed(memory=[[0, 800, 80], [1, 2**61, 0]]))
    trace = wire.unpack_trace(data, _script(), 0.0)
    assert trace.memory == (Memory(0, 800, 80), Memory(1, 2**61, 0))


def test_operators_that_hash_alike_take_no_longer() -> None:
    """Integers that differ by 2**61 - 1 have one hash, and so have all tuples of such integers."""
    same = 2**61 - 1
    numbers: list[int] = []
    for i in range(20_000):
        numbers += [0, 0, 1, 8, *(1 + (i >> 2 * k) % 4 * same for k in range(8))]
    started = time.process_time()
    trace = wire.unpack_trace(_answer(operators=_listed(*numbers)), _script(), 0.0)
    assert len(set(operator.shapes[0][:2] for operator in trace.operators)) == 16
    assert time.process_time() - started < 10  # where each is compared with all: a minute


def _nested(depth: int) -> Any:
    return [_nested(depth - 1)] if depth else 1.0


FORGED: dict[str, dict[str, Any]] = {
    "an output left out": {"values": [[0, np.eye(2)], [2, {}]]},
    "no outputs at all": {"values": []},
    "an output twice": {"values": [[0, np.eye(2)], [2, {}], [3, 1.5], [3, 1.5]]},
    "a scalar for an array": {"values": [[0, 1.5], [2, {}], [3, 1.5]]},
    "a list for an array": {"values": [[0, [1.5]], [2, {}], [3, 1.5]]},
    "an array for a scalar": {"values": [[0, np.eye(2)], [2, {}], [3, np.eye(2)]]},
    "a list for a scalar": {"values": [[0, np.eye(2)], [2, {}], [3, [1.5]]]},
    "text without end": {"values": [[0, np.eye(2)], [2, {}], [3, "x" * 10_001]]},
    "a dict in a dict": {"values": [[0, np.eye(2)], [2, {"W": {}}], [3, 1.5]]},
    "a list in a dict": {"values": [[0, np.eye(2)], [2, {"W": []}], [3, 1.5]]},
    "bytes as key": {"values": [[0, np.eye(2)], [2, {b"W": 1.5}], [3, 1.5]]},
    "a handle never made": {"values": [[9, 1.0]]},
    "the handle of something private": {"values": [[1, 1.0]]},
    "a negative handle": {"values": [[-1, 1.0]]},
    "a handle as text": {"values": [["0", 1.0]]},
    "a handle as list": {"values": [[[0], 1.0]]},
    "a handle of its own": {"values": [[Handle(0), 1.0]]},
    "a handle as value": {"values": [[0, Handle(3)]]},
    "a generator as value": {"values": [[3, Rng(1)]]},
    "a handle in a list": {"values": [[3, [Handle(3)]]]},
    "a generator in a dict": {"values": [[2, {"W": Rng(1)}]]},
    "a date": {"values": [[3, msgpack.Timestamp(1)]]},
    "bytes": {"values": [[3, b"x"]]},
    "a list in a list in a ...": {"values": [[3, _nested(300)]]},
    "no dict": {"values": [[2, np.eye(2)]]},
    "triples": {"values": [[0, 1.0, 2.0]]},
    "values as number": {"values": 3},
    "values as dict": {"values": {"0": 1.0}},
    "step too large": {"warned": [[2, "W", "m", "f"]]},
    "step negative": {"modified": [[-1, "x"]]},
    "step as float": {"modified": [[0.0, "x"]]},
    "step as bool": {"modified": [[True, "x"]]},
    "step beyond all integers": {"modified": [[2**64 - 1, "x"]]},
    "name as bytes": {"modified": [[0, b"x"]]},
    "name as array": {"modified": [[0, np.eye(2)]]},
    "warning too short": {"warned": [[0, "W", "m"]]},
    "warnings as text": {"warned": "abcd"},
    "raised too short": {"raised": [0, "E", "m", "f"]},
    "raised as text": {"raised": "abcde"},
    "raised in no step": {"raised": [5, "E", "m", "f", "l"]},
    "message as Unfit": {"raised": [0, "E", Unfit("m"), "f", "l"]},
    "memory as number": {"memory": 0},
    "memory as nothing": {"memory": None},
    "memory as array": {"memory": np.array(True)},
    "memory as array of nothing": {"memory": np.array([], bool)},
    "operators as number": {"operators": 3},
    "operators as list of lists": {"operators": [[0, "aten.mm", [[2, 3]]]]},
    "operators too short": {"operators": _listed(0, 0, 0)[:2]},
    "operator names as text": {"operators": _listed(0, 0, 0, names="aten")},
    "an operator's name as number": {"operators": _listed(0, 0, 0, names=[7])},
    "operators as floats": {"operators": [["aten.mm"], np.zeros(3), False]},
    "operators in two axes": {"operators": [["aten.mm"], np.zeros((1, 3), np.int64), False]},
    "operators as text": {"operators": [["aten.mm"], "000", False]},
    "an operator of no name": {"operators": _listed(0, 2, 0)},
    "an operator of the last name": {"operators": _listed(0, -1, 0)},
    "an operator in no step": {"operators": _listed(2, 0, 0)},
    "an operator before all steps": {"operators": _listed(-1, 0, 0)},
    "an operator cut short": {"operators": _listed(0, 0)},
    "shapes that are not there": {"operators": _listed(0, 0, 2, 1, 5)},
    "a shape cut short": {"operators": _listed(0, 0, 1, 3, 5, 5)},
    "more shapes than there are numbers": {"operators": _listed(0, 0, 2**62)},
    "a shape of all the memory": {"operators": _listed(0, 0, 1, 2**62, 1)},
    "a shape backwards": {"operators": _listed(0, 0, 1, -1)},
    "too many operators": {"operators": _listed(*[0, 0, 0] * (wire.MAX_OPERATORS + 1))},
    "too many numbers": {"operators": _listed(0, 0, 2 * 10**6, *[0] * 2 * 10**6)},
    "more operators as number": {"operators": _listed(0, 0, 0, more=1)},
    "allocated as number": {"operators": _listed(memory=5)},
    "memory in no step": {"operators": _listed(memory=[[9, 1, 1]])},
    "memory cut short": {"operators": _listed(memory=[[0, 1]])},
    "memory as text": {"operators": _listed(memory=[[0, "1", 1]])},
    "less memory than none": {"operators": _listed(memory=[[0, -1, 1]])},
    "memory without end": {"operators": _listed(memory=[[0, 2**63, 1]])},
}


@pytest.mark.parametrize("changes", FORGED.values(), ids=FORGED)
def test_forged_answers_are_bad_frames(changes: dict[str, Any]) -> None:
    with pytest.raises(BadFrame):
        wire.unpack_trace(_answer(**changes), _script(), 0.0)


@pytest.mark.parametrize("value", [[np.eye(2)], [{}], [b"x"], "x", {}, np.eye(2), 1.5, None])
def test_a_list_holds_scalars_and_lists(value: Any) -> None:
    script = Script({"f": (Output("found", "list"),)})
    script.call("f")
    with pytest.raises(BadFrame):
        wire.unpack_trace(wire.pack([[[0, value]], None, [], [], False, None]), script, 0.0)
    honest: list[Any] = [[0, [1, [2.5, ["x", None]], Unfit("an array"), True]]]
    trace = wire.unpack_trace(wire.pack([honest, None, [], [], False, None]), script, 0.0)
    assert trace[Handle(0)] == honest[0][1]


@pytest.mark.parametrize("answer", [None, [], [1] * 6, {}, "abcdef", [[]] * 5, 7, np.zeros(6)])
def test_what_is_no_answer_at_all(answer: Any) -> None:
    with pytest.raises(BadFrame):
        wire.unpack_trace(wire.pack(answer), _script(), 0.0)


def test_claims_are_cut() -> None:
    text = "x" * 10_000
    data = _answer(warned=[[0, text, text, text]] * 1000, modified=[[0, text]] * 1000)
    trace = wire.unpack_trace(data, _script(), 0.0)
    assert len(trace.warnings) <= 100 and len(trace.modified) <= 100
    assert all(len(w.message) <= 2000 for w in trace.warnings)


def test_a_thousand_broken_answers_are_bad_frames_or_traces() -> None:
    """Random changes of honest answers: no other exception, no allocation that takes time."""
    dice = random.Random(1)
    script = _script()
    raised = [1, "ValueError", "no", "lstm.py:7", "raise"]
    listed = _answer(operators=_listed(0, 0, 1, 1, 7, 1, 1, 0))
    seeds = [_answer(), listed, _answer(raised=raised), wire.pack_script(script), wire.pack(raised)]
    deadline = time.monotonic() + 2
    refused = count = 0
    while count < 20_000 and time.monotonic() < deadline:
        data = bytearray(dice.choice(seeds))
        for _ in range(dice.randint(1, 4)):
            place = dice.randrange(len(data) + 1)
            change = dice.randrange(5)
            if change == 0:
                data[place : place + 1] = dice.randbytes(1)
            elif change == 1:
                data[place:place] = dice.randbytes(dice.randint(1, 5))
            elif change == 2:
                del data[place : place + dice.randint(1, 9)]
            elif change == 3:
                data[place : place + 5] = dice.choice(b"\xdd\xdf\xdb\xc6\xc9").to_bytes(
                    1, "big"
                ) + (dice.randbytes(4))
            else:
                other = dice.choice(seeds)
                start = dice.randrange(len(other))
                data[place:place] = other[start : start + dice.randint(1, 60)]
        count += 1
        for read in (
            lambda d: wire.unpack_trace(d, script, 0.0),
            wire.unpack_loaded,
            wire.unpack,
        ):
            try:
                read(bytes(data))
            except BadFrame:
                refused += 1
    assert count > 500
    assert refused > count  # the changes do break messages


# ---- scripts ---------------------------------------------------------------------------------------


def test_a_script_on_the_wire() -> None:
    (first, second) = wire.unpack(wire.pack_script(_script()))
    operation, name, target, args, kwargs, outputs, number = first
    assert (operation, name, target, kwargs, number) == ("call", "f", None, {"x": "text"}, 0)
    _same(np.eye(2), args[0])
    assert args[1] == [1, {"k": Rng(3)}]
    assert outputs == [["a", "array"], ["hidden", "private"], ["d", "dict"]]
    assert second[3] == [Handle(1)] and second[6] == 3


def test_equal_scripts_have_equal_bytes_and_others_do_not() -> None:
    assert wire.pack_script(_script()) == wire.pack_script(_script())
    other = _script()
    other.call("g", 1)
    assert wire.pack_script(other) != wire.pack_script(_script())


def test_a_script_does_not_say_what_is_expected_to_raise() -> None:
    """The worker cannot tell the test of an error from any other call."""
    calls = {"check": ()}
    raising, plain = Script(calls), Script(calls)
    raising.raises("check", 1)
    plain.call("check", 1)
    assert wire.pack_script(raising) == wire.pack_script(plain)


def test_text_from_a_worker_moves_no_cursor() -> None:
    script = Script({"f": ()})
    script.call("f")
    forged = [0, "Err\x1b[2Jor", "all\nitems\r passed\x1b[1A\u202e", "lstm.py:1", "x\x00 = 1"]
    trace = wire.unpack_trace(wire.pack([[], forged, [], [], False, None]), script, 0.0)
    assert trace.raised is not None
    told = [trace.raised.type, trace.raised.message, trace.raised.where, trace.raised.line]
    assert all(text.isprintable() for text in told)
