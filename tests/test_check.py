"""``softmark check``: what a student sees, from the untouched stub to the finished file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from softmark.builders.starter import stub

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "02_lstm"
REFERENCE = (ROOT / "solutions" / TOPIC / "lstm.py").read_text(encoding="utf-8")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A student's copy of the starter."""
    shutil.copytree(ROOT / "starter" / TOPIC, tmp_path / TOPIC)
    return tmp_path / TOPIC


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "softmark", "check", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_stub_is_told_what_comes_first(work: Path) -> None:
    done = check(work)
    assert done.returncode == 1
    assert "sigmoid is still to be written" in done.stdout
    assert "python -m pytest test_public.py::" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_the_finished_file_passes_from_the_folder_above(work: Path) -> None:
    (work / "lstm.py").write_text(REFERENCE, encoding="utf-8")
    done = check(work.parent, TOPIC)
    assert done.returncode == 0, done.stdout
    assert "public tests pass" in done.stdout


def test_a_wrong_gradient_is_shown_with_its_name(work: Path) -> None:
    assert REFERENCE.count("dc * f") == 1
    (work / "lstm.py").write_text(REFERENCE.replace("dc * f", "-dc * f"), encoding="utf-8")
    done = check(work)
    assert done.returncode == 1
    assert "dc_prev" in done.stdout
    assert "sign" in done.stdout


def test_a_syntax_error_names_its_line(work: Path) -> None:
    broken = stub(REFERENCE, "lstm.py") + "\ndef half(:\n"
    (work / "lstm.py").write_text(broken, encoding="utf-8")
    done = check(work)
    assert done.returncode == 1
    assert "lstm.py" in done.stdout and "def half(:" in done.stdout


def test_an_exception_names_the_student_s_line(work: Path) -> None:
    wrong = REFERENCE.replace("dc * f", "dc * undefined_name")
    (work / "lstm.py").write_text(wrong, encoding="utf-8")
    done = check(work)
    assert "NameError" in done.stdout and "undefined_name" in done.stdout


def test_outside_a_topic_it_says_where_to_go(tmp_path: Path) -> None:
    done = check(tmp_path)
    assert done.returncode == 2
    assert "assignment.yaml" in done.stderr and "Traceback" not in done.stderr


def test_a_misspelt_topic_is_suggested(work: Path) -> None:
    done = check(work.parent, "02_lst")
    assert done.returncode == 2
    assert "did you mean '02_lstm'?" in done.stderr


def test_plain_pytest_does_the_same(work: Path) -> None:
    (work / "lstm.py").write_text(REFERENCE, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_it_needs_nothing_that_only_linux_has(work: Path) -> None:
    """As on Windows and macOS: neither the command nor the pytest plugin loads the sandbox."""
    (work / "lstm.py").write_text(REFERENCE, encoding="utf-8")
    blocked = "import sys; sys.modules.update(dict.fromkeys(['fcntl', 'resource', 'pyseccomp']))\n"
    grade = ["grade", "lstm.py", "--topic", TOPIC, "--out", "out", "--course", str(ROOT)]
    app = "from softmark.cli import app; "
    for run, code in (
        (f"{app}app(['check'])", 0),
        ("import pytest; raise SystemExit(pytest.main(['-q', '-p', 'no:cacheprovider']))", 0),
        (f"{app}sys.platform = 'darwin'; app(['doctor'])", 0),
        (f"{app}sys.platform = 'darwin'; app({grade})", 2),
    ):
        command = [sys.executable, "-c", blocked + run]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
