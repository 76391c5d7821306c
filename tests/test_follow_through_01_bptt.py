"""Follow-through in the BPTT topic: what is right given one's own earlier parts earns its share, what
agrees with itself because nothing is computed earns nothing. And what a long sequence may cost."""

from __future__ import annotations

import sys
from collections.abc import Mapping
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

ROOT = Path(__file__).resolve().parents[1]
SHARE = 0.6

STEP = {f"step.backward.{name}" for name in ("db_h", "dx", "dh_prev", "dW_xh", "dW_hh")}
FORWARD = {"sequence.forward.h"}
BACKWARD = {f"sequence.backward.{name}" for name in ("dx", "dh0", "dW_xh", "dW_hh", "db_h")}
MASK_FORWARD = {"mask.forward.h"}
MASK_BACKWARD = {f"mask.backward.{name}" for name in ("dx", "dh0", "params")}
WINDOWS = {f"truncated.{name}" for name in ("dx", "dh0", "params")}
LM_FORWARD = {"lm.loss", "lm.output"}
LM_BACKWARD = {"lm.cell", "lm.embedding"}
AFTERWARDS = {"sequence.accumulate", "robust.inputs", "robust.dtype"}
ALL_FORWARD = FORWARD | MASK_FORWARD | LM_FORWARD
ALL_BACKWARD = BACKWARD | MASK_BACKWARD | WINDOWS | LM_BACKWARD
EVERYTHING = STEP | ALL_FORWARD | ALL_BACKWARD | AFTERWARDS | {"step.caches", "step.accumulate"}

# Cells put behind the reference, whose rnn_forward and rnn_backward stay: they are consistent with any.
# With each: the items that it may earn all the same.
CONSISTENT: dict[str, tuple[str, set[str]]] = {
    "zeros": (
        """
def forward(self, x, h_prev):
    return np.zeros_like(h_prev), x


def backward(self, dh, cache):
    return np.zeros_like(cache), np.zeros_like(dh)
""",
        set(),
    ),
    "constants": (
        """
def forward(self, x, h_prev):
    return np.full_like(h_prev, 0.5), x


def backward(self, dh, cache):
    self.grads = {name: grad + 1 for name, grad in self.grads.items()}
    return np.ones_like(cache), np.ones_like(dh)
""",
        set(),
    ),
    "hands_the_state_on": (
        """
def forward(self, x, h_prev):
    return 0.9 * h_prev, x


def backward(self, dh, cache):
    return np.zeros_like(cache), 0.9 * dh
""",
        set(),
    ),
    "backward_gives_zeros": (
        """
forward = RNNCell.forward


def backward(self, dh, cache):
    return np.zeros_like(cache[0]), np.zeros_like(dh)
""",
        ALL_FORWARD | {"robust.inputs", "robust.dtype"},
    ),
}
# Steps that are alive and wrong with gradients that are wrong given them, and a linear one.
UNFIT_STEPS = {
    "a_little_wrong": """
def forward(self, x, h_prev):
    h, cache = right_forward(self, x, h_prev)
    return 1.01 * h, cache


def backward(self, dh, cache):
    return right_backward(self, 1.0101 * dh, cache)
""",
    "linear": """
def forward(self, x, h_prev):
    a = x @ self.params["W_xh"] + h_prev @ self.params["W_hh"] + self.params["b_h"]
    return a, (x, h_prev, 0 * a)


backward = RNNCell.backward
""",
}
# What each wrong step may keep a share of.
EXAMPLES = {
    "slope_without_the_square": ALL_BACKWARD,
    "dW_hh_from_the_new_state": {
        *("sequence.backward.dW_hh", "lm.cell", "mask.backward.params", "truncated.params")
    },
    # dh_prev and dW_hh stay where they were, which is wrong given such a forward too
    "W_hh_transposed_forward": ALL_FORWARD
    | ALL_BACKWARD
    | AFTERWARDS
    | {"step.backward.db_h", "step.backward.dx", "step.backward.dW_xh"},
    "mean_over_padding_too": LM_FORWARD | LM_BACKWARD,
}
# What is wrong by itself, with items that earn no share.
WRONG = {
    "sequence_starts_from_zeros": FORWARD | BACKWARD | MASK_FORWARD | MASK_BACKWARD,
    "h_from_next_step_dropped": BACKWARD | MASK_BACKWARD,
    "gradient_stops_at_a_masked_step": MASK_BACKWARD,
    "windows_from_the_end": WINDOWS,
    "predicts_its_own_input": LM_FORWARD | LM_BACKWARD,
}
ANEW = """

def jacobian_norms(h, W_hh):
    return np.array([np.linalg.norm(hidden_jacobian(h, W_hh, k, len(h) - 1), 2) for k in range(len(h))])
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Result]:
    """Each bptt.py graded alone: no twin and no answers are handed in."""
    folder = tmp_path_factory.mktemp("course")
    for name in ("assignments", "solutions", "autograder"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "course.yaml").write_text("title: Test\ntopics:\n  - id: 01_bptt\n", "utf-8")
    course = load_course(folder)
    topic = course.topic("01_bptt")
    files = reference_files(course, topic)
    mistakes = {m.id: m.files["bptt.py"] for m in load_mistakes(course, topic, files)}
    reference = files["bptt.py"]
    sources = {"reference": reference, "norms_anew": reference + ANEW}
    sources |= {name: mistakes[name] for name in (*EXAMPLES, *WRONG)}
    twice = mistakes["slope_without_the_square"]
    sources["wrong_twice"] = twice.replace("dh[:, t] + dh_next", "dh[:, t]")
    assert sources["wrong_twice"] != twice
    for name, cell in (
        UNFIT_STEPS | {name: cell for name, (cell, _) in CONSISTENT.items()}
    ).items():
        take = "\n\nright_forward, right_backward = RNNCell.forward, RNNCell.backward\n\n"
        put = "\n\nRNNCell.forward, RNNCell.backward = forward, backward\n"
        sources[name] = reference + take + cell + put
    submissions = [
        Submission(name, {"bptt.py": source}, "ready", "", (), "")
        for name, source in sources.items()
    ]
    graded = grade_submissions(Run(course, topic, seed=3), submissions, workers=1)
    return {result.student: result for result in graded}


def with_status(result: Result, status: str) -> set[str]:
    return {item.id for item in result.items if item.status == status}


def test_the_reference_needs_no_follow_through(results: Mapping[str, Result]) -> None:
    assert not with_status(results["reference"], "partial")
    assert with_status(results["reference"], "passed") >= EVERYTHING


@pytest.mark.parametrize("name", CONSISTENT)
def test_what_only_agrees_with_itself_earns_nothing(
    results: Mapping[str, Result], name: str
) -> None:
    right = CONSISTENT[name][1]
    earned = {item.id for item in results[name].items if item.score}
    assert earned & EVERYTHING <= right
    assert with_status(results[name], "partial") <= right
    assert not with_status(results[name], "error")


@pytest.mark.parametrize("name", UNFIT_STEPS)
def test_a_step_that_is_no_rnns_earns_no_share(results: Mapping[str, Result], name: str) -> None:
    assert with_status(results[name], "failed") >= STEP
    assert not with_status(results[name], "error")


@pytest.mark.parametrize("name", EXAMPLES)
def test_right_given_a_wrong_part_earns_the_share(results: Mapping[str, Result], name: str) -> None:
    assert with_status(results[name], "partial") == EXAMPLES[name]
    for item in results[name].items:
        if item.id in EXAMPLES[name]:
            assert item.score == pytest.approx(SHARE * item.max_score)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_by_itself_earns_no_share(results: Mapping[str, Result], name: str) -> None:
    assert WRONG[name] <= with_status(results[name], "failed")


def test_a_wrong_step_does_not_excuse_a_wrong_sequence(results: Mapping[str, Result]) -> None:
    assert with_status(results["wrong_twice"], "failed") >= BACKWARD | MASK_BACKWARD


def test_all_norms_have_to_come_from_as_many_products_as_there_are_steps(
    results: Mapping[str, Result],
) -> None:
    found = results["norms_anew"]
    lost = {i.id for i in found.items if i.status not in ("passed", "not_graded")}
    assert "jacobian.cost" in lost
    assert not lost & {"jacobian.norms", "jacobian.values", "jacobian.errors", *EVERYTHING}
