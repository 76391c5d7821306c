"""``softmark pack``: the .zip that is handed in, and what is said of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from softmark.cli import app
from softmark.course import Topic, load_topic
from softmark.intake import read_submission
from softmark.pack import functions, pack
from softmark.student import HandInError
from typer.testing import CliRunner, Result

ROOT = Path(__file__).resolve().parent.parent

ASSIGNMENT = """
title: Small
hours: 1
files: [small.py, small_torch.py]
rubric:
  half: {title: Half, points: 2}
  twin.half: {title: Half in PyTorch, points: 3, tier: extension}
  twin.more: {title: More in PyTorch, points: 1, tier: bonus}
calls:
  half: {h: array}
  Third: {}
  Third.of: {t: array}
policy: {forbid: {scipy: "NumPy is enough here"}}
twin:
  file: small_torch.py
  calls: {half_torch: {h: array}}
  forbid: {torch.nn: "two tensors are enough here"}
"""
QUESTIONS = """
questions:
  how_many: {title: How many, ask: "How many?", points: 1, number: {within: 0.01}}
  which_one: {title: Which one, ask: "Which one?", points: 2, choices: {a: This, b: That}}
"""
MAIN = '''"""Halves and thirds."""


def half(x):
    return x / 2


class Third:
    def of(self, x):
        raise NotImplementedError("Third.of")
'''
TWIN = "import torch\n\n\ndef half_torch(x):\n    raise NotImplementedError('half_torch')\n"
ANSWERS = "how_many: 3\nwhich_one:\n"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A student's folder, half done."""
    folder = tmp_path / "a course" / "small"
    folder.mkdir(parents=True)
    files = {
        "assignment.yaml": ASSIGNMENT,
        "questions.yaml": QUESTIONS,
        "test_public.py": "",
        "small.py": MAIN,
        "small_torch.py": TWIN,
        "answers.yaml": ANSWERS,
        "notes.txt": "my own",
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return folder


@pytest.fixture
def topic(small: Path) -> Topic:
    return load_topic(small)


@pytest.fixture
def here(small: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, and this process in it."""
    monkeypatch.chdir(small)
    return small


def softmark(*words: str) -> Result:
    result = CliRunner().invoke(app, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def one_line(text: str) -> str:
    """Without the breaks that a terminal's width makes."""
    return " ".join(text.split())


# ---- the zip -----------------------------------------------------------------------------------


def test_it_holds_what_may_be_handed_in_and_nothing_else(topic: Topic) -> None:
    packed = pack(topic)
    assert packed.path == topic.folder / "small.zip"
    with zipfile.ZipFile(packed.path) as archive:
        contents = {name: archive.read(name).decode() for name in archive.namelist()}
    assert contents == {"small.py": MAIN, "small_torch.py": TWIN, "answers.yaml": ANSWERS}


def test_the_grader_reads_the_same_in_it_as_in_the_folder(topic: Topic) -> None:
    packed = pack(topic)
    read = read_submission(packed.path, topic)
    (packed.path).unlink()
    folder = read_submission(topic.folder, topic)
    assert packed.submission.status == "ready"
    assert packed.submission.files == read.files == folder.files
    assert packed.submission.digest == read.digest == folder.digest


def test_the_same_files_give_the_same_bytes(topic: Topic, tmp_path: Path) -> None:
    first = pack(topic).path.read_bytes()
    other = tmp_path / "elsewhere" / "small"
    shutil.copytree(topic.folder, other)
    (other / "small.zip").unlink()
    for path in other.iterdir():
        path.chmod(0o600)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    assert pack(load_topic(other)).path.read_bytes() == first
    (other / "small.py").write_text(MAIN.replace("x / 2", "x / 3"), encoding="utf-8")
    assert pack(load_topic(other)).path.read_bytes() != first


def test_line_ends_of_windows_are_read_the_same(topic: Topic) -> None:
    digest = pack(topic).submission.digest
    for name in topic.handed_in:
        text = (topic.folder / name).read_text(encoding="utf-8")
        (topic.folder / name).write_text(text, encoding="utf-8", newline="\r\n")
    assert pack(topic).submission.digest == digest


def test_only_what_is_there_is_packed(topic: Topic) -> None:
    (topic.folder / "small_torch.py").unlink()
    (topic.folder / "answers.yaml").unlink()
    with zipfile.ZipFile(pack(topic).path) as archive:
        assert archive.namelist() == ["small.py"]


def test_an_earlier_zip_is_replaced(here: Path) -> None:
    assert "replaced" not in softmark("pack").stdout
    before = (here / "small.zip").read_bytes()
    (here / "small.py").write_text(MAIN.replace("x / 2", "x * 0.5"), encoding="utf-8")
    assert "replaced" in softmark("pack").stdout
    assert (here / "small.zip").read_bytes() != before


@pytest.mark.skipif(sys.platform == "win32", reason="a file that is open stays there")
def test_the_earlier_zip_is_whole_until_the_new_one_is(topic: Topic) -> None:
    path = pack(topic).path
    before = path.read_bytes()
    with path.open("rb") as reader:
        (topic.folder / "small.py").write_text("half = Third = print\n", encoding="utf-8")
        pack(topic)
        assert reader.read() == before != path.read_bytes()


@pytest.mark.parametrize("what", ["text", "zip", "folder"])
def test_something_else_of_that_name_is_left_alone(topic: Topic, what: str) -> None:
    path = topic.folder / "small.zip"
    if what == "folder":
        path.mkdir()
    elif what == "text":
        path.write_text("not a zip", encoding="utf-8")
    else:  # a starter, as a course hands it out
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("small.py", "handout.md"):
                archive.writestr(name, "x = 1\n")
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(HandInError, match="move it elsewhere"):
        pack(topic)
    assert before == (path.read_bytes() if path.is_file() else None)


# ---- what is refused ---------------------------------------------------------------------------


REFUSED = {
    "no file": (None, ["no small.py"]),
    "empty": ("\n", ["small.py is empty"]),
    "no Python": (f"{MAIN}\ndef third(:\n", ["small.py, line 12", "not Python"]),
    "forbidden": ("import numpy\nimport scipy.special\n", ["line 2 uses scipy", "NumPy is enough"]),
}


@pytest.mark.parametrize("text, said", REFUSED.values(), ids=REFUSED)
def test_what_could_not_be_graded_is_refused(here: Path, text: str | None, said: list[str]) -> None:
    softmark("pack")
    before = (here / "small.zip").read_bytes()
    (here / "small.py").unlink()
    if text is not None:
        (here / "small.py").write_text(text, encoding="utf-8")
    names = sorted(path.name for path in here.iterdir())
    done = softmark("pack")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert all(words in one_line(done.stderr) for words in said), done.stderr
    assert (here / "small.zip").read_bytes() == before
    assert sorted(path.name for path in here.iterdir()) == names


def test_outside_a_topic_it_says_where_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = softmark("pack")
    assert done.exit_code == 2
    assert "assignment.yaml" in done.stderr


# ---- what is shown -----------------------------------------------------------------------------


def test_it_shows_what_will_be_graded(here: Path) -> None:
    done = softmark("pack")
    assert done.exit_code == 0
    said = one_line(done.stdout)
    assert "small.py 0.1 kB 2 functions, 1 still to be written: Third.of" in said
    assert re.search(r"small_torch\.py 0\.1 kB 1 function, .*still to be written", said)
    assert "answers.yaml 0.0 kB 1 of 2 questions answered" in said
    assert str(here / "small.zip") in done.stdout
    digest = read_submission(here / "small.zip", load_topic(here)).digest
    assert f"Receipt {digest[:12]}:" in said


def test_it_works_from_the_folder_above(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small.parent)
    done = softmark("pack", "small")
    assert done.exit_code == 0
    assert str(small / "small.zip") in done.stdout
    assert (small / "small.zip").exists()


def test_what_is_missing_and_what_that_costs(here: Path) -> None:
    (here / "small_torch.py").unlink()
    (here / "answers.yaml").unlink()
    said = one_line(softmark("pack").stdout)
    assert (
        "small_torch.py not there: costs 3 points of the extension and 1 point of the bonus" in said
    )
    assert "answers.yaml not there: costs 3 points of the core" in said


WARNED = {
    "answers": ({"answers.yaml": "how_many: a few\n"}, ["how_many: 'a few' is not a number"]),
    "answers in Word": (
        {"answers.yaml": b"\xd0\xcf\x11\xe0"},
        ["answers.yaml is not YAML"],
    ),
    "import": ({"small.py": MAIN + "import nowhere_to_be_found\n"}, ["nowhere_to", "line 11"]),
    "a helper that is not handed in": (
        {"small.py": "import helper\n" + MAIN, "helper.py": "x = 1\n"},
        ["No module named 'helper'", "line 1"],
    ),
    "exit": ({"small.py": MAIN + "raise SystemExit\n"}, ["small.py cannot be imported"]),
    "names": ({"small.py": "def halve(x):\n    return x / 2\n"}, ["no half, no Third"]),
    "twin is no Python": ({"small_torch.py": "def half_torch(:\n"}, ["small_torch.py, line 1"]),
    "twin's own rules": (
        {"small_torch.py": "import torch.nn\n" + TWIN},
        ["line 1 uses torch.nn", "Nothing of this file"],
    ),
}


@pytest.mark.parametrize("files, said", WARNED.values(), ids=WARNED)
def test_a_warning_is_no_refusal(
    here: Path, files: dict[str, str | bytes], said: list[str]
) -> None:
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (here / name).write_bytes(data)
    done = softmark("pack")
    assert done.exit_code == 0
    assert all(words in one_line(done.stdout) for words in said), done.stdout
    assert (here / "small.zip").exists()


def test_a_file_in_order_gives_no_warning(topic: Topic) -> None:
    assert pack(topic).warnings == ()


@pytest.mark.parametrize(
    "source, count, unwritten",
    [
        ("def f():\n    raise NotImplementedError\n", 1, ["f"]),
        ("async def f():\n    if x:\n        raise NotImplementedError('mask')\n", 1, ["f"]),
        ("def f():\n    raise ValueError('NotImplementedError')\n", 1, []),
        ("class A:\n    class B:\n        def f(self):\n            raise\n", 1, []),
        ("class A:\n    def f(self):\n        raise NotImplementedError()\n", 1, ["A.f"]),
        ("def f():\n    def g():\n        raise NotImplementedError\n    g()\n", 1, ["f"]),
        ("not Python", 0, []),
    ],
)
def test_functions_that_are_still_to_be_written(
    source: str, count: int, unwritten: list[str]
) -> None:
    found = functions(source)
    assert (found.count, list(found.unwritten)) == (count, unwritten)


@pytest.mark.skipif(sys.platform != "linux", reason="hidden grading needs Linux")
def test_the_digest_is_the_one_that_a_result_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "02_lstm"
    shutil.copytree(ROOT / "starter" / "02_lstm", folder)
    monkeypatch.chdir(folder)
    said = softmark("pack").stdout
    out = tmp_path / "out"
    where = ("--topic", "02_lstm", "--course", str(ROOT), "--out", str(out), "--isolation", "none")
    graded = softmark("grade", "02_lstm.zip", *where)
    assert graded.exit_code == 0, graded.output
    text = (out / "results" / "02_lstm.json").read_text(encoding="utf-8")
    (digest,) = re.findall(r'"digest": "(\w+)"', text)
    assert f"Receipt {digest[:12]}:" in said


def test_what_was_written_in_the_notebook_beside_it_is_packed(tmp_path):
    folder = tmp_path / "02_lstm"
    shutil.copytree(ROOT / "starter" / "02_lstm", folder)
    solution = (ROOT / "solutions" / "02_lstm" / "lstm.py").read_text()
    notebook = json.loads((folder / "lstm.ipynb").read_text())
    cell = {"cell_type": "code", "source": solution, "metadata": {}, "outputs": []}
    (folder / "lstm.ipynb").write_text(json.dumps({**notebook, "cells": [cell]}))
    packed = pack(load_topic(folder))
    assert "NotImplementedError" not in packed.submission.files["lstm.py"]
    assert any("lstm.ipynb" in warning for warning in packed.warnings)
