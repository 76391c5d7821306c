"""Whether what students get gives away what only solutions, mistakes, graders or answers say.

Texts are compared without white space and comment signs, so that a line is found however it was
indented, wrapped, quoted or commented out; in notebooks, in other encodings and inside archives too. A
line that students are given anyway, by a stub say, is none of the private ones.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import gzip
import html
import io
import json
import lzma
import re
import tarfile
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from softmark.bench import reference_files
from softmark.builders.stub import stub
from softmark.course import Course, Topic, TopicEntry
from softmark.mistakes import MISTAKES_FILE, load_mistakes
from softmark.questions import ANSWERS_FILE, Question, load_answers

_SHORTEST = 17  # shorter code, self.zero_grad() say, is in many files
_SHORTEST_ELSEWHERE = 40  # of graders and texts: shorter lines are calls that public tests make too
_TEXTS = (".yaml", ".yml", ".md", ".txt", ".ipynb", ".json")
_CACHES = {"__pycache__", ".pytest_cache"}
_DEEPEST = 6  # archives in archives
_SPACE = re.compile(r"[\s#]+")
_TRIVIAL = re.compile(r"(import|from)\b|\"\"\"")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{24,}(?:[ \t]*\\?n?[\r\n]+[A-Za-z0-9+/_-]+)*={0,2}")
_VALUE = r"""["'`* \t]*[:=]["'`* \t]*([^"'`,}*|<\\\n#]+)"""


@dataclass(frozen=True, slots=True)
class Answer:
    """The right answer to a question, and what finds one beside the question's name."""

    name: str
    found: re.Pattern[str]
    question: Question
    right: str
    place: str


@dataclass(frozen=True, slots=True)
class Leak:
    """A line of a file, perhaps in an archive, that says what a private file says."""

    place: str
    line: int
    private: str

    def __str__(self) -> str:
        return f"{self.place}:{self.line} holds a line of the private {self.private}"


@dataclass(frozen=True)
class Private:
    """What only the private half of a topic says: lines, squeezed, with the file of each; answers."""

    lines: Mapping[str, str]
    answers: Sequence[Answer]

    @cached_property
    def by_start(self) -> Mapping[str, Sequence[str]]:
        """The lines by how they begin."""
        found: dict[str, list[str]] = {}
        for line in self.lines:
            found.setdefault(line[:_SHORTEST], []).append(line)
        return found


def private_part(course: Course, topic: Topic, given: Iterable[str] = ()) -> Private:
    """What students may not get of a topic. ``given`` are texts that they may have beside its stub.

    Raises CourseError and BuildError where the private half is not whole.
    """
    folder, graders = course.solution(topic.id), course.graders(topic.id)
    reference = reference_files(course, topic)
    solution = f"solutions/{topic.id}"
    own = [stub(source, f"{solution}/{name}") for name, source in reference.items()]
    lines: dict[str, str] = {}
    for mistake in load_mistakes(course, topic, reference):
        place = f"{solution}/{MISTAKES_FILE} ({mistake.id})"
        lines |= dict.fromkeys(_code(mistake.files[mistake.file], _SHORTEST), place)
        hint = _squeezed(mistake.hint)
        if len(hint) >= _SHORTEST:
            lines[hint] = place
    for path, shown in (*_files(graders, f"graders/{topic.id}"), *_files(folder, solution)):
        text = path.read_text(encoding="utf-8", errors="replace")
        code = path.name in topic.files
        lines |= dict.fromkeys(_code(text, _SHORTEST if code else _SHORTEST_ELSEWHERE), shown)
    known = _squeezed("\n".join([*own, *given]))
    answers: list[Answer] = []
    if topic.questions:
        shown = f"{solution}/{ANSWERS_FILE}"
        right = load_answers(folder / ANSWERS_FILE, shown, topic.questions)
        answers = [
            Answer(name, re.compile(rf"(?<![\w.]){name}{_VALUE}"), question, right[name], shown)
            for name, question in topic.questions.items()
        ]
    everybody_has = "\n".join(given)
    answers = [one for one in answers if not list(_answers_in(everybody_has, [one]))]
    return Private({k: v for k, v in lines.items() if k not in known}, answers)


def opens_later(course: Course, topic: TopicEntry) -> list[TopicEntry]:
    """The topics that students get once this one can no longer be handed in."""
    return [
        other for other in course.topics if other.opens and topic.due and other.opens > topic.due
    ]


def stubs(course: Course, topics: Iterable[TopicEntry]) -> list[str]:
    """The text of all that students of these topics start from, which may give older ones away."""
    return [
        stub(source, f"solutions/{entry.id}/{name}")
        for entry in topics
        for name, source in reference_files(course, course.topic(entry.id)).items()
    ]


def _files(folder: Path, shown: str) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".py", *_TEXTS) and path.is_file() and not _CACHES & set(path.parts):
            yield path, f"{shown}/{path.relative_to(folder).as_posix()}"


def _code(text: str, shortest: int) -> Iterator[str]:
    """Lines that are long enough, squeezed; and two in a row that are long together."""
    lines = [
        _squeezed(line.split("#")[0])
        for line in text.splitlines()
        if not _TRIVIAL.match(line.strip())
    ]
    lines = [line for line in lines if line]
    yield from (line for line in lines if len(line) >= shortest)
    pairs = (first + second for first, second in pairwise(lines))
    yield from (pair for pair in pairs if len(pair) >= _SHORTEST_ELSEWHERE)


def _squeezed(text: str) -> str:
    return _SPACE.sub("", text)


# ---- finding it ----------------------------------------------------------------------------------


def leaks(folders: Iterable[Path], private: Private, root: Path) -> Iterator[str]:
    """Everything private in the files of these folders, a message each."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not _CACHES & set(path.parts):
                shown = path.relative_to(root) if path.is_relative_to(root) else path
                yield from map(str, leaks_in(shown.as_posix(), path.read_bytes(), private))


def leaks_in(shown: str, data: bytes, private: Private) -> list[Leak]:
    """Everything private in a file, which may be an archive, each once; ``shown`` is its place."""
    found: dict[Leak, None] = {}
    for place, text in _texts(shown, data, 0):
        here = sorted({*_lines_in(text, private), *_answers_in(text, private.answers)})
        found |= dict.fromkeys(Leak(place, number, file) for number, file in here)
    return list(found)


def _lines_in(text: str, private: Private) -> Iterator[tuple[int, str]]:
    """The line and the private file of every private line in a text."""
    rows = text.splitlines()
    pieces = [_squeezed(row) for row in rows]
    ends = list(accumulate(map(len, pieces)))
    whole = "".join(pieces)
    counting: dict[int, list[int]] = {}
    grams = {whole[at : at + _SHORTEST] for at in range(len(whole) - _SHORTEST + 1)}
    for start in grams & private.by_start.keys():
        for line in private.by_start[start]:
            at = whole.find(line)
            while at >= 0:
                row = bisect_right(ends, at)
                if row not in counting:
                    counting[row] = [i for i, one in enumerate(rows[row]) if _squeezed(one)]
                place = counting[row][at - ends[row] + len(pieces[row])]
                if not _is_inside_a_name(rows[row], place):
                    yield row + 1, private.lines[line]
                at = whole.find(line, at + 1)


def _is_inside_a_name(row: str, place: int) -> bool:
    """Whether a name began before this character, as in cell.params for params, and so what begins
    here is something else."""
    before = row[place - 1 : place]
    return before.isalnum() or before in ("_", ".")


def _answers_in(text: str, answers: Sequence[Answer]) -> Iterator[tuple[int, str]]:
    for answer in answers:
        for match in answer.found.finditer(text) if answer.name in text else ():
            value = match[1].strip()
            if not answer.question.unfit(value) and answer.question.right(value, answer.right):
                yield text.count("\n", 0, match.start()) + 1, answer.place


# ---- what a file says ------------------------------------------------------------------------------


def _texts(shown: str, data: bytes, depth: int) -> Iterator[tuple[str, str]]:
    """Every text in a file with the place it has: members of archives, decoded and unescaped."""
    members = _members(data) if depth < _DEEPEST else None
    if members is not None:
        for name, inner in members:
            yield from _texts(f"{shown}/{name}" if name else shown, inner, depth + 1)
        return
    for text in _decoded(data):
        yield from ((shown, reading) for reading in _readings(text))
    for run in _BASE64.findall(data):
        with_padding = re.sub(rb"[^A-Za-z0-9+/_-]|\\n", b"", run)
        try:
            inner = base64.b64decode(with_padding + b"=" * (-len(with_padding) % 4), b"-_")
        except binascii.Error:
            continue
        if depth < _DEEPEST:
            yield from _texts(shown, inner, depth + 1)


def _members(data: bytes) -> list[tuple[str, bytes]] | None:
    """The files in an archive, whatever its name; of one that is compressed alone, what it holds
    under no name. None if it is no archive."""
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [(name, archive.read(name)) for name in archive.namelist() if name[-1:] != "/"]
    for opening, unpack in _COMPRESSED.items():
        if data.startswith(opening):
            try:
                return [("", unpack(data))]
            except (OSError, EOFError, lzma.LZMAError, zlib.error):
                return None
    if data[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            files = [(member.name, tar.extractfile(member)) for member in tar if member.isfile()]
            return [(name, file.read()) for name, file in files if file]
    return None


_COMPRESSED = {b"\x1f\x8b": gzip.decompress, b"BZh": bz2.decompress, b"\xfd7zXZ\0": lzma.decompress}


def _decoded(data: bytes) -> Iterator[str]:
    """A file as text, in every encoding in which it may be one."""
    if b"\0" not in data:
        yield data.decode("utf-8-sig", "replace")
        return
    for codec in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        text = data.decode(codec, "ignore")
        if sum(map(str.isascii, text)) > len(text) / 2:
            yield text
    yield data.replace(b"\0", b"").decode("utf-8", "replace")


def _readings(text: str) -> Iterator[str]:
    """A text, and what it says once it is read as JSON, HTML or a string in source code."""
    yield text
    if "\\" in text:
        strings = _json_strings(text)
        yield "\n".join(strings) if strings else _unescaped(text)
        for string in strings:
            if "\\" in string:
                yield from _readings(string)
    if "&" in text:
        yield html.unescape(text)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(
        lambda m: chr(int(m[1][1:], 16)) if len(m[1]) > 1 else _ESCAPED.get(m[1], m[1]), text
    )


def _json_strings(text: str) -> list[str]:
    """The strings in a text that is JSON, lists of them joined as notebooks mean it."""
    if text.lstrip()[:1] not in ("{", "["):
        return []
    try:
        return list(_strings(json.loads(text)))
    except (ValueError, RecursionError):
        return []


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from ([f"{name}: {inner}"] if isinstance(inner, str) else _strings(inner))
    elif isinstance(value, list):
        if value and all(isinstance(entry, str) for entry in value):
            yield "".join(value)
        else:
            for entry in value:
                yield from _strings(entry)
