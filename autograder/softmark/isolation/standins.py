"""Stand-ins for what an assignment forbids to use: the second line, at run time.

The first is ``policy.scan``, which reads the source and cannot see what is looked up by a name that is
made while the code runs. Here the very objects are taken away, wherever their library keeps them. It is
a hurdle, not a proof: what runs beside the worker's own code can get hold of anything that is loaded.
Modules are left to the scan, since the library itself needs them. Where functions are only names for
operators that the library keeps elsewhere, as PyTorch's are, ``Places.close`` closes those too.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any


class Forbidden(Exception):
    """The submission used what this assignment asks to do without."""


class StandIn:
    """Raises Forbidden where it is called, derived from or looked into."""

    def __init__(self, name: str, *_: Any) -> None:
        object.__setattr__(self, "_name", name)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise Forbidden(f"{object.__getattribute__(self, '_name')} is not to be used here")

    __call__ = __mro_entries__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # what inspects values asks for these
        self._refuse()

    def __instancecheck__(self, _: object) -> bool:
        return False

    def __subclasscheck__(self, _: object) -> bool:
        return False


class Places:
    """Where the modules of a library hold each of its classes and functions, found once before any fork:
    a child that looked through them all would have to copy their memory.

    ``close``, given a forbidden dotted name and a function that raises, has the operator of that name,
    if there is one, call the function instead.
    """

    def __init__(
        self,
        library: str = "",
        close: Callable[[str, Callable[..., Any]], None] = lambda name, refuse: None,
    ) -> None:
        self.close = close
        modules = [m for name, m in sys.modules.items() if m and name.partition(".")[0] == library]
        # these make their attributes when they are asked for them
        self.lazy = [module for module in modules if type(module) is not types.ModuleType]
        places: dict[int, list[tuple[types.ModuleType, str]]] = {}
        for module in modules:
            for key, value in vars(module).items():
                if callable(value):
                    places.setdefault(id(value), []).append((module, key))
        self._places = {value: where for value, where in places.items() if len(where) > 1}

    def of(self, value: Any, name: str) -> list[tuple[types.ModuleType, str]]:
        """The modules that hold ``value`` more than once, or make it under ``name``, and as what."""
        lazy = [(module, name) for module in self.lazy if getattr(module, name, None) is value]
        return [*self._places.get(id(value), ()), *lazy]


def put_up(names: Iterable[str], places: Places) -> None:
    """Put a stand-in in the place of each dotted name, such as ``torch.nn.LSTM``, and wherever else its
    library holds the same object. Names of nothing are passed over."""
    names = list(names)
    for name in names:  # before the stand-ins, which hide the operators
        places.close(name, StandIn(name).__call__)
    found = [(name, *_look_up(name)) for name in names]
    stand_ins: dict[int, StandIn] = {}
    for name, owner, last, value in found:
        if value is not None and not isinstance(value, types.ModuleType):
            stand_in = stand_ins.setdefault(id(value), StandIn(name))
            for holder, key in [*places.of(value, last), (owner, last)]:
                with contextlib.suppress(AttributeError, TypeError):  # a type of C's own stays
                    setattr(holder, key, stand_in)


def _look_up(name: str) -> tuple[Any, str, Any]:
    """What holds the last part of a dotted name, that part, and its value; None where there is none."""
    path, _, last = name.rpartition(".")
    first, *rest = path.split(".")
    owner: Any = sys.modules.get(first)
    for part in rest:
        owner = getattr(owner, part, None)
    return owner, last, getattr(owner, last, None)
