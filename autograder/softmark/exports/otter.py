"""Otter's plugin: a submission is graded in a Session, and Otter is told what each item earned.

Otter runs a notebook and the tests on it in one kernel, and takes for results what the kernel leaves
in a file. With ``SoftmarkPlugin`` it runs an empty notebook:

- ``during_assign`` and ``during_generate`` (``otter assign``): the course of this one topic goes into
  otter_config.json. It lies beside no submission, whereas what Otter calls ``files`` and ``tests`` does.
- ``before_grading``: what was handed in is read as text and graded.
- ``before_execution``: it is removed; the kernel starts in a folder without files of the student's.
- ``after_grading``: the rubric's items become Otter's results.

Needs the extra ``otter``.
"""

from __future__ import annotations

import base64
import io
import json
import math
import secrets
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from otter.plugins import AbstractOtterPlugin
from otter.test_files import GradingResults
from otter.test_files.abstract_test import TestCase, TestCaseResult
from otter.test_files.ok_test import OKTestFile
from pydantic import BaseModel, ConfigDict, Field

from softmark.batch import Run, grade_all
from softmark.course import Feedback, load_course
from softmark.exports.gradescope import NOT_GRADED, HandIn, as_results, for_instructor
from softmark.result import ItemResult, Result

PLUGIN = f"{__name__}.SoftmarkPlugin"
"""The name by which Otter's configuration asks for the plugin."""


class Settings(BaseModel):
    """What stands under the plugin's name in Otter's configuration.

    ``course`` is a .zip beside the master notebook, with the topic's private half; ``packed`` the same
    as text, which is what an autograder has in its place. ``seed`` is that of the inputs, by default
    fresh and secret for each submission; ``isolation`` the least tier to accept.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    course: str = ""
    packed: str = ""
    seed: int | None = Field(default=None, ge=0)
    isolation: str | None = None


class SoftmarkPlugin(AbstractOtterPlugin):  # type: ignore[misc]
    """See the module. Otter makes one for each run of its own."""

    def __init__(self, submission_path: str, metadata: Any, config: Mapping[str, Any]) -> None:
        super().__init__(submission_path, metadata, config)
        self._settings = Settings.model_validate(config)
        self._submission = Path(submission_path)
        self._graded: Result | None = None

    # ---- otter assign

    def during_assign(self, assignment: Any) -> None:
        """Read the course that lies beside the master notebook."""
        content = (assignment.master.parent / self._settings.course).read_bytes()
        packed = base64.b64encode(content).decode()
        self._settings = self._settings.model_copy(update={"course": "", "packed": packed})

    def during_generate(self, otter_config: dict[str, Any], assignment: Any) -> None:
        """Put it into the autograder's configuration."""
        settings = self._settings.model_dump(exclude_defaults=True)
        others = [entry for entry in otter_config["plugins"] if PLUGIN not in entry]
        otter_config["plugins"] = [*others, {PLUGIN: settings}]

    # ---- grading

    def before_grading(self, config: Any) -> None:
        """Grade what was handed in.

        Raises what stops a grader: Otter then ends with an error, and results.json holds no score.
        """
        folder = self._submission.parent
        results = folder.parent / "results" / "results.json"
        results.write_text(json.dumps(NOT_GRADED, indent=2), encoding="utf-8")
        # workers are another user, where there is one for them
        for private in (folder.parent / "source", results.parent):
            private.chmod(0o700)
        # Otter's own, put beside what was handed in; the tests would run in the kernel
        for name in ("tests", *_names(folder.parent / "source" / "files")):
            _remove(folder / name)
        _remove_if_empty(folder / "__init__.py")
        _remove(folder / ".OTTER_LOG")  # a pickle of the student's, which Otter would load
        with tempfile.TemporaryDirectory(prefix="softmark-") as place:
            packed = base64.b64decode(self._settings.packed)
            zipfile.ZipFile(io.BytesIO(packed)).extractall(place)
            course = load_course(Path(place))
            (entry,) = course.topics
            seed = secrets.randbits(63) if self._settings.seed is None else self._settings.seed
            run = Run(course, course.topic(entry.id), seed, self._settings.isolation)
            (self._graded,) = grade_all(run, [("submission", folder)], workers=1)
        self._seed, self._feedback = seed, course.feedback

    def before_execution(self, submission: Any) -> Any:
        """An empty notebook, and nothing of the student's where its kernel starts."""
        kept = self._submission  # ``otter grade`` copies it back
        script = kept.suffix == ".py"
        for name in _names(kept.parent):
            if script or name != kept.name:
                _remove(kept.parent / name)
        if script:
            kept.touch()
        kernel = {"name": "python3", "display_name": "Python 3"}
        metadata = {"kernelspec": kernel}
        empty = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": []}
        return nbformat.from_dict(empty)  # type: ignore[no-untyped-call]

    def after_grading(self, results: GradingResults) -> None:
        """Replace the results, whatever the empty notebook gave: a kernel that died is no zero."""
        assert self._graded is not None  # before_grading has raised otherwise
        results.__class__ = ItemResults
        results.take(self._graded, self._feedback, self.submission_metadata, self._seed)

    def generate_report(self) -> str:
        """What stands in the autograder's output, which is for the instructor."""
        return "" if self._graded is None else for_instructor(self._graded, self._seed)


class ItemResults(GradingResults):  # type: ignore[misc]
    """Otter's results of one submission: a test for each rubric item, whose id is its name.

    What was not measured is NaN, so that nobody takes it for a zero; Otter's tables leave it blank.
    Extensions and bonus have 0 points possible and come on top.
    """

    def take(self, result: Result, feedback: Feedback, metadata: Any, seed: int) -> None:
        """Be the results that ``result`` tells of; ``metadata`` is Gradescope's of the hand-in."""
        first = next((i.id for i in result.items if i.message == result.message), "")
        items = [  # what is said of the whole is said once
            item.model_copy(update={"message": ""})
            if item.message == result.message and item.id != first
            else item
            for item in result.items
        ]
        super().__init__([_item(item) for item in items], notebook=self.notebook)
        self._score = result.score
        self._content = as_results(result, feedback, _hand_in(metadata), datetime.now(UTC), seed)
        self.set_plugin_data(PLUGIN, {"seed": seed, "result": json.loads(result.to_json())})

    @property
    def total(self) -> float:
        """The score of the whole, by the course's rules for extensions and bonus."""
        return math.nan if self._score is None else self._score

    def to_gradescope_dict(self, ag_config: Any) -> dict[str, Any]:
        """results.json, as the course's feedback policy has it."""
        return self._content


def _item(item: ItemResult) -> OKTestFile:
    score = math.nan if item.held else item.score or 0.0
    points = item.max_score if item.tier == "core" else 0.0
    case = TestCase(item.title, "", False, points, None, None)
    test = OKTestFile(item.id, "", [case], all_or_nothing=False)
    message = "\n".join(text for text in (item.message, *item.hints) if text)
    test.test_case_results = [TestCaseResult(case, message, item.status == "passed")]
    test.update_score(score)
    return test


def _hand_in(metadata: Any) -> HandIn | None:
    """None where this is no hand-in on Gradescope, such as for ``otter run``."""
    try:
        return HandIn.from_json(json.dumps(metadata))
    except ValueError:
        return None


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def _remove(path: Path) -> None:
    """Remove what is there, if anything; of a link the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_if_empty(path: Path) -> None:
    if path.is_file() and not path.stat().st_size:
        path.unlink()
