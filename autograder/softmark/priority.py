"""In which order to run tests on a mutant, so that the first one that fails comes soon."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from softmark.bench import Bench


@dataclass(frozen=True, slots=True)
class _Asks:
    """What a test asks: which functions it calls itself, and the reference's seconds for all."""

    names: frozenset[str] = frozenset()
    seconds: float = 0.0


class Priority:
    """Tests in order: what noticed another change of the same function, the last first, since mutants
    of a function come one after another; then what calls it; cheap ones before dear ones."""

    def __init__(self, reference: Mapping[str, str]) -> None:
        self._lines = {name: text.split("\n") for name, text in reference.items()}
        self._functions = {n: list(_functions(ast.parse(t))) for n, t in reference.items()}
        self._asks: dict[pytest.Item, _Asks] = {}
        self._noticed: dict[tuple[str, pytest.Item], int] = {}

    def learn(self, test: pytest.Item, bench: Bench) -> None:
        """Remember what ``test`` has just asked."""
        asked = {question.digest: question for question, _ in bench.asked}.values()
        names = frozenset(step.name for question in asked for step in question.script.steps)
        seconds = sum(bench.reference(question).seconds for question in asked)
        self._asks[test] = _Asks(names, seconds)

    def order(self, tests: Sequence[pytest.Item], function: str) -> list[pytest.Item]:
        """``tests`` for a change of ``function``."""

        def key(test: pytest.Item) -> tuple[int, bool, float]:
            asks = self._asks.get(test, _Asks())
            calls = function.removesuffix(".__init__") in asks.names
            return -self._noticed.get((function, test), 0), not calls, asks.seconds

        return sorted(tests, key=key)

    def note(self, test: pytest.Item, function: str) -> None:
        """``test`` has just noticed a change of ``function``."""
        self._noticed[function, test] = 1 + max(self._noticed.values(), default=0)

    def changed(self, files: Mapping[str, str]) -> str:
        """The function of the reference in which the first changed line of ``files`` stands, as in
        ``LSTMCell.backward``; "" outside of all."""
        for name, functions in self._functions.items():
            pairs = zip(self._lines[name], files.get(name, "").split("\n"), strict=False)
            line = next((n for n, (ours, theirs) in enumerate(pairs, 1) if ours != theirs), None)
            if line is not None:
                around = [name for name, first, last in functions if first <= line <= last]
                return around[-1] if around else ""
        return ""


def _functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    """Every function, outer ones first: its qualified name, its first and its last line."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}"
            if isinstance(child, ast.FunctionDef):
                yield name, child.lineno, child.end_lineno or child.lineno
            yield from _functions(child, f"{name}.")
        else:
            yield from _functions(child, prefix)
