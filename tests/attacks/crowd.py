"""A class of which every third is hostile: the others get what they get alone, and nothing stays.

    python tests/attacks/crowd.py          200 submissions, two workers, the strongest tier here
    python tests/attacks/crowd.py 60

While the command runs, its processes are looked at from outside; the figures are printed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from softmark.isolation.tiers import reach
from suite import disturbed, grade, ids, prepare, problems, read_attacks

sys.path.append(str(Path(__file__).parents[1]))  # run by itself, it finds what the tests share
from traces import descendants, descriptors, mounts, orphans, read, resident, strangers

# what allocators may add in the long run without anything being kept
SLACK_KB = 6_000
# descriptors that one submission at work takes
IN_USE = 8


@dataclass
class Watch:
    """What the processes of a command had open and held, each time that they were looked at."""

    looks: list[dict[int, tuple[int, int]]] = field(default_factory=list)
    """Of every process that lasts, by its id: resident size in kB, open descriptors."""

    def spans(self) -> dict[int, list[tuple[int, int]]]:
        """The looks at each process that was there for most of the run."""
        pids = {pid for look in self.looks for pid in look}
        seen = {pid: [look[pid] for look in self.looks if pid in look] for pid in pids}
        return {pid: looks for pid, looks in seen.items() if len(looks) > len(self.looks) / 2}


@contextmanager
def watching() -> Iterator[Watch]:
    """Look at the command that this process starts, every 0.2 s."""
    watch, done = Watch(), threading.Event()

    def look() -> None:
        while not done.wait(0.2):
            held = {pid: (resident(pid), descriptors(pid)) for pid in descendants(os.getpid())}
            watch.looks.append({pid: of for pid, of in held.items() if of[0] and of[1]})

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        done.set()
        thread.join()


def machine(folder: Path) -> dict[str, object]:
    """What a command could leave behind on this machine; ``folder`` is its TMPDIR."""
    shared = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue")
    return {
        "processes without a parent": orphans(),
        "mounts": mounts("self"),
        "files of workers": sorted(strangers(*shared)),
        "temporary files": sorted(str(path) for path in folder.rglob("*")),
        "shared memory": len(read("/proc/sysvipc/shm").splitlines()),
        "own children": len(descendants(os.getpid())),
    }


def run(count: int) -> list[str]:
    """Grade the class; what was not as it should be."""
    level = reach().tier
    known, hostile = read_attacks(), (count + 2) // 3
    # the same ones over and over in steps, so that each stretch of the class has all families
    attacks = [known[len(known) * (7 * number % hostile) // hostile] for number in range(hostile)]
    with prepare(attacks, every=3) as ground:
        alone = grade(ground, level, "alone", workers=1)
        temporary = ground.folder / "temporary"
        before = machine(temporary)
        with watching() as watch:
            graded = grade(ground, level)
        time.sleep(0.5)
        after = machine(temporary)
        found = [
            f"{key}: {before[key]} -> {after[key]}" for key in before if before[key] != after[key]
        ]
        others = disturbed(ground, graded, alone)
        found += [*ground.spoiled(), *ground.leaked(graded.printed), *others]
        found += [
            f"{id}: {said}"
            for id, attack in ids(attacks)
            for said in problems(ground, attack, id, level, graded)
        ]
    for pid, looks in sorted(watch.spans().items()):
        # once everything has started; what is in use for a moment is no growth, so the least counts
        quarter = len(looks) // 4
        parts = looks[2 * quarter : 3 * quarter], looks[3 * quarter :]
        (early_kb, early_open), (kb, opened) = (map(min, zip(*part, strict=True)) for part in parts)
        said = f"{early_kb} -> {kb} kB, {early_open} -> {opened} descriptors"
        print(f"process {pid}: {said}")
        if kb > early_kb + SLACK_KB or opened > early_open + IN_USE:
            found.append(f"process {pid} grows: {said}")
    print(
        f"{len(graded.results)} submissions, {len(attacks)} of them hostile, in {graded.seconds:.0f} s "
        f"at '{level}'; the others as they are alone, less {len(others)}"
    )
    return found


def main() -> int:
    found = run(int(sys.argv[1]) if sys.argv[1:] else 200)
    for said in found:
        print(f"! {said}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
