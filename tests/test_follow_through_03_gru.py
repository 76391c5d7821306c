"""Follow-through in the GRU topic: what is right given one's own step earns its share, what agrees
with itself because nothing is computed earns nothing."""

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

COURSE = load_course(Path(__file__).resolve().parents[1])
TOPIC = COURSE.topic("03_gru")
REFERENCE = reference_files(COURSE, TOPIC)["gru.py"]
MISTAKES = {
    mistake.id: mistake.files["gru.py"]
    for mistake in load_mistakes(COURSE, TOPIC, reference_files(COURSE, TOPIC))
    if mistake.file == "gru.py"
}
SHARE = 0.6

STEP = [f"step.backward.{name}" for name in ("db_h", "dW_h", "db", "dW", "dx", "dh_prev")]
FORWARD = ["sequence.forward.h"]
BACKWARD = [f"sequence.backward.{name}" for name in ("dx", "dh0", "dW", "db", "dW_h", "db_h")]
MASK_FORWARD = ["mask.forward.h"]
MASK_BACKWARD = [f"mask.backward.{name}" for name in ("dx", "dh0", "params")]
ROBUST = ["robust.inputs", "robust.dtype", "robust.saturated"]
OF_ITSELF = ["step.caches", "step.accumulate"]
EVERYTHING = {
    *(*STEP, *OF_ITSELF, *FORWARD, *BACKWARD, *MASK_FORWARD, *MASK_BACKWARD, *ROBUST),
    "sequence.accumulate",
    "mask.padding",
}
AFTER = [f"after.backward.{name}" for name in ("dx", "dh_prev", "x_params", "h_params")]

# Put behind the reference, whose gru_forward and gru_backward stay: they are consistent with any cell.
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
    return h_prev * 0.9, x


def backward(self, dh, cache):
    return np.zeros_like(cache), dh * 0.9
""",
        set(),
    ),
    "looks_at_x_alone": (
        """
def forward(self, x, h_prev):
    D = x.shape[1]
    return np.tanh(x @ self.params["W_h"][:D] + self.params["b_h"]), x


def backward(self, dh, cache):
    D = cache.shape[1]
    self.grads["W_h"][:D] += cache.T @ dh
    self.grads["b_h"] += dh.sum(axis=0)
    return dh @ self.params["W_h"][:D].T, np.zeros_like(dh)
""",
        set(),
    ),
    "backward_gives_ones": (
        """
forward = GRUCell.forward


def backward(self, dh, cache):
    self.grads = {name: grad + 1 for name, grad in self.grads.items()}
    return np.ones_like(cache[0][:, : -dh.shape[1]]), np.ones_like(dh)
""",
        {*FORWARD, *MASK_FORWARD, *ROBUST},
    ),
}

# Steps that are alive and wrong, and whose gradients are wrong given them; and steps with exact
# gradients that are nothing like a GRU's: none earns a share of a gradient of one step.
UNFIT_STEPS = {
    "wrong_and_gives_zeros": """
def forward(self, x, h_prev):
    h, cache = right_forward(self, x, h_prev)
    return 2 * h, cache


def backward(self, dh, cache):
    return np.zeros_like(cache[0][:, : -dh.shape[1]]), np.zeros_like(dh)
""",
    "a_little_wrong": """
def forward(self, x, h_prev):
    h, cache = right_forward(self, x, h_prev)
    return 1.01 * h, cache


def backward(self, dh, cache):
    return right_backward(self, 1.0101 * dh, cache)
""",
    "the_same_for_all_samples": """
def alike(a):
    return np.broadcast_to(a.mean(axis=0), a.shape)


def forward(self, x, h_prev):
    return right_forward(self, alike(x), alike(h_prev))


def backward(self, dh, cache):
    return tuple(alike(gradient) for gradient in right_backward(self, dh, cache))
""",
    "linear": """
def forward(self, x, h_prev):
    xh = np.concatenate([x, h_prev], axis=1)
    r, z = np.split(xh @ self.params["W"] + self.params["b"], 2, axis=1)
    return r + 2 * z + xh @ self.params["W_h"] + self.params["b_h"] + h_prev, xh


def backward(self, dh, cache):
    da, D = np.concatenate([dh, 2 * dh], axis=1), cache.shape[1] - dh.shape[1]
    self.grads["W"] += cache.T @ da
    self.grads["b"] += da.sum(axis=0)
    self.grads["W_h"] += cache.T @ dh
    self.grads["b_h"] += dh.sum(axis=0)
    dxh = da @ self.params["W"].T + dh @ self.params["W_h"].T
    return dxh[:, :D], dxh[:, D:] + dh
""",
    "without_gates": """
def forward(self, x, h_prev):
    xh = np.concatenate([x, h_prev], axis=1)
    h = np.tanh(xh @ self.params["W_h"] + self.params["b_h"])
    return h, (xh, h)


def backward(self, dh, cache):
    (xh, h), H = cache, dh.shape[1]
    da = dh * (1 - h**2)
    self.grads["W_h"] += xh.T @ da
    self.grads["b_h"] += da.sum(axis=0)
    dxh = da @ self.params["W_h"].T
    return dxh[:, :-H], dxh[:, -H:]
""",
}

# The same cell with the other sign of z, there and back: right but for that, and so in all that follows.
OTHER_SIGN = {
    "h = (1 - z) * h_prev + z * h_new": "h = z * h_prev + (1 - z) * h_new",
    "da_h = dh * z * (1 - h_new**2)": "da_h = dh * (1 - z) * (1 - h_new**2)",
    "da_z = dh * (h_new - h_prev) * z * (1 - z)": "da_z = dh * (h_prev - h_new) * z * (1 - z)",
    "dh_prev = dh * (1 - z) + drh * r": "dh_prev = dh * z + drh * r",
}
# PyTorch's sign of z exchanged in the other cell, likewise.
AFTER_OTHER_SIGN = {
    "h = (1 - z) * n + z * h_prev": "h = z * n + (1 - z) * h_prev",
    "da_n = dh * (1 - z) * (1 - n**2)": "da_n = dh * z * (1 - n**2)",
    "da_z = dh * (h_prev - n) * z * (1 - z)": "da_z = dh * (n - h_prev) * z * (1 - z)",
    'self.params["W_h"].T + dh * z  # (N, H)': 'self.params["W_h"].T + dh * (1 - z)',
}
# Wrong gradients of the cell, and a wrong step: what each may keep a share of.
EXAMPLES = {
    "reset_gradient_missing": {*BACKWARD, *MASK_BACKWARD},
    "dh_prev_without_the_direct_path": {*BACKWARD, *MASK_BACKWARD},
    "other_sign": {*STEP, *FORWARD, *BACKWARD, *MASK_FORWARD, *MASK_BACKWARD, *ROBUST}
    | {"sequence.accumulate"},
    "after_other_sign": {*AFTER},
}
# What is wrong by itself, with the items that earn no share.
WRONG = {
    "sequence_starts_from_zeros": {*FORWARD, *BACKWARD, *MASK_FORWARD, *MASK_BACKWARD},
    "h_from_next_step_dropped": {*BACKWARD, *MASK_BACKWARD, "mask.padding"},
    "only_the_carried_gradient": {*BACKWARD, *MASK_BACKWARD, "mask.padding"},
    "gradient_stops_at_a_masked_step": {*MASK_BACKWARD, "mask.padding"},
}


def edited(source: str, edits: Mapping[str, str]) -> str:
    for old, new in edits.items():
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


def grade(sources: Mapping[str, str]) -> dict[str, Result]:
    """Each gru.py graded alone: no twin and no answers are handed in."""
    submissions = [
        Submission(
            id=name, files={"gru.py": source}, status="ready", message="", notes=(), digest=""
        )
        for name, source in sources.items()
    ]
    results = grade_submissions(Run(COURSE, TOPIC, seed=3), submissions, workers=1)
    return {result.student: result for result in results}


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    sources = {"reference": REFERENCE}
    sources["other_sign"] = edited(REFERENCE, OTHER_SIGN)
    sources["after_other_sign"] = edited(REFERENCE, AFTER_OTHER_SIGN)
    sources |= {name: MISTAKES[name] for name in (*EXAMPLES, *WRONG) if name in MISTAKES}
    sources["wrong_twice"] = edited(
        sources["other_sign"], {"dh_t = dh[:, t] + dh_next  #": "dh_t = dh[:, t]  #"}
    )
    cells = UNFIT_STEPS | {name: cell for name, (cell, _) in CONSISTENT.items()}
    for name, cell in cells.items():
        take = "\n\nright_forward, right_backward = GRUCell.forward, GRUCell.backward\n\n"
        put = "\n\nGRUCell.forward, GRUCell.backward = forward, backward\n"
        sources[name] = REFERENCE + take + cell + put
    return grade(sources)


def earned(result: Result) -> dict[str, float]:
    return {item.id: item.score or 0.0 for item in result.items}


def with_status(result: Result, status: str) -> set[str]:
    return {item.id for item in result.items if item.status == status}


@pytest.mark.parametrize("name", CONSISTENT)
def test_what_only_agrees_with_itself_earns_nothing(results: dict[str, Result], name: str) -> None:
    right = CONSISTENT[name][1]
    points = earned(results[name])
    assert not {id for id in EVERYTHING - right if points[id]}, name
    assert with_status(results[name], "partial") <= right
    assert not with_status(results[name], "error")


@pytest.mark.parametrize("name", UNFIT_STEPS)
def test_a_step_that_is_no_grus_earns_no_share(results: dict[str, Result], name: str) -> None:
    assert set(STEP) <= with_status(results[name], "failed")
    assert not with_status(results[name], "error")


def test_a_wrong_forward_costs_no_bookkeeping(results: dict[str, Result]) -> None:
    assert {*OF_ITSELF} <= with_status(results["other_sign"], "passed")


def test_the_other_sign_of_z_costs_one_part_of_the_step_forward(results: dict[str, Result]) -> None:
    failed = with_status(results["other_sign"], "failed")
    assert {id for id in failed if id.startswith("step.")} == {"step.update", "step.forward.h"}
    assert {"step.candidate", "step.reset"} <= with_status(results["other_sign"], "passed")


def test_the_reference_needs_no_follow_through(results: dict[str, Result]) -> None:
    points = earned(results["reference"])
    assert not with_status(results["reference"], "partial")
    assert all(points[id] == TOPIC.rubric[id].points for id in (*EVERYTHING, *AFTER))


@pytest.mark.parametrize("name", EXAMPLES)
def test_right_given_a_wrong_step_earns_the_share(results: dict[str, Result], name: str) -> None:
    result, following = results[name], EXAMPLES[name]
    assert with_status(result, "partial") == following
    for item in result.items:
        if item.id in following:
            assert item.score == pytest.approx(SHARE * item.max_score)
            assert item.message.startswith("Right given your own ")


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_sequence_earns_no_share(results: dict[str, Result], name: str) -> None:
    assert WRONG[name] <= with_status(results[name], "failed")


def test_a_wrong_step_does_not_excuse_a_wrong_sequence(results: dict[str, Result]) -> None:
    assert {*BACKWARD, *MASK_BACKWARD} <= with_status(results["wrong_twice"], "failed")
