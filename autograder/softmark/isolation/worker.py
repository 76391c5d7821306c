"""The student's side: load a submission, answer Scripts with raw values.

This runs inside the sandbox, beside the student's code, and nothing it says is trusted. It compares
nothing and knows no expected value. What it notices (warnings, arguments changed in place) is a claim.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import io
import os
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from softmark.isolation import wire
from softmark.script import Handle, Rng, Unfit

_LIST_DEPTH = 8


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


def serve(descriptor: int, output_bytes: int) -> None:
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
        files, main = receive()
        loaded = _load(files, main)
        send(wire.pack(loaded if isinstance(loaded, list) else None))
        if isinstance(loaded, list):
            return
        while True:
            send(_answer(receive(), loaded, files))
    except wire.Closed:
        return


def _load(files: Mapping[str, str], main: str) -> types.ModuleType | list[Any]:
    """The main module, or what importing it raised."""
    sys.meta_path.insert(0, Files(files))
    try:
        return importlib.import_module(main)
    except BaseException as error:  # SystemExit and KeyboardInterrupt are the student's too
        return _raised(0, error, files)


def _answer(steps: list[Any], module: types.ModuleType, files: Mapping[str, str]) -> bytes:
    """Run one Script; the packed Trace."""
    objects: dict[int, Any] = {}
    values: list[tuple[int, Any]] = []
    warned: list[list[Any]] = []
    modified: list[tuple[int, str]] = []
    raised: list[Any] | None = None
    out_of_memory = False
    with warnings.catch_warnings(record=True) as seen, _errstate():
        warnings.simplefilter("always")
        for number, step in enumerate(steps):
            try:
                _run(number, step, module, objects, values, modified)
            except MemoryError as error:
                raised, out_of_memory = _raised(number, error, files), True
            except BaseException as error:
                raised = _raised(number, error, files)
            warned += [_warned(number, warning, files) for warning in seen[:20]]
            seen.clear()
            if raised:
                break
    try:
        packed = wire.pack([values, raised, warned, modified, out_of_memory])
    except MemoryError as error:
        return wire.pack([[], _raised(number, error, files), [], [], True])
    if len(packed) > wire.MAX_FRAME:
        said = f"what was returned takes {len(packed) >> 20} MB, far more than it should"
        return wire.pack([[], _raised(number, ReturnedWrong(said), files), [], [], False])
    return packed


def _warned(number: int, warning: warnings.WarningMessage, files: Mapping[str, str]) -> list[Any]:
    place = f"{warning.filename}:{warning.lineno}" if warning.filename in files else ""
    return [number, warning.category.__name__, str(warning.message)[:300], place]


def _errstate() -> Any:
    # for each Script, since a submission may have silenced NumPy when it was imported
    return np.errstate(over="warn", invalid="warn", divide="warn", under="ignore")


class ReturnedWrong(Exception):
    """A call returned another number of values than it should."""


class NotDefined(Exception):
    """The submission has no function, class or attribute of this name."""


def _member(owner: Any, name: str, full_name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        raise NotDefined(f"{full_name} is not defined") from None


def _run(
    number: int,
    step: list[Any],
    module: types.ModuleType,
    objects: dict[int, Any],
    values: list[tuple[int, Any]],
    modified: list[tuple[int, str]],
) -> None:
    operation, full_name, target, args, kwargs, outputs, first = step
    name = full_name.rpartition(".")[2]
    owner: Any = module if target is None else objects[target.number]
    if operation == "read":
        results: Any = [_member(owner, name, full_name)]
    elif operation == "assign":
        (params,) = args
        owner.params, results = _argument(params, objects), []
    else:
        function = _member(owner, name, full_name)
        originals = [*enumerate(args), *kwargs.items()]
        args = [_argument(a, objects) for a in args]
        kwargs = {k: _argument(v, objects) for k, v in kwargs.items()}
        result = function(*args, **kwargs)
        given = [*args, *kwargs.values()]
        for (place, original), now in zip(originals, given, strict=True):
            if type(original) is np.ndarray and original.tobytes() != now.tobytes():
                modified.append((number, _parameter(function, place)))
        results = _split(full_name, result, [output[0] for output in outputs])
    for offset, ((_, kind), value) in enumerate(zip(outputs, results, strict=True)):
        objects[first + offset] = value
        if kind != "private":
            values.append((first + offset, _VALUES[kind](value)))


def _split(name: str, result: Any, names: list[str]) -> Sequence[Any]:
    if len(names) <= 1:
        return [result][: len(names)]
    if isinstance(result, (tuple, list)) and len(result) == len(names):
        return result
    raise ReturnedWrong(
        f"{name} returned {_describe(result)}; it should return {len(names)} values: "
        + ", ".join(names)
    )


def _argument(value: Any, objects: Mapping[int, Any]) -> Any:
    """An argument as the student gets it: a fresh writable array, an object of an earlier step."""
    if type(value) is np.ndarray:
        return value.copy()
    if type(value) is Handle:
        return objects[value.number]
    if type(value) is Rng:
        return np.random.default_rng(value.seed)
    if type(value) is list:
        return [_argument(v, objects) for v in value]
    if type(value) is dict:
        return {k: _argument(v, objects) for k, v in value.items()}
    return value


def _parameter(function: Any, place: int | str) -> str:
    try:
        return str(
            place if isinstance(place, str) else list(inspect.signature(function).parameters)[place]
        )
    except (ValueError, TypeError, IndexError):
        return f"number {place}"


# ---- results, as exact types -------------------------------------------------------------------


def _array(value: Any) -> Any:
    if not isinstance(value, (np.ndarray, np.generic)):
        return Unfit(_describe(value))
    # a copy now: the student's code may write into its own array in a later step
    return _fitting(value, lambda: np.array(value, order="C", subok=False))


def _scalar(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if value is None:
        return None
    for kind in (int, float, str):
        if isinstance(value, kind):
            return _fitting(value, partial(kind, value))
    if isinstance(value, np.integer):
        return int(value)
    return Unfit(_describe(value))


def _list(value: Any, depth: int = 0) -> Any:
    if depth > _LIST_DEPTH or not isinstance(value, (list, tuple)):
        return Unfit(_describe(value)) if depth == 0 else _scalar(value)
    return [_list(v, depth + 1) if isinstance(v, (list, tuple)) else _scalar(v) for v in value]


def _dict(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return Unfit(_describe(value))
    return {
        str(k): _array(v) if isinstance(v, (np.ndarray, np.generic)) else _scalar(v)
        for k, v in value.items()
    }


_VALUES = {"array": _array, "scalar": _scalar, "list": _list, "dict": _dict}


def _fitting(value: Any, plain: Callable[[], Any]) -> Any:
    """``plain()`` if the wire carries it, else what ``value`` is in words."""
    if isinstance(value, (np.ndarray, np.generic)) and value.nbytes > wire.MAX_FRAME // 2:
        return Unfit(f"an array of {value.nbytes >> 20} MB")
    try:
        result = plain()
        if type(result) is str:
            return result[:10_000]
        if type(result) is not np.ndarray or not wire.carries(result):
            wire.pack(result)  # raises, or it is a small scalar
    except (ValueError, OverflowError, TypeError):
        return Unfit(_describe(value))
    return result


def _describe(value: Any) -> str:
    name = type(value).__name__[:60]
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of dtype {str(value.dtype)[:60]} with {value.ndim} dimensions"
    if isinstance(value, (list, tuple, dict)):
        return f"a {name} of {len(value)}"
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


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
    return [step, type(error).__name__, message[:500], where, line[:200]]


def _line(source: str, number: int) -> str:
    lines = source.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""
