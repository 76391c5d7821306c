"""Many submissions over a pool of grading processes on this machine."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from softmark.bench import isolate, versions
from softmark.course import Course, Topic
from softmark.intake import Submission, read_submission
from softmark.isolation.tiers import IsolationRefused, Level, supported
from softmark.result import ItemResult, Result, counts
from softmark.session import Session, SessionDied


@dataclass(frozen=True, slots=True)
class Run:
    """What a batch is graded with; the same Run gives the same grades. ``least`` is the isolation
    tier below which to refuse, ``device`` where times are taken, None for nowhere."""

    course: Course
    topic: Topic
    seed: int
    least: str | None = None
    device: str | None = None


def grade_all(run: Run, entries: Sequence[tuple[str, Path]], workers: int) -> Iterator[Result]:
    """Results as they come, one for each ``(id, path)``, whatever a submission does.

    Raises IsolationRefused, and SessionFailed where no grading process can be started. A process
    that dies is replaced and its submission tried once more; then that submission's items are
    ``error``.
    """
    reads = [partial(read, run, id, path) for id, path in entries]
    return _grade(run, reads, workers, quick=False)


def grade_submissions(
    run: Run, submissions: Sequence[Submission], workers: int, quick: bool = False
) -> Iterator[Result]:
    """As ``grade_all``, of submissions that are read already; ``quick`` as ``Session.grade`` has it."""
    return _grade(run, [partial(_itself, one) for one in submissions], workers, quick)


def read(run: Run, id: str, path: Path) -> Submission | Result:
    """The submission at ``path``, or the Result where reading it fails through the grader's fault.

    A submission that is at fault itself is read: as ``unreadable``.
    """
    try:
        return read_submission(path, run.topic, id)
    except Exception as error:  # a bug met by one submission must not stop the others
        blank = Submission(id, {}, "unreadable", "", (), "")
        return faulty(run, blank, f"reading it failed: {type(error).__name__}: {error}")


def _itself(submission: Submission) -> Submission:
    return submission


_Read = Callable[[], Submission | Result]


def _grade(run: Run, reads: Sequence[_Read], workers: int, quick: bool) -> Iterator[Result]:
    """``reads`` give the submissions; each is called when a worker is free for it."""
    reason = supported()
    if reason:
        raise IsolationRefused(reason)
    waiting: queue.SimpleQueue[_Read] = queue.SimpleQueue()
    done: queue.SimpleQueue[Result | BaseException | None] = queue.SimpleQueue()
    stop = threading.Event()
    for read in reads:
        waiting.put(read)

    level: Future[Level] = Future()

    def work(cpu: int | None) -> None:
        try:
            _work(run, level, waiting, done, stop, cpu, quick)
        except BaseException as error:  # told to the caller, who raises it
            done.put(error)
        done.put(None)

    # one at a time where times are taken
    count = 1 if run.device else max(1, min(workers, len(reads)))
    processors = sorted(os.sched_getaffinity(0))
    cpus = processors if count == len(processors) else [None] * count
    threads = [threading.Thread(target=work, args=[cpu], daemon=True) for cpu in cpus]
    for thread in threads:
        thread.start()
    try:
        # while the grading processes load what they need
        level.set_result(isolate(run.course, run.topic.id, run.least))
        running = count
        while running:
            news = done.get()
            if news is None:
                running -= 1
            elif isinstance(news, BaseException):
                raise news
            else:
                yield news
    finally:
        stop.set()
        level.cancel()
        for thread in threads:
            thread.join()


def _work(
    run: Run,
    level: Future[Level],
    waiting: queue.SimpleQueue[_Read],
    done: queue.SimpleQueue[Result | BaseException | None],
    stop: threading.Event,
    cpu: int | None,
    quick: bool,
) -> None:
    """One worker: a Session, renewed when it dies, on a processor of its own if ``cpu`` is one."""
    session = Session(run.course, run.topic, run.seed, cpu=cpu, device=run.device)
    try:
        with contextlib.suppress(queue.Empty, CancelledError):
            try:
                session.start(level.result())
            except SessionDied:
                session = _another(run, level)
            while not stop.is_set():
                submission = waiting.get_nowait()()
                if isinstance(submission, Result):
                    done.put(submission)
                    continue
                for last in (False, True):
                    try:
                        done.put(session.grade(submission, quick))
                        break
                    except SessionDied as error:
                        session.close()
                        if stop.is_set():
                            return
                        session = _another(run, level)
                        if last:
                            done.put(faulty(run, submission, str(error)))
    finally:
        session.close()


def _another(run: Run, level: Future[Level]) -> Session:
    return Session(run.course, run.topic, run.seed, level.result(), device=run.device)


def faulty(run: Run, submission: Submission, message: str) -> Result:
    """What is said where the grader died on a submission: no score, and why."""
    items = tuple(
        ItemResult(
            id=item.id,
            title=item.title,
            tier=item.tier,
            score=None,
            max_score=item.points,
            status="error",
            cause="crashed",
            message=message,
            counts=counts(run.course, item),
        )
        for item in run.topic.rubric.values()
    )
    return Result(
        student=submission.id,
        topic=run.topic.id,
        status="graded",
        score=None,
        max_score=run.topic.max_score,
        items=items,
        message=message,
        notes=tuple(submission.notes),
        versions=versions(),
        digest=submission.digest,
    )
