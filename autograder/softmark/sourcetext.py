"""Bytes that were handed in as source text: Python files, and notebooks made into Python files."""

from __future__ import annotations

import codecs
import io
import json
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from softmark.unpack import MB, Entry, RefusedError, listed, shown

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


def notebook_files(
    entry: Entry, expected: str, others: Sequence[str], notes: list[str]
) -> dict[str, str]:
    """The Python files in a notebook of format 3 or 4: ``expected``, and ``others`` a cell writes.

    Code cells in order, each under ``# cell N``, make ``expected``, unless a ``%%writefile`` cell
    holds it. Where nbgrader has marked solutions, its test cells are left out. Lines that only
    IPython understands become comments, so that lines keep their places. Raises RefusedError.
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
    _check_size(name, sum(len(source or "") for source in cells), MAX_SOURCE)
    joined: list[str] = []
    written: dict[str, list[str]] = {}
    left_out: list[str] = []
    for number, source in enumerate(cells, 1):
        if source is None:
            continue
        lines = source.split("\n")
        start = next((i for i, line in enumerate(lines) if line.strip()), 0)
        words = lines[start].split()
        if words and words[0].startswith("%%"):
            target = PurePosixPath(words[-1].strip("\"'")).name
            if words[0] in ("%%writefile", "%%file") and target in (expected, *others):
                before = written.get(target, []) if "-a" in words else []
                before.append("\n".join(lines[start + 1 :]) + "\n")
                written[target] = before
            else:
                left_out.append(f"{number} ({shown(words[0])})")
            lines = [f"# {line}" for line in lines]
        joined += [f"# cell {number}", *_without_magics(lines)]
    if left_out:
        notes.append(f"left out cells of {name} that are not plain Python: {listed(left_out)}")
    if expected not in written:
        code = any(source and source.strip() for source in cells)
        written[expected] = ["\n".join(joined) + "\n" if code else ""]
    return {file: _checked(f"{name} ({file})", "".join(text)) for file, text in written.items()}


def _code_cells(notebook: Any) -> list[str | None]:
    """The source of each code cell, None for a test cell of nbgrader's."""
    sheets = notebook.get("worksheets", [notebook])
    cells = [c for sheet in sheets for c in sheet["cells"] if c["cell_type"] == "code"]
    marks = [c.get("metadata", {}).get("nbgrader", {}) for c in cells]
    has_solutions = any(mark.get("solution") for mark in marks)
    sources: list[str | None] = []
    for cell, mark in zip(cells, marks, strict=True):
        source = cell["source"] if "source" in cell else cell["input"]
        text = source if isinstance(source, str) else "".join(source)
        is_test = has_solutions and mark.get("grade") and not mark.get("solution")
        sources.append(None if is_test else text.replace("\r\n", "\n").replace("\r", "\n"))
    return sources


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
