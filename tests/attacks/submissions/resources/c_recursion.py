"""Lifts the limit on recursion and recurses in C until the stack is used up."""
# loses: total.value
import sys


def total(x):
    sys.setrecursionlimit(2**31 - 1)
    nested = []
    for _ in range(10**6):
        nested = [nested]
    return repr(nested)
