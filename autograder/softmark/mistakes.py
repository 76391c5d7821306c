"""mistakes.yaml: known mistakes as edits of the reference, with a hint and the items each must lose."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pydantic import Field

from softmark.course import Course, Topic
from softmark.yamlfile import Problem, Strict, Text, read

MISTAKES_FILE = "mistakes.yaml"


class MistakeEntry(Strict):
    """What mistakes.yaml says of one mistake, under its id."""

    task: Text = Field(description="the function or method that it is made in")
    file: Text = Field(description="the file of the reference that is edited")
    replace: Text = Field(description="the text of the reference that is replaced")
    with_: str = Field(alias="with", description="the text that takes its place")
    hint: Text = Field(description="what to tell a student who made it, without giving the code")
    loses: tuple[str, ...] = Field(min_length=1, description="the rubric items it must lose")
    hides: tuple[str, ...] = Field(
        default=(), description="other mistakes that cannot be seen where this one is made too"
    )


class _MistakesFile(Strict):
    mistakes: Mapping[str, MistakeEntry] = Field(description="the mistakes, by id")


@dataclass(frozen=True, slots=True)
class Mistake:
    """A known mistake, made in ``file``; ``files`` is the reference with it made."""

    id: str
    task: str
    file: str
    hint: str
    loses: frozenset[str]
    files: Mapping[str, str]
    edit: tuple[str, str]
    hides: frozenset[str]

    def and_also(self, other: Mistake) -> Mapping[str, str] | None:
        """The reference with both mistakes made; None where they are edits of the same text."""
        source = self.files[other.file]
        old, new = other.edit
        if source.count(old) != 1:
            return None
        return {**self.files, other.file: source.replace(old, new)}


def load_mistakes(course: Course, topic: Topic, reference: Mapping[str, str]) -> list[Mistake]:
    """The topic's mistakes, applied to its reference; none where there is no mistakes.yaml.

    Raises CourseError for an edit that does not fit exactly once and for unknown items.
    """
    path = course.solution(topic.id) / MISTAKES_FILE
    if not path.exists():
        return []
    shown = f"{path.parent.parent.name}/{topic.id}/{MISTAKES_FILE}"
    yaml = read(path, shown, "the topic's known mistakes")
    entries = yaml.fit(_MistakesFile).mistakes
    problems = [
        p for id, entry in entries.items() for p in _problems(id, entry, topic, reference, entries)
    ]
    if problems:
        raise yaml.error(problems)
    return [_made(id, entry, reference) for id, entry in entries.items()]


def _problems(
    id: str,
    entry: MistakeEntry,
    topic: Topic,
    reference: Mapping[str, str],
    ids: Collection[str],
) -> list[Problem]:
    key = ("mistakes", id)
    if entry.file not in reference:
        return [((*key, "file"), f"the reference has no '{entry.file}'")]
    count = reference[entry.file].count(entry.replace.rstrip("\n"))
    found: list[Problem] = []
    if count != 1:
        text = f"stands {count} times in {entry.file}; it must stand there exactly once"
        found.append(((*key, "replace"), text))
    found += [
        ((*key, "loses"), f"'{item}' is no item of the rubric")
        for item in entry.loses
        if item not in topic.rubric
    ]
    found += [
        ((*key, "hides"), f"'{other}' is no mistake here")
        for other in entry.hides
        if other not in ids
    ]
    return found


def _made(id: str, entry: MistakeEntry, reference: Mapping[str, str]) -> Mistake:
    old, new = entry.replace.rstrip("\n"), entry.with_.rstrip("\n")
    files = {**reference, entry.file: reference[entry.file].replace(old, new)}
    loses, hides = frozenset(entry.loses), frozenset(entry.hides)
    return Mistake(id, entry.task, entry.file, entry.hint, loses, files, (old, new), hides)
