"""A Script says what to call on an implementation; a Trace says what came back.

Both are plain data. A Script is built by a grader and run somewhere else, by anybody's
implementation of the topic: a submission, the reference, a known mistake. Nothing runs while it is
built; what a call will return is named by handles, which mean something inside that Script only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Kind = Literal["array", "scalar", "list", "dict", "private"]
Cause = Literal["timeout", "crashed", "out_of_memory", "error"]
Operation = Literal["new", "call", "method", "read", "assign"]


@dataclass(frozen=True, slots=True)
class Output:
    """One thing that a call returns.

    ``axes`` names the axes of an array, ``blocks`` the equal blocks along one of them (axis number to
    names), ``entries`` the arrays of a dict. ``private`` is the student's own: it is handed back
    unopened, never read.
    """

    name: str
    kind: Kind
    axes: tuple[str, ...] = ()
    blocks: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    entries: Mapping[str, Output] = field(default_factory=dict)


Calls = Mapping[str, tuple[Output, ...]]
"""What every callable and attribute of a topic returns: ``"LSTMCell.forward"`` -> (h, c, cache)."""


@dataclass(frozen=True, slots=True)
class Handle:
    """A result of an earlier step of the same Script, by number."""

    number: int


@dataclass(frozen=True, slots=True)
class Rng:
    """A random generator made anew from its seed where the Script runs."""

    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One call. Its outputs own the handles ``first``, ``first + 1``, ..."""

    operation: Operation
    name: str
    target: Handle | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[Output, ...]
    first: int
    raises: bool


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of the student's, made by ``Script.new``; its members are called or read by name."""

    _script: Script
    _class: str
    _handle: Handle

    def __getattr__(self, name: str) -> Member:
        if name.startswith("_"):
            raise AttributeError(name)
        return Member(self._script, f"{self._class}.{name}", self._handle)


@dataclass(frozen=True, slots=True)
class Member:
    """A method or attribute of an Instance: call it, or give it to ``Script.read``."""

    _script: Script
    _name: str
    _target: Handle

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._script._add("method", self._name, self._target, args, kwargs)

    def raises(self, *args: Any, **kwargs: Any) -> None:
        """The same call, expected to raise; nothing is returned."""
        self._script._add("method", self._name, self._target, args, kwargs, raises=True)


class Script:
    """Calls to make, in order, on any implementation of one topic.

    Arguments may be arrays, numbers, strings, None, lists, tuples and dicts of these, ``Rng`` and
    the handles and instances of earlier steps.
    """

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.steps: list[Step] = []
        self._next = 0
        self._outputs: list[tuple[Step, Handle, Output]] = []

    def new(
        self, name: str, *args: Any, params: Mapping[str, np.ndarray] | None = None, **kwargs: Any
    ) -> Instance:
        """Construct the class ``name``; then, with ``params``, give it these parameters."""
        if name not in self.calls:
            raise KeyError(f"'{name}' is not among the calls of assignment.yaml")
        handle = self._append("new", name, None, args, kwargs, (Output(name, "private"),))
        assert handle is not None
        instance = Instance(self, name, handle)
        if params is not None:
            self.assign(instance, params)
        return instance

    def assign(self, instance: Instance, params: Mapping[str, np.ndarray]) -> None:
        """Give an object these parameters in place of its own, at this point of the Script."""
        arrays = dict(params)
        self._append("assign", instance._class, instance._handle, (arrays,), {}, ())

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call the function ``name``: one handle, or a tuple of them as ``calls`` lists its outputs."""
        return self._add("call", name, None, args, kwargs)

    def raises(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Call the function ``name``, which is expected to raise as the reference does."""
        self._add("call", name, None, args, kwargs, raises=True)

    def read(self, member: Any) -> Handle:
        """Read an attribute such as ``cell.grads`` at this point of the Script."""
        handle = self._add("read", member._name, member._target, (), {})
        assert isinstance(handle, Handle)
        return handle

    def until(self, names: Sequence[str]) -> Script:
        """This Script up to the last step that gives one of the outputs, or dict entries, ``names``."""
        last = 0
        for number, step in enumerate(self.steps):
            for output in step.outputs:
                entries = {f'{output.name}["{key}"]' for key in output.entries}
                if not {output.name, *entries}.isdisjoint(names):
                    last = number
        part = Script(self.calls)
        for step in self.steps[: last + 1]:
            part._keep(step)
        return part

    def _add(
        self,
        operation: Operation,
        name: str,
        target: Handle | None,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        raises: bool = False,
    ) -> Any:
        if name not in self.calls:
            raise KeyError(f"'{name}' is not among the calls of assignment.yaml")
        outputs = () if raises else self.calls[name]
        first = self._append(operation, name, target, args, kwargs, outputs, raises=raises)
        if first is None:
            return None
        handles = tuple(Handle(first.number + i) for i in range(len(outputs)))
        return handles[0] if len(handles) == 1 else handles

    def _append(
        self,
        operation: Operation,
        name: str,
        target: Handle | None,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        outputs: tuple[Output, ...],
        raises: bool = False,
    ) -> Handle | None:
        args = tuple(_plain(a) for a in args)
        kwargs = {k: _plain(v) for k, v in kwargs.items()}
        first = self._next
        self._keep(Step(operation, name, target, args, kwargs, outputs, first, raises))
        return Handle(first) if outputs else None

    def _keep(self, step: Step) -> None:
        self.steps.append(step)
        self._outputs += [
            (step, Handle(step.first + i), output)
            for i, output in enumerate(step.outputs)
            if output.kind != "private"
        ]
        self._next += len(step.outputs)

    def outputs(self) -> Sequence[tuple[Step, Handle, Output]]:
        """Every output that is read back, in order."""
        return self._outputs


def _plain(value: Any) -> Any:
    """An argument as data: instances become their handles."""
    if isinstance(value, Instance):
        return value._handle
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


@dataclass(frozen=True, slots=True)
class Unfit:
    """What came back where something else belongs, in words: ``"a list of 3"``."""

    text: str


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception of the implementation's own, and the line of its file where it was raised."""

    step: int
    type: str
    message: str
    where: str
    line: str


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning seen while a step ran. A claim: the implementation could have hidden it."""

    step: int
    category: str
    message: str
    where: str


@dataclass(frozen=True, slots=True)
class Trace:
    """What one implementation answered to one Script.

    ``values`` holds the outputs that are not private, by handle number, as far as it came:
    ``np.ndarray`` for an array, a plain number, text, bool or None for a scalar, ``list``, ``dict``,
    or ``Unfit`` where the value is of another kind. ``modified`` names the arguments that were changed
    in place, as (step, parameter). ``seconds`` is the grader's own clock, ``limit`` what there was of
    it when it ran out.
    """

    values: Mapping[int, Any]
    raised: Raised | None = None
    cause: Cause | None = None
    warnings: tuple[Warned, ...] = ()
    modified: tuple[tuple[int, str], ...] = ()
    seconds: float = 0.0
    limit: float = 0.0

    def __getitem__(self, handle: Handle) -> Any:
        """The value of an output; KeyError where the Script did not come that far."""
        return self.values[handle.number]
