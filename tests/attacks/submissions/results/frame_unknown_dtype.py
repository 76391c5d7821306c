"""Writes an array with the number of a dtype that there is not."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    array = msgpack.ExtType(1, struct.pack("<BB2Q", 200, 2, 4, 3) + bytes(96))
    send(msgpack.packb([[[0, array], [1, array]], None, [], [], False, None]))
    return k * x
