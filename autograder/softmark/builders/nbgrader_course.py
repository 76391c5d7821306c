"""A folder on which nbgrader works: source notebooks, and a ``nbgrader_config.py``.

Needs the extra ``nbgrader``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.nbgraderformat import MetadataValidator

from softmark.builders.nbgrader import item_of_grade_id, points_of
from softmark.builders.notebook import Cell, belonging, cell_json, notebook_json, topic_cells
from softmark.course import Course, Topic

CONFIG_FILE = "nbgrader_config.py"
_BESIDE = ("assignment.yaml", "questions.yaml", "test_public*.py")  # what the public tests need


def build_nbgrader(course: Course, out: Path, topics: Sequence[str] = ()) -> list[Path]:
    """Write a folder for nbgrader into ``out``: of these topics, by default all; what was written.

    A ``nbgrader_config.py`` that is there already stays. Raises BuildError, CourseError.
    """
    files: dict[Path, str] = {}
    copies: dict[Path, Path] = {}
    for id in topics or [entry.id for entry in course.topics]:
        topic = course.topic(id)
        folder = out / "source" / id
        files[folder / f"{topic.module}.ipynb"] = source_notebook(course, topic)
        copies |= {
            folder / path.name: path
            for pattern in _BESIDE
            for path in sorted(topic.folder.glob(pattern))
        }
    config = out / CONFIG_FILE
    if not config.exists():
        files = {config: _config_text(course, out), **files}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    for path, original in copies.items():
        shutil.copyfile(original, path)
    return [*files, *copies]


def source_notebook(course: Course, topic: Topic) -> str:
    """The notebook from which ``nbgrader generate_assignment`` makes that of the students."""
    item_of_grade_id(topic)
    cells = topic_cells(course, topic)
    text = notebook_json(
        cell_json(cell.kind, cell.id, cell.source, {**belonging(cell), "nbgrader": _mark(cell)})
        for cell in cells
    )
    notebook = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    MetadataValidator().validate_nb(notebook)
    return text


def _mark(cell: Cell) -> dict[str, Any]:
    """A cell's metadata for nbgrader, of version 3."""
    solution = cell.role in ("solution", "twin", "answers")
    mark: dict[str, Any] = {
        "schema_version": 3,
        "grade_id": cell.id,
        "grade": cell.item is not None,
        "locked": not solution,
        "solution": solution,
        "task": False,
    }
    return mark if cell.item is None else {**mark, "points": points_of(cell.item)}


def _config_text(course: Course, out: Path) -> str:
    """nbgrader_config.py, which finds the course from its own place where it lies in it."""
    folder, root = out.absolute().resolve(), course.folder.resolve()
    inside = folder.is_relative_to(root)
    place = f"HERE / {os.path.relpath(root, folder)!r}" if inside else repr(str(root))
    name = re.sub(r"[^a-z0-9]+", "-", course.title.partition(":")[0].lower()).strip("-")
    return f'''"""nbgrader's settings: made by `softmark build nbgrader`, then yours to change."""

from pathlib import Path

from softmark.builders.nbgrader import configure

HERE = Path(__file__).resolve().parent

c = get_config()  # noqa: F821 (nbgrader's)
c.CourseDirectory.root = str(HERE)
c.CourseDirectory.course_id = {name or "course"!r}
configure(c, course={place})
'''
