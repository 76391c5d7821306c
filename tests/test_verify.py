"""``softmark verify`` passes on the course as it is and notices each way in which it can be wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from softmark.bench import reference_files
from softmark.cli import app
from softmark.course import load_course
from softmark.mistakes import load_mistakes
from softmark.verify import leaks, private_lines
from softmark.yamlfile import CourseError
from typer.testing import CliRunner

TOPIC = "02_lstm"


def verify(folder: Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["verify", TOPIC, "--course", str(folder), "--seed", "5"])
    return done.exit_code, done.output


def failed(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("✗")]


def edit(path: Path, old: str, new: str) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count(old) >= 1, f"{old!r} is not in {path}"
    path.write_text(source.replace(old, new, 1), encoding="utf-8")


def test_the_course_passes(course_copy: Path) -> None:
    code, output = verify(course_copy)
    assert (code, failed(output)) == (0, [])
    assert "the reference earns full marks" in output
    assert "the untouched starter earns nothing" in output


def test_several_faults_are_told_apart(course_copy: Path) -> None:
    """A mistake that costs another item than it says, a starter out of step, a leak."""
    mistakes = course_copy / "solutions" / TOPIC / "mistakes.yaml"
    edit(mistakes, "loses: [cell.bias]", "loses: [cell.weights]")
    stub = course_copy / "starter" / TOPIC / "lstm.py"
    stub.write_text(stub.read_text(encoding="utf-8") + "\n# a change\n", encoding="utf-8")
    solution = course_copy / "solutions" / TOPIC / "lstm.py"
    source = solution.read_text(encoding="utf-8")
    inside = source.split("# BEGIN SOLUTION")[1].split("# END SOLUTION")[0].splitlines()
    line = max((text.strip() for text in inside if "#" not in text), key=len)
    handout = course_copy / "assignments" / TOPIC / "handout.md"
    handout.write_text(handout.read_text(encoding="utf-8") + f"\n    {line}\n", encoding="utf-8")

    code, output = verify(course_copy)
    titles = " ".join(failed(output))
    assert code == 1
    assert "loses its 1 item" in titles
    assert "the starter is in step" in titles
    assert "students get no line of a solution" in titles
    assert "cell.bias is lost and should not be" in output
    assert f"assignments{os.sep}{TOPIC}{os.sep}handout.md" in output


def test_a_starter_that_gives_the_answer_earns_something(course_copy: Path) -> None:
    solution = course_copy / "solutions" / TOPIC / "lstm.py"
    source = solution.read_text(encoding="utf-8")
    begin, end = source.index("# BEGIN SOLUTION"), source.index("# END SOLUTION")
    given = source[:begin].rstrip(" ") + source[begin:end].split("\n", 1)[1] + source[end:]
    given = given.replace("    # END SOLUTION\n", "", 1)
    solution.write_text(given, encoding="utf-8")
    code, output = verify(course_copy)
    assert code == 1
    assert any("the untouched starter earns nothing" in line for line in failed(output))


def test_an_edit_that_does_not_fit_names_its_line(course_copy: Path) -> None:
    mistakes = course_copy / "solutions" / TOPIC / "mistakes.yaml"
    edit(mistakes, "b[:H] = forget_bias", "b[:H] = no_such_thing")
    course = load_course(course_copy)
    topic = course.topic(TOPIC)
    with pytest.raises(CourseError, match=r"mistakes\.yaml:\d+: .*stands 0 times in lstm\.py"):
        load_mistakes(course, topic, reference_files(course, topic))


def test_leaks_finds_a_line_whatever_its_spacing(tmp_path: Path) -> None:
    reference = {"a.py": "def f(x):\n    return np.tanh(x) * 3 + forget_everything\n"}
    private = private_lines(reference, {"a.py": "def f(x):\n    raise NotImplementedError\n"}, [])
    shared = tmp_path / "notes.md"
    shared.write_text(
        "text\n\treturn np.tanh( x )*3 + forget_everything  # here\n", encoding="utf-8"
    )
    found = list(leaks([tmp_path], private, tmp_path))
    assert found == ["notes.md:2 holds a line of the private a.py"]


def test_leaks_finds_a_hidden_test_in_the_handout(course_copy: Path) -> None:
    grader = next((course_copy / "autograder/graders" / TOPIC).glob("test_step.py"))
    line = next(text for text in grader.read_text("utf-8").splitlines() if "caches = [" in text)
    handout = course_copy / "assignments" / TOPIC / "handout.md"
    handout.write_text(handout.read_text(encoding="utf-8") + f"\n{line}\n", encoding="utf-8")
    code, output = verify(course_copy)
    assert code == 1 and "a line of the private test_step.py" in " ".join(output.split())
