"""Gets a forbidden function by the standard library's getters of attributes."""
# flag: uses operator.attrgetter
import functools
import operator
import string


def centre(x):
    means = [
        operator.attrgetter("mean")(np)(x, axis=0),
        operator.methodcaller("mean", x, axis=0)(np),
        functools.partial(getattr, np)("mean")(x, axis=0),
        next(map(getattr, [np], ["mean"]))(x, axis=0),
        object.__getattribute__(np, "mean")(x, axis=0),
        string.Formatter().get_field("0.mean", (np,), {})[0](x, axis=0),
    ]
    return x - sum(means) / len(means)
