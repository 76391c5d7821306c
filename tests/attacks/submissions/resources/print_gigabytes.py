"""Prints 200 MB, beside what it writes to the descriptors themselves, and goes on."""

import os
import sys


def count(n):
    line = "x" * (1 << 20)
    for stream in (sys.stdout, sys.stderr):
        for _ in range(100):
            stream.write(line)
    for descriptor in (1, 2):
        try:
            while os.write(descriptor, bytes(1 << 20)):
                pass
        except OSError:
            pass
    if n < 0:
        raise ValueError
    return list(range(n))
