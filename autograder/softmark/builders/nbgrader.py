"""nbgrader: grade cells get their scores from a Session, and nothing a student wrote runs in a kernel.

In the ``nbgrader_config.py`` of an nbgrader course::

    from softmark.builders.nbgrader import configure
    configure(get_config(), course="path/to/the/softmark/course")

``SessionGrades`` then stands where ``nbgrader autograde`` would run the notebook. The nbgrader
assignment bears the name of the topic. An autograded code cell stands for one rubric item, named by
its grade_id with ``-`` for ``.`` (``step-forward-h``), since nbgrader's editor takes letters, digits,
``_`` and ``-`` only. What stands in the cell is not run. Cells that people grade are left to them.

Needs the extra ``nbgrader``.
"""

from __future__ import annotations

import atexit
import functools
import json
import secrets
import tempfile
from pathlib import Path
from typing import Any

from nbformat import from_dict
from nbgrader.converters import Autograde
from nbgrader.preprocessors import Execute, NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution
from traitlets import Integer, Unicode

from softmark.bench import isolate
from softmark.course import Topic, load_course
from softmark.intake import Submission, read_submission
from softmark.result import ItemResult, Result
from softmark.session import Session, SessionFailed


class CellError(Exception):
    """A grade cell that does not fit the rubric, or an item that could not be measured."""


def configure(
    config: Any, course: str | Path, seed: int | None = None, isolation: str | None = None
) -> None:
    """Make ``nbgrader autograde`` take its scores from the graders of the Softmark ``course``.

    ``config`` is what ``get_config()`` gives. ``seed`` is that of the inputs, by default fresh for
    each run and told in nbgrader's log; ``isolation`` the least tier to accept.
    """
    steps = Autograde.class_traits()["autograde_preprocessors"].default()
    config.Autograde.autograde_preprocessors = [
        SessionGrades if step is Execute else step for step in steps
    ]
    # a deleted grade cell comes back and is graded; else its points would stay open
    config.OverwriteCells.add_missing_cells = True
    config.SessionGrades.course = str(course)
    config.SessionGrades.seed = seed
    config.SessionGrades.isolation = isolation


def grade_ids(topic: Topic) -> dict[str, str]:
    """The grade_id of each rubric item's cell -> the item. CellError if two would be the same."""
    table: dict[str, str] = {}
    for id in topic.rubric:
        other = table.setdefault(id.replace(".", "-"), id)
        if other != id:
            raise CellError(
                f"rubric items {other} and {id} of {topic.id} have one grade_id; rename one"
            )
    return table


class SessionGrades(NbGraderPreprocessor):  # type: ignore[misc]
    """Takes the place of nbgrader's ``Execute``: scores and messages come from a Session."""

    course = Unicode(help="The folder of the Softmark course.").tag(config=True)
    seed = Integer(None, allow_none=True, help="Seed of the inputs (default: fresh).").tag(
        config=True
    )
    isolation = Unicode(None, allow_none=True, help="The least tier to accept.").tag(config=True)

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Grade the notebook and write each score where nbgrader looks for it.

        Raises CellError, and what a Session raises, before a cell is written: nbgrader then reports
        the submission as failed and records no score for it.
        """
        about = resources["nbgrader"]
        desk = _desk(Path(self.course), about["assignment"], self.seed, self.isolation)
        self.log.info("Softmark: isolation %s, seed %d", desk.level.tier, desk.seed)
        cells = [
            cell
            for cell in nb.cells
            if is_grade(cell) and not is_solution(cell) and cell.cell_type == "code"
        ]
        items = [_item_of(cell, desk.topic) for cell in cells]
        result = desk.grade(_submission(nb, desk.topic, about["student"]))
        for flag in result.flags:
            self.log.warning("%s: for a person to look at: %s", about["student"], flag)
        earned = {item.id: item for item in result.items}
        outputs = [_outputs(earned[item], result) for item in items]
        for cell, output in zip(cells, outputs, strict=True):
            cell.outputs = output
        return nb, resources


class _Desk:
    """The Session of a topic, kept while this process lives and renewed if it dies."""

    def __init__(self, course: Path, topic: str, seed: int | None, isolation: str | None) -> None:
        opened = load_course(course)
        self.topic = opened.topic(topic)
        self.seed = secrets.randbits(63) if seed is None else seed
        self.level = isolate(opened, topic, isolation)
        self._start = functools.partial(Session, opened, self.topic, self.seed, self.level)
        self._session = self._start()
        atexit.register(lambda: self._session.close())

    def grade(self, submission: Submission) -> Result:
        """Its Result, at the second try where the first cost the Session its life."""
        try:
            return self._session.grade(submission)
        except SessionFailed:
            self._session.close()
            self._session = self._start()
            return self._session.grade(submission)


# nbgrader makes its preprocessors anew for every notebook
_desk = functools.cache(_Desk)


def _submission(nb: Any, topic: Topic, student: str) -> Submission:
    """The notebook read as if it had been handed in as a file; its test cells are left out."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{topic.module}.ipynb"
        path.write_text(json.dumps(nb), encoding="utf-8")
        return read_submission(path, topic, student)


def _item_of(cell: Any, topic: Topic) -> str:
    """The rubric item that a grade cell stands for."""
    mark, table = cell.metadata.nbgrader, grade_ids(topic)
    item = table.get(mark.grade_id)
    if item is None:
        known = ", ".join(table)
        raise CellError(
            f"grade cell '{mark.grade_id}' is no rubric item of {topic.id} (has: {known})"
        )
    points = topic.rubric[item].points
    if float(mark.points) != points:
        raise CellError(
            f"grade cell '{mark.grade_id}' is worth {float(mark.points):g} points and {item} in the "
            f"rubric of {topic.id} {points:g}; make them the same and generate the assignment anew"
        )
    return item


def _outputs(item: ItemResult, result: Result) -> list[Any]:
    """What is told to the student, then a number by itself, which nbgrader takes as the score."""
    if item.score is None:
        # neither a pass nor a zero, and a code cell's output can say nothing else to nbgrader
        raise CellError(f"{item.id} was not measured: {item.message}")
    message = item.message or result.message
    told = [f"{item.title}: {item.score:g} of {item.max_score:g}", message, *item.hints]
    text = "".join(f"{line}\n" for line in told if line)
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": text},
        {
            "output_type": "execute_result",
            "execution_count": None,
            "metadata": {},
            "data": {"text/plain": repr(item.score)},
        },
    ]
    return list(from_dict(outputs))
