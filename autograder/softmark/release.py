"""``softmark release``: what students get at a date, as one .zip that can be installed from.

Only what is listed here goes in: the starter of the topics that are open, a wheel of the engine that
runs, and a few files by name. All of it is then searched for what is private, in the archive as it is
going to be, so that it makes no difference how something got there.
"""

from __future__ import annotations

import io
import string
import zipfile
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path, PurePosixPath

from softmark.builders.starter import starter_files
from softmark.builders.stub import BuildError
from softmark.builders.wheel import archive, engine_wheel
from softmark.course import Course, CourseError, TopicEntry
from softmark.files import write_whole
from softmark.leaks import Answer, Leak, Private, leaks_in, private_part, stubs

TEMPLATES = Path(__file__).parent / "templates"
_TOP = "course"  # the folder that the archive unpacks to
_BESIDE = ("constraints.txt", "LICENSE", "docs/student.md")  # of the course, where it has them
_KINDS = (".py", ".ipynb", ".md", ".yaml", ".yml", ".svg", ".txt", ".toml", ".whl", ".typed", ".sh")
_NO_KIND = ("LICENSE", "METADATA", "WHEEL", "RECORD", "run_autograder")
_MOST_SHOWN = 10
_MOST_BY_CHANCE = 3  # lines of one private file in one of the engine's


def release(course: Course, out: Path, day: date, wanted: Sequence[str] = ()) -> list[TopicEntry]:
    """Write what students get on ``day`` of the topics that are open then, or of those ``wanted``, to
    the .zip ``out``, whole or not at all; return these topics.

    The same files make the same bytes. Raises CourseError for a topic that is unknown or not open,
    BuildError where something is not fit for students: it names the file and the line.
    """
    if out.suffix != ".zip":
        raise BuildError(f"{out}: must end in .zip")
    topics = open_topics(course, day, wanted)
    files = student_files(course, topics, "starter/")
    data = archive({f"{_TOP}/{name}": content for name, content in files.items()})
    refuse_private(course, topics, day, {out.name: data})
    write_whole(out, data)
    return topics


def open_topics(course: Course, day: date, wanted: Sequence[str] = ()) -> list[TopicEntry]:
    """The topics that have opened by ``day``, or those ``wanted``, in the course's order."""
    for id in wanted:
        course.topic(id)  # raises CourseError with the nearest name
    chosen = [entry for entry in course.topics if not wanted or entry.id in wanted]
    closed = [entry for entry in chosen if entry.opens and entry.opens > day]
    if closed and wanted:
        said = ", ".join(f"{entry.id} opens {entry.opens}" for entry in closed)
        raise CourseError(f"course.yaml: not open on {day}: {said}")
    if len(closed) == len(chosen):
        raise CourseError(f"course.yaml: no topic is open on {day}")
    return [entry for entry in chosen if entry not in closed]


def student_files(course: Course, topics: Sequence[TopicEntry], starter: str) -> dict[str, bytes]:
    """Every file that students of these topics get by its path, topics under ``starter``.

    Raises BuildError for a file of a kind that has no place there.
    """
    made = starter_files(course, [entry.id for entry in topics])
    files = {f"{starter}{path.as_posix()}": text.encode() for path, text in made.items()}
    wheel, content = engine_wheel()
    files[f"engine/{wheel}"] = content
    files["engine/from_wheel.py"] = _template("from_wheel.py.txt", wheel=wheel).encode()
    files["pyproject.toml"] = _template("pyproject.toml").encode()
    for name in _BESIDE:
        if (course.folder / name).is_file():
            files[name] = (course.folder / name).read_bytes()
    names = [*files, *zipfile.ZipFile(io.BytesIO(content)).namelist()]
    for path in map(PurePosixPath, names):
        if path.suffix not in _KINDS and path.name not in _NO_KIND:
            raise BuildError(f"{path}: no kind of file that students get; move it elsewhere")
    files["README.md"] = _readme(course, topics, "constraints.txt" in files, starter).encode()
    return files


def _template(name: str, **values: str) -> str:
    text = (TEMPLATES / "release" / name).read_text(encoding="utf-8")
    return string.Template(text).substitute(values)


def _readme(course: Course, topics: Sequence[TopicEntry], constrained: bool, starter: str) -> str:
    rows = []
    for entry in topics:
        topic = course.topic(entry.id)
        link = f"[{entry.id}]({starter}{entry.id}/handout.md)"
        rows.append(f"| {link} | {topic.title} | {topic.hours:g} | {entry.due or ''} |")
    first = course.topic(topics[0].id)
    work = "work.md" if starter else "work_here.md"
    return _template(
        "README.md",
        title=course.title,
        topics="\n".join(rows),
        constraints="-c constraints.txt " if constrained else "",
        work=_template(work, first=first.id, module=first.module),
    )


# ---- what may not go out -------------------------------------------------------------------------


def refuse_private(
    course: Course, topics: Sequence[TopicEntry], day: date, files: Mapping[str, bytes]
) -> None:
    """Raise BuildError where files, or archives, that students of ``topics`` get on ``day`` give
    something of any topic of the course away."""
    # they are in every wheel of the engine, and a new topic begins as a copy of them
    samples = [path.read_text(encoding="utf-8") for path in sorted(TEMPLATES.glob("topic/*"))]
    lines: dict[str, str] = {}
    answers: list[Answer] = []
    for entry in course.topics:
        over = entry.due is not None and entry.due < day
        later = stubs(course, [t for t in topics if t != entry]) if over else []
        part = private_part(course, course.topic(entry.id), [*samples, *later])
        note = f", which can be handed in until {entry.due}" if entry.due and not over else ""
        lines |= {line: f"{place}{note}" for line, place in part.lines.items()}
        answers += part.answers
    private = Private(lines, answers)
    found = [leak for name, data in files.items() for leak in leaks_in(name, data, private)]
    found = [leak for leak in found if not _by_chance(leak, found)]
    if found:
        more = len(found) - _MOST_SHOWN
        listed = [*map(str, found[:_MOST_SHOWN]), *([f"and {more} more"] if more > 0 else [])]
        raise BuildError("\n".join(["nothing is written: not fit for students:", *listed]))


def _by_chance(leak: Leak, found: Sequence[Leak]) -> bool:
    """Whether it is an ordinary line of the engine, such as "with torch.no_grad():", which only looks
    like one of a solution: then no others of the same solution are in the same file."""
    if ".whl/" not in leak.place:
        return False
    alike = {one.line for one in found if (one.place, one.private) == (leak.place, leak.private)}
    return len(alike) <= _MOST_BY_CHANCE
