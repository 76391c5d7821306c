"""Timed items of topics 05 and 07, cut down, on CPU workers: what is right is measured, and no other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("workers need Linux", allow_module_level=True)
pytest.importorskip("torch", reason="PyTorch is not installed here")

from softmark.course import load_course
from softmark.timing import Plan

ROOT = Path(__file__).parents[1]
FILES = {"05_multihead": "multihead.py", "07_transformer": "transformer.py"}
ITEMS = {
    "05_multihead": ["time.forward", "time.backward"],
    "07_transformer": ["time.forward", "time.backward", "time.generate", "time.experts"],
}
# What stands in the graders, and what it is cut down to.
CUTS = {
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
}
# The scores of every head are halved; positions begin anew at each step, a residual connection is
# missing, and the weights of the experts of a token do not sum to 1.
WRONG = {
    "05_multihead": [("/ math.sqrt(q.shape[-1])  #", "/ (2 * math.sqrt(q.shape[-1]))  #")],
    "07_transformer": [
        ("start = len(caches[0]) if caches is not None else 0", "start = 0"),
        ("return x + dropout(function(norm(x)))", "return dropout(function(norm(x)))"),
        ("weights = torch.softmax(chosen, dim=-1)", "weights = chosen.exp()"),
    ],
}


def replaced(text: str, pairs: list[tuple[str, str]]) -> str:
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.fixture(params=FILES)
def topic(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def statuses(topic: str, course_copy: Path, monkeypatch: pytest.MonkeyPatch):
    """What came of each item of the topic, for the source of a submission."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    import gpu_items

    path = course_copy / "autograder/graders" / topic / "test_time.py"
    path.write_text(replaced(path.read_text(), CUTS[topic]))
    course = load_course(course_copy)

    def run(source: str) -> dict[str, str]:
        files = {FILES[topic]: source}
        plan, until = Plan(launches=1, pairs=2, warm=1), float("inf")
        rows = gpu_items.check(course, course.topic(topic), "cpu", plan, until, files)
        return {row.split(" | ")[1]: row.split(" | ")[2] for row in rows}

    return run


@pytest.mark.slow  # half a minute each
def test_what_is_right_is_measured(topic, statuses) -> None:
    """Or it takes too little time at these sizes; its outputs were compared before."""
    solution = ROOT / "solutions" / topic
    for path in (solution, *sorted((solution / "variants").iterdir())):
        said = statuses((path / FILES[topic]).read_text())
        assert list(said) == ITEMS[topic]
        for item, status in said.items():
            assert status.startswith(("measured", "Not measured: the reference takes")), (
                path.name,
                item,
                status,
            )


@pytest.mark.slow  # ten seconds each
def test_what_is_wrong_fails_every_item(topic, statuses) -> None:
    source = (ROOT / "solutions" / topic / FILES[topic]).read_text()
    said = statuses(replaced(source, WRONG[topic]))
    assert list(said) == ITEMS[topic]
    for item, status in said.items():
        assert "too far from the right ones" in status, (item, status)
