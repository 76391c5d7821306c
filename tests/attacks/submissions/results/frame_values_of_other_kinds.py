"""Writes numbers, texts and bytes where arrays are due."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    send(msgpack.packb([[[0, True], [1, b"\x00" * 80]], None, [], [], False, None]))
    return k * x
