"""A result as Gradescope takes it: results.json, by its specification of autograders.

Everything is told as plain text, which Gradescope does not interpret: much of it quotes students.
What could not be measured goes without a score; Gradescope adds up what has one.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import AwareDatetime, BaseModel, ValidationError

from softmark.course import Feedback, Shows
from softmark.feedback import as_shown, shows_now
from softmark.result import ItemResult, Result

RESULTS_FILE = "results.json"
METADATA_FILE = "submission_metadata.json"

_DAY = timedelta(days=1)
_MOST = 8000  # characters of any text
_NO_FAULT = (
    "This is no fault of yours, and no grade. Your files are handed in; your instructor can have "
    "them graded again."
)
_HEADINGS = {
    "missing": "Nothing could be graded.",
    "unreadable": "Nothing could be graded.",
    "import_error": "Your code could not be run.",
    "rejected": "This was not accepted.",
}

NOT_GRADED: Mapping[str, Any] = {
    "output": f"The autograder did not finish. {_NO_FAULT}",
    "output_format": "text",
    "visibility": "visible",
    "stdout_visibility": "hidden",
    "tests": [{"name": "Not graded yet", "status": "failed", "output": _NO_FAULT}],
    "extra_data": {"softmark": {"measured": False}},
}
"""What stands in results.json until there is something better."""


# ---- the hand-in ---------------------------------------------------------------------------------


class _Dates(BaseModel):
    due_date: AwareDatetime | None = None
    late_due_date: AwareDatetime | None = None


class _User(BaseModel):
    assignment: _Dates | None = None


class _Earlier(BaseModel):
    submission_time: AwareDatetime
    autograder_error: bool | None = None
    results: Any = None


class _Metadata(BaseModel):
    created_at: AwareDatetime
    assignment: _Dates = _Dates()
    users: tuple[_User, ...] = ()
    previous_submissions: tuple[_Earlier, ...] = ()


@dataclass(frozen=True)
class HandIn:
    """When a submission was handed in, and when it was due.

    ``due`` and ``last`` (until when one may hand in late) are those of its students, extensions
    included, the latest of a group's; None where there is no such date. ``earlier_today`` counts the
    hand-ins of the same day, by the clock of ``created``, that were graded before.
    """

    created: datetime
    due: datetime | None = None
    last: datetime | None = None
    earlier_today: int = 0

    @classmethod
    def from_json(cls, text: str) -> HandIn:
        """From submission_metadata.json. Raises ValueError where it has not the form of one."""
        try:
            data = _Metadata.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"{METADATA_FILE}: {place}: {first['msg']}") from None
        dates = [user.assignment or data.assignment for user in data.users] or [data.assignment]
        created = data.created_at
        earlier = [
            one
            for one in data.previous_submissions
            if one.submission_time < created
            and one.submission_time.astimezone(created.tzinfo).date() == created.date()
            and not one.autograder_error
            and not _unmeasured(one.results)
        ]
        return cls(
            created,
            _latest([date.due_date for date in dates]),
            _latest([date.late_due_date or date.due_date for date in dates]),
            len(earlier),
        )

    @property
    def late(self) -> timedelta:
        """By how much it is late; nothing where it is on time."""
        return max(self.created - self.due, timedelta(0)) if self.due else timedelta(0)

    @property
    def late_days(self) -> int:
        """Days begun since it was due."""
        return math.ceil(self.late / _DAY)


def _latest(dates: list[datetime | None]) -> datetime | None:
    known = [date for date in dates if date is not None]
    return max(known) if len(known) == len(dates) else None


def _unmeasured(results: Any) -> bool:
    """Whether an earlier results.json of ours says that the grader failed."""
    for key in ("extra_data", "softmark", "measured"):
        results = results.get(key) if isinstance(results, dict) else None
    return results is False


# ---- results.json --------------------------------------------------------------------------------


def as_results(
    result: Result, feedback: Feedback, hand_in: HandIn | None, now: datetime, seed: int
) -> dict[str, Any]:
    """The content of results.json. ``now`` has a time zone; without a ``hand_in`` nothing is due."""
    last = hand_in.last if hand_in else None
    closed = last is not None and now > last
    earlier = hand_in.earlier_today if hand_in else 0
    shows = shows_now(feedback, closed=closed, earlier_today=earlier)
    level, visibility = shows, "visible"
    if shows == "nothing":  # tests that are hidden hide the total, too
        level, visibility = _withheld(feedback, closed)
    shown = as_shown(result, level)
    told = [*_status(result, shown), *_lateness(hand_in)]
    if shows == "nothing":
        told.append("This was graded and counts; its points do not show now.")
    if hand_in and not closed and result.score is not None:
        told += _answers(feedback, hand_in)
    told += [f"Note: {note}" for note in shown.notes]
    softmark = {
        "measured": result.score is not None,
        "status": result.status,
        "shows": shows,
        "seed": str(seed),  # JSON readers round numbers of this size
        "digest": result.digest,
        "late_days": hand_in.late_days if hand_in else 0,
    }
    content: dict[str, Any] = {
        "output": _plain("\n\n".join(told)),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "execution_time": result.seconds,
        "tests": [
            _test(number, item, shown.message, visibility)
            for number, item in enumerate(shown.items, 1)
        ],
        "extra_data": {"softmark": softmark},
    }
    if shows != "nothing" and (board := list(_leaderboard(result))):
        content["leaderboard"] = board
    return content if result.score is None else {"score": result.score, **content}


def _leaderboard(result: Result) -> Iterator[dict[str, Any]]:
    """What right items take, as multiples of what the reference takes: less is better."""
    for item in result.items:
        for what, ratio in item.measured.items():
            yield {"name": f"{item.id}: {what}", "value": round(ratio, 3), "order": "asc"}


def _withheld(feedback: Feedback, closed: bool) -> tuple[Shows, str]:
    """What a hand-in that shows nothing keeps for later, and until when."""
    after = feedback.after_due in ("items", "messages", "hints")
    # a student with an extension may see it earlier than due
    level = feedback.after_due if feedback.before_due == "nothing" else feedback.before_due
    kept: Shows = "items" if level in ("nothing", "total") else level
    return kept, "after_due_date" if after and not closed else "hidden"


def _status(result: Result, shown: Result) -> Iterator[str]:
    if result.status != "graded":
        yield f"{_HEADINGS[result.status]} {shown.message}"
    missing = sum(item.held for item in result.items)
    if missing:
        count = f"{missing} of {len(result.items)} items"
        yield f"{count} could not be measured and are without points so far. {_NO_FAULT}"


def _lateness(hand_in: HandIn | None) -> Iterator[str]:
    if hand_in and hand_in.late:
        hours, rest = divmod(hand_in.late, timedelta(hours=1))
        minutes = rest // timedelta(minutes=1)
        days, hours = divmod(hours, 24)
        spans = [(days, "d"), (hours, "h"), (minutes, "min")]
        late = " ".join(f"{count} {unit}" for count, unit in spans if count) or "less than a minute"
        count = hand_in.late_days
        yield f"Handed in late by {late}: {count} late day{'s' if count > 1 else ''}."


def _answers(feedback: Feedback, hand_in: HandIn) -> Iterator[str]:
    """How many of the day's answers are left."""
    most, number = feedback.runs_a_day, hand_in.earlier_today + 1
    if not most or feedback.before_due == "nothing":
        return
    if number <= most:
        yield f"This was answer {number} of {most} today; {most - number or 'none'} left."
    else:
        midnight = (hand_in.created + _DAY).replace(hour=0, minute=0)
        yield (
            f"The {most} answers of this day are used up. What you hand in from "
            f"{midnight:%Y-%m-%d %H:%M} ({midnight:%Z}) on is answered again."
        )


def _test(number: int, item: ItemResult, said: str, visibility: str) -> dict[str, Any]:
    """One item; ``said`` is the message of the whole, which need not be repeated."""
    lines = [] if item.message == said else [item.message]
    lines += [f"Hint: {hint}" for hint in item.hints]
    name = f"{item.id}: {item.title}"
    entry: dict[str, Any] = {"number": str(number)}
    if item.score is None:
        name = f"Not measured: {name}"
    else:
        entry["score"] = item.score
        if item.tier == "core":
            entry["max_score"] = item.max_score
        else:  # without a maximum: the maxima of the tests add up to the assignment's points
            name += f" ({item.tier}, up to {item.max_score:g} on top)"
    if not item.apart:  # which is no failure of anybody's
        entry["status"] = "passed" if item.status == "passed" else "failed"
    return entry | {
        "name": _plain(name),
        "output": _plain("\n".join(line for line in lines if line)),
        "tags": [item.tier, item.status],
        "visibility": visibility,
    }


def _plain(text: str) -> str:
    """Text without what a terminal or a browser may take for a command, and not without end."""
    kept = "".join(
        c if c in "\n\t" or unicodedata.category(c)[0] != "C" else "\ufffd" for c in text
    )
    return kept if len(kept) <= _MOST else f"{kept[:_MOST]} …"


def for_instructor(result: Result, seed: int) -> str:
    """What the output of the autograder, which students do not see, tells of a run."""
    score = "none" if result.score is None else f"{result.score:g} of {result.max_score:g}"
    lines = [
        f"{result.topic}: {result.status}, score {score}",
        f"seed {seed}, digest {result.digest}",
        f"isolation {dict(result.isolation)}",
        f"versions {dict(result.versions)}",
        *(f"flag: {flag}" for flag in result.flags),
        *([result.message] if result.message else []),
    ]
    for item in result.items:
        known = f"  known mistake: {item.mistake}" if item.mistake else ""
        claim = "  (a claim)" if item.claim else ""
        points = "-" if item.score is None else f"{item.score:g}"
        line = f"{item.status:10} {points:>5}/{item.max_score:g}  {item.id}{claim}{known}"
        lines.append(line)
        if item.status == "error":
            lines.append(f"    {item.message}")
    return _plain("\n".join(lines)) + "\n"
