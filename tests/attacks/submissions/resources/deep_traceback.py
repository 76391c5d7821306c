"""Raises an error through 10**5 frames, each of which chains one more."""
# loses: scale.values
import sys


def deeper(n):
    try:
        if n:
            deeper(n - 1)
        raise ValueError(n)
    except ValueError as error:
        raise KeyError(n) from error


def scale(x, k):
    sys.setrecursionlimit(10**6)
    deeper(10**5)
