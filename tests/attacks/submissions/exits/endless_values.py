"""Returns generators, lists and dicts that never come to an end when they are read."""
# loses: scale.values, count.values, count.errors, layer.params
import itertools
from collections.abc import Mapping


class Endless(list):
    def __iter__(self):
        return itertools.count()


class Bottomless(Mapping):
    def items(self):
        return ((n, n) for n in itertools.count())

    __getitem__ = __iter__ = __len__ = None


def scale(x, k):
    return (x for _ in itertools.count())


def count(n):
    return Endless([0])


class Layer(Layer):
    reads = 0

    def __getattribute__(self, name):
        if name == "params" and not object.__getattribute__(self, "grads"):
            own = object.__getattribute__(self, "params")
            return own if type(self).reads else Bottomless()
        return object.__getattribute__(self, name)

    def forward(self, x):
        type(self).reads = 1
        return super().forward(x)
