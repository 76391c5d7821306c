"""A file, an archive or a folder turned into the few source files that a topic expects.

Nothing is run and nothing is written. A bad submission never raises: it ends ``missing`` or
``unreadable`` with a sentence for its author, and the next one is read.

Which file is taken for an expected ``lstm.py``: the first rule that finds one.

1. That name, in any case; the least deep one. Two equally deep are refused.
2. The only ``.py`` with ``lstm`` as a word of its name, or misspelt: ``lstm (1).py``, ``lsmt.py``.
   Two such are refused; tests do not count.
3. For the first expected file, a ``.py`` that was handed in alone, whatever its name, unless it is
   one that students got with the topic.
4. A notebook, by rules 1 and 2; for the first expected file else the only notebook there is.
5. For the first expected file, the only ``.py`` that is neither a test nor meant as another, nor one
   that students got.

What students start from has a notebook beside the file: of the two that counts in which less is still
to be written, and of equal ones the file.

Of a topic with questions, ``answers.yaml`` is found in the same way, and ``lstm.py.txt`` counts as
a ``.py``. Where an LMS files each file of a student's by itself, those of one student count as a
folder.

A folder in which the first expected file is not found but that holds one archive stands for that
archive, whose files count before those beside it. The first expected file decides: without it a
submission is ``missing`` or ``unreadable``. Others that are missing or cannot be read are left out,
with a note.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from softmark.questions import ANSWERS_FILE, parse_answers
from softmark.sourcetext import (
    MAX_SOURCE,
    left_to_write,
    notebook_files,
    plain_text,
    python_text,
)
from softmark.unpack import (
    ARCHIVES,
    MAX_ARCHIVE,
    Entry,
    Ignored,
    RefusedError,
    archive_entries,
    folder_entries,
    is_archive,
    is_litter,
    link_target,
    listed,
    read_file,
    shown,
    suffix,
)
from softmark.uploads import (
    ANSWERS,
    identify,
    is_test,
    latest,
    meant,
    names_a_class,
    parse,
)

if TYPE_CHECKING:
    from softmark.course import Topic

Status = Literal["ready", "missing", "unreadable"]

_MOODLE_TEXT = "_assignsubmission_onlinetext"  # what was typed into a form: no file in it


class IntakeError(Exception):
    """A path that holds nothing to grade, or ids that collide. One line; names what is at fault."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What one person handed in, as source text.

    ``files`` maps names that the topic expects to text, and is empty unless ``ready``. ``message``
    says what is wrong and what to do about it, ``notes`` what was done; both are fit to show.
    ``digest`` is the SHA-256 of names and texts.
    """

    id: str
    files: Mapping[str, str]
    status: Status
    message: str
    notes: tuple[str, ...]
    digest: str


def read_submission(path: Path, topic: Topic, id: str | None = None) -> Submission:
    """Read the topic's files out of ``path``: a .py, .ipynb, .zip, .tar, .tar.gz, .tgz or a folder.

    The id is made from the name of ``path`` unless given. If ``path`` is itself a link, it is
    followed only to a place beside it. Raises nothing for a bad submission.
    """
    path = _absolute(path)
    notes: list[str] = []
    ignored: Ignored = {}
    files: dict[str, str] = {}
    status: Status = "ready"
    message = ""
    try:
        files = _gather(path, topic, notes, ignored)
    except RefusedError as refused:
        status, message = refused.status, str(refused)
    except OSError as error:
        status, reason = "unreadable", (error.strerror or type(error).__name__).lower()
        message = f"{shown(path.name)} cannot be read: {reason}. Copy it anew, or allow reading it."
    notes += [f"ignored {why}: {listed(names)}" for why, names in ignored.items()]
    digest = hashlib.sha256()
    for name, text in sorted(files.items()):
        digest.update(json.dumps([name, text]).encode())
    return Submission(
        id if id is not None else _identify(path),
        files,
        status,
        message,
        tuple(notes),
        digest.hexdigest(),
    )


def find_submissions(path: Path, topic: Topic) -> list[tuple[str, Path]]:
    """The submissions in ``path`` as (id, path), sorted by id.

    A file, or a folder that holds one of the topic's files, is one submission. Otherwise each entry
    of the folder is one, but for hidden ones, litter and files that can be none. An id is the
    entry's name, without the suffix of a file, made of ``[A-Za-z0-9._-]``. Of names that Canvas and
    Moodle give on bulk download it is the student's part and number; of one student's files the
    most telling is returned, and ``read_submission`` takes the others along.

    Raises IntakeError if ``path`` does not exist, holds nothing to grade or is the archive of a
    whole class, or if ids collide, where upper and lower case count as the same: ids become file
    names.
    """
    given, path = path, _absolute(path)
    groups: dict[str, list[Path]] = {}
    try:
        real = path.resolve(strict=True)
        if not real.is_dir():
            if not (real.is_file() and _is_candidate(path.name)):
                kinds = ", ".join((".py", ".ipynb", *ARCHIVES))
                raise IntakeError(f"{given}: not a submission; give a folder or one of {kinds}")
            _refuse_a_class(real, topic)
            return [(_identify(path), real)]
        entries = sorted(entry for entry in real.iterdir() if not is_litter(entry.name))
        expected = {name.casefold() for name in topic.files}
        if any(e.name.casefold() in expected and not _is_folder(e) for e in entries):
            return [(_identify(path), real)]
        for entry in entries:
            if _is_output(entry):
                continue
            if _MOODLE_TEXT not in entry.name and (_is_candidate(entry.name) or _is_folder(entry)):
                groups.setdefault(_identify(entry).casefold(), []).append(entry)
    except (OSError, RuntimeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise IntakeError(f"{given}: cannot be read: {reason}") from None
    if not groups:
        raise IntakeError(f"{given}: nothing to grade in it: no folder, .py, .ipynb or archive")
    for group in groups.values():
        if len(group) > 1 and any(_is_folder(e) or not parse(e.name) for e in group):
            raise IntakeError(
                f"{group[0].name} and {group[1].name} both have the id '{_identify(group[0])}'; "
                "rename one, or put all files of one person in a folder of their own"
            )
    chosen = [latest(group, topic)[0] for group in groups.values()]
    if len(chosen) == 1:
        _refuse_a_class(chosen[0], topic)
    return sorted((_identify(entry), entry) for entry in chosen)


def _refuse_a_class(path: Path, topic: Topic) -> None:
    """Raise IntakeError if an archive holds the work of several students."""
    if not (is_archive(path.name) and path.is_file()):
        return
    if path.stat().st_size > MAX_ARCHIVE:
        said = "is larger than 64 MB, too large for one submission; if it holds a whole class,"
        raise IntakeError(f"{path}: {said} unpack it and give the folder")
    try:
        entries = archive_entries(path.name, read_file(path, MAX_ARCHIVE), {})
    except RefusedError:
        return  # one submission, which is told so
    if names_a_class([entry.path for entry in entries], topic):
        said = "holds several submissions, as if of a whole class; unpack it and give the folder"
        raise IntakeError(f"{path}: {said}")


def _is_output(folder: Path) -> bool:
    """Whether an earlier batch wrote this folder."""
    try:
        return (folder / "run.json").is_file() and (folder / "results").is_dir()
    except OSError:
        return False


def _identify(path: Path) -> str:
    """The id of what lies at ``path``."""
    return identify(path.name, _is_folder(path))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a link to where one may not look
        return False


def _is_candidate(name: str) -> bool:
    return suffix(name) in (".py", ".ipynb") or is_archive(name)


def _absolute(path: Path) -> Path:
    """The path from the root; without ``..``, since its last part gives an id."""
    path = path.absolute()
    return path.resolve() if ".." in path.parts else path


def _gather(path: Path, topic: Topic, notes: list[str], ignored: Ignored) -> dict[str, str]:
    """The expected files as text; raises RefusedError or OSError."""
    name, first = shown(path.name), topic.files[0]
    try:
        link = stat.S_ISLNK(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise RefusedError(f"Expected {first}, but there is no {name}.", "missing") from None
    if link:
        target = link_target(path, path.parent)
        if target is None:
            raise RefusedError(f"{name} is a link that leads elsewhere; hand in the file itself.")
        path = target
    mode = path.stat().st_mode
    uploads = [] if link else _uploads(path, topic, ignored)
    alone = False
    if stat.S_ISDIR(mode):
        entries = folder_entries(path, ignored)
    elif not stat.S_ISREG(mode):
        raise RefusedError(f"{name} is not a plain file; hand in {first} itself.")
    elif len(uploads) > 1:
        entries = uploads
    else:
        alone = True
        entries = [Entry(PurePosixPath(path.name), partial(read_file, path))]
    packed = [entry for entry in entries if is_archive(entry.path.name)]
    files: dict[str, str] = {}
    used: set[PurePosixPath] = set()
    if not (alone and packed):
        files, used = _take("", entries, topic, alone, notes)
    others = [entry for entry in entries if entry.path not in used and not alone]
    if first not in files and len(packed) == 1:  # how some platforms file an upload
        upload = packed[0]
        entries = archive_entries(upload.shown, upload.read(MAX_ARCHIVE), ignored)
        inner, used = _take(f"{upload.shown}/", entries, topic, False, notes)
        files |= inner
        alone = False
        others = [other for other in others if other.path != upload.path]
        others += [entry for entry in entries if entry.path not in used]

    for other in others:
        if why := _why_ignored(other, topic):
            ignored.setdefault(why, []).append(str(other.path))
    if first not in files:
        names = [str(other.path) for other in others]
        held = f"holds only {listed(names)}" if others else "holds no file"
        if not others:
            held += "".join(f"; ignored {why}: {listed(names)}" for why, names in ignored.items())
        held = "is no such file" if alone else held
        raise RefusedError(
            f"Expected {first}, but {name} {held}. Hand in {first} under that name.", "missing"
        )
    if absent := [expected for expected in topic.handed_in if expected not in files]:
        notes.append(f"missing: {', '.join(absent)}")
    return files


def _why_ignored(entry: Entry, topic: Topic) -> str:
    """What kind of file a note tells of; nothing for what students got with the topic."""
    name = entry.path.name
    if name in topic.given:
        try:
            same = python_text(entry.shown, entry.read(MAX_SOURCE)) == topic.given[name]
        except RefusedError:
            same = False
        return "" if same else "changes to files that the course gives"
    if topic.hands_out(name):
        return ""
    nested = is_archive(name)
    return "archives inside, which are not opened" if nested else "other files"


def _uploads(path: Path, topic: Topic, ignored: Ignored) -> list[Entry]:
    """What the student whose upload lies at ``path`` has uploaded beside it, by the files' own names;
    nothing if ``path`` is no upload, or is not among the latest."""
    upload = parse(path.name)
    if upload is None or not upload.file or _is_folder(path):
        return []
    number = upload.student.rpartition("_")[2]
    id = _identify(path).casefold()
    try:
        group = [
            entry
            for entry in path.parent.iterdir()
            if number in entry.name  # of thousands, those few
            and parse(entry.name)
            and not (entry.is_symlink() or _MOODLE_TEXT in entry.name)
            and entry.is_file()
            and _identify(entry).casefold() == id
        ]
    except OSError:  # a folder that may not be listed
        return []
    kept = latest(sorted(group), topic) if group else []
    if path not in kept:
        return []
    if earlier := [entry.name for entry in sorted(group) if entry not in kept]:
        ignored["earlier uploads"] = earlier
    files = [(parse(entry.name), entry) for entry in kept]
    return [Entry(PurePosixPath(u.file), partial(read_file, e)) for u, e in files if u and u.file]


def _take(
    place: str, entries: Sequence[Entry], topic: Topic, alone: bool, notes: list[str]
) -> tuple[dict[str, str], set[PurePosixPath]]:
    """The expected files found among ``entries``, and the paths of those used."""
    own: dict[str, str] = {}
    cells: dict[str, str] = {}
    used: set[PurePosixPath] = set()
    for expected in topic.handed_in:
        is_first = expected == topic.files[0]
        try:
            entry = _choose(expected, is_first, entries, topic, alone)
            if entry is None:
                continue
            used.add(entry.path)
            if entry.suffix == ".ipynb":
                others = topic.handed_in[1:] if is_first else ()
                cells |= notebook_files(entry, expected, others, notes)
            elif expected == ANSWERS_FILE:
                own[expected] = plain_text(entry.shown, entry.read(MAX_SOURCE))
            else:
                own[expected] = python_text(entry.shown, entry.read(MAX_SOURCE))
        except RefusedError as refused:
            if is_first:
                raise
            notes.append(f"left out {expected}: {refused}")
            continue
        source = place + entry.shown
        if entry.path.name != expected:
            notes.append(f"took {source} as {expected}")
        elif source != expected:
            notes.append(f"took {expected} from {source.removesuffix(expected)}")
    first = topic.files[0]
    if first in own and not alone and (book := _book_beside(entries, topic, own[first])):
        entry, cells, said = book
        used.add(entry.path)
        del own[first]
        notes += [*said, f"took {place}{entry.shown} as {first}: more of it is written there"]
    # a file of its own comes before a cell that writes it, but what students start from has both
    ahead = {name for name in cells if name in own and _open(name, cells) < _open(name, own)}
    return cells | {name: text for name, text in own.items() if name not in ahead}, used


def _book_beside(
    entries: Sequence[Entry], topic: Topic, written: str
) -> tuple[Entry, dict[str, str], list[str]] | None:
    """The notebook beside the first file, what is in it, and notes, where less of it is still to be
    written."""
    first, notes = topic.files[0], list[str]()
    try:
        entry = _pick(first.removesuffix(".py") + ".ipynb", first, entries, topic)
        if entry is None:
            return None
        files = notebook_files(entry, first, topic.handed_in[1:], notes)
    except RefusedError:
        return None
    ahead = _open(first, files) < _open(first, {first: written})
    return (entry, files, notes) if ahead else None


def _open(name: str, files: Mapping[str, str]) -> int:
    """How much of a file is still to be written, to compare it with another version of it."""
    if name == ANSWERS_FILE:
        return -len(parse_answers(files[name])[0])
    return left_to_write(files[name])


def _choose(
    expected: str, is_first: bool, entries: Sequence[Entry], topic: Topic, alone: bool
) -> Entry | None:
    """Which entry stands for ``expected``, by the rules at the top of this module."""
    notebook = expected.removesuffix(".py") + ".ipynb"
    if entry := _pick(expected, expected, entries, topic):
        return entry
    if is_first and alone and entries[0].suffix == ".py":
        name = entries[0].path.name
        return None if meant(name, topic) or topic.hands_out(name) else entries[0]
    if entry := _pick(notebook, expected, entries, topic):
        return entry
    if is_first:
        if entry := _only([e for e in entries if e.suffix == ".ipynb"], notebook):
            return entry
        code = [
            e
            for e in entries
            if e.suffix == ".py"
            and not (
                is_test(e.path.name) or meant(e.path.name, topic) or topic.hands_out(e.path.name)
            )
        ]
        packed = any(is_archive(e.path.name) for e in entries)  # it may be in there
        if len(code) == 1 and not packed:
            return code[0]
    return None


def _pick(wanted: str, expected: str, entries: Sequence[Entry], topic: Topic) -> Entry | None:
    same = [e for e in entries if e.path.name.casefold() == wanted.casefold()]
    if same:
        depth = min(len(e.path.parts) for e in same)
        least = [e for e in same if len(e.path.parts) == depth]
        return _only([e for e in least if e.path.name == wanted] or least, wanted)
    suffixes = ANSWERS if wanted == ANSWERS_FILE else (PurePosixPath(wanted).suffix,)
    kind = [e for e in entries if e.suffix in suffixes]
    return _only([e for e in kind if meant(e.path.name, topic) == expected], wanted)


def _only(entries: Sequence[Entry], wanted: str) -> Entry | None:
    if len(entries) > 1:
        names = " and ".join(entry.shown for entry in entries[:2])
        raise RefusedError(f"Both {names} could be {wanted}; hand in only one of them.")
    return entries[0] if entries else None
