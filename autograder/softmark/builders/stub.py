"""What students fill in, made from the reference solution.

In a reference the parts that students write stand between two comment lines:

    # BEGIN SOLUTION
    ...
    # END SOLUTION

In the stub each such part is one ``raise NotImplementedError("LSTMCell.backward")``, or nothing
where it is outside every function (a helper, say, that only the solution needs).
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_BEGIN, _END = "# BEGIN SOLUTION", "# END SOLUTION"
# Looser than the two lines above: a marker with a slip in it must not pass for a comment.
_MARKER = re.compile(r"#\W*(BEGIN|END)\W*SOLUTION", re.IGNORECASE)


class BuildError(Exception):
    """Why something cannot be built: one line that names the file, the line and what to do."""


@dataclass(frozen=True, slots=True)
class _Region:
    """A part that students write: the lines of its two markers, from 1, and its indentation."""

    first: int
    last: int
    column: int


def stub(source: str, file: str) -> str:
    """The text of a reference solution without its solution.

    ``file`` is the name that errors give. Raises BuildError where markers are unmatched, nested,
    misspelt, in a string or beside code, where a part cuts through the code, where there is
    none at all (the stub would be the solution), and where the source or the stub is not Python.
    """
    tree = _parse(source, file)
    lines = dict(enumerate(io.StringIO(source), start=1))
    regions = _regions(source, lines, file)
    if not regions:
        raise BuildError(f"{file}:1: no '{_BEGIN}' in this file: its stub would be the solution")
    for region in regions:
        _check_whole(tree, region, file)
        for number in range(region.first, region.last + 1):
            del lines[number]
        name = _function_around(tree, region)
        if name:
            lines[region.first] = f'{" " * region.column}raise NotImplementedError("{name}")\n'
    numbers = sorted(lines)
    text = "".join(lines[number] for number in numbers)
    try:
        compile(text, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = ([1, *numbers][: (error.lineno or 1) + 1])[-1]
        raise BuildError(
            f"{file}:{line}: without the solution this is not Python ({error.msg}); "
            "leave outside the markers what the stub needs, such as a docstring"
        ) from None
    return text


def _parse(source: str, file: str) -> ast.Module:
    try:
        return ast.parse(source, file)
    except SyntaxError as error:
        raise BuildError(f"{file}:{error.lineno or 1}: not Python ({error.msg})") from None


def _regions(source: str, lines: Mapping[int, str], file: str) -> list[_Region]:
    comments = {
        token.start[0]: token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    regions: list[_Region] = []
    begun: tokenize.TokenInfo | None = None
    for number, line in lines.items():
        at = f"{file}:{number}:"
        comment = comments.get(number)
        if comment is None or not _MARKER.match(comment.string):
            if line.strip() in (_BEGIN, _END):
                raise BuildError(f"{at} a marker inside a string; end the string before it")
            continue
        if line.strip() not in (_BEGIN, _END):
            raise BuildError(
                f"{at} '{comment.string}' must be a line of its own and read '{_BEGIN}' or '{_END}'"
            )
        if comment.string == _BEGIN:
            if begun is not None:
                raise BuildError(
                    f"{at} '{_BEGIN}' inside the part that begins in line {begun.start[0]}; "
                    f"end that one first"
                )
            begun = comment
        elif begun is None:
            raise BuildError(f"{at} '{_END}' without a '{_BEGIN}' before it")
        else:
            regions.append(_Region(begun.start[0], number, begun.start[1]))
            begun = None
    if begun is not None:
        raise BuildError(f"{file}:{begun.start[0]}: '{_BEGIN}' without an '{_END}' after it")
    return regions


def _check_whole(tree: ast.Module, region: _Region, file: str) -> None:
    """The part must hold whole statements of one body: anything else leaves half of something."""
    empty = True
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        first, last = _lines(node)
        if not region.first < first < region.last:
            continue
        empty = False
        if last > region.last or node.col_offset < region.column:
            raise BuildError(
                f"{file}:{first}: this belongs only in part to what begins in line {region.first}; "
                "both markers must stand in the same body, indented as the code between them"
            )
    if empty:
        raise BuildError(f"{file}:{region.first}: nothing to write between these markers")


def _function_around(tree: ast.Module, region: _Region) -> str:
    """The qualified name of the innermost function that the part is in; "" if in none."""
    body: list[ast.stmt] = tree.body
    names: list[str] = []
    inside = ""
    while True:
        # The code of the part ends no earlier than the function, so its first marker is enough.
        around = [node for node in _scopes(body) if _holds(node, region.first)]
        if not around:
            return inside
        node = around[-1]
        names.append(node.name)
        inside = "" if isinstance(node, ast.ClassDef) else ".".join(names)
        body = node.body


_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _scopes(body: list[ast.stmt]) -> Iterator[_Scope]:
    """Functions and classes of a body, also those under an ``if`` or ``try``, outermost only."""
    for statement in body:
        if isinstance(statement, _Scope):
            yield statement
            continue
        for node in ast.iter_child_nodes(statement):
            if isinstance(node, ast.stmt):
                yield from _scopes([node])
            elif isinstance(node, ast.ExceptHandler | ast.match_case):
                yield from _scopes(node.body)


def _holds(node: ast.stmt, line: int) -> bool:
    first, last = _lines(node)
    return first < line < last


def _lines(node: ast.stmt) -> tuple[int, int]:
    """First and last line of a statement, its decorators included."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return first, node.end_lineno or node.lineno
