"""Returns arrays of 30 MB and lists of 10**5 strings, which the wire takes, and lists that do not end."""
# loses: all
import numpy as np


def large(*_):
    return np.zeros(30 << 17)


class Endless(list):
    def __iter__(self):
        while True:
            yield "x" * 10_000


scale = softmax = centre = large


def total(x):
    return 1 << 20_000


def count(n):
    return Endless() if n < 0 else ["x" * 500] * 90_000


class Layer:
    def __init__(self, D, H, rng):
        self.params = {str(n): np.zeros(3) for n in range(40_000)}

    forward = backward = large
