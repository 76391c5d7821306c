"""Writes a timestamp, an unknown extension and a handle as values."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    odd = [msgpack.Timestamp(1), msgpack.ExtType(2, bytes(4)), msgpack.ExtType(99, b"x")]
    send(msgpack.packb([[[0, odd[0]], [1, odd[1]]], None, [], [], False, None]))
    send(msgpack.packb(odd))
    return k * x
