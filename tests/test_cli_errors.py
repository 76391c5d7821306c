"""Bad input to ``softmark grade``: one clear line that says where and what, and no traceback."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from softmark.cli import app
from typer.testing import CliRunner, Result

ROOT = Path(__file__).resolve().parents[1]
SUBMISSION = ROOT / "solutions/02_lstm/lstm.py"

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="grading starts on Linux only")


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A copy of the course, without hidden graders' code, to break."""
    folder = tmp_path / "course"
    for part in ("assignments", "solutions"):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, folder / part, ignore=skip)
    (folder / "autograder/graders/02_lstm").mkdir(parents=True)
    shutil.copy(ROOT / "course.yaml", folder)
    return folder


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def grade(course: Path, path: Path, *options: object, topic: str = "02_lstm") -> Result:
    where = ("--topic", topic, "--course", course)
    return run("grade", path, "--out", course / "out", *where, *options)


def message(result: Result, code: int = 2) -> str:
    """The one line on stderr of a run that ended with this exit code."""
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    line, end, rest = result.stderr.partition("\n")
    assert (end, rest) == ("\n", ""), result.stderr
    assert line.startswith("softmark: ")
    return line


def edit(path: Path, old: str, new: str) -> int:
    """Replace what stands once in a file; the number of its line."""
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path}"
    path.write_text(text.replace(old, new))
    return text[: text.index(old)].count("\n") + 1


# ---- the course's files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("ungraded: hold", "ungraded: perhaps", ["ungraded", "'hold'", "'renormalise'"]),
        ("ungraded: hold", "ungradet: hold", ["ungradet", "did you mean 'ungraded'?"]),
        ("ungraded: hold", "ungraded: hold: on", ["not valid YAML"]),
        ("  bonus: 0.05", "  bonus: a bit", ["tiers.bonus", "must be a number"]),
        ("  bonus: 0.05", "\tbonus: 0.05", ["a tab cannot indent"]),
        ("ungraded: hold", "private: nowhere", ["private", "nowhere"]),
    ],
)
def test_a_malformed_course_yaml(course, old, new, said):
    line = edit(course / "course.yaml", old, new)
    told = message(grade(course, SUBMISSION))
    assert told.startswith(f"softmark: course.yaml:{line}: "), told
    for words in said:
        assert words in told


@pytest.mark.parametrize(
    "old, new, said",
    [
        ('any shape", points: 4}', 'any shape", points: -4}', ["sigmoid.values.points", "-4"]),
        ('any shape", points: 4}', 'any shape", point: 4}', ["point", "did you mean 'points'?"]),
        ("worker: numpy", "worker: jax", ["worker", "'numpy'", "'torch'"]),
        ("files: [lstm.py, lstm_torch.py]", "files: []", ["files"]),
        ("hours: 6", "hours: six", ["hours", "must be a number"]),
        ("  sigmoid: {s: array}", "  sigmoid: {s: arry}", ["sigmoid", "arry"]),
        ("memory_mb: 1024", "memory_mb: lots", ["limits.memory_mb", "must be a whole number"]),
        ("  action: reject", "  action: expel", ["policy.action", "'flag'", "'reject'"]),
        ("worker: numpy", "worker: numpy: torch", ["not valid YAML"]),
    ],
)
def test_a_malformed_assignment_yaml(course, old, new, said):
    line = edit(course / "assignments/02_lstm/assignment.yaml", old, new)
    told = message(grade(course, SUBMISSION))
    assert told.startswith(f"softmark: assignments/02_lstm/assignment.yaml:{line}: "), told
    for words in said:
        assert words in told


def test_every_problem_of_a_file_has_its_line(course):
    path = course / "assignments/02_lstm/assignment.yaml"
    edit(path, "hours: 6", "hours: -6")
    edit(path, "worker: numpy", "worker: jax")
    result = grade(course, SUBMISSION)
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    assert all("assignment.yaml:" in line for line in lines)


@pytest.mark.parametrize(
    "missing",
    ["course.yaml", "assignments/02_lstm/assignment.yaml", "solutions", "autograder/graders"],
)
def test_a_part_of_the_course_that_is_missing(course, missing):
    path = course / missing
    path.unlink() if path.is_file() else shutil.rmtree(path)
    assert missing in message(grade(course, SUBMISSION))


def test_a_course_yaml_that_is_no_text(course):
    (course / "course.yaml").write_bytes(b"title: \xff\n")
    assert "course.yaml:1: byte 0xff is not UTF-8" in message(grade(course, SUBMISSION))


def test_no_course_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = message(run("grade", SUBMISSION, "--topic", "02_lstm", "--out", "out"))
    assert "no course.yaml here or in a folder above" in told
    assert not (tmp_path / "out").exists()


# ---- what was asked for ----------------------------------------------------------------------------


def test_an_unknown_topic(course):
    told = message(grade(course, SUBMISSION, topic="02_lstn"))
    assert "no topic '02_lstn'" in told
    assert "did you mean '02_lstm'?" in told


@pytest.mark.parametrize("topic", ["", "../02_lstm", "."])
def test_a_topic_that_is_no_name(course, topic):
    assert f"'{topic}'" in message(grade(course, SUBMISSION, topic=topic))


def test_a_missing_path(course, tmp_path):
    path = tmp_path / "not_here"
    assert str(path) in message(grade(course, path))


def test_an_empty_folder(course, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    told = message(grade(course, empty))
    assert str(empty) in told
    assert "nothing to grade" in told


def test_a_file_of_another_kind(course, tmp_path):
    path = tmp_path / "essay.docx"
    path.write_text("x")
    told = message(grade(course, path))
    assert str(path) in told
    assert ".ipynb" in told


def test_two_submissions_with_one_id(course, tmp_path):
    folder = tmp_path / "class"
    folder.mkdir()
    for name in ("7.py", "7.ipynb"):
        (folder / name).write_text("x = 1")
    told = message(grade(course, folder))
    assert "7.py" in told
    assert "7.ipynb" in told


def test_an_unknown_tier(course):
    told = message(grade(course, SUBMISSION, "--isolation", "total"))
    assert "--isolation: 'total'" in told
    assert all(tier in told for tier in ("root", "userns", "container", "plain", "none"))


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", "1/2/3", "", "²/2"])
def test_a_bad_shard(course, shard):
    told = message(grade(course, SUBMISSION, "--shard", shard))
    assert f"--shard: '{shard}'" in told


@pytest.mark.parametrize(
    "option, value", [("--workers", "0"), ("--workers", "two"), ("--seed", "-1"), ("--sed", "1")]
)
def test_an_option_out_of_range(course, option, value):
    result = grade(course, SUBMISSION, option, value)
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 2
    assert option in result.stderr
    assert "Traceback" not in result.stderr


# ---- where results go ------------------------------------------------------------------------------


def a_file(folder: Path) -> Path:
    (folder / "out").write_text("in the way")
    return folder / "out"


def in_a_file(folder: Path) -> Path:
    return a_file(folder) / "results"


def results_is_a_file(folder: Path) -> Path:
    (folder / "out").mkdir()
    (folder / "out/results").write_text("in the way")
    return folder / "out"


def not_writable(folder: Path) -> Path:
    return Path("/proc/softmark")  # for root too


@needs_linux
@pytest.mark.parametrize("out", [a_file, in_a_file, results_is_a_file, not_writable])
def test_an_output_folder_that_cannot_be(course, tmp_path, out: Callable[[Path], Path]):
    place = out(tmp_path)
    result = grade(course, SUBMISSION, "--out", place)
    told = message(result, code=3 if result.exit_code == 3 else 2)
    assert str(place) in told
    assert SUBMISSION.exists()


# ---- the other commands ----------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["verify", "02_lstm"], ["build", "starter"]])
def test_other_commands_name_the_line_too(course, command):
    line = edit(course / "assignments/02_lstm/assignment.yaml", "hours: 6", "hours: six")
    result = run(*command, "--course", course)
    told = message(result)
    assert told.startswith(f"softmark: assignments/02_lstm/assignment.yaml:{line}: hours: ")


def test_checking_a_topic_that_is_not_there(course, monkeypatch):
    monkeypatch.chdir(course)
    assert "09_none" in message(run("check", "09_none"))
