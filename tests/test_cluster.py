"""Grading over a Dask cluster gives what grading here gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from softmark.batch import Run, grade_all
from softmark.cluster import ClusterUnavailable, grade_on_cluster
from softmark.course import Course
from softmark.result import Result

distributed = pytest.importorskip("distributed", reason="needs the extra 'cluster'")
pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's own
EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "class_02_lstm"


def comparable(results: list[Result]) -> list[Result]:
    """Sorted, without the time they took."""
    plain = [result.model_copy(update={"seconds": 0.0}) for result in results]
    return sorted(plain, key=lambda result: result.student)


def test_a_cluster_grades_as_one_machine_does(course: Course) -> None:
    topic = course.topic("02_lstm")
    run = Run(course, topic, 3)
    names = ("right_as_taught", "wrong_db_averaged", "syntax_error.py", "exits_with_code_0")
    entries = [(name.removesuffix(".py"), EXAMPLES / name) for name in names]
    here = list(grade_all(run, entries, workers=1))
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, dashboard_address=None
    ) as there:
        away = list(grade_on_cluster(run, entries, there.scheduler_address))
    assert comparable(away) == comparable(here)
    full = [all(i.status == "passed" for i in r.items if i.tier == "core") for r in here]
    assert full.count(True) == 1


def test_no_scheduler_is_said_so(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softmark.cluster._CONNECT_SECONDS", 0.5)
    topic = course.topic("02_lstm")
    run = Run(course, topic, 3)
    with pytest.raises(ClusterUnavailable, match="no Dask scheduler at tcp://127"):
        list(grade_on_cluster(run, [], "tcp://127.0.0.1:1"))
