"""The hidden graders in the process that the submission is in, as tests are run without Softmark.

The same Scripts from the same seed, and the same comparisons; the reference is imported beside the
submission. A pytest plugin (``-p in_process --setup FILE --submission FILE``), and for the cells of
notebooks ``check(item, globals())``, which finds FILE in the variable ``IN_PROCESS_SETUP``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import itertools
import os
import pickle
import sys
import types
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

VARIABLE = "IN_PROCESS_SETUP"


def item(id: str, **needs: Any) -> Callable[[Any], Any]:
    """Stands for softmark.plugin's, whose imports a plain test would not have."""

    def mark(test: Any) -> Any:
        test.of = (id, needs)
        return test

    return mark


if __name__ != "__main__":
    sys.modules["softmark.plugin"] = types.ModuleType("softmark.plugin")
    sys.modules["softmark.plugin"].item = item  # type: ignore[attr-defined]
    sys.modules["softmark.plugin"].Disagreement = AssertionError  # type: ignore[attr-defined]

from softmark.isolation import wire  # noqa: E402
from softmark.isolation.arrays import Arrays  # noqa: E402
from softmark.isolation.worker import _Run  # noqa: E402
from softmark.script import Calls, Raised, Script, Trace, Warned  # noqa: E402


@dataclass(frozen=True)
class Setup:
    """What the processes have to know of a topic; ``items`` are those that are asked for."""

    graders: Path
    reference: Path
    calls: Calls
    torch: bool
    seed: int
    items: tuple[str, ...]


class InProcess:
    """Submission and reference side by side; every Script is run anew on both."""

    def __init__(self, setup: Setup, submission: types.ModuleType) -> None:
        self.seed = setup.seed
        self._calls = setup.calls
        self._submission, self._reference = submission, _once(setup.reference)
        self._shapes: dict[str, dict[str, tuple[int, ...]]] = {}
        self._arrays = PlainTensors() if setup.torch else Arrays()

    def script(self) -> Script:
        return Script(self._calls)

    def student(self, script: Script) -> Trace:
        return self._trace(script, self._submission)

    def reference(self, script: Script) -> Trace:
        return self._trace(script, self._reference)

    def agree(self, script: Script, only: str | Sequence[str] = ()) -> None:
        from softmark.verdict import Answer, differences

        names = (only,) if isinstance(only, str) else tuple(only)
        expected, actual = self.reference(script), self.student(script)
        failure = differences(Answer(script, expected), actual, names, "")
        assert failure is None, failure

    def _trace(self, script: Script, module: types.ModuleType) -> Trace:
        run, warned, raised = _Run(module, self._arrays, ()), [], None
        with warnings.catch_warnings(record=True) as seen, self._arrays.script():
            warnings.simplefilter("always")
            # packed and read again: the steps get arrays of their own
            for number, step in enumerate(wire.unpack_trusted(wire.pack_script(script))):
                try:
                    run.step(number, step)
                except Exception as error:
                    raised = Raised(number, type(error).__name__, str(error), "", "")
                warned += [Warned(number, w.category.__name__, str(w.message), "") for w in seen]
                seen.clear()
                if raised:
                    break
        values = {number: _kept(value) for number, value in run.values}
        changed = tuple(run.modified)
        return Trace(values, raised, warnings=tuple(warned), modified=changed)

    def shapes(self, name: str, args: Any, kwargs: Any) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the reference's parameters, looked up once."""
        key = repr((name, args, kwargs))
        if key not in self._shapes:
            script = self.script()
            read = script.read(script.new(name, *args, **kwargs).params)
            found = self.reference(script)[read]
            self._shapes[key] = {name: value.shape for name, value in found.items()}
        return self._shapes[key]

    def fixtures(self, test: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """What the graders' tests ask for by name."""
        tools = {name: getattr(self, name) for name in ("script", "student", "reference", "agree")}
        return {**tools, "draw": Draw(self, _draws(test, parameters))}


class PlainTensors(Arrays):
    """As softmark.isolation.tensors has them, without what that imports to watch operators."""

    kind = "a tensor"

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)

    @contextlib.contextmanager
    def script(self) -> Iterator[None]:
        self.torch.default_generator.manual_seed(0)
        with super().script():
            yield

    def fresh(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(array)

    def generator(self, seed: int) -> Any:
        return self.torch.Generator().manual_seed(seed)

    def method(self, owner: Any, name: str, full_name: str) -> Any:
        own = {"convert": self._converted, "form": self._form}
        is_module = isinstance(owner, self.torch.nn.Module) and name == "forward"
        return own.get(full_name) or (
            owner if is_module else super().method(owner, name, full_name)
        )

    def _converted(self, value: Any, to: str) -> Any:
        return value.to(getattr(self.torch, to, None) or to)

    def _form(self, value: Any, name: str) -> dict[str, str]:
        said = {"shape": tuple(value.shape), "dtype": value.dtype, "device": value.device.type}
        return {key: str(part).removeprefix("torch.") for key, part in said.items()}

    def assign(self, owner: Any, name: str, params: dict[str, Any]) -> None:
        places = {**dict(owner.named_parameters()), **dict(owner.named_buffers())}
        with self.torch.no_grad():
            for key, value in params.items():
                places[key].copy_(value)

    def parameters(self, owner: Any, name: str) -> Any:
        return dict(owner.named_parameters())

    def gradients(self, owner: Any, name: str) -> Any:
        return {key: parameter.grad for key, parameter in owner.named_parameters()}

    def tensor(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(array).requires_grad_()

    def backward(self, outputs: list[Any], names: list[str], upstream: list[np.ndarray]) -> None:
        gradients = [self.torch.from_numpy(gradient) for gradient in upstream]
        self.torch.autograd.backward(outputs, gradients, retain_graph=True)

    def gradient(self, tensor: Any, name: str) -> Any:
        return tensor.grad

    def holds(self, value: Any) -> bool:
        return isinstance(value, self.torch.Tensor)

    def plain(self, value: Any) -> Any:
        return value.detach().numpy().copy() if self.holds(value) else super().plain(value)


def _kept(value: Any) -> Any:
    """A result with memory of its own: a later step may write into it."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: _kept(inner) for key, inner in value.items()}
    return [_kept(inner) for inner in value] if isinstance(value, list) else value


def _draws(test: Any, parameters: Mapping[str, Any]) -> str:
    """As softmark.plugin names the inputs of a test."""
    id, needs = test.of
    ids = " ".join([id, *_listed(needs.get("depends")), *_listed(needs.get("requires"))])
    shared = {k: v for k, v in parameters.items() if f"{{{k}}}" not in ids}
    name = needs.get("draws") or f"{test.__name__}{sorted(shared.items())}"
    return f"{Path(test.__code__.co_filename).name}::{name}"


def _listed(ids: str | Sequence[str] | None) -> Sequence[str]:
    return [ids] if isinstance(ids, str) else ids or []


class Draw:
    """As softmark.plugin's, with the reference in this process."""

    def __init__(self, runs: InProcess, name: str) -> None:
        self._runs = runs
        self.rng = np.random.default_rng([runs.seed, zlib.crc32(name.encode())])

    def __call__(self, *shape: int) -> np.ndarray:
        return self.rng.normal(size=shape)

    def params(self, name: str, *args: Any, **kwargs: Any) -> dict[str, np.ndarray]:
        return {
            key: self(*shape) / (np.sqrt(shape[0]) if len(shape) > 1 else 1.0)
            for key, shape in self._runs.shapes(name, args, kwargs).items()
        }


@functools.cache
def _once(path: Path) -> types.ModuleType:
    return imported("reference", path)


def imported(name: str, path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(setup: Setup, test: Any, parameters: Mapping[str, Any]) -> str:
    """The item that a test belongs to; "" if that is not one of those that are asked for."""
    id, needs = getattr(test, "of", ("", {}))
    id = id.format_map(parameters)
    return id if id in setup.items and not needs.get("follow_through") else ""


# ---- in the cells of a notebook ------------------------------------------------------------------


def check(item: str, namespace: Mapping[str, Any]) -> None:
    """Run the tests of an item on what a notebook has defined. Raises what the first to fail raises."""
    submission = types.ModuleType("submission")
    submission.__dict__.update(namespace)
    runs = InProcess(_setup(), submission)
    for test, parameters in _tests()[item]:
        tools = runs.fixtures(test, parameters)
        names = test.__code__.co_varnames[: test.__code__.co_argcount]
        given = {name: tools[name] if name in tools else parameters[name] for name in names}
        with contextlib.redirect_stdout(io.StringIO()):  # Otter would count a printed line as wrong
            test(**given)


@functools.cache
def _setup() -> Setup:
    setup: Setup = pickle.loads(Path(os.environ[VARIABLE]).read_bytes())
    return setup


@functools.cache
def _tests() -> Mapping[str, Sequence[tuple[Any, Mapping[str, Any]]]]:
    """The tests of every item, with their parameters."""
    table: dict[str, list[tuple[Any, Mapping[str, Any]]]] = {}
    for path in sorted(_setup().graders.glob("test_*.py")):
        for name, test in vars(imported(path.stem, path)).items():
            for parameters in _cases(test) if name.startswith("test_") else ():
                if id := asked(_setup(), test, parameters):
                    table.setdefault(id, []).append((test, parameters))
    return table


def _cases(test: Any) -> Iterator[Mapping[str, Any]]:
    """The parameters of each case that pytest would make."""
    choices = []
    for mark in getattr(test, "pytestmark", ()):
        if mark.name != "parametrize":
            continue
        named = mark.args[0]
        names = [n.strip() for n in (named.split(",") if isinstance(named, str) else named)]
        rows = [row if len(names) > 1 else (row,) for row in mark.args[1]]
        choices.append([dict(zip(names, row, strict=True)) for row in rows])
    for chosen in itertools.product(*choices):
        yield {name: value for one in chosen for name, value in one.items()}


# ---- a pytest plugin -----------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    for name in ("--setup", "--submission"):
        parser.addoption(name, type=Path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    setup = pickle.loads(config.getoption("--setup").read_bytes())
    items[:] = [test for test in items if asked(setup, _function(test), _parameters(test))]


def _function(test: pytest.Item) -> Any:
    return getattr(test, "function", None)


def _parameters(test: pytest.Item) -> dict[str, Any]:
    return dict(getattr(getattr(test, "callspec", None), "params", {}))


@pytest.fixture(scope="session")
def runs(request: pytest.FixtureRequest) -> InProcess:
    setup = pickle.loads(request.config.getoption("--setup").read_bytes())
    return InProcess(setup, imported("submission", request.config.getoption("--submission")))


def _fixture(name: str) -> Any:
    def give(request: pytest.FixtureRequest, runs: InProcess) -> Any:
        return runs.fixtures(request.node.function, _parameters(request.node))[name]

    return pytest.fixture(give, name=name)


script, student, reference = _fixture("script"), _fixture("student"), _fixture("reference")
agree, draw = _fixture("agree"), _fixture("draw")
