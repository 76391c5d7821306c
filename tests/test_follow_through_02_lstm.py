"""Follow-through in the LSTM topic: what is right given one's own step earns its share, what agrees
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

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hidden grading needs Linux")

COURSE = load_course(Path(__file__).resolve().parents[1])
TOPIC = COURSE.topic("02_lstm")
REFERENCE = reference_files(COURSE, TOPIC)["lstm.py"]
MISTAKES = {
    mistake.id: mistake.files["lstm.py"]
    for mistake in load_mistakes(COURSE, TOPIC, reference_files(COURSE, TOPIC))
    if mistake.file == "lstm.py"
}
SHARE = 0.6

STEP = [f"step.backward.{name}" for name in ("dc_prev", "db", "dW", "dx", "dh_prev")]
FORWARD = ["sequence.forward.h", "sequence.forward.c_last"]
BACKWARD = [f"sequence.backward.{name}" for name in ("dx", "dh0", "dc0", "dW", "db")]
MASK_FORWARD = ["mask.forward.h", "mask.forward.c_last"]
MASK_BACKWARD = [f"mask.backward.{name}" for name in ("dx", "state", "params")]
AFTERWARDS = ["sequence.accumulate", "robust.inputs", "robust.dtype", "robust.saturated"]
OF_ITSELF = ["step.caches", "step.accumulate"]
EVERYTHING = {
    *STEP,
    *OF_ITSELF,
    *FORWARD,
    *BACKWARD,
    *MASK_FORWARD,
    *MASK_BACKWARD,
    *AFTERWARDS,
    "mask.padding",
}

# Put behind the reference, whose lstm_forward and lstm_backward stay: they are consistent with any cell.
# With each: the items that it may earn all the same.
CONSISTENT: dict[str, tuple[str, set[str]]] = {
    "zeros": (
        """
def forward(self, x, h_prev, c_prev):
    return np.zeros_like(h_prev), np.zeros_like(c_prev), (x, h_prev)


def backward(self, dh, dc, cache):
    x, h_prev = cache
    return np.zeros_like(x), np.zeros_like(dh), np.zeros_like(dc)
""",
        set(),
    ),
    "constants": (
        """
def forward(self, x, h_prev, c_prev):
    return np.full_like(h_prev, 0.5), np.full_like(c_prev, 2), (x, h_prev)


def backward(self, dh, dc, cache):
    x, h_prev = cache
    self.grads = {name: grad + 1 for name, grad in self.grads.items()}
    return np.ones_like(x), np.ones_like(dh), np.ones_like(dc)
""",
        set(),
    ),
    "hands_the_state_on": (
        """
def forward(self, x, h_prev, c_prev):
    return h_prev * 0.9, c_prev * 0.8, x


def backward(self, dh, dc, cache):
    return np.zeros_like(cache), dh * 0.9, dc * 0.8
""",
        set(),
    ),
    "looks_at_x_alone": (
        """
def forward(self, x, h_prev, c_prev):
    H = h_prev.shape[1]
    a = x @ self.params["W"][: x.shape[1]] + self.params["b"]
    return np.tanh(a[:, :H]), np.tanh(a[:, H : 2 * H]), x


def backward(self, dh, dc, cache):
    da = np.concatenate([dh, dc, np.zeros_like(dh), np.zeros_like(dc)], axis=1)
    dx = da @ self.params["W"][: cache.shape[1]].T
    self.grads["W"][: cache.shape[1]] += cache.T @ da
    self.grads["b"] += da.sum(axis=0)
    return dx, np.zeros_like(dh), np.zeros_like(dc)
""",
        set(),
    ),
    "backward_gives_zeros": (
        """
forward = LSTMCell.forward


def backward(self, dh, dc, cache):
    return np.zeros_like(cache[0][:, : -dh.shape[1]]), np.zeros_like(dh), np.zeros_like(dc)
""",
        {*FORWARD, *MASK_FORWARD, "robust.inputs", "robust.dtype", "robust.saturated"},
    ),
    "backward_gives_ones": (
        """
forward = LSTMCell.forward


def backward(self, dh, dc, cache):
    self.grads = {name: grad + 1 for name, grad in self.grads.items()}
    return np.ones_like(cache[0][:, : -dh.shape[1]]), np.ones_like(dh), np.ones_like(dc)
""",
        {*FORWARD, *MASK_FORWARD, "robust.inputs", "robust.dtype", "robust.saturated"},
    ),
    "backward_ignores_its_cache": (
        """
forward = LSTMCell.forward


def backward(self, dh, dc, cache):
    D = cache[0].shape[1] - dh.shape[1]
    da = np.concatenate([dc, dc, dc, dh], axis=1)
    self.grads["b"] += da.sum(axis=0)
    self.grads["W"] += da.sum(axis=0)
    dxh = da @ self.params["W"].T
    return dxh[:, :D], dxh[:, D:], dc / 2
""",
        {*FORWARD, *MASK_FORWARD, "robust.inputs", "robust.dtype", "robust.saturated"}
        | {"sequence.accumulate"},
    ),
}


# Steps that are alive and wrong, and whose gradients are wrong given them; and steps with exact
# gradients that are nothing like an LSTM's: none earns a share of a gradient of one step.
UNFIT_STEPS = {
    "wrong_and_gives_zeros": """
def forward(self, x, h_prev, c_prev):
    h, c, cache = right_forward(self, x, h_prev, c_prev)
    return 2 * h, c, cache


def backward(self, dh, dc, cache):
    return np.zeros_like(cache[0][:, : -dh.shape[1]]), np.zeros_like(dh), np.zeros_like(dc)
""",
    "a_little_wrong": """
def forward(self, x, h_prev, c_prev):
    h, c, cache = right_forward(self, x, h_prev, c_prev)
    return 1.01 * h, c, cache


def backward(self, dh, dc, cache):
    return right_backward(self, 1.0101 * dh, dc, cache)
""",
    "the_same_for_all_samples": """
def alike(a):
    return np.broadcast_to(a.mean(axis=0), a.shape)


def forward(self, x, h_prev, c_prev):
    return right_forward(self, alike(x), alike(h_prev), alike(c_prev))


def backward(self, dh, dc, cache):
    return tuple(alike(gradient) for gradient in right_backward(self, dh, dc, cache))
""",
    "linear": """
def forward(self, x, h_prev, c_prev):
    a = x @ self.params["W"][: x.shape[1]] + h_prev @ self.params["W"][x.shape[1] :]
    f, i, g, o = np.split(a + self.params["b"], 4, axis=1)
    return f + i + h_prev, g + o + c_prev, np.concatenate([x, h_prev], axis=1)


def backward(self, dh, dc, cache):
    da, D = np.concatenate([dh, dh, dc, dc], axis=1), cache.shape[1] - dh.shape[1]
    self.grads["W"] += cache.T @ da
    self.grads["b"] += da.sum(axis=0)
    dxh = da @ self.params["W"].T
    return dxh[:, :D], dxh[:, D:] + dh, dc
""",
    "without_gates": """
def forward(self, x, h_prev, c_prev):
    H, xh = h_prev.shape[1], np.concatenate([x, h_prev], axis=1)
    h = np.tanh(xh @ self.params["W"][:, :H] + self.params["b"][:H] + c_prev)
    return h, h + c_prev, (xh, h)


def backward(self, dh, dc, cache):
    (xh, h), H = cache, dh.shape[1]
    da = (dh + dc) * (1 - h**2)
    self.grads["W"][:, :H] += xh.T @ da
    self.grads["b"][:H] += da.sum(axis=0)
    dxh = da @ self.params["W"][:, :H].T
    return dxh[:, :-H], dxh[:, -H:], da + dc
""",
}


# A wrong gradient of the cell, another one, and wrong steps forward: what each may keep a share of.
EXAMPLES = {
    "dc_from_next_step_dropped": {*BACKWARD, *MASK_BACKWARD},
    "output_gate_gets_c": {*BACKWARD, *MASK_BACKWARD},
    # dx and dh_prev stay where they were, which is wrong given such a forward too
    "h_before_x": {*STEP[:3], *FORWARD, *BACKWARD, *MASK_FORWARD, *MASK_BACKWARD, *AFTERWARDS},
    "forget_bias_in_every_forward": {
        *(*STEP, *FORWARD, *BACKWARD, *MASK_FORWARD, *MASK_BACKWARD, *AFTERWARDS)
    },
}
# What is wrong by itself, with the items that earn no share.
WRONG = {
    "sequence_starts_from_zeros": {*FORWARD, *BACKWARD, *MASK_FORWARD, *MASK_BACKWARD},
    "h_from_next_step_dropped": {*BACKWARD, *MASK_BACKWARD, "mask.padding"},
    "only_the_carried_gradient": {*BACKWARD, *MASK_BACKWARD, "mask.padding"},
    "dc_last_ignored": {*BACKWARD, *MASK_BACKWARD},
    "gradient_stops_at_a_masked_step": {*MASK_BACKWARD, "mask.padding"},
}


def grade(sources: Mapping[str, str]) -> dict[str, Result]:
    """Each lstm.py graded alone: no twin and no answers are handed in."""
    submissions = [
        Submission(
            id=name, files={"lstm.py": source}, status="ready", message="", notes=(), digest=""
        )
        for name, source in sources.items()
    ]
    results = grade_submissions(Run(COURSE, TOPIC, seed=3), submissions, workers=1)
    return {result.student: result for result in results}


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    sources = {"reference": REFERENCE}
    sources |= {name: MISTAKES[name] for name in (*EXAMPLES, *WRONG, "h_without_tanh")}
    sources["wrong_twice"] = MISTAKES["output_gate_gets_c"].replace(
        "dh[:, t] + dh_next", "dh[:, t]"
    )
    assert sources["wrong_twice"] != MISTAKES["output_gate_gets_c"]
    cells = UNFIT_STEPS | {name: cell for name, (cell, _) in CONSISTENT.items()}
    for name, cell in cells.items():
        take = "\n\nright_forward, right_backward = LSTMCell.forward, LSTMCell.backward\n\n"
        put = "\n\nLSTMCell.forward, LSTMCell.backward = forward, backward\n"
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
def test_a_step_that_is_no_lstms_earns_no_share(results: dict[str, Result], name: str) -> None:
    assert set(STEP) <= with_status(results[name], "failed")
    assert not with_status(results[name], "error")


@pytest.mark.parametrize("name", ["h_before_x", "h_without_tanh"])
def test_a_wrong_forward_costs_no_bookkeeping(results: dict[str, Result], name: str) -> None:
    assert {*OF_ITSELF} <= with_status(results[name], "passed")


def test_the_reference_needs_no_follow_through(results: dict[str, Result]) -> None:
    points = earned(results["reference"])
    assert not with_status(results["reference"], "partial")
    assert all(points[id] == TOPIC.rubric[id].points for id in EVERYTHING)


@pytest.mark.parametrize("name", EXAMPLES)
def test_right_given_a_wrong_step_earns_the_share(results: dict[str, Result], name: str) -> None:
    result, following = results[name], EXAMPLES[name]
    assert with_status(result, "partial") == following
    for item in result.items:
        if item.id in following:
            assert item.score == pytest.approx(SHARE * item.max_score)
            assert "Right given your own step." in item.message


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_sequence_earns_no_share(results: dict[str, Result], name: str) -> None:
    assert WRONG[name] <= with_status(results[name], "failed")


def test_a_wrong_step_does_not_excuse_a_wrong_sequence(results: dict[str, Result]) -> None:
    assert {*BACKWARD, *MASK_BACKWARD} <= with_status(results["wrong_twice"], "failed")
