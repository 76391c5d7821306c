"""Writes two values under one handle number, and leaves another out."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    array = msgpack.ExtType(1, struct.pack("<BB2Q", 11, 2, 4, 3) + bytes(96))
    send(msgpack.packb([[[0, array], [False, array]], None, [], [], False, None]))
    return k * x
