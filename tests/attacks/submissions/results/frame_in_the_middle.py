"""Puts bytes of its own into the middle of the worker's answers."""
# status: rejected
# loses: all
import os

_write = os.write


def write(descriptor, data):
    data = bytes(data)
    if descriptor == 3 and len(data) > 20:
        data = data[:12] + b"\xc3" * 8 + data[20:]
    return _write(descriptor, data)


os.write = write
