"""A topic as a list of notebook cells, from which every notebook of the course is made.

In order: the handout by its sections; given code and a cell for each definition that students write;
the other files, each in one ``%%writefile`` cell, since that leaves a file which public tests can
import; questions and a ``%%writefile answers.yaml``; public tests; what is graded.

Code cells carry ``{"softmark": {"file": "lstm.py"}}`` in their metadata, from which ``intake`` knows
what each belongs to. Nothing here needs Jupyter.
"""

from __future__ import annotations

import ast
import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from softmark.builders.rubric import with_rubric
from softmark.builders.stub import BuildError, stub
from softmark.course import Course, Item, Topic
from softmark.questions import ANSWERS_FILE, Question, blank_answers, load_answers

Role = Literal["handout", "given", "solution", "twin", "answers", "public", "graded"]
Kind = Literal["markdown", "code"]

BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"
WRITEFILE = "%%writefile "
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST_ID = 64  # nbformat's limit
_FIGURE = re.compile(r"^!\[((?:(?!\]\().)*)\]\(([\w.-]+\.svg)\)\n?", re.MULTILINE | re.DOTALL)
_RUBRIC_MARKS = re.compile(r"<!-- /?rubric -->\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell. ``source`` is the instructor's text, with solutions between their markers; ``student``
    what students get instead.

    ``id`` is unique in its notebook and stays as it is when other cells come and go; nbformat takes it
    for a cell's id and nbgrader for a grade_id. ``file`` is the file that a code cell belongs to, ""
    for public tests and graded items; ``item`` the rubric item of a graded one.
    """

    role: Role
    id: str
    kind: Kind
    source: str
    student: str
    file: str = ""
    item: Item | None = None


def topic_cells(course: Course, topic: Topic) -> list[Cell]:
    """Every cell of a topic's notebook.

    Raises BuildError and CourseError where the topic or its solution is not fit for one.
    """
    main, *others = topic.files
    twin = topic.twin.file if topic.twin else ""
    cells = [*_handout(topic), _start(topic)]
    cells.append(_plain("public", "setup", "code", "%load_ext softmark"))
    # a file that the main one may import has to be there first
    for file, text in topic.given.items():
        id = _id("file", file.removesuffix(".py"))
        cells.append(_plain("given", id, "code", f"{WRITEFILE}{file}\n{text.strip(chr(10))}"))
    cells += [_whole_file(course, topic, file, "solution") for file in others if file != twin]
    cells += _definitions(main, _reference(course, topic, main))
    cells.append(_plain("public", "check", "code", "%softmark check"))
    if twin:
        cells.append(_whole_file(course, topic, twin, "twin"))
        cells.append(_plain("public", "check-twin", "code", "%softmark check --twin"))
    cells += _questions(course, topic)
    cells += [_graded(item) for item in topic.rubric.values()]
    seen: set[str] = set()
    for cell in cells:
        if cell.id in seen:
            raise BuildError(
                f"{topic.id}: two cells of its notebook would have the id '{cell.id}'; rename the "
                "heading, definition or rubric item that it is made of"
            )
        seen.add(cell.id)
    return cells


def student_notebook(course: Course, topic: Topic) -> str:
    """The notebook that students fill in and hand in: nbformat 4.5, the same bytes each time."""
    cells = topic_cells(course, topic)
    return notebook_json(
        cell_json(cell.kind, cell.id, cell.student, belonging(cell))
        for cell in cells
        if cell.role != "graded"
    )


def student_text(source: str, shown: str) -> str:
    """What students get of a cell that holds a solution. Raises BuildError, which names ``shown``."""
    first, rest = source.split("\n", 1) if source.startswith(WRITEFILE) else ("", source)
    if first and not first.endswith(".py"):
        kept = "\n".join(_outside(rest.split("\n")))
    else:
        kept = stub(rest, shown).strip("\n")
    return f"{first}\n{kept}" if first else kept or "# Helpers of your own, if you need any."


def _outside(lines: Iterable[str]) -> Iterator[str]:
    """The lines that stand between no markers, of a text that is no Python."""
    inside = False
    for line in lines:
        inside = inside or line == BEGIN
        if not inside:
            yield line
        inside = inside and line != END


def belonging(cell: Cell) -> dict[str, Any]:
    """The metadata from which ``intake`` knows which file a cell belongs to."""
    return {"softmark": {"file": cell.file}} if cell.file else {}


# ---- cells -------------------------------------------------------------------------------------


def _plain(role: Role, id: str, kind: Kind, text: str, file: str = "") -> Cell:
    """A cell that is the same for everybody."""
    return Cell(role=role, id=id, kind=kind, source=text, student=text, file=file)


def _handout(topic: Topic) -> Iterator[Cell]:
    """The handout, a cell for each section, and one for each figure, which is held whole."""
    path = topic.folder / "handout.md"
    try:
        text = with_rubric(path.read_text(encoding="utf-8"), topic)
    except FileNotFoundError:
        raise BuildError(f"{topic.id}: no handout.md; the notebook begins with it") from None
    for title, section in _sections(_RUBRIC_MARKS.sub("", text)):
        id = _id("handout", title)
        at = 0
        for number, figure in enumerate(_FIGURE.finditer(section), 1):
            yield _plain("handout", id, "markdown", section[at : figure.start()].strip("\n"))
            yield _figure(topic, figure[2], figure[1])
            id, at = _id("handout", f"{title} {number + 1}"), figure.end()
        yield _plain("handout", id, "markdown", section[at:].strip("\n"))


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """The parts of a text in Markdown by its headings of the second level: (heading, part)."""
    title, lines, fenced = "top", list[str](), False
    for line in text.splitlines(keepends=True):
        fenced ^= line.startswith(("```", "~~~"))
        if line.startswith("## ") and not fenced:
            yield title, "".join(lines)
            title, lines = line.removeprefix("## ").strip(), []
        lines.append(line)
    yield title, "".join(lines)


def _figure(topic: Topic, name: str, about: str) -> Cell:
    """A figure inside the notebook. JupyterLab shows no attached SVG and others none by a Markdown
    link to data, so it is an HTML image."""
    try:
        data = base64.b64encode((topic.folder / name).read_bytes()).decode()
    except FileNotFoundError:
        raise BuildError(f"{topic.id}: handout.md shows {name}, which is not there") from None
    words = escape(" ".join(about.split()))
    image = f'<img alt="{words}" src="data:image/svg+xml;base64,{data}">'
    return _plain("handout", _id("figure", name.removesuffix(".svg")), "markdown", image)


def _start(topic: Topic) -> Cell:
    others = "".join(
        f" A cell that begins with `%%writefile {name}` leaves that file beside the notebook."
        for name in topic.handed_in[1:2]
    )
    text = (
        "## Your code\n\n"
        f"This notebook takes the place of `{topic.files[0]}`: write in the cells below, run them, "
        f"and run `%softmark check`.{others} Cells of your own are fine. Hand in the notebook, "
        f"saved; its cells are read as {_listed(topic.handed_in)}."
    )
    return _plain("handout", "your-code", "markdown", text)


def _listed(names: Sequence[str]) -> str:
    shown = [f"`{name}`" for name in names]
    return (
        " and ".join(shown[-2:]) if len(shown) < 3 else ", ".join(shown[:-1]) + f" and {shown[-1]}"
    )


def _reference(course: Course, topic: Topic, file: str) -> str:
    try:
        return (course.solution(topic.id) / file).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BuildError(
            f"solutions/{topic.id}/{file}: no such file; the notebook is made from it"
        ) from None


def _whole_file(course: Course, topic: Topic, file: str, role: Role) -> Cell:
    source = WRITEFILE + file + "\n" + _reference(course, topic, file).strip("\n")
    student = student_text(source, f"solutions/{topic.id}/{file}")
    id = _id("file", file.removesuffix(".py"))
    return Cell(role=role, id=id, kind="code", source=source, student=student, file=file)


def _questions(course: Course, topic: Topic) -> Iterator[Cell]:
    """The questions, and the answers.yaml that holds the answers."""
    if not topic.questions:
        return
    shown = f"solutions/{topic.id}/{ANSWERS_FILE}"
    answers = load_answers(course.solution(topic.id) / ANSWERS_FILE, shown, topic.questions)
    parts = ["## Questions", *map(_question, topic.questions, topic.questions.values())]
    yield _plain("handout", "questions", "markdown", "\n\n".join(parts))
    lines = [WRITEFILE + ANSWERS_FILE]
    for line in blank_answers(topic.questions).rstrip("\n").split("\n"):
        lines.append(line)
        if line.removesuffix(":") in answers:
            lines += [BEGIN, f"  {answers[line.removesuffix(':')]}", END]
    source = "\n".join(lines)
    student = student_text(source, shown)
    id = _id("file", ANSWERS_FILE)
    yield Cell(
        role="answers", id=id, kind="code", source=source, student=student, file=ANSWERS_FILE
    )


def _question(name: str, question: Question) -> str:
    choices = "".join(f"\n- **{key}**: {text.strip()}" for key, text in question.choices.items())
    extra = "" if question.tier == "core" else f", {question.tier}"
    return f"**`{name}`** ({question.points:g}{extra}): {question.ask.strip()}\n{choices}".strip()


def _graded(item: Item) -> Cell:
    text = (
        f"# {item.id}: {item.points:g} ({item.tier})\n# {item.title}\n# Graded after you hand in."
    )
    id = item_cell_id(item.id)
    return Cell(role="graded", id=id, kind="code", source=text, student=text, item=item)


def item_cell_id(item: str) -> str:
    """The id of a rubric item's cell: nbformat and nbgrader allow no dots."""
    return item.replace(".", "-")


def _id(kind: str, name: str) -> str:
    """As in ``handout-The-equations``."""
    return f"{kind}-{_NOT_IN_ID.sub('-', name)}"[:_LONGEST_ID].rstrip("-")


# ---- definitions ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Block:
    """Lines of a file up to ``last`` that share a cell; ``name`` is what students write in it, "" if
    nothing."""

    last: int
    name: str


def _definitions(file: str, source: str) -> Iterator[Cell]:
    """The main file: a cell for each definition that students write, with the helpers before it,
    and one for what is given between two of them."""
    stub(source, file)  # proves the markers sound
    lines = source.splitlines(keepends=True)
    first = given = 0
    for block in _blocks(source):
        # comments and blank lines go with what they stand before
        text = "".join(lines[first : block.last]).strip("\n")
        first = block.last
        if block.name:
            student = student_text(text, f"{file}, {block.name}")
            yield Cell(
                role="solution",
                id=_id("code", block.name),
                kind="code",
                source=text,
                student=student,
                file=file,
            )
        else:
            given += 1
            yield _plain("given", f"given-{given}", "code", text, file)


def _blocks(source: str) -> list[_Block]:
    regions = _regions(source)
    blocks: list[_Block] = []
    waits = False  # whether the last block is a helper, which goes with what comes next
    for statement in ast.parse(source).body:
        first, last = statement.lineno, statement.end_lineno or statement.lineno
        around = [end for begin, end in regions if begin < first < end]
        within = [end for begin, end in regions if first < begin < last]
        # the closing marker stands after the last statement, and so outside
        last = max([last, *around, *within])
        name = "helpers" if around else getattr(statement, "name", "part") if within else ""
        if waits:
            blocks[-1].last, blocks[-1].name = last, name or blocks[-1].name
        elif blocks and not name and not blocks[-1].name:
            blocks[-1].last = last
        else:
            blocks.append(_Block(last, name))
        waits = bool(around)
    if blocks:
        blocks[-1].last = len(source.splitlines())
    return blocks


def _regions(source: str) -> list[tuple[int, int]]:
    """The lines of each pair of markers, from 1, in a source whose markers are sound."""
    marks = [
        number for number, line in enumerate(source.splitlines(), 1) if line.strip() in (BEGIN, END)
    ]
    return list(zip(marks[::2], marks[1::2], strict=True))


# ---- files ---------------------------------------------------------------------------------------


def cell_json(kind: Kind, id: str, source: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A cell as it stands in the file of a notebook."""
    cell: dict[str, Any] = {
        "cell_type": kind,
        "id": id,
        "metadata": dict(metadata),
        "source": source.splitlines(keepends=True),
    }
    return cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []}


def notebook_json(cells: Iterable[Mapping[str, Any]]) -> str:
    """A notebook of format 4.5, written as Jupyter writes it."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {
        "cells": list(cells),
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
