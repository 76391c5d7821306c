"""``%softmark check`` in Jupyter, Colab and IPython: the public tests on what a notebook defines now.

What is tested is what the grader would read in the notebook: its code cells, put together by ``intake``
and run in a Python of their own. So nothing that the kernel still remembers can help or hurt, and the
kernel need never be restarted. On Colab the cells are asked for; elsewhere they are the cells as they
were last run, which the kernel tells whenever one is run. Where no cell defines anything of the topic,
or less of it than the file beside the notebook does, that file is tested, as it was saved.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from softmark.course import CourseError, Topic, load_topic
from softmark.sourcetext import left_to_write, notebook_files
from softmark.student import find_topic_folder
from softmark.unpack import Entry, RefusedError

_USAGE = "%softmark check [TOPIC] [--twin]"
_COLAB_SECONDS = 10
_NUMBER = re.compile(r"\b\d+(?= \(%%)")


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell: its text, what builders have written on it, and what messages call it."""

    source: str
    marks: Mapping[str, Any]
    name: str


class CheckFailed(Exception):
    """Why there is nothing to test, in words for the student."""


@dataclass(eq=False)
class Notebook:
    """The cells that were run in a kernel, each as it was last run, and the magic that tests them."""

    shell: Any
    cells: dict[str, Cell] = field(default_factory=dict)

    def forget(self, info: Any) -> None:
        """Called by IPython before a cell is run: Jupyter tells with it which others were deleted."""
        meta = getattr(info, "cell_meta", None) or {}
        for id in meta.get("deletedCells", ()):
            self.cells.pop(id, None)

    def remember(self, result: Any) -> None:
        """Called by IPython after a cell was run."""
        info, count = result.info, result.execution_count
        if not info.store_history or not info.raw_cell:
            return
        meta = getattr(info, "cell_meta", None) or {}
        marks = {key: meta[key] for key in ("softmark", "nbgrader") if key in meta}
        # a cell that is run again takes its own place; without ids each run is a cell
        id = getattr(info, "cell_id", None) or f"run {count}"
        self.cells[id] = Cell(info.raw_cell, marks, f"In [{count}]")

    def softmark(self, line: str) -> None:
        """The magic."""
        from IPython.core.error import UsageError

        words = shlex.split(line)
        twin = "--twin" in words
        command, *topics = [word for word in words if word != "--twin"] or [""]
        if command != "check" or len(topics) > 1 or any(t.startswith("-") for t in topics):
            raise UsageError(_USAGE)
        try:
            topic = load_topic(find_topic_folder(topics[0] if topics else None, Path.cwd()))
            check(topic, twin, _colab_cells() or list(self.cells.values()))
        except (CourseError, CheckFailed) as error:
            raise UsageError(str(error)) from None


def load(shell: Any) -> None:
    """Give a shell the magic, and remember what is run in it from now on."""
    notebook = Notebook(shell)
    for count, source in enumerate(shell.history_manager.input_hist_raw):
        if source:
            notebook.cells[f"run {count}"] = Cell(source, {}, f"In [{count}]")
    shell.events.register("pre_run_cell", notebook.forget)
    shell.events.register("post_run_cell", notebook.remember)
    shell.register_magic_function(notebook.softmark, "line", "softmark")


def unload(shell: Any) -> None:
    """Take it away again."""
    notebook = shell.magics_manager.magics["line"].pop("softmark").__self__
    shell.events.unregister("pre_run_cell", notebook.forget)
    shell.events.unregister("post_run_cell", notebook.remember)


def _colab_cells() -> list[Cell] | None:
    """The code cells of the notebook that is open on Colab; None elsewhere, or if it does not tell."""
    try:
        colab = importlib.import_module("google.colab._message")
        reply = colab.blocking_request("get_ipynb", request="", timeout_sec=_COLAB_SECONDS)
        cells = [cell for cell in reply["ipynb"]["cells"] if cell["cell_type"] == "code"]
        return [
            Cell("".join(cell["source"]), cell.get("metadata", {}), f"code cell {number}")
            for number, cell in enumerate(cells, 1)
        ]
    except (
        Exception
    ):  # not Colab, or another than the one that was known: nothing of it is promised
        return None


# ---- testing them --------------------------------------------------------------------------------


def check(topic: Topic, twin: bool, cells: Sequence[Cell]) -> None:
    """Run the public tests on what ``cells`` define, or on the files beside them, and print how it
    went. Raises CheckFailed."""
    words = ["check", "--twin"] if twin else ["check"]
    notes: list[str] = []
    files = _read(topic, cells, notes)
    tested = topic.twin.file if twin and topic.twin else topic.files[0]
    if tested not in files:
        print(f"{tested}, as it was saved:")
        _run(words, topic.folder, {})
        return
    print(f"{tested}, as it stands in the cells of this notebook:")
    for note in notes:
        print(f"({note})")
    with tempfile.TemporaryDirectory(prefix="softmark-") as scratch:
        folder = Path(scratch, topic.folder.name)
        folder.mkdir()
        for path in topic.folder.iterdir():
            if path.suffix in (".yaml", ".py") and path.is_file():
                shutil.copy(path, folder)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
        _run(words, folder, {tested: _places(files[tested], cells)}, str(topic.folder))


def _read(topic: Topic, cells: Sequence[Cell], notes: list[str]) -> dict[str, str]:
    """What the grader would read in these cells, by the name of the file; only files of which more is
    written than of the one that was saved."""
    main = topic.files[0]
    wanted = [name for name in topic.calls if "." not in name]
    marked = [_marked(cell, main, wanted) for cell in cells]
    book = {"cells": [_as_json(cell, marks) for cell, marks in zip(cells, marked, strict=True)]}
    data = json.dumps(book).encode()
    entry = Entry(PurePosixPath("this notebook"), lambda _: data)
    said: list[str] = []
    try:
        files = notebook_files(entry, main, topic.handed_in[1:], said)
    except RefusedError as refused:
        if not any(marked):
            return {}
        raise CheckFailed(str(refused)) from None
    notes += [
        _NUMBER.sub(lambda m: cells[int(m[0]) - 1].name, note) for note in said if "%%" in note
    ]
    if files[main].startswith("# cell "):
        defined = {name for cell in cells for name in _defines(cell.source)}
        if defined & set(wanted):
            files[main] += "".join(_missing(name) for name in wanted if name not in defined)
        else:
            del files[main]
    for name in [name for name in files if name.endswith(".py")]:
        saved = topic.folder / name
        if not saved.is_file():
            continue
        open_there = left_to_write(saved.read_text(encoding="utf-8", errors="replace"))
        if open_there < left_to_write(files[name]):
            del files[name]
        elif open_there == 0 and name == main:
            notes.append(f"{name} beside it is finished too, and counts where both are handed in")
    return files


def _marked(cell: Cell, main: str, wanted: Sequence[str]) -> dict[str, Any]:
    """A cell's marks; one that defines something of the topic belongs to its file."""
    own = cell.marks
    if not own and set(_defines(cell.source)) & set(wanted):
        return {"softmark": {"file": main}}
    return dict(own)


def _as_json(cell: Cell, marks: Mapping[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": cell.source, "metadata": dict(marks)}


def _defines(source: str) -> list[str]:
    """The functions and classes at the top level of a cell; none where it is not plain Python."""
    lines = [line for line in source.split("\n") if not line.lstrip().startswith(("%", "!"))]
    try:
        body = ast.parse("\n".join(lines)).body
    except (SyntaxError, ValueError, RecursionError):
        return []
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [statement.name for statement in body if isinstance(statement, kinds)]


def _missing(name: str) -> str:
    said = f"{name} (no cell that was run defines it)"
    return f"\ndef {name}(*args, **kwargs):\n    raise NotImplementedError({said!r})\n"


def _places(source: str, cells: Sequence[Cell]) -> list[str]:
    """What messages call each line of a file that was put together from cells."""
    places: list[str] = []
    name, number = "", 0
    awaited = 1
    for line in source.split("\n"):
        number += 1
        if line == f"# cell {awaited}" and awaited <= len(cells):
            name, number = cells[awaited - 1].name, 0
            awaited += 1
        places.append(f"{name}, line {number}" if name else "")
    return places


def _run(
    words: Sequence[str], folder: Path, places: Mapping[str, Sequence[str]], shown: str = ""
) -> None:
    """Run a command of Softmark's in a folder and print what it says, in the notebook's own terms."""
    child = subprocess.Popen(
        [sys.executable, "-m", "softmark", *words],
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    assert child.stdout is not None
    try:
        for line in child.stdout:
            if places and "Just this one:" in line:  # there is no file to run it on
                continue
            print(_translated(line, folder, places, shown), end="", flush=True)
    except KeyboardInterrupt:
        # the child was interrupted as well where the system tells the whole group, and says where
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            said, _ = child.communicate(timeout=5)
            print(_translated(said, folder, places, shown), end="")
    finally:
        child.kill()
        child.wait()


def _translated(text: str, folder: Path, places: Mapping[str, Sequence[str]], shown: str) -> str:
    for file, names in places.items():
        pattern = re.compile(rf"\b{re.escape(file)}, line (\d+)")

        def place(match: re.Match[str], names: Sequence[str] = names) -> str:
            number = int(match[1])
            return (names[number - 1] if number <= len(names) else "") or match[0]

        text = pattern.sub(place, text)
    return text.replace(str(folder), shown) if shown else text
