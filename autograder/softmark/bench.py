"""Where a submission meets the reference: both in workers of one zygote, on the same Scripts.

The reference answers each Script once: its Traces are kept for every later submission.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from softmark import gpu
from softmark.clock import Clock
from softmark.course import Course, Topic
from softmark.implementation import Implementation, Question
from softmark.isolation.host import Caps, Zygote, ZygoteFailed
from softmark.isolation.tiers import Level, reach
from softmark.isolation.wire import pack_script
from softmark.script import Raised, Script, Trace
from softmark.timing import Bound, Budget, Maker, Stopped, Verdict, compare_with_itself, judge
from softmark.verdict import Answer, Failure, describe, differences, misshapen, stopped

CUDA_MB = 4096
"""What CUDA may have in use of the machine's own memory, beside a submission's share. It takes half a
GB, or 2 where all of PyTorch's kernels are loaded at once."""
_ROOM = 1 << 20  # bytes that any answer may take
_NO_DEVICE = "Measured on a GPU only: softmark grade --device cuda, on a machine that has one."
_TRIES = 3  # for times that could not be told
_NO_TORCH = "PyTorch is not installed here: pip install 'softmark[torch]', then grade again"


class GraderFault(Exception):
    """The grader is wrong, not the submission; the message is for the instructor."""


class NotGraded(Exception):
    """What is asked cannot be measured on this machine; the message says why."""


class Bench:
    """Zygotes, the reference on them, and the submission of the moment. A context manager."""

    def __init__(
        self,
        course: Course,
        topic: Topic,
        seed: int,
        level: Level,
        device: str | None = None,
    ) -> None:
        """Start the topic's zygote. ``device`` is where times are taken, None for nowhere.

        Raises GraderFault where the reference or PyTorch is missing.
        """
        from softmark.isolation import sandbox  # Linux alone has what it loads

        sandbox.undumpable()  # answers live here: no other process of this user may look in
        if topic.worker == "torch" and not has_torch():
            raise GraderFault(f"{topic.id}: {_NO_TORCH}")
        self.course, self.topic, self.seed, self.level = course, topic, seed, level
        self.device = device
        self._clocks: dict[bytes, _Calibrated] = {}
        self.reference_files = reference_files(course, topic)
        self._zygotes: dict[str, Zygote] = {topic.worker: self._start(topic.worker)}
        self._reference: dict[bool, Implementation] = {}
        self._submission: dict[bool, Implementation] = {}
        self._twin_failure: Failure | None = None
        self._twin_source: str | None = None
        self._answers: dict[bytes, Answer] = {}
        self.questions: list[Question] = []
        """All that the reference has answered."""
        self._shapes: dict[tuple[str, str, str], Mapping[str, tuple[int, ...]]] = {}
        self.asked: list[tuple[Question, tuple[str, ...]]] = []
        """What was compared since the list was last cleared: the question, and which outputs."""
        self.measured: dict[str, float] = {}
        """What the test of the moment measured, as multiples of the reference's."""
        self.haste = 1.0
        """By what the least time of a call is divided."""
        self.brief = False
        """Whether it is enough to know that an output differs: nobody is going to be told how."""

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.release()
        for implementation in self._reference.values():
            implementation.close()
        for zygote in self._zygotes.values():
            zygote.close()

    def _start(self, kind: str) -> Zygote:
        limits, level = self.topic.limits, self.level
        caps = Caps(limits.submission_seconds, limits.memory_mb, limits.output_kb)
        distributions = ["numpy"] if kind == "numpy" else ["numpy", "torch"]
        if kind != "numpy":
            distributions += self.topic.packages
        if kind != "cuda":
            return Zygote(level.layers, distributions, caps, level.seccomp)
        from softmark.isolation.seccomp import build_filter  # Linux alone has what it loads

        # CUDA maps more than there is: what is in use is watched in place of the address space
        caps = replace(caps, resident_mb=limits.memory_mb + CUDA_MB)
        seccomp = build_filter(cuda=True) if level.seccomp else b""
        return Zygote([*level.layers, "proc", "cuda"], distributions, caps, seccomp)

    def implementation(self, files: Mapping[str, str], twin: bool = False) -> Implementation:
        """These files on the zygote they need: the PyTorch twin alone, or all but it."""
        topic = self.topic
        if not twin:
            own = [name for name in topic.files if not topic.twin or name != topic.twin.file]
            kept = {name: files[name] for name in own if name in files}
            # in NumPy nothing forbidden is there to be called
            forbid = tuple(topic.policy.forbid) if topic.worker == "torch" else ()
            return Implementation(
                self._zygotes[topic.worker],
                kept,
                topic.files[0],
                topic.limits,
                forbid,
                topic.given,
            )
        assert topic.twin is not None
        if "torch" not in self._zygotes:
            self._zygotes["torch"] = self._start("torch")
        file, forbid = topic.twin.file, tuple(topic.twin.forbid)
        alone = {file: files[file]}
        return Implementation(
            self._zygotes["torch"], alone, file, topic.limits, forbid, topic.given
        )

    # ---- the submission of the moment

    def take(
        self, files: Mapping[str, str], twin_failure: Failure | None = None, load: bool = True
    ) -> Failure | None:
        """Make ``files`` the submission; what is wrong with importing it, if anything is.

        ``twin_failure`` tells why its twin is not to be run. Without ``load`` nothing is imported
        before it is asked something.
        """
        self.release()
        self._submission[False] = self.implementation(files)
        problem = _import_failure(self._submission[False]) if load else None
        twin = self.topic.twin
        self._twin_failure, self._twin_source = twin_failure, None
        if twin is not None and twin_failure is None:
            self._twin_source = files.get(twin.file)
            if self._twin_source is None:
                self._twin_failure = Failure(f"{twin.file} was not handed in.")
        return problem

    def twin_failure(self) -> Failure | None:
        """Import the submission's twin where that is still to be done; what keeps it from running."""
        if self._twin_source is not None and has_torch():
            twin, self._twin_source = self._twin_source, None
            assert self.topic.twin is not None
            self._submission[True] = self.implementation({self.topic.twin.file: twin}, twin=True)
            self._twin_failure = _import_failure(self._submission[True])
        return self._twin_failure

    def release(self) -> None:
        """Let go of the submission and its workers."""
        for implementation in self._submission.values():
            implementation.close()
        self._submission = {}

    @property
    def tampered(self) -> str:
        """What the submission's workers sent that no honest one sends; "" where nothing."""
        return next((i.tampered for i in self._submission.values() if i.tampered), "")

    def submitted(self, question: Question) -> Implementation:
        """The part of the submission that a question is for."""
        return self._submission[question.twin]

    # ---- what graders ask

    def question(self, script: Script) -> Question:
        """A Script ready to be asked, any number of times, whatever is added to it later."""
        twin = self.topic.twin is not None and script.calls is self.topic.twin.calls
        packed = pack_script(script)
        return Question(script.copy(), packed, hashlib.sha256(packed).digest(), twin)

    def reference(self, question: Question) -> Trace:
        """The reference's Trace. Raises GraderFault where the reference itself fails, and NotGraded."""
        return self._answer(question).trace

    def answered(self, question: Question) -> Trace | None:
        """The submission's Trace where it was asked this question and its worker lived."""
        implementation = self._submission.get(question.twin)
        return None if implementation is None else implementation.answered(question)

    def _answer(self, question: Question) -> Answer:
        if question.digest not in self._answers:
            self._answers[question.digest] = Answer(question.script, self._ask_reference(question))
            self.questions.append(question)
        return self._answers[question.digest]

    def _ask_reference(self, question: Question) -> Trace:
        if question.twin and not has_torch():
            raise NotGraded(_NO_TORCH)
        if question.twin not in self._reference:
            made = self.implementation(self.reference_files, question.twin)
            self._reference[question.twin] = made
        reference = self._reference[question.twin]
        trace = reference.trace(question, self.topic.limits.submission_seconds)
        reference.seconds = 0.0
        if trace.cause is not None:  # not the answer to remember: the next Script starts afresh
            self._reference.pop(question.twin).close()
        _check_reference(question.script, trace)
        return trace

    def student(self, question: Question) -> Trace | Failure:
        """The submission's Trace, or why it is not of the reference's form: it stopped before, or an
        output has another type, shape or dtype. Values are not compared. Raises NotGraded."""
        self.asked.append((question, ()))
        if question.twin and (failure := self.twin_failure()):
            return failure
        answer, actual = self._both(question)
        script, expected, ending = answer.script, answer.trace, self.submitted(question).ending
        return (
            stopped(script, expected, actual, ending)
            or misshapen(script, expected, actual)
            or actual
        )

    def judge(self, question: Question, only: Sequence[str]) -> Failure | None:
        """Compare the submission's outputs (those named in ``only``, or all) with the reference's.

        Where the submission's process was lost on the way, it is asked again for no more than the
        outputs in ``only`` need: what comes after them is another item's. Raises NotGraded.
        """
        self.asked.append((question, tuple(only)))
        if question.twin and (failure := self.twin_failure()):
            return failure
        answer, actual = self._both(question)
        if actual.cause is not None and only:
            part = question.script.until(only)
            if len(part.steps) < len(question.script.steps):
                question = self.question(part)
                answer, actual = self._both(question)
        ending = self.submitted(question).ending
        return differences(answer, actual, only, ending, self.brief)

    def _both(self, question: Question) -> tuple[Answer, Trace]:
        """The reference's answer and the submission's Trace."""
        answer = self._answer(question)
        most = _ROOM + 8 * answer.nbytes
        return answer, self.submitted(question).trace(question, self.patience(question), most)

    def patience(self, question: Question) -> float:
        """Seconds that another implementation may take for what the reference answered."""
        limits, seconds = self.topic.limits, self._answer(question).trace.seconds
        return max(limits.call_seconds / self.haste, limits.call_factor * seconds)

    def timed(self, question: Question, gate: float, bound: Bound) -> Verdict:
        """How long the submission takes for a Script, measured against the reference.

        ``gate``: the relative Frobenius error of outputs. Measured again, twice, where the machine was
        too noisy. Raises NotGraded where there is nothing to measure with.
        """
        if self.device is None:
            raise NotGraded(_NO_DEVICE)
        if question.twin and (failure := self.twin_failure()):
            return Verdict("failed", failure.message)
        rng = np.random.default_rng()  # secret: whoever knew the seeds could work ahead
        budget = Budget()
        for _ in range(_TRIES):
            self._require_gpu()
            clock = self._calibrated(question, rng)
            if clock.quiet.status == "measured":
                student = clock.maker(self.submitted(question))
                verdict = judge(
                    student,
                    clock.reference,
                    clock.harness,
                    gate=gate,
                    bound=bound,
                    rng=rng,
                    alone=clock.alone,
                    budget=budget,
                )
            else:
                verdict = clock.quiet
            if verdict.forged:
                self.submitted(question).tampered = verdict.message
            if verdict.status in ("measured", "failed"):
                return verdict
            del self._clocks[question.digest]
        return verdict

    def _require_gpu(self) -> None:
        if self.device == "cuda" and (unfit := gpu.unfit()):
            raise NotGraded(f"Not measured: {unfit}.")

    def _calibrated(self, question: Question, rng: np.random.Generator) -> _Calibrated:
        """The reference's own times for a Script, measured once."""
        assert self.device is not None
        if question.digest not in self._clocks:
            kind = "cuda" if self.device == "cuda" else "torch"
            if kind not in self._zygotes:
                try:
                    self._zygotes[kind] = self._start(kind)
                except ZygoteFailed as error:
                    raise NotGraded(f"Not measured: {error}.") from None
            clock = Clock(
                self._zygotes[kind], question.script, self.device, self.topic.limits.call_seconds
            )
            made = _Calibrated(clock, self.implementation(self.reference_files, question.twin))
            try:
                made.calibrate(rng)
            except Stopped as error:
                why = self._zygotes[kind].uncompiled
                if why and why in str(error):  # a kernel was to be started
                    raise NotGraded(f"Not measured: {why}.") from None
                raise GraderFault(f"the reference cannot be timed: {error}") from None
            self._clocks[question.digest] = made
        return self._clocks[question.digest]

    def parameter_shapes(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Mapping[str, tuple[int, ...]]:
        """Names and shapes of the parameters of the reference's ``name(*args, **kwargs)``."""
        key = (name, repr(args), repr(kwargs))
        if key not in self._shapes:
            script = Script(self.topic.calls)
            read = script.parameters(script.new(name, *args, **kwargs))
            params = self.reference(self.question(script))[read]
            self._shapes[key] = {name: np.shape(value) for name, value in params.items()}
        return self._shapes[key]


class _Calibrated:
    """A Script's clock, with the reference's times: against itself, and alone."""

    def __init__(self, clock: Clock, reference: Implementation) -> None:
        self._clock = clock
        self.reference = self.maker(reference)
        self.harness: Maker = self.reference
        self.quiet = Verdict("not_graded", "")
        self.alone = 0.0

    def maker(self, implementation: Implementation) -> Maker:
        """Starts workers of an implementation under this clock."""
        main = implementation.main.removesuffix(".py")
        return self._clock.maker(
            implementation.files, main, implementation.forbid, implementation.given
        )

    def calibrate(self, rng: np.random.Generator) -> None:
        """Take the reference's times. Raises timing.Stopped where it fails."""
        shapes = self._clock.shapes(self.reference)
        self.harness = self._clock.maker({"harness.py": ""}, "harness", shapes=shapes)
        self.quiet, self.alone = compare_with_itself(self.reference, self.harness, rng=rng)


def _import_failure(implementation: Implementation) -> Failure | None:
    """Load it; what is wrong with importing it, if anything is."""
    problem, main = implementation.load(), implementation.main
    if problem is None:
        return None
    if isinstance(problem, Raised):
        said = describe(problem, "it").removeprefix("it raised ")
        return Failure(f"{main} cannot be imported: {said}", cause="error")
    if problem.cause == "timeout":
        return Failure(
            f"importing {main} did not end. Is there a loop at the top level?", (), "timeout"
        )
    ending = implementation.ending
    return Failure(f"importing {main} stopped the grading process: {ending}.", (), "crashed")


def has_torch() -> bool:
    """Whether PyTorch is installed; it is not imported here."""
    return importlib.util.find_spec("torch") is not None


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
