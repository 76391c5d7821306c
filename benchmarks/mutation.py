"""Mutants noticed: weak patterns of testing against the hidden graders, by one engine.

    python benchmarks/mutation.py [--topic 05_multihead] [--workers 2] [--seed 0]

The mutants are those of the parts of a topic's reference that the patterns in ``weak/`` try: of 02_lstm
the step and the sequence, of 05_multihead masks, attention, its gradients and heads. Left out are
equivalent ones, and those that the patterns, for want of such inputs, have no chance to notice.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from softmark.batch import Run, grade_submissions
from softmark.bench import reference_files
from softmark.course import Course, load_course
from softmark.intake import Submission
from softmark.mutants import Mutant, mutants
from softmark.mutation import grade_mutants, load_equivalents

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Subject:
    """What is mutated, and the patterns that are tried on it: id of the rubric item to what it is."""

    file: str
    functions: tuple[str, ...]
    left_out: Callable[[Mutant], bool]
    patterns: Mapping[str, str]


def lstm_without_a_chance(mutant: Mutant) -> bool:
    """Statements that deal with masks."""
    return bool({"mask", "real"} & words(mutant.before))


def attention_without_a_chance(mutant: Mutant) -> bool:
    """The statement that deals with the cache, and what no longer heeds the inputs' device."""
    forgotten = mutant.kind == "keyword dropped" and "device" in mutant.before
    return forgotten or "cache" in words(mutant.before)


def words(statement: str) -> set[str]:
    """The names in it."""
    return set(re.findall(r"\w+", statement))


SUBJECTS = {
    "02_lstm": Subject(
        "lstm.py",
        ("LSTMCell.forward", "LSTMCell.backward", "lstm_forward", "lstm_backward"),
        lstm_without_a_chance,
        {
            "shapes": "shapes and dtypes only",
            "first_gradient": "of the gradients only dx",
            "one_step": "T = 1, zero first state",
            "sum_of_h": "h.sum() as the loss",
            "golden": "golden values, to within 1e-2",
            "together": "the four above in one test",
        },
    ),
    "05_multihead": Subject(
        "multihead.py",
        (
            "causal_mask",
            "padding_mask",
            "scaled_dot_product_attention",
            "attention_backward",
            "split_heads",
            "merge_heads",
            "MultiHeadAttention.forward",
        ),
        attention_without_a_chance,
        {
            "shapes": "shapes and dtypes only",
            "one_head": "h = 1",
            "equal": "Tq = Tk, d = dv",
            "no_mask": "no mask",
            "sum_of_out": "out.sum() as the loss",
            "calm": "no empty row, small logits",
            "golden": "golden values, to within 1e-2",
            "together": "the six above in one test",
            "strong": "none of these weaknesses",
        },
    ),
}


def main() -> None:
    """Compare on one topic or all; print a table for each, and JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--topic", choices=SUBJECTS, help="default: one after the other")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the inputs that are drawn")
    options = parser.parse_args()
    course = load_course(HERE.parent)
    for id in [options.topic] if options.topic else SUBJECTS:
        compare(Run(course, course.topic(id), options.seed), SUBJECTS[id], options.workers)


def compare(run: Run, subject: Subject, workers: int) -> None:
    """Grade the mutants with the patterns and with the hidden graders."""
    chosen = visible(run, subject)
    with tempfile.TemporaryDirectory() as folder:
        weak = course_of_patterns(run.course, run.topic.id, subject, Path(folder))
        patterns = Run(weak, weak.topic(run.topic.id), run.seed)
        noticed = by_patterns(patterns, subject, chosen, workers)
    noticed["the hidden graders"] = by_graders(run, chosen, workers)
    print(f"{run.topic.id}: {len(chosen)} mutants of {', '.join(subject.functions)}")
    print(f"{'':32}{'noticed':>9}{'missed':>9}{'share':>9}")
    for said, count in noticed.items():
        share = count / len(chosen)
        print(f"{said:32}{count:9}{len(chosen) - count:9}{share:9.1%}")
    counts = {"mutants": len(chosen), "seed": run.seed, "noticed": noticed}
    print(json.dumps({"topic": run.topic.id, **counts}), flush=True)


def visible(run: Run, subject: Subject) -> list[Mutant]:
    """The mutants that every pattern has a chance to notice."""
    reference = reference_files(run.course, run.topic)
    found = [m for name in run.topic.files for m in mutants(name, reference[name])]
    equivalent = load_equivalents(run.course, run.topic, found).mutants
    return [
        m
        for m in found
        if m.file == subject.file and m.function in subject.functions
        if m not in equivalent and not subject.left_out(m)
    ]


def course_of_patterns(course: Course, id: str, subject: Subject, folder: Path) -> Course:
    """A course with the same reference, and the patterns as its hidden graders."""
    settings = yaml.safe_load((course.topic(id).folder / "assignment.yaml").read_text("utf-8"))
    settings |= {
        "files": [subject.file],
        "rubric": {item: {"title": said, "points": 1} for item, said in subject.patterns.items()},
    }
    settings.pop("twin", None)
    homes = [folder / "assignments", folder / "solutions", folder / "autograder" / "graders"]
    assignment, solution, graders = (home / id for home in homes)
    for home in (assignment, solution, graders):
        home.mkdir(parents=True)
    (folder / "course.yaml").write_text(f"title: Patterns\ntopics:\n  - id: {id}\n")
    (assignment / "assignment.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    shutil.copy(course.solution(id) / subject.file, solution)
    for file in (HERE / "weak" / "near.py", HERE / "weak" / id / "test_patterns.py"):
        shutil.copy(file, graders)
    return load_course(folder)


def by_patterns(
    run: Run, subject: Subject, chosen: Sequence[Mutant], workers: int
) -> dict[str, int]:
    """How many of the mutants lose each pattern's item."""
    counts = Counter({id: 0 for id in subject.patterns})
    submissions = [
        Submission(str(number), {subject.file: m.source}, "ready", "", (), "")
        for number, m in enumerate(chosen)
    ]
    for result in grade_submissions(run, submissions, workers):
        mutant = chosen[int(result.student)]
        if result.status == "rejected" or result.faulty:
            raise SystemExit(f"the grader failed: {result.message}\n{mutant.diff}")
        counts.update(item.id for item in result.items if item.status != "passed")
    return {said: counts[id] for id, said in subject.patterns.items()}


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
