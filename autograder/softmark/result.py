"""What is said of one submission: the schema of ``results/<id>.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from softmark.course import Course, Topic
from softmark.script import Cause

SCHEMA = 1

ItemStatus = Literal["passed", "partial", "failed", "error", "not_graded", "invalid"]
Status = Literal["graded", "missing", "unreadable", "import_error", "rejected"]

UNSCORED: frozenset[ItemStatus] = frozenset({"error", "not_graded", "invalid"})
"""Statuses of an item that was not measured: neither a pass nor a zero."""


class ItemResult(BaseModel):
    """One rubric item. ``score`` is None where it was not measured; ``claim`` says that it is passed
    on what was seen inside the submission's own process. ``mistake`` is the id of the known mistake
    that gives the same wrong outputs, whose hint comes first."""

    model_config = ConfigDict(frozen=True)

    id: str
    title: str
    tier: Literal["core", "extension", "bonus"]
    score: float | None
    max_score: float
    status: ItemStatus
    cause: Cause | None = None
    message: str = ""
    hints: tuple[str, ...] = ()
    claim: bool = False
    mistake: str = ""


class Result(BaseModel):
    """One graded submission. ``score`` is None where the course holds grades that are incomplete.

    ``notes`` say what was done to read it, ``flags`` what a person may want to look at.
    """

    model_config = ConfigDict(frozen=True)

    schema_: int = SCHEMA
    student: str
    topic: str
    status: Status
    score: float | None
    max_score: float
    items: tuple[ItemResult, ...]
    message: str = ""
    notes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    isolation: Mapping[str, str | bool] = {}
    versions: Mapping[str, str] = {}
    digest: str = ""
    seconds: float = 0.0

    def to_json(self) -> str:
        data = self.model_dump(mode="json")
        return json.dumps({"schema": data.pop("schema_"), **data}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Result:
        """Raises ValueError for text that is no result of this schema."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
            raise ValueError(f"not a result of schema {SCHEMA}")
        return cls.model_validate(data)

    @property
    def faulty(self) -> bool:
        """Whether the grader itself failed on an item."""
        return any(item.status == "error" for item in self.items)


def total(course: Course | None, topic: Topic, items: Sequence[ItemResult]) -> float | None:
    """The score of a topic: core points, and extensions and bonuses up to their shares of the core.

    An item that was not measured leaves the total open (None), or, where the course renormalises,
    is left out and the core that was measured is scaled to the whole.
    """
    shares = {"core": 1.0, "extension": 0.10, "bonus": 0.05}
    renormalise = False
    if course is not None:
        shares |= {"extension": course.tiers.extension, "bonus": course.tiers.bonus}
        renormalise = course.ungraded == "renormalise"
    if not renormalise and any(item.score is None for item in items):
        return None
    score = 0.0
    for tier, share in shares.items():
        measured = [item for item in items if item.tier == tier and item.score is not None]
        possible = sum(item.max_score for item in measured)
        if possible:
            earned = sum(item.score or 0.0 for item in measured) / possible
            whole = sum(item.points for item in topic.rubric.values() if item.tier == tier)
            cap = share * topic.max_score
            score += earned * (cap if tier == "core" else min(cap, whole))
        elif tier == "core":
            return None
    return round(score, 6)
