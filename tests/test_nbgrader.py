"""The real ``nbgrader autograde`` records a Session's scores, whatever a notebook does."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from softmark.course import load_course
from softmark.intake import read_submission
from softmark.isolation.tiers import reach
from softmark.session import Session

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("nbgrader") is None,
        reason="nbgrader is not installed: pip install 'softmark[nbgrader]'",
    ),
    pytest.mark.filterwarnings("ignore"),  # nbgrader's own
]

COURSE = Path(__file__).parents[1]
TOPIC = "02_lstm"
SEED = 20
GRADED = {"sigmoid-values": 4, "cell-bias": 3, "step-backward-dx": 6}
CONFIG = f"""
from softmark.builders.nbgrader import configure
c = get_config()
c.CourseDirectory.course_id = "course"
configure(c, course={str(COURSE)!r}, seed={SEED})
"""


def cell(kind, source, **marks):
    """A cell as it stands in a file, of nbgrader's if it has marks."""
    metadata = {}
    if marks:
        plain = {"grade": False, "solution": False, "locked": False, "task": False}
        metadata["nbgrader"] = {"schema_version": 3, "cell_type": kind, **plain, **marks}
    made = {"cell_type": kind, "metadata": metadata, "source": source}
    return made if kind == "markdown" else {**made, "execution_count": None, "outputs": []}


def notebook(solution):
    """Handout, solution and grade cells, as an instructor writes them."""
    cells = [
        cell("markdown", "# LSTM", grade_id="handout", locked=True),
        cell("code", solution, grade_id="solution", solution=True),
    ]
    for id, points in GRADED.items():
        text = "# Graded after you hand in."
        cells.append(cell("code", text, grade_id=id, grade=True, locked=True, points=points))
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return {"nbformat": 4, "nbformat_minor": 4, "metadata": kernel, "cells": cells}


def hand_in(course, student, source, edit=lambda cells: None):
    """A submission made from the released notebook, with ``source`` in the solution cell."""
    released = json.loads((course / "release" / TOPIC / "lstm.ipynb").read_text())
    released["cells"][1]["source"] = source
    edit(released["cells"])
    folder = course / "submitted" / student / TOPIC
    folder.mkdir(parents=True)
    (folder / "lstm.ipynb").write_text(json.dumps(released))


def claim_full_marks(cells):
    """Stored results, raised points, a deleted grade cell, and one's own cell with a score."""
    for graded in cells[2:4]:
        result = {"output_type": "execute_result", "execution_count": 1, "metadata": {}}
        graded["outputs"] = [{**result, "data": {"text/plain": "4.0"}}]
        graded["metadata"]["nbgrader"]["points"] = 1000
    del cells[4]
    cells.append(cell("code", "print(4.0)\n4.0"))


def nbgrader(course, command):
    # nbgrader calls alembic by name
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", command, TOPIC],
        cwd=course,
        env={**os.environ, "PATH": path, "HOME": str(course), "JUPYTER_PLATFORM_DIRS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_autograde_records_what_the_session_says(tmp_path):
    reference = (COURSE / "solutions" / TOPIC / "lstm.py").read_text()
    noisy = "import sys, warnings\nprint('noise', file=sys.stderr)\nwarnings.warn('noise')\n"
    sources = {
        "right": noisy + reference,
        "wrong": reference.replace("b[:H] = forget_bias", "b[H : 2 * H] = forget_bias"),
        "hostile": reference.replace("np.exp(-np.abs(z))", "__import__('os')._exit(0)"),
    }
    assert len(set(sources.values()) | {reference}) == 4

    (tmp_path / "nbgrader_config.py").write_text(CONFIG)
    (tmp_path / "source" / TOPIC).mkdir(parents=True)
    source = notebook(reference)  # its own markers are those that nbgrader knows
    (tmp_path / "source" / TOPIC / "lstm.ipynb").write_text(json.dumps(source))
    nbgrader(tmp_path, "generate_assignment")
    for student, text in sources.items():
        edit = claim_full_marks if student == "hostile" else lambda cells: None
        hand_in(tmp_path, student, text, edit)
    nbgrader(tmp_path, "autograde")

    course = load_course(COURSE)
    topic = course.topic(TOPIC)
    level = reach(secret=[course.solution(TOPIC), course.graders(TOPIC)])
    recorded, told = read_gradebook(tmp_path), {}
    with Session(course, topic, SEED, level) as session:
        for student, text in sources.items():
            path = tmp_path / f"{student}.py"
            path.write_text(text)
            result = session.grade(read_submission(path, topic))
            items = {item.id.replace(".", "-"): item for item in result.items}
            assert recorded[student] == {id: items[id].score for id in GRADED}, student
            told[student] = [items[id].message for id in GRADED if items[id].message]
    assert recorded["right"] == GRADED
    assert recorded["wrong"] == {**GRADED, "cell-bias": 0}
    assert recorded["hostile"] == {**GRADED, "sigmoid-values": 0, "step-backward-dx": 0}
    for student, messages in told.items():
        graded = tmp_path / "autograded" / student / TOPIC / "lstm.ipynb"
        shown = str(json.loads(graded.read_text())["cells"])
        assert all(repr(message)[1:-1] in shown for message in messages)


def read_gradebook(course):
    """Student -> grade_id -> the score that nbgrader recorded."""
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course}/gradebook.db", "course") as book:
        return {
            submission.student.id: {
                grade.name: grade.auto_score for grade in submission.notebooks[0].grades
            }
            for submission in book.assignment_submissions(TOPIC)
        }
