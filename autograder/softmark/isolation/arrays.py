"""How a NumPy worker gives arguments to a submission and reads results: exact types, copies.

``tensors.Tensors`` does the same with PyTorch's tensors.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from softmark.isolation import wire
from softmark.isolation.standins import Places
from softmark.script import Unfit
from softmark.spelling import nearest

_LIST_DEPTH = 8
_MOST_NAMES = 2_000  # to look through for one that was misspelt


class ReturnedWrong(Exception):
    """What a call returned, or the object it made, is not of the form that it should have."""


class NotDefined(Exception):
    """The submission has no function, class, attribute or parameter of this name."""


class Arrays:
    """The values of a NumPy worker. Whatever a submission returns, plain data comes out."""

    kind = "an array"
    places = Places()
    """Where a stand-in for something forbidden has to go."""

    @contextlib.contextmanager
    def script(self) -> Iterator[None]:
        """The state in which every Script starts, whatever the submission has changed before."""
        with np.errstate(over="warn", invalid="warn", divide="warn", under="ignore"):
            yield

    def watch(self, step: int) -> AbstractContextManager[Any]:
        """Around every call of the submission's code."""
        return contextlib.nullcontext()

    def starved(self, error: BaseException) -> bool:
        """Whether an error tells that memory ran out."""
        return isinstance(error, MemoryError)

    # ---- arguments

    def fresh(self, array: np.ndarray) -> Any:
        """``array``, a copy of the worker's own, as the submission gets it, on the same memory."""
        return array

    def generator(self, seed: int) -> Any:
        """A random generator made from ``seed``."""
        return np.random.default_rng(seed)

    def method(self, owner: Any, name: str, full_name: str) -> Any:
        """The method ``name`` of an object. Raises NotDefined."""
        return member(owner, name, full_name)

    def assign(self, owner: Any, name: str, params: dict[str, Any]) -> None:
        """Give ``owner``, of the class ``name``, these parameters."""
        owner.params = params

    # ---- what else a Script may ask for

    def parameters(self, owner: Any, name: str) -> Any:
        """The parameters of ``owner``, of the class ``name``."""
        return member(owner, "params", f"{name}.params")

    def gradients(self, owner: Any, name: str) -> Any:
        """The gradients of the parameters of ``owner``, of the class ``name``."""
        return member(owner, "grads", f"{name}.grads")

    def add(self, values: list[Any], names: list[str]) -> Any:
        """The sum of two values of equal shapes. Raises ReturnedWrong."""
        for value, name in zip(values, names, strict=True):
            if not self.holds(value):
                raise ReturnedWrong(f"{name} is {self.describe(value)}, not {self.kind}")
        a, b = values
        if tuple(a.shape) != tuple(b.shape):
            raise ReturnedWrong(
                f"{names[0]} of shape {tuple(a.shape)} and {names[1]} of shape {tuple(b.shape)} "
                "should have the same shape"
            )
        return a + b

    def tensor(self, array: np.ndarray) -> Any:
        """A leaf tensor on the memory of ``array``."""
        raise TypeError("tensor() needs a PyTorch worker")

    def backward(self, outputs: list[Any], names: list[str], upstream: list[Any]) -> None:
        """Send the gradients ``upstream`` back from ``outputs``."""
        raise TypeError("backward() needs a PyTorch worker")

    def gradient(self, tensor: Any, name: str) -> Any:
        """The gradient that a leaf tensor has gathered, or Unfit."""
        raise TypeError("gradient() needs a PyTorch worker")

    def count_operators(self) -> None:
        """List the operators of every call from here to the end of the Script."""
        raise TypeError("count_operators() needs a PyTorch worker")

    def measure_memory(self) -> None:
        """Note what every call from here to the end of the Script allocates."""
        raise TypeError("measure_memory() needs a PyTorch worker")

    def no_grad(self) -> None:
        """Have every call from here to the end of the Script run without gradients."""
        raise TypeError("no_grad() needs a PyTorch worker")

    def clocked(self, *parts: Any) -> Any:
        """What is to be timed, as ``timed.Clocked``."""
        raise TypeError("timing needs a PyTorch worker")

    def operators(self) -> Any:
        """The operators of this Script, as ``wire.unpack_trace`` takes them."""
        return None

    # ---- results

    def read(self, kind: str, value: Any) -> Any:
        """``value``, announced as of this kind, as plain data, or Unfit."""
        if type(value) is Unfit:
            return value
        if kind == "array":
            return self.plain(value)
        if kind == "dict":
            return self._dict(value)
        return self._list(value) if kind == "list" else self._scalar(value)

    def holds(self, value: Any) -> bool:
        """Whether ``value`` is of the type that this worker's submissions compute with."""
        return issubclass(type(value), (np.ndarray, np.generic))

    def plain(self, value: Any) -> Any:
        """An exact np.ndarray of its own, or Unfit."""
        if not self.holds(value):
            return Unfit(self.describe(value))
        # a copy now: the student's code may write into its own array in a later step
        return self._fitting(value, value.nbytes, lambda: np.array(value, order="C", subok=False))

    def describe(self, value: Any) -> str:
        """What ``value`` is, in words."""
        name = type(value).__name__[:60]
        if value is None:
            return "None"
        if isinstance(value, np.ndarray):
            return f"an array of dtype {str(value.dtype)[:60]} with {value.ndim} dimensions"
        if isinstance(value, (list, tuple, dict)):
            return f"a {name} of {len(value)}"
        return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"

    def _scalar(self, value: Any) -> Any:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        if value is None or type(value) is float:
            return value
        if type(value) is int and -(1 << 63) <= value < 1 << 64:
            return value
        for kind in (int, float, str):
            if isinstance(value, kind):
                return self._fitting(value, 0, partial(kind, value))
        if isinstance(value, np.integer):
            return int(value)
        return Unfit(self.describe(value))

    def _list(self, value: Any, depth: int = 0) -> Any:
        if depth > _LIST_DEPTH or not isinstance(value, (list, tuple)):
            return Unfit(self.describe(value)) if depth == 0 else self._scalar(value)
        return [
            self._list(v, depth + 1) if isinstance(v, (list, tuple)) else self._scalar(v)
            for v in value
        ]

    def _dict(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return Unfit(self.describe(value))
        return {str(k): self._entry(v) for k, v in value.items()}

    def _entry(self, value: Any) -> Any:
        if type(value) is Unfit:
            return value
        return self.plain(value) if self.holds(value) else self._scalar(value)

    def _fitting(self, value: Any, size: int, plain: Callable[[], Any]) -> Any:
        """``plain()`` if the wire carries it, else what ``value``, of ``size`` bytes, is in words."""
        if size > wire.MAX_FRAME // 2:
            return Unfit(f"{self.kind} of {size >> 20} MB")
        try:
            result = plain()
            if type(result) is str:
                return result[:10_000]
            if type(result) is not np.ndarray or not wire.carries(result):
                wire.pack(result)  # raises, or it is a small scalar
        except (ValueError, OverflowError, TypeError):
            return Unfit(self.describe(value))
        return result


def member(owner: Any, name: str, full_name: str) -> Any:
    """An attribute of the submission's. Raises NotDefined."""
    try:
        return getattr(owner, name)
    except AttributeError:
        raise undefined(owner, name, full_name) from None


def undefined(owner: Any, name: str, full_name: str) -> NotDefined:
    """That ``owner`` has no ``name``, and which of the student's own names was perhaps meant as it."""
    said = f"{full_name} is not defined"
    with contextlib.suppress(Exception):  # objects of the student's are looked at
        if like := nearest(name, islice(_written(owner), _MOST_NAMES)):
            said += f"; is your `{like}` meant to be it? Rename it"
    return NotDefined(said)


def _written(owner: Any) -> Iterator[str]:
    """The names in a module, or of an object, that the student's own code gave."""
    if isinstance(owner, types.ModuleType):
        for name, value in vars(owner).items():
            if callable(value) and _is_own(getattr(value, "__module__", None)):
                yield name
        return
    yield from getattr(owner, "__dict__", {})
    for kind in type(owner).__mro__:
        if _is_own(kind.__module__):
            yield from vars(kind)


def _is_own(module: Any) -> bool:
    """Whether a module of this name is the submission's: no other one's file is a bare name."""
    return getattr(sys.modules.get(module), "__file__", None) == f"{module}.py"
