"""Submissions a second: `softmark grade` with isolation on, against one plain pytest process each.

    python benchmarks/throughput.py [--count 100] [--plain-count 10] [--rounds 2]
    python benchmarks/throughput.py --endurance [--count 300]

Both sides run the same hidden graders on the same right submissions, two at a time. This file is
also the pytest plugin of the plain side: it gives the graders their fixtures, without Softmark's
session, isolation or cache, and imports the submission into the process that holds the tests.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import pickle
import sys
import types
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from softmark.script import Calls, Handle, Raised, Rng, Script, Trace, Warned

if TYPE_CHECKING:
    from softmark.course import Course, Topic

# ---- the plain side: a pytest plugin -----------------------------------------------------------


def item(id: str, **needs: Any) -> Callable[[Any], Any]:
    """Rubric items mean nothing to plain pytest."""
    return lambda test: test


if __name__ != "__main__":
    # graders import this name; the real module would cost a plain process its imports
    sys.modules["softmark.plugin"] = types.ModuleType("softmark.plugin")
    sys.modules["softmark.plugin"].item = item  # type: ignore[attr-defined]


def pytest_addoption(parser: pytest.Parser) -> None:
    for name in ("--submission", "--reference", "--calls"):
        parser.addoption(name, type=Path)
    parser.addoption("--grading-seed", type=int)


class Plain:
    """Submission and reference imported side by side; every Script is run anew on both."""

    def __init__(self, config: pytest.Config) -> None:
        self.calls: Calls = pickle.loads(config.getoption("--calls").read_bytes())
        self.seed = config.getoption("--grading-seed")
        self._submission = _imported("submission", config.getoption("--submission"))
        self._reference = _imported("reference", config.getoption("--reference"))

    def script(self) -> Script:
        return Script(self.calls)

    def student(self, script: Script) -> Trace:
        return _run(script, self._submission)

    def reference(self, script: Script) -> Trace:
        return _run(script, self._reference)

    def agree(self, script: Script, only: str | Sequence[str] = ()) -> None:
        from softmark.verdict import Answer, differences

        names = (only,) if isinstance(only, str) else tuple(only)
        expected, actual = self.reference(script), self.student(script)
        failure = differences(Answer(script, expected), actual, names, "")
        assert failure is None, failure


def _imported(name: str, path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(script: Script, module: types.ModuleType) -> Trace:
    """The Trace of ``script`` in this process."""
    objects: dict[int, Any] = {}
    values: dict[int, Any] = {}
    modified: list[tuple[int, str]] = []
    warned: list[Warned] = []
    for number, step in enumerate(script.steps):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                given = [_argument(a, objects) for a in step.args]
                named = {k: _argument(v, objects) for k, v in step.kwargs.items()}
                owner: Any = module if step.target is None else objects[step.target.number]
                if step.operation == "assign":
                    (owner.params,) = given
                    continue
                result = getattr(owner, step.name.rpartition(".")[2])
                if step.operation != "read":
                    result = result(*given, **named)
            except Exception as error:
                raised = Raised(number, type(error).__name__, str(error), "", "")
                return Trace(values, raised)
        warned += [Warned(number, w.category.__name__, str(w.message), "") for w in seen]
        for place, (before, after) in enumerate(zip(step.args, given, strict=True)):
            if isinstance(before, np.ndarray) and before.tobytes() != after.tobytes():
                modified.append((number, str(place)))
        results = result if len(step.outputs) > 1 else [result][: len(step.outputs)]
        for offset, (output, value) in enumerate(zip(step.outputs, results, strict=True)):
            objects[step.first + offset] = value
            if output.kind != "private":
                # a copy now: a later step may write into it; NumPy's scalars count as arrays
                kept = np.array(value) if isinstance(value, np.generic) else copy.deepcopy(value)
                values[step.first + offset] = kept
    return Trace(values, warnings=tuple(warned), modified=tuple(modified))


def _argument(value: Any, objects: dict[int, Any]) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Handle):
        return objects[value.number]
    if isinstance(value, Rng):
        return np.random.default_rng(value.seed)
    if isinstance(value, dict):
        return {k: _argument(v, objects) for k, v in value.items()}
    return [_argument(v, objects) for v in value] if isinstance(value, list) else value


class Draw:
    """As softmark.plugin's, with the reference in this process."""

    def __init__(self, plain: Plain, name: str) -> None:
        self._plain = plain
        self.rng = np.random.default_rng([plain.seed, zlib.crc32(name.encode())])

    def __call__(self, *shape: int) -> np.ndarray:
        return self.rng.normal(size=shape)

    def params(self, name: str, *args: Any, **kwargs: Any) -> dict[str, np.ndarray]:
        script = self._plain.script()
        read = script.read(script.new(name, *args, **kwargs).params)
        return {
            key: self(*value.shape) / (np.sqrt(len(value)) if value.ndim > 1 else 1.0)
            for key, value in self._plain.reference(script)[read].items()
        }


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest) -> Plain:
    return Plain(request.config)


@pytest.fixture
def draw(request: pytest.FixtureRequest, bench: Plain) -> Draw:
    return Draw(bench, f"{request.node.path.name}::{request.node.name}")


@pytest.fixture
def script(bench: Plain) -> Callable[[], Script]:
    return bench.script


@pytest.fixture
def student(bench: Plain) -> Callable[[Script], Trace]:
    return bench.student


@pytest.fixture
def reference(bench: Plain) -> Callable[[Script], Trace]:
    return bench.reference


@pytest.fixture
def agree(bench: Plain) -> Callable[..., None]:
    return bench.agree


# ---- the measurement ---------------------------------------------------------------------------

COURSE = Path(__file__).parents[1]
TOPIC = "02_lstm"
WORKERS = 2
SEED = 1
# one thread a process on both sides: there are as many processes as cores
THREADS = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}


def main() -> None:
    import argparse

    about = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--count", type=int, help="submissions to Softmark, each round (100)")
    parser.add_argument("--plain-count", type=int, default=10, help="to plain pytest, each round")
    parser.add_argument("--rounds", type=int, default=2, help="both sides in turn, this often")
    parser.add_argument("--endurance", action="store_true", help="many submissions, one Session")
    options = parser.parse_args()
    if options.endurance:
        sys.exit(endure(options.count or 300))
    throughput(options.count or 100, options.plain_count, options.rounds)


def endure(count: int) -> int:
    """The endurance test, longer."""
    import subprocess

    test = COURSE / "tests" / "test_endurance.py"
    command = [sys.executable, "-m", "pytest", "-q", "-s", str(test)]
    environment = {**os.environ, "SOFTMARK_ENDURANCE": str(count)}
    return subprocess.run(command, cwd=COURSE, env=environment).returncode


def throughput(count: int, plain_count: int, rounds: int) -> None:
    """Measure in turn, print a table, and one line of JSON."""
    import json
    import tempfile

    from softmark.course import load_course

    course = load_course(COURSE)
    topic = course.topic(TOPIC)
    softmark, plain = [], []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        right = right_submissions(course, topic, place / "class", count)
        apart = [right[number % count] for number in range(plain_count)]
        (place / "calls").write_bytes(pickle.dumps(topic.calls))
        run_plain(course, topic, place, right[:1])  # bytecode and disk cache are warm from here on
        for number in range(rounds):
            softmark.append(run_softmark(topic, place / "class", place / f"out{number}", count))
            plain.append(run_plain(course, topic, place, apart))
    report = {"softmark": summed(softmark), "plain pytest": summed(plain)}
    print(
        f"{'':14}{'submissions':>12}{'seconds':>9}{'a second':>10}{'CPU s each':>12}{'peak MB':>9}"
    )
    for name, row in report.items():
        print(
            f"{name:14}{row['submissions']:12.0f}{row['seconds']:9.1f}{row['rate']:10.2f}"
            f"{row['cpu_each']:12.3f}{row['peak_mb']:9.0f}"
        )
    each = [a["rate"] / b["rate"] for a, b in zip(softmark, plain, strict=True)]
    ratio = report["softmark"]["rate"] / report["plain pytest"]["rate"]
    cpu = report["plain pytest"]["cpu_each"] / report["softmark"]["cpu_each"]
    print(
        f"ratio: {ratio:.1f} in throughput (by round: {', '.join(f'{r:.1f}' for r in each)}), "
        f"{cpu:.1f} in CPU time"
    )
    print(json.dumps({"ratio": ratio, "ratio_cpu": cpu, "by_round": each, **report}))


def right_submissions(course: Course, topic: Topic, folder: Path, count: int) -> list[Path]:
    """The reference and its variants in turn; each file a little different, as no two are equal."""
    solution = course.solution(topic.id)
    sources = [
        solution / topic.files[0],
        *sorted((solution / "variants").glob(f"*/{topic.files[0]}")),
    ]
    paths = []
    for number in range(count):
        path = folder / f"right_{number:03}" / topic.files[0]
        path.parent.mkdir(parents=True)
        source = sources[number % len(sources)].read_text(encoding="utf-8")
        path.write_text(f"{source}\n# {number}\n", encoding="utf-8")
        paths.append(path)
    return paths


def run_softmark(topic: Topic, submissions: Path, out: Path, count: int) -> dict[str, float]:
    """The whole command, isolation on. Every submission must pass all that is asked of its lstm.py."""
    import json

    command = [sys.executable, "-m", "softmark", "grade", str(submissions), "--topic", topic.id]
    command += ["--out", str(out), "--workers", str(WORKERS), "--seed", str(SEED)]
    row = measured([[*command, "--course", str(COURSE)]], count, {})
    results = [json.loads(path.read_text()) for path in (out / "results").iterdir()]
    assert len(results) == count, f"{len(results)} results of {count}"
    for result in results:
        lost = {item["id"] for item in result["items"] if item["status"] != "passed"}
        unasked = {id for id in lost if id.startswith(("questions.", "twin."))}  # not handed in
        assert lost == unasked, f"{result['student']} lost {sorted(lost - unasked)}"
    return row


def run_plain(course: Course, topic: Topic, place: Path, paths: list[Path]) -> dict[str, float]:
    """One pytest process each. Every test of every submission must pass."""
    graders = course.graders(topic.id)
    reference = course.solution(topic.id) / topic.files[0]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "throughput"]
    command += ["--reference", str(reference), "--calls", str(place / "calls")]
    command += ["--grading-seed", str(SEED), "--rootdir", str(graders), "-c", os.devnull]
    # what a right lstm.py alone is not asked by Softmark either
    command += [f"--ignore={graders / name}" for name in ("test_twin.py", "test_follow_through.py")]
    commands = [[*command, "--submission", str(path), str(graders)] for path in paths]
    search = [str(Path(__file__).parent), str(COURSE / "autograder")]
    if "PYTHONPATH" in os.environ:
        search.insert(0, os.environ["PYTHONPATH"])
    environment = {"PYTHONPATH": os.pathsep.join(search), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return measured(commands, len(paths), environment)


def measured(commands: list[list[str]], count: int, more: dict[str, str]) -> dict[str, float]:
    """Run commands, two at a time: wall and CPU seconds, and the peak memory of all they start."""
    import resource
    import subprocess
    import threading
    import time
    from concurrent.futures import ThreadPoolExecutor

    environment = {**os.environ, **THREADS, **more}
    peak, done = 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.25):
            peak = max(peak, sum(proportional_mb(pid) for pid in descendants(os.getpid())))

    def run(command: list[str]) -> None:
        ended = subprocess.run(command, env=environment, cwd=COURSE, capture_output=True, text=True)
        assert ended.returncode == 0, f"{command}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"

    def cpu() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    watcher = threading.Thread(target=watch)
    before, started = cpu(), time.perf_counter()
    watcher.start()
    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(run, commands))
    finally:
        done.set()
        watcher.join()
    seconds = time.perf_counter() - started
    return as_row(count, seconds, cpu() - before, peak)


def as_row(count: float, seconds: float, cpu: float, peak: float) -> dict[str, float]:
    rates = {"rate": count / seconds, "cpu_each": cpu / count}
    return {"submissions": count, "seconds": seconds, "cpu": cpu, "peak_mb": peak, **rates}


def summed(rows: list[dict[str, float]]) -> dict[str, float]:
    count, seconds, cpu = (sum(r[key] for r in rows) for key in ("submissions", "seconds", "cpu"))
    return as_row(count, seconds, cpu, max(row["peak_mb"] for row in rows))


def descendants(pid: int) -> list[int]:
    """Every process that ``pid`` started, directly or not."""
    found = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    except OSError:  # it ended meanwhile
        pass
    return found


def proportional_mb(pid: int) -> float:
    """Its memory; what it shares with others counts in part. 0 where it may not be seen."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    except (OSError, StopIteration):
        return 0.0


if __name__ == "__main__":
    main()
