"""How often the interval of the reference against itself holds 1, on real hardware.

    python benchmarks/gpu_aa.py [--device cuda] [--minutes 2] [--pairs 12]

Launches are taken by ``softmark.timing`` as for a grade, the reference in the submission's place, until
the time is up. As many as make a grade give one interval. In a few minutes there are too few launches to
use each but once, so they are also drawn anew from all that were taken. That tells how wide an interval
is on this machine and whether it is centred. How often verdicts are wrong is simulated, by verdicts.py.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from gpu_styles import Track, open_zygote, options_of, sizes_for, styles, timed_script
from softmark import timing
from softmark.timing import Interval, Maker, Plan, Stopped, ratio_interval

DRAWS = 200


def take(
    reference: Maker, harness: Maker, pairs: int, until: float, rng: np.random.Generator
) -> list[list[float]]:
    """Logarithms of the ratios, (launches, pairs), of as many launches as can be had until then; at
    least as many as make a grade."""
    plan = Plan(launches=1, pairs=pairs)
    taken: list[list[float]] = []
    while len(taken) < Plan().launches or time.monotonic() < until:
        # a part of the module's own: what a grade is made of, and not something like it
        launch = timing._launch(reference, reference, harness, gate=np.inf, rng=rng, plan=plan)
        taken.append(launch.ratios())
        print(f"launch {len(taken)}: {np.exp(np.median(taken[-1])):.4f}", file=sys.stderr)
    return taken


@dataclass(frozen=True, slots=True)
class Coverage:
    """``apart``: intervals of launches that are used once; ``drawn``: of launches drawn at random."""

    launches: int
    apart: Sequence[Interval]
    drawn: Sequence[Interval]


def coverage(taken: Sequence[Sequence[float]], rng: np.random.Generator) -> Coverage:
    """Intervals of as many launches as make a grade."""
    size = Plan().launches
    groups = [taken[n : n + size] for n in range(0, len(taken) - size + 1, size)]
    chosen = [rng.choice(len(taken), size, replace=False) for _ in range(DRAWS)]
    return Coverage(
        launches=len(taken),
        apart=[ratio_interval(group, rng) for group in groups],
        drawn=[ratio_interval([taken[n] for n in each], rng) for each in chosen],
    )


def table(found: Coverage) -> list[str]:
    """Rows in Markdown."""
    lines = [
        f"| intervals of {Plan().launches} launches | number | hold 1 | middle | width "
        "| within 3 % of 1 |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, intervals in (
        ("each launch used once", found.apart),
        (f"drawn from {found.launches} launches", found.drawn),
    ):
        low, middle, high = np.array([(i.low, i.middle, i.high) for i in intervals]).T
        hold = np.mean((low <= 1) & (high >= 1))
        fit = np.mean((low >= 0.97) & (high <= 1.03))
        lines.append(
            f"| {name} | {len(intervals)} | {hold:.0%} | {np.median(middle):.4f} "
            f"| {np.median(high - low):.4f} | {fit:.0%} |"
        )
    return lines


def main() -> None:
    parser = options_of(__doc__ or "", minutes=2.0)
    parser.set_defaults(pairs=Plan().pairs)
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    rng = np.random.default_rng()
    sources, first = styles()
    script = timed_script(sizes_for(options.device), "float32", backward=False)
    with open_zygote(options.device) as zygote:
        track = Track.on(zygote, script, options.device, sources[first])
        taken = take(track.reference, track.harness, options.pairs, until, rng)
    print("\n".join(table(coverage(taken, rng))))


if __name__ == "__main__":
    try:
        main()
    except Stopped as error:
        sys.exit(f"the reference cannot be timed: {error}")
