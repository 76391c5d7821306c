"""Tells of errors and warnings in steps that were not run, and adds its own time."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


def scale(x, k):
    raised = [7, "ValueError", "", "", ""]
    send(msgpack.packb([[], raised, [[-1, "W", "", ""]], [], False, None, float("nan")]))
    return k * x
