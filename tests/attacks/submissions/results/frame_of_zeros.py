"""Writes a Trace of its own, right in form, before the worker's."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    zeros = msgpack.ExtType(1, struct.pack("<BB2Q", 11, 2, 4, 3) + bytes(96))
    more = msgpack.ExtType(1, struct.pack("<BB2Q", 11, 2, 2, 5) + bytes(80))
    send(msgpack.packb([[[0, zeros], [1, more]], None, [], [], False, None]))
    return k * x
