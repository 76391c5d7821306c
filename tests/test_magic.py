"""``%softmark check``: what it tests is what a notebook defines now, and never what it once did."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from softmark.builders.notebook import student_notebook
from softmark.course import load_course

pytest.importorskip("IPython", reason="notebooks need IPython, which the base install has not")

ROOT = Path(__file__).resolve().parent.parent

DRIVER = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

config = Config()
config.HistoryManager.enabled = False
shell = InteractiveShell.instance(config=config)
sys.stderr = sys.stdout
for id, source in json.load(sys.stdin):
    print(f"--- {id}", flush=True)
    shell.run_cell(source, store_history=True, cell_id=id or None)
"""

ASSIGNMENT = """
title: Small
hours: 1
files: [small.py, small_torch.py]
rubric:
  half: {title: Half, points: 2}
calls:
  half: {h: array}
  third: {t: array}
policy: {forbid: {torch: "NumPy is enough here"}}
twin:
  file: small_torch.py
  calls: {half_torch: {h: array}}
"""
TESTS = '''
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import small


def test_half():
    """Half of 4."""
    assert small.half(4) == 2, f"half(4) is {small.half(4)}"


def test_third():
    """A third of 6."""
    assert small.third(6) == 2, f"third(6) is {small.third(6)}"
'''
TWIN_TESTS = '''
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from small_torch import half_torch


def test_half_in_pytorch():
    """Half of 4, once more."""
    assert half_torch(4) == 2, f"half_torch(4) is {half_torch(4)}"
'''
STUB = """
def half(x):
    raise NotImplementedError("half")


def third(x):
    raise NotImplementedError("third")
"""
HALF, THIRD = "def half(x):\n    return x / 2", "def third(x):\n    return x / 3"
CHECK = ("check", "%softmark check")
LOAD = ("load", "%load_ext softmark")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A student's folder of a small topic."""
    folder = tmp_path / "my_small"
    folder.mkdir()
    for name, text in {
        "assignment.yaml": ASSIGNMENT,
        "test_public.py": TESTS,
        "test_public_torch.py": TWIN_TESTS,
        "small.py": STUB,
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def run(folder: Path, *cells: tuple[str, str], **variables: str) -> list[str]:
    """What each of these cells, (id, source), prints in an IPython started in the folder. A cell of
    the same id is the same cell, run again."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        cwd=folder,
        input=json.dumps(cells),
        env={
            **os.environ,
            "PYTHONIOENCODING": "utf-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            **variables,
        },
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    said = done.stdout.split("--- ")[1:]
    assert len(said) == len(cells), done.stdout + done.stderr
    return [text.partition("\n")[2] for text in said]


def test_it_tests_the_cells_as_they_were_last_run(work: Path) -> None:
    """Right, then made wrong, then right again, in one kernel; its message names the cell's line."""
    wrong = "import math\n\ndef half(x):\n    return math.nothing(x)"
    said = run(work, LOAD, ("a", HALF), ("b", THIRD), ("a", wrong), CHECK, ("a", HALF), CHECK)
    assert "small.py, as it stands in the cells of this notebook" in said[4]
    assert "AttributeError" in said[4] and "in In [4], line 4: return math.nothing(x)" in said[4]
    assert "1 pass, 1 fail" in said[4]
    assert "Just this one" not in said[4]
    assert "All done: 2 pass" in said[6]


def test_nothing_that_the_kernel_remembers_helps(work: Path) -> None:
    """Of a helper that was renamed the old name is no more, though the kernel still knows it."""
    said = run(
        work,
        LOAD,
        ("a", "two = 2\ndef by(x, n):\n    return x / n"),
        ("b", "def half(x):\n    return by(x, two)"),
        ("c", THIRD),
        ("a", "two = 2\ndef divided(x, n):\n    return x / n"),
        ("x", "print(half(4))"),
        CHECK,
    )
    assert said[5].strip() == "2.0"
    assert "NameError: name 'by' is not defined" in said[6] and "1 pass, 1 fail" in said[6]


def test_what_students_try_is_not_run(work: Path) -> None:
    """Cells that raise, are no Python, or end it stop nothing and count for nothing."""
    said = run(
        work,
        LOAD,
        ("a", HALF),
        ("t", "half(1) / 0"),
        ("u", "x = open('no such file')"),
        ("w", "def broken(:"),
        ("x", "raise SystemExit"),
        ("b", f"%timeit -n1 -r1 1\n{THIRD}"),
        CHECK,
    )
    assert "All done: 2 pass" in said[-1]


def test_cells_without_ids_and_from_before_it_was_loaded(work: Path) -> None:
    """The last definition counts; the extension can be loaded anew."""
    wrong, reload = HALF.replace("2", "3"), ("", "%reload_ext softmark")
    said = run(work, ("", THIRD), ("", wrong), LOAD, CHECK, ("", HALF), reload, CHECK)
    assert "1 pass, 1 fail" in said[3]
    assert "All done: 2 pass" in said[6]


def test_what_no_cell_defines_is_still_to_be_written(work: Path) -> None:
    said = run(work, LOAD, ("a", HALF), CHECK)
    assert "1 pass, 1 to do" in said[-1]
    assert "third (no cell that was run defines it) is still to be written" in said[-1]


def test_the_file_beside_it_is_tested_where_more_is_written_there(work: Path) -> None:
    """Each time as it was saved last: the kernel may have imported it before."""
    wrong = f"{HALF}\n\n{THIRD.replace('3', '4')}\n"
    save = "import pathlib\npathlib.Path('small.py').write_text({!r})"
    said = run(
        work,
        ("s", STUB),
        LOAD,
        ("w", save.format(wrong)),
        ("i", "import small\nsmall.third(6)"),
        CHECK,
        ("w", save.format(f"{HALF}\n\n{THIRD}\n")),
        CHECK,
    )
    assert "small.py, as it was saved:" in said[4] and "third(6) is 1.5" in said[4]
    assert "-m pytest test_public.py::test_third" in said[4]
    assert "small.py, as it was saved:" in said[6] and "All done: 2 pass" in said[6]


def test_a_finished_file_beside_finished_cells_is_told(work: Path) -> None:
    (work / "small.py").write_text(f"{HALF}\n\n{THIRD}\n", encoding="utf-8")
    said = run(work, LOAD, ("a", HALF), ("b", THIRD), CHECK)[-1]
    assert "in the cells of this notebook" in said
    assert "small.py beside it is finished too, and counts where both are handed in" in said


def test_the_twin_is_taken_from_the_cell_that_writes_it(work: Path) -> None:
    cell = "%%writefile small_torch.py\n\ndef half_torch(x):\n    return x / 2\n"
    said = run(work, LOAD, ("t", cell), ("c", "%softmark check --twin"))
    if "PyTorch" in said[-1]:
        pytest.skip("PyTorch is not installed")
    assert "small_torch.py" in said[-1] and "All done: 1 pass" in said[-1]


def test_from_the_folder_above_and_where_there_is_none(work: Path, tmp_path: Path) -> None:
    said = run(
        tmp_path,
        LOAD,
        ("a", HALF),
        ("b", THIRD),
        ("c", "%softmark check my_small"),
        ("d", "%softmark check your_small"),
        ("e", "%softmark grade"),
    )
    assert "All done: 2 pass" in said[3]
    assert "UsageError: there is no assignment in your_small" in said[4]
    assert "UsageError: %softmark check [TOPIC] [--twin]" in said[5]


def test_a_forbidden_name_is_told_as_by_softmark_check(work: Path) -> None:
    said = run(work, LOAD, ("a", f"import torch\n{HALF}"), ("b", THIRD), CHECK)[-1]
    assert "torch: NumPy is enough here. Nothing would be graded." in " ".join(said.split())


COLAB = """
import json, os
def blocking_request(kind, request="", timeout_sec=5):
    assert kind == "get_ipynb"
    with open(os.environ["OPEN_NOTEBOOK"], encoding="utf-8") as file:
        return {"ipynb": json.load(file)}
"""


def test_on_colab_the_open_notebook_is_asked_for(work: Path, tmp_path: Path) -> None:
    """With a stand-in for Colab's own module: there is no file of the notebook's, and cells that were
    deleted are gone."""
    place = tmp_path / "colab" / "google" / "colab"
    place.mkdir(parents=True)
    (place / "_message.py").write_text(COLAB, encoding="utf-8")
    code = [("import math", "x"), (HALF, "a"), ("def third(x):\n    return math.tau", "b")]
    cells = [{"cell_type": "markdown", "source": ["# Text"]}]
    cells += [
        {"cell_type": "code", "metadata": {"id": id}, "source": text.splitlines(keepends=True)}
        for text, id in code
    ]
    notebook = tmp_path / "open.ipynb"
    notebook.write_text(json.dumps({"cells": cells, "nbformat": 4}), encoding="utf-8")
    variables = {"PYTHONPATH": str(tmp_path / "colab"), "OPEN_NOTEBOOK": str(notebook)}
    said = run(work, LOAD, ("", HALF), ("", THIRD), CHECK, **variables)[-1]
    assert "1 pass, 1 fail" in said
    assert "third(6) is 6.28" in said


def test_the_notebook_that_students_get_works_as_it_stands(tmp_path: Path) -> None:
    """Its cells in their order: first all is to be written; with the solution in them all is done."""
    course = load_course(ROOT)
    topic = course.topic("02_lstm")
    folder = tmp_path / "my_lstm"
    shutil.copytree(ROOT / "starter" / topic.id, folder)
    book = json.loads(student_notebook(course, topic))
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    cells = [(c["id"], "".join(c["source"])) for c in code if c["id"] != "check-twin"]
    checks = [text for text in run(folder, *cells) if "lstm.py, as it stands" in text]
    assert len(checks) == 1 and "sigmoid is still to be written" in checks[0]
    reference = (ROOT / "solutions" / topic.id / "lstm.py").read_text("utf-8")
    said = run(folder, LOAD, ("all", reference), CHECK)[-1]
    assert "All done" in said


@pytest.mark.slow
def test_in_a_kernel_of_jupyters(work: Path) -> None:
    """With what JupyterLab tells of a cell: its id, its metadata, and which others were deleted."""
    jupyter = pytest.importorskip("jupyter_client.manager", reason="needs Jupyter")
    manager, client = jupyter.start_new_kernel(cwd=str(work))

    def execute(id: str, code: str, **metadata: object) -> str:
        content = {"code": code, "silent": False, "store_history": True, "stop_on_error": False}
        content |= {"user_expressions": {}, "allow_stdin": False}
        message = client.session.msg(
            "execute_request", content, metadata={"cellId": id, **metadata}
        )
        client.shell_channel.send(message)
        said = []
        while True:
            reply = client.get_iopub_msg(timeout=60)
            if reply["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                continue
            if reply["header"]["msg_type"] == "stream":
                said.append(reply["content"]["text"])
            if reply["content"].get("execution_state") == "idle":
                return "".join(said)

    try:
        ours = {"softmark": {"file": "small.py"}}
        execute(*LOAD)
        execute("a", f"TWO = 2\n{HALF.replace('2', 'TWO')}", **ours)
        execute("b", THIRD, **ours)
        execute("c", "TWO = 4")  # to try something, and deleted since
        assert "All done: 2 pass" in execute(*CHECK, deletedCells=["c"])
        execute("a", f"{HALF.replace('2', 'TWO')}", **ours)
        said = execute(*CHECK)
        assert "NameError" in said and "In [6], line 2: return x / TWO" in said, said
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
