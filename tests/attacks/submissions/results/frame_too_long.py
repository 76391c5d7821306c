"""Announces a frame of 2**63 bytes."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    os.write(3, struct.pack("<Q", 1 << 63))
    return k * x
