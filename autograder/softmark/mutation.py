"""How many mutants of a reference the hidden graders notice, and which they do not.

Mutants are graded as submissions are. Those that no test can tell from the reference are listed in
``equivalents.yaml`` beside it, each with the reason.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal

from pydantic import Field

from softmark.batch import Run, grade_submissions
from softmark.bench import has_torch
from softmark.course import Course, DottedName, Topic
from softmark.intake import Submission
from softmark.mutants import Mutant, mutants, normalised
from softmark.result import Result
from softmark.yamlfile import Problem, Strict, Text, read

EQUIVALENTS_FILE = "equivalents.yaml"
MOST_EQUIVALENT = 0.10
"""The share of all mutants that may be listed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A mutant, and by what it was noticed: a rubric item, or ``import``. Of an error, what is wrong."""

    mutant: Mutant
    by: str


@dataclass(frozen=True, slots=True)
class MutationReport:
    """What became of each mutant that was run, and how many there are.

    ``timed_out`` are noticed too, by running too long. ``errors`` are neither noticed nor survived: the
    grader failed on them, or they are listed as equivalent and were noticed all the same. ``skipped``
    tells of files and functions whose mutants cannot be run here, why. ``per_second`` is over all
    workers, without their start.
    """

    total: int
    killed: tuple[Verdict, ...]
    timed_out: tuple[Verdict, ...]
    survived: tuple[Mutant, ...]
    equivalent: tuple[Mutant, ...]
    errors: tuple[Verdict, ...]
    skipped: Mapping[str, str]
    per_second: float

    @property
    def score(self) -> float:
        """The share noticed, of the mutants that are not equivalent; 1 where there are none."""
        noticed = len(self.killed) + len(self.timed_out)
        return noticed / (noticed + len(self.survived)) if noticed or self.survived else 1.0


def run_mutants(
    run: Run,
    reference: Mapping[str, str],
    count: int | None,
    workers: int,
    progress: Callable[[int, int], None],
) -> MutationReport:
    """Grade the mutants of a topic's files, each up to the first item that it loses.

    ``reference``: everything that earns full marks, answers included. ``count``: how many, spread evenly
    over the files and drawn by the run's seed; None for all. ``progress`` is told how many of how many
    are done. Raises CourseError for a wrong equivalents.yaml, and what ``grade_submissions`` raises.
    """
    topic = run.topic
    found = [m for name in topic.files if name in reference for m in mutants(name, reference[name])]
    equivalents = load_equivalents(run.course, topic, found)
    skipped = _cannot_run(topic, equivalents.needs)
    can_run = [m for m in found if m.file not in skipped and m.function not in skipped]
    chosen = _spread(can_run, count, run.seed)
    fates: dict[int, tuple[Fate, str]] = {}
    times: dict[str, list[float]] = {}
    for number, fate, by in grade_mutants(run, reference, chosen, workers):
        mutant = chosen[number]
        if mutant in equivalents.mutants and fate == "survived":
            fate = "equivalent"
        elif mutant in equivalents.mutants and fate != "error":
            fate, by = "error", f"it is in {EQUIVALENTS_FILE}, yet {by} notices it"
        fates[number] = fate, by
        times.setdefault(mutant.file, []).append(time.monotonic())
        progress(len(fates), len(chosen))

    def those(which: Fate) -> tuple[Verdict, ...]:
        found = sorted((k, by) for k, (fate, by) in fates.items() if fate == which)
        return tuple(Verdict(chosen[k], by) for k, by in found)

    return MutationReport(
        total=len(found),
        killed=those("killed"),
        timed_out=those("timed out"),
        survived=tuple(verdict.mutant for verdict in those("survived")),
        equivalent=tuple(verdict.mutant for verdict in those("equivalent")),
        errors=those("error"),
        skipped=skipped,
        per_second=_rate(times.values()),
    )


Fate = Literal["killed", "timed out", "survived", "equivalent", "error"]


def grade_mutants(
    run: Run, reference: Mapping[str, str], chosen: Sequence[Mutant], workers: int
) -> Iterator[tuple[int, Fate, str]]:
    """As they come: the number of a mutant, what became of it, and by what it was noticed, or what is
    wrong. Raises what ``grade_submissions`` raises."""
    submissions = [
        Submission(str(number), {**reference, m.file: m.source}, "ready", "", (), "")
        for number, m in enumerate(chosen)
    ]
    for result in grade_submissions(run, submissions, workers, quick=True):
        yield int(result.student), *_fate(result)


def _fate(result: Result) -> tuple[Fate, str]:
    if result.status not in ("graded", "import_error"):
        return "error", f"{result.status}: {result.message}"
    for item in result.items:
        if item.status not in ("passed", "partial", "failed", "not_graded"):
            return "error", f"{item.id}: {item.message}"
    lost = next((item for item in result.items if item.status in ("partial", "failed")), None)
    if lost is None:
        return "survived", ""
    by = "import" if result.status == "import_error" else lost.id
    return ("timed out" if lost.cause == "timeout" else "killed"), by


def _rate(times: Iterable[Sequence[float]]) -> float:
    """How many a second; of each file from its first on, which waits for workers of its kind."""
    spans = [(len(of_file) - 1, of_file[-1] - of_file[0]) for of_file in times]
    seconds = sum(span for _, span in spans)
    return sum(count for count, _ in spans) / seconds if seconds else 0.0


def _cannot_run(topic: Topic, needs: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The files and functions that nothing runs on this machine, each with what is missing."""
    found = {}
    if topic.twin is not None and not has_torch():
        found[topic.twin.file] = "PyTorch is not installed"
    for package, functions in needs.items():
        if find_spec(package) is None:
            found |= dict.fromkeys(functions, f"{package} is not installed")
    return found


def _spread(found: Sequence[Mutant], count: int | None, seed: int) -> Sequence[Mutant]:
    """``count`` of them in their order: one, drawn at random, from each of as many equal stretches."""
    if count is None or count >= len(found):
        return found
    rng = random.Random(seed)
    edges = [k * len(found) // count for k in range(count + 1)]
    return [found[rng.randrange(a, b)] for a, b in itertools.pairwise(edges)]


# ---- equivalents -----------------------------------------------------------------------------------


class EquivalentEntry(Strict):
    """A change that no test can notice, as equivalents.yaml lists it."""

    file: Text = Field(description="the file of the reference that is changed")
    function: str = Field(description="its function, as in LSTMCell.backward; '' outside of all")
    before: Text = Field(description="the statement, of a compound one the first line")
    after: Text = Field(description="the changed statement; pass where it is left out")
    reason: Text = Field(description="why nothing can tell the two apart")


class _EquivalentsFile(Strict):
    equivalents: tuple[EquivalentEntry, ...] = Field(description="a list of changes")
    needs: Mapping[DottedName, tuple[Text, ...]] = Field(
        default={}, description="of a package, the functions that run only where it is installed"
    )


@dataclass(frozen=True, slots=True)
class Equivalents:
    """The mutants that are listed; and of a package, the functions that run only where it is there."""

    mutants: frozenset[Mutant] = frozenset()
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)


def load_equivalents(course: Course, topic: Topic, found: Sequence[Mutant]) -> Equivalents:
    """What equivalents.yaml says of the mutants ``found``; nothing where there is none.

    Raises CourseError for an entry that is none of them, and where more than a tenth is listed.
    """
    path = course.solution(topic.id) / EQUIVALENTS_FILE
    if not path.exists():
        return Equivalents()
    shown = f"{path.parent.parent.name}/{topic.id}/{EQUIVALENTS_FILE}"
    yaml = read(path, shown, "the mutants that no test can notice")
    said = yaml.fit(_EquivalentsFile)
    listed: set[Mutant] = set()
    problems: list[Problem] = []
    for number, entry in enumerate(said.equivalents):
        meant, wrong = _meant(entry, found)
        problems += [(("equivalents", number, key), text) for key, text in wrong]
        listed |= meant
    most = int(MOST_EQUIVALENT * len(found))
    if len(listed) > most:
        text = f"{len(listed)} of {len(found)} mutants are listed; at most {most} may be"
        problems.append((("equivalents",), text))
    if problems:
        raise yaml.error(problems)
    return Equivalents(frozenset(listed), said.needs)


def _meant(
    entry: EquivalentEntry, found: Sequence[Mutant]
) -> tuple[set[Mutant], list[tuple[str, str]]]:
    """The mutants that an entry lists, or what is wrong with which of its keys."""
    texts = {"before": entry.before, "after": entry.after}
    wrong: list[tuple[str, str]] = []
    for key, text in texts.items():
        try:
            texts[key] = normalised(text)
        except SyntaxError:
            wrong.append((key, f"'{text}' is no statement of Python, nor the first line of one"))
    if wrong:
        return set(), wrong
    near = {m for m in found if (m.file, m.function) == (entry.file, entry.function)}
    if not near:
        text = f"there are no mutants of '{entry.function}' in {entry.file}; take this entry out"
        return set(), [("function", text)]
    near = {m for m in near if m.before == texts["before"]}
    if not near:
        text = f"{entry.function} has no such statement any more; take this entry out or mend it"
        return set(), [("before", text)]
    near = {m for m in near if m.after == texts["after"]}
    if not near:
        return set(), [("after", "no mutant of this statement reads so; take this entry out")]
    return near, []
