"""The twins' and Seq2Seq's items that need a GPU, on CPU workers at small sizes."""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("workers need Linux", allow_module_level=True)

from softmark.bench import reference_files
from softmark.course import Course, Topic, load_course
from softmark.mistakes import load_mistakes
from softmark.timing import Plan

pytest.importorskip("torch", reason="PyTorch is not installed here")

ROOT = Path(__file__).parents[1]
SIZES = {
    "01_bptt": ("T, D, H = 32, 512, 4096", "T, D, H = 128, 24, 96"),
    "02_lstm": ("T, D, H = 32, 512, 2048", "T, D, H = 48, 24, 64"),
    "03_gru": ("T, D, H = 32, 512, 2048", "T, D, H = 48, 24, 64"),
    "04_attention": (
        "S, T, V_SRC, V, E, H = 48, 33, 8192, 16384, 512, 1024",
        "S, T, V_SRC, V, E, H = 9, 17, 20, 40, 24, 32",
    ),
}
WRONG = {  # a known mistake of values, and one of gradients alone
    "01_bptt": ("twin_starts_from_zeros", "twin_h_detached_between_steps"),
    "02_lstm": ("twin_blocks_of_pytorch", "twin_h_detached_between_steps"),
    "03_gru": ("twin_reset_after_the_product", "twin_h_detached_between_steps"),
    "04_attention": ("mask_one_too_long", "weights_detached"),
}
VARIANTS = [
    (topic, folder.name)
    for topic in SIZES
    for folder in sorted((ROOT / "solutions" / topic / "variants").iterdir())
]


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """What is said of each timed item of a topic, at small sizes, with some files handed in."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    import gpu_items

    def tried(id: str, files: Callable[[Course, Topic], Mapping[str, str]]) -> dict[str, str]:
        shutil.copytree(ROOT / "assignments" / id, tmp_path / "assignments" / id)
        shutil.copytree(ROOT / "solutions" / id, tmp_path / "solutions" / id)
        graders = tmp_path / "autograder" / "graders" / id
        graders.mkdir(parents=True)
        (tmp_path / "course.yaml").write_text(f"title: Small\ntopics:\n  - id: {id}\n")
        text = (ROOT / "autograder" / "graders" / id / "test_time.py").read_text("utf-8")
        assert SIZES[id][0] in text
        text, count = re.subn(r'(\("b?float\d+", )\d+', r"\g<1>16", text.replace(*SIZES[id]))
        assert count == 2
        (graders / "test_time.py").write_text(text, "utf-8")
        course = load_course(tmp_path)
        topic = course.topic(id)
        plan = Plan(launches=1, pairs=2, warm=1)
        rows = gpu_items.check(course, topic, "cpu", plan, math.inf, files(course, topic))
        said = {cells[2]: cells[3] for cells in (re.split(r" *\| *", row) for row in rows)}
        assert list(said) == ["time.forward", "time.backward"] == list(topic.timed)
        return said

    return tried


@pytest.mark.parametrize("id", SIZES)
def test_the_handout_says_before_the_start_what_takes_a_gpu(id) -> None:
    topic = load_course(ROOT).topic(id)
    assert topic.timed == ("time.forward", "time.backward")
    assert {topic.rubric[item].tier for item in topic.timed} == {"extension"}
    handout = (ROOT / "assignments" / id / "handout.md").read_text("utf-8")
    before = handout[: handout.index("\n## Start")]
    assert "**You need no GPU.**" in before and "`time.*`" in before and "`not_graded`" in before


@pytest.mark.slow  # several seconds each
@pytest.mark.parametrize("id", SIZES)
def test_the_reference_is_measured(tried, id) -> None:
    assert set(tried(id, reference_files).values()) == {"measured"}


@pytest.mark.slow  # several seconds each
@pytest.mark.parametrize(("id", "variant"), VARIANTS)
def test_what_is_right_is_measured(tried, id, variant) -> None:
    folder = ROOT / "solutions" / id / "variants" / variant
    files = {path.name: path.read_text("utf-8") for path in folder.glob("*.py")}
    assert set(tried(id, lambda *_: files).values()) == {"measured"}


@pytest.mark.slow  # several seconds each
@pytest.mark.parametrize("id", WRONG)
@pytest.mark.parametrize("kind", ["values", "gradients"])
def test_what_is_wrong_fails(tried, id, kind) -> None:
    wrong = WRONG[id][kind == "gradients"]

    def files(course: Course, topic: Topic) -> Mapping[str, str]:
        mistakes = load_mistakes(course, topic, reference_files(course, topic))
        return next(each.files for each in mistakes if each.id == wrong)

    said = tried(id, files)
    assert (said["time.forward"] == "measured") == (kind == "gradients")
    failed = [item for item in said.values() if item != "measured"]
    # no gradient may be left of what is detached
    pattern = "too far from the right ones|no gradient reaches|other shapes"
    assert failed and all(re.search(pattern, text) for text in failed), said
