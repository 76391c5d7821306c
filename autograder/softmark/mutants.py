"""First-order mutants: a reference solution with one slip in a part that students write.

Graders that no mutant survives notice such slips. Nothing is run here.
"""

from __future__ import annotations

import ast
import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from softmark.slips import Scope, place, slips


@dataclass(frozen=True, slots=True)
class Mutant:
    """A reference with one slip.

    ``function`` is a qualified name such as ``LSTMCell.backward``, "" outside every function; ``line``
    that of the slip. ``before`` and ``after`` are the changed statement (of a compound statement the
    first line) as ``normalised`` writes it, ``source`` the text of the whole file.
    """

    file: str
    function: str
    line: int
    kind: str
    before: str
    after: str
    source: str = field(repr=False)
    original: str = field(repr=False)

    @property
    def diff(self) -> str:
        """The changed lines as a unified diff."""
        old, new = (text.splitlines() for text in (self.original, self.source))
        first = _alike(old, new)
        after = _alike(old[first:][::-1], new[first:][::-1])
        old, new = (lines[first : len(lines) - after] for lines in (old, new))
        lines = [f"--- {self.file}", f"+++ {self.file}: {self.kind}"]
        lines += [f"@@ -{first + 1},{len(old)} +{first + 1},{len(new)} @@"]
        lines += [f"-{line}" for line in old] + [f"+{line}" for line in new]
        return "\n".join(lines) + "\n"


def mutants(file: str, source: str) -> list[Mutant]:
    """Every mutant of what stands between solution markers, in the order of the file.

    Left out is what does not compile, and what another mutant or the reference already is.
    """
    return list(_File(file, source).mutants())


def normalised(statement: str) -> str:
    """A statement, or the first line of a compound one, in the one way in which ``ast`` writes it.

    Raises SyntaxError where it is neither.
    """
    text = statement.strip()
    body = ast.parse(f"{text} pass" if text.endswith(":") else text).body
    if len(body) != 1:
        raise SyntaxError("not one statement")
    return _shown(body[0])


def _alike(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines are the same from the start on."""
    pairs = zip(old, new, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is mutated as one: a simple statement, or an expression in the first line of another.

    ``seen`` has the dump of everything that it has been.
    """

    statement: ast.stmt
    root: ast.AST
    scope: Scope
    seen: set[str]


class _File:
    def __init__(self, file: str, source: str) -> None:
        self.file, self.source = file, source
        self.tree = ast.parse(source, file)
        self.data = source.encode()  # ast counts columns in bytes
        lengths = [len(line) for line in self.data.splitlines(keepends=True)]
        self.starts = [0, *itertools.accumulate(lengths)]
        self.written = _written(source)
        self.modules = set(_modules(self.tree))

    def mutants(self) -> Iterator[Mutant]:
        for unit in self._units(self.tree.body, "", Scope()):
            for node, parent in _nodes(unit.root, None):
                for kind, old, new in slips(node, parent, unit.statement, unit.scope, self.modules):
                    yield from self._mutant(unit, kind, old, new)

    def _units(self, body: Sequence[ast.stmt], prefix: str, scope: Scope) -> Iterator[_Unit]:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                name = prefix + statement.name
                yield from self._units(statement.body, f"{name}.", Scope(name, statement))
                continue
            if isinstance(statement, ast.ClassDef):
                yield from self._units(statement.body, f"{prefix}{statement.name}.", scope)
                continue
            if statement.lineno in self.written:
                for root in _roots(statement):
                    yield _Unit(statement, root, scope, {ast.dump(root)})
            for part in _bodies(statement):
                yield from self._units(part, prefix, scope)

    def _mutant(self, unit: _Unit, kind: str, old: ast.AST, new: ast.AST) -> Iterator[Mutant]:
        root = _replaced(unit.root, old, new)
        wanted = ast.dump(root)
        if wanted in unit.seen:
            return
        unit.seen.add(wanted)
        (start, end), (first, last) = self._span(unit.root), self._span(old)
        around = [self.data[a:b].decode() for a, b in ((start, first), (last, end))]
        # as little of the text as can be is written anew
        pieces = (text.join(around) for text in _spellings(new))
        piece = next((p for p in pieces if _read(p, root) == wanted), ast.unparse(root))
        source = (self.data[:start] + piece.encode() + self.data[end:]).decode()
        if _compiles(source):
            yield Mutant(
                file=self.file,
                function=unit.scope.name,
                line=place(old)[0],
                kind=kind,
                before=_shown(unit.statement),
                after=_shown(_replaced(unit.statement, unit.root, root)),
                source=source,
                original=self.source,
            )

    def _span(self, node: Any) -> tuple[int, int]:
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset


def _written(source: str) -> set[int]:
    """The lines between solution markers. Whether these stand right is for the starter to say."""
    lines: set[int] = set()
    inside = False
    for number, line in enumerate(source.splitlines(), 1):
        text = line.strip()
        inside = text == "# BEGIN SOLUTION" or (inside and text != "# END SOLUTION")
        if inside:
            lines.add(number)
    return lines


def _modules(tree: ast.Module) -> Iterator[str]:
    """The names of what is imported anywhere in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (a.asname or a.name.split(".")[0] for a in node.names)


def _roots(statement: ast.stmt) -> list[ast.AST]:
    match statement:
        case ast.If(test=test) | ast.While(test=test):
            return [test]
        case ast.For(iter=over) | ast.AsyncFor(iter=over):
            return [over]
        case ast.With(items=items) | ast.AsyncWith(items=items):
            return [item.context_expr for item in items]
    return [] if any(_bodies(statement)) else [statement]


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _nodes(node: ast.AST, parent: ast.AST | None) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """Every node with the one around it; not the messages and types that only people read."""
    yield node, parent
    if isinstance(node, ast.Raise | ast.JoinedStr):
        return
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name != "annotation":
                yield from _nodes(child, node)


def _replaced(tree: Any, old: ast.AST, new: ast.AST) -> Any:
    """``tree`` with ``new`` in the place of ``old``; nothing given is changed."""
    if tree is old:
        return new
    if isinstance(tree, list):
        return [_replaced(part, old, new) for part in tree]
    if not isinstance(tree, ast.AST):
        return tree
    fields = {name: _replaced(value, old, new) for name, value in ast.iter_fields(tree)}
    return ast.copy_location(type(tree)(**fields), tree)


def _spellings(node: ast.AST) -> list[str]:
    text = ast.unparse(node)
    return [text[1:-1], text] if isinstance(node, ast.Tuple) else [text, f"({text})"]


def _read(piece: str, root: ast.AST) -> str:
    """What Python makes of a unit's text, for comparing; "" where it makes nothing of it."""
    try:
        if isinstance(root, ast.stmt):
            return ast.dump(ast.parse(piece).body[0])
        return ast.dump(ast.parse(f"({piece}\n)", mode="eval").body)
    except SyntaxError:
        return ""


def _compiles(source: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(source, "mutant", "exec", dont_inherit=True)
        except SyntaxError:
            return False
    return True


def _shown(statement: Any) -> str:
    """A statement on one line, of a compound one the first."""
    if not hasattr(statement, "body"):
        return ast.unparse(statement)
    fields = dict(ast.iter_fields(statement)) | {"body": [ast.Pass()], "orelse": []}
    fields = {k: v for k, v in fields.items() if k in statement._fields}
    return ast.unparse(ast.copy_location(type(statement)(**fields), statement)).split("\n")[0]
