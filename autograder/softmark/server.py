"""The grading process: pytest collects the graders once, then submissions are served.

Started by ``softmark.session`` with a socket to read from; what happens to each submission is
``softmark.grader``'s.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softmark import plugin
from softmark.bench import Bench, GraderFault
from softmark.course import CourseError, load_course
from softmark.grader import RAISED, Grader
from softmark.intake import Submission
from softmark.isolation import wire
from softmark.isolation.host import ZygoteFailed
from softmark.isolation.tiers import Level


class _Server:
    """A pytest plugin that takes the place of the run loop."""

    def __init__(self, connection: socket.socket, bench: Bench) -> None:
        self._connection, self._bench = connection, bench

    def pytest_configure(self, config: pytest.Config) -> None:
        """Give the fixtures the Bench of this process."""
        config.stash[plugin.BENCH] = self._bench

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        grader = Grader(self._bench, session.items)
        _send(self._connection, {"ready": True})
        with contextlib.suppress(wire.Closed):
            while True:
                asked = _receive(self._connection)
                grade = grader.grade_quickly if asked.pop("quick") else grader.grade
                result = grade(Submission(**asked))
                _send(self._connection, {"result": result.to_json()})
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> pytest.TestReport:
        error = call.excinfo.value if call.excinfo else None
        if error is not None and item.stash[RAISED] is None:
            item.stash[RAISED] = error
        # pytest's own report would format a traceback that nobody reads
        outcome: Any = "failed" if error else "passed"
        when: Any = call.when
        return pytest.TestReport(item.nodeid, item.location, {}, outcome, None, when)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            raise GraderFault(f"{report.nodeid} cannot be imported: {_last_line(report)}")

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        raise excinfo.value


def _last_line(report: pytest.CollectReport) -> str:
    lines = [line for line in report.longreprtext.splitlines() if line.strip()]
    return lines[-1].removeprefix("E").strip() if lines else "unknown error"


def _send(connection: socket.socket, message: Any) -> None:
    connection.sendall(wire.frame(wire.pack(message)))


def _receive(connection: socket.socket) -> Any:
    return wire.unpack(wire.read_frame(connection.recv))


def main() -> int:
    """Serve on the socket whose descriptor is the first argument; stay on the processor that is the
    second, if there is one."""
    if sys.argv[2:]:
        os.sched_setaffinity(0, {int(sys.argv[2])})
    connection = socket.socket(fileno=int(sys.argv[1]))
    try:
        folder, topic_id, seed, level, device = _receive(connection)
        course = load_course(Path(folder))
        with Bench(course, course.topic(topic_id), seed, Level(**level), device) as bench:
            _serve(connection, bench)
    except (GraderFault, ZygoteFailed, CourseError) as error:
        with contextlib.suppress(OSError):
            _send(connection, {"failed": str(error)})
        return 1
    except wire.Closed:
        pass
    return 0


def _serve(connection: socket.socket, bench: Bench) -> None:
    graders = bench.course.graders(bench.topic.id)
    if not any(graders.glob("test_*.py")):
        raise GraderFault(f"no graders: {graders} holds no test_*.py")
    options = "-p softmark.plugin -p no:cacheprovider -p no:terminal --assert=plain --capture=no"
    arguments = [*options.split(), "--rootdir", str(graders), "-c", os.devnull, str(graders)]
    # what submissions return is computed with here: a NaN of theirs is no fault of the grader's
    with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
        pytest.main(arguments, plugins=[_Server(connection, bench)])


if __name__ == "__main__":
    os._exit(main())  # everything is closed: the interpreter need not take itself apart
