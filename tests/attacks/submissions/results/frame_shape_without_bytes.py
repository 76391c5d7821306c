"""Writes an array whose shape announces a billion entries and holds none."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    array = msgpack.ExtType(1, struct.pack("<BB2Q", 11, 2, 1 << 15, 1 << 15))
    send(msgpack.packb([[[0, array], [1, array]], None, [], [], False, None]))
    return k * x
