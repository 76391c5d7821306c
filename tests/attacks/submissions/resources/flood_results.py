"""Answers every question itself, with thirty megabytes of valid values."""
# loses: all
import os
import struct

from softmark.isolation import wire

_ZEROS = bytes(30 << 20)
_TEXTS = (b"\xda\x01\xf4" + b"x" * 500) * 1000


def send(parts):
    for part in [struct.pack("<Q", sum(map(len, parts))), *parts]:
        view = memoryview(part)
        while view:
            view = view[os.write(3, view) :]


def answer(steps):
    kinds = [
        (first + place, kind)
        for _, _, _, _, _, outputs, first in steps
        for place, (_, kind) in enumerate(outputs)
        if kind != "private"
    ]
    large = max(1, sum(kind in ("array", "dict") for _, kind in kinds))
    zeros = memoryview(_ZEROS)[: len(_ZEROS) // large & ~7]
    array = [struct.pack(">BIbBBQ", 0xC9, len(zeros) + 10, 1, 11, 1, 0)[:-8]]
    array += [struct.pack("<Q", len(zeros) // 8), zeros]
    one = {
        "array": array,
        "dict": [b"\x81\xa1W", *array],
        "list": [b"\xdd" + struct.pack(">I", 40_000), *[_TEXTS] * 40],
        "scalar": [wire.pack("x" * 10_000)],
    }
    values = [[b"\x92" + wire.pack(number), *one[kind]] for number, kind in kinds]
    warned = [[0, "x" * 500, "x" * 500, "x" * 500]] * min(100, 100 * len(steps))
    rest = [wire.pack(value) for value in (None, warned, [], False, None)]
    return [b"\x96\xdc" + struct.pack(">H", len(values)), *sum(values, []), *rest]


send([wire.pack(None)])
while True:
    send(answer(wire.unpack_trusted(wire.read_frame(lambda n: os.read(3, n)))))
