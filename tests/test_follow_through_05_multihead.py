"""Follow-through in the multi-head topic: what is right given one's own mistake earns its share, what
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
    pytest.mark.slow,  # a quarter of a minute
]
pytest.importorskip("torch", reason="PyTorch is not installed here")

ID = "05_multihead"
COURSE = load_course(Path(__file__).resolve().parents[1])
if ID not in [topic.id for topic in COURSE.topics]:
    pytest.skip(f"{ID} is not in course.yaml", allow_module_level=True)
TOPIC = COURSE.topic(ID)
FILES = reference_files(COURSE, TOPIC)
REFERENCE = FILES["multihead.py"]
MISTAKES = {m.id: m.files["multihead.py"] for m in load_mistakes(COURSE, TOPIC, FILES)}
SHARE = 0.6
FOLLOWING = [id for id, item in TOPIC.rubric.items() if item.follow_through]

# Put behind the reference. Nothing that follows may earn its share from it.
ATTENTION = "def scaled_dot_product_attention(q, k, v, mask=None):\n    "
BACKWARD = "def attention_backward(dout, q, k, v, mask=None):\n    "
ZEROS = "return 0 * q[..., :1] * v[..., :1, :], 0 * q @ k.transpose(-2, -1)\n"
DEAD = {
    "zeros": ATTENTION + ZEROS,
    "zeros, and so are the gradients": (
        f"{ATTENTION}{ZEROS}\n\n{BACKWARD}return 0 * q, 0 * k, 0 * v\n"
    ),
    "not a number": ATTENTION + "return q / 0 * v[..., :1, :1], q @ k.transpose(-2, -1) / 0 * 0\n",
}
VALUES = {"mha.self", "mha.cross", "latent.out"}
MASKED = {"mha.ragged", "mha.causal"}
# With each mistake: what earns the share all the same.
FOLLOWS = {
    "softmax_over_queries": {"backward.dv", *VALUES, *MASKED},
    "not_scaled": {"backward.dv", *VALUES},
    "split_interleaved": VALUES,
    "merge_interleaved": VALUES,
    "out_averaged": VALUES | {"mha.ragged"},
    "mask_after_the_softmax": MASKED | {"latent.out"},
    "mask_inverted": MASKED | {"latent.out"},
    "mask_not_handed_on": set(),
    "residual_added": set(),
    "scale_forgotten_in_dk": set(),
}


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    sources = {id: MISTAKES[id] for id in FOLLOWS}
    sources |= {name: f"{REFERENCE}\n\n{source}" for name, source in DEAD.items()}
    # a scale that is missing on both ways: the gradients are right for that forward
    sources["not scaled either way"] = MISTAKES["not_scaled"].replace(
        "(dweights - along) / math.sqrt(q.shape[-1])", "(dweights - along)"
    )
    submissions = [
        Submission(name, {"multihead.py": source}, "ready", "", (), "")
        for name, source in sources.items()
    ]
    graded = grade_submissions(Run(COURSE, TOPIC, 5), submissions, 1)
    return {result.student: result for result in graded}


def partial(result: Result) -> dict[str, float]:
    return {item.id: item.score for item in result.items if item.status == "partial"}


@pytest.mark.parametrize("id", FOLLOWS)
def test_what_is_right_given_a_mistake_earns_its_share(results, id: str) -> None:
    found = partial(results[id])
    assert set(found) == FOLLOWS[id]
    for name, score in found.items():
        assert score == pytest.approx(SHARE * TOPIC.rubric[name].points)


def test_gradients_of_an_own_forward_earn_their_share(results) -> None:
    assert set(partial(results["not scaled either way"])) == set(FOLLOWING) - MASKED


@pytest.mark.parametrize("name", DEAD)
def test_what_is_dead_earns_nothing(results, name: str) -> None:
    assert not partial(results[name])
