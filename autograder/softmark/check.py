"""The public tests on a student's own files: plain pytest, in this process, reported kindly.

What a student sees is the first failure in the order of the tasks, with the hints that ``compare``
finds; nothing here knows an answer.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from softmark.course import TOPIC_FILE, CourseError, load_topic
from softmark.policy import scan
from softmark.yamlfile import suggestion

PUBLIC_TESTS = "test_public.py"


@dataclass(slots=True)
class Checked:
    """One public test: its name, what it shows, and what went wrong, if anything did."""

    name: str
    about: str
    message: str = ""
    todo: bool = False


@dataclass(slots=True)
class _Collector:
    """A pytest plugin that keeps outcomes and throws the rest away."""

    told: Callable[[Checked], None]
    tests: list[Checked] = field(default_factory=list)
    broken: str = ""
    stopped: str = ""

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        error = call.excinfo.value if call.excinfo else None
        if call.when != "call" and error is None:
            return
        about = (getattr(item, "function", item).__doc__ or item.name).strip().split("\n")[0]
        case = getattr(getattr(item, "callspec", None), "id", "")
        checked = Checked(item.name, about.rstrip(".") + (f" [{case}]" if case else ""))
        if isinstance(error, NotImplementedError):
            checked.todo, checked.message = True, f"{error} is still to be written"
        elif isinstance(error, AssertionError):
            checked.message = str(error) or "the assertion does not hold"
        elif error is not None:
            checked.message = f"{type(error).__name__}: {error}{_where(call, item.path.parent)}"
        self.tests.append(checked)
        # past the silence around the tests, so that a loop shows how far it came
        with contextlib.redirect_stdout(sys.__stdout__):
            self.told(checked)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        last = excinfo.traceback[-1]
        place = f"{Path(last.path).name}, line {last.lineno + 1}: {str(last.statement).strip()}"
        self.stopped = f"Stopped in {place}"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.broken:
            lines = [line for line in report.longreprtext.splitlines() if line.strip()]
            said = "\n".join(line.removeprefix("E").strip() for line in lines[-4:])
            self.broken = f"Your file cannot be imported:\n{said}"


def _where(call: pytest.CallInfo[None], folder: Path) -> str:
    """The last line of the student's own code that an exception passed."""
    assert call.excinfo is not None
    own = [e for e in call.excinfo.traceback if Path(e.path).parent == folder]
    if not own:
        return ""
    last = own[-1]
    line = str(last.statement).strip()
    return f"\n  in {Path(last.path).name}, line {last.lineno + 1}: {line}"


def find_topic_folder(topic: str | None, start: Path) -> Path:
    """The folder to check: ``topic`` below ``start``, or ``start`` itself.

    Raises CourseError where there is no assignment there.
    """
    folder = start if topic is None else start / topic
    if (folder / TOPIC_FILE).exists():
        return folder
    if topic is not None and topic == start.name and (start / TOPIC_FILE).exists():
        return start
    known = sorted(path.parent.name for path in start.glob(f"*/{TOPIC_FILE}"))
    if known:
        near = suggestion(topic, known) if topic else ""
        raise CourseError(f"say which topic: {', '.join(known)}{near}")
    raise CourseError(
        f"no {TOPIC_FILE} in {folder}; go to the folder of a topic, the one with handout.md"
    )


def run_public_tests(
    folder: Path, told: Callable[[Checked], None] = lambda _: None
) -> tuple[list[Checked], str]:
    """Run ``folder``'s public tests: every test, each also ``told`` when it is done, and what kept
    them from being run to the end, if anything did."""
    tests = folder / PUBLIC_TESTS
    if not tests.exists():
        raise CourseError(f"no {PUBLIC_TESTS} in {folder}; take it from the starter again")
    trouble = _trouble(folder)
    if trouble:
        return [], trouble
    collector = _Collector(told)
    options = ["-p", "no:cacheprovider", "-p", "no:terminal", "--capture=no", "-c", os.devnull]
    silence = io.StringIO()
    with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
        arguments = [*options, "--rootdir", str(folder), str(tests)]
        code = pytest.main(arguments, plugins=[collector])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not collector.broken:
        collector.broken = collector.stopped or (
            "The tests did not run to their end. Does your file call exit()?"
        )
    return collector.tests, collector.broken


def _trouble(folder: Path) -> str:
    """What would keep the files from being graded at all."""
    topic = load_topic(folder)
    missing = [name for name in topic.files if not (folder / name).is_file()]
    if missing:
        there = sorted(path.name for path in folder.glob("*.py") if path.name != PUBLIC_TESTS)
        found = f" (here: {', '.join(there)})" if there else ""
        return f"There is no {missing[0]} in {folder}{found}."
    sources = {
        name: (folder / name).read_text(encoding="utf-8", errors="replace") for name in topic.files
    }
    violations = scan(sources, topic.policy)
    if not violations:
        return ""
    first = violations[0]
    said = f"{first.file}, line {first.line} uses {first.name}: {first.reason}."
    graded = " Nothing would be graded." if topic.policy.action == "reject" else ""
    return said + graded
