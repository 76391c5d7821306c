"""Gives the forbidden name to the standard library as text, which finds what it names."""
# flag: uses typing.get_type_hints
import typing


class Annotated:
    function: "np.mean"


def pydoc():
    import pydoc

    return pydoc.locate("numpy.mean")


def logging():
    import logging.config

    return logging.config.BaseConfigurator({}).resolve("numpy.mean")


def centre(x):
    found = [typing.get_type_hints(Annotated)["function"]]
    for way in (pydoc, logging):
        try:
            found.append(way())
        except (ImportError, OSError):
            pass
    return x - sum(function(x, axis=0) for function in found) / len(found)
