"""Writes an array with a size of -1, which would be worked out from its bytes."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    array = msgpack.ExtType(1, struct.pack("<BB2q", 11, 2, -1, 3) + bytes(96))
    send(msgpack.packb([[[0, array], [1, array]], None, [], [], False, None]))
    return k * x
