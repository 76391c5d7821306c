"""``softmark new``: a topic that holds together as it stands, in the course around here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_course import TOPIC, write_course
from softmark.builders.starter import starter_in_step
from softmark.cli import app
from softmark.course import load_course
from typer.testing import CliRunner

COURSE = """\
# above
title: A small course  # beside

topics:   # in order
    # the first
    - id: 00_small
      due: 2026-10-19   # a Monday

    # the end of them

tiers: {extension: 0.2}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A course of one topic, with comments and spaces in its course.yaml."""
    course = write_course(tmp_path / "course", twin=False)
    public = course / "assignments" / TOPIC
    (public / "handout.md").write_text("<!-- rubric -->\n<!-- /rubric -->\n", encoding="utf-8")
    (public / "test_public.py").write_text("", encoding="utf-8")
    (course / "course.yaml").write_text(COURSE, encoding="utf-8")
    return course


def softmark(folder: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*words, "--course", str(folder)])
    return done.exit_code, done.output


def check(folder: Path) -> tuple[int, str]:
    """``softmark check`` as a student has it: in a folder without a course around it."""
    done = subprocess.run(
        [sys.executable, "-m", "softmark", "check"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    return done.returncode, done.stdout


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_new_topic_passes_verify_as_it_stands(folder: Path, tmp_path: Path) -> None:
    code, output = softmark(folder, "new", "05_first_try")
    assert code == 0, output
    text = (folder / "course.yaml").read_text(encoding="utf-8")
    line = "    - id: 05_first_try\n"
    assert text.replace(line, "") == COURSE
    assert f"# a Monday\n{line}" in text
    code, output = softmark(folder, "verify", "05_first_try", "--seed", "3", "--workers", "1")
    assert code == 0, output
    titles = [line[2:] for line in output.splitlines() if line.startswith("✓")]
    assert [line.split()[0] for line in output.splitlines() if line.startswith("✗")] == []
    for said in (
        "the variant",
        "shares_exchanged",
        "starts_from_zero",
        "a wrong answer",
        "1 pairs",
    ):
        assert any(title.startswith(said) for title in titles), said

    work = tmp_path / "my_try"
    shutil.copytree(folder / "starter" / "05_first_try", work)
    code, said = check(work)
    assert code == 1
    assert "step is still to be written" in said
    shutil.copy(folder / "solutions/05_first_try/first_try.py", work)
    code, said = check(work)
    assert code == 0, said


def test_a_new_topic_of_a_course_with_a_private_half(folder: Path, tmp_path: Path) -> None:
    """Solutions and graders land in the private repository, and all commands find them there."""
    private = tmp_path / "private"
    shutil.move(folder / "solutions", private / "solutions")
    shutil.move(folder / "autograder/graders", private / "graders")
    shutil.rmtree(folder / "autograder")
    with (folder / "course.yaml").open("a", encoding="utf-8") as file:
        file.write("private: ../private\n")
    code, output = softmark(folder, "new", "05_hidden")
    assert code == 0, output
    assert (private / "solutions/05_hidden/hidden.py").is_file()
    assert (private / "graders/05_hidden/test_hidden.py").is_file()
    assert not (folder / "solutions").exists() and not (folder / "autograder").exists()
    course = load_course(folder)
    assert starter_in_step(course, folder / "starter") == []
    code, output = softmark(folder, "verify", "05_hidden", "--seed", "3", "--workers", "1")
    assert code == 0, output
    submission, out = private / "solutions/05_hidden/hidden.py", tmp_path / "out"
    words = ["grade", str(submission), "--topic", "05_hidden", "--out", str(out), "--workers", "1"]
    code, output = softmark(folder, *words)
    assert code == 0, output
    assert "hidden,90,100,graded,0" in (out / "scores.csv").read_text(encoding="utf-8")
    code, output = softmark(folder, "build", "starter")
    assert code == 0 and not (folder / "solutions").exists(), output


def test_where_topics_stand_in_brackets_the_line_to_add_is_told(folder: Path) -> None:
    text = "title: A small course\ntopics: [{id: 00_small}]\n"
    (folder / "course.yaml").write_text(text, encoding="utf-8")
    code, output = softmark(folder, "new", "05_more")
    assert code == 0, output
    assert "- id: 05_more" in output
    assert (folder / "course.yaml").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "name, said",
    [
        ("00_small", "there already"),
        ("05 Words", "cannot be a topic"),
        ("../05_out", "cannot be a topic"),
        ("05", "Python cannot import"),
        ("05_class", "Python cannot import"),
        ("05_numpy", "the module numpy"),
        ("05_random", "the module random"),
        ("07_begun", "is there already"),
    ],
)
def test_a_name_that_cannot_be_a_topic_is_refused_and_nothing_written(
    folder: Path, name: str, said: str
) -> None:
    (folder / "assignments/07_begun").mkdir()
    before = tree(folder)
    code, output = softmark(folder, "new", name)
    assert code == 2
    assert said in " ".join(output.split())
    assert tree(folder) == before
