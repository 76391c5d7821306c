"""Gives the forbidden name to the standard library as text, which finds what it names."""
# flag: imports pydoc
import logging.config
import pydoc
import timeit
import typing
from unittest import mock


class Annotated:
    function: "np.mean"


def centre(x):
    found = []
    ways = [
        lambda: pydoc.locate("numpy.mean"),
        lambda: logging.config.BaseConfigurator({}).resolve("numpy.mean"),
        lambda: mock._importer("numpy.mean"),
        lambda: typing.get_type_hints(Annotated)["function"],
        lambda: timeit.timeit("found.append(np.mean)", globals=globals() | locals(), number=1),
    ]
    for way in ways:
        try:
            found.append(way())
        except (ImportError, OSError, NameError, AttributeError):
            pass
    return x - next(f for f in found if callable(f))(x, axis=0)
