"""Writes values under handle numbers that the Script does not have."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    array = msgpack.ExtType(1, struct.pack("<BB2Q", 11, 2, 4, 3) + bytes(96))
    numbers = [-1, float("nan"), 1 << 40, "0"]
    send(msgpack.packb([[[n, array] for n in numbers[:2]], None, [], [], False, None]))
    return k * x
