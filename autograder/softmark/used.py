"""Of statements beside a program, those that the program uses.

In a notebook students try things: they plot, print, and call what is not written yet. A cell that
raises stops nothing there, and as part of a module it would stop everything. So of cells that are no
part of an assignment only definitions, imports and assignments count whose names its cells use.
"""

from __future__ import annotations

import ast
import symtable
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

_BAD = (SyntaxError, ValueError, RecursionError, MemoryError)
_MOST_STATEMENTS = 5_000  # of a cell, and of all cells together; what is more does not count


@dataclass(frozen=True, slots=True)
class _Statement:
    """One that has its lines, from 0 and up to ``end``, to itself, or several that share them; the
    names that it gives a meaning, and those that it needs."""

    cell: int
    start: int
    end: int
    binds: frozenset[str]
    uses: frozenset[str]


def used_lines(program: str, beside: Sequence[Sequence[str]]) -> list[set[int]]:
    """For each cell ``beside`` the program the numbers of its lines, from 0, that the program uses.

    A cell that is not Python has none. Where the program itself is not, every line counts.
    """
    try:
        binds, uses = _names(program)
    except _BAD:
        return [set(range(len(lines))) for lines in beside]
    found = (one for cell, lines in enumerate(beside) for one in _statements(cell, lines))
    by_name: dict[str, list[_Statement]] = defaultdict(list)
    for statement in islice(found, _MOST_STATEMENTS):
        for name in statement.binds:
            by_name[name].append(statement)
    kept: list[set[int]] = [set() for _ in beside]
    # a name of the program's own may be given another meaning, or a method
    known, asked = set(uses | binds), list(uses | binds)
    while asked:
        for statement in by_name.pop(asked.pop(), ()):
            kept[statement.cell].update(range(statement.start, statement.end))
            asked += statement.uses - known
            known |= statement.uses
    return kept


def _statements(cell: int, lines: Sequence[str]) -> Iterator[_Statement]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse("\n".join(lines)).body
    except _BAD:
        return
    if len(body) > _MOST_STATEMENTS:
        return
    shared: list[tuple[int, int, set[str]]] = []
    for node in body:
        decorators = getattr(node, "decorator_list", [])
        start = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
        roots = set(_roots(node))
        if shared and start < shared[-1][1]:
            start, _, before = shared.pop()
            before |= roots
            roots = before
        shared.append((start, node.end_lineno or node.lineno, roots))
    for start, end, roots in shared:
        try:
            binds, uses = _names("\n".join(lines[start:end]))
        except _BAD:
            continue
        yield _Statement(cell, start, end, binds | roots, uses)


def _names(code: str) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the module that code gives a meaning, and those that it reads somewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = symtable.symtable(code, "cell", "exec")
    symbols = module.get_symbols()
    binds = {s.get_name() for s in symbols if s.is_assigned() or s.is_imported()}
    uses = {s.get_name() for s in symbols if s.is_referenced()}
    tables = list(module.get_children())
    while tables:
        table = tables.pop()
        uses |= {s.get_name() for s in table.get_symbols() if s.is_global()}
        tables += table.get_children()
    return frozenset(binds), frozenset(uses)


def _roots(node: ast.stmt) -> frozenset[str]:
    """The names whose attributes or entries are set, as in ``LSTMCell.forward = forward``."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    roots: set[str] = set()
    for target in targets:
        inner = target
        while isinstance(inner, ast.Attribute | ast.Subscript):
            inner = inner.value
        if isinstance(inner, ast.Name):
            roots.add(inner.id)
    return frozenset(roots)
