"""Reads where no memory is, aborts, and overwrites its own interpreter."""
# loses: scale.values, total.value, count.values, count.errors
# flag: imports ctypes
import ctypes
import os


def scale(x, k):
    ctypes.string_at(0)


def total(x):
    os.abort()


def count(n):
    ctypes.memset(id(type), 0xFF, 400)
    return type(n)
