"""How often the verdicts on time are wrong: a simulation of clocks, not a measurement.

    python benchmarks/verdicts.py [--trials 2000] [--workers 2]

The code that decides is Softmark's own (``timing.judge``); simulated are the times. A submission 5 %
faster than what earns full credit should have it, and one 5 % slower should not. The same times, taken
in another order or set against a baseline that was stored, show what measuring in pairs is for.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from softmark.timing import Bound, Plan, Sample, judge, ratio_interval

BOUND = Bound(full=1.5, none=3.0)
PLAN = Plan()
HARNESS = 0.4  # seconds, beside 1 second of the reference's own


@dataclass
class Machine:
    """One GPU for the length of a run, and what its times hang on besides the work.

    Each run: log-normal noise of 3 %; one in fifty takes 1.2 to 2 times as long. Each launch of a
    worker: 1 %, for where its memory lies. The clock is in one of two modes, 10 % apart, and changes
    after a run in fifty. And all gets slower by 4 % while it warms up.
    """

    rng: np.random.Generator
    runs: int = 0
    slow: bool = field(init=False)

    def __post_init__(self) -> None:
        self.slow = bool(self.rng.random() < 0.5)

    def seconds(self, work: float) -> float:
        self.runs += 1
        self.slow ^= bool(self.rng.random() < 0.02)
        mood = (1.1 if self.slow else 1.0) * (1.04 - 0.04 * math.exp(-self.runs / 100))
        outlier = self.rng.uniform(1.2, 2.0) if self.rng.random() < 0.02 else 1.0
        return work * mood * outlier * math.exp(0.03 * self.rng.normal())


class Launched:
    """A worker on that machine whose work takes ``work`` seconds, harness included."""

    def __init__(self, machine: Machine, work: float) -> None:
        self._machine = machine
        self._work = work * math.exp(0.01 * machine.rng.normal())

    def go(self, seed: int) -> Sample:
        return Sample(self._machine.seconds(self._work), b"")

    def outputs(self) -> tuple[bytes, list[tuple[str, np.ndarray]]]:
        return b"", []

    def held_mb(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


def in_pairs(ratio: float, rng: np.random.Generator) -> float:
    """The credit that Softmark gives."""
    machine = Machine(rng)
    works = (ratio + HARNESS, 1 + HARNESS, HARNESS)
    makers = [lambda work=work: Launched(machine, work) for work in works]
    verdict = judge(*makers, gate=1.0, bound=BOUND, rng=rng, plan=PLAN)
    assert verdict.status == "measured", verdict
    return verdict.credit


def one_after_the_other(ratio: float, rng: np.random.Generator) -> float:
    """As many runs on one machine: all of the submission's first, then all of the reference's."""
    machine = Machine(rng)
    return _credit(_times(machine, ratio), _times(machine, 1.0), rng)


def against_a_stored_baseline(ratio: float, rng: np.random.Generator) -> float:
    """As many runs, against those of the reference on another day: the machine has changed since, by 2 %
    for the weather, a driver, what else is in the box."""
    stored = _times(Machine(rng), 1.0) * math.exp(0.02 * rng.normal())
    return _credit(_times(Machine(rng), ratio), stored, rng)


def _times(machine: Machine, work: float) -> np.ndarray:
    """(launches, pairs), the harness taken off."""
    rows = []
    for _ in range(PLAN.launches):
        launched, harness = Launched(machine, work + HARNESS), Launched(machine, HARNESS)
        pairs = [(launched.go(0).seconds, harness.go(0).seconds) for _ in range(PLAN.pairs)]
        whole, taken = np.array(pairs).T
        rows.append(whole - np.median(taken))
    return np.array(rows)


def _credit(student: np.ndarray, reference: np.ndarray, rng: np.random.Generator) -> float:
    ratios = np.log(student) - np.log(reference)
    return BOUND.credit(ratio_interval(ratios.tolist(), rng).judged)


WAYS: dict[str, Callable[[float, np.random.Generator], float]] = {
    "in pairs, as Softmark": in_pairs,
    "one after the other": one_after_the_other,
    "against a stored baseline": against_a_stored_baseline,
}


def trial(way: str, ratio: float, seed: int) -> float:
    return WAYS[way](ratio, np.random.default_rng(seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    print(f"Simulated: {options.trials} submissions a cell, {PLAN.launches} launches, ", end="")
    print(
        f"{PLAN.pairs} pairs in each; full credit up to {BOUND.full:g} times, none from {BOUND.none:g}."
    )
    print("| measured | 5 % faster, not full | mean credit | 5 % slower, full | mean credit |")
    print("| --- | ---: | ---: | ---: | ---: |")
    with ProcessPoolExecutor(options.workers) as pool:
        for way in WAYS:
            cells = [way]
            for ratio, wrong in ((BOUND.full / 1.05, False), (BOUND.full * 1.05, True)):
                seeds = range(options.trials)
                jobs = ([way] * options.trials, [ratio] * options.trials, seeds)
                credits = np.array(list(pool.map(trial, *jobs, chunksize=25)))
                share = ((credits == 1) if wrong else (credits < 1)).mean()
                cells += [f"{share:.2%}", f"{credits.mean():.3f}"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
