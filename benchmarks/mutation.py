"""Mutants noticed: weak patterns of testing an LSTM against the hidden graders, by one engine.

    python benchmarks/mutation.py [--workers 2] [--seed 0]

The mutants are those of the reference's step and sequence, forward and backward. Left out are equivalent
ones, and statements that deal with masks, which the patterns in ``weak/`` do not try.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import yaml
from softmark.batch import Run, grade_submissions
from softmark.bench import reference_files
from softmark.course import Course, load_course
from softmark.intake import Submission
from softmark.mutants import Mutant, mutants
from softmark.mutation import grade_mutants, load_equivalents

HERE = Path(__file__).resolve().parent
TOPIC, FILE = "02_lstm", "lstm.py"
FUNCTIONS = ("LSTMCell.forward", "LSTMCell.backward", "lstm_forward", "lstm_backward")
OF_MASKS = re.compile(r"\b(mask|real)\b")
PATTERNS = {
    "shapes": "shapes and dtypes only",
    "first_gradient": "of the gradients only dx",
    "one_step": "T = 1, zero first state",
    "sum_of_h": "h.sum() as the loss",
    "golden": "golden values, to within 1e-2",
    "together": "the four above in one test",
}


def main() -> None:
    """Grade the mutants with the patterns and with the hidden graders; print a table, and JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the inputs that are drawn")
    options = parser.parse_args()
    course = load_course(HERE.parent)
    chosen = visible(course)
    with tempfile.TemporaryDirectory() as folder:
        weak = course_of_patterns(course, Path(folder))
        run = Run(weak, weak.topic(TOPIC), options.seed)
        noticed = by_patterns(run, chosen, options.workers)
    run = Run(course, course.topic(TOPIC), options.seed)
    noticed["the hidden graders"] = by_graders(run, chosen, options.workers)
    print(f"{len(chosen)} mutants of {', '.join(FUNCTIONS)}")
    print(f"{'':32}{'noticed':>9}{'missed':>9}{'share':>9}")
    for said, count in noticed.items():
        share = count / len(chosen)
        print(f"{said:32}{count:9}{len(chosen) - count:9}{share:9.1%}")
    print(json.dumps({"mutants": len(chosen), "seed": options.seed, "noticed": noticed}))


def visible(course: Course) -> list[Mutant]:
    """The mutants that every pattern has a chance to notice."""
    topic = course.topic(TOPIC)
    reference = reference_files(course, topic)
    found = [m for name in topic.files for m in mutants(name, reference[name])]
    equivalent = load_equivalents(course, topic, found)
    return [
        m
        for m in found
        if m.file == FILE and m.function in FUNCTIONS
        if m not in equivalent and not OF_MASKS.search(m.before)
    ]


def course_of_patterns(course: Course, folder: Path) -> Course:
    """A course with the same reference, and the patterns as its hidden graders."""
    settings = yaml.safe_load((course.topic(TOPIC).folder / "assignment.yaml").read_text("utf-8"))
    settings |= {
        "files": [FILE],
        "rubric": {id: {"title": said, "points": 1} for id, said in PATTERNS.items()},
    }
    settings.pop("twin", None)
    homes = [folder / "assignments", folder / "solutions", folder / "autograder" / "graders"]
    assignment, solution, graders = (home / TOPIC for home in homes)
    for home in (assignment, solution, graders):
        home.mkdir(parents=True)
    (folder / "course.yaml").write_text(f"title: Patterns\ntopics:\n  - id: {TOPIC}\n")
    (assignment / "assignment.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    shutil.copy(course.solution(TOPIC) / FILE, solution)
    shutil.copy(HERE / "weak" / "test_patterns.py", graders)
    return load_course(folder)


def by_patterns(run: Run, chosen: Sequence[Mutant], workers: int) -> dict[str, int]:
    """How many of the mutants lose each pattern's item."""
    counts = Counter({id: 0 for id in PATTERNS})
    submissions = [
        Submission(str(number), {FILE: m.source}, "ready", "", (), "")
        for number, m in enumerate(chosen)
    ]
    for result in grade_submissions(run, submissions, workers):
        mutant = chosen[int(result.student)]
        if result.status == "rejected" or result.faulty:
            raise SystemExit(f"the grader failed: {result.message}\n{mutant.diff}")
        counts.update(item.id for item in result.items if item.status != "passed")
    return {said: counts[id] for id, said in PATTERNS.items()}


def by_graders(run: Run, chosen: Sequence[Mutant], workers: int) -> int:
    """How many of the mutants lose any item of the hidden graders."""
    fates: Counter[str] = Counter()
    reference = reference_files(run.course, run.topic)
    for number, fate, by in grade_mutants(run, reference, chosen, workers):
        if fate == "error":
            raise SystemExit(f"the grader failed: {by}\n{chosen[number].diff}")
        fates[fate] += 1
    return fates["killed"] + fates["timed out"]


if __name__ == "__main__":
    main()
