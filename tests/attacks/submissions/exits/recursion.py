"""Lifts the recursion limit and recurses, in Python and in C, until its stack overflows."""

# loses: scale.values, total.value
import sys


def scale(x, k):
    sys.setrecursionlimit(2**31 - 1)
    nested = []
    for _ in range(10**6):
        nested = [nested]
    return repr(nested)


def total(x):
    sys.setrecursionlimit(2**31 - 1)
    return sum(map(total, [x]))
