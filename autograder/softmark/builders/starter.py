"""What students start from, made from the reference solutions and the public files of a course."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from softmark.builders.notebook import student_notebook
from softmark.builders.rubric import with_rubric
from softmark.builders.stub import BuildError, stub
from softmark.course import PUBLIC, PUBLIC_TOO, Course
from softmark.questions import ANSWERS_FILE, blank_answers

_CACHES = {"__pycache__", ".pytest_cache"}  # left by running the tests


def starter_files(course: Course, topics: Collection[str] = ()) -> Mapping[Path, str]:
    """Every file that students of these topics (of none: of all) start from: (topic / file name) to
    its text."""
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
