"""Raises errors with messages and names of 70 MB, and one whose message never ends."""
# loses: scale.values, softmax.values, softmax.quiet, total.value


def scale(x, k):
    raise RuntimeError("x" * (70 << 20))


def softmax(x):
    raise type("x" * (70 << 20), (Exception,), {})


class Endless(Exception):
    def __str__(self):
        while True:
            pass


def total(x):
    raise Endless
