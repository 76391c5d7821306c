"""What students start from, made from the reference solution and the public files of a topic.

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
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from softmark.course import PUBLIC, PUBLIC_TOO, Course, Topic
from softmark.questions import ANSWERS_FILE, blank_answers

_BEGIN, _END = "# BEGIN SOLUTION", "# END SOLUTION"
# Looser than the two lines above: a marker with a slip in it must not pass for a comment.
_MARKER = re.compile(r"#\W*(BEGIN|END)\W*SOLUTION", re.IGNORECASE)
_TABLE = re.compile(r"(<!-- rubric -->\n).*?(<!-- /rubric -->)", re.DOTALL)
_CACHES = {"__pycache__", ".pytest_cache"}  # left by running the tests


class BuildError(Exception):
    """Why something cannot be built: one line that names the file, the line and what to do."""


# ---- one file ----------------------------------------------------------------------------------


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


# ---- the handout's rubric -----------------------------------------------------------------------


def with_rubric(handout: str, topic: Topic) -> str:
    """The handout with the table of ``topic``'s rubric between its two rubric markers."""
    if len(_TABLE.findall(handout)) != 1:
        raise BuildError(
            f"assignments/{topic.id}/handout.md: needs the line '<!-- rubric -->' and, after it, "
            "the line '<!-- /rubric -->', once; the rubric table goes between them"
        )
    return _TABLE.sub(lambda match: match[1] + _rubric_table(topic) + match[2], handout)


def _rubric_table(topic: Topic) -> str:
    rows = ["| item | what it asks for | tier | points |", "| --- | --- | --- | ---: |"]
    headings = {part.items[0]: f"part {n}: {part.title}" for n, part in enumerate(topic.parts, 1)}
    for item in topic.rubric.values():
        if item.id in headings:
            rows.append(f"| | **{headings[item.id]}** | | |")
        title = item.title.replace("|", "\\|")
        if item.follow_through:
            title += " ↪"
        tier = item.tier if item.device == "cpu" else f"{item.tier}, on a GPU"
        tier += f", where {item.package} is installed" if item.package else ""
        rows.append(f"| `{item.id}` | {title} | {tier} | {item.points:g} |")
    rows.append(f"| | **core, all together** | | **{topic.max_score:g}** |")
    shares = sorted({item.follow_through for item in topic.rubric.values() if item.follow_through})
    if shares:
        earned = " or ".join(f"{share:.0%}" for share in shares)
        rows += ["", f"↪ right given your own earlier mistake: {earned} of the points."]
    return "".join(f"{row}\n" for row in rows)


# ---- a course -----------------------------------------------------------------------------------


def starter_files(course: Course, topics: Collection[str] = ()) -> Mapping[Path, str]:
    """Every file that students of these topics (of none: of all) start from: (topic / file name) to
    its text."""
    from softmark.builders.notebook import student_notebook  # which is made of stubs

    files: dict[Path, str] = {}
    for entry in course.topics:
        if topics and entry.id not in topics:
            continue
        topic = course.topic(entry.id)
        solution = course.solution(topic.id)
        for name in topic.files:
            shown = f"solutions/{topic.id}/{name}"
            files[Path(topic.id, name)] = stub(_read(solution / name, shown), shown)
        found = sorted(path.name for pattern in PUBLIC_TOO for path in topic.folder.glob(pattern))
        for name in (*PUBLIC, *found):
            shown = f"assignments/{topic.id}/{name}"
            files[Path(topic.id, name)] = _read(topic.folder / name, shown)
        files |= {Path(topic.id, name): text for name, text in topic.given.items()}
        if topic.questions:
            files[Path(topic.id, ANSWERS_FILE)] = blank_answers(topic.questions)
        handout = Path(topic.id, "handout.md")
        files[handout] = with_rubric(files[handout], topic)
        files[Path(topic.id, f"{topic.module}.ipynb")] = student_notebook(course, topic)
    return files


def build_starter(course: Course, out: Path) -> list[Path]:
    """Write what students start from into ``out``/<topic>/, and return the files written.

    Anything else in those folders is removed. The rubric table in each topic's own handout is
    brought up to date too. Raises BuildError, then without having written anything.
    """
    files = starter_files(course)
    topics = {path.parts[0] for path in files}
    for topic_id in topics:
        own = (_home(course, topic_id).resolve(), course.solution(topic_id).resolve())
        if (out / topic_id).resolve() in own:
            raise BuildError(f"{out}: this would overwrite the course's own files; choose another")
    for path, text in files.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        _write(out / path, text)
        if path.name == "handout.md":
            _write(_home(course, path.parts[0]) / path.name, text)
    for found in sorted(_below(out, topics), reverse=True):  # what a folder holds before the folder
        if found.is_dir() and not found.is_symlink():
            if not any(found.iterdir()):
                found.rmdir()
        elif found.relative_to(out) not in files:
            found.unlink()
    return [out / path for path in files]


def starter_in_step(course: Course, starter: Path) -> list[str]:
    """What a new build of ``starter`` would change, one message a file; [] if nothing."""
    files = starter_files(course)
    stale: list[str] = []
    for path, text in files.items():
        if path.name == "handout.md" and _text(_home(course, path.parts[0]) / path.name) != text:
            stale.append(f"assignments/{path.as_posix()}: the rubric table is out of date")
        found = _text(starter / path)
        if found != text:
            what = "missing" if found is None else "differs from what the course makes of it"
            stale.append(f"{starter.name}/{path.as_posix()}: {what}")
    for extra in sorted(_below(starter, {path.parts[0] for path in files})):
        path = extra.relative_to(starter)
        if not extra.is_dir() and path not in files and not _CACHES & set(path.parts):
            stale.append(f"{starter.name}/{path.as_posix()}: not a file of the starter")
    return [f"{message}; run 'softmark build starter'" for message in stale]


def _home(course: Course, topic_id: str) -> Path:
    return course.folder / "assignments" / topic_id


def _below(out: Path, topics: Iterable[str]) -> Iterator[Path]:
    """Everything in the topics' folders of ``out``."""
    for topic_id in topics:
        yield from (out / topic_id).rglob("*")


def _read(path: Path, shown: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BuildError(f"{shown}: no such file; students' files are made from it") from None
    except UnicodeDecodeError as error:
        raise BuildError(f"{shown}: not UTF-8 at byte {error.start}; save it as UTF-8") from None


def _text(path: Path) -> str | None:
    """A file's text; None if it is missing or not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def _write(path: Path, text: str) -> None:
    if _text(path) != text:
        path.write_text(text, encoding="utf-8", newline="\n")
