"""A Script says what to call on an implementation; a Trace says what came back.

Both are plain data. A Script is built by a grader and run somewhere else, by anybody's
implementation of the topic: a submission, the reference, a known mistake. Nothing runs while it is
built; what a call will return is named by handles, which mean something inside that Script only.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

_OPERATOR_BYTES = 400
Kind = Literal["array", "scalar", "list", "dict", "private"]
Cause = Literal["timeout", "crashed", "out_of_memory", "error"]
Operation = Literal[
    "new",
    "call",
    "method",
    "read",
    "assign",
    "tensor",
    "backward",
    "gradient",
    "parameters",
    "gradients",
    "count",
    "memory",
    "no_grad",
    "fresh",
    "clock",
    "weigh",
    "add",
    "show",
]


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
    """One thing to do. Its outputs own the handles ``first``, ``first + 1``, ..."""

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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The same as ``forward``: PyTorch's way to run a module."""
        return self.forward(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class Member:
    """A method or attribute of an Instance: call it, or give it to ``Script.read``.

    ``forward`` of a ``torch.nn.Module`` runs the module itself, so that hooks and all else that hangs on
    the call of a module work.
    """

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
    the handles and instances of earlier steps. In a PyTorch worker each array arrives as a tensor of its
    dtype on the CPU, and ``Rng`` as a ``torch.Generator``; what is computed there comes back as arrays.
    ``tensor``, ``backward``, ``gradient``, ``count_operators``, ``measure_memory``, ``no_grad``,
    ``convert`` and ``form`` are for such workers alone.
    """

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.steps: list[Step] = []
        self._next = 0
        self._outputs: list[tuple[Step, Handle, Output]] = []

    def new(
        self,
        name: str,
        *args: Any,
        params: Mapping[str, np.ndarray | Handle] | None = None,
        **kwargs: Any,
    ) -> Instance:
        """Construct the class ``name``; then, with ``params``, ``assign`` these parameters."""
        if name not in self.calls:
            raise KeyError(f"'{name}' is not among the calls of assignment.yaml")
        handle = self._append("new", name, None, args, kwargs, (Output(name, "private"),))
        assert handle is not None
        instance = Instance(self, name, handle)
        if params is not None:
            self.assign(instance, params)
        return instance

    def assign(self, instance: Instance, params: Mapping[str, np.ndarray | Handle]) -> None:
        """Give an object these parameters in place of its own, at this point of the Script.

        An object gets the dict as its ``params``. A ``torch.nn.Module`` gets each array copied into
        the parameter or buffer of that name; it is the student's error if it lacks a name, has a
        parameter that is not given or one of another shape.
        """
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

    def parameters(self, instance: Instance) -> Handle:
        """Read the parameters of a ``torch.nn.Module`` by name, or ``params`` of any other object.

        The output is the dict "parameters"; its entries are those of ``Class.parameters`` in ``calls``,
        if that is listed.
        """
        return self._read_all("parameters", "parameters", instance)

    def gradients(self, instance: Instance, without: Sequence[str] = ()) -> Handle:
        """Read the gradients of a ``torch.nn.Module``'s parameters, or ``grads`` of any other object.

        The output is the dict "grads"; its entries are those of ``Class.gradients`` in ``calls``, if
        that is listed. A parameter that no gradient reached is Unfit. ``without`` leaves some out.
        """
        return self._read_all("gradients", "grads", instance, without)

    def tensor(
        self,
        name: str,
        array: np.ndarray,
        axes: Sequence[str] = (),
        blocks: Mapping[int, tuple[str, ...]] | None = None,
    ) -> Handle:
        """A tensor that gathers its gradient, to be given to later calls, also inside lists and dicts.

        ``axes`` and ``blocks`` are those of the output of ``gradient``.
        """
        output = Output(name, "private", tuple(axes), blocks or {})
        return self._one("tensor", name, None, (array,), output)

    def fresh(
        self,
        name: str,
        *shape: int,
        dtype: str = "float32",
        gradient: bool = False,
        below: int | None = None,
        scale: float = 1.0,
    ) -> Handle:
        """For a Script that is timed: a tensor made anew for each run, normals of mean 0 and standard
        deviation ``scale``, of a dtype such as "bfloat16", or with ``below`` integers from 0 on.
        ``gradient``: it gathers its gradient.
        """
        kwargs = {"dtype": dtype, "gradient": gradient, "below": below, "scale": scale}
        first = self._append(
            "fresh", name, None, (list(shape),), kwargs, (Output(name, "private"),)
        )
        assert first is not None
        return first

    def start_clock(self) -> None:
        """What comes after this is timed, again and again; what comes before is done once."""
        self._append("clock", "start_clock", None, (), {}, ())

    def weigh(self, handle: Handle) -> None:
        """For a Script that is timed: of an output, or of each entry of a dict, only one number for each
        row along the last axis is sent and compared. With one axis it stays whole.

        For outputs that take longer to send than to compute. Which numbers these are, random vectors say
        that are unknown until the outputs are there.
        """
        self._append("weigh", "weigh", handle, (), {}, ())

    def backward(self, *pairs: tuple[Handle, np.ndarray | Handle]) -> None:
        """Send gradients back from earlier outputs: pairs of an output and the gradient that reaches it.

        May be called again: gradients add up, as they do in PyTorch. Where time is taken, only from
        the outputs of other calls: what was kept for the way back is given up there, as in training.
        """
        self._append("backward", "backward", None, pairs, {}, ())

    def gradient(self, tensor: Handle) -> Handle:
        """Read the gradient gathered so far by x, made by ``tensor`` or ``fresh``: the output "dx", of
        x's axes.

        It is Unfit where no gradient reached x. Raises ValueError for any other handle.
        """
        kinds = ("tensor", "fresh")
        made = [s for s in self.steps if s.operation in kinds and s.first == tensor.number]
        if not made:
            raise ValueError("gradient() takes what tensor() made")
        (x,) = made[0].outputs
        output = Output(f"d{x.name}", "array", x.axes, x.blocks)
        return self._one("gradient", output.name, tensor, (), output)

    def count_operators(self) -> None:
        """From here on, list the ATen operators of every call in ``Trace.operators``."""
        self._append("count", "count_operators", None, (), {}, ())

    def measure_memory(self) -> None:
        """From here on, note in ``Trace.memory`` what every call allocates; lists operators too."""
        self._append("memory", "measure_memory", None, (), {}, ())

    @property
    def measures_memory(self) -> bool:
        """Whether ``measure_memory`` is among its steps."""
        return any(step.operation == "memory" for step in self.steps)

    def no_grad(self) -> None:
        """From here on, run every call without gradients, which cannot be switched on: in PyTorch's
        inference mode."""
        self._append("no_grad", "no_grad", None, (), {}, ())

    def add(self, a: Handle | np.ndarray, b: Handle | np.ndarray) -> Handle:
        """The sum of two earlier results, or of one and an array, of equal shapes; see ``show``."""
        return self._one("add", "add", None, (a, b), Output("sum", "private"))

    def show(
        self,
        name: str,
        handle: Handle,
        axes: Sequence[str] = (),
        blocks: Mapping[int, tuple[str, ...]] | None = None,
    ) -> Handle:
        """Read an earlier result, as it is at this point: the output ``name``, an array."""
        output = Output(name, "array", tuple(axes), blocks or {})
        return self._one("show", name, handle, (), output)

    def convert(self, value: np.ndarray | Handle | Instance, to: str) -> Handle:
        """An array or a tensor on another device or of another dtype, such as "meta" or "bfloat16".

        A ``torch.nn.Module`` is converted itself, as its own ``to`` does it. What arrays cannot be on
        or of does not come back: read its ``form``.
        """
        return self._one("method", "convert", None, (value, to), Output("converted", "private"))

    def form(self, name: str, handle: Handle) -> Handle:
        """Read the form of the tensor called ``name``, wherever it is and whatever its dtype.

        The output is a dict of texts: "shape", "dtype" and "device".
        """
        return self._one("method", "form", None, (handle, name), Output(name, "dict"))

    def copy(self) -> Script:
        """The same steps, to which nothing can be added through this one."""
        return self._first(len(self.steps))

    def until(self, names: Sequence[str]) -> Script:
        """This Script up to the last step that gives one of the outputs, or dict entries, ``names``."""
        last = 0
        for number, step in enumerate(self.steps):
            for output in step.outputs:
                entries = {f'{output.name}["{key}"]' for key in output.entries}
                if not {output.name, *entries}.isdisjoint(names):
                    last = number
        return self._first(last + 1)

    def _first(self, count: int) -> Script:
        part = Script(self.calls)
        for step in self.steps[:count]:
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

    def _read_all(
        self, operation: Operation, name: str, instance: Instance, without: Sequence[str] = ()
    ) -> Handle:
        full_name = f"{instance._class}.{operation}"
        listed = self.calls.get(full_name, ())
        output = Output(name, "dict", entries=listed[0].entries if len(listed) == 1 else {})
        return self._one(operation, full_name, instance._handle, tuple(without), output)

    def _one(
        self,
        operation: Operation,
        name: str,
        target: Handle | None,
        args: tuple[Any, ...],
        output: Output,
    ) -> Handle:
        handle = self._append(operation, name, target, args, {}, (output,))
        assert handle is not None
        return handle

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
class Operator:
    """An ATen operator such as ``aten.mm`` that a step ran, and the shapes of its tensor arguments."""

    step: int
    name: str
    shapes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes of tensors that a step allocated: at most at one time, and what of them it left.

    What is left is what it returned and what is kept for the way back.
    """

    step: int
    peak: int
    left: int


@dataclass(frozen=True, slots=True)
class Trace:
    """What one implementation answered to one Script.

    ``values`` holds the outputs that are not private, by handle number, as far as it came:
    ``np.ndarray`` for an array, a plain number, text, bool or None for a scalar, ``list``, ``dict``,
    or ``Unfit`` where the value is of another kind. ``modified`` names the arguments that were changed
    in place, as (step, parameter). ``operators`` are those that ran after ``count_operators``, in order,
    a claim as well; ``more_operators`` tells that there were more than a Trace holds. ``memory``, a
    claim too, is that of the steps after ``measure_memory``. ``resident`` is no claim: by how many bytes
    the process's memory in use grew at most in such a Script, None where the system does not tell.
    ``seconds`` is the grader's own clock, ``limit`` what there was of it when it ran out.
    """

    values: Mapping[int, Any]
    raised: Raised | None = None
    cause: Cause | None = None
    warnings: tuple[Warned, ...] = ()
    modified: tuple[tuple[int, str], ...] = ()
    operators: tuple[Operator, ...] = ()
    more_operators: bool = False
    memory: tuple[Memory, ...] = ()
    resident: int | None = None
    seconds: float = 0.0
    limit: float = 0.0

    def __getitem__(self, handle: Handle) -> Any:
        """The value of an output; KeyError where the Script did not come that far."""
        return self.values[handle.number]

    @property
    def nbytes(self) -> int:
        """The memory that its values and operators take, about."""
        size, todo = _OPERATOR_BYTES * len(self.operators), list(self.values.values())
        while todo:
            value = todo.pop()
            if isinstance(value, np.ndarray):
                size += value.nbytes
            elif isinstance(value, (dict, list)):
                todo += value.values() if isinstance(value, dict) else value
            else:
                size += sys.getsizeof(value)
        return size
