"""Writes a map of a million keys, and one that announces four billion."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    try:
        os.write(3, struct.pack("<Q", 6) + b"\xdf\xff\xff\xff\xff\xc0")
    finally:
        send(msgpack.packb({str(n): None for n in range(10**5)}))
    return k * x
