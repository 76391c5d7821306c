"""Grade what was handed in on Gradescope: ``python -P -m softmark.exports.gradescope_run ROOT [TIER]``.

ROOT is ``/autograder`` there. Where this does not end well, ROOT/results/results.json is left as
``run_autograder`` has written it before.
"""

from __future__ import annotations

import json
import secrets
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

from softmark.batch import Run, grade_all
from softmark.course import load_course
from softmark.exports.gradescope import (
    METADATA_FILE,
    RESULTS_FILE,
    HandIn,
    as_results,
    for_instructor,
)
from softmark.files import write_whole


def run(root: Path, least: str | None = None) -> None:
    """Grade ROOT/submission with the course in ROOT/source and write ROOT/results/results.json.

    ``least`` is the isolation tier below which to refuse. What is printed is for the instructor.
    """
    course = load_course(root / "source/course")
    (entry,) = course.topics
    grading = Run(course, course.topic(entry.id), secrets.randbits(63), least)
    hand_in = _hand_in(root / METADATA_FILE)
    (result,) = grade_all(grading, [("submission", root / "submission")], workers=1)
    now = datetime.now(UTC)
    content = as_results(result, course.feedback, hand_in, now, grading.seed)
    write_whole(root / "results" / RESULTS_FILE, json.dumps(content, indent=2) + "\n")
    print(for_instructor(result, grading.seed), end="")


def _hand_in(path: Path) -> HandIn | None:
    """None where it cannot be read: then all is on time and unlimited, rather than nothing graded."""
    try:
        return HandIn.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"without dates and limits: {error}")
        return None


def main() -> int:
    """The command; 1 where results.json was not written."""
    try:
        run(Path(sys.argv[1]), *sys.argv[2:3])
    except Exception:  # whatever it is: for the instructor, who can have it graded again
        print(traceback.format_exc())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
