"""What a student may see of a result: the one place that says so, on every platform."""

from __future__ import annotations

from typing import get_args

from softmark.course import Feedback, Shows
from softmark.result import UNSCORED, ItemResult, Result

_LEVELS: tuple[Shows, ...] = get_args(Shows)

NOT_MEASURED = "The grader failed here; this is not your code's fault. It will be graded again."


def shows_now(feedback: Feedback, *, closed: bool, earlier_today: int) -> Shows:
    """What a hand-in shows.

    ``closed``: whether its student can no longer hand in, not even late; ``earlier_today``: how many
    of the student's hand-ins were answered before this one on the same day.
    """
    if closed:
        return feedback.after_due
    if feedback.runs_a_day and earlier_today >= feedback.runs_a_day:
        return "nothing"
    return feedback.before_due


def as_shown(result: Result, shows: Shows) -> Result:
    """The result with all taken out of it that a student may not see.

    Always left is whether the files could be read and run: ``status``, ``message`` and ``notes``.
    Never left is what is for the instructor: flags, claims, which mistake it was, and the text of a
    fault of the grader's own, which may quote a hidden test.
    """
    level = _LEVELS.index(shows)
    items = result.items if level >= _LEVELS.index("items") else ()
    faulty = result.status == "graded" and result.message
    return result.model_copy(
        update={
            "score": None if shows == "nothing" else result.score,
            "parts": () if shows == "nothing" else result.parts,
            "items": tuple(_item(item, level) for item in items),
            "message": NOT_MEASURED if faulty else result.message,
            "flags": (),
        }
    )


def _item(item: ItemResult, level: int) -> ItemResult:
    message, hints = item.message, item.hints
    if item.status == "error":
        message, hints = NOT_MEASURED, ()
    elif item.status not in UNSCORED and level < _LEVELS.index("messages"):
        message, hints = "", ()
    elif level < _LEVELS.index("hints") and item.mistake:
        hints = hints[1:]  # the first is the known mistake's
    cause = item.cause if level >= _LEVELS.index("messages") else None
    return item.model_copy(
        update={
            "message": message,
            "hints": hints,
            "cause": cause,
            "claim": False,
            "mistake": "",
        }
    )
