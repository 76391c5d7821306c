"""Files that a course gives whole: every implementation runs with the course's own copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_course import TOPIC, grade, items, session, solution, write_course
from softmark.builders.starter import starter_files
from softmark.course import CourseError, load_course, load_topic
from softmark.intake import read_submission
from softmark.pack import pack
from softmark.session import Session

GIVEN = "def amount():\n    return 1\n\n\ndef twice(x):\n    return 2 * x\n"
CHEAT = "def amount():\n    return 3\n\n\ndef twice(x):\n    return 0 * x\n"
BESIDE = """

@item("step.values")
def test_what_is_given(script, agree, draw):
    run = script()
    run.call("twice", draw(4))
    agree(run)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The small course, whose reference takes its constant from a given file."""
    folder = write_course(tmp_path / "course", twin=False)
    place = folder / "assignments" / TOPIC
    (place / "given.py").write_text(GIVEN)
    for name in ("handout.md", "test_public.py"):
        (place / name).write_text("<!-- rubric -->\n<!-- /rubric -->\n" if "md" in name else "")
    yaml = place / "assignment.yaml"
    text = yaml.read_text().replace("calls:\n", 'calls:\n  twice: {y: "array (N)"}\n')
    yaml.write_text(text.replace("files: [small.py]", "files: [small.py]\ngiven: [given.py]"))
    small = folder / "solutions" / TOPIC / "small.py"
    text = small.read_text().replace("import numpy as np", "from given import amount, twice")
    small.write_text(text.replace("2 * x + 1", "twice(x) + amount()"))
    mistakes = folder / "solutions" / TOPIC / "mistakes.yaml"
    text = mistakes.read_text().replace("2 * x + 1", "twice(x) + amount()")
    mistakes.write_text(text.replace("2 * x\n", "twice(x)\n"))
    graders = folder / "autograder" / "graders" / TOPIC / "test_small.py"
    graders.write_text(graders.read_text() + BESIDE)
    return folder


@pytest.fixture
def grading(folder: Path) -> Iterator[Session]:
    with session(folder) as opened:
        yield opened


def test_it_is_there_for_a_submission_that_does_not_hand_it_in(grading, folder) -> None:
    result = grade(grading, solution(folder))
    assert result.score == result.max_score
    wrong = grade(grading, solution(folder, ("+ amount()", "- amount()")))
    assert items(wrong)["step.values"].status == "failed"


def test_a_copy_that_was_handed_in_is_not_the_one_that_runs(grading, folder, tmp_path) -> None:
    handed_in = tmp_path / "handed_in"
    handed_in.mkdir()
    for name, text in (solution(folder) | {"given.py": CHEAT}).items():
        (handed_in / name).write_text(text)
    submission = read_submission(handed_in, load_topic(folder / "assignments" / TOPIC))
    assert "given.py" not in submission.files
    honest = grade(grading, submission.files)
    assert honest.score == honest.max_score
    with_copy = grade(grading, solution(folder) | {"given.py": CHEAT})
    assert with_copy.score == with_copy.max_score


def test_what_is_called_of_it_is_the_course_s_own(grading, folder) -> None:
    shadow = ("import amount, twice", "import amount\n\n\ndef twice(x):\n    return x + x")
    assert items(grade(grading, solution(folder, shadow)))["step.values"].status == "passed"
    wrong = ("def step(x):", "def twice(x):\n    return 0 * x\n\ndef step(x):")
    graded = items(grade(grading, solution(folder, wrong)))["step.values"]
    assert "1 of 2 cases" in graded.message


def test_students_get_it_and_can_import_what_uses_it(folder, tmp_path) -> None:
    course = load_course(folder)
    made = starter_files(course)
    assert made[Path(TOPIC, "given.py")] == GIVEN
    assert GIVEN.strip().splitlines()[0] in made[Path(TOPIC, "small.ipynb")]
    work = tmp_path / TOPIC
    work.mkdir()
    for path, text in made.items():
        (work / path.name).write_text(text)
    for name, text in solution(folder).items():
        (work / name).write_text(text)
    (work / "small.ipynb").unlink()
    packed = pack(load_topic(work))
    assert not any("cannot be imported" in warning for warning in packed.warnings)


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("absent.py", "absent.py: No such file or directory; assignment.yaml lists it"),
        ("small.py", "'small.py' is one of 'files', which students write; drop one of the two"),
    ],
)
def test_a_wrong_list_is_refused(folder, listed, said) -> None:
    yaml = folder / "assignments" / TOPIC / "assignment.yaml"
    yaml.write_text(yaml.read_text().replace("given: [given.py]", f"given: [{listed}]"))
    with pytest.raises(CourseError, match=said.replace(".", r"\.")):
        load_topic(folder / "assignments" / TOPIC)
