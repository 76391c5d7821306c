"""Answers every question itself with as much as a frame may hold, to fill the grader's memory."""
# loses: all
import os
import struct
import sys

import msgpack

_wire = sys.modules["softmark.isolation.wire"]
_zeros = bytes(1 << 20)


def _array(megabytes):
    """The pieces of an array of zeros, which would not fit into the worker's memory as a whole."""
    start = struct.pack("<BBQ", 11, 1, megabytes << 17)
    head = struct.pack(">BIb", 0xC9, len(start) + (megabytes << 20), 1)
    return [head + start, *[_zeros] * megabytes]


def _value(kind, share):
    if kind == "array":
        return _array(share)
    if kind == "dict":
        return [b"\x81\xa1W", *_array(share)]
    if kind == "list":
        return [msgpack.packb(["x" * 10**4] * 3000)]
    return [msgpack.packb("x" * 10**4)]


def _answer(steps):
    due = [
        (step[6] + n, kind)
        for step in steps
        for n, (_, kind) in enumerate(step[5])
        if kind != "private"
    ]
    yield b"\x96" + struct.pack(">BH", 0xDC, len(due))
    for number, kind in due:
        yield b"\x92" + msgpack.packb(number)
        yield from _value(kind, 60 // len(due))
    yield b"\xc0\x90\x90\xc2\xc0"


def _send(pieces):
    for piece in (struct.pack("<Q", sum(map(len, pieces))), *pieces):
        view = memoryview(piece)
        while view:
            view = view[os.write(3, view) :]


_send([b"\xc0"])
while True:
    try:
        steps = _wire.unpack(_wire.read_frame(lambda count: os.read(3, count)))
    except _wire.Closed:
        os._exit(0)
    _send(list(_answer(steps)))
