"""The public tests on a student's own files: plain pytest, in this process, reported kindly.

What a student sees is what to look at first, in the order of the tasks and the core before what is
extra, with the hints that ``compare`` finds; nothing here knows an answer.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from softmark.course import CourseError, Topic
from softmark.policy import scan_topic
from softmark.questions import ANSWERS_FILE
from softmark.sourcetext import python_text
from softmark.student import PUBLIC_TESTS, TWIN_TESTS, find_answers, missing, violated
from softmark.unpack import RefusedError

NO_TORCH = """\
{file} needs PyTorch, which is not installed here. On Linux, without CUDA and so much smaller:
    python -m pip install torch --index-url https://download.pytorch.org/whl/cpu
On macOS and Windows, or for CUDA on Linux:
    python -m pip install "softmark[torch]\""""

_MOST_PRINTED = 12  # lines
_EXTRA = ("extension", "bonus")


@dataclass(slots=True)
class Checked:
    """One public test: its name in its file, what it shows, how it ended, and what went wrong.

    ``case`` tells tests of several parameters apart, as in [dx]. ``extra`` is for one that belongs
    to an extension or a bonus, as its name or the first words of its docstring say; ``printed`` is
    what the student's code wrote meanwhile.
    """

    name: str
    about: str
    case: str
    extra: bool
    status: Literal["passed", "failed", "todo", "skipped"] = "passed"
    message: str = ""
    printed: str = ""


@dataclass(slots=True, eq=False)
class _Collector:
    """A pytest plugin that keeps outcomes and throws the rest away."""

    told: Callable[[Checked], None]
    folder: Path
    tests: dict[str, Checked] = field(default_factory=dict)
    broken: str = ""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        # its options stay: breakpoint() asks for some
        config.pluginmanager.unregister(name="terminalreporter")

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        error = call.excinfo.value if call.excinfo else None
        if item.nodeid not in self.tests:
            about = (getattr(item, "function", item).__doc__ or item.name).strip().split("\n")[0]
            case = getattr(getattr(item, "callspec", None), "id", "")
            about = about.rstrip(".")
            extra = _extra(item.name, about)
            if extra and not about.lower().startswith(extra):
                about = f"{extra.title()}: {about}"
            name = item.nodeid.partition("::")[2]
            case = f" [{case}]" if case else ""
            self.tests[item.nodeid] = Checked(name, about, case, bool(extra))
        checked = self.tests[item.nodeid]
        if error is None or checked.message:
            return
        checked.status = "failed"
        if isinstance(error, NotImplementedError):
            checked.status = "todo"
            checked.message = f"{error or _last_own(error, self.folder)} is still to be written"
        elif isinstance(error, AssertionError):
            checked.message = str(error) or f"This does not hold: {_last_own(error, self.folder)}"
        elif isinstance(error, pytest.skip.Exception):
            checked.status, checked.message = "skipped", str(error)
        else:
            checked.message = _raised(error, self.folder)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        checked = self.tests[report.nodeid]
        if report.when == "call":
            checked.printed = report.capstdout
        if report.when == "teardown":
            self.told(checked)

    def pytest_exception_interact(
        self, call: pytest.CallInfo[None], report: pytest.CollectReport | pytest.TestReport
    ) -> None:
        if call.when == "collect" and call.excinfo and not self.broken:
            error = call.excinfo.value
            self.broken = _not_imported(error.__cause__ or error, self.folder)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if not self.broken:  # else pytest stops by itself
            place = _last_own(excinfo.value, self.folder)
            self.broken = f"Stopped in {place}" if place else "Stopped."

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
        self.broken = _not_imported(excinfo.value, self.folder)
        return True  # nothing more to print


def _extra(name: str, about: str) -> str:
    """``extension`` or ``bonus`` where a test's name or first words say so."""
    words = {*re.findall("[a-z]+", name.lower()), *re.findall("[a-z]+", about.lower())[:1]}
    return next((tier for tier in _EXTRA if tier in words), "")


def _raised(error: BaseException, folder: Path) -> str:
    said = f"{type(error).__name__}: {error}".rstrip(": ")
    place = _last_own(error, folder)
    return f"{said}\n  in {place}" if place else said


def _last_own(error: BaseException, folder: Path) -> str:
    """The last line of the student's own code that an exception passed."""
    own = ""
    step = error.__traceback__
    while step is not None:
        path = Path(step.tb_frame.f_code.co_filename)
        if path.parent == folder:
            try:
                line = path.read_text(encoding="utf-8").split("\n")[step.tb_lineno - 1].strip()
            except (OSError, UnicodeDecodeError, IndexError):
                line = ""
            own = f"{path.name}, line {step.tb_lineno}" + (f": {line}" if line else "")
        step = step.tb_next
    return own


def _not_imported(error: BaseException, folder: Path) -> str:
    """Why the tests could not even begin."""
    if isinstance(error, SyntaxError) and error.filename:
        line = f"\n  {error.text.strip()}" if error.text else ""
        return f"{Path(error.filename).name}, line {error.lineno}: {error.msg}{line}"
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return NO_TORCH.format(file=_last_own(error, folder).partition(",")[0] or "This")
    if isinstance(error, SystemExit):
        return f"Your file ends Python, as by exit().\n  in {_last_own(error, folder)}"
    return f"Your file cannot be imported.\n{_raised(error, folder)}"


def run_public_tests(
    topic: Topic, told: Callable[[Checked], None] = lambda _: None, twin: bool = False
) -> tuple[Sequence[Checked], str]:
    """Run a topic's public tests, or those of its twin: every test, each also ``told`` when it is
    done, and what kept them from being run to the end, if anything did.

    Raises CourseError where there is nothing to run.
    """
    name = TWIN_TESTS if twin else PUBLIC_TESTS
    tests = topic.folder / name
    if twin and topic.twin is None:
        raise CourseError(f"{topic.id} has no file in PyTorch beside the others: drop --twin")
    if not tests.exists():
        raise CourseError(f"no {name} in {topic.folder}; take it from the starter again")
    trouble = _trouble(topic, twin)
    if trouble:
        return [], trouble
    collector = _Collector(told, topic.folder)
    folder = str(topic.folder)
    options = ["-c", os.devnull, "--rootdir", folder, "--confcutdir", folder, "--assert", "plain"]
    # the second collects all garbage, twice, which takes as long as a third of the tests
    options += ["-p", "no:cacheprovider", "-p", "no:unraisableexception"]
    said = io.StringIO()
    with _own_settings(), contextlib.redirect_stderr(said):
        code = pytest.main([*options, str(tests)], plugins=[collector])
    broken = collector.broken
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        broken = broken or f"There are no tests in {name}. Take it from the starter again."
    elif code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        broken = broken or f"The tests did not run to their end. {said.getvalue()}".strip()
    return list(collector.tests.values()), broken


@contextlib.contextmanager
def _own_settings() -> Iterator[None]:
    """Without options and plugins that happen to be around: they slow a check down, or break it."""
    before = dict(os.environ)
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        os.environ.pop(name, None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _trouble(topic: Topic, twin: bool) -> str:
    """What would keep the files from being tested, or from being graded at all."""
    needed = topic.twin.file if twin and topic.twin else topic.files[0]
    if not (topic.folder / needed).is_file():
        return missing(topic, needed)
    needs_torch = twin or topic.worker == "torch"
    if needs_torch and importlib.util.find_spec("torch") is None:
        return NO_TORCH.format(file=needed)
    sources: dict[str, str] = {}
    other = "" if twin or not topic.twin else topic.twin.file
    for name in topic.files:
        if name != other and (topic.folder / name).is_file():
            try:
                sources[name] = python_text(name, (topic.folder / name).read_bytes())
            except RefusedError as refused:
                return str(refused)
    return next((violated(topic, found) for found in scan_topic(sources, topic)), "")


# ---- on the terminal ---------------------------------------------------------------------------


def check_topic(console: Console, topic: Topic, twin: bool = False) -> bool:
    """Run the public tests and say how it went; whether nothing fails, and the core is written.

    Raises CourseError where there is nothing to run.
    """
    marks = _marks(console)
    tests, broken = run_public_tests(topic, lambda test: _tell(console, marks, test), twin)
    if broken:
        console.print(Text(broken, style="red"), soft_wrap=True)
        return False
    first = first_to_look_at(tests)
    core = [test for test in tests if not test.extra]
    core_done = not any(test.status in ("failed", "todo") for test in core)
    console.print()
    if first is None:
        console.print(Text(f"All done: {_counted(tests)}.", style="bold green"))
        console.print("The hidden graders look at more: other sizes, every gradient by itself.")
    else:
        if core and core_done:
            console.print(Text(f"The core is done: {_counted(core)}.", style="bold green"))
        console.print(Text(f"{_counted(tests)}. Next:", style="bold"))
        _tell(console, marks, first, whole=True)
        _indented(console, Text(first.message))
        if first.printed.strip():
            _indented(console, Text("Your code printed:", style="dim"))
            _indented(console, Text(_last_lines(first.printed), style="dim"), 4)
        tests_file = topic.folder / (TWIN_TESTS if twin else PUBLIC_TESTS)
        command = rerun_command(tests_file, first.name)
        console.print(Text(f"\nJust this one: {command}", style="dim"), soft_wrap=True)
    _tell_of_the_rest(console, topic, twin)
    return first is None or bool(core and core_done and first.status == "todo")


_WORDS = {"passed": "pass", "failed": "fail", "todo": "to do", "skipped": "skipped"}
_Marks = dict[str, tuple[str, str]]


def _marks(console: Console) -> _Marks:
    """A mark and a style for each status."""
    marks = "✓✗·-"
    try:
        marks.encode(console.encoding)
    except UnicodeEncodeError:
        marks = "+x.-"
    return dict(zip(_WORDS, zip(marks, ("green", "red", "dim", "dim"), strict=True), strict=True))


def _counted(tests: Sequence[Checked]) -> str:
    """As in: 9 pass, 1 fail, 13 to do."""
    counts = {word: sum(t.status == status for t in tests) for status, word in _WORDS.items()}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def _tell(console: Console, marks: _Marks, test: Checked, whole: bool = False) -> None:
    """A line for a test, or as many as it takes to say the whole of it."""
    mark, style = marks[test.status]
    room = console.width - len(f"{mark} {test.case}")
    about = test.about if whole or len(test.about) <= room else f"{test.about[: room - 1]}…"
    line = Table.grid(padding=(0, 1))  # what is wrapped stays beside its mark
    text = Text(about + test.case, "" if test.status == "failed" else style)
    line.add_row(Text(mark, style), text)
    console.print(line)


def _indented(console: Console, text: Text, by: int = 2) -> None:
    console.print(Padding(text, (0, 0, 0, by), expand=False))


def _tell_of_the_rest(console: Console, topic: Topic, twin: bool) -> None:
    """What there is to hand in beside the files that were tested."""
    answers = find_answers(topic)
    if answers:
        console.print(Text(f"\n{ANSWERS_FILE}: {answers}."))
        for problem in answers.problems:
            _indented(console, Text(problem, style="yellow"))
    there = topic.twin and all((topic.folder / n).exists() for n in (topic.twin.file, TWIN_TESTS))
    if topic.twin and there and not twin:
        console.print(Text(f"\n{topic.twin.file} was not run: softmark check --twin does that."))


def first_to_look_at(tests: Sequence[Checked]) -> Checked | None:
    """What fails before what is to be written, the core before extras; None if all is well."""
    order = [("failed", False), ("todo", False), ("failed", True), ("todo", True)]
    for status, extra in order:
        for test in tests:
            if (test.status, test.extra) == (status, extra):
                return test
    return None


def _last_lines(text: str) -> str:
    lines = text.rstrip().splitlines()
    cut = len(lines) - _MOST_PRINTED
    return "\n".join(lines if cut <= 0 else [f"... {cut} lines before", *lines[cut:]])


def rerun_command(tests: Path, test: str) -> str:
    """The line to paste that runs one test of a file again, with the Python that runs now."""
    shown = _relative(Path(sys.executable))
    python = python_name(sys.executable, shutil.which("python"), shown)
    return command_line([python, "-m", "pytest", f"{_relative(tests)}::{test}"], os.name == "nt")


def _relative(path: Path) -> str:
    """The shorter of the path from here and the whole one."""
    try:
        return min(os.path.relpath(path), str(path), key=len)
    except ValueError:  # on another drive
        return str(path)


def python_name(running: str, found: str | None, shown: str) -> str:
    """``python`` where that is what runs, as in an active environment; else its path, ``shown``."""
    same = found is not None and Path(found).absolute().parent == Path(running).absolute().parent
    return "python" if same else shown


def command_line(words: Sequence[str], windows: bool) -> str:
    """Words as one line for sh, or for cmd and PowerShell alike."""
    if not windows:
        return shlex.join(words)
    program, *others = words
    # a \ in an argument is lost in Git Bash, a / in a program's path is not understood by cmd
    line = [program, *(word.replace("\\", "/") for word in others)]
    return " ".join(w if re.fullmatch(r"[\w.:/\\~-]+", w) else f'"{w}"' for w in line)
