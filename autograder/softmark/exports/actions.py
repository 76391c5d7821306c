"""Results in a job of GitHub Actions: ``python -P -m softmark.exports.actions OUT``.

OUT is what ``softmark grade --out`` has written. A table of the class goes into the summary of the job,
as far as GitHub takes it; lines of students' files that a message names are marked, in the log. For
the instructor, in a private repository: all that is in a result may be told.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from softmark.exports.github import headline
from softmark.exports.junit import read_results
from softmark.github import cell, error_at
from softmark.result import Result

SUMMARY_BYTES = 1000 * 1024
"""What is written of a summary. GitHub drops one of more than 1024 KiB a step, without a word in it."""
MARKS = 10
"""GitHub shows ten errors of a step."""
_LINE = re.compile(r"\b([\w.-]+\.py)(?::|, line )(\d+)")
_LONGEST = 2_000  # characters of a message in the table


def summary(results: Sequence[Result], limit: int = SUMMARY_BYTES) -> str:
    """A table in Markdown, a row for each submission, of at most ``limit`` bytes. What did not fit is
    counted below it."""
    open_items = sum(item.held for result in results for item in result.items)
    lines = [f"### {len(results)} graded", ""]
    if open_items:
        lines += [f"{open_items} items could not be measured and are without points so far.", ""]
    lines += ["| submission | | what to look at first |", "| --- | --- | --- |"]
    room = limit - 200 - sum(len(line.encode()) + 1 for line in lines)
    for number, result in enumerate(results):
        row = f"| {cell(result.student)} | {headline(result)} | {cell(_first(result)[:_LONGEST])} |"
        room -= len(row.encode()) + 1
        if room < 0:
            lines += ["", f"{len(results) - number} more did not fit: they are among the results."]
            break
        lines.append(row)
    return "\n".join([*lines, ""])


def marks(results: Sequence[Result]) -> Iterator[str]:
    """Commands to GitHub: an error at each line of a student's file that a message names, the first
    ``MARKS`` of them. The path begins with the submission's id."""
    found: dict[tuple[str, str], str] = {}
    for result in results:
        texts = [("", result.message), *((item.title, item.message) for item in result.items)]
        for title, text in texts:
            for name, line in _LINE.findall(text):
                path, about = f"{result.student}/{name}", title or result.topic
                found.setdefault((path, line), error_at(path, int(line), about, text))
    yield from list(found.values())[:MARKS]


def _first(result: Result) -> str:
    """The first thing that is wrong, or open."""
    if result.message:
        return result.message
    for item in result.items:
        if item.status != "passed" and not item.apart:
            return f"{item.id}: {item.message}"
    return ""


def tell(out: Path) -> None:
    """Write the summary, if this is a job, and the marks. Raises OSError and ValueError."""
    results = read_results(out)
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    if page:
        with Path(page).open("a", encoding="utf-8") as file:
            file.write(summary(results))
    for mark in marks(results):
        print(mark)


if __name__ == "__main__":
    try:
        tell(Path(sys.argv[1]))
    except (OSError, ValueError, LookupError) as error:
        sys.exit(f"{' '.join(sys.argv[1:])}: {error}")
