"""Closes the grader's channel, or puts something else in its place."""
# loses: scale.values, total.value, count.values, count.errors
import os


def scale(x, k):
    os.close(3)
    return k * x


def total(x):
    os.dup2(os.open("/dev/null", os.O_RDWR), 3)
    return float(x.sum())


def count(n):
    os.dup2(1, 3)
    return list(range(n))
