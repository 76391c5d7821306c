"""What names tell: of files, which of a topic's they are meant as; of uploads, whose they are.

Canvas and Moodle put each file of a student on a line of its own when a whole class is downloaded:
``name_123_4567_lstm.py``, ``Full Name_123_assignsubmission_file_lstm.py``. Uploads of one student belong
together.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from softmark.spelling import alike
from softmark.unpack import ARCHIVES, is_archive, suffix

if TYPE_CHECKING:
    from softmark.course import Topic

ANSWERS = (".yaml", ".yml", ".txt")  # the last is what some editors add to it

_CANVAS = re.compile(r"(?P<who>[^_]+)_(?:LATE_)?(?P<number>\d+)_(?P<upload>\d+)_(?P<file>.+)")
_MOODLE = re.compile(r"(?P<who>.+)_(?P<number>\d+)_assignsubmission_file(?:_(?P<file>.*))?")
_WRAPPERS = 3  # folders that hold all the rest
_SUFFIX = re.compile(r"\.(py|ipynb)(\.txt)?$|\.(zip|tar|tar\.gz|tgz)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Upload:
    """A name as an LMS gives it: the student and their number, and the file's own name.

    Of uploads in Canvas, ``number`` grows with time.
    """

    student: str
    number: int
    file: str


def parse(name: str) -> Upload | None:
    """What a file's name tells if an LMS gave it; a folder of Moodle's has no file's own name."""
    if match := _MOODLE.fullmatch(name):
        return Upload(f"{match['who']}_{match['number']}", 0, match["file"] or "")
    if match := _CANVAS.fullmatch(name):
        return Upload(f"{match['who']}_{match['number']}", int(match["upload"][:18]), match["file"])
    return None


def identify(name: str, folder: bool) -> str:
    """The id of what has this name, made safe as a file name anywhere."""
    upload = parse(name)
    if upload and (_MOODLE.fullmatch(name) or not folder):
        name = upload.student
    elif not folder:
        name = _SUFFIX.sub("", name)
    safe = ""
    for char in unicodedata.normalize("NFC", name):
        plain = unicodedata.normalize("NFKD", char)[0]  # without its accents
        if plain.isascii() and (plain.isalnum() or plain in "._-"):
            safe += plain
        else:
            safe += f"u{ord(char):x}" if char.isalnum() else "_"
    return safe.lstrip(".-")[:80] or "submission"


def meant(name: str, topic: Topic) -> str | None:
    """The expected file, that with the longest name, that a file of this name was likely meant as.

    Its stem is a word of this one's, as in ``lstm (1).py``, or this one's is misspelt: ``lsmt.py``.
    """
    if is_test(name):
        return None
    text = suffix(name) in ANSWERS
    stem = PurePosixPath(name).stem.casefold()
    written = name.partition(".")[0]
    for expected in sorted(topic.handed_in, key=len, reverse=True):
        own = PurePosixPath(expected).stem
        word = re.escape(own.casefold())
        if text == expected.endswith(".yaml") and (
            re.search(rf"(?<![^\W\d_]){word}(?![^\W\d_])", stem) or alike(written, own)
        ):
            return expected
    return None


def is_test(name: str) -> bool:
    """Whether a Python file of this name is there to test another or to set up the tests."""
    stem = PurePosixPath(name).stem.casefold()
    return stem.startswith("test_") or stem.endswith("_test") or stem in ("conftest", "__init__")


def latest(group: Sequence[Path], topic: Topic) -> list[Path]:
    """What counts of one student's uploads: the latest of each file, the one to go by first.

    That one is the latest archive or file that can be the topic's first. Beside an archive other
    files count, but not older ones in place of the first; beside a file no archive does.
    """
    first = topic.files[0]

    def file(path: Path) -> str:
        upload = parse(path.name)
        return upload.file if upload else path.name

    def key(path: Path) -> str:
        name = file(path)
        if is_archive(name):
            return "archive"
        stem = meant(name, topic) or re.sub(r"-\d+$", "", PurePosixPath(name).stem)
        return f"{stem}{suffix(name)}".casefold()

    def number(path: Path) -> tuple[int, int]:
        upload = parse(path.name)
        attempt = re.search(r"-(\d{1,9})$", PurePosixPath(file(path)).stem)
        return upload.number if upload else 0, int(attempt[1]) if attempt else 0

    def rank(path: Path) -> tuple[int, tuple[int, int], bool]:
        name = file(path)
        kind = (".ipynb", ".py").index(suffix(name)) if suffix(name) in (".ipynb", ".py") else -1
        if is_archive(name):
            return 4, number(path), False
        return (kind + 3 if meant(name, topic) == first else kind), number(path), True

    newest: dict[str, tuple[int, int]] = {}
    for path in group:
        newest[key(path)] = max(number(path), newest.get(key(path), (0, 0)))
    kept = sorted((p for p in group if number(p) == newest[key(p)]), key=rank, reverse=True)
    packed = is_archive(file(kept[0]))
    spare = [
        p for p in kept[1:] if (meant(file(p), topic) == first if packed else is_archive(file(p)))
    ]
    return [path for path in kept if path not in spare]


def names_a_class(paths: Iterable[PurePosixPath], topic: Topic) -> bool:
    """Whether files of these paths are several students': by the names that an LMS gives, or since
    several folders or archives hold the topic's first file and none lies above them."""
    paths = list(paths)
    for _ in range(_WRAPPERS):
        if len({path.parts[0] for path in paths}) == 1 and all(len(p.parts) > 1 for p in paths):
            paths = [PurePosixPath(*path.parts[1:]) for path in paths]
    code = [p for p in paths if suffix(p.name) in (".py", ".ipynb")]
    firsts = [p for p in code if meant(p.name, topic) == topic.files[0]]
    if any(len(path.parts) == 1 and parse(path.name) is None for path in firsts):
        return False
    packed = [p for p in paths if p.name.lower().endswith(ARCHIVES)]
    uploads = [parse(p.name) for p in (*code, *packed) if len(p.parts) == 1]
    uploads += [parse(p.parts[0]) for p in paths if _MOODLE.fullmatch(p.parts[0])]
    if len({upload.student for upload in uploads if upload}) > 1:
        return True
    for kind in (".py", ".ipynb"):
        if len({p.parts[0] for p in firsts if suffix(p.name) == kind}) > 1:
            return all(len(path.parts) > 1 for path in firsts)
    return not code and len(packed) > 1
