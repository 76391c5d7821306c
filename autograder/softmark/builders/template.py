"""``softmark build template``: the repository on GitHub that students begin with.

What ``softmark release`` gives, with a folder for each topic at the top, and two workflows: one runs
the public tests on every push, the other marks a commit as handed in. Neither knows a secret.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from softmark.builders.stub import BuildError
from softmark.course import COURSE_FILE, Course
from softmark.release import TEMPLATES, open_topics, refuse_private, student_files

_WORKFLOWS = ("check.yml", "hand-in.yml")


def build_template(course: Course, out: Path, day: date, wanted: Sequence[str] = ()) -> list[Path]:
    """Write the repository's files into ``out``, of the topics that are open on ``day``, or of those
    ``wanted``; return their paths. What else is in ``out`` stays, but for older engines.

    Raises CourseError and BuildError as ``release`` does, before anything is written.
    """
    if (out / COURSE_FILE).exists():
        raise BuildError(f"{out}: holds a {COURSE_FILE}, so it is no repository of students")
    topics = open_topics(course, day, wanted)
    files = student_files(course, topics, "")
    ids = json.dumps([entry.id for entry in topics])
    for name in _WORKFLOWS:
        text = (TEMPLATES / "repository" / name).read_text(encoding="utf-8")
        files[f".github/workflows/{name}"] = text.replace(
            "options: TOPICS", f"options: {ids}"
        ).encode()
    files[".gitignore"] = (TEMPLATES / "repository" / "gitignore.txt").read_bytes()
    refuse_private(course, topics, day, files)
    for name, content in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(content)
    for wheel in (out / "engine").glob("*.whl"):
        if f"engine/{wheel.name}" not in files:
            wheel.unlink()
    return [out / name for name in sorted(files)]
