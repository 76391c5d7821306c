"""Whether a submission is fast enough, by a clock that it cannot touch.

The grader starts its clock, reveals a seed from which fresh inputs are made, and stops when the hash
of the outputs' bytes is back; the bytes are fetched afterwards, have to have that hash, and are
compared with the reference's at the same seed. What a submission does beside its work makes this longer.

Submission and reference run in workers of their own under the same harness, in random order, and who
does not run is stopped. What making inputs and sending outputs takes is measured by a third worker that
does nothing else, and taken off. Several launches of fresh workers, several pairs in each: the verdict
is drawn from the interval in which the median ratio of the two times lies, found by resampling launches
and then pairs (T. Kalibera and R. Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013).
What is slow beyond doubt is not measured to the end. ``clock`` has what runs in workers.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

Status = Literal["measured", "failed", "not_graded", "invalid"]

_LEVEL = 0.95
_RESAMPLES = 2000
# The share of the interval's lower bound in what is judged: a little towards the submission, so that
# one which is fast enough hardly ever loses, and one that is not hardly ever gets all.
_TOWARDS_LOWER = 0.6
_SAME = (0.97, 1.03)  # where the reference measured against itself has to be
_LEAST_SHARE = 0.5  # of a time that has to be work, not harness
_DRIFT = 0.03  # of the reference, from how long it takes alone
_HOPELESS = 3.0  # times what earns nothing: slower than that, it is not measured to the end
_FIRST = 3  # pairs of a launch that tell it, all of them
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
    """One run: seconds by the grader's clock, and the outputs' hash. Claims of the worker, 0 where it
    has none: ``own_seconds``, and ``peak_bytes`` that PyTorch had in use on the device at most."""

    seconds: float
    digest: bytes
    own_seconds: float = 0.0
    peak_bytes: int = 0


@dataclass(slots=True)
class Budget:
    """Seconds that may be lost on a submission for one thing that is timed, over all launches: what a
    run takes beyond three times what earns nothing, and a start beyond three of the reference's."""

    seconds: float = 60.0
    spent: float = 0.0

    def charge(self, seconds: float, allowed: float) -> None:
        """Raises Stopped where nothing is left."""
        self.spent += max(0.0, seconds - allowed)
        if self.spent > self.seconds:
            raise Stopped(
                "It is too slow to be measured to the end: what it takes beyond several times the "
                f"reference's time adds up to more than {self.seconds:g} s."
            )


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

    def held_mb(self) -> int | None:
        """Memory of the device that its driver counts for it; None where it does not tell."""

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
class Memory:
    """Most memory of the device in use, in MB, of the submission and of the reference: by their own
    count, which is a claim, and by the driver's, which holds what CUDA and PyTorch keep in store too;
    None where it does not tell."""

    claimed: tuple[float, float]
    held: tuple[float, float] | None

    @property
    def ratio(self) -> float:
        """Of the submission's to the reference's, by the count that makes it larger."""
        counts = [each for each in (self.claimed, self.held) if each is not None]
        return max(own / reference for own, reference in counts)

    def __str__(self) -> str:
        said = "On the GPU it uses up to {:.0f} MB by its own count (the reference {:.0f} MB)"
        told = "" if self.held is None else "; the driver counts {:.0f} MB ({:.0f} MB)"
        return f"{said.format(*self.claimed)}{told.format(*self.held or ())}."


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of it. ``credit`` is a share of the points where it was measured, ``message`` for the
    student; ``forged``: it answered what no honest worker answers."""

    status: Status
    message: str
    credit: float = 0.0
    interval: Interval | None = None
    forged: bool = False
    memory: Memory | None = None


@dataclass(slots=True)
class _Launch:
    """Seconds of each run, without the harness, with fresh workers."""

    student: list[float] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)
    harness: list[float] = field(default_factory=list)
    claims: list[float] = field(default_factory=list)
    peaks: list[tuple[int, int]] = field(default_factory=list)
    """Bytes by the submission's own count and by the reference's."""
    held: tuple[int, int] | None = None
    """MB by the driver's count."""

    def note(self, student: Sample, reference: Sample, harness: Sample) -> None:
        """Add a pair."""
        self.student.append(student.seconds)
        self.reference.append(reference.seconds)
        self.harness.append(harness.seconds)
        self.claims.append(student.own_seconds)
        self.peaks.append((student.peak_bytes, reference.peak_bytes))

    def beyond(self, ratio: float) -> bool:
        """Whether each of the pairs so far is slower, also with all of the harness on the
        reference's side."""
        taken = max(self.harness)
        pairs = zip(self.student, self.reference, strict=True)
        return all(s - taken > ratio * r for s, r in pairs)

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
    budget: Budget | None = None,
) -> Verdict:
    """Time a submission against the reference.

    ``student``, ``reference`` and ``harness`` start fresh workers; that of ``harness`` makes inputs and
    sends outputs of the right shapes, and computes nothing. ``gate``: the relative Frobenius error that
    an output may have, such as 1e-5. ``alone`` is the reference's time, without the harness, when it was
    measured before any submission, in seconds. ``budget`` is shared by measurements of one thing.
    """
    limit = _Limit(bound, budget or Budget())
    try:
        launches = [
            _launch(student, reference, harness, gate=gate, rng=rng, plan=plan, limit=limit)
            for _ in range(plan.launches)
        ]
    except Stopped as error:
        return Verdict("failed", str(error), forged=isinstance(error, Forged))
    except _Unmeasurable as error:
        return Verdict("not_graded", f"Not measured: beside this submission, {error}.")
    unfit = _unfit(launches, alone)
    if unfit is not None:
        return unfit
    interval = ratio_interval([launch.ratios() for launch in launches], rng)
    credit = bound.credit(interval.judged)
    said = (
        f"It takes {interval.middle:.2f} times the reference's time ({interval.low:.2f} to "
        f"{interval.high:.2f}). Up to {bound.full:g} times earns all, from {bound.none:g} on nothing."
    )
    memory = _memory(launches)
    if memory is not None:
        said += f" {memory}"
    return Verdict("measured", said, credit, interval, memory=memory)


def compare_with_itself(
    reference: Maker, harness: Maker, *, rng: np.random.Generator, plan: Plan = Plan()
) -> tuple[Verdict, float]:
    """Time the reference against itself: is the machine quiet enough? And how long it takes alone.

    The verdict is ``measured``, with full credit, where the interval lies within 3 % of 1, else
    ``not_graded`` with the reason.
    """
    try:
        launches = [
            _launch(reference, reference, harness, gate=math.inf, rng=rng, plan=plan)
            for _ in range(plan.launches)
        ]
    except _Unmeasurable as error:
        return Verdict("not_graded", f"Not measured: beside itself, {error}."), math.nan
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


@dataclass(frozen=True, slots=True)
class _Limit:
    """How slow a submission may be before it is stopped."""

    bound: Bound
    budget: Budget

    def start(self, student: float, reference: float) -> None:
        """Charge seconds of a start. Raises Stopped."""
        self.budget.charge(student, _HOPELESS * reference)

    def pair(self, launch: _Launch, student: float, reference: float) -> None:
        """Charge seconds of a pair, the last of a launch so far. Raises Stopped."""
        bound, ratio = self.bound, _HOPELESS * self.bound.none
        if len(launch.student) == _FIRST and launch.beyond(ratio):
            raise Stopped(
                f"It takes more than {ratio:g} times the reference's time, and was not measured to the "
                f"end. Up to {bound.full:g} times earns all, from {bound.none:g} on nothing."
            )
        self.budget.charge(student, ratio * reference)


def _launch(
    student: Maker,
    reference: Maker,
    harness: Maker,
    *,
    gate: float,
    rng: np.random.Generator,
    plan: Plan,
    limit: _Limit | None = None,
) -> _Launch:
    launch = _Launch()
    with contextlib.ExitStack() as stack:
        timed: list[Timed] = []
        starts: list[float] = []
        for place, make in enumerate((student, reference, harness)):
            started = time.perf_counter()
            with _blaming(place):
                timed.append(make())
            stack.callback(timed[-1].close)
            timed[-1].pause()
            starts.append(time.perf_counter() - started)
        for number in range(plan.warm + plan.pairs):
            # never twice the same, never to be foreseen
            seed = int(rng.integers(1 << 62))
            samples: dict[int, Sample] = {}
            for place in map(int, rng.permutation(len(timed))):
                with _blaming(place), _running(timed[place]):
                    samples[place] = timed[place].go(seed)
            _check(timed[0], timed[1], samples[0], gate)
            if number >= plan.warm:
                launch.note(samples[0], samples[1], samples[2])
            student_s, reference_s = samples[0].seconds, samples[1].seconds
            if limit is not None and number == 0:  # the first run sets things up
                limit.start(starts[0] + student_s, starts[1] + reference_s)
            elif limit is not None:
                limit.pair(launch, student_s, reference_s)
        if launch.peaks and launch.peaks[-1][1] > 0:  # the reference tells of a device
            own, others = timed[0].held_mb(), timed[1].held_mb()
            launch.held = (own, others) if own and others else None
    return launch


@contextlib.contextmanager
def _blaming(place: int) -> Iterator[None]:
    """What stops any but the first is not the submission's fault."""
    try:
        yield
    except Stopped as error:
        if place == 0:
            raise
        # why may quote a line of the reference's, and students read this
        raise _Unmeasurable("the reference could not be timed") from error


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


def _memory(launches: Sequence[_Launch]) -> Memory | None:
    """The most of all runs; None where the reference tells of none."""
    claimed = _most([peaks for launch in launches for peaks in launch.peaks])
    if claimed[1] <= 0:
        return None
    told = [launch.held for launch in launches if launch.held is not None]
    return Memory((claimed[0] / 2**20, claimed[1] / 2**20), _most(told) if told else None)


def _most(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return max(own for own, _ in pairs), max(reference for _, reference in pairs)


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
