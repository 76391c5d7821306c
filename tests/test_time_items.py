"""Items that need a GPU, on CPU workers at small sizes: what is right is measured, and no other.

Triton's kernel runs in Triton's interpreter, where Triton is installed.
"""

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
from softmark.verify import load_variants

pytest.importorskip("torch", reason="PyTorch is not installed here")

ROOT = Path(__file__).parents[1]
COURSE = load_course(ROOT)
Edits = list[tuple[str, str]]
# What stands in the graders, and what it is cut down to.
CUTS: dict[str, Edits] = {
    "01_bptt": [
        ("T, D, H = 32, 512, 4096", "T, D, H = 128, 24, 96"),
        ('"float32", 512', '"float32", 16'),
        ('"bfloat16", 2048', '"bfloat16", 16'),
    ],
    "02_lstm": [
        ("T, D, H = 32, 512, 2048", "T, D, H = 48, 24, 64"),
        ('"float32", 256', '"float32", 16'),
        ('"bfloat16", 1024', '"bfloat16", 16'),
    ],
    "03_gru": [
        ("T, D, H = 32, 512, 2048", "T, D, H = 48, 24, 64"),
        ('"float32", 256', '"float32", 16'),
        ('"bfloat16", 1024', '"bfloat16", 16'),
    ],
    "04_attention": [
        (
            "S, T, V_SRC, V, E, H = 48, 33, 8192, 16384, 512, 1024",
            "S, T, V_SRC, V, E, H = 9, 17, 20, 40, 24, 32",
        ),
        ('"float32", 256', '"float32", 16'),
        ('"bfloat16", 512', '"bfloat16", 16'),
    ],
    "05_multihead": [
        ("T, E, H = 1024, 1024, 16", "T, E, H = 32, 16, 2"),
        ('"query", 8, T', '"query", 3, T'),
        ('"query", 6, T', '"query", 2, T'),
    ],
    "07_transformer": [
        ("E, H, F, T = 1024, 16, 4096, 512", "E, H, F, T = 32, 2, 48, 32"),
        ("(512, 512, 8, 1024, 2, 576), 128, 512, 32", "(64, 32, 4, 48, 2, 24), 16, 16, 8"),
        ("EXPERTS, D_FF, TOP_K = 8, 1024, 2", "EXPERTS, D_FF, TOP_K = 8, 24, 2"),
    ],
    "08_gpu_attention": [
        ("dtype, 1, 8, 256, 131072, 64", "dtype, 1, 2, 16, 256, 16"),
        ("False, 256, 4096", "False, 16, 64"),
        ("dtype, 1, 1, 65536, 65536, 64", "dtype, 1, 1, 96, 96, 16"),
        ("False, 4096, 4096", "False, 32, 48"),
        ("N, h, shared, L, d = 4, 8, 2, 32768, 128", "N, h, shared, L, d = 2, 4, 2, 96, 16"),
        ('"float32", 8192', '"float32", 80'),
        ('"float16", 32768', '"float16", 80'),
        ("dtype, 1, 8, T, T, 64", "dtype, 1, 2, T, T, 16"),
    ],
}
# Known mistakes, or edits of the reference, and the items that stay measured with them. Of the edits:
# the scores of every head are halved; positions begin anew at each step, a residual connection is
# missing, and the weights of the experts of a token do not sum to 1; scores are not scaled.
WRONG: list[tuple[str, str | Edits, set[str]]] = [
    ("01_bptt", "twin_starts_from_zeros", set()),
    ("01_bptt", "twin_h_detached_between_steps", {"time.forward"}),
    ("02_lstm", "twin_blocks_of_pytorch", set()),
    ("02_lstm", "twin_h_detached_between_steps", {"time.forward"}),
    ("03_gru", "twin_reset_after_the_product", set()),
    ("03_gru", "twin_h_detached_between_steps", {"time.forward"}),
    ("04_attention", "mask_one_too_long", set()),
    ("04_attention", "weights_detached", {"time.forward"}),
    ("05_multihead", [("/ math.sqrt(q.shape[-1])  #", "/ (2 * math.sqrt(q.shape[-1]))  #")], set()),
    (
        "07_transformer",
        [
            ("start = len(caches[0]) if caches is not None else 0", "start = 0"),
            ("return x + dropout(function(norm(x)))", "return dropout(function(norm(x)))"),
            ("weights = torch.softmax(chosen, dim=-1)", "weights = chosen.exp()"),
        ],
        set(),
    ),
    (
        "08_gpu_attention",
        [
            ("scores = q @ k.mT / math.sqrt(q.shape[-1])", "scores = q @ k.mT"),
            ("q[:, :, rows].to(wide) / math.sqrt(d)", "q[:, :, rows].to(wide)"),
            ("grouped @ k_cache.mT / math.sqrt(q.shape[-1])", "grouped @ k_cache.mT"),
            ("d**-0.5, causal", "1.0, causal"),
        ],
        set(),
    ),
]
# At sizes that are cut down the outputs are compared, and some items take too little time to be told.
MEASURED = re.compile("measured|Not measured: the reference takes hardly longer .*")


def replaced(text: str, edits: Edits) -> str:
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


def copied(folder: Path, id: str) -> tuple[Course, Topic]:
    """A course of this topic alone, with no graders but those that take times, cut down."""
    for half in ("assignments", "solutions"):
        shutil.copytree(ROOT / half / id, folder / half / id)
    graders = folder / "autograder" / "graders" / id
    graders.mkdir(parents=True)
    text = (COURSE.graders(id) / "test_time.py").read_text("utf-8")
    (graders / "test_time.py").write_text(replaced(text, CUTS[id]), "utf-8")
    (folder / "course.yaml").write_text(f"title: Small\ntopics:\n  - id: {id}\n")
    course = load_course(folder)
    return course, course.topic(id)


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """What is said of each timed item of a topic for some files."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    import gpu_items

    def tried(id: str, files: Mapping[str, str]) -> dict[str, str]:
        course, topic = copied(tmp_path, id)
        plan = Plan(launches=1, pairs=2, warm=1)
        rows = gpu_items.check(course, topic, "cpu", plan, math.inf, files)
        said = {cells[2]: cells[3] for cells in (re.split(r" *\| *", row) for row in rows)}
        assert list(said) == [item for item in topic.timed if not topic.rubric[item].lacks]
        return said

    return tried


def right_ones() -> dict[str, Mapping[str, str]]:
    found = {}
    for id in CUTS:
        topic = COURSE.topic(id)
        reference = reference_files(COURSE, topic)
        found[f"{id}: reference"] = reference
        for name, files in load_variants(COURSE, topic, reference).items():
            found[f"{id}: {name}"] = files
    return found


RIGHT = right_ones()


@pytest.mark.parametrize("id", CUTS)
def test_the_handout_says_before_the_start_what_takes_a_gpu(id: str) -> None:
    topic = COURSE.topic(id)
    assert "core" not in {topic.rubric[item].tier for item in topic.timed}
    handout = (topic.folder / "handout.md").read_text("utf-8")
    before = handout[: handout.index("\n## Start")]
    assert "**You need no GPU.**" in before and "`time." in before and "`not_graded`" in before


@pytest.mark.slow  # several seconds each
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_measured(tried: Callable[..., dict[str, str]], name: str) -> None:
    said = tried(name.partition(":")[0], RIGHT[name])
    assert all(MEASURED.fullmatch(text) for text in said.values()), said


@pytest.mark.slow  # several seconds each
@pytest.mark.parametrize(("id", "wrong", "kept"), WRONG)
def test_what_is_wrong_fails(
    tried: Callable[..., dict[str, str]], id: str, wrong: str | Edits, kept: set[str]
) -> None:
    topic = COURSE.topic(id)
    files = dict(reference_files(COURSE, topic))
    if isinstance(wrong, str):
        mistakes = load_mistakes(COURSE, topic, files)
        files = dict(next(each.files for each in mistakes if each.id == wrong))
    else:
        main = topic.files[0]
        files[main] = replaced(files[main], wrong)
    said = tried(id, files)
    assert {item for item, text in said.items() if MEASURED.fullmatch(text)} == kept, said
    # no gradient may be left of what is detached
    failed = re.compile("too far from the right ones|no gradient reaches|other shapes")
    assert all(failed.search(text) for item, text in said.items() if item not in kept), said
