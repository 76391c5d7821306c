"""What is said of one submission: the schema of ``results/<id>.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

from softmark.course import Course, Item, Tiers, Topic
from softmark.questions import Tier
from softmark.script import Cause

SCHEMA = 1

ItemStatus = Literal["passed", "partial", "failed", "error", "not_graded", "invalid"]
Status = Literal["graded", "missing", "unreadable", "import_error", "rejected"]

UNSCORED: frozenset[ItemStatus] = frozenset({"error", "not_graded", "invalid"})
"""Statuses of an item that was not measured: neither a pass nor a zero."""


class ItemResult(BaseModel):
    """One rubric item. ``score`` is None where it was not measured; ``claim`` says that it is passed
    on what was seen inside the submission's own process. ``mistake`` is the id of the known mistake
    that gives the same wrong outputs, whose hint comes first. ``counts`` is false for what needs a GPU
    in a course that grades without one. ``measured``: what it takes where it is right, such as
    ``{"time": 1.2}``, as multiples of what the reference takes."""

    model_config = ConfigDict(frozen=True)

    id: str
    title: str
    tier: Tier
    score: float | None
    max_score: float
    status: ItemStatus
    cause: Cause | None = None
    message: str = ""
    hints: tuple[str, ...] = ()
    claim: bool = False
    mistake: str = ""
    counts: bool = True
    measured: Mapping[str, float] = {}

    @property
    def held(self) -> bool:
        """Whether a score that counts is still missing."""
        return self.counts and self.score is None

    @property
    def apart(self) -> bool:
        """Whether it counts for nothing here, since it could not be measured."""
        return not self.counts and self.status == "not_graded"


class PartResult(BaseModel):
    """What the items of a part add to the score; ``max_score`` is the points of its core."""

    model_config = ConfigDict(frozen=True)

    title: str
    score: float | None
    max_score: float


class Result(BaseModel):
    """One graded submission. ``score`` is None where the course holds grades that are incomplete.
    ``parts`` is empty where the topic is handed in as a whole.

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
    parts: tuple[PartResult, ...] = ()
    message: str = ""
    notes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    isolation: Mapping[str, str | bool] = {}
    versions: Mapping[str, str] = {}
    digest: str = ""
    seconds: float = 0.0

    def to_json(self) -> str:
        data = self.model_dump()
        return to_json({"schema": data.pop("schema_"), **data}, indent=2).decode() + "\n"

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
    counted = [item for item in items if item.counts]
    return _sum(counted, _worth(course, topic, counted), course)


def counts(course: Course | None, item: Item) -> bool:
    """Whether a rubric item counts: not if it needs a GPU and the course grades without one, nor if it
    needs a package that is not installed here."""
    on_hand = item.device == "cpu" or (course is not None and course.gpu)
    return on_hand and not item.lacks


def totals_of_parts(
    course: Course | None, topic: Topic, items: Sequence[ItemResult]
) -> tuple[PartResult, ...]:
    """What the items of each part of a topic add to its score: together they are the whole."""
    items = [item for item in items if item.counts]
    worth = _worth(course, topic, items)
    found = []
    for part in topic.parts:
        core = [topic.rubric[id] for id in part.items if topic.rubric[id].tier == "core"]
        score = _sum([item for item in items if item.id in part.items], worth, course)
        whole = sum(item.points for item in core)
        found.append(PartResult(title=part.title, score=score, max_score=whole))
    return tuple(found)


def _worth(
    course: Course | None, topic: Topic, items: Sequence[ItemResult]
) -> Mapping[Tier, float]:
    """What a point of each tier adds to the score; a tier without points to earn is not in it."""
    tiers = Tiers() if course is None else course.tiers
    shares: dict[Tier, float] = {"core": 1.0, "extension": tiers.extension, "bonus": tiers.bonus}
    renormalise = course is not None and course.ungraded == "renormalise"
    worth: dict[Tier, float] = {}
    for tier, share in shares.items():
        rubric = [item for item in topic.rubric.values() if counts(course, item)]
        whole = sum(item.points for item in rubric if item.tier == tier)
        of_tier = [item for item in items if item.tier == tier]
        measured = sum(item.max_score for item in of_tier if item.score is not None)
        possible = measured if renormalise else whole
        if possible:
            cap = share * topic.max_score
            worth[tier] = (cap if tier == "core" else min(cap, whole)) / possible
    return worth


def _sum(
    items: Sequence[ItemResult], worth: Mapping[Tier, float], course: Course | None
) -> float | None:
    measured = [item for item in items if item.score is not None]
    renormalise = course is not None and course.ungraded == "renormalise"
    if "core" not in worth or (len(measured) < len(items) and not renormalise):
        return None
    return round(sum(worth[item.tier] * (item.score or 0.0) for item in measured), 6)
