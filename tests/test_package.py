"""Items that need a package: graded where it is installed, and worth nothing elsewhere.

And what a grader puts on record of a right submission.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from small_course import TOPIC, grade, items, session, solution, write_course
from softmark.course import CourseError, load_topic
from softmark.verify import _all_passed, _loses_exactly

BESIDE = """

@item("steps.more")
def test_more(script, agree, measured, draw):
    run = script()
    run.call("steps", draw(4), 3)
    agree(run)
    measured("length", 1.5)
"""


def write(folder: Path, entry: str) -> Path:
    """The small course with an extension ``steps.more`` that has this in its entry, too."""
    folder = write_course(folder / "course", twin=False)
    yaml = folder / "assignments" / TOPIC / "assignment.yaml"
    more = f"  steps.more: {{title: more steps, points: 1, {entry}}}\n"
    yaml.write_text(yaml.read_text().replace("rubric:\n", "rubric:\n" + more))
    graders = folder / "autograder" / "graders" / TOPIC / "test_small.py"
    graders.write_text(graders.read_text() + BESIDE)
    return folder


def test_without_the_package_it_is_not_graded_and_changes_nothing(tmp_path) -> None:
    folder = write(tmp_path, "tier: extension, package: no_such_package")
    with session(folder) as grading:
        result = grade(grading, solution(folder))
    more = items(result)["steps.more"]
    assert (more.status, more.score, more.counts, more.measured) == ("not_graded", None, False, {})
    assert "no_such_package is not installed" in more.message
    assert result.score == result.max_score
    assert not _all_passed(result) and not _loses_exactly(result, frozenset(["steps.more"]))


def test_with_the_package_it_is_an_item_as_others(tmp_path) -> None:
    folder = write(tmp_path, "tier: extension, package: numpy")
    with session(folder) as grading:
        result = grade(grading, solution(folder))
        wrong = grade(grading, solution(folder, ("2 * x + 1", "2 * x - 1")))
    more = items(result)["steps.more"]
    assert (more.status, more.measured) == ("passed", {"length": 1.5})
    assert result.score is not None and result.score > result.max_score
    assert (items(wrong)["steps.more"].status, items(wrong)["steps.more"].measured) == (
        "failed",
        {},
    )


def test_the_core_needs_no_package(tmp_path) -> None:
    folder = write(tmp_path, "package: triton")
    with pytest.raises(CourseError, match="the core can be earned without a package"):
        load_topic(folder / "assignments" / TOPIC)
