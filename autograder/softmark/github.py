"""``softmark check --github``: the public tests in a workflow of GitHub Actions.

What fails is told in the log, in the summary of the job, and beside the line of the student's file that
raised, or else beside the definition that the test is about.
"""

from __future__ import annotations

import ast
import html
import os
import re
from collections.abc import Sequence
from pathlib import Path

from softmark.check import Checked, run_public_tests
from softmark.course import Topic
from softmark.student import PUBLIC_TESTS, TWIN_TESTS

_MARKS = {"passed": "✓", "failed": "✗", "todo": "·", "skipped": "-"}


def check_on_github(topic: Topic, twin: bool = False) -> bool:
    """Run the public tests and tell GitHub; whether none fails. What is still to be written is no
    failure: a push need not finish a topic. Raises CourseError where there is nothing to run.
    """
    print(f"{topic.id}: {topic.title}")
    tests, broken = run_public_tests(
        topic, lambda test: print(f"{_MARKS[test.status]} {test.about}{test.case}"), twin
    )
    file = topic.twin.file if twin and topic.twin else topic.files[0]
    failed = [test for test in tests if test.status == "failed"]
    if broken:
        print(_annotation(topic, file, _own_line(broken, topic), topic.title, broken))
    marked: set[int] = set()
    for test in failed:
        line = _own_line(test.message, topic) or _line_of_task(topic, file, test, twin)
        if line not in marked:  # GitHub shows ten of a step
            marked.add(line)
            print(_annotation(topic, file, line, f"{test.about}{test.case}", test.message))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with Path(summary).open("a", encoding="utf-8") as page:
            page.write(_summary(topic, tests, broken))
    return not (broken or failed)


def cell(text: str) -> str:
    """Text for a cell of a table in Markdown, in which nothing of it means anything."""
    lines = html.escape(text.strip()).replace("|", "&#124;").splitlines()
    return "".join(["<code>", "</code><br><code>".join(lines), "</code>"]) if lines else ""


def _summary(topic: Topic, tests: Sequence[Checked], broken: str) -> str:
    counts = {status: sum(test.status == status for test in tests) for status in _MARKS}
    words = {"passed": "pass", "failed": "fail", "todo": "to do", "skipped": "skipped"}
    told = ", ".join(f"{n} {words[status]}" for status, n in counts.items() if n)
    lines = [f"### {topic.id}: {html.escape(topic.title)}", "", told or "nothing could be run", ""]
    if broken:
        lines += [cell(broken), ""]
    shown = [test for test in tests if test.status in ("failed", "todo")]
    if shown:
        lines += ["| | test | |", "| --- | --- | --- |"]
        lines += [
            f"| {_MARKS[t.status]} | {cell(t.about + t.case)} | {cell(t.message)} |" for t in shown
        ]
    return "\n".join([*lines, "", ""])


def _annotation(topic: Topic, file: str, line: int, title: str, message: str) -> str:
    """A command to GitHub in the log: an error beside a line of a file of the repository."""
    path = topic.folder / file
    root = Path(os.environ.get("GITHUB_WORKSPACE", "")).absolute()
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    return error_at(shown.as_posix(), max(line, 1), title, message)


def error_at(path: str, line: int, title: str, message: str) -> str:
    """A command to GitHub in the log: an error beside a line of a file."""
    place = f"file={_property(path)},line={line},title={_property(title)}"
    return f"::error {place}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _own_line(message: str, topic: Topic) -> int:
    """The line of the student's own code that a message names; 0 if it names none."""
    files = "|".join(re.escape(name) for name in topic.files)
    found = re.search(rf"\b(?:{files}), line (\d+)", message)
    return int(found[1]) if found else 0


def _line_of_task(topic: Topic, file: str, test: Checked, twin: bool) -> int:
    """Where that is defined which a test is about: of all that it calls the last in the order of the
    tasks. 0 if there is no such thing."""
    calls = topic.twin.calls if twin and topic.twin else topic.calls
    tests = topic.folder / (TWIN_TESTS if twin else PUBLIC_TESTS)
    helpers = {definition.name: definition for definition in _definitions(tests)}
    used: set[str] = set()
    asked = [test.name.partition("[")[0]]
    while asked:
        function = helpers.pop(asked.pop(), None)
        names = {
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in (ast.walk(function) if function else ())
            if isinstance(node, ast.Attribute | ast.Name)
        }
        used |= names
        asked += names
    about = [name for name in calls if name.split(".")[-1] in used]
    if not about:
        return 0
    first, _, method = about[-1].partition(".")
    for definition in _definitions(topic.folder / file):
        if definition.name == first:
            inside = [
                n for n in ast.iter_child_nodes(definition) if getattr(n, "name", "") == method
            ]
            return int(getattr(inside[0] if method and inside else definition, "lineno", 0))
    return 0


_Definition = ast.FunctionDef | ast.ClassDef


def _definitions(path: Path) -> list[_Definition]:
    """The functions and classes of a file; none where it cannot be read as Python."""
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (OSError, SyntaxError, ValueError):
        return []
    return [statement for statement in body if isinstance(statement, _Definition)]
