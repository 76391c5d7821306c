"""Bytes that were handed in as source text: Python files, and notebooks made into Python files."""

from __future__ import annotations

import codecs
import io
import json
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from softmark.unpack import MB, Entry, RefusedError, listed, shown
from softmark.used import used_lines

MAX_SOURCE = 1 * MB
MAX_NOTEBOOK = 8 * MB  # it carries its plots; the code in it is held to MAX_SOURCE
MAX_CELLS = 5_000

# Some of Python's codecs are no text, and some take quadratic time.
_CODECS = re.compile(
    r"utf-8(-sig)?|ascii|iso8859-\d+|cp\d+|gb\w+|big5\w*|euc_\w+|shift_\w+|koi8-\w|mac-\w+"
)
_COOKIE = re.compile(r"\A([ \t\f]*#.*?coding[:=][ \t]*)[-\w.]+")
_NO_TEXT = re.compile(r"[\0\ud800-\udfff]")
# A string that is not closed runs to the end of its line, which keeps the search linear.
_TOKEN = re.compile(
    r'"""|\'\'\'|"(?:\\.|[^"\\])*"?|\'(?:\\.|[^\'\\])*\'?|#.*|[()\[\]{}]',
)
_CLOSE = {quote: re.compile(rf"(?:\\.|[^\\])*?{quote}") for quote in ('"""', "'''")}
_MAGIC = re.compile(r"\s*+(?:[%!?]|[\w., ]++=\s*+[%!])")


def python_text(name: str, data: bytes) -> str:
    """A Python file as Python decodes it: coding cookie honoured, no BOM, lines end in ``\\n``.

    A cookie that declares another coding is changed to utf-8, so that the text means the same once
    it is written as UTF-8. Raises RefusedError, which names the byte or line at fault.
    """
    _check_size(name, len(data), MAX_SOURCE)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise RefusedError(f"{name} is saved as UTF-16; save it as UTF-8.")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError:  # a coding that nobody knows, or bytes that are not UTF-8
        encoding = ""
    codec = codecs.lookup(encoding or "utf-8").name
    known = _CODECS.fullmatch(codec) is not None
    try:
        text = data.decode(codec) if known else ""
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RefusedError(
            f"{name} is not {codec.upper()} at byte {error.start} (line {line}); save it as UTF-8."
        ) from None
    if not (encoding and known):
        raise RefusedError(f"{name} declares a coding that cannot be used; save it as UTF-8.")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not codec.startswith("utf-8"):
        head = text.split("\n", 2)
        head[:2] = [_COOKIE.sub(r"\1utf-8", line, count=1) for line in head[:2]]
        text = "\n".join(head)
    return _checked(name, text)


def plain_text(name: str, data: bytes) -> str:
    """Text that is no program, from any common editor: what cannot be decoded is replaced."""
    _check_size(name, len(data), MAX_SOURCE)
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = data.decode("utf-16" if utf16 else "utf-8-sig", "replace")
    return _checked(name, text.replace("\r\n", "\n").replace("\r", "\n"))


def left_to_write(text: str) -> int:
    """How many parts of a stub still stand in it, to compare two versions of one file."""
    return text.count("raise NotImplementedError(")


def _checked(name: str, text: str) -> str:
    """``text``, which can be a source file and says something."""
    _check_size(name, len(text.encode(errors="surrogatepass")), MAX_SOURCE)
    if not text.strip():
        raise RefusedError(f"{name} is empty; hand in the file with your code.", "missing")
    if wrong := _NO_TEXT.search(text):
        line = text.count("\n", 0, wrong.start()) + 1
        what = "a NUL byte" if wrong[0] == "\0" else "half of a surrogate pair"
        raise RefusedError(f"{name} has {what} on line {line}, which is no text; remove it.")
    return text


def _check_size(name: str, size: int, most: int) -> None:
    if size > most:
        raise RefusedError(f"{name} is larger than {most // MB} MB; hand in your code alone.")


@dataclass(frozen=True, slots=True)
class _CodeCell:
    """A code cell. ``file`` is the one it belongs to where the course's builder has marked it, and
    ``given`` says that it came with the notebook, by these marks or by nbgrader's."""

    number: int
    source: str
    file: str
    given: bool
    solution: bool


def notebook_files(
    entry: Entry, expected: str, others: Sequence[str], notes: list[str]
) -> dict[str, str]:
    """The files in a notebook of format 3 or 4: ``expected``, and ``others`` that have a cell.

    Code cells in order, each under ``# cell N``, make ``expected``, unless a ``%%writefile`` cell
    holds it; a cell makes one of the ``others`` by ``%%writefile`` or by the mark that came with it.
    Where solutions are marked, nbgrader's test cells are left out, and of a student's own cells what
    no other needs. Lines that only IPython understands, and those left out, become comments, so that
    lines keep their places. Raises RefusedError.
    """
    name = entry.shown
    data = entry.read(MAX_NOTEBOOK)
    if len(data) > MAX_NOTEBOOK:
        most = MAX_NOTEBOOK // MB
        raise RefusedError(f"{name} is larger than {most} MB; clear its outputs and save it anew.")
    try:
        cells = _code_cells(json.loads(data.decode("utf-8-sig")))
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        reason = shown(f"{type(error).__name__}: {error}") if data.strip() else "it is empty"
        raise RefusedError(
            f"{name} is not a notebook ({reason}); save it in Jupyter anew."
        ) from None
    if len(cells) > MAX_CELLS:
        raise RefusedError(f"{name} has more than {MAX_CELLS:,} cells; hand in your code alone.")
    _check_size(name, sum(len(cell.source) for cell in cells), MAX_SOURCE)
    joined: list[tuple[_CodeCell, list[str]]] = []
    written: dict[str, list[str]] = {}
    left_out: list[str] = []
    for cell in cells:
        lines = cell.source.split("\n")
        start = next((i for i, line in enumerate(lines) if line.strip()), 0)
        words = lines[start].split()
        if words and words[0].startswith("%%"):
            target = PurePosixPath(words[-1].strip("\"'")).name
            if words[0] in ("%%writefile", "%%file") and target in (expected, *others):
                before = written.get(target, []) if "-a" in words else []
                before.append("\n".join(lines[start + 1 :]) + "\n")
                written[target] = before
            else:
                left_out.append(f"{cell.number} ({shown(words[0])})")
            lines = [f"# {line}" for line in lines]
        elif cell.file in others:  # without its first line it can be run, so that one is taken out
            written.setdefault(cell.file, []).append("\n".join(_without_magics(lines)) + "\n")
            lines = [f"# {line}" for line in lines]
        joined.append((cell, list(_without_magics(lines))))
    if left_out:
        notes.append(f"left out cells of {name} that are not plain Python: {listed(left_out)}")
    if expected not in written:
        if any(cell.solution for cell in cells):
            _leave_out_trials(name, joined, notes)
        code = any(cell.source.strip() for cell in cells)
        lines = [line for cell, lines in joined for line in (f"# cell {cell.number}", *lines)]
        written[expected] = ["\n".join(lines) + "\n" if code else ""]
    files = {expected: _checked(f"{name} ({expected})", "".join(written.pop(expected)))}
    for file, text in written.items():
        try:
            files[file] = _checked(f"{name} ({file})", "".join(text))
        except RefusedError as refused:
            notes.append(f"left out {file}: {refused}")
    return files


def _code_cells(notebook: Any) -> list[_CodeCell]:
    """The code cells, without nbgrader's test cells where solutions are marked."""
    sheets = notebook.get("worksheets", [notebook])
    found = [c for sheet in sheets for c in sheet["cells"] if c["cell_type"] == "code"]
    cells: list[_CodeCell] = []
    tests: set[int] = set()
    for number, cell in enumerate(found, 1):
        source = cell["source"] if "source" in cell else cell["input"]
        text = source if isinstance(source, str) else "".join(source)
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        metadata = cell.get("metadata", {})
        mark, ours = metadata.get("nbgrader", {}), metadata.get("softmark", {})
        file = str(ours.get("file", ""))
        solution = bool(mark.get("solution") or file)
        given = solution or bool(mark.get("locked") or mark.get("grade") or ours)
        if mark.get("grade") and not mark.get("solution"):
            tests.add(number)
        cells.append(_CodeCell(number, text, file, given, solution))
    if any(cell.solution for cell in cells):
        return [cell for cell in cells if cell.number not in tests]
    return cells


def _leave_out_trials(
    name: str, joined: Sequence[tuple[_CodeCell, list[str]]], notes: list[str]
) -> None:
    """Make comments of what a student has tried in cells of their own and no other cell needs."""
    program = "\n".join(line for cell, lines in joined if cell.given for line in lines)
    own = [(cell, lines) for cell, lines in joined if not cell.given]
    used = used_lines(program, [lines for _, lines in own])
    left_out: list[str] = []
    for (cell, lines), kept in zip(own, used, strict=True):
        for number, line in enumerate(lines):
            if number not in kept and line.strip() and not line.startswith("#"):
                lines[number] = f"# {line}"
                if str(cell.number) not in left_out:
                    left_out.append(str(cell.number))
    if left_out:
        what = "of your own that no other cell needs"
        notes.append(f"left out of {name} what is in cells {what}: {listed(left_out)}")


def _without_magics(lines: Sequence[str]) -> Iterator[str]:
    """Lines of a cell, IPython's own made comments; one inside a string or bracket is Python's."""
    quote, depth, carried = "", 0, False
    for line in lines:
        fresh = not (quote or depth or carried)
        if fresh and _MAGIC.match(line):
            yield _comment(line)
            continue
        code, at = "", 0
        while at < len(line):
            if quote:
                close = _CLOSE[quote].match(line, at)
                at, quote = (close.end(), "") if close else (len(line), quote)
                continue
            token = _TOKEN.search(line, at)
            code += line[at : token.start() if token else len(line)]
            at = token.end() if token else len(line)
            if token and token[0] in _CLOSE:
                quote = token[0]
            elif token and token[0] in "([{":
                depth += 1
            elif token and token[0] in ")]}":
                depth = max(depth - 1, 0)
        carried = not quote and code.endswith("\\")
        asks = fresh and not (quote or depth) and code.rstrip().endswith("?")
        yield _comment(line) if asks else line


def _comment(line: str) -> str:
    body = line.lstrip()
    indent = line[: len(line) - len(body)]
    return f"{indent}pass  # {body}" if indent else f"# {body}"  # a block may not end up empty
