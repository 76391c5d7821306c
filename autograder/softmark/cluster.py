"""The same batch over the machines of a Dask cluster.

Submissions travel; the course does not: every machine needs it in the same folder (a shared disk, or
a clone), Softmark installed, and isolation of its own, which is asked for there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from softmark.batch import Run, faulty, read
from softmark.bench import isolate
from softmark.course import load_course
from softmark.intake import Submission
from softmark.isolation.tiers import IsolationRefused
from softmark.result import Result
from softmark.session import Session, SessionFailed

_CONNECT_SECONDS = 20


class ClusterUnavailable(Exception):
    """No cluster to grade on; says why."""


@dataclass(frozen=True, slots=True)
class _Setup:
    """What a session on another machine is started with."""

    course: str
    topic: str
    seed: int
    least: str | None


def grade_on_cluster(
    run: Run, entries: Sequence[tuple[str, Path]], address: str
) -> Iterator[Result]:
    """As ``batch.grade_all``, on the workers of the Dask scheduler at ``address``.

    Raises ClusterUnavailable, and IsolationRefused where a machine does not give the least tier.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise ClusterUnavailable("--cluster needs Dask: pip install 'softmark[cluster]'") from None
    try:
        client = Client(address, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError, TimeoutError) as error:
        raise ClusterUnavailable(f"no Dask scheduler at {address}: {error}") from None
    setup = _Setup(str(run.course.folder), run.topic.id, run.seed, run.least)
    with client:
        submissions = {}
        for id, path in entries:
            submission = read(run, id, path)
            if isinstance(submission, Result):
                yield submission
                continue
            future = client.submit(_grade, setup, asdict(submission), pure=False, retries=1)
            submissions[future.key] = (future, submission)
        try:
            for future in as_completed([future for future, _ in submissions.values()]):
                problem = future.exception()
                if isinstance(problem, IsolationRefused):
                    raise problem
                if problem is None:
                    yield Result.from_json(future.result())
                else:
                    yield faulty(run, submissions[future.key][1], str(problem))
        finally:
            client.run(_close_sessions)


# ---- on the cluster's machines -------------------------------------------------------------------


def _sessions(worker: Any) -> dict[tuple[int, _Setup], Session]:
    """The sessions that a Dask worker keeps, one for each thread of its that grades."""
    kept: dict[tuple[int, _Setup], Session] = vars(worker).setdefault("softmark_sessions", {})
    return kept


def _grade(setup: _Setup, submission: dict[str, Any]) -> str:
    from distributed import get_worker

    sessions = _sessions(get_worker())
    key = (threading.get_ident(), setup)
    if key not in sessions:
        course = load_course(Path(setup.course))
        topic = course.topic(setup.topic)
        level = isolate(course, topic.id, setup.least)
        sessions[key] = Session(course, topic, setup.seed, level)
    try:
        return sessions[key].grade(Submission(**submission)).to_json()
    except SessionFailed:
        sessions.pop(key).close()
        raise


def _close_sessions(dask_worker: Any) -> None:
    sessions = _sessions(dask_worker)
    while sessions:
        sessions.popitem()[1].close()
