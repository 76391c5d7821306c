"""The graders graded: what must hold of a topic before a student sees it.

The reference and every right variant earn full marks, the untouched starter earns nothing, every
known mistake loses exactly its items, the starter is in step with the reference, and nothing that
students get holds a line that only a solution or a mistake has.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from softmark.batch import Run, grade_all
from softmark.bench import reference_files
from softmark.builders.starter import starter_in_step, stub
from softmark.course import Course, Topic
from softmark.mistakes import load_mistakes
from softmark.result import Result

_SHORTEST_LEAK = 16
_SHORTEST_GRADER_LEAK = 40  # shorter lines of graders are calls that public tests make too
_TEXT_FILES = (".py", ".md", ".yaml", ".yml", ".ipynb", ".txt", ".toml", ".json")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked, and what is wrong; ``problems`` is empty where nothing is."""

    title: str
    problems: tuple[str, ...]


def verify(run: Run, workers: int) -> Iterator[Check]:
    """Check one topic. Raises GraderFault or SessionFailed where it cannot be graded at all."""
    course, topic = run.course, run.topic
    reference = reference_files(course, topic)
    stubs = {name: stub(source, name) for name, source in reference.items()}
    variants = _variants(course, topic, reference)
    mistakes = {m.id: m for m in load_mistakes(course, topic, reference)}
    sources = {"reference": reference, "starter": stubs}
    sources |= {f"variant-{name}": files for name, files in variants.items()}
    sources |= {f"mistake-{id}": mistake.files for id, mistake in mistakes.items()}
    results = _grade(run, sources, workers)

    yield Check("the reference earns full marks", _all_passed(results["reference"]))
    for name in variants:
        title = f"the variant {name} earns full marks"
        yield Check(title, _all_passed(results[f"variant-{name}"]))
    yield Check("the untouched starter earns nothing", _earned(results["starter"]))
    for id, mistake in mistakes.items():
        problems = _loses_exactly(results[f"mistake-{id}"], mistake.loses)
        items = "1 item" if len(mistake.loses) == 1 else f"{len(mistake.loses)} items"
        yield Check(f"the mistake {id} loses its {items}", problems)
    yield Check("the starter is in step", tuple(starter_in_step(course, course.folder / "starter")))
    others = [*variants.values(), *(m.files for m in mistakes.values())]
    graders = {p.name: p.read_text("utf-8") for p in course.graders(topic.id).glob("*.py")}
    private = private_lines(reference, stubs, others, graders)
    public = [course.folder / "starter", course.folder / "assignments"]
    yield Check("students get no line of a solution", tuple(leaks(public, private, course.folder)))


def _grade(run: Run, sources: Mapping[str, Mapping[str, str]], workers: int) -> dict[str, Result]:
    with tempfile.TemporaryDirectory() as folder:
        entries = []
        for name, files in sources.items():
            place = Path(folder) / name
            place.mkdir()
            for file, source in files.items():
                (place / file).write_text(source, encoding="utf-8")
            entries.append((name, place))
        return {result.student: result for result in grade_all(run, entries, workers)}


def _variants(
    course: Course, topic: Topic, reference: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Right solutions unlike the reference; each takes the place of the main file."""
    folder = course.solution(topic.id) / "variants"
    return {
        path.stem: {**reference, topic.files[0]: path.read_text(encoding="utf-8", errors="replace")}
        for path in sorted(folder.glob("*.py"))
    }


def _all_passed(result: Result) -> tuple[str, ...]:
    said = [
        f"{item.id}: {item.status}: {item.message}"
        for item in result.items
        if item.status != "passed"
    ]
    return tuple([f"{result.status}: {result.message}"] if result.message else said)


def _earned(result: Result) -> tuple[str, ...]:
    return tuple(f"{item.id} earns {item.score:g}" for item in result.items if item.score)


def _loses_exactly(result: Result, loses: frozenset[str]) -> tuple[str, ...]:
    lost = {item.id for item in result.items if item.status != "passed"}
    kept = [f"{id} should be lost and is not" for id in sorted(loses - lost)]
    return tuple([*kept, *(f"{id} is lost and should not be" for id in sorted(lost - loses))])


# ---- leaks -------------------------------------------------------------------------------------


def private_lines(
    reference: Mapping[str, str],
    stubs: Mapping[str, str],
    others: Sequence[Mapping[str, str]],
    graders: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Lines that only solutions, mistakes and graders have, each with the file it stands in."""
    public = {line for source in stubs.values() for line in _lines(source)}
    private = {
        line: name
        for files in (reference, *others)
        for name, source in files.items()
        for line in _lines(source)
        if line not in public
    }
    tests = {line: name for name, source in graders.items() for line in _lines(source)}
    return {k: v for k, v in tests.items() if len(k) >= _SHORTEST_GRADER_LEAK} | private


def _lines(source: str) -> Iterator[str]:
    for line in source.splitlines():
        code = "".join(line.split("#")[0].split())
        if len(code) >= _SHORTEST_LEAK and not code.startswith(("import", "from", '"""')):
            yield code


def leaks(folders: Sequence[Path], private: Mapping[str, str], root: Path) -> Iterator[str]:
    """Every private line in a file that students get."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix not in _TEXT_FILES or not path.is_file():
                continue
            source = path.read_text(encoding="utf-8", errors="replace")
            for number, line in enumerate(source.splitlines(), 1):
                for code in _lines(line):
                    if code in private:
                        shown = os.path.relpath(path, root)
                        yield f"{shown}:{number} holds a line of the private {private[code]}"
