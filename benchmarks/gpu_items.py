"""Every item that needs a GPU, of every topic, once: the reference in the submission's place.

    python benchmarks/gpu_items.py [--device cuda] [--minutes 3] [--pairs 3] [--course DIR]

The hidden graders run as they do for a grade, but for one launch of a few pairs in place of five of
twelve: a minute or two for each item would be too long for a check. So this tells whether every item can
be measured on this machine, and how large its times are; what it would earn it does not.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from gpu_styles import options_of
from softmark import plugin
from softmark.bench import Bench, NotGraded, isolate
from softmark.clock import Clock
from softmark.course import Course, Topic, find_course, load_course
from softmark.implementation import Question
from softmark.timing import Bound, Maker, Plan, Sample, Timed, Verdict, judge

MEASURED = "measured"
NOT_REACHED = "not reached in the time given"
# files of two topics may have one name
OPTIONS = "-p softmark.plugin -p no:cacheprovider -p no:terminal --assert=plain".split()
OPTIONS += ["--import-mode=importlib"]


@dataclass(frozen=True, slots=True)
class Heard:
    """What is timed, with a note of every time that was taken of it."""

    timed: Timed
    seconds: list[float]

    def go(self, seed: int) -> Sample:
        sample = self.timed.go(seed)
        self.seconds.append(sample.seconds)
        return sample

    def outputs(self) -> tuple[bytes, list[tuple[str, np.ndarray]]]:
        return self.timed.outputs()

    def held_mb(self) -> int | None:
        return self.timed.held_mb()

    def pause(self) -> None:
        self.timed.pause()

    def resume(self) -> None:
        self.timed.resume()

    def close(self) -> None:
        self.timed.close()


@dataclass(slots=True)
class Measured:
    """Seconds that one question took: of the reference, harness included, and of the harness."""

    reference: float
    harness: float


class QuickBench(Bench):
    """A Bench on which times are taken in one launch, and nothing has to be fast enough."""

    plan = Plan(launches=1, pairs=3, warm=1)
    until = float("inf")
    item = ""
    """The rubric item whose test is running."""
    by_item: dict[str, list[Measured]]

    def timed(self, question: Question, gate: float, bound: Bound) -> Verdict:
        if time.monotonic() > self.until:
            raise NotGraded(NOT_REACHED)
        if self.device == "cuda":
            time.sleep(1.5)  # the driver's figure of its load is that of the last second
            self._require_gpu()
        kind = "cuda" if self.device == "cuda" else "torch"
        if kind not in self._zygotes:
            self._zygotes[kind] = self._start(kind)
        assert self.device is not None
        clock = Clock(self._zygotes[kind], question.script, self.device, 60)
        asked = self.submitted(question), self.implementation(self.reference_files, question.twin)
        student, reference = (
            clock.maker(one.files, one.main.removesuffix(".py"), one.forbid, one.given)
            for one in asked
        )
        harness = clock.maker({"harness.py": ""}, "harness", shapes=clock.shapes(reference))
        seconds: tuple[list[float], list[float]] = ([], [])
        verdict = judge(
            student,
            _heard(reference, seconds[0]),
            _heard(harness, seconds[1]),
            gate=gate,
            bound=Bound(1e6, 1e9),
            rng=np.random.default_rng(),
            plan=self.plan,
        )
        taken = Measured(*(_typical(each[self.plan.warm :]) for each in seconds))
        self.by_item.setdefault(self.item, []).append(taken)
        return verdict


def _heard(make: Maker, seconds: list[float]) -> Maker:
    return lambda: Heard(make(), seconds)


def _typical(seconds: list[float]) -> float:
    return float(np.median(seconds)) if seconds else float("nan")


@dataclass(slots=True)
class Run:
    """A pytest plugin: the tests of the items that need a GPU, and what went wrong with each."""

    bench: QuickBench
    problems: dict[str, list[str]] = field(default_factory=dict)

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[plugin.BENCH] = self.bench

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [test for test in items if self._id(test)]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.bench.item = self._id(item)
        self.problems.setdefault(self.bench.item, [])

    def pytest_exception_interact(self, call: pytest.CallInfo[None]) -> None:
        assert call.excinfo is not None
        self._note(call.excinfo.value)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self._note(report.longrepr[2].removeprefix("Skipped: "))

    def _note(self, problem: object) -> None:
        failure = getattr(problem, "failure", None)
        said = str(failure.message if failure else problem) or type(problem).__name__
        self.problems.setdefault(self.bench.item, []).append(said)

    def _id(self, test: pytest.Item) -> str:
        found = plugin.rubric_item(test)
        if found is None or found[1].follow_through or found[0] not in _on_hand(self.bench.topic):
            return ""
        return found[0]


def _on_hand(topic: Topic) -> list[str]:
    """The ids of the items that need a GPU, and no package that is not installed here."""
    return [id for id in topic.timed if not topic.rubric[id].lacks]


def check(
    course: Course,
    topic: Topic,
    device: str,
    plan: Plan,
    until: float,
    files: Mapping[str, str] | None = None,
) -> list[str]:
    """A row in Markdown for each item of a topic that needs a GPU.

    ``files`` are in the submission's place, or else the reference.
    """
    with QuickBench(course, topic, 0, isolate(course, topic.id), device) as bench:
        bench.plan, bench.until, bench.by_item = plan, until, {}
        problem = bench.take(bench.reference_files if files is None else files)
        if problem is not None:
            return [f"| {topic.id} | all | {problem.message} | | |"]
        run = Run(bench)
        graders = course.graders(topic.id)
        options = ["--rootdir", str(graders), "-c", os.devnull, str(graders)]
        pytest.main([*OPTIONS, *options], plugins=[run])
        for name, module in list(sys.modules.items()):
            if graders in Path(getattr(module, "__file__", None) or os.devnull).parents:
                del sys.modules[name]  # else the next topic's file of that name would not be read
        return [
            _row(topic, id, run.problems.get(id), bench.by_item.get(id, []))
            for id in _on_hand(topic)
        ]


def _row(topic: Topic, id: str, problems: list[str] | None, taken: list[Measured]) -> str:
    status = "no test ran" if problems is None else "; ".join(dict.fromkeys(problems))
    said = " ".join(status.replace("|", "/").split()) or MEASURED
    whole = [one for one in taken if one.harness > 0]  # else it stopped before it counted
    own = ", ".join(f"{1000 * (one.reference - one.harness):.1f}" for one in whole)
    share = ", ".join(f"{one.harness / one.reference:.0%}" for one in whole)
    return f"| {topic.id} | {id} | {said} | {own} | {share} |"


def main() -> int:
    parser = options_of(__doc__ or "", minutes=3.0)
    parser.set_defaults(pairs=3)
    parser.add_argument("--course", type=Path)
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    course = load_course(options.course or find_course(Path(__file__).parent))
    rows = []
    for entry in reversed(course.topics):  # the last are about GPUs most
        topic = course.topic(entry.id)
        if topic.timed:
            print(f"{topic.id}: {len(topic.timed)} items", file=sys.stderr, flush=True)
            rows += check(course, topic, options.device, Plan(1, options.pairs, 1), until)
    if not rows:
        print("No topic of this course has items that need a GPU.")
        return 0
    print("| topic | item | | reference, ms | of its time, harness |")
    print("| --- | --- | --- | ---: | ---: |")
    print("\n".join(rows))
    well = (f"| {MEASURED} |", f"| {NOT_REACHED} |")
    return 0 if all(any(end in row for end in well) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
