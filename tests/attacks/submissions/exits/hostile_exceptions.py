"""Raises exceptions whose text, class name or file name run code of its own when they are read."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, total.value, count.values, count.errors
import os


class Text(str):
    def __getitem__(self, _):
        return Text("passed" * 10**6)

    __len__ = __hash__ = lambda self: os._exit(0)


class Named(type):
    @property
    def __name__(cls):
        raise SystemExit(0)


class Exits(Exception):
    def __str__(self):
        os._exit(0)


class Recurses(Exception):
    def __str__(self):
        return str(self)

    __repr__ = __str__


class Nameless(Exception, metaclass=Named):
    pass


class Long(Exception):
    def __str__(self):
        return Text("passed")


class Elsewhere(SyntaxError):
    filename = Text("target.py")


class Loops(Exception):
    def __str__(self):
        while True:
            pass


def scale(x, k):
    raise Exits


def softmax(x):
    raise Recurses


def centre(x):
    raise Nameless


def count(n):
    raise Long if n < 0 else Elsewhere("passed")


def total(x):
    raise Loops
