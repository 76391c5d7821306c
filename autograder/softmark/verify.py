"""The graders graded: what must hold of a topic before a student sees it.

The reference and every right variant earn full marks, the untouched starter earns nothing. Every
known mistake loses exactly its items and is shown its own hint or none; two of them together hide
nothing from each other. Every question can be answered. The starter is in step with the reference,
and nothing that students get holds a line that only solutions, graders, mistakes or answers have.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from softmark.batch import Run, grade_submissions
from softmark.bench import reference_files
from softmark.builders.starter import starter_in_step
from softmark.builders.stub import stub
from softmark.course import Course, Topic
from softmark.intake import Submission
from softmark.leaks import leaks, opens_later, private_part, stubs
from softmark.mistakes import Mistake, load_mistakes
from softmark.questions import ANSWERS_FILE, QUESTIONS, blank_answers, load_answers
from softmark.result import ItemResult, Result

_MOST_PAIRS = 10


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked, and what is wrong; ``problems`` is empty where nothing is.

    Of a known mistake, whose title is its id, ``hints`` counts the items it loses: those that show its
    own hint, no hint, and another's.
    """

    title: str
    problems: tuple[str, ...]
    hints: tuple[int, int, int] | None = None


def verify(
    run: Run,
    workers: int,
    all_pairs: bool = False,
    advance: Callable[[int, int], None] = lambda done, of: None,
) -> Iterator[Check]:
    """Check one topic: some of the pairs of mistakes, the same each time, or ``all_pairs``.

    ``advance`` is told how many of how many sources are graded. Raises GraderFault or SessionFailed
    where it cannot be graded at all.
    """
    course, topic = run.course, run.topic
    reference = reference_files(course, topic)
    starter = {name: stub(source, name) for name, source in reference.items()}
    variants = load_variants(course, topic, reference)
    mistakes = {m.id: m for m in load_mistakes(course, topic, reference)}
    pairs = _pairs(list(mistakes.values()), topic.files[0])
    known = len(pairs)
    if not all_pairs and known > _MOST_PAIRS:  # their number is the square of that of the mistakes
        drawn = random.Random(topic.id).sample(sorted(pairs), _MOST_PAIRS)
        pairs = {ids: pairs[ids] for ids in drawn}
    answers = _right_answers(course, topic)
    right = _answered(topic, answers)
    sources = {"reference": {**reference, **right}}
    sources["starter"] = {**starter, **_answered(topic, {})}
    sources |= {f"variant {name}": {**files, **right} for name, files in variants.items()}
    sources |= {f"mistake {id}": {**mistake.files, **right} for id, mistake in mistakes.items()}
    sources |= {f"pair {ids}": {**files, **right} for ids, (files, _) in pairs.items()}
    sources |= {
        f"answer {name}": {**reference, **_answered(topic, {**answers, name: wrong})}
        for name, wrong in _wrong_answers(topic, answers).items()
    }
    results = _grade(run, sources, workers, advance)

    apart = [item.id for item in results["reference"].items if item.apart]
    if apart:
        yield Check(f"not measured here, and left out of these checks: {', '.join(apart)}", ())
    yield Check("the reference earns full marks", _all_passed(results["reference"]))
    for name in variants:
        title = f"the variant {name} earns full marks"
        yield Check(title, _all_passed(results[f"variant {name}"]))
    yield Check("the untouched starter earns nothing", _earned(results["starter"]))
    for id, mistake in mistakes.items():
        result = results[f"mistake {id}"]
        problems = (*_loses_exactly(result, mistake.loses), *_foreign_hints(result, {id}))
        yield Check(id, problems, _hints(result, id))
    lost = frozenset(apart).union(*(m.loses for m in mistakes.values()))
    unlost = [id for id in topic.rubric if id not in lost]
    bare = tuple(f"no known mistake loses {id}" for id in unlost if not id.startswith(QUESTIONS))
    if mistakes:
        yield Check("every rubric item is lost by a known mistake", bare)
    if pairs:
        problems = tuple(
            problem
            for ids, (_, made) in pairs.items()
            for problem in _pair_problems(results[f"pair {ids}"], made)
        )
        count = str(known) if len(pairs) == known else f"{len(pairs)} of {known}"
        title = f"{count} pairs of mistakes lose what each of the two loses, with no third's hint"
        yield Check(title, problems)
    for name in topic.questions:
        item = frozenset([f"{QUESTIONS}.{name}"])
        problems = _loses_exactly(results[f"answer {name}"], item)
        yield Check(f"a wrong answer to {name} loses it alone", problems)
    yield Check("the starter is in step", tuple(starter_in_step(course, course.folder / "starter")))
    later = opens_later(course, course.entry(topic.id))
    private = private_part(course, topic, stubs(course, later))
    public = [course.folder / "starter", course.folder / "assignments"]
    found = tuple(leaks(public, private, course.folder))
    yield Check("students get no line of a solution", found)


def full_marks(run: Run) -> Mapping[str, str]:
    """Everything that earns full marks: the reference and the right answers."""
    answers = _answered(run.topic, _right_answers(run.course, run.topic))
    return {**reference_files(run.course, run.topic), **answers}


def _pairs(
    mistakes: Sequence[Mistake], main: str
) -> dict[str, tuple[Mapping[str, str], tuple[Mistake, Mistake]]]:
    """Every two mistakes of one file that can be made together, by "first + second"."""
    pairs: dict[str, tuple[Mapping[str, str], tuple[Mistake, Mistake]]] = {}
    for first, second in combinations(mistakes, 2):
        files = first.and_also(second) if first.file == second.file else None
        if files is not None:
            # no twin beside them: it is another process for each, and nothing here asks about it
            own = {k: v for k, v in files.items() if k == first.file or k == main}
            pairs[f"{first.id} + {second.id}"] = (own, (first, second))
    return pairs


def _right_answers(course: Course, topic: Topic) -> Mapping[str, str]:
    if not topic.questions:
        return {}
    path = course.solution(topic.id) / ANSWERS_FILE
    return load_answers(path, f"solutions/{topic.id}/{ANSWERS_FILE}", topic.questions)


def _answered(topic: Topic, answers: Mapping[str, str]) -> dict[str, str]:
    """The file with these answers, where the topic has questions."""
    if not topic.questions:
        return {}
    if not answers:
        return {ANSWERS_FILE: blank_answers(topic.questions)}
    return {ANSWERS_FILE: "".join(f"{name}: {answer}\n" for name, answer in answers.items())}


def _wrong_answers(topic: Topic, answers: Mapping[str, str]) -> dict[str, str]:
    """For every question an answer that is not the right one."""
    wrong = {}
    for name, question in topic.questions.items():
        others = [choice for choice in question.choices if choice != answers[name]]
        wrong[name] = others[0] if others else repr(1.0 + 2.0 * float(answers[name]))
    return wrong


def _grade(
    run: Run,
    sources: Mapping[str, Mapping[str, str]],
    workers: int,
    advance: Callable[[int, int], None],
) -> dict[str, Result]:
    submissions = [Submission(name, files, "ready", "", (), "") for name, files in sources.items()]
    results: dict[str, Result] = {}
    for result in grade_submissions(run, submissions, workers):
        results[result.student] = result
        advance(len(results), len(submissions))
    return results


def load_variants(
    course: Course, topic: Topic, reference: Mapping[str, str]
) -> dict[str, Mapping[str, str]]:
    """Right solutions unlike the reference: a folder for each, whose files take the places of its."""
    folder = course.solution(topic.id) / "variants"
    return {
        place.name: {
            **reference,
            **{path.name: path.read_text(encoding="utf-8") for path in sorted(place.glob("*.py"))},
        }
        for place in sorted(folder.iterdir() if folder.is_dir() else ())
        if place.is_dir() and any(place.glob("*.py"))
    }


def _lost(result: Result) -> list[ItemResult]:
    return [item for item in result.items if item.status != "passed" and not item.apart]


def _all_passed(result: Result) -> tuple[str, ...]:
    said = [f"{item.id}: {item.status}: {item.message}" for item in _lost(result)]
    return tuple([f"{result.status}: {result.message}"] if result.message else said)


def _earned(result: Result) -> tuple[str, ...]:
    return tuple(f"{item.id} earns {item.score:g}" for item in result.items if item.score)


def _loses_exactly(result: Result, loses: frozenset[str]) -> tuple[str, ...]:
    lost = {item.id for item in _lost(result)}
    apart = {item.id for item in result.items if item.apart}
    kept = [f"{id} should be lost and is not" for id in sorted(loses - lost - apart)]
    return tuple([*kept, *(f"{id} is lost and should not be" for id in sorted(lost - loses))])


def _hints(result: Result, own: str) -> tuple[int, int, int]:
    shown = [item.mistake for item in _lost(result)]
    return shown.count(own), shown.count(""), sum(id not in (own, "") for id in shown)


def _foreign_hints(result: Result, own: set[str]) -> tuple[str, ...]:
    """Hints of mistakes that were not made."""
    return tuple(
        f"{item.id} shows the hint of {item.mistake}"
        for item in result.items
        if item.mistake and item.mistake not in own
    )


def _pair_problems(result: Result, made: tuple[Mistake, Mistake]) -> list[str]:
    first, second = made
    passed = {item.id for item in result.items if item.status == "passed"}
    together = f"{first.id} + {second.id}"
    lost = frozenset[str]().union(
        first.loses if first.id not in second.hides else (),
        second.loses if second.id not in first.hides else (),
    )
    problems = [f"{together}: {id} is passed" for id in sorted(passed & lost)]
    foreign = _foreign_hints(result, {first.id, second.id})
    return [*problems, *(f"{together}: {said}" for said in foreign)]
