"""Where a submission meets the reference: both in workers of one zygote, on the same Scripts.

The reference answers each Script once: its Traces are kept for every later submission.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from softmark.course import Course, Topic
from softmark.implementation import Implementation, Question
from softmark.isolation.host import Caps, Zygote
from softmark.isolation.tiers import Level, reach
from softmark.isolation.wire import pack_script
from softmark.script import Raised, Script, Trace
from softmark.verdict import Answer, Failure, describe, differences, misshapen, stopped


class GraderFault(Exception):
    """The grader is wrong, not the submission; the message is for the instructor."""


class Bench:
    """One zygote, the reference on it, and the submission of the moment. A context manager."""

    def __init__(self, course: Course, topic: Topic, seed: int, level: Level) -> None:
        """Start the zygote. Raises GraderFault where the reference is missing."""
        from softmark.isolation import sandbox  # Linux alone has what it loads

        sandbox.undumpable()  # answers live here: no other process of this user may look in
        if topic.worker != "numpy":
            raise GraderFault(f"worker: {topic.worker} cannot be graded yet; only numpy can")
        self.course, self.topic, self.seed, self.level = course, topic, seed, level
        limits = topic.limits
        caps = Caps(limits.submission_seconds, limits.memory_mb, limits.output_kb)
        self.reference_files = reference_files(course, topic)
        self._zygote = Zygote(level.layers, ["numpy"], caps, level.seccomp)
        self._reference = self._implementation(self.reference_files)
        self._submission: Implementation | None = None
        self._answers: dict[bytes, Answer] = {}
        self._shapes: dict[tuple[str, str, str], Mapping[str, tuple[int, ...]]] = {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.release()
        self._reference.close()
        self._zygote.close()

    def _implementation(self, files: Mapping[str, str]) -> Implementation:
        return Implementation(self._zygote, files, self.topic.module, self.topic.limits)

    # ---- the submission of the moment

    @property
    def submission(self) -> Implementation:
        assert self._submission is not None
        return self._submission

    def take(self, files: Mapping[str, str]) -> Failure | None:
        """Make ``files`` the submission; what is wrong with importing it, if anything is."""
        self.release()
        self._submission = self._implementation(files)
        problem = self._submission.load()
        if problem is None:
            return None
        main = self.topic.files[0]
        if isinstance(problem, Raised):
            said = describe(problem, "it").removeprefix("it raised ")
            return Failure(f"{main} cannot be imported: {said}", cause="error")
        if problem.cause == "timeout":
            return Failure(
                f"importing {main} did not end. Is there a loop at the top level?", (), "timeout"
            )
        return Failure(
            f"importing {main} stopped the grading process: {self._submission.ending}.",
            (),
            "crashed",
        )

    def release(self) -> None:
        """Let go of the submission and its worker."""
        if self._submission is not None:
            self._submission.close()
            self._submission = None

    # ---- what graders ask

    def question(self, script: Script) -> Question:
        """A Script ready to be asked, any number of times."""
        packed = pack_script(script)
        return Question(script, packed, hashlib.sha256(packed).digest())

    def reference(self, question: Question) -> Trace:
        """The reference's Trace. Raises GraderFault where the reference itself fails."""
        return self._answer(question).trace

    def _answer(self, question: Question) -> Answer:
        if question.digest not in self._answers:
            self._answers[question.digest] = Answer(question.script, self._ask_reference(question))
        return self._answers[question.digest]

    def _ask_reference(self, question: Question) -> Trace:
        trace = self._reference.trace(question, self.topic.limits.submission_seconds)
        self._reference.seconds = 0.0
        if trace.cause is not None:  # not the answer to remember: the next Script starts afresh
            self._reference.close()
            self._reference = self._implementation(self.reference_files)
        _check_reference(question.script, trace)
        return trace

    def student(self, question: Question) -> Trace | Failure:
        """The submission's Trace, or why it is not of the reference's form: it stopped before, or an
        output has another type, shape or dtype. Values are not compared."""
        answer, actual = self._both(question)
        script, expected, ending = answer.script, answer.trace, self.submission.ending
        return (
            stopped(script, expected, actual, ending)
            or misshapen(script, expected, actual)
            or actual
        )

    def judge(self, question: Question, only: Sequence[str]) -> Failure | None:
        """Compare the submission's outputs (those named in ``only``, or all) with the reference's.

        Where the submission's process was lost on the way, it is asked again for no more than the
        outputs in ``only`` need: what comes after them is another item's.
        """
        answer, actual = self._both(question)
        if actual.cause is not None and only:
            part = question.script.until(only)
            if len(part.steps) < len(question.script.steps):
                question = self.question(part)
                answer, actual = self._both(question)
        return differences(answer, actual, only, self.submission.ending)

    def _both(self, question: Question) -> tuple[Answer, Trace]:
        """The reference's answer and the submission's Trace."""
        answer, limits = self._answer(question), self.topic.limits
        limit = max(limits.call_seconds, limits.call_factor * answer.trace.seconds)
        return answer, self.submission.trace(question, limit)

    def parameter_shapes(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Mapping[str, tuple[int, ...]]:
        """Names and shapes of the parameters of the reference's ``name(*args, **kwargs)``."""
        key = (name, repr(args), repr(kwargs))
        if key not in self._shapes:
            script = Script(self.topic.calls)
            read = script.read(script.new(name, *args, **kwargs).params)
            params = self.reference(self.question(script))[read]
            self._shapes[key] = {name: np.shape(value) for name, value in params.items()}
        return self._shapes[key]


def _check_reference(script: Script, trace: Trace) -> None:
    if trace.cause is not None:
        raise GraderFault(f"the reference did not answer: {trace.cause}")
    announced = script.steps[-1].raises if script.steps else False
    if trace.raised is not None and not (announced and trace.raised.step == len(script.steps) - 1):
        raise GraderFault("the reference fails: " + describe(trace.raised, "it"))
    if announced and trace.raised is None:
        raise GraderFault(f"the reference does not raise in {script.steps[-1].name}")


def isolate(course: Course, topic_id: str, least: str | None = None) -> Level:
    """The isolation to grade a topic with, which keeps its private folders out of sight.

    Raises IsolationRefused below ``least``.
    """
    return reach(least, secret=[course.solution(topic_id), course.graders(topic_id)])


def reference_files(course: Course, topic: Topic) -> Mapping[str, str]:
    """The reference solution. Raises GraderFault where a file of it is missing."""
    folder = course.solution(topic.id)
    try:
        return {name: (folder / name).read_text(encoding="utf-8") for name in topic.files}
    except OSError as error:
        raise GraderFault(f"no reference solution: {error.filename}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise GraderFault(f"the reference solution in {folder} is not UTF-8: {error}") from None


@cache
def versions() -> Mapping[str, str]:
    """What graded, for the record."""
    from importlib import metadata

    numbers = {name: metadata.version(name) for name in ("softmark", "numpy")}
    return {"python": sys.version.split()[0], **numbers}
