"""Otter: an Assign notebook of a topic, and what ``otter assign`` makes of it.

``softmark.exports.otter`` is the plugin that grades; Otter knows the topic as one question, and its
items from the results alone. Otter replaces a solution by the prompt before it, a string, so that
students get of each cell what ``notebook`` has for them.

Needs the extra ``otter``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from softmark.builders.notebook import (
    BEGIN,
    END,
    Cell,
    belonging,
    cell_json,
    notebook_json,
    student_text,
    topic_cells,
)
from softmark.builders.one_topic import course_files
from softmark.builders.stub import BuildError
from softmark.builders.wheel import archive, engine_wheel
from softmark.course import Course, Topic
from softmark.leaks import leaks, opens_later, private_part, stubs

PLUGIN = "softmark.exports.otter.SoftmarkPlugin"  # by name, since that module loads all of Otter
_BESIDE = ("assignment.yaml", "questions.yaml", "test_public*.py")  # what the public tests need
_COURSE_ZIP = "course.zip"
_IMAGE = "/autograder/source/files"  # where Otter's image has what its configuration calls files


def build_otter(
    course: Course, topic_id: str, out: Path, isolation: str | None = None, seed: int | None = None
) -> list[Path]:
    """Write a topic's Assign notebook into ``out``, run ``otter assign`` on it, and return the master
    notebook, the students' one and the autograder's .zip.

    ``isolation`` is the least tier to accept where it grades, ``seed`` that of the inputs, by default
    fresh and secret for each submission. Raises BuildError where ``otter assign`` fails or students
    would get a line of a solution, and CourseError.
    """
    topic = course.topic(topic_id)
    wheel, content = engine_wheel()
    beside = {path.name: path for pattern in _BESIDE for path in sorted(topic.folder.glob(pattern))}
    files = {name: path.read_bytes() for name, path in beside.items()}
    files |= {wheel: content, _COURSE_ZIP: archive(dict(course_files(course, topic)))}
    master = out / f"{topic.module}.ipynb"
    plugin = {"course": _COURSE_ZIP, "isolation": isolation, "seed": seed}
    settings = {key: value for key, value in plugin.items() if value is not None}
    config = _config(topic, settings, list(beside), wheel)
    files[master.name] = assign_notebook(course, topic, config).encode()
    out.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (out / name).write_bytes(data)
    _assign(master, out / "dist")
    student = out / "dist" / "student" / master.name
    _check_released(student.parent, course, topic)
    (autograder,) = (out / "dist" / "autograder").glob("*.zip")
    return [master, student, autograder]


def assign_notebook(course: Course, topic: Topic, config: str) -> str:
    """The master notebook, with the settings of Otter Assign in YAML."""
    cells = [_raw("config", f"# ASSIGNMENT CONFIG\n{config}")]
    for cell in topic_cells(course, topic):
        if cell.role in ("solution", "twin", "answers"):
            cells += _solution(cell)
        elif cell.role != "graded":
            cells.append(cell_json(cell.kind, cell.id, cell.source, belonging(cell)))
    return notebook_json([*cells, *_graded(topic)])


def _config(topic: Topic, plugin: Mapping[str, Any], beside: list[str], wheel: str) -> str:
    """Otter Assign's settings. ``beside`` are the files that students get with their notebook,
    ``wheel`` the engine that is installed where Otter grades."""
    engine = f"{_IMAGE}/{wheel}"
    requirements = [engine]
    if topic.worker == "torch" or topic.twin:
        cpu = "https://download.pytorch.org/whl/cpu"  # the small build
        requirements = [f"--extra-index-url {cpu}", "torch", engine]
    settings: dict[str, Any] = {
        "plugins": [{PLUGIN: dict(plugin)}],
        "files": beside,
        "autograder_files": [wheel],
        "requirements": requirements,
        "python_version": f"{sys.version_info.major}.{sys.version_info.minor}",
        # `%softmark check` and handing in the notebook take their places
        "init_cell": False,
        "check_all_cell": False,
        "export_cell": False,
        # a plain run of the reference; `softmark verify` does more
        "run_tests": False,
        "generate": {"print_score": False},
    }
    return yaml.safe_dump(settings, sort_keys=False)


# ---- cells ---------------------------------------------------------------------------------------


def _raw(id: str, text: str) -> dict[str, Any]:
    """One of the cells by which Otter Assign is told what the others are."""
    return {**cell_json("markdown", id, text, {}), "cell_type": "raw"}


def _question(id: str, name: str, points: float, inside: list[dict[str, Any]]) -> list[Any]:
    begin = f"# BEGIN QUESTION\nname: {name}\npoints: {points:g}\ncheck_cell: false"
    return [_raw(f"{id}-question", begin), *inside, _raw(f"{id}-asked", "# END QUESTION")]


def _block(id: str, kind: str, cell: dict[str, Any]) -> list[dict[str, Any]]:
    return [_raw(f"{id}-begin", f"# BEGIN {kind}"), cell, _raw(f"{id}-end", f"# END {kind}")]


def _graded(topic: Topic) -> list[dict[str, Any]]:
    """One question for the whole rubric. Its test says no more than that the plugin has not run: the
    plugin replaces it by a test for each item."""
    said = "this is graded by Softmark's plugin, and that did not run"
    test = cell_json("code", "graded", f"# HIDDEN\nraise RuntimeError({said!r})", {})
    return _question("graded", topic.id, topic.max_score, _block("graded", "TESTS", test))


def _solution(cell: Cell) -> list[dict[str, Any]]:
    """A question without points, for its place in the notebook."""
    code = cell_json("code", cell.id, _with_prompts(cell), belonging(cell))
    return _question(cell.id, cell.id, 0, _block(cell.id, "SOLUTION", code))


def _with_prompts(cell: Cell) -> str:
    """The instructor's text, each part of the solution after what students get in its place."""
    lines: list[str] = []
    prompts = _prompts(cell)
    for line in cell.source.split("\n"):
        if line.strip() == BEGIN:
            indent = line[: -len(BEGIN)]
            if prompt := next(prompts):
                lines += [f'{indent}"""  # BEGIN PROMPT', prompt, f'{indent}"""  # END PROMPT']
            line += " NO PROMPT"
        lines.append(line)
    return "\n".join(lines)


def _prompts(cell: Cell) -> Iterator[str]:
    """What students get in place of each part of the solution; "" where nothing."""
    lines: list[str] = []
    for line in cell.source.split("\n"):
        mark = f"{line[: -len(line.lstrip())]}#:"  # around each part, to be found again
        around = {BEGIN: [mark, line], END: [line, mark]}
        lines += around.get(line.strip(), [line])
    stubbed = student_text("\n".join(lines), cell.file).split("\n")
    places = [number for number, line in enumerate(stubbed) if line.strip() == "#:"]
    kept = [line for line in stubbed if line.strip() not in ("#:", "")]
    for begin, end in zip(places[::2], places[1::2], strict=True):
        yield "\n".join(stubbed[begin + 1 : end]) if kept else cell.student


# ---- otter assign --------------------------------------------------------------------------------


def _assign(master: Path, dist: Path) -> None:
    command = [sys.executable, "-P", "-m", "otter", "assign", "--no-pdfs", str(master), str(dist)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = "\n".join([done.stdout, done.stderr]).strip().splitlines()[-1:]
        raise BuildError(f"otter assign {master}: {''.join(said)}")


def _check_released(folder: Path, course: Course, topic: Topic) -> None:
    """Raise BuildError if a file for students says what only the private half of the topic does."""
    later = opens_later(course, course.entry(topic.id))
    private = private_part(course, topic, stubs(course, later))
    for found in leaks([folder], private, folder):
        raise BuildError(f"{folder} must not go to students: {found}")
