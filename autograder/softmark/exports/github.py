"""Results as Markdown for students: ``python -P -m softmark.exports.github OUT``.

OUT is what ``softmark grade --out`` has written. Of each OUT/results/<id>.json it makes a page,
OUT/feedback/<id>.md, with as much as the course lets students see on this day, and a line with the
points for the status of a commit, OUT/feedback/<id>.txt.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from softmark.course import CourseError, load_course
from softmark.feedback import as_shown, shows_now
from softmark.github import cell
from softmark.result import Result

_MARKS = {"passed": "✓", "partial": "◐", "failed": "✗"}


def write_feedback(out: Path) -> None:
    """Write the pages. Raises CourseError, and OSError or ValueError where OUT is no such folder."""
    run = json.loads((out / "run.json").read_text(encoding="utf-8"))
    course = load_course(Path(run["course"]))
    (entry,) = [topic for topic in course.topics if topic.id == run["topic"]]
    closed = entry.due is not None and entry.due < datetime.now(UTC).date()
    shows = shows_now(course.feedback, closed=closed, earlier_today=0)
    folder = out / "feedback"
    folder.mkdir(exist_ok=True)
    for path in sorted((out / "results").glob("*.json")):
        result = as_shown(Result.from_json(path.read_text(encoding="utf-8")), shows)
        pages = {".md": as_markdown(result), ".txt": f"{headline(result)}\n"}
        for suffix, text in pages.items():
            (folder / f"{path.stem}{suffix}").write_text(text, encoding="utf-8")


def headline(result: Result) -> str:
    """As in: 83 of 100 points."""
    if result.status != "graded":
        return f"not graded: {result.status.replace('_', ' ')}"
    if result.score is None:
        return "handed in; points are not shown yet"
    return f"{result.score:g} of {result.max_score:g} points"


def as_markdown(result: Result) -> str:
    """A page of what is in a result, for the student."""
    lines = [f"**{result.topic}: {headline(result)}**", ""]
    lines += [text for text in (cell(result.message), *map(cell, result.notes)) if text]
    if result.items:
        lines += ["", "| | item | points | |", "| --- | --- | ---: | --- |"]
    for item in result.items:
        points = "open" if item.score is None else f"{item.score:g}"
        message = "" if item.message == result.message else item.message  # which stands above
        said = cell("\n".join(text for text in (message, *item.hints) if text))
        mark = _MARKS.get(item.status, "?")
        lines.append(f"| {mark} | {cell(item.title)} | {points} of {item.max_score:g} | {said} |")
    return "\n".join([*lines, "", f"Receipt {result.digest[:12]}.", ""])


if __name__ == "__main__":
    try:
        write_feedback(Path(sys.argv[1]))
    except (CourseError, OSError, ValueError, LookupError) as error:
        sys.exit(f"{' '.join(sys.argv[1:])}: {error}")
