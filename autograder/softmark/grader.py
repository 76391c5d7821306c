"""The collected tests run on one submission after another: what each rubric item earned, and why.

The reference is graded first: it fills the cache of expected Traces, and what it does not pass is the
grader's fault, not the student's.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from softmark import plugin, policy
from softmark.bench import Bench, GraderFault, versions
from softmark.course import Course, Item, Topic
from softmark.diagnose import Asked, Diagnosis
from softmark.intake import Submission
from softmark.priority import Priority
from softmark.questions import ANSWERS_FILE, QUESTIONS, load_answers, mark, parse_answers
from softmark.result import ItemResult, Result, counts, total, totals_of_parts
from softmark.verdict import Failure

_MOST_TOLD = 5
_HASTE = 4.0  # a mutant that loops should not hold up the others


@dataclass
class Outcome:
    """What is known of one rubric item while its tests run."""

    needs: plugin.Needs
    cases: int = 0
    failures: list[Failure] = field(default_factory=list)
    fault: str = ""
    not_graded: str = ""
    unclear: str = ""
    """Why a person has to look at what was measured."""
    credit: float = 1.0
    """The share of the points for how long it takes."""
    slow: str = ""
    """How long that is, where it is not all of them."""
    measured: dict[str, float] = field(default_factory=dict)
    """What was put on record, as multiples of the reference's."""
    asked: Sequence[Asked] = ()
    """What the first test that failed had asked, when it failed."""
    followed: str = ""
    """The item that failed before this one, where this one is right given that."""

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
        marked = {test: plugin.rubric_item(test) for test in tests}
        self._ids = {test: found[0] for test, found in marked.items() if found}
        self._direct = {test: plugin.direct_call(test, bench) for test in tests}
        self.tests: list[pytest.Item] = []
        self.following: dict[str, list[pytest.Item]] = {}
        for test in sorted(tests, key=lambda test: order.index(self._ids[test])):
            found = marked[test]
            if found and found[1].follow_through:
                self.following.setdefault(found[0], []).append(test)
            else:
                self.tests.append(test)
        topic = bench.topic
        self.answers: Mapping[str, str] = {}
        if topic.questions:
            folder = bench.course.solution(topic.id)
            shown = f"solutions/{topic.id}/{ANSWERS_FILE}"
            self.answers = load_answers(folder / ANSWERS_FILE, shown, topic.questions)
        self.diagnosis = Diagnosis(bench)
        self.broken: dict[str, str] = {}
        uses_twin = {test for test in tests if "twin" in getattr(test, "fixturenames", ())}
        self._of_twin = [test for test in self.tests if test in uses_twin]
        self._of_main = [test for test in self.tests if test not in uses_twin]
        self._twin_proven = not self._of_twin
        self._priority = Priority(bench.reference_files)
        self._prove(self._of_main)

    def _prove(self, tests: Sequence[pytest.Item]) -> None:
        """Run tests, and what follows them, on the reference: note the items it does not pass."""
        problem = self.bench.take(self.bench.reference_files)
        if problem is not None:
            raise GraderFault(f"the reference solution cannot be imported: {problem.message}")
        before = len(self.bench.questions)
        outcomes = self._run(tests, learn=True)
        self.diagnosis.learn(self.bench.questions[before:])
        ids = {self._ids[test] for test in tests}
        for id in ids & set(self.following):
            for test in self.following[id]:
                self._run_test(test, (), outcomes[id])
        for id in ids:
            outcome = outcomes[id]
            if outcome.fault or outcome.failures:
                said = outcome.fault or outcome.failures[0].message
                self.broken[id] = f"the grader does not pass the reference solution: {said}"

    def grade(self, submission: Submission) -> Result:
        """Its Result. Raises ZygoteFailed where the machine gave way."""
        if self.bench.topic.twin and self.bench.topic.twin.file in submission.files:
            self._prove_twin()
        started = time.perf_counter()
        flags = tuple(policy.watch(submission.files))
        result = self._graded(submission, self._blank(submission, flags))
        parts = totals_of_parts(self.bench.course, self.bench.topic, result.items)
        seconds = round(time.perf_counter() - started, 4)
        return result.model_copy(update={"parts": parts, "seconds": seconds})

    def grade_quickly(self, submission: Submission) -> Result:
        """The items up to the first test that fails, of the files that are not the reference's own.

        For mutants: what they may not use is not looked at, nor which known mistake they make.
        """
        result = self._blank(submission, ())
        tests = self._of_changed(submission.files)
        if not set(self._of_twin).isdisjoint(tests):
            self._prove_twin()
        needed = not set(self._of_main).isdisjoint(tests)
        problem = self.bench.take(submission.files, load=needed)
        self.bench.haste = _HASTE
        outcomes = {} if problem else self._run_quickly(tests, submission.files)
        self.bench.haste = 1.0
        self.bench.release()
        if problem is not None:
            return _ungraded(self.bench.course, self.bench.topic, result, "import_error", problem)
        seen = [id for id, outcome in outcomes.items() if outcome.cases or outcome.failures]
        items = tuple(self._item(self.bench.topic.rubric[id], outcomes) for id in seen)
        return result.model_copy(update={"items": items})

    def _blank(self, submission: Submission, flags: tuple[str, ...]) -> Result:
        topic = self.bench.topic
        return Result(
            student=submission.id,
            topic=topic.id,
            status="graded",
            score=0.0,
            max_score=topic.max_score,
            items=(),
            notes=tuple(submission.notes),
            flags=flags,
            isolation=self.bench.level.summary(),
            versions=versions(),
            digest=submission.digest,
        )

    def _graded(self, submission: Submission, result: Result) -> Result:
        topic = self.bench.topic
        if submission.status != "ready":
            return _ungraded(
                self.bench.course, topic, result, submission.status, Failure(submission.message)
            )
        violations = policy.scan_topic(submission.files, topic)
        twin = topic.twin.file if topic.twin else ""
        said = _told([v for v in violations if v.file != twin])
        of_twin = _told([v for v in violations if v.file == twin])
        reject = topic.policy.action == "reject"
        if said and reject:
            return _ungraded(self.bench.course, topic, result, "rejected", Failure("; ".join(said)))
        flags = (*said, *of_twin, *result.flags)
        result = result.model_copy(update={"flags": flags})
        unfit = [note for note in submission.notes if twin and note.startswith(f"left out {twin}")]
        unfit += of_twin if reject else []
        withheld = Failure("; ".join(unfit)) if unfit else None
        problem = self.bench.take(submission.files, withheld)
        outcomes = {} if problem else self._run(self.tests)
        self._follow_through(outcomes)
        self._mark_answers(submission.files, outcomes)
        tampered = self.bench.tampered
        judged = () if problem or tampered else topic.rubric.values()
        items = tuple(self._item(item, outcomes) for item in judged)
        self.bench.release()
        if tampered:
            # an honest file never writes to this channel: a person should look at it
            message = "Your code wrote to the grader's own channel. Ask your instructor."
            flagged = result.model_copy(update={"flags": (*flags, f"forged an answer: {tampered}")})
            return _ungraded(self.bench.course, topic, flagged, "rejected", Failure(message))
        if problem is not None:
            return _ungraded(self.bench.course, topic, result, "import_error", problem)
        upset = [id for id, outcome in outcomes.items() if outcome.fault and id not in self.broken]
        if upset:  # the reference does not do that: it may be on purpose
            alone = f"the grader failed on this submission alone, in {', '.join(upset)}"
            result = result.model_copy(update={"flags": (*flags, alone)})
        score = total(self.bench.course, topic, items)
        return result.model_copy(update={"items": items, "score": score})

    def _prove_twin(self) -> None:
        """Run the twin's tests on the reference, once: its workers take seconds to start."""
        if not self._twin_proven:
            self._twin_proven = True
            self._prove(self._of_twin)

    def _of_changed(self, files: Mapping[str, str]) -> Sequence[pytest.Item]:
        """The tests of those files that are not the reference's own."""
        twin, reference = self.bench.topic.twin, self.bench.reference_files
        changed = {name for name, text in reference.items() if files.get(name) != text}
        of_twin = self._of_twin if twin and twin.file in changed else []
        of_main = self._of_main if changed - {twin.file if twin else ""} else []
        return [*of_main, *of_twin]

    def _run_quickly(
        self, tests: Sequence[pytest.Item], files: Mapping[str, str]
    ) -> dict[str, Outcome]:
        """Run tests up to the first that fails, in the order in which that comes soon."""
        outcomes = self._blank_outcomes()
        changed = self._priority.changed(files)
        for test in self._priority.order(tests, changed):
            outcome = outcomes[self._ids[test]]
            self._run_test(test, (), outcome, brief=True)
            if outcome.failures or outcome.fault:
                self._priority.note(test, changed)
                break
        return outcomes

    def _blank_outcomes(self) -> dict[str, Outcome]:
        return {id: Outcome(self.needs.get(id, plugin.Needs())) for id in self.bench.topic.rubric}

    def _run(self, tests: Sequence[pytest.Item], learn: bool = False) -> dict[str, Outcome]:
        """Run tests on the submission of the moment; ``learn`` what each of them asks."""
        outcomes = self._blank_outcomes()
        for number, test in enumerate(tests):
            outcome = outcomes[self._ids[test]]
            lost = next((n for n in outcome.needs.depends if outcomes[n].stopped), None)
            if lost is not None and not outcome.failures:
                cause = outcomes[lost].failures[-1].cause
                outcome.failures.append(
                    Failure(f"Not run, since {lost} did not finish.", (), cause)
                )
            # the student is sent to the item before it
            brief = bool(_failed(outcome, outcomes))
            if not outcome.stopped:
                self._run_test(test, tests[number + 1 : number + 2], outcome, brief)
            if learn:
                self._priority.learn(test, self.bench)
        return outcomes

    def _follow_through(self, outcomes: dict[str, Outcome]) -> None:
        """Where an item and one it depends on failed, see whether it is right given that one."""
        for id, tests in self.following.items():
            outcome = outcomes.get(id)
            if outcome is None or not outcome.failures or outcome.stopped or outcome.fault:
                continue
            before = _failed(outcome, outcomes)
            kept = replace(outcome, failures=[], asked=())
            if before:
                for test in tests:
                    self._run_test(test, (), kept)
                if not kept.failures and not kept.fault and not kept.not_graded:
                    outcome.followed = before[0]

    def _mark_answers(self, files: Mapping[str, str], outcomes: dict[str, Outcome]) -> None:
        answers, problem = parse_answers(files.get(ANSWERS_FILE, ""))
        for name, question in self.bench.topic.questions.items():
            outcome = outcomes.get(f"{QUESTIONS}.{name}")
            said = problem or mark(name, question, answers, self.answers[name])
            if outcome is not None:
                outcome.cases = 1
                outcome.failures += [Failure(said)] if said else []

    def _run_test(
        self,
        test: pytest.Item,
        following: Sequence[pytest.Item],
        outcome: Outcome,
        brief: bool = False,
    ) -> None:
        direct = self._direct[test]
        lacks = self.bench.topic.rubric[self._ids[test]].lacks
        if lacks:
            outcome.not_graded = f"Not measured: {lacks} is not installed where this was graded."
            return
        self.bench.brief = brief
        self.bench.asked.clear()
        self.bench.measured.clear()
        error = _raised_by(direct) if direct else _run_protocol(test, following)
        outcome.cases += 1
        if error is None or isinstance(error, plugin.Slow):
            outcome.measured |= self.bench.measured
        if error is None:
            return
        if isinstance(error, pytest.skip.Exception):
            outcome.not_graded = str(error.msg)
            return
        if isinstance(error, plugin.Slow):
            if error.credit < outcome.credit:
                outcome.credit, outcome.slow = error.credit, error.message
            return
        if isinstance(error, plugin.Unclear):
            outcome.unclear = str(error)
            return
        failure = plugin.failure_of(error, test)
        if failure is None:
            outcome.fault = _fault(error, test)
            return
        if not outcome.failures and not brief:
            outcome.asked = tuple(self.bench.asked)
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
            counts=counts(self.bench.course, item),
        )
        fault = self.broken.get(item.id) or outcome.fault
        if fault:
            return blank.model_copy(update={"cause": "error", "message": fault})
        if outcome.not_graded and not outcome.failures and not blank.counts:
            return blank.model_copy(update={"status": "not_graded", "message": outcome.not_graded})
        failure, asked = _explained(outcome, outcomes)
        if failure is None and outcome.not_graded:
            return blank.model_copy(update={"status": "not_graded", "message": outcome.not_graded})
        if failure is None and outcome.unclear:
            return blank.model_copy(update={"status": "invalid", "message": outcome.unclear})
        if failure is None and outcome.credit < 1:
            earned = round(outcome.credit * item.points, 6)
            status = "partial" if earned else "failed"
            update = {"status": status, "score": earned, "message": outcome.slow}
            return blank.model_copy(update={**update, "measured": outcome.measured})
        if failure is None:
            update = {"status": "passed", "score": item.points, "measured": outcome.measured}
            return blank.model_copy(update=update)
        share = item.follow_through
        if outcome.followed and share and not _unmet(outcome, outcomes):
            message = (
                f"Right given your own {outcome.followed}, which is not right yet: {share:.0%} of "
                "the points. Mend that one first."
            )
            earned = round(share * item.points, 6)
            return blank.model_copy(
                update={"status": "partial", "score": earned, "message": message}
            )
        known = self.diagnosis.known(item.id, asked, _lost(outcomes)) if asked else None
        return blank.model_copy(
            update={
                "status": "failed",
                "score": 0.0,
                "cause": failure.cause,
                "message": failure.message,
                "hints": (known.hint,) if known else failure.hints,
                "mistake": known.id if known else "",
            }
        )


def _told(violations: Sequence[policy.Violation]) -> list[str]:
    """The first few forbidden names, in words for the student."""
    said = [f"{v.file}:{v.line} uses {v.name}: {v.reason}" for v in violations[:_MOST_TOLD]]
    if len(violations) > _MOST_TOLD:
        said.append(f"and {len(violations) - _MOST_TOLD} more such lines")
    return said


def _raised_by(call: Callable[[], None]) -> BaseException | None:
    try:
        call()
    except (Exception, pytest.skip.Exception) as error:
        return error
    return None


RAISED = pytest.StashKey[BaseException | None]()
"""What a test raised, for one that pytest runs by its own protocol."""


def _run_protocol(test: pytest.Item, following: Sequence[pytest.Item]) -> BaseException | None:
    """Run a test as pytest does, with setup and teardown; what it raised first."""
    test.stash[RAISED] = None
    # the same item is run again for every submission, as plugins that re-run failures do; what an
    # item before it set up for a test that was then left out has to go first
    test._initrequest()  # type: ignore[attr-defined]
    test.session._setupstate.teardown_exact(test)
    runtestprotocol(test, log=False, nextitem=following[0] if following else None)
    return test.stash[RAISED]


def _explained(
    outcome: Outcome, outcomes: dict[str, Outcome]
) -> tuple[Failure | None, Sequence[Asked]]:
    """The first failure, and what its test had asked; where something it stands on failed too, that
    is what to mend first."""
    failure = outcome.failures[0] if outcome.failures else None
    unmet = _unmet(outcome, outcomes)
    if unmet and not _same_reason(failure, outcomes[unmet[0]]):
        cause = outcomes[unmet[0]].failures[0].cause
        return Failure(f"This counts once {unmet[0]} is right. Mend that first.", (), cause), ()
    if failure is None:
        return None, ()
    if not outcome.cases:
        return failure, ()  # it was not run, and says why
    failed = _failed(outcome, outcomes)
    if failed and not _same_reason(failure, outcomes[failed[0]]):
        first = failed[0]
        while earlier := _failed(outcomes[first], outcomes):
            first = earlier[0]
        unwritten = "is still to be written" in outcomes[first].failures[0].message
        state, todo = ("written", "Write") if unwritten else ("right", "Mend")
        before = f"This stands on {first}, which is not {state} yet. {todo} that first."
        return Failure(before, (), failure.cause), ()
    if outcome.cases > 1 and len(outcome.failures) < outcome.cases and not outcome.stopped:
        count = f" ({len(outcome.failures)} of {outcome.cases} cases fail)"
        failure = replace(failure, message=failure.message + count)
    return failure, outcome.asked


def _same_reason(failure: Failure | None, before: Outcome) -> bool:
    """Whether the item before failed for the very same reason, such as a file that is missing."""
    return failure is not None and failure.message == before.failures[0].message


def _failed(outcome: Outcome, outcomes: dict[str, Outcome]) -> list[str]:
    """What it stands on and failed too."""
    return [need for need in outcome.needs.depends if outcomes[need].failures]


def _unmet(outcome: Outcome, outcomes: dict[str, Outcome]) -> list[str]:
    return [need for need in outcome.needs.requires if outcomes[need].failures]


def _lost(outcomes: dict[str, Outcome]) -> set[str]:
    return {id for id, outcome in outcomes.items() if outcome.failures or _unmet(outcome, outcomes)}


def _ungraded(course: Course, topic: Topic, result: Result, status: str, why: Failure) -> Result:
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
            counts=counts(course, item),
        )
        for item in topic.rubric.values()
    )
    update = {"items": items, "status": status, "message": why.message, "score": 0.0}
    return result.model_copy(update=update)


def _check_rubric(topic: Topic, table: plugin.ItemTable, tests: Sequence[pytest.Item]) -> None:
    unmarked = [test.name for test in tests if plugin.rubric_item(test) is None]
    needed = {need for needs in table.values() for need in needs.depends}
    problems = [f"{name} belongs to no rubric item: mark it with @item" for name in unmarked]
    own = [id for id in topic.rubric if id.split(".")[0] != QUESTIONS]
    problems += [f"no test is marked @item('{id}')" for id in own if id not in table]
    marked = [found for test in tests if (found := plugin.rubric_item(test))]
    following = {id for id, needs in marked if needs.follow_through}
    stated = {id for id, item in topic.rubric.items() if item.follow_through}
    problems += [
        f"{id} states its follow_through in the rubric, and no test is marked "
        f"@item('{id}', follow_through=True)"
        for id in sorted(stated - following)
    ]
    problems += [
        f"@item('{id}', follow_through=True) needs a 'follow_through: 0.6' in the rubric"
        for id in sorted(following - stated)
    ]
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
