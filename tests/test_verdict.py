"""Why an item is not passed, from the Traces of real workers, in words."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
from softmark.bench import Bench, GraderFault, isolate
from softmark.course import Course
from softmark.script import Output, Rng, Script, Trace
from softmark.verdict import Answer, Failure, differences

TOPIC = "02_lstm"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hidden grading needs Linux")


@pytest.fixture(scope="module")
def bench(course: Course) -> Iterator[Bench]:
    with Bench(course, course.topic(TOPIC), 1, isolate(course, TOPIC)) as made:
        yield made


def judge(bench: Bench, old: str, new: str, run: Script, *only: str) -> Failure:
    """The verdict on the reference with ``old`` replaced, which must not pass."""
    source = bench.reference_files["lstm.py"]
    assert source.count(old) == 1, old
    assert bench.take({"lstm.py": source.replace(old, new)}) is None
    failure = bench.judge(bench.question(run), only)
    assert failure is not None
    return failure


def steps(bench: Bench, *sizes: tuple[int, int, int]) -> Script:
    """Forward steps first, then their gradients."""
    rng = np.random.default_rng(3)
    run = Script(bench.topic.calls)
    done = []
    for N, D, H in sizes:
        params = {"W": rng.normal(size=(D + H, 4 * H)), "b": rng.normal(size=4 * H)}
        cell = run.new("LSTMCell", D, H, Rng(0), params=params)
        states = [rng.normal(size=(N, n)) for n in (D, H, H)]
        done.append((cell, cell.forward(*states)[2], N, H))
    for cell, cache, N, H in done:
        cell.backward(rng.normal(size=(N, H)), rng.normal(size=(N, H)), cache)
        run.read(cell.grads)
    return run


def test_the_reference_agrees_with_itself(bench: Bench) -> None:
    assert bench.take(bench.reference_files) is None
    assert bench.judge(bench.question(steps(bench, (3, 5, 4))), ()) is None


def test_the_sizes_are_those_of_the_call_that_is_wrong_first(bench: Bench) -> None:
    """N = 1 and H = 3 come first and are right: an average over one sample is its sum."""
    run = steps(bench, (1, 2, 3), (3, 5, 4), (2, 1, 1))
    failure = judge(bench, "+= da.sum(axis=0)", "+= da.mean(axis=0)", run, 'grads["b"]')
    assert failure.message.endswith("Seen with N = 3, D = 5, H = 4.")
    assert any("3 times too small (3 is the size of axis 0" in hint for hint in failure.hints)


def test_what_comes_after_an_output_does_not_cost_it(bench: Bench) -> None:
    """backward ends the process; the forward items keep their points."""
    source = bench.reference_files["lstm.py"]
    run = steps(bench, (3, 5, 4), (2, 4, 3))
    head = "def backward(self, dh, dc, cache):"
    lost = source.replace(head, f'{head}\n        __import__("os")._exit(3)\n', 1)
    assert lost != source
    assert bench.take({"lstm.py": lost}) is None
    question = bench.question(run)
    assert bench.judge(question, ("h", "c")) is None
    failure = bench.judge(question, ("dx",))
    assert failure is not None and failure.cause == "crashed"
    assert "exit code 3" in failure.message


def test_a_reference_that_fails_is_the_grader_s_fault(bench: Bench) -> None:
    run = Script(bench.topic.calls)
    run.call("sigmoid", "not an array")
    with pytest.raises(GraderFault, match="the reference fails"):
        bench.reference(bench.question(run))


def test_an_expected_error_must_be_of_the_same_type(bench: Bench) -> None:
    run = Script(bench.topic.calls)
    run.raises("sigmoid", z="text")
    assert bench.take(bench.reference_files) is None
    assert bench.judge(bench.question(run), ()) is None
    source = bench.reference_files["lstm.py"]
    assert bench.take({"lstm.py": source + "\ndef sigmoid(z):\n    return z\n"}) is None
    failure = bench.judge(bench.question(run), ())
    assert failure is not None and "for z = text and returned instead" in failure.message
    kind = "\ndef sigmoid(z):\n    raise OSError('no')\n"
    assert bench.take({"lstm.py": source + kind}) is None
    failure = bench.judge(bench.question(run), ())
    assert failure is not None and "it raised OSError" in failure.message


def test_time_that_is_used_up_is_said_so(bench: Bench) -> None:
    assert bench.take(bench.reference_files) is None
    question = bench.question(steps(bench, (3, 5, 4)))
    bench.submitted(question).seconds = bench.topic.limits.submission_seconds
    failure = bench.judge(question, ())
    assert failure is not None and failure.cause == "timeout"
    assert "used up" in failure.message


@pytest.fixture(scope="module")
def of_torch(course: Course) -> Iterator[Bench]:
    pytest.importorskip("torch", reason="PyTorch is not installed here")
    topic = "05_multihead"
    with Bench(course, course.topic(topic), 1, isolate(course, topic)) as made:
        yield made


@pytest.mark.parametrize(
    ("line", "told", "hint"),
    [
        ("q *= 2", "scaled_dot_product_attention raised RuntimeError: a leaf", "that was given"),
        ("q[q > 0] = 0", "scaled_dot_product_attention raised RuntimeError", "that was given"),
        (
            "w *= 2",
            "Autograd, on the way back, raised RuntimeError: one of the",
            "was changed after",
        ),
        ("w[w > 0] = 0", "Autograd, on the way back, raised RuntimeError", "was changed after"),
        ("q @ q", "scaled_dot_product_attention raised RuntimeError", ""),
    ],
)
def test_what_autograd_says_of_changes_in_place_is_explained(of_torch, line, told, hint) -> None:
    source = (
        f"{of_torch.reference_files['multihead.py']}\n\n"
        "def scaled_dot_product_attention(q, k, v, mask=None):\n"
        "    w = torch.softmax(q @ k.transpose(-2, -1), dim=-1)\n"
        f"    {line}\n    return w @ v, w\n"
    )
    assert of_torch.take({"multihead.py": source}) is None
    run, rng = Script(of_torch.topic.calls), np.random.default_rng(1)
    q, k, v = (run.tensor(name, rng.normal(size=(3, 4))) for name in "qkv")
    out, _ = run.call("scaled_dot_product_attention", q, k, v)
    run.backward((out, rng.normal(size=(3, 4))))
    run.gradient(q)
    failure = of_torch.student(of_torch.question(run))
    assert isinstance(failure, Failure) and failure.message.startswith(told)
    assert "anomaly" not in failure.message
    assert [hint in said for said in failure.hints] == ([True] if hint else [])


def test_a_dict_without_declared_entries_is_compared_whole() -> None:
    script = Script({"f": (Output("g", "dict"),)})
    handle = script.call("f")
    right = {"W": np.ones(3), "b": np.zeros(2)}
    answer = Answer(script, Trace({handle.number: right}))
    assert differences(answer, Trace({handle.number: dict(right)}), (), "") is None
    for wrong in ({}, {"W": np.ones(3)}, {**right, "b": np.ones(2)}, {**right, "c": np.ones(1)}):
        assert differences(answer, Trace({handle.number: wrong}), (), "") is not None, wrong
