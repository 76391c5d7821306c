"""In which order to run tests on a mutant, so that the first one that fails comes soon."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pytest

from softmark.bench import Bench


@dataclass(frozen=True, slots=True)
class _Asks:
    """What a test asks: which functions it calls itself, and in how many steps. Not in how many
    seconds: what notices a mutant must not depend on the machine."""

    names: frozenset[str] = frozenset()
    steps: int = 0


class Priority:
    """Tests in order: what noticed another change of the same function, the last first, since mutants
    of a function come one after another; then what calls it; short ones before long ones."""

    def __init__(self, reference: Mapping[str, str]) -> None:
        self._reference = reference
        self._asks: dict[pytest.Item, _Asks] = {}
        self._noticed: dict[tuple[str, pytest.Item], int] = {}

    @cached_property
    def _functions(self) -> Mapping[str, Sequence[tuple[str, int, int]]]:
        return {name: list(_functions(ast.parse(text))) for name, text in self._reference.items()}

    def learn(self, test: pytest.Item, bench: Bench) -> None:
        """Remember what ``test`` has just asked."""
        asked = {question.digest: question for question, _ in bench.asked}.values()
        steps = [step.name for question in asked for step in question.script.steps]
        self._asks[test] = _Asks(frozenset(steps), len(steps))

    def order(self, tests: Sequence[pytest.Item], function: str) -> list[pytest.Item]:
        """``tests`` for a change of ``function``."""

        def key(test: pytest.Item) -> tuple[int, bool, int]:
            asks = self._asks.get(test, _Asks())
            calls = function.removesuffix(".__init__") in asks.names
            return -self._noticed.get((function, test), 0), not calls, asks.steps

        return sorted(tests, key=key)

    def note(self, test: pytest.Item, function: str) -> None:
        """``test`` has just noticed a change of ``function``."""
        self._noticed[function, test] = 1 + max(self._noticed.values(), default=0)

    def changed(self, files: Mapping[str, str]) -> str:
        """The function of the reference in which the first changed line of ``files`` stands, as in
        ``LSTMCell.backward``; "" outside of all."""
        for name, functions in self._functions.items():
            pairs = zip(
                self._reference[name].split("\n"), files.get(name, "").split("\n"), strict=False
            )
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
