"""nbgrader: grade cells get their scores from a Session, and nothing a student wrote runs in a kernel.

The ``nbgrader_config.py`` of a course calls ``configure``. By it ``Stubs`` takes solutions out in
``nbgrader generate_assignment``; in ``nbgrader autograde`` ``RestoreMarks`` comes first,
``SessionGrades`` stands where the notebook would be run, and ``SaveItems`` where scores are saved.

The nbgrader assignment bears the name of the topic. An autograded code cell stands for one rubric
item, named by its grade_id with ``-`` for ``.`` (``step-forward-h``), since nbgrader's editor takes
letters, digits, ``_`` and ``-`` only. What stands in the cell is not run. Core items are worth their
points; extensions and bonus are worth 0 and earn nbgrader's extra credit. Cells that people grade are
left to them.

Needs the extra ``nbgrader``.
"""

from __future__ import annotations

import functools
import json
import secrets
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.preprocessors import ClearSolutions, Execute, NbGraderPreprocessor, SaveAutoGrades
from nbgrader.utils import is_grade, is_solution
from traitlets import Integer, Unicode

from softmark.bench import isolate
from softmark.builders.notebook import BEGIN, item_cell_id, student_text
from softmark.builders.stub import BuildError
from softmark.course import Course, Item, Topic, load_course
from softmark.feedback import as_shown, shows_now
from softmark.intake import Submission, read_submission
from softmark.result import ItemResult, Result, counts
from softmark.session import Session, SessionDied


class CellError(Exception):
    """A grade cell that does not fit the rubric."""


def configure(
    config: Any, course: str | Path, seed: int | None = None, isolation: str | None = None
) -> None:
    """Make nbgrader take its scores from the graders of the Softmark ``course``.

    ``config`` is what ``get_config()`` gives. ``seed`` is that of the inputs, by default fresh for
    each run and told in nbgrader's log; ``isolation`` the least tier to accept.
    """
    clear = _steps(GenerateAssignment, "preprocessors", {ClearSolutions: Stubs})
    config.GenerateAssignment.preprocessors = clear
    config.Autograde.sanitize_preprocessors = [
        RestoreMarks,
        *_steps(Autograde, "sanitize_preprocessors", {}),
    ]
    changed = {Execute: SessionGrades, SaveAutoGrades: SaveItems}
    config.Autograde.autograde_preprocessors = _steps(Autograde, "autograde_preprocessors", changed)
    config.SessionGrades.course = str(course)
    config.SessionGrades.seed = seed
    config.SessionGrades.isolation = isolation


def _steps(converter: Any, name: str, changed: Mapping[type, type]) -> list[type]:
    """A converter's own steps, some of them replaced."""
    return [changed.get(step, step) for step in converter.class_traits()[name].default()]


# ---- nbgrader generate_assignment --------------------------------------------------------------


def points_of(item: Item) -> float:
    """What nbgrader counts as reachable: extras come on top of it, as extra credit."""
    return item.points if item.tier == "core" else 0.0


def item_of_grade_id(topic: Topic) -> dict[str, Item]:
    """The grade_id of each rubric item's cell -> the item. BuildError if two would be the same."""
    table: dict[str, Item] = {}
    for item in topic.rubric.values():
        other = table.setdefault(item_cell_id(item.id), item)
        if other.id != item.id:
            raise BuildError(
                f"rubric items {other.id} and {item.id} of {topic.id} have one grade_id; rename one"
            )
    return table


class Stubs(ClearSolutions):  # type: ignore[misc]
    """Solutions taken out as in the starter: what is to be written says its own name."""

    def preprocess_cell(self, cell: Any, resources: Any, cell_index: int) -> tuple[Any, Any]:
        """Raises BuildError where markers are not sound; without any, nbgrader clears the cell."""
        lines = [line.strip() for line in cell.source.split("\n")]
        if cell.cell_type == "code" and is_solution(cell) and BEGIN in lines:
            cell.source = student_text(cell.source, cell.metadata.nbgrader.grade_id)
            return cell, resources
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        return cell, resources


# ---- nbgrader autograde ------------------------------------------------------------------------


class RestoreMarks(NbGraderPreprocessor):  # type: ignore[misc]
    """Every cell marked as the gradebook says, and grade cells that were deleted put back.

    A submission's own marks are not read: with a wrong version in them nbgrader stops for the whole
    class, and with a changed kind for that student.
    """

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Before anything of nbgrader's looks at the marks."""
        marks, sources = _known_cells(resources["nbgrader"])
        for cell in nb.cells:
            mark = cell.metadata.pop("nbgrader", None)
            grade_id = mark.get("grade_id") if isinstance(mark, dict) else None
            if isinstance(grade_id, str) and grade_id in marks:
                cell.metadata["nbgrader"] = dict(marks[grade_id])
        present = {cell.metadata.get("nbgrader", {}).get("grade_id") for cell in nb.cells}
        for grade_id, mark in marks.items():
            if mark["grade"] and grade_id not in present:
                make = getattr(nbformat.v4, f"new_{mark['cell_type']}_cell")
                nb.cells.append(make(sources[grade_id], metadata={"nbgrader": dict(mark)}))
                self.log.warning("Put back the grade cell '%s', which was deleted", grade_id)
        return nb, resources


def _known_cells(about: Mapping[str, str]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The marks and the sources of a notebook's cells as released, by grade_id."""
    with Gradebook(about["db_url"]) as book:
        notebook = book.find_notebook(about["notebook"], about["assignment"])
        graded = {cell.name: cell.max_score for cell in notebook.grade_cells}
        tasks = {cell.name: cell.max_score for cell in notebook.task_cells}
        solutions = {cell.name for cell in notebook.solution_cells}
        marks = {
            cell.name: {
                "schema_version": 3,
                "grade_id": cell.name,
                "grade": cell.name in graded,
                "solution": cell.name in solutions,
                "locked": cell.locked,
                "task": cell.name in tasks,
                "cell_type": cell.cell_type,
                "checksum": cell.checksum,
                **({"points": (graded | tasks)[cell.name]} if cell.name in graded | tasks else {}),
            }
            for cell in notebook.source_cells
        }
        return marks, {cell.name: cell.source for cell in notebook.source_cells}


@dataclass(frozen=True, slots=True)
class _Earned:
    """What is saved for a cell; both None where the item was not measured."""

    auto_score: float | None
    extra_credit: float | None


class SessionGrades(NbGraderPreprocessor):  # type: ignore[misc]
    """Takes the place of nbgrader's ``Execute``: scores and messages come from a Session."""

    course = Unicode(help="The folder of the Softmark course.").tag(config=True)
    seed = Integer(None, allow_none=True, help="Seed of the inputs (default: fresh).").tag(
        config=True
    )
    isolation = Unicode(None, allow_none=True, help="The least tier to accept.").tag(config=True)

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Grade the notebook, show each item in its cell, and leave the scores to ``SaveItems``.

        Raises CellError, and what a Session raises, before a cell is written: nbgrader then reports
        the submission as failed, records no score for it, and tries again in its next run.
        """
        about = resources["nbgrader"]
        cells = [
            cell
            for cell in nb.cells
            if is_grade(cell) and not is_solution(cell) and cell.cell_type == "code"
        ]
        if not cells:
            return nb, resources
        desk = self._desk(about["assignment"])
        items = {cell.metadata.nbgrader.grade_id: _item_of(cell, desk.topic) for cell in cells}
        result = desk.grade(_submission(nb, desk.topic, about["student"]))
        for note in result.notes:
            self.log.info("%s: %s", about["student"], note)
        for flag in result.flags:
            self.log.warning("%s: for a person to look at: %s", about["student"], flag)
        closed = _closed(about, desk.course)
        shown = as_shown(result, shows_now(desk.course.feedback, closed=closed, earlier_today=0))
        told = {item.id: item for item in shown.items}
        earned = {item.id: item for item in result.items}
        resources["softmark"] = {
            grade_id: _earned(desk.course, desk.topic, earned[item.id])
            for grade_id, item in items.items()
        }
        for cell in cells:
            id = items[cell.metadata.nbgrader.grade_id].id
            cell.outputs = _outputs(told[id], shown) if id in told else []
        for open_item in [item for item in result.items if item.held]:
            text = "%s: %s was not measured and is left for a person: %s"
            self.log.warning(text, about["student"], open_item.id, open_item.message)
        return nb, resources

    def _desk(self, topic: str) -> _Desk:
        """The run's own: nbgrader makes its preprocessors anew for every notebook."""
        desks = _DESKS.setdefault(self.parent, {})  # an exporter, one for each run
        if topic not in desks:
            desk = _Desk(Path(self.course), topic, self.seed, self.isolation)
            self.log.info("Softmark: isolation %s, seed %d", desk.level.tier, desk.seed)
            desks[topic] = desk
            weakref.finalize(self.parent, desk.close)
        return desks[topic]


class SaveItems(SaveAutoGrades):  # type: ignore[misc]
    """Saves what ``SessionGrades`` found, and for all other cells what nbgrader does.

    An item that was not measured has no score and waits for a person. Extra credit is overwritten in
    the cells of extensions and bonus, and left alone in others.
    """

    def _add_score(self, cell: Any, resources: Any) -> None:
        id = cell.metadata.nbgrader.grade_id
        earned: _Earned | None = resources.get("softmark", {}).get(id)
        if earned is None:
            super()._add_score(cell, resources)
            return
        grade = self.gradebook.find_grade(id, self.notebook_id, self.assignment_id, self.student_id)
        grade.auto_score = earned.auto_score
        if not cell.metadata.nbgrader.points:
            grade.extra_credit = earned.extra_credit
        grade.needs_manual_grade = earned.auto_score is None or grade.manual_score is not None
        self.gradebook.db.commit()


class _Desk:
    """The Session of a topic, kept for one run of nbgrader and renewed if it dies."""

    def __init__(self, course: Path, topic: str, seed: int | None, isolation: str | None) -> None:
        self.course = load_course(course)
        self.topic = self.course.topic(topic)
        self.seed = secrets.randbits(63) if seed is None else seed
        self.level = isolate(self.course, topic, isolation)
        self._start = functools.partial(Session, self.course, self.topic, self.seed, self.level)
        self._session = self._start()

    def grade(self, submission: Submission) -> Result:
        """Its Result, at the second try where the first cost the Session its life."""
        try:
            return self._session.grade(submission)
        except SessionDied:
            self._session.close()
            self._session = self._start()
            return self._session.grade(submission)

    def close(self) -> None:
        self._session.close()


# a formgrader lives for months: a Session ends with the run it was started for
_DESKS: weakref.WeakKeyDictionary[Any, dict[str, _Desk]] = weakref.WeakKeyDictionary()


def _submission(nb: Any, topic: Topic, student: str) -> Submission:
    """The notebook read as if it had been handed in as a file; its test cells are left out."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{topic.module}.ipynb"
        path.write_text(json.dumps(nb), encoding="utf-8")
        return read_submission(path, topic, student)


def _item_of(cell: Any, topic: Topic) -> Item:
    """The rubric item that a grade cell stands for."""
    mark, table = cell.metadata.nbgrader, item_of_grade_id(topic)
    item = table.get(mark.grade_id)
    if item is None:
        known = ", ".join(table)
        raise CellError(
            f"grade cell '{mark.grade_id}' is no rubric item of {topic.id} (has: {known})"
        )
    if float(mark.points) != points_of(item):
        raise CellError(
            f"grade cell '{mark.grade_id}' is worth {float(mark.points):g} points and {item.id}, "
            f"{item.tier}, must be worth {points_of(item):g} here; make them the same and generate the "
            "assignment anew"
        )
    return item


def _earned(course: Course, topic: Topic, item: ItemResult) -> _Earned:
    """The scores of an item's cell. Extras count up to the share of the core that the course allows,
    so that nbgrader's total is that of the Result."""
    if item.held or item.tier == "core":
        return _Earned(item.score, None)
    share = course.tiers.extension if item.tier == "extension" else course.tiers.bonus
    of_tier = [one for one in topic.rubric.values() if one.tier == item.tier]
    whole = sum(one.points for one in of_tier if counts(course, one))
    each = min(1.0, share * topic.max_score / whole) if whole and item.counts else 0.0
    return _Earned(0.0, round(each * (item.score or 0.0), 6))


def _closed(about: Mapping[str, str], course: Course) -> bool:
    """Whether the assignment's due date is over: nbgrader's own, or else that of the course. Where
    there is none, work is graded once, when it is no longer handed in."""
    with Gradebook(about["db_url"]) as book:
        due: datetime | None = book.find_assignment(about["assignment"]).duedate
    if due is not None:
        return datetime.now(UTC) > due.replace(tzinfo=UTC)  # stored without one
    day = course.entry(about["assignment"]).due
    return day is None or date.today() > day


def _outputs(item: ItemResult, result: Result) -> list[Any]:
    """What is told to the student, and the score by itself as nbgrader's convention has it."""
    earned = "not measured" if item.score is None else f"{item.score:g} of {item.max_score:g}"
    tier = "" if item.tier == "core" else f" ({item.tier})"
    told = [f"{item.title}: {earned}{tier}", item.message or result.message, *item.hints]
    text = "".join(f"{line}\n" for line in told if line)
    outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
    if item.score is not None:
        data = {"text/plain": repr(item.score)}
        outputs.append(nbformat.v4.new_output("execute_result", data=data))
    return outputs
