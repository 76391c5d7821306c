"""Notebooks made from topics, and what is read back from them once they are filled in."""

from __future__ import annotations

import ast
import base64
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from softmark.bench import reference_files
from softmark.builders.notebook import student_notebook, topic_cells
from softmark.builders.stub import BuildError, stub
from softmark.course import Course, load_course
from softmark.intake import read_submission
from softmark.leaks import leaks, private_part
from softmark.questions import ANSWERS_FILE, load_answers, parse_answers

ROOT = Path(__file__).parents[1]
TOPICS = sorted(path.name for path in (ROOT / "assignments").iterdir() if path.is_dir())
TOPIC = "02_lstm"
slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """A course of every topic there is, also those that students do not get yet."""
    folder = tmp_path_factory.mktemp("course")
    (folder / "autograder").mkdir()
    for name in ("assignments", "solutions", "autograder/graders"):
        (folder / name).symlink_to(ROOT / name)
    topics = "".join(f"  - id: {id}\n" for id in TOPICS)
    (folder / "course.yaml").write_text(f"title: Every topic\ntopics:\n{topics}")
    return load_course(folder)


def filled_in(course: Course, topic: Any) -> dict[str, Any]:
    """The students' notebook with the reference in it."""
    notebook: dict[str, Any] = json.loads(student_notebook(course, topic))
    sources = {cell.id: cell.source for cell in topic_cells(course, topic)}
    for cell in notebook["cells"]:
        cell["source"] = sources[cell["id"]]
    return notebook


def read_back(folder: Path, topic: Any, notebook: Any) -> dict[str, str]:
    path = folder / f"{topic.module}.ipynb"
    path.write_text(notebook if isinstance(notebook, str) else json.dumps(notebook))
    got = read_submission(path, topic)
    assert got.status == "ready", got.message
    return dict(got.files)


def same_code(text: str, other: str) -> bool:
    return ast.dump(ast.parse(text)) == ast.dump(ast.parse(other))


@pytest.mark.parametrize("id", TOPICS)
def test_what_is_filled_in_is_read_back_as_the_files(id, every, tmp_path):
    topic = every.topic(id)
    reference = reference_files(every, topic)
    files = read_back(tmp_path, topic, filled_in(every, topic))
    answers = files.pop(ANSWERS_FILE)
    assert set(files) == set(topic.files)
    for name, text in files.items():
        assert same_code(text, reference[name]), name
    place = every.solution(id) / ANSWERS_FILE
    right = load_answers(place, ANSWERS_FILE, topic.questions)
    assert parse_answers(answers) == (right, "")


@pytest.mark.parametrize("id", TOPICS)
def test_an_untouched_notebook_is_the_starter(id, every, tmp_path):
    topic = every.topic(id)
    files = read_back(tmp_path, topic, student_notebook(every, topic))
    assert parse_answers(files.pop(ANSWERS_FILE)) == ({}, "")
    for name, text in reference_files(every, topic).items():
        assert same_code(files[name], stub(text, name)), name


@pytest.mark.parametrize(
    "id",  # each takes seconds: one in NumPy, one in PyTorch, and the others with all tests
    [id if id in ("02_lstm", "05_multihead") else slow(id) for id in TOPICS],
)
def test_students_notebooks_are_valid_and_give_nothing_away(id, every, tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat: pip install nbgrader")
    topic = every.topic(id)
    text = student_notebook(every, topic)
    assert text == student_notebook(every, topic)
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert text == nbformat.writes(notebook) + "\n", "Jupyter would save it otherwise"
    (tmp_path / "a.ipynb").write_text(text)
    private = private_part(every, topic)
    assert list(leaks([tmp_path], private, tmp_path)) == []
    (tmp_path / "a.ipynb").write_text(json.dumps(filled_in(every, topic)))
    assert any(leaks([tmp_path], private, tmp_path))


@pytest.mark.parametrize("id", TOPICS)
def test_the_handout_is_whole_and_holds_its_figures(id, every):
    topic = every.topic(id)
    cells = topic_cells(every, topic)
    text = "\n".join(cell.student for cell in cells if cell.role == "handout")
    handout = (topic.folder / "handout.md").read_text()
    headings = re.findall("^#+ .*$", handout, re.MULTILINE)
    assert [line for line in text.split("\n") if line in headings] == headings
    for item in topic.rubric.values():
        assert f"| `{item.id}` |" in text
    figures = re.findall(r"\]\(([\w.-]+\.svg)\)", handout)
    assert figures
    images = re.findall(r'<img alt="[^"]+" src="data:image/svg\+xml;base64,([^"]+)">', text)
    assert [base64.b64decode(image) for image in images] == [
        (topic.folder / name).read_bytes() for name in figures
    ]
    assert ".svg)" not in text


def test_a_cell_for_each_definition_that_students_write(course):
    cells = topic_cells(course, course.topic(TOPIC))
    made = [cell.id for cell in cells if cell.role == "solution"]
    names = ["sigmoid", "LSTMCell", "lstm_forward", "lstm_backward", "carousel_gradient"]
    assert made == [f"code-{name}" for name in names]
    roles = {cell.role for cell in cells}
    assert roles == {"handout", "given", "solution", "twin", "answers", "public", "graded"}
    for cell in cells:
        hides = cell.role in ("solution", "twin", "answers")
        assert (cell.source != cell.student) == hides, cell.id
        assert bool(cell.file) == (hides or cell.role == "given"), cell.id
        assert (cell.item is not None) == (cell.role == "graded"), cell.id


SOURCE = '''\
"""A module."""

import math

# BEGIN SOLUTION
def helper(x):
    return math.floor(x) + 1000


# END SOLUTION
# ---- first ----


def first(x):
    """Given words."""
    # BEGIN SOLUTION
    return helper(x) + 1000
    # END SOLUTION


LIMIT = 3


def given(x):
    return min(x, LIMIT)


@property
def second(x):
    # BEGIN SOLUTION
    y = given(x)
    return y + 1000
    # END SOLUTION


# BEGIN SOLUTION
AFTER = second
# END SOLUTION
'''


@pytest.fixture
def changed(course_copy):
    """Its LSTM topic with another solution."""

    def change(source: str) -> tuple[Course, Any]:
        (course_copy / "solutions" / TOPIC / "lstm.py").write_text(source)
        course = load_course(course_copy)
        return course, course.topic(TOPIC)

    return change


def test_helpers_go_with_what_comes_next(changed, tmp_path):
    course, topic = changed(SOURCE)
    cells = [cell for cell in topic_cells(course, topic) if cell.file == "lstm.py"]
    ids = ["given-1", "code-first", "given-2", "code-second", "code-helpers"]
    assert [cell.id for cell in cells] == ids
    assert "def helper" in cells[1].source
    assert cells[1].student == (
        '# ---- first ----\n\n\ndef first(x):\n    """Given words."""\n'
        '    raise NotImplementedError("first")'
    )
    assert cells[3].student.startswith("@property\ndef second")
    assert cells[4].student == "# Helpers of your own, if you need any."
    files = read_back(tmp_path, topic, filled_in(course, topic))
    assert same_code(files["lstm.py"], SOURCE)


def test_a_given_file_beside_the_others_is_no_place_for_a_slip(changed):
    course, topic = changed(SOURCE.replace("# END SOLUTION", "# END SOLUTON", 1))
    with pytest.raises(BuildError, match=r"lstm.py:\d+"):
        topic_cells(course, topic)


def test_two_cells_with_one_id_are_refused(changed):
    course, topic = changed(SOURCE)
    handout = topic.folder / "handout.md"
    handout.write_text(handout.read_text() + "\n## Tasks\n\nAgain.\n")
    with pytest.raises(BuildError, match="'handout-Tasks'"):
        topic_cells(course, topic)


def test_a_figure_that_is_missing_is_named(changed):
    course, topic = changed(SOURCE)
    (topic.folder / "decay.svg").unlink()
    with pytest.raises(BuildError, match=r"decay\.svg"):
        topic_cells(course, topic)
