"""Answers every question itself, with as many megabytes of valid values as a frame may have."""
# loses: all
import os

import numpy as np
from softmark.isolation import wire


def answer(steps):
    values = []
    for _, _, _, _, _, outputs, first in steps:
        for place, (_, kind) in enumerate(outputs):
            if kind != "private":
                values.append((first + place, kind))
    size = (60 << 20) // max(1, sum(kind in ("array", "dict") for _, kind in values))
    zeros = np.zeros(size // 8)
    one = {"array": zeros, "dict": {"W": zeros}, "list": [1.0] * 50_000, "scalar": "x" * 10_000}
    warned = [[0, "x" * 500, "x" * 500, "x" * 500]] * min(100, 100 * len(steps))
    return wire.pack([[[n, one[kind]] for n, kind in values], None, warned, [], False, None])


os.write(3, wire.frame(wire.pack(None)))
while True:
    asked = wire.unpack_trusted(wire.read_frame(lambda n: os.read(3, n)))
    view = memoryview(wire.frame(answer(asked)))
    while view:
        view = view[os.write(3, view) :]
