"""Whether a submission is fast enough, by a clock that it cannot touch.

The grader starts its clock, reveals a seed from which fresh inputs are made, and stops when the hash
of the outputs' bytes is back; the bytes are fetched afterwards, have to have that hash, and are
compared with the reference's at the same seed. What a submission does beside its work makes this longer.

Submission and reference run in workers of their own under the same harness, in random order, and who
does not run is stopped. What making inputs and sending outputs takes is measured by a third worker that
does nothing else, and taken off. Several launches of fresh workers, several pairs in each: the verdict
is drawn from the interval in which the median ratio of the two times lies, found by resampling launches
and then pairs (T. Kalibera and R. Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from softmark.isolation.host import Worker, Zygote
from softmark.isolation.wire import BadFrame, unread_steps
from softmark.script import Raised, Script, Trace
from softmark.verdict import describe

Status = Literal["measured", "failed", "not_graded", "invalid"]

_LEVEL = 0.95
_RESAMPLES = 2000
# The share of the interval's lower bound in what is judged: a little towards the submission, so that
# one which is fast enough hardly ever loses, and one that is not hardly ever gets all.
_TOWARDS_LOWER = 0.6
_SAME = (0.97, 1.03)  # where the reference measured against itself has to be
_LEAST_SHARE = 0.5  # of a time that has to be work, not harness
_DRIFT = 0.03  # of the reference, from how long it takes alone
_START_SECONDS = 120.0  # for a first run, with all that is compiled in it
_OUTPUT_SECONDS = 20.0
_MOST_AXES = 8
_FORGED = "What it answered to the grader's clock was not what the harness answers."
_SIZES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "bool": 1,
}
_CLAIM = 1.10  # how much longer the submission's own events may be than the time from outside


@dataclass(frozen=True, slots=True)
class Bound:
    """Ratios of a submission's time to the reference's: full credit up to ``full``, none from ``none``
    on; in between it falls with the logarithm of the ratio."""

    full: float
    none: float

    def credit(self, ratio: float) -> float:
        """The share of the points, from 0 to 1, that a ratio earns."""
        fallen = math.log(ratio / self.full) / math.log(self.none / self.full)
        return min(1.0, max(0.0, 1.0 - fallen))


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: fresh workers, pairs with each, and runs before that which do not count."""

    launches: int = 5
    pairs: int = 12
    warm: int = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: seconds by the grader's clock, and the outputs' hash. ``own_seconds`` is a claim of the
    worker, 0 where it has none."""

    seconds: float
    digest: bytes
    own_seconds: float = 0.0


class Stopped(Exception):
    """What is timed cannot go on, by its own fault; the message is for the student."""


class Forged(Stopped):
    """It answered what no honest worker answers."""


class _Unmeasurable(Exception):
    """The reference or the harness cannot go on."""


class Timed(Protocol):
    """What is timed: a worker, or a simulation of one."""

    def go(self, seed: int) -> Sample:
        """Run once on the inputs of a seed. Raises Stopped."""

    def outputs(self) -> tuple[bytes, list[tuple[str, np.ndarray]]]:
        """The hash of the last run's outputs, taken by the grader, and the outputs, each with its dtype.
        Raises Stopped."""

    def pause(self) -> None:
        """Stop all that it does, in the background too."""

    def resume(self) -> None:
        """Let it go on."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds and middle of a ratio of times: above 1 the submission is slower than the reference."""

    low: float
    middle: float
    high: float

    @property
    def judged(self) -> float:
        """The ratio that earns credit: a fixed mean of the bounds, on the scale of logarithms."""
        shares = (_TOWARDS_LOWER, 1 - _TOWARDS_LOWER)
        return math.exp(shares[0] * math.log(self.low) + shares[1] * math.log(self.high))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of it. ``credit`` is a share of the points where it was measured, ``message`` for the
    student; ``forged``: it answered what no honest worker answers."""

    status: Status
    message: str
    credit: float = 0.0
    interval: Interval | None = None
    forged: bool = False


@dataclass(slots=True)
class _Launch:
    """Seconds of each run, without the harness, with fresh workers."""

    student: list[float] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)
    harness: list[float] = field(default_factory=list)
    claims: list[float] = field(default_factory=list)

    def ratios(self) -> list[float]:
        """Logarithms of the ratio, pair by pair, the harness's median time taken off both."""
        taken = float(np.median(self.harness))
        pairs = zip(self.student, self.reference, strict=True)
        return [_logarithm(s - taken) - _logarithm(r - taken) for s, r in pairs]


def _logarithm(seconds: float) -> float:
    return math.log(max(seconds, 1e-7))  # less than a clock can tell


Maker = Callable[[], Timed]


def judge(
    student: Maker,
    reference: Maker,
    harness: Maker,
    *,
    gate: float,
    bound: Bound,
    rng: np.random.Generator,
    plan: Plan = Plan(),
    alone: float | None = None,
) -> Verdict:
    """Time a submission against the reference.

    ``student``, ``reference`` and ``harness`` start fresh workers; that of ``harness`` makes inputs and
    sends outputs of the right shapes, and computes nothing. ``gate``: the relative Frobenius error that
    an output may have, such as 1e-5. ``alone`` is the reference's time, without the harness, when it was
    measured before any submission, in seconds.
    """
    try:
        launches = [
            _launch(student, reference, harness, gate=gate, rng=rng, plan=plan)
            for _ in range(plan.launches)
        ]
    except Stopped as error:
        return Verdict("failed", str(error), forged=isinstance(error, Forged))
    except _Unmeasurable as error:
        return Verdict("not_graded", f"Not measured: beside this submission, {error}")
    unfit = _unfit(launches, alone)
    if unfit is not None:
        return unfit
    interval = ratio_interval([launch.ratios() for launch in launches], rng)
    credit = bound.credit(interval.judged)
    said = (
        f"It takes {interval.middle:.2f} times the reference's time ({interval.low:.2f} to "
        f"{interval.high:.2f}). Up to {bound.full:g} times earns all, from {bound.none:g} on nothing."
    )
    return Verdict("measured", said, credit, interval)


def compare_with_itself(
    reference: Maker, harness: Maker, *, rng: np.random.Generator, plan: Plan = Plan()
) -> tuple[Verdict, float]:
    """Time the reference against itself: is the machine quiet enough? And how long it takes alone.

    The verdict is ``measured``, with full credit, where the interval lies within 3 % of 1, else
    ``not_graded`` with the reason.
    """
    launches = [
        _launch(reference, reference, harness, gate=math.inf, rng=rng, plan=plan)
        for _ in range(plan.launches)
    ]
    alone = _work(launches)
    unfit = _unfit(launches, None)
    if unfit is not None:
        return unfit, alone
    interval = ratio_interval([launch.ratios() for launch in launches], rng)
    low, high = _SAME
    if low <= interval.low and interval.high <= high:
        return Verdict("measured", "", 1.0, interval), alone
    said = (
        "Not measured: this machine is too noisy now. The reference against itself takes between "
        f"{interval.low:.2f} and {interval.high:.2f} times as long."
    )
    return Verdict("not_graded", said, 0.0, interval), alone


def ratio_interval(ratios: Sequence[Sequence[float]], rng: np.random.Generator) -> Interval:
    """The interval of the median of ``exp(ratios)``: launches are drawn anew, then pairs in each."""
    table = np.array(ratios)  # (launches, pairs)
    launches, pairs = table.shape
    chosen = rng.integers(launches, size=(_RESAMPLES, launches, 1))
    within = rng.integers(pairs, size=(_RESAMPLES, launches, pairs))
    medians = np.median(table[chosen, within], axis=2).mean(axis=1)
    tail = (1 - _LEVEL) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    middle = np.median(table, axis=1).mean()
    return Interval(*(float(np.exp(value)) for value in (low, middle, high)))


def _launch(
    student: Maker,
    reference: Maker,
    harness: Maker,
    *,
    gate: float,
    rng: np.random.Generator,
    plan: Plan,
) -> _Launch:
    launch = _Launch()
    with contextlib.ExitStack() as stack:
        timed: list[Timed] = []
        for place, make in enumerate((student, reference, harness)):
            with _blaming(place):
                timed.append(make())
            stack.callback(timed[-1].close)
            timed[-1].pause()
        for number in range(plan.warm + plan.pairs):
            # never twice the same, never to be foreseen
            seed = int(rng.integers(1 << 62))
            samples: dict[int, Sample] = {}
            for place in map(int, rng.permutation(len(timed))):
                with _blaming(place), _running(timed[place]):
                    samples[place] = timed[place].go(seed)
            _check(timed[0], timed[1], samples[0], gate)
            if number >= plan.warm:
                launch.student.append(samples[0].seconds)
                launch.reference.append(samples[1].seconds)
                launch.harness.append(samples[2].seconds)
                launch.claims.append(samples[0].own_seconds)
    return launch


@contextlib.contextmanager
def _blaming(place: int) -> Iterator[None]:
    """What stops any but the first is not the submission's fault."""
    try:
        yield
    except Stopped as error:
        if place == 0:
            raise
        raise _Unmeasurable(f"the reference could not be timed: {error}") from None


@contextlib.contextmanager
def _running(timed: Timed) -> Iterator[None]:
    """It may go on, for as long as this lasts."""
    timed.resume()
    try:
        yield
    finally:
        timed.pause()


def _check(student: Timed, reference: Timed, sample: Sample, gate: float) -> None:
    """The outputs of the last run: those that were promised, and right. Raises Stopped."""
    fetched = []
    for place, timed in enumerate((student, reference)):
        with _blaming(place), _running(timed):
            fetched.append(timed.outputs())
    (digest, actual), (_, expected) = fetched
    if digest != sample.digest:
        raise Stopped("What it returned is not what it had when its time was taken.")
    if [(dtype, a.shape) for dtype, a in actual] != [(dtype, e.shape) for dtype, e in expected]:
        raise Stopped("Its outputs have other shapes or dtypes than the reference's.")
    for (_, a), (_, e) in zip(actual, expected, strict=True):
        error = np.linalg.norm(a.astype(np.float64) - e) / max(float(np.linalg.norm(e)), 1e-300)
        if not error <= gate:
            power = (
                "not a number" if not np.isfinite(error) else f"about 1e{round(math.log10(error))}"
            )
            raise Stopped(
                f"Its outputs are too far from the right ones while its time is taken: relative error "
                f"{power}, at most {gate:.0e} is allowed."
            )


def _work(launches: Sequence[_Launch]) -> float:
    """Seconds of the reference without the harness, by the same mean as the verdict's."""
    medians = [
        _logarithm(float(np.median(launch.reference) - np.median(launch.harness)))
        for launch in launches
    ]
    return math.exp(float(np.mean(medians)))


def _unfit(launches: Sequence[_Launch], alone: float | None) -> Verdict | None:
    """Why what was measured tells nothing, if it does not."""
    reference = float(np.median([s for launch in launches for s in launch.reference]))
    harness = float(np.median([s for launch in launches for s in launch.harness]))
    if reference - harness < _LEAST_SHARE * reference:
        said = "Not measured: the reference takes hardly longer than passing inputs and outputs on."
        return Verdict("not_graded", said)
    work = _work(launches)
    if alone is not None and abs(work / alone - 1) > _DRIFT:
        off = f"{abs(work / alone - 1):.0%} {'slower' if work > alone else 'faster'}"
        said = f"Beside this submission the reference was {off} than alone. A person has to look at it."
        return Verdict("invalid", said)
    for launch in launches:
        spare = np.array(launch.claims) - _CLAIM * np.array(launch.student)
        if (spare > 0).any():
            said = "The device tells of longer times than the grader's. A person has to look at it."
            return Verdict("invalid", said)
    return None


# ---- workers -------------------------------------------------------------------------------------


class Clock:
    """Starts what is to be timed in fresh workers of a zygote, on ``device``.

    The Script makes its inputs by ``fresh``, and ends with what is timed after ``start_clock``; its
    outputs there, arrays all of them, are what is hashed and compared.
    """

    def __init__(self, zygote: Zygote, script: Script, device: str, seconds: float) -> None:
        """``seconds``: what one run may take, harness included."""
        self._zygote, self._device, self._seconds = zygote, device, seconds
        start = next(n for n, step in enumerate(script.steps) if step.operation == "clock")
        late = {id(step) for step in script.steps[start:]}
        self._read = [h.number for step, h, _ in script.outputs() if id(step) in late]
        if not self._read:
            raise ValueError("nothing is read after start_clock(): there would be nothing to check")
        self._steps = unread_steps(script)

    def maker(
        self,
        files: Mapping[str, str],
        main: str,
        forbid: Sequence[str] = (),
        given: Sequence[str] = (),
        shapes: Sequence[tuple[str, tuple[int, ...]]] | None = None,
    ) -> Maker:
        """Starts workers of an implementation; with ``shapes``, (dtype, shape) of every output, of the
        harness alone."""
        request = {"steps": self._steps, "read": self._read, "device": self._device}
        request["shapes"] = None if shapes is None else [list(each) for each in shapes]

        def make() -> Timed:
            worker = self._zygote.spawn()
            try:
                problem = worker.load(files, main, _START_SECONDS, forbid, given)
                if problem is not None:
                    raise Stopped(f"It stops where its time is to be taken: {_said(problem)}.")
                return _Worker(worker, request, self._seconds)
            except BadFrame:
                worker.close()
                raise Forged(_FORGED) from None
            except BaseException:
                worker.close()
                raise

        return make

    def shapes(self, reference: Maker) -> list[tuple[str, tuple[int, ...]]]:
        """dtype and shape of every output, by one run of the reference."""
        timed = reference()
        try:
            timed.go(0)
            assert isinstance(timed, _Worker)
            return [(dtype, shape) for dtype, shape, _ in timed.fetched()]
        finally:
            timed.close()


class _Worker:
    """A worker that has done the steps before the clock."""

    def __init__(self, worker: Worker, request: Mapping[str, Any], seconds: float) -> None:
        self._worker, self._seconds = worker, seconds
        self._first = True
        self._ask(request, _START_SECONDS)

    def go(self, seed: int) -> Sample:
        # libraries are loaded and devices set up by the first run
        limit = _START_SECONDS if self._first else self._seconds
        self._first = False
        said, seconds = self._ask({"seed": seed}, limit)
        match said:
            case [bytes(digest), float(own)] if own >= 0:
                return Sample(seconds, digest, own)
        raise Forged(_FORGED)

    def fetched(self) -> list[tuple[str, tuple[int, ...], bytes]]:
        """dtype, shape and bytes of every output of the last run. Raises Stopped."""
        said, _ = self._ask({"seed": None}, _OUTPUT_SECONDS)
        try:
            return [_output(part) for part in said]
        except (TypeError, ValueError):
            raise Forged(_FORGED) from None

    def outputs(self) -> tuple[bytes, list[tuple[str, np.ndarray]]]:
        found = self.fetched()
        digest = hashlib.sha256(b"".join(data for _, _, data in found)).digest()
        return digest, [(dtype, _array(dtype, shape, data)) for dtype, shape, data in found]

    def pause(self) -> None:
        self._worker.pause()

    def resume(self) -> None:
        self._worker.resume()

    def close(self) -> None:
        self._worker.close()

    def _ask(self, request: Mapping[str, Any], seconds: float) -> tuple[Any, float]:
        try:
            said, elapsed = self._worker.clocked(request, seconds)
        except BadFrame:
            raise Forged(_FORGED) from None
        if isinstance(said, (Raised, Trace)):
            raise Stopped(f"It stops where its time is taken: {_said(said)}.")
        return said, elapsed


def _said(problem: Raised | Trace) -> str:
    if isinstance(problem, Raised):
        return describe(problem, "it")
    causes = {
        "timeout": "it takes far longer than the reference",
        "out_of_memory": "memory ran out",
    }
    return causes.get(str(problem.cause), "its process ended")


def _output(part: Any) -> tuple[str, tuple[int, ...], bytes]:
    """dtype, shape and bytes of an output as the harness sends it. Raises TypeError or ValueError."""
    dtype, shape, data = part
    if type(dtype) is not str or type(shape) is not list or type(data) is not bytes:
        raise TypeError
    if dtype not in _SIZES or len(shape) > _MOST_AXES:
        raise ValueError
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError
    if len(data) != math.prod(shape) * _SIZES[dtype]:
        raise ValueError
    return dtype, tuple(shape), data


def _array(dtype: str, shape: tuple[int, ...], data: bytes) -> np.ndarray:
    """The values of an output; bfloat16, which NumPy does not have, as float32."""
    if dtype == "bfloat16":
        wide = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32).reshape(shape)
    return np.frombuffer(data, dtype).reshape(shape)
