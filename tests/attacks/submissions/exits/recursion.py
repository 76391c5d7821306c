"""Lifts the recursion limit and recurses, in Python and in C, until its stack overflows."""
# loses: scale.values, total.value
import sys

sys.setrecursionlimit(2**31 - 1)


def scale(x, k):
    one, two = [], []
    for _ in range(10**6):
        one, two = [one], [two]
    return one == two


def total(x):
    return sum(map(total, [x]))
