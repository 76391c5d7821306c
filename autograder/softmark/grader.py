"""What goes on in a grading process: pytest collects the graders once, then submissions are served.

Started by ``softmark.session`` with a socket to read from. The reference is graded first: it fills the
cache of expected Traces, and what it does not pass is the grader's fault, not the student's.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from softmark import plugin, policy
from softmark.bench import Bench, GraderFault, versions
from softmark.course import CourseError, Item, Topic, load_course
from softmark.intake import Submission
from softmark.isolation import wire
from softmark.isolation.host import ZygoteFailed
from softmark.isolation.tiers import Level
from softmark.result import ItemResult, Result, total
from softmark.verdict import Failure

_MOST_TOLD = 5


@dataclass
class Outcome:
    """What is known of one rubric item while its tests run."""

    needs: plugin.Needs
    cases: int = 0
    failures: list[Failure] = field(default_factory=list)
    fault: str = ""

    @property
    def stopped(self) -> bool:
        """Whether its process was lost: the remaining tests are not run."""
        return any(f.cause in ("timeout", "crashed", "out_of_memory") for f in self.failures)


class Grader:
    """Runs the collected tests on a submission and says what each rubric item earned."""

    def __init__(self, bench: Bench, tests: Sequence[pytest.Item]) -> None:
        """Grade the reference first. What it does not pass is the grader's fault and is never scored.

        Raises GraderFault where tests and rubric do not name the same items.
        """
        self.bench = bench
        self.needs = plugin.item_table(tests)
        _check_rubric(bench.topic, self.needs, tests)
        order = list(bench.topic.rubric)
        self._ids = {test: _item_id(test) for test in tests}
        self._direct = {test: plugin.direct_call(test, bench) for test in tests}
        self.tests = sorted(tests, key=lambda test: order.index(self._ids[test]))
        self.broken: dict[str, str] = {}
        problem = bench.take(bench.reference_files)
        if problem is not None:
            raise GraderFault(f"the reference solution cannot be imported: {problem.message}")
        for id, outcome in self._run().items():
            if outcome.fault or outcome.failures:
                said = outcome.fault or outcome.failures[0].message
                self.broken[id] = f"the grader does not pass the reference solution: {said}"

    def grade(self, submission: Submission) -> Result:
        """Its Result. Raises ZygoteFailed where the machine gave way."""
        started = time.perf_counter()
        topic = self.bench.topic
        result = Result(
            student=submission.id,
            topic=topic.id,
            status="graded",
            score=0.0,
            max_score=topic.max_score,
            items=(),
            notes=tuple(submission.notes),
            flags=tuple(policy.watch(submission.files)),
            isolation=self.bench.level.summary(),
            versions=versions(),
            digest=submission.digest,
        )
        result = self._graded(submission, result)
        seconds = round(time.perf_counter() - started, 4)
        return result.model_copy(update={"seconds": seconds})

    def _graded(self, submission: Submission, result: Result) -> Result:
        topic = self.bench.topic
        if submission.status != "ready":
            return _ungraded(topic, result, submission.status, Failure(submission.message))
        violations = policy.scan(submission.files, topic.policy)
        said = [f"{v.file}:{v.line} uses {v.name}: {v.reason}" for v in violations[:_MOST_TOLD]]
        if len(violations) > _MOST_TOLD:
            said.append(f"and {len(violations) - _MOST_TOLD} more such lines")
        if said and topic.policy.action == "reject":
            return _ungraded(topic, result, "rejected", Failure("; ".join(said)))
        flags = (*said, *result.flags)
        result = result.model_copy(update={"flags": flags})
        problem = self.bench.take(submission.files)
        outcomes = self._run() if problem is None else {}
        tampered = self.bench.submission.tampered
        self.bench.release()
        if tampered:
            # an honest file never writes to this channel: a person should look at it
            message = "Your code wrote to the grader's own channel. Ask your instructor."
            flagged = result.model_copy(update={"flags": (*flags, f"forged an answer: {tampered}")})
            return _ungraded(topic, flagged, "rejected", Failure(message))
        if problem is not None:
            return _ungraded(topic, result, "import_error", problem)
        items = tuple(self._item(item, outcomes) for item in topic.rubric.values())
        upset = [id for id, outcome in outcomes.items() if outcome.fault and id not in self.broken]
        if upset:  # the reference does not do that: it may be on purpose
            alone = f"the grader failed on this submission alone, in {', '.join(upset)}"
            result = result.model_copy(update={"flags": (*flags, alone)})
        score = total(self.bench.course, topic, items)
        return result.model_copy(update={"items": items, "score": score})

    def _run(self) -> dict[str, Outcome]:
        """Run every test on the submission of the moment."""
        outcomes = {id: Outcome(needs) for id, needs in self.needs.items()}
        for number, test in enumerate(self.tests):
            outcome = outcomes[self._ids[test]]
            lost = next((n for n in outcome.needs.depends if outcomes[n].stopped), None)
            if lost is not None and not outcome.failures:
                cause = outcomes[lost].failures[-1].cause
                outcome.failures.append(
                    Failure(f"Not run, since {lost} did not finish.", (), cause)
                )
            if not outcome.stopped:
                self._run_test(test, self.tests[number + 1 : number + 2], outcome)
        return outcomes

    def _run_test(
        self, test: pytest.Item, following: Sequence[pytest.Item], outcome: Outcome
    ) -> None:
        direct = self._direct[test]
        error = _raised_by(direct) if direct else _run_protocol(test, following)
        outcome.cases += 1
        if error is None:
            return
        failure = plugin.failure_of(error, test)
        if failure is None:
            outcome.fault = _fault(error, test)
        else:
            outcome.failures.append(failure)

    def _item(self, item: Item, outcomes: dict[str, Outcome]) -> ItemResult:
        outcome = outcomes[item.id]
        blank = ItemResult(
            id=item.id,
            title=item.title,
            tier=item.tier,
            score=None,
            max_score=item.points,
            status="error",
            claim=outcome.needs.claim,
        )
        fault = self.broken.get(item.id) or outcome.fault
        if fault:
            return blank.model_copy(update={"cause": "error", "message": fault})
        failure = _explained(outcome, outcomes)
        if failure is None:
            return blank.model_copy(update={"status": "passed", "score": item.points})
        return blank.model_copy(
            update={
                "status": "failed",
                "score": 0.0,
                "cause": failure.cause,
                "message": failure.message,
                "hints": failure.hints,
            }
        )


def _raised_by(call: Callable[[], None]) -> BaseException | None:
    try:
        call()
    except Exception as error:
        return error
    return None


_ERROR = pytest.StashKey[BaseException | None]()


def _run_protocol(test: pytest.Item, following: Sequence[pytest.Item]) -> BaseException | None:
    """Run a test as pytest does, with setup and teardown; what it raised first."""
    test.stash[_ERROR] = None
    # the same item is run again for every submission, as plugins that re-run failures do; what an
    # item before it set up for a test that was then left out has to go first
    test._initrequest()  # type: ignore[attr-defined]
    test.session._setupstate.teardown_exact(test)
    runtestprotocol(test, log=False, nextitem=following[0] if following else None)
    return test.stash[_ERROR]


def _item_id(test: pytest.Item) -> str:
    marked = plugin.rubric_item(test)
    assert marked is not None
    return marked[0]


def _explained(outcome: Outcome, outcomes: dict[str, Outcome]) -> Failure | None:
    """The first failure; where something it stands on failed too, that is what to mend first."""
    unmet = [need for need in outcome.needs.requires if outcomes[need].failures]
    if unmet:
        cause = outcomes[unmet[0]].failures[0].cause
        return Failure(f"This counts once {unmet[0]} is right. Mend that first.", (), cause)
    if not outcome.failures:
        return None
    failure = outcome.failures[0]
    if not outcome.cases:
        return failure  # it was not run, and says why
    failed = [need for need in outcome.needs.depends if outcomes[need].failures]
    if failed:
        return Failure(
            f"This stands on {failed[0]}, which is not right yet. Mend that first.",
            (),
            failure.cause,
        )
    if outcome.cases > 1 and len(outcome.failures) < outcome.cases and not outcome.stopped:
        count = f" ({len(outcome.failures)} of {outcome.cases} cases fail)"
        return replace(failure, message=failure.message + count)
    return failure


def _ungraded(topic: Topic, result: Result, status: str, why: Failure) -> Result:
    """A Result whose every item failed for the same reason."""
    items = tuple(
        ItemResult(
            id=item.id,
            title=item.title,
            tier=item.tier,
            score=0.0,
            max_score=item.points,
            status="failed",
            cause=why.cause,
            message=why.message,
            hints=why.hints,
        )
        for item in topic.rubric.values()
    )
    update = {"items": items, "status": status, "message": why.message, "score": 0.0}
    return result.model_copy(update=update)


def _check_rubric(topic: Topic, table: plugin.ItemTable, tests: Sequence[pytest.Item]) -> None:
    unmarked = [test.name for test in tests if plugin.rubric_item(test) is None]
    needed = {need for needs in table.values() for need in needs.depends}
    problems = [f"{name} belongs to no rubric item: mark it with @item" for name in unmarked]
    problems += [f"no test is marked @item('{id}')" for id in topic.rubric if id not in table]
    problems += [
        f"@item('{id}') is not in the rubric of assignment.yaml"
        for id in sorted({*table, *needed})
        if id not in topic.rubric
    ]
    order = {id: place for place, id in enumerate(topic.rubric)}
    problems += [
        f"@item('{id}') depends on '{need}', which comes after it in the rubric"
        for id, needs in table.items()
        for need in needs.depends
        if order.get(need, -1) > order.get(id, len(order))
    ]
    if problems:
        raise GraderFault("graders and rubric differ: " + "; ".join(problems))


def _fault(error: BaseException, test: pytest.Item) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if Path(f.filename) == test.path]
    where = f"{test.path.name}:{mine[-1].lineno}" if mine else test.name
    return f"the grader failed at {where}: {type(error).__name__}: {error}"


# ---- the process -------------------------------------------------------------------------------


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
                submission = Submission(**_receive(self._connection))
                _send(self._connection, {"result": grader.grade(submission).to_json()})
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> pytest.TestReport:
        error = call.excinfo.value if call.excinfo else None
        if error is not None and item.stash[_ERROR] is None:
            item.stash[_ERROR] = error
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
        folder, topic_id, seed, level = _receive(connection)
        course = load_course(Path(folder))
        with Bench(course, course.topic(topic_id), seed, Level(**level)) as bench:
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
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(arguments, plugins=[_Server(connection, bench)])


if __name__ == "__main__":
    os._exit(main())  # everything is closed: the interpreter need not take itself apart
