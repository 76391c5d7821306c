"""``softmark release``: what students get, and that nothing private is ever among it."""

from __future__ import annotations

import base64
import bz2
import gzip
import html
import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from softmark.cli import app
from softmark.course import load_course
from softmark.leaks import Private, leaks_in, private_part
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "02_lstm"
SOLUTION = "return np.where(z >= 0, 1, e) / (1 + e)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A course of the one topic 02_lstm, with all that a course has."""
    course = tmp_path / "course"
    for place in ("assignments", "solutions", "autograder/graders"):
        skip = shutil.ignore_patterns("__pycache__", ".pytest_cache")
        shutil.copytree(ROOT / place / TOPIC, course / place / TOPIC, ignore=skip)
    write_yaml(course, "  - id: 02_lstm\n")
    (course / "docs").mkdir()
    for name in ("constraints.txt", "LICENSE", "docs/student.md"):
        shutil.copy(ROOT / name, course / name)
    return course


def write_yaml(course: Path, topics: str, more: str = "") -> None:
    text = f"title: One topic\n{more}topics:\n{topics}"
    (course / "course.yaml").write_text(text, encoding="utf-8")


def release(folder: Path, out: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["release", str(out), "--course", str(folder), *options])
    return done.exit_code, " ".join(done.output.split())


def names(out: Path) -> set[str]:
    with zipfile.ZipFile(out) as archive:
        return {name.removeprefix("course/") for name in archive.namelist()}


# ---- what is in it -------------------------------------------------------------------------------


def test_it_holds_the_starter_the_engine_and_nothing_that_is_not_listed(
    folder: Path, tmp_path: Path
) -> None:
    public = folder / "assignments" / TOPIC
    for name in ("notes.md", "answers.yaml", "lstm.py", "test_hidden.py", "old/test_public.py"):
        (public / name).parent.mkdir(exist_ok=True)
        (public / name).write_text("not for students\n", encoding="utf-8")
    (folder / "docs/instructor.md").write_text("not for students\n", encoding="utf-8")
    out = tmp_path / "a.zip"
    code, said = release(folder, out)
    assert (code, said.split()[-1]) == (0, TOPIC)
    there = names(out)
    (wheel,) = [name for name in there if name.endswith(".whl")]
    starter = ["answers.yaml", "assignment.yaml", "decay.svg", "handout.md", "lstm.ipynb"]
    starter += ["lstm.py", "lstm_torch.py", "questions.yaml", "test_public.py"]
    starter += ["test_public_torch.py"]
    assert there == {
        *("README.md", "LICENSE", "constraints.txt", "docs/student.md", "pyproject.toml"),
        *("engine/from_wheel.py", wheel),
        *(f"starter/{TOPIC}/{name}" for name in starter),
    }
    with zipfile.ZipFile(out) as archive:
        readme = archive.read("course/README.md").decode()
        assert "pip install -c constraints.txt ." in readme and "cp -r starter/02_lstm" in readme
        assert b"not for students" not in b"".join(map(archive.read, archive.namelist()))
        engine = zipfile.ZipFile(io.BytesIO(archive.read(f"course/{wheel}"))).namelist()
    assert {"softmark/cli.py", "softmark/check.py"} <= set(engine)


@pytest.mark.slow
def test_the_same_course_makes_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    assert release(folder, first)[0] == 0
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved, copy_function=shutil.copyfile)  # with other times and modes
    assert release(moved, second, "--topic", TOPIC, "--date", "2030-01-01")[0] == 0
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    "options, code, said",
    [
        (("--date", "2026-10-04"), 2, "no topic is open on 2026-10-04"),
        (("--date", "2026-10-04", "--topic", TOPIC), 2, "02_lstm opens 2026-10-05"),
        (("--topic", "02_lstn"), 2, "did you mean '02_lstm'?"),
        (("--date", "soon"), 2, "does not match"),
    ],
)
def test_what_is_not_open_is_not_released(
    folder: Path, tmp_path: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    write_yaml(folder, "  - {id: 02_lstm, opens: 2026-10-05, due: 2026-10-19}\n")
    out = tmp_path / "a.zip"
    done = release(folder, out, *options)
    assert done[0] == code and said in done[1]
    assert not out.exists()


def test_the_name_of_the_archive_ends_in_zip(folder: Path, tmp_path: Path) -> None:
    assert release(folder, tmp_path / "students") == (
        2,
        f"softmark: {tmp_path / 'students'}: must end in .zip",
    )


@pytest.mark.slow
def test_a_private_half_elsewhere_is_searched_as_well(folder: Path, tmp_path: Path) -> None:
    private = tmp_path / "private"
    shutil.move(folder / "solutions", private / "solutions")
    shutil.move(folder / "autograder/graders", private / "graders")
    write_yaml(folder, "  - id: 02_lstm\n", "private: ../private\n")
    out = tmp_path / "a.zip"
    assert release(folder, out)[0] == 0
    before = out.read_bytes()
    with (folder / "docs/student.md").open("a", encoding="utf-8") as file:
        file.write(f"\n    {SOLUTION}\n")
    code, said = release(folder, out)
    assert code == 2 and "docs/student.md:" in said and "solutions/02_lstm/lstm.py" in said
    assert out.read_bytes() == before
    assert list(tmp_path.glob(".*")) == []


# ---- what must not be in it ----------------------------------------------------------------------

PLANTED = {
    "a line of the solution": ("lstm.py", SOLUTION),
    "a line of a variant": (
        "variants/einsum_closures/lstm.py",
        'projected = np.einsum("ntd,dk->tnk", x, W[:D]) + b',
    ),
    "a line of a hidden test": (
        "test_sigmoid.py",
        "for shape in [(), (1,), (7,), (3, 5), (2, 3, 4), (2, 1, 3, 2)]:",
    ),
    "two short lines of a hidden test": (
        "test_step.py",
        "for cell, cache, dh, dc in done:\n        cell.backward(dh, dc, cache)",
    ),
    "a line of a mistake": ("mistakes.yaml", "return 1 / (1 + np.exp(-np.clip(z, -500, 500)))"),
    "the hint of a mistake": (
        "mistakes.yaml",
        "Clipping z hides the overflow, but leaves a small remainder where exactly 0 is asked for. A "
        "form that cannot overflow needs no clipping.",
    ),
    "a line of a hint": (
        "mistakes.yaml",
        "numbers. Look for a form that takes exp of one array whose entries are never positive.",
    ),
    "an answer, less exact": ("answers.yaml", "half_after_100: 4.97"),
    "a choice": ("answers.yaml", "cell_of_1997 = (C)"),
    "a reason for a mutant": (
        "equivalents.yaml",
        "reason: a normal of mean 0 is symmetric, and which draw becomes which entry is free",
    ),
}
"""What is planted, and the private file that it should be said to be of."""


def notebook(text: str, output: bool = False) -> bytes:
    source = [] if output else text.splitlines(keepends=True)
    outputs = [{"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}]
    cell = {
        "cell_type": "code",
        "metadata": {},
        "execution_count": 1,
        "source": source,
        "outputs": outputs if output else [],
    }
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4}, indent=1).encode()


def zipped(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/picture.svg", data)
    return out.getvalue()


def tarred(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("notes")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


AROUND = "Some text before, ä.\n\n{}\nand some after.\n"
BOXES: dict[str, Callable[[str], bytes]] = {
    "plain": lambda text: AROUND.format(text).encode(),
    "indented": lambda text: AROUND.format(textwrap.indent(text, "\t   ")).encode(),
    "a comment": lambda text: AROUND.format(textwrap.indent(text, "  # ")).encode(),
    "lines ended as on Windows": lambda t: AROUND.format(t).replace("\n", "\r\n").encode(),
    "broken into short lines": lambda text: "\n".join(textwrap.wrap(text, 20)).encode(),
    "a byte order mark": lambda text: AROUND.format(text).encode("utf-8-sig"),
    "Latin-1": lambda text: AROUND.format(text).encode("latin-1", "replace"),
    "UTF-16": lambda text: AROUND.format(text).encode("utf-16"),
    "UTF-16, big end first, no mark": lambda text: AROUND.format(text).encode("utf-16-be"),
    "UTF-32": lambda text: AROUND.format(text).encode("utf-32"),
    "HTML": lambda text: f"<pre>{html.escape(text)}</pre>".encode(),
    "a notebook's source": notebook,
    "a notebook's output": lambda text: notebook(text, output=True),
    "a string in source code": lambda text: f"TEXT = {json.dumps(text)}\n".encode(),
    "a notebook in a notebook": lambda text: notebook(notebook(text).decode()),
    "base64": lambda text: b"<img src='data:;base64," + base64.b64encode(text.encode()) + b"'>",
    "gzip": lambda text: gzip.compress(AROUND.format(text).encode()),
    "bzip2": lambda text: bz2.compress(AROUND.format(text).encode()),
    "xz": lambda text: lzma.compress(AROUND.format(text).encode()),
    "a zip": lambda text: zipped(AROUND.format(text).encode()),
    "a zip in a tar.gz in a zip": lambda t: zipped(gzip.compress(tarred(zipped(t.encode())))),
    "a notebook in a zip": lambda text: zipped(notebook(text)),
}


@pytest.fixture(scope="module")
def private() -> Private:
    course = load_course(ROOT)
    return private_part(course, course.topic(TOPIC))


@pytest.mark.parametrize("kind", PLANTED)
def test_it_is_found_whatever_it_is_wrapped_in(private: Private, kind: str) -> None:
    file, text = PLANTED[kind]
    for box, wrap in BOXES.items():
        if box == "broken into short lines" and file == "answers.yaml":
            continue  # a name without its answer is no leak
        found = [str(leak) for leak in leaks_in("some_name", wrap(text), private)]
        assert any(file in leak for leak in found), f"{box}: {text!r}: {found}"
        assert all(leak.startswith("some_name") for leak in found)


@pytest.mark.parametrize("box", BOXES)
def test_what_students_get_anyway_is_no_leak(private: Private, box: str) -> None:
    for name in ("lstm.py", "handout.md", "test_public.py", "questions.yaml", "answers.yaml"):
        text = (ROOT / "starter" / TOPIC / name).read_text("utf-8")
        assert leaks_in("some_name", BOXES[box](text), private) == []


def test_the_line_is_named(private: Private) -> None:
    text = f"one\n\ntwo\n   {SOLUTION.replace(' ', '')}  # here\n"
    assert list(map(str, leaks_in("a.md", text.encode(), private))) == [
        "a.md:4 holds a line of the private solutions/02_lstm/lstm.py"
    ]
    longer = "cell.{}\n".format(PLANTED["a line of a variant"][1])  # an attribute, another thing
    assert leaks_in("a.md", longer.encode(), private) == []
    assert leaks_in("a.md", b"cell_of_1997: b\n", private) == []  # and is not the answer


@pytest.mark.parametrize(
    "place",
    ["handout.md", "test_public.py", "test_public_more.py", "more.svg", "questions.yaml"],
)
def test_what_is_planted_anywhere_stops_the_release(
    folder: Path, tmp_path: Path, place: str
) -> None:
    """Also the solution under the name of a figure, and as one more public test."""
    path = folder / "assignments" / TOPIC / place
    if path.exists():
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n# {SOLUTION}\n")
    else:
        shutil.copy(folder / "solutions" / TOPIC / "lstm.py", path)
    out = tmp_path / "a.zip"
    code, said = release(folder, out)
    assert code == 2 and f"starter/02_lstm/{place}:" in said
    assert "holds a line of the private solutions/02_lstm/lstm.py" in said
    assert not out.exists()


LATER = """
import numpy as np

def given(z):
    e = np.exp(-np.abs(z))  # in (0, 1]: never overflows
    return np.where(z >= 0, 1, e) / (1 + e)

def wanted(z):
    # BEGIN SOLUTION
    return given(z)
    # END SOLUTION
"""


def test_a_topic_that_gives_another_away_waits_for_its_due_date(
    folder: Path, tmp_path: Path
) -> None:
    write_yaml(folder, "  - {id: 02_lstm, due: 2026-10-19}\n")
    assert CliRunner().invoke(app, ["new", "05_later", "--course", str(folder)]).exit_code == 0
    (folder / "solutions/05_later/later.py").write_text(LATER, encoding="utf-8")
    (folder / "solutions/05_later/mistakes.yaml").unlink()
    out = tmp_path / "a.zip"
    code, said = release(folder, out, "--date", "2026-10-19")
    assert code == 2 and "starter/05_later/later.py:" in said
    assert "02_lstm/lstm.py, which can be handed in until 2026-10-19" in said
    code, said = release(folder, out, "--date", "2026-10-19", "--topic", TOPIC)
    assert code == 0, said
    assert release(folder, out, "--date", "2026-10-20")[0] == 0
    # what the later topic does not give stays private
    with (folder / "docs/student.md").open("a", encoding="utf-8") as file:
        file.write("\n    cell_of_1997: c\n")
    assert release(folder, out, "--date", "2026-10-20")[0] == 2


# ---- what students do with it --------------------------------------------------------------------


def python(folder: Path, *words: str, **variables: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        words,
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def unpacked(tmp_path: Path) -> Path:
    assert release(ROOT, tmp_path / "a.zip", "--topic", TOPIC)[0] == 0
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path / "course"


def check_stub_and_solution(course: Path, command: list[str], **variables: str) -> None:
    code, said = python(course / "starter", *command, "check", TOPIC, **variables)
    assert code == 1 and "sigmoid is still to be written" in said, said
    shutil.copy(ROOT / "solutions" / TOPIC / "lstm.py", course / "starter" / TOPIC)
    code, said = python(course / "starter", *command, "check", TOPIC, **variables)
    assert code == 0 and "All done" in said, said


@pytest.mark.slow
def test_it_is_installed_without_an_index_and_checks_stub_and_solution(tmp_path: Path) -> None:
    course, target = unpacked(tmp_path), tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    install += ["--no-index", "--no-deps", "--target", str(target), "."]
    code, said = python(course, *install)
    assert code == 0, said
    variables = {"PYTHONPATH": str(target), "PYTHONSAFEPATH": "1"}
    where = "import softmark; print(softmark.__file__)"
    code, said = python(course, sys.executable, "-c", where, **variables)
    assert said.strip() == str(target / "softmark" / "__init__.py")
    check_stub_and_solution(course, [sys.executable, "-m", "softmark"], **variables)


@pytest.mark.slow  # asks a package index once
def test_in_an_empty_environment_only_the_dependencies_are_asked_for(tmp_path: Path) -> None:
    course, house = unpacked(tmp_path), tmp_path / "wheels"
    needed = "import importlib.metadata as m; print('\\n'.join(m.requires('softmark')))"
    code, said = python(ROOT, sys.executable, "-c", needed)
    base = [line for line in said.splitlines() if "extra ==" not in line]
    download = [sys.executable, "-m", "pip", "download", "-q", "--dest", str(house), *base]
    code, said = python(course, *download, "--constraint", "constraints.txt")
    if code:
        pytest.skip(f"the dependencies cannot be had here: {said[-200:]}")
    assert python(course, sys.executable, "-m", "venv", ".venv")[0] == 0
    scripts = course / ".venv" / ("Scripts" if os.name == "nt" else "bin")
    install = [str(scripts / "python"), "-m", "pip", "install", "--no-index"]
    install += ["--find-links", str(house), "-c", "constraints.txt", "."]
    code, said = python(course, *install)
    assert code == 0, said
    check_stub_and_solution(course, [str(scripts / "softmark")])
