"""The student's side: load a submission, answer Scripts with raw values.

This runs inside the sandbox, beside the student's code, and nothing it says is trusted. It compares
nothing and knows no expected value. What it notices (warnings, arguments changed in place) is a claim.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import io
import os
import sys
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from softmark.isolation import standins, wire
from softmark.isolation.arrays import Arrays, ReturnedWrong, member
from softmark.script import Handle, Rng

_Lent = tuple[int | str, str, np.ndarray, np.ndarray]
"""An array lent to the submission: which parameter, where inside it, as it was, as it is now."""


class Files(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports the submission's modules from their source text; nothing is written to disk."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = dict(files)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if f"{fullname}.py" not in self.files:
            return None
        spec = importlib.util.spec_from_loader(fullname, self, origin=f"{fullname}.py")
        if spec is not None:
            spec.has_location = True  # gives the module its __file__
        return spec

    def get_source(self, fullname: str) -> str:
        return self.files[f"{fullname}.py"]

    def get_code(self, fullname: str) -> types.CodeType:
        return compile(self.get_source(fullname), f"{fullname}.py", "exec", dont_inherit=True)


class Output(io.BufferedIOBase):
    """stdout and stderr: the first bytes are kept, the rest is dropped; printing is free."""

    def __init__(self, descriptor: int, room: int) -> None:
        self._descriptor, self._room = descriptor, room

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any) -> int:
        kept = bytes(data[: self._room])
        self._room -= len(kept)
        if kept:
            os.write(self._descriptor, kept)
        return len(data)


def serve(descriptor: int, output_bytes: int, arrays: Arrays) -> None:
    """Answer the grader on the socket ``descriptor`` until it hangs up."""
    printed: Any = Output(1, output_bytes)
    sys.stdout = sys.stderr = io.TextIOWrapper(printed, "utf-8", "replace", write_through=True)

    def receive() -> Any:
        return wire.unpack_trusted(wire.read_frame(lambda count: os.read(descriptor, count)))

    def send(body: bytes) -> None:
        view = memoryview(wire.frame(body))
        while view:
            view = view[os.write(descriptor, view) :]

    try:
        files, main, given, *forbid = receive()
        standins.put_up(forbid, arrays.places)
        loaded = _load(files, main)
        send(wire.pack(loaded if isinstance(loaded, list) else None))
        if isinstance(loaded, list):
            return
        run, timed = _Run(loaded, arrays, given), None
        while True:
            asked = receive()
            if isinstance(asked, list):
                send(_answer(asked, loaded, files, arrays, given))
                continue
            if "steps" in asked:
                run = _Run(loaded, arrays, given)
            try:
                with arrays.script():
                    timed, said = run.clocked(asked, timed)
                send(wire.pack(said))
            except BaseException as error:
                send(wire.pack({"raised": _raised(0, error, files)}))
    except wire.Closed:
        return


def _load(files: Mapping[str, str], main: str) -> types.ModuleType | list[Any]:
    """The main module, or what importing it raised."""
    sys.meta_path.insert(0, Files(files))
    try:
        return importlib.import_module(main)
    except BaseException as error:  # SystemExit and KeyboardInterrupt are the student's too
        return _raised(0, error, files)


def _answer(
    steps: list[Any],
    module: types.ModuleType,
    files: Mapping[str, str],
    arrays: Arrays,
    given: Sequence[str],
) -> bytes:
    """Run one Script; the packed Trace."""
    run = _Run(module, arrays, given)
    warned: list[list[Any]] = []
    raised: list[Any] | None = None
    out_of_memory = False
    with warnings.catch_warnings(record=True) as seen, arrays.script():
        warnings.simplefilter("always")
        for number, step in enumerate(steps):
            try:
                run.step(number, step)
            except BaseException as error:
                raised, out_of_memory = _raised(number, error, files), arrays.starved(error)
            warned += [_warned(number, warning, files) for warning in seen[:20]]
            seen.clear()
            if raised:
                break
        operators = arrays.operators()
    try:
        packed = wire.pack([run.values, raised, warned, run.modified, out_of_memory, operators])
    except MemoryError as error:
        return wire.pack([[], _raised(number, error, files), [], [], True, None])
    said = ""
    if len(packed) > wire.MAX_FRAME:
        said = f"what was returned takes {len(packed) >> 20} MB, far more than it should"
    elif len(packed) > wire.MAX_ITEMS // 2 and not wire.within_items(packed):  # one takes a byte
        said = f"what was returned has over {wire.MAX_ITEMS:,} parts, far more than it should"
    if said:
        return wire.pack([[], _raised(number, ReturnedWrong(said), files), [], [], False, None])
    return packed


def _warned(number: int, warning: warnings.WarningMessage, files: Mapping[str, str]) -> list[Any]:
    place = f"{warning.filename}:{warning.lineno}" if warning.filename in files else ""
    return [number, warning.category.__name__, str(warning.message)[:300], place]


class _Run:
    """One Script as it goes: the submission's objects by handle number, and what there is to tell."""

    def __init__(self, module: types.ModuleType, arrays: Arrays, given: Sequence[str]) -> None:
        self.values: list[tuple[int, Any]] = []
        self.modified: list[tuple[int, str]] = []
        self._module, self._arrays = module, arrays
        self._given = given
        self._objects: dict[int, Any] = {}
        self._names: dict[int, str] = {}
        # arrays behind the leaf tensors of this Script: as given, and as the submission has them
        self._leaves: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def clocked(self, asked: dict[str, Any], timed: Any) -> tuple[Any, Any]:
        """Do what ``clock`` asks: get ready, run on the inputs of a seed, weigh and hash the outputs, or
        give them."""
        if "steps" in asked:
            steps, read, device, shapes = (asked[k] for k in ("steps", "read", "device", "shapes"))
            take, put = self._objects.__getitem__, self._put
            return self._arrays.clocked(self.step, take, put, steps, read, device, shapes), None
        if "seed" in asked:
            return timed, timed.go(asked["seed"])
        return timed, timed.hashed(asked["weigh"]) if "weigh" in asked else timed.outputs()

    def _put(self, number: int, name: str, value: Any) -> None:
        self._objects[number], self._names[number] = value, name

    def step(self, number: int, step: list[Any]) -> None:
        """Do one step, and keep and read what comes of it."""
        operation, full_name, target, args, kwargs, outputs, first = step
        owner: Any = self._home(full_name) if target is None else self._objects[target.number]
        if operation in ("new", "call", "method"):
            names = [name for name, _ in outputs]
            results = self._call(number, operation, full_name, owner, args, kwargs, names)
        elif operation == "tensor":
            given = args[0].copy()
            self._leaves[first] = (args[0], given)
            results = [self._arrays.tensor(given)]
        elif operation == "backward":
            with self._arrays.watch(number):
                self._backward(args)
            results = []
        else:
            results = self._other(operation, full_name, owner, target, args)
        for offset, ((name, kind), value) in enumerate(zip(outputs, results, strict=True)):
            self._put(first + offset, name, value)
            if kind != "private":
                self.values.append((first + offset, self._arrays.read(kind, value)))

    def _home(self, full_name: str) -> types.ModuleType:
        """The module that has a name: one that the course gives, if it does, or the submission's."""
        first = full_name.partition(".")[0]
        for name in self._given:
            module = importlib.import_module(name)
            if first in vars(module):
                return module
        return self._module

    def _other(
        self, operation: str, full_name: str, owner: Any, target: Handle | None, args: list[Any]
    ) -> list[Any]:
        """What an operation gives that does not run the submission's functions."""
        class_name, _, name = full_name.rpartition(".")
        if operation == "read":
            return [member(owner, name, full_name)]
        if operation == "assign":
            self._arrays.assign(owner, full_name, self._argument(args[0], []))
            return []
        if operation == "parameters":
            return [self._arrays.parameters(owner, class_name)]
        if operation == "gradients":
            found = self._arrays.gradients(owner, class_name)
            if args and isinstance(found, dict):
                found = {key: value for key, value in found.items() if key not in args}
            return [found]
        if operation == "gradient":
            assert target is not None
            return [self._arrays.gradient(owner, self._names[target.number])]
        if operation == "add":
            return [self._arrays.add([self._argument(a, []) for a in args], self._named(args))]
        if operation == "show":
            return [owner]
        if operation == "count":
            self._arrays.count_operators()
            return []
        if operation == "memory":
            self._arrays.measure_memory()
            return []
        if operation == "no_grad":
            self._arrays.no_grad()
            return []
        raise ValueError(f"an unknown operation {operation}")

    def _call(
        self,
        number: int,
        operation: str,
        full_name: str,
        owner: Any,
        args: list[Any],
        kwargs: dict[str, Any],
        names: list[str],
    ) -> Sequence[Any]:
        """What a function, class or method returned, as one value a name."""
        name = full_name.rpartition(".")[2]
        find = self._arrays.method if operation == "method" else member
        function = find(owner, name, full_name)
        lent: list[_Lent] = []
        given = [self._argument(a, lent, place) for place, a in enumerate(args)]
        named = {k: self._argument(v, lent, k) for k, v in kwargs.items()}
        with self._arrays.watch(number):
            result = function(*given, **named)
        changed = [
            (place, inside) for place, inside, old, now in lent if old.tobytes() != now.tobytes()
        ]
        if changed:
            self.modified += [(number, _parameter(function, p) + inside) for p, inside in changed]
            self._leaves = {leaf: (now.copy(), now) for leaf, (_, now) in self._leaves.items()}
        return self._split(full_name, result, names)

    def _split(self, name: str, result: Any, names: list[str]) -> Sequence[Any]:
        if len(names) <= 1:
            return [result][: len(names)]
        if isinstance(result, (tuple, list)) and len(result) == len(names):
            return result
        raise ReturnedWrong(
            f"{name} returned {self._arrays.describe(result)}; it should return {len(names)} values: "
            + ", ".join(names)
        )

    def _backward(self, pairs: list[Any]) -> None:
        outputs = [self._objects[output.number] for output, _ in pairs]
        names = self._named([output for output, _ in pairs])
        upstream = [
            self._objects[given.number] if type(given) is Handle else given.copy()
            for _, given in pairs
        ]
        self._arrays.backward(outputs, names, upstream)

    def _named(self, values: list[Any]) -> list[str]:
        return [self._names[v.number] if type(v) is Handle else "the array" for v in values]

    def _argument(
        self, value: Any, lent: list[_Lent], place: int | str = "", inside: str = ""
    ) -> Any:
        """An argument as the submission gets it: fresh writable arrays, objects of earlier steps.

        What is lent is noted, to see afterwards whether it was written to.
        """
        if type(value) is np.ndarray:
            own = value.copy()
            lent.append((place, inside, value, own))
            return self._arrays.fresh(own)
        if type(value) is Handle:
            if value.number in self._leaves:
                lent.append((place, inside, *self._leaves[value.number]))
            return self._objects[value.number]
        if type(value) is Rng:
            return self._arrays.generator(value.seed)
        if type(value) is list:
            return [self._argument(v, lent, place, f"{inside}[{i}]") for i, v in enumerate(value)]
        if type(value) is dict:
            return {k: self._argument(v, lent, place, f'{inside}["{k}"]') for k, v in value.items()}
        return value


def _parameter(function: Any, place: int | str) -> str:
    """The name of a parameter given by name or by place."""
    if isinstance(place, str):
        return place
    if not isinstance(function, type):  # a module of PyTorch's is called for its forward
        function = getattr(function, "forward", function)
    try:
        return str(list(inspect.signature(function).parameters)[place])
    except (ValueError, TypeError, IndexError):
        return f"number {place}"


# ---- errors ------------------------------------------------------------------------------------


def _raised(step: int, error: BaseException, files: Mapping[str, str]) -> list[Any]:
    """An exception as data: its type, message, and the last line of the student's that it passed."""
    where, line = "", ""
    try:
        message = str(error)
    except BaseException:
        message = "(its message could not be printed)"
    if isinstance(error, SyntaxError) and error.filename in files:
        where = f"{error.filename}:{error.lineno}"
        line, message = (error.text or "").strip(), error.msg
    else:
        traceback = error.__traceback__
        while traceback is not None:
            file = traceback.tb_frame.f_code.co_filename
            if file in files:
                where = f"{file}:{traceback.tb_lineno}"
                line = _line(files[file], traceback.tb_lineno)
            traceback = traceback.tb_next
    kind, name = type(error), type(error).__name__
    python_s = getattr(builtins, name, kind)
    if not (isinstance(python_s, type) and issubclass(kind, python_s)):  # has but the name of it
        name = f"{kind.__module__}.{name}"
    if not hasattr(builtins, name):  # what of Python's it is a kind of
        known = [
            base.__name__ for base in kind.__mro__ if getattr(builtins, base.__name__, 0) is base
        ]
        name += f" ({known[0]})" if known[0] != "Exception" else ""
    return [step, name, message[:500], where, line[:200]]


def _line(source: str, number: int) -> str:
    lines = source.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""
