"""The same right submissions graded by Softmark and by plain nbgrader, Otter and pytest, in one run.

    python benchmarks/peers.py [--batch 800] [--count 20] [--topic 02_lstm] [--topic 06_positions]

The plain tools run the hidden graders as an instructor without Softmark would have them: in the
process, or the kernel, that the submission is in, by ``in_process``. They are run one submission
after the other; what Softmark gains by its two processes is not in the ratio of CPU seconds. They get
fewer submissions, since they take long; what one of them takes does not hang on how many there are.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import pickle
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from in_process import VARIABLE, Setup
from softmark.builders.notebook import cell_json, notebook_json
from softmark.course import Course, Topic, load_course

HERE = Path(__file__).resolve().parent
COURSE = HERE.parent
WORKERS = 2
SEED = 1
# one thread a process for all: what they compute is small
THREADS = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}


@dataclass(frozen=True)
class Row:
    """A tool on a topic. ``grading`` is Softmark's own time for a submission, start-up left out."""

    topic: str
    tool: str
    submissions: int
    seconds: float
    cpu: float
    peak_mb: float
    grading: float | None = None

    @property
    def each(self) -> float:
        return self.seconds / self.submissions

    @property
    def cpu_each(self) -> float:
        return self.cpu / self.submissions


class Bench:
    """A topic in a folder of its own, with what the plain tools need of it."""

    def __init__(self, course: Course, topic: Topic, folder: Path, count: int) -> None:
        self.course, self.topic, self.folder, self.count = course, topic, folder, count
        # questions and the twin are not handed in here, and there is no GPU
        left_out = ("questions", "twin", *topic.timed)
        items = [id for id in topic.rubric if not {id, id.split(".")[0]} & set(left_out)]
        solution = course.solution(topic.id)
        setup = Setup(
            graders=course.graders(topic.id),
            reference=solution / topic.files[0],
            calls=topic.calls,
            torch=topic.worker == "torch",
            seed=SEED,
            items=tuple(items),
        )
        self.items = items
        self.setup = folder / "setup"
        self.setup.write_bytes(pickle.dumps(setup))
        variants = sorted((solution / "variants").glob(f"*/{topic.files[0]}"))
        texts = [path.read_text(encoding="utf-8") for path in (setup.reference, *variants)]
        # the reference and its variants in turn; no two are equal
        self.sources = [f"{texts[n % len(texts)]}\n# {n}\n" for n in range(count)]

    def name(self, number: int) -> str:
        return f"right_{number:03}"

    def measured(self, commands: Sequence[Sequence[str]], where: Path) -> Row:
        """Run commands one after the other, and watch them and all that they start."""
        search = [str(HERE), str(COURSE / "autograder")]
        environment = {
            **os.environ,
            **THREADS,
            VARIABLE: str(self.setup),
            "PYTHONPATH": os.pathsep.join(search),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(self.folder),  # no settings of one's own
            "JUPYTER_PLATFORM_DIRS": "1",
        }
        peak, done = 0.0, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.25):
                peak = max(peak, memory_mb())

        watcher = threading.Thread(target=watch)
        before, started = cpu_seconds(), time.perf_counter()
        watcher.start()
        try:
            for command in commands:
                ended = subprocess.run(
                    command, cwd=where, env=environment, capture_output=True, text=True
                )
                said = f"{command}\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"
                assert ended.returncode == 0, said
        finally:
            done.set()
            watcher.join()
        seconds = time.perf_counter() - started
        return Row(self.topic.id, "", self.count, seconds, cpu_seconds() - before, peak)

    # ---- the tools

    def softmark(self) -> Row:
        """The whole command, isolation on. Every submission must pass all that is asked of its file."""
        place, out = self.folder / "class", self.folder / "out"
        for number, source in enumerate(self.sources):
            path = place / self.name(number) / self.topic.files[0]
            path.parent.mkdir(parents=True)
            path.write_text(source, encoding="utf-8")
        command = [sys.executable, "-P", "-m", "softmark", "grade", str(place)]
        command += ["--topic", self.topic.id, "--out", str(out), "--workers", str(WORKERS)]
        command += ["--seed", str(SEED), "--course", str(self.course.folder)]
        row = self.measured([command], self.folder)
        results = [json.loads(path.read_text()) for path in (out / "results").iterdir()]
        assert len(results) == self.count
        for result in results:
            earned = {item["id"] for item in result["items"] if item["status"] == "passed"}
            assert earned >= set(self.items), sorted(set(self.items) - earned)
        grading = statistics.median(result["seconds"] for result in results)
        return Row(**{**asdict(row), "grading": grading})

    def pytest(self) -> Row:
        """One process a submission, with no plugin but the one that gives the fixtures."""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "in_process",
        ]
        command += ["-c", os.devnull, "--setup", str(self.setup)]
        graders = self.course.graders(self.topic.id)
        command += ["--rootdir", str(graders), str(graders)]
        commands = []
        for number, source in enumerate(self.sources):
            path = self.folder / "plain" / self.name(number) / self.topic.files[0]
            path.parent.mkdir(parents=True)
            path.write_text(source, encoding="utf-8")
            commands.append([*command, "--submission", str(path)])
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        return self.measured(commands, self.folder)

    def nbgrader(self) -> Row:
        """``nbgrader autograde``, once for all; a grade cell with hidden tests for each item."""
        root, id = self.folder / "nbgrader", self.topic.id
        cells = [nbgrader_cell("solution", BLANK, solution=True)]
        for item in self.items:
            text = f"### BEGIN HIDDEN TESTS\n{test_of(item)}\n### END HIDDEN TESTS"
            cells.append(nbgrader_cell(item.replace(".", "-"), text, grade=True, points=1))
        write(root / "source" / id / "it.ipynb", notebook_json(cells))
        (root / "nbgrader_config.py").write_text(
            'c = get_config()\nc.CourseDirectory.course_id = "course"\n'
            "c.ExecutePreprocessor.timeout = 600\n"
        )
        tool = [sys.executable, "-m", "nbgrader"]
        self.measured([[*tool, "generate_assignment", id]], root)
        released = (root / "release" / id / "it.ipynb").read_text()
        for number, source in enumerate(self.sources):
            path = root / "submitted" / self.name(number) / id / "it.ipynb"
            write(path, filled(released, source))
        row = self.measured([[*tool, "autograde", id]], root)
        self.measured([[*tool, "export"]], root)
        scores = [line["score"] for line in csv.DictReader((root / "grades.csv").open())]
        assert [float(score or 0) for score in scores] == [len(self.items)] * self.count, scores
        return row

    def otter(self) -> Row:
        """``otter run``, once a submission; a question with a hidden test for each item."""
        root = self.folder / "otter"
        config = {"run_tests": False, "init_cell": False, "export_cell": False}
        cells = [raw("config", f"# ASSIGNMENT CONFIG\n{yaml.safe_dump(config)}")]
        text = f"# BEGIN SOLUTION\n{BLANK}\n# END SOLUTION"
        solution = cell_json("code", "solution", text, {})
        cells += question("given", 0, "SOLUTION", solution)
        for number, item in enumerate(self.items):
            test = cell_json("code", f"test-{number}", f"# HIDDEN\n{test_of(item)}", {})
            cells += question(item, 1, "TESTS", test)
        write(root / "it.ipynb", notebook_json(cells))
        otter = str(Path(sys.executable).with_name("otter"))
        self.measured([[otter, "assign", "--no-pdfs", "it.ipynb", "dist"]], root)
        released = (root / "dist" / "student" / "it.ipynb").read_text()
        (autograder,) = (root / "dist" / "autograder").glob("*.zip")
        commands = []
        for number, source in enumerate(self.sources):
            path = root / "class" / self.name(number) / "it.ipynb"
            write(path, filled(released, source))
            command = [otter, "run", "--no-logo", "-a", str(autograder), "-o", str(path.parent)]
            commands.append([*command, str(path)])
        row = self.measured(commands, root)
        for path in (root / "class").glob("*/results.json"):
            tests = json.loads(path.read_text())["tests"]
            earned = sum(test.get("score", 0) for test in tests)
            assert earned == len(self.items), f"{path}: {earned}"
        return row


TOOLS: dict[str, Callable[[Bench], Row]] = {
    "softmark": Bench.softmark,
    "pytest": Bench.pytest,
    "nbgrader": Bench.nbgrader,
    "otter": Bench.otter,
}

# ---- notebooks -----------------------------------------------------------------------------------

BLANK = "pass  # the solution"


def test_of(item: str) -> str:
    return f"import in_process\nin_process.check({item!r}, globals())"


def filled(notebook: str, source: str) -> str:
    """The released notebook with a submission in its first code cell."""
    content = json.loads(notebook)
    cell = next(cell for cell in content["cells"] if cell["cell_type"] == "code")
    cell["source"] = source
    return json.dumps(content)


def nbgrader_cell(id: str, text: str, **marks: Any) -> dict[str, Any]:
    plain = {"schema_version": 3, "grade": False, "solution": False, "task": False, "grade_id": id}
    locked = not marks.get("solution")
    return cell_json("code", id, text, {"nbgrader": {**plain, "locked": locked, **marks}})


def raw(id: str, text: str) -> dict[str, Any]:
    return {**cell_json("markdown", id, text, {}), "cell_type": "raw"}


def question(name: str, points: int, block: str, cell: dict[str, Any]) -> list[dict[str, Any]]:
    id = cell["id"]
    return [
        raw(f"{id}-1", f"# BEGIN QUESTION\nname: {name}\npoints: {points}\ncheck_cell: false"),
        raw(f"{id}-2", f"# BEGIN {block}"),
        cell,
        raw(f"{id}-3", f"# END {block}"),
        raw(f"{id}-4", "# END QUESTION"),
    ]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# ---- the measurement -----------------------------------------------------------------------------


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def memory_mb() -> float:
    """The memory of all that this process has started; what processes share counts once."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        try:
            total += process.memory_full_info().pss
        except psutil.Error:  # it ended meanwhile
            continue
    return total / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--batch", type=int, default=800, help="submissions to Softmark")
    parser.add_argument("--count", type=int, default=20, help="submissions to each other tool")
    parser.add_argument("--topic", action="append", help="default: 02_lstm and 06_positions")
    parser.add_argument("--only", action="append", choices=TOOLS, help="default: all of them")
    options = parser.parse_args()
    course = load_course(COURSE)
    rows: list[Row] = []
    for id in options.topic or ["02_lstm", "06_positions"]:
        topic = course.topic(id)
        for tool in options.only or TOOLS:
            with tempfile.TemporaryDirectory() as folder:
                count = options.batch if tool == "softmark" else options.count
                bench = Bench(course, topic, Path(folder), count)
                rows.append(Row(**{**asdict(TOOLS[tool](bench)), "tool": tool}))
            tell(rows[-1], rows)
    print(json.dumps([asdict(row) for row in rows]))


def tell(row: Row, rows: Sequence[Row]) -> None:
    """A line of the table, and the times of Softmark's as soon as those are known."""
    if len(rows) == 1:
        heads = ("topic", "tool", "s each", "a second", "CPU s each", "peak MB", "ratio", "in CPU")
        print("{:14}{:10}{:>8}{:>10}{:>12}{:>9}{:>8}{:>8}".format(*heads))
    ours = next((r for r in rows if r.topic == row.topic and r.tool == "softmark"), row)
    print(
        f"{row.topic:14}{row.tool:10}{row.each:8.3f}{1 / row.each:10.2f}{row.cpu_each:12.3f}"
        f"{row.peak_mb:9.0f}{row.each / ours.each:8.1f}{row.cpu_each / ours.cpu_each:8.1f}"
        + (
            ""
            if row.grading is None
            else f"  median of the grading alone {1000 * row.grading:.0f} ms"
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
