"""Follow-through in the attention topic: what is right given one's own mistake earns its share, what
agrees with itself because nothing is computed earns nothing."""

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

ID = "04_attention"
COURSE = load_course(Path(__file__).resolve().parents[1])
if ID not in [topic.id for topic in COURSE.topics]:
    pytest.skip(f"{ID} is not in course.yaml", allow_module_level=True)
TOPIC = COURSE.topic(ID)
FILES = reference_files(COURSE, TOPIC)
REFERENCE = FILES["attention.py"]
MISTAKES = {m.id: m.files["attention.py"] for m in load_mistakes(COURSE, TOPIC, FILES)}
SHARE = 0.6
FOLLOWING = [id for id, item in TOPIC.rubric.items() if item.follow_through]

# Put behind the reference. Nothing that follows may earn its share from it.
DEAD = {
    "zeros": "def masked_softmax(scores, mask=None):\n    return 0 * scores\n",
    "uniform": (
        "def masked_softmax(scores, mask=None):\n"
        "    return torch.full_like(scores, 1 / scores.shape[-1])\n"
    ),
    "not a number": "def masked_softmax(scores, mask=None):\n    return scores / 0 * 0\n",
}
# With each mistake: what earns the share all the same.
FOLLOWS = {
    "softmax_over_the_batch": {
        "bahdanau.weights",
        "luong.dot",
        "luong.general",
        "luong.concat",
        "decoder.weights",
        "decoder.logits",
        "seq2seq.logits",
    },
    "products_scaled": {"decoder.weights", "decoder.logits", "seq2seq.logits"},
    "state_before_context": {"seq2seq.logits"},
}


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    sources = {id: MISTAKES[id] for id in FOLLOWS}
    sources |= {name: f"{REFERENCE}\n\n{source}" for name, source in DEAD.items()}
    submissions = [
        Submission(name, {"attention.py": source}, "ready", "", (), "")
        for name, source in sources.items()
    ]
    graded = grade_submissions(Run(COURSE, TOPIC, 5), submissions, 1)
    return {result.student: result for result in graded}


@pytest.mark.parametrize("id", FOLLOWS)
def test_what_is_right_given_a_mistake_earns_its_share(results, id: str) -> None:
    items = {item.id: item for item in results[id].items if item.id in FOLLOWING}
    partial = {name for name, item in items.items() if item.status == "partial"}
    assert partial == FOLLOWS[id]
    for name in partial:
        assert items[name].score == pytest.approx(SHARE * TOPIC.rubric[name].points)


@pytest.mark.parametrize("name", DEAD)
def test_what_is_dead_earns_nothing(results, name: str) -> None:
    earned = {item.id for item in results[name].items if item.status == "partial"}
    # the decoder's own state is alive, and so are logits made from it and the steps that chain them
    assert not earned & {"bahdanau.weights", "luong.dot", "luong.general", "luong.concat"}
    assert "decoder.weights" not in earned
