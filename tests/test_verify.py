"""``softmark verify`` passes where graders are right and notices each way in which they can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_course import TOPIC, write_course
from softmark.bench import reference_files
from softmark.builders.starter import build_starter
from softmark.cli import app
from softmark.course import load_course
from softmark.mistakes import load_mistakes
from softmark.yamlfile import CourseError
from typer.testing import CliRunner

VARIANT = """
import numpy as np

def step(x):
    return np.add(x, x) + np.ones_like(x)

def steps(x, n):
    return step(steps(x, n - 1)) if n else x
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The small course with all that a course has: handout, public tests, a variant, a starter."""
    course = write_course(tmp_path, twin=False)
    public = course / "assignments" / TOPIC
    (public / "handout.md").write_text("<!-- rubric -->\n<!-- /rubric -->\n", encoding="utf-8")
    (public / "test_public.py").write_text("", encoding="utf-8")
    variant = course / "solutions" / TOPIC / "variants" / "doubled" / "small.py"
    variant.parent.mkdir(parents=True)
    variant.write_text(VARIANT, encoding="utf-8")
    rebuild(course)
    return course


def rebuild(folder: Path) -> None:
    course = load_course(folder)
    build_starter(course, folder / "starter")
    build_starter(course, folder / "starter")  # the handout now has its table


def verify(folder: Path, *options: str) -> tuple[int, str]:
    command = ["verify", TOPIC, "--course", str(folder), "--seed", "5", "--workers", "1", *options]
    done = CliRunner().invoke(app, command)
    return done.exit_code, done.output


def failed(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("✗")]


def edit(path: Path, old: str, new: str) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count(old) >= 1, f"{old!r} is not in {path}"
    path.write_text(source.replace(old, new, 1), encoding="utf-8")


def test_a_course_that_is_right_passes(folder: Path) -> None:
    code, output = verify(folder)
    assert (code, failed(output)) == (0, [])
    for said in (
        "every rubric item is lost by a known mistake",
        "the reference earns full marks",
        "the variant doubled earns full marks",
        "the untouched starter earns nothing",
        "1 pairs of mistakes",
        "a wrong answer to colour loses it alone",
    ):
        assert said in output
    (row,) = [line.split() for line in output.splitlines() if "one_forgotten" in line]
    assert row == ["✓", "one_forgotten", "3", "1", "2", "0"]  # lost; own hint, none, another's


def test_several_faults_are_told_apart(folder: Path) -> None:
    """A mistake that costs another item than it says, a wrong variant, a starter out of step, a leak."""
    mistakes = folder / "solutions" / TOPIC / "mistakes.yaml"
    edit(
        mistakes,
        "    hint: Count the steps.\n    loses: [",
        "    hint: Count.\n    loses: [step.values, ",
    )
    edit(folder / "solutions" / TOPIC / "variants/doubled/small.py", "n - 1", "n - 2 and n - 1")
    edit(folder / "starter" / TOPIC / "small.py", "import numpy", "# a change\nimport numpy")
    with (folder / "assignments" / TOPIC / "handout.md").open("a", encoding="utf-8") as handout:
        handout.write("\n    return np.add(x, x)+np.ones_like(x)\n")
    code, output = verify(folder)
    titles = " ".join(failed(output))
    assert code == 1
    assert "one_step_too_many" in titles and "one_forgotten" not in titles
    assert "one_step_too_many: step.values should be lost and is not" in output
    assert "the variant doubled earns full marks" in titles
    assert "the starter is in step" in titles
    assert "students get no line of a solution" in titles
    assert f"assignments/{TOPIC}/handout.md" in output
    _, once_more = output.split(f"{TOPIC} failed\n")
    assert "one_step_too_many: step.values should be lost and is not" in once_more
    assert f"softmark verify {TOPIC} --seed 5" in once_more


def test_a_starter_that_gives_the_answer_earns_something(folder: Path) -> None:
    edit(
        folder / "solutions" / TOPIC / "small.py",
        "    # BEGIN SOLUTION\n    return 2 * x + 1\n    # END SOLUTION\n",
        "    return 2 * x + 1\n",
    )
    rebuild(folder)
    code, output = verify(folder)
    assert code == 1
    assert any("the untouched starter earns nothing" in line for line in failed(output))


SECOND = """
  another_name_for_it:
    task: step
    file: small.py
    replace: return 2 * x + 1
    with: return x + x
    hint: A hint that fits something else.
    loses: [step.values, steps.values, steps.quiet]
"""


def test_a_hint_for_what_was_not_done_is_a_failure(folder: Path) -> None:
    """Two mistakes that cannot be told apart, but for an item that one of them forgets to list."""
    mistakes = folder / "solutions" / TOPIC / "mistakes.yaml"
    edit(mistakes, "[step.values, steps.values, steps.quiet]", "[steps.values, steps.quiet]")
    mistakes.write_text(mistakes.read_text(encoding="utf-8") + SECOND, encoding="utf-8")
    code, output = verify(folder)
    assert code == 1
    assert "step.values shows the hint of another_name_for_it" in output


def test_a_pair_that_cancels_is_told_unless_it_is_listed(folder: Path) -> None:
    mistakes = folder / "solutions" / TOPIC / "mistakes.yaml"
    pair = """
mistakes:
  none_at_all:
    task: steps
    file: small.py
    replace: "        x = step(x)"
    with: "        x = step(x) - 1"
    hint: Nothing is to be taken away.
    loses: [steps.values, steps.quiet]
  too_much:
    task: steps
    file: small.py
    replace: "    return x\\n"
    with: "    return x + 2**n - 1\\n"
    hint: Nothing is to be added.
    loses: [steps.values, steps.quiet]
"""
    mistakes.write_text(pair, encoding="utf-8")
    code, output = verify(folder)
    assert code == 1
    assert "none_at_all + too_much: steps.values is passed" in output
    mistakes.write_text(f"{pair}    hides: [none_at_all]\n", encoding="utf-8")
    code, output = verify(folder)
    assert code == 1  # the other one still is to be seen
    one = "    loses: [steps.values, steps.quiet]\n"
    both = pair.replace(one, f"{one}    hides: [too_much, none_at_all]\n")
    mistakes.write_text(both, encoding="utf-8")
    assert "✓ 1 pairs of mistakes" in verify(folder)[1]


def test_mutants_are_counted_and_survivors_shown(folder: Path) -> None:
    code, output = verify(folder, "--mutants", "all")
    assert code == 0, output
    assert "killed" in output and "0 survived" in output
    graders = folder / "autograder/graders" / TOPIC / "test_small.py"
    text = graders.read_text(encoding="utf-8")
    graders.write_text(text.replace("agree(run)", "run.outputs()"), encoding="utf-8")
    code, output = verify(folder, "--mutants", "all")
    assert code == 1 and "survived in step:" in output
    code, output = verify(folder, "--mutants", "some")
    assert code == 2 and "neither a number of mutants nor 'all'" in output


def test_an_edit_that_does_not_fit_names_its_line(folder: Path) -> None:
    mistakes = folder / "solutions" / TOPIC / "mistakes.yaml"
    edit(mistakes, "replace: return 2 * x + 1", "replace: return no_such_thing")
    course = load_course(folder)
    topic = course.topic(TOPIC)
    with pytest.raises(CourseError, match=r"mistakes\.yaml:\d+: .*stands 0 times in small\.py"):
        load_mistakes(course, topic, reference_files(course, topic))
    edit(mistakes, "replace: return no_such_thing", "replace: return 2 * x + 1")
    edit(mistakes, "    loses:", "    hides: [nobody]\n    loses:")
    with pytest.raises(CourseError, match=r"mistakes\.yaml:\d+: .*'nobody' is no mistake here"):
        load_mistakes(course, topic, reference_files(course, topic))


def test_an_item_that_no_mistake_loses_is_named(folder: Path) -> None:
    """A grader that compares nothing would pass all the rest."""
    edit(folder / "solutions" / TOPIC / "mistakes.yaml", "loses: [step.values, ", "loses: [")
    code, output = verify(folder)
    assert code == 1
    assert "no known mistake loses step.values" in output


def test_leaks_finds_a_hidden_test_in_the_handout(folder: Path) -> None:
    grader = (folder / "autograder/graders" / TOPIC / "test_small.py").read_text("utf-8")
    line = next(text for text in grader.splitlines() if "np.allclose" in text)
    with (folder / "assignments" / TOPIC / "handout.md").open("a", encoding="utf-8") as handout:
        handout.write(f"\n{line}\n")
    code, output = verify(folder)
    assert code == 1 and f"a line of the private graders/{TOPIC}/test_small.py" in " ".join(
        output.split()
    )
