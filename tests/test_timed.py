"""Items that are timed: from the rubric to the result, on CPU workers in place of a GPU's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

if sys.platform != "linux":
    pytest.skip("workers need Linux", allow_module_level=True)

from softmark import gpu
from softmark.bench import isolate
from softmark.cli import app
from softmark.course import CourseError, load_course
from softmark.intake import Submission
from softmark.result import ItemResult, Result
from softmark.session import Session

pytest.importorskip("torch", reason="PyTorch is not installed here")

TOPIC = "00_quick"
FILES = {
    "course.yaml": "title: Timed\ntopics:\n  - id: 00_quick\n",
    f"assignments/{TOPIC}/assignment.yaml": """
title: Products
hours: 1
files: [quick.py]
worker: torch
calls: {gram: {y: "array (N, N)"}}
rubric:
  gram.values: {title: values, points: 10}
  gram.time: {title: as fast as one product, points: 4, tier: extension, device: cuda}
""",
    f"solutions/{TOPIC}/quick.py": """
def gram(x):
    # BEGIN SOLUTION
    return x @ x.mT
    # END SOLUTION
""",
    f"solutions/{TOPIC}/mistakes.yaml": """
mistakes:
  not_transposed:
    task: gram
    file: quick.py
    replace: x @ x.mT
    with: x @ x.mT + 1
    hint: Nothing is added.
    loses: [gram.values, gram.time]
""",
    f"autograder/graders/{TOPIC}/test_quick.py": """
from softmark.plugin import item


@item("gram.values")
def test_values(script, agree, draw):
    run = script()
    run.call("gram", draw(3, 4))
    agree(run)


@item("gram.time", requires="gram.values")
def test_time(script, timed, device):
    run = script()
    x = run.fresh("x", 400, 400)
    run.start_clock()
    run.call("gram", x)
    timed(run, gate=1e-4, full=50, none=5000)
""",
}
RIGHT = "def gram(x):\n    return x @ x.mT\n"
SLOW = """
import time
def gram(x):
    if len(x) > 9: time.sleep(1)
    return x @ x.mT
"""
WRONG_IN_TIME = "def gram(x):\n    return x @ x.mT if len(x) < 9 else x\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("timed")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"))
    return folder


@pytest.fixture(scope="module")
def on_cpu(folder: Path) -> Iterator[Session]:
    """A grading process that takes times on CPU workers, as no command does."""
    course = load_course(folder)
    level = isolate(course, TOPIC)
    with Session(course, course.topic(TOPIC), 7, level, device="cpu") as session:
        yield session


def graded(session: Session, source: str) -> Result:
    return session.grade(Submission("one", {"quick.py": source}, "ready", "", (), ""))


def timed(result: Result) -> ItemResult:
    return next(item for item in result.items if item.id == "gram.time")


@pytest.mark.slow  # takes times for minutes
def test_the_reference_s_own_way_is_measured_unless_the_machine_is_too_noisy(on_cpu) -> None:
    item = timed(graded(on_cpu, RIGHT))
    if item.status == "passed":
        assert item.score == 4.0
    else:
        assert item.status in ("not_graded", "invalid") and item.message


@pytest.mark.slow  # takes times for minutes
def test_what_is_slow_never_gets_all_and_says_how_slow(on_cpu) -> None:
    item = timed(graded(on_cpu, SLOW))
    if item.score is not None:
        assert item.status == "failed" or (item.status == "partial" and 0 < item.score < 4)
        assert "times the reference's time" in item.message


@pytest.mark.slow  # takes times for minutes
def test_what_is_wrong_in_time_fails(on_cpu) -> None:
    result = graded(on_cpu, WRONG_IN_TIME)
    assert result.items[0].status == "passed"
    if timed(result).status != "not_graded":
        assert timed(result).status == "failed" and "too far from" in timed(result).message


def test_without_a_gpu_it_is_not_graded_and_holds_nothing_unless_the_course_has_one(folder) -> None:
    place = folder / "hand_in"
    place.mkdir()
    (place / "quick.py").write_text(RIGHT)
    out = folder / "out"

    def grade(*more: str) -> tuple[int, str, Result]:
        said = CliRunner().invoke(
            app,
            [
                "grade",
                str(place),
                "--topic",
                TOPIC,
                "--out",
                str(out),
                "--course",
                str(folder),
                *more,
            ],
        )
        (path,) = (out / "results").glob("*.json")
        return said.exit_code, said.output, Result.from_json(path.read_text())

    code, said, result = grade()
    assert (code, result.score, timed(result).status) == (0, 10.0, "not_graded")
    assert "softmark grade --device cuda" in timed(result).message
    assert "Not measured, for want of a GPU that is fit for it: gram.time" in said
    code, said, result = grade("--require-gpu")
    assert code == 3 and "--require-gpu: Measured on a GPU only" in said
    course = folder / "course.yaml"
    course.write_text(course.read_text() + "gpu: true\n")
    assert grade()[2].score is None
    course.write_text(course.read_text() + "ungraded: renormalise\n")
    assert grade()[2].score == 10.0


def test_the_core_never_needs_a_gpu(tmp_path) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n").replace(", tier: extension", ""))
    with pytest.raises(CourseError, match="the core can be earned without a GPU"):
        load_course(tmp_path).topic(TOPIC)


def test_device_needs_something_to_run(folder) -> None:
    place = str(folder / "solutions" / TOPIC)
    options = ["grade", place, "--topic", TOPIC, "--out", "out", "--course", str(folder)]
    said = CliRunner().invoke(app, [*options, "--device", "tpu"])
    assert said.exit_code == 2 and "'tpu' is neither cpu nor cuda" in said.output


# ---- what the driver says ------------------------------------------------------------------------

DRIVER = "NVIDIA Z9, 141000, 3, 0, Disabled, 0x0000000000000001, 570.1"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (DRIVER, ""),
        (DRIVER.replace("Disabled", "[N/A]"), ""),
        (DRIVER.replace(" 3,", " 9000,"), "has to be idle"),
        (DRIVER.replace(" 0,", " 60,"), "has to be idle"),
        (DRIVER.replace("Disabled", "Enabled"), "MIG"),
        (DRIVER.replace("01,", "20,"), "slowed down for heat or power"),
        ("no such thing", "no answer that is understood"),
    ],
)
def test_a_gpu_is_fit_if_it_is_whole_idle_and_cool(tmp_path, monkeypatch, said, found) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho '{said}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    looked = gpu.look()
    unfit = looked if isinstance(looked, str) else looked.unfit()
    assert found in unfit and bool(found) == bool(unfit)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Stands in for nvidia-smi: a line of shell, which has its arguments as ``$*``."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def install(line: str) -> None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{line}\n")
        tool.chmod(0o755)

    return install


def test_an_older_driver_is_asked_in_its_own_words(driver) -> None:
    driver(f"case $* in *event_reasons*) exit 2;; *throttle_reasons*) echo '{DRIVER}';; esac")
    found = gpu.look()
    assert isinstance(found, gpu.Gpu) and found.name == "NVIDIA Z9"


@pytest.mark.parametrize(("visible", "number"), [(None, "0"), ("3,1", "3"), ("GPU-8f", "GPU-8f")])
def test_the_first_gpu_that_may_be_seen_is_the_one(driver, monkeypatch, visible, number) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    driver(f"case $* in *--id={number}) echo '{DRIVER}';; *) exit 6;; esac")
    assert isinstance(gpu.look(), gpu.Gpu)


APPS = "[ $1 = --query-compute-apps=pid,used_memory ] || exit 2"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f"{APPS}; echo '411, 9'; echo '4112, 812'; echo '14112, 7'", 812),
        (f"{APPS}; echo '411, 9'", None),
        (f"{APPS}; echo '4112, [N/A]'", None),
        (f"{APPS}; echo 'no such thing'", None),
        (f"{APPS}", None),
        ("echo '4112, 812'; exit 9", None),
    ],
)
def test_the_driver_tells_what_a_process_holds(driver, line, found) -> None:
    driver(line)
    assert gpu.held_mb(4112) == found


@pytest.mark.parametrize(
    ("capability", "memory", "told"),
    [
        ("echo 9.0", "141000", []),
        ("echo 7.5", "15000", ["no bfloat16 of its own"]),
        ("echo 7.5", "6000", ["made for 8 GiB", "no bfloat16 of its own"]),
        ("exit 2", "8100", []),  # a driver that is too old to tell
    ],
)
def test_what_is_odd_about_a_gpu_is_printed_and_fails_nothing(
    driver, capability, memory, told
) -> None:
    card = DRIVER.replace(" 141000,", f" {memory},")
    driver(f"case $* in *compute_cap*) {capability};; *) echo '{card}';; esac")
    said = CliRunner().invoke(app, ["doctor"])
    assert said.exit_code == 0 and f"Times on a GPU: NVIDIA Z9, {memory} MB." in said.output
    text = " ".join(said.output.split())
    assert text.count("NVIDIA Z9: ") == len(told)
    assert all(words in text for words in told)


def test_what_ran_before_is_waited_for(driver, tmp_path) -> None:
    busy = DRIVER.replace(" 0,", " 60,")
    driver(f"if mkdir {tmp_path}/asked 2>/dev/null; then echo '{busy}'; else echo '{DRIVER}'; fi")
    assert gpu.unfit() == ""


def test_no_driver_is_told(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no NVIDIA GPU here" in str(gpu.look())
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'No devices were found'; exit 6\n")
    tool.chmod(0o755)
    assert gpu.look() == "nvidia-smi fails: No devices were found"
