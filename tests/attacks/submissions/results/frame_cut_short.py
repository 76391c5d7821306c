"""Announces a frame that swallows the worker's own."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    os.write(3, struct.pack("<Q", 80))
    return k * x
