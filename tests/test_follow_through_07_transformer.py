"""Follow-through in the Transformer topic: what is right given the student's own norm, layers or blocks
earns its share, what agrees with itself because nothing is computed earns nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from softmark.batch import Run, grade_submissions
from softmark.bench import reference_files
from softmark.course import load_course
from softmark.intake import Submission
from softmark.mistakes import load_mistakes
from softmark.result import Result

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="hidden grading needs Linux"),
    pytest.mark.slow,  # half a minute
]
pytest.importorskip("torch", reason="PyTorch is not installed here")

ID = "07_transformer"
COURSE = load_course(Path(__file__).resolve().parents[1])
if ID not in [topic.id for topic in COURSE.topics]:
    pytest.skip(f"{ID} is not in course.yaml", allow_module_level=True)
TOPIC = COURSE.topic(ID)
FILES = reference_files(COURSE, TOPIC)
REFERENCE = FILES["transformer.py"]
MISTAKES = {m.id: m.files["transformer.py"] for m in load_mistakes(COURSE, TOPIC, FILES)}
SHARE = 0.6
FOLLOWING = {id for id, item in TOPIC.rubric.items() if item.follow_through}

# Put behind the reference. Nothing that follows may earn its share from it.
DEAD = {
    "zeros": "LayerNorm.forward = lambda self, x: 0 * x\n",
    "constants": "LayerNorm.forward = lambda self, x: 0 * x + 1\n",
    "not a number": "LayerNorm.forward = lambda self, x: 0 * x / 0\n",
    "blocks that do nothing": "EncoderBlock.forward = lambda self, x, mask=None, cache=None: x\n",
}
# With each mistake: what earns the share all the same.
FOLLOWS = {
    "variance_unbiased": {"block.pre", "block.post", "lm.logits"},
    "relu_after_down": {"block.pre", "block.post", "lm.logits"},
    "norms_exchanged": {"lm.logits"},
    "softmax_in_the_model": set(),
}


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    sources = {id: MISTAKES[id] for id in FOLLOWS}
    sources |= {name: f"{REFERENCE}\n\n{source}" for name, source in DEAD.items()}
    submissions = [
        Submission(name, {**FILES, "transformer.py": source}, "ready", "", (), "")
        for name, source in sources.items()
    ]
    graded = grade_submissions(Run(COURSE, TOPIC, 5), submissions, 1)
    return {result.student: result for result in graded}


@pytest.mark.parametrize("id", FOLLOWS)
def test_what_is_right_given_a_mistake_earns_its_share(results: dict[str, Result], id: str) -> None:
    items = {item.id: item for item in results[id].items if item.id in FOLLOWING}
    partial = {name for name, item in items.items() if item.status == "partial"}
    assert partial == FOLLOWS[id]
    for name in partial:
        assert items[name].score == pytest.approx(SHARE * TOPIC.rubric[name].points)


@pytest.mark.parametrize("name", DEAD)
def test_what_is_dead_earns_nothing(results: dict[str, Result], name: str) -> None:
    earned = {item.id: item.score for item in results[name].items if item.id in FOLLOWING}
    assert not any(earned.values()), earned
