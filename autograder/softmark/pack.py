"""``softmark pack``: the .zip to hand in, read back as the grader reads it.

Of the same files the same bytes, on any system. What it shows is the submission that ``intake`` finds
in the new file, and with it the digest that a result names.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from softmark.course import Item, Topic
from softmark.intake import Submission, read_submission
from softmark.policy import scan_topic
from softmark.questions import ANSWERS_FILE, QUESTIONS
from softmark.sourcetext import python_text
from softmark.student import HandInError, missing, read_answers, violated
from softmark.unpack import RefusedError

_PLAIN_FILE = 0o100644 << 16
_TWIN = "twin."  # how the ids of its items begin
_IMPORT_SECONDS = 30
_IMPORTED = 42  # an exit code by which to know that the import came to its end


@dataclass(frozen=True, slots=True)
class Packed:
    """A .zip to hand in: where it lies, whether one was there before, what the grader reads in it."""

    path: Path
    replaced: bool
    submission: Submission
    warnings: tuple[str, ...]


def pack(topic: Topic) -> Packed:
    """Write ``<topic>.zip`` into the topic's folder, whole or not at all, and read it back.

    Raises HandInError if nothing in it could be graded, or if something else has that name; OSError.
    """
    main = topic.files[0]
    files = {
        name: (topic.folder / name).read_bytes()
        for name in topic.handed_in
        if (topic.folder / name).is_file()
    }
    written, told = _written_in_a_notebook(topic, files)
    files |= written
    if main not in files:
        raise HandInError(missing(topic, main))
    try:
        python_text(main, files[main])  # for a message that does not speak of the zip
    except RefusedError as refused:
        raise HandInError(str(refused)) from None
    path = topic.folder / f"{topic.folder.name}.zip"
    replaced = path.exists()
    if replaced and not _is_upload(path, topic):
        raise HandInError(f"{path} is no earlier upload of this topic; move it elsewhere first.")
    with tempfile.TemporaryDirectory(prefix=".softmark-", dir=topic.folder) as scratch:
        new = Path(scratch, path.name)
        new.write_bytes(_zipped(files))
        submission = read_submission(new, topic)
        if submission.status != "ready":
            raise HandInError(submission.message)
        found = (*told, *_look_over(topic, submission))
        new.replace(path)
    return Packed(path, replaced, submission, found)


def _written_in_a_notebook(
    topic: Topic, files: Mapping[str, bytes]
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """What the grader would take from the notebook beside the files instead of them, and its notes."""
    if not (topic.folder / f"{topic.module}.ipynb").is_file():
        return {}, ()
    taken = read_submission(topic.folder, topic)
    texts = {name: text.encode() for name, text in taken.files.items()}
    other = {k: v for k, v in texts.items() if files.get(k, b"").replace(b"\r\n", b"\n") != v}
    return other, tuple(note for note in taken.notes if other and ".ipynb" in note)


def _is_upload(path: Path, topic: Topic) -> bool:
    """Whether a file holds nothing but what may be handed in."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {topic.files[0]} <= {*archive.namelist()} <= {*topic.handed_in}
    except (OSError, zipfile.BadZipFile):
        return False


def _zipped(files: Mapping[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files.items()):
            info = zipfile.ZipInfo(name)  # of 1980, not of now
            info.create_system, info.external_attr = 3, _PLAIN_FILE  # the same from any system
            archive.writestr(info, content)
    return data.getvalue()


# ---- what the grader will meet ------------------------------------------------------------------


def _look_over(topic: Topic, submission: Submission) -> Iterator[str]:
    """Warnings. Raises HandInError for what leaves nothing to grade."""
    main, twin = topic.files[0], topic.twin.file if topic.twin else ""
    for name, text in submission.files.items():
        error = _not_python(name, text) if name.endswith(".py") else ""
        if error and name == main:
            raise HandInError(f"{error}. Nothing would be graded.")
        if error:
            yield f"{error}. Nothing of this file would be graded."
    for violation in scan_topic(submission.files, topic):
        said = violated(topic, violation)
        if violation.file != twin and topic.policy.action == "reject":
            raise HandInError(said)
        yield said
    for name, text in submission.files.items():
        if absent := _undefined(text, _calls(topic, name)):
            yield f"{name} has no {', no '.join(absent)}."
    if error := _import_error(topic, submission.files):
        yield error
    # that a file was taken from this .zip, or is missing, is shown by itself
    yield from (note for note in submission.notes if not note.startswith(("took ", "missing: ")))


def _not_python(name: str, text: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"{name}, line {error.lineno} is not Python ({error.msg})"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{name} is not Python: {error}"
    return ""


def _import_error(topic: Topic, files: Mapping[str, str]) -> str:
    """What goes wrong where the main file is imported with nothing beside it but the others."""
    with tempfile.TemporaryDirectory(prefix="softmark-") as scratch:
        for name, text in {**files, **topic.given}.items():
            Path(scratch, name).write_text(text, encoding="utf-8", newline="\n")
        code = f"import os, {topic.module}; os._exit({_IMPORTED})"
        command = [sys.executable, "-B", "-c", code]
        try:
            done = subprocess.run(
                command,
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_IMPORT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{topic.files[0]} did not end being imported within {_IMPORT_SECONDS} s."
    if done.returncode == _IMPORTED:
        return ""
    said = done.stderr.decode(errors="replace").strip().splitlines()
    lines = [line for text in said if (line := _own_line(text, topic.files[0]))]
    place = f" ({topic.files[0]}, line {lines[-1]})" if lines else ""
    why = said[-1] if said else f"it ends Python, with exit code {done.returncode}"
    return f"{topic.files[0]} cannot be imported: {why}{place}. As it is, nothing in it would pass."


def _own_line(text: str, name: str) -> str:
    match = re.search(rf'File ".*{re.escape(name)}", line (\d+)', text)
    return match[1] if match else ""


def _calls(topic: Topic, name: str) -> Iterable[str]:
    """What a file is to define: functions and classes."""
    if topic.twin and name == topic.twin.file:
        return topic.twin.calls
    return [call for call in topic.calls if "." not in call] if name == topic.files[0] else ()


def _undefined(source: str, wanted: Iterable[str]) -> list[str]:
    """Those of the names that are nowhere given a meaning."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    known = {node.id for node in nodes if isinstance(node, ast.Name)}
    known |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    known |= {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
    return [name for name in wanted if name not in known]


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions and methods of a file, and those that are still to be written."""

    count: int
    unwritten: tuple[str, ...]

    def __str__(self) -> str:
        count = f"{self.count or 'no'} function{'' if self.count == 1 else 's'}"
        if not self.count:
            return count
        if not self.unwritten:
            return f"{count}, all written"
        if len(self.unwritten) == self.count:
            return f"{count}, {'all ' if self.count > 1 else ''}still to be written"
        return f"{count}, {len(self.unwritten)} still to be written: {', '.join(self.unwritten)}"


def functions(source: str) -> Functions:
    """Those at the top level and in classes; one with a NotImplementedError to raise is unwritten."""
    try:
        found = list(_functions(ast.parse(source).body))
    except (SyntaxError, ValueError, RecursionError):
        found = []
    return Functions(len(found), tuple(name for name, unwritten in found if unwritten))


def _functions(body: Iterable[ast.stmt], outer: str = "") -> Iterator[tuple[str, bool]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{outer}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield outer + node.name, any(_is_unwritten(inner) for inner in ast.walk(node))


def _is_unwritten(node: ast.AST) -> bool:
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"


def worth(items: Iterable[Item]) -> str:
    """As in: 3 points of the core and 2 of the extension."""
    points: dict[str, float] = {}
    for item in items:
        points[item.tier] = points.get(item.tier, 0) + item.points
    counted = {tier: f"{n:g} point{'' if n == 1 else 's'}" for tier, n in points.items()}
    return " and ".join(f"{count} of the {tier}" for tier, count in counted.items())


# ---- on the terminal ----------------------------------------------------------------------------


def pack_topic(console: Console, topic: Topic) -> None:
    """Pack, and show what is in it. Raises HandInError, OSError."""
    packed = pack(topic)
    submission = packed.submission
    console.print(Text(f"{packed.path.name}, read back as the grader reads it:", style="bold"))
    table = Table.grid(padding=(0, 2))
    problems: tuple[str, ...] = ()
    for name in topic.handed_in:
        text = submission.files.get(name)
        if text is None:
            table.add_row("  " + name, "", Text(_absent(topic, name), style="yellow"))
            continue
        size = f"{len(text.encode()) / 1000:.1f} kB"
        if name == ANSWERS_FILE:
            answers = read_answers(topic, text)
            problems = answers.problems
            table.add_row("  " + name, size, Text(str(answers)))
        else:
            table.add_row("  " + name, size, Text(str(functions(text))))
    console.print(table)
    for warning in (*packed.warnings, *problems):
        console.print(Padding(Text(warning, style="yellow"), (0, 0, 0, 2), expand=False))
    replaced = " (replaced the one before)" if packed.replaced else ""
    console.print(Text(f"\nReady to hand in{replaced}:", style="bold"))
    console.print(Text(f"  {packed.path}"), soft_wrap=True)
    digest = submission.digest[:12]
    console.print(Text(f"Receipt {digest}: the result of this very file has it as its digest."))


def _absent(topic: Topic, name: str) -> str:
    """What it costs that the grader finds no such file, as far as the rubric tells."""
    why = "cannot be read" if (topic.folder / name).exists() else "not there"
    prefix = f"{QUESTIONS}." if name == ANSWERS_FILE else ""
    if topic.twin and name == topic.twin.file:
        prefix = _TWIN
    lost = [item for item in topic.rubric.values() if prefix and item.id.startswith(prefix)]
    return f"{why}: costs {worth(lost)}" if lost else why
