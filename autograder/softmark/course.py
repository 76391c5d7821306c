"""A course and its topics, read from course.yaml and assignment.yaml and checked.

What is wrong with either file is a CourseError whose every line names file, line and key and says
what is allowed. The objects do not change; a topic is read each time it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from softmark.calls import CallsText, as_calls
from softmark.questions import (
    ANSWERS_FILE,
    QUESTIONS,
    QUESTIONS_FILE,
    Question,
    Tier,
    load_questions,
)
from softmark.script import Calls
from softmark.yamlfile import CourseError as CourseError
from softmark.yamlfile import (
    Frozen,
    Problem,
    Strict,
    Text,
    invalid,
    is_identifier,
    made_of,
    read,
    suggestion,
)

COURSE_FILE = "course.yaml"
TOPIC_FILE = "assignment.yaml"
PUBLIC = ("handout.md", TOPIC_FILE, "test_public.py")
"""The files of a topic's folder that go to students as they are, and must be there."""
PUBLIC_TOO = ("questions.yaml", "test_public_*.py", "*.svg")
"""Patterns of those that may be there."""


def _topic_id(text: str) -> str:
    if not made_of(text, "_") or text != text.lower() or not text.isascii():
        raise ValueError(
            f"'{text}' cannot be a topic; it is the name of a folder, such as 02_lstm, made of "
            "lower-case letters, digits and _"
        )
    return text


def _file_name(text: str) -> str:
    if PurePath(text).name != text or "\\" in text:
        raise ValueError(f"must be a bare file name such as lstm.py, without folders, not '{text}'")
    if not text.endswith(".py"):
        raise ValueError(f"must end in .py, as in lstm.py, not '{text}'")
    if not is_identifier(text.removesuffix(".py")):
        raise ValueError(f"must have a name that Python can import, as in lstm.py, not '{text}'")
    return text


def _dotted_name(text: str) -> str:
    if not all(is_identifier(part) for part in text.split(".")):
        raise ValueError(f"must be a dotted name such as torch.nn.LSTM, not '{text}'")
    return text


TopicId = Annotated[str, AfterValidator(_topic_id)]
FileName = Annotated[str, AfterValidator(_file_name)]
DottedName = Annotated[str, AfterValidator(_dotted_name)]
Forbidden = Annotated[Mapping[DottedName, Text], AfterValidator(Frozen)]


class RubricEntry(Strict):
    """What assignment.yaml says of a rubric item, under the item's id."""

    title: Text = Field(description="what the item asks for, as students read it")
    points: float = Field(gt=0, description="what the item is worth, a number")
    tier: Tier = "core"
    device: Literal["cpu", "cuda"] = Field(
        default="cpu", description="cuda for what can be measured on a GPU only"
    )
    package: DottedName | None = Field(
        default=None,
        description="what has to be installed beside PyTorch to run it, such as triton",
    )
    follow_through: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="the share of the points for being right given one's own earlier mistake",
    )


class Item(RubricEntry):
    """A rubric item with its id, such as ``step.forward.h``."""

    id: str

    @property
    def lacks(self) -> str | None:
        """The package that it needs, where that is not installed here."""
        return None if self.package is None or find_spec(self.package) else self.package


class Limits(Strict):
    """What a submission may use. A call gets the longer of ``call_seconds`` and ``call_factor``
    times the reference's own time."""

    call_seconds: float = Field(default=2.0, gt=0)
    call_factor: float = Field(default=20.0, gt=0)
    submission_seconds: float = Field(default=60.0, gt=0)
    memory_mb: int = Field(default=1024, gt=0)
    output_kb: int = Field(default=64, gt=0)


class Policy(Strict):
    """Dotted names a submission may not use, each with the reason that students are shown."""

    forbid: Forbidden = Frozen({})
    action: Literal["flag", "reject"] = "reject"


class TwinEntry(Strict):
    """The same exercise in PyTorch, in a file of its own that may be handed in beside the others.

    It is run where PyTorch is, and ``forbid`` is its own: the policy's is for the other files.
    """

    file: FileName = Field(description="the name of its file, one of 'files'")
    calls: CallsText = Field(description="what every call of the file returns")
    forbid: Forbidden = Frozen({})


@dataclass(frozen=True)
class Twin:
    """See TwinEntry."""

    file: str
    calls: Calls
    forbid: Mapping[str, str]


class PartEntry(Strict):
    """A part that is handed in by itself: its items go up to ``until``, those of the last to the end."""

    title: Text = Field(description="the part's name, as students read it")
    until: str | None = Field(default=None, description="the id of its last rubric item")


@dataclass(frozen=True)
class Part:
    """A part of a topic that is handed in by itself, with the ids of its rubric items."""

    title: str
    items: tuple[str, ...]


class _TopicFile(Strict):
    """assignment.yaml."""

    title: Text = Field(description="the topic's name, as students read it")
    hours: float = Field(gt=0, description="the hours of work its core takes, a number")
    files: tuple[FileName, ...] = Field(
        min_length=1, description="the names of the files handed in, as in [lstm.py]"
    )
    given: tuple[FileName, ...] = Field(
        default=(), description="files beside this one that students get whole and do not hand in"
    )
    worker: Literal["numpy", "torch"] = "numpy"
    rubric: Mapping[str, RubricEntry] = Field(description="the items, each with title and points")
    parts: tuple[PartEntry, ...] = Field(default=(), description="what is handed in by itself")
    calls: CallsText = Field(description="what every call returns")
    limits: Limits = Limits()
    policy: Policy = Policy()
    twin: TwinEntry | None = None

    @field_validator("files")
    @classmethod
    def _files_differ(cls, files: tuple[str, ...]) -> tuple[str, ...]:
        # Not only by case: a submission is also unpacked where that makes no difference.
        folded = [name.lower() for name in files]
        problems: list[Problem] = [
            ((index,), f"'{name}' is listed before; keep one")
            for index, name in enumerate(files)
            if name.lower() in folded[:index]
        ]
        if problems:
            raise invalid(problems)
        return files

    @field_validator("given")
    @classmethod
    def _given_is_not_handed_in(
        cls, given: tuple[str, ...], info: ValidationInfo
    ) -> tuple[str, ...]:
        both = {name.lower() for name in info.data.get("files", ())}
        problems: list[Problem] = [
            ((index,), f"'{name}' is one of 'files', which students write; drop one of the two")
            for index, name in enumerate(given)
            if name.lower() in both
        ]
        if problems:
            raise invalid(problems)
        return given

    @field_validator("twin")
    @classmethod
    def _twin_is_handed_in(cls, twin: TwinEntry | None, info: ValidationInfo) -> TwinEntry | None:
        files = info.data.get("files", ())
        if twin and files and twin.file not in files[1:]:
            text = f"must be one of 'files', after the first ({files[0]}), not '{twin.file}'"
            raise invalid([(("file",), text)])
        return twin

    @field_validator("rubric")
    @classmethod
    def _rubric_scores(cls, rubric: Mapping[str, RubricEntry]) -> Mapping[str, RubricEntry]:
        problems: list[Problem] = [
            ((id,), "must be an id such as step.forward: letters, digits, _ and - between dots")
            for id in rubric
            if not all(made_of(part, "_-") and part.isascii() for part in id.split("."))
        ]
        problems += [
            ((id,), f"ids that begin with '{QUESTIONS}.' are those of {QUESTIONS_FILE}")
            for id in rubric
            if id.split(".")[0] == QUESTIONS
        ]
        problems += [
            ((id, "tier"), "must be extension or bonus: the core can be earned without a GPU")
            for id, item in rubric.items()
            if item.device == "cuda" and item.tier == "core"
        ]
        problems += [
            ((id, "tier"), "must be extension or bonus: the core can be earned without a package")
            for id, item in rubric.items()
            if item.package and item.tier == "core"
        ]
        if not any(item.tier == "core" for item in rubric.values()):
            problems.append(((), "has no core item, so there is no full score; add one"))
        if problems:
            raise invalid(problems)
        return rubric

    @field_validator("parts")
    @classmethod
    def _parts_end_in_order(
        cls, parts: tuple[PartEntry, ...], info: ValidationInfo
    ) -> tuple[PartEntry, ...]:
        core = [id for id, item in info.data.get("rubric", {}).items() if item.tier == "core"]
        problems: list[Problem] = []
        if len(parts) == 1:
            problems.append(((), "has one part, which is the whole; name two or more, or none"))
        for number, part in enumerate(parts):
            key = (number, "until")
            if number == len(parts) - 1:
                if part.until is not None:
                    problems.append((key, "the last part goes to the end of the rubric; drop this"))
            elif part.until not in core:
                near = suggestion(part.until or "", core)
                problems.append((key, f"must be the id of a core item of the rubric{near}"))
            else:
                core = core[core.index(part.until) + 1 :]  # the next one ends after it
        if problems and "rubric" in info.data:
            raise invalid(problems)
        return parts


@dataclass(frozen=True, kw_only=True)
class Topic:
    """One assignment. ``files[0]`` is the main module, the others may be missing. ``given`` are files by
    name, with their text, that every implementation of it runs with.

    ``rubric`` keeps the order of the file; after it come the items of ``questions``.
    """

    id: str
    folder: Path
    title: str
    hours: float
    files: tuple[str, ...]
    given: Mapping[str, str] = field(default_factory=dict)
    worker: Literal["numpy", "torch"] = "numpy"
    rubric: Mapping[str, Item]
    parts: tuple[Part, ...] = ()
    calls: Calls
    limits: Limits = field(default_factory=Limits)
    policy: Policy = field(default_factory=Policy)
    twin: Twin | None = None
    questions: Mapping[str, Question] = field(default_factory=dict)

    @property
    def handed_in(self) -> tuple[str, ...]:
        """The names of everything that may be handed in."""
        return (*self.files, ANSWERS_FILE) if self.questions else self.files

    def hands_out(self, name: str) -> bool:
        """Whether students get a file of this name with the topic that they do not write."""
        patterns = (*PUBLIC, *PUBLIC_TOO, *self.given)
        return any(PurePath(name).match(pattern) for pattern in patterns)

    @property
    def module(self) -> str:
        """The name under which the main file is imported, such as ``lstm``."""
        return self.files[0].removesuffix(".py")

    @property
    def timed(self) -> tuple[str, ...]:
        """The ids of the items that can be measured on a GPU only."""
        return tuple(id for id, item in self.rubric.items() if item.device == "cuda")

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that its items need and that are installed here."""
        items = self.rubric.values()
        return tuple(dict.fromkeys(i.package for i in items if i.package and not i.lacks))

    @property
    def max_score(self) -> float:
        """The core points: extensions and bonus come on top."""
        return sum(item.points for item in self.rubric.values() if item.tier == "core")


class TopicEntry(Strict):
    """A topic's line in course.yaml: all dates include their day. Where the topic is handed in in parts,
    ``parts_due`` has a date for each, and ``due`` is the last of them."""

    id: TopicId = Field(description="the name of its folder under assignments/")
    opens: date | None = None
    due: date | None = None
    parts_due: tuple[date, ...] = Field(default=(), description="a date for each part of the topic")

    @model_validator(mode="before")
    @classmethod
    def _due_with_the_last_part(cls, data: Any) -> Any:
        dates = data.get("parts_due") if isinstance(data, Mapping) else None
        if not isinstance(dates, list | tuple) or not dates:
            return data
        if "due" in data:
            raise invalid([(("due",), "is the last of parts_due; drop one of the two")])
        return {**data, "due": dates[-1]}

    @field_validator("due")
    @classmethod
    def _due_after_opens(cls, due: date | None, info: ValidationInfo) -> date | None:
        opens = info.data.get("opens")
        if due and opens and due < opens:
            raise ValueError(f"{due} is before it opens, {opens}")
        return due

    @field_validator("parts_due")
    @classmethod
    def _parts_in_order(cls, dates: tuple[date, ...]) -> tuple[date, ...]:
        for before, after in pairwise(dates):
            if after <= before:
                raise ValueError(f"{after} is not after {before}, when the part before is due")
        return dates


class Tiers(Strict):
    """The most that extensions and bonus add to a topic, as shares of its core points."""

    extension: float = Field(default=0.10, ge=0, le=1)
    bonus: float = Field(default=0.05, ge=0, le=1)


Shows = Literal["nothing", "total", "items", "messages", "hints"]
"""What a student sees of a result: each shows all that the ones before it do."""


class Feedback(Strict):
    """What students see of their results while they may still hand in, and afterwards.

    ``runs_a_day`` is how many times a day a hand-in is answered before the due date; 0 is no limit.
    """

    before_due: Shows = "messages"
    after_due: Shows = "hints"
    runs_a_day: int = Field(default=5, ge=0)


class _CourseFile(Strict):
    """course.yaml."""

    title: Text = Field(description="the course's name")
    topics: tuple[TopicEntry, ...] = Field(
        min_length=1, description="a list of topics in order, each as in '- id: 02_lstm'"
    )
    tiers: Tiers = Tiers()
    ungraded: Literal["hold", "renormalise"] = "hold"
    gpu: bool = Field(default=False, description="whether what needs a GPU counts, true or false")
    feedback: Feedback = Feedback()
    private: Text | None = None


@dataclass(frozen=True)
class Course:
    """A course: its folder, its topics in order, and where its private half is. ``gpu``: whether items
    that can be measured on a GPU only count."""

    folder: Path
    title: str
    topics: tuple[TopicEntry, ...]
    tiers: Tiers
    ungraded: Literal["hold", "renormalise"]
    private: Path | None
    feedback: Feedback = field(default_factory=Feedback)
    gpu: bool = False

    def topic(self, id: str) -> Topic:
        """Read a topic. Raises CourseError if there is none of this id or its file is wrong."""
        dates = self.entry(id).parts_due
        topic = load_topic(self.folder / "assignments" / id)
        if dates and len(dates) != len(topic.parts):
            said = f"parts_due has {len(dates)} dates and the topic {len(topic.parts)} parts"
            raise CourseError(f"{COURSE_FILE}: topics: {id}: {said} in its {TOPIC_FILE}")
        return topic

    def entry(self, id: str) -> TopicEntry:
        """A topic's line in course.yaml. Raises CourseError if there is none of this id."""
        self._require(id)
        return next(entry for entry in self.topics if entry.id == id)

    def solution(self, id: str) -> Path:
        """The folder of a topic's reference solution. Raises CourseError if it is not there."""
        return self._private_folder(id, "solutions", "solutions", "the reference solution")

    def graders(self, id: str) -> Path:
        """The folder of a topic's hidden graders. Raises CourseError if it is not there."""
        return self._private_folder(id, "graders", "autograder/graders", "the hidden graders")

    def _require(self, id: str) -> None:
        known = [topic.id for topic in self.topics]
        if id not in known:
            text = f"topics: no topic '{id}'{suggestion(id, known)} (has: {', '.join(known)})"
            raise CourseError(f"{COURSE_FILE}: {text}")

    def _private_folder(self, id: str, name: str, default: str, what: str) -> Path:
        self._require(id)
        folder = self.folder / default / id if self.private is None else self.private / name / id
        if not folder.is_dir():
            shown = _shown(folder, self.folder)
            raise CourseError(f"{shown}: no such folder; {what} of {id} belongs there")
        return folder


def load_course(folder: Path) -> Course:
    """Read ``folder``/course.yaml. Raises CourseError.

    Topics are only seen to have a folder: an error in one of them does not stop the others.
    """
    folder = _absolute(folder)
    path = folder / COURSE_FILE
    shown = COURSE_FILE if path.exists() else str(path)
    file = read(path, shown, "the course's title and topics")
    data = file.fit(_CourseFile)
    problems: list[Problem] = []
    seen: set[str] = set()
    for index, entry in enumerate(data.topics):
        key = ("topics", index, "id")
        home = f"assignments/{entry.id}"
        if entry.id in seen:
            problems.append((key, f"'{entry.id}' is listed before; keep one"))
        elif not (folder / home).is_dir():
            text = (
                f"there is no folder {home}; make it, with {TOPIC_FILE} in it, or remove the topic"
            )
            problems.append((key, text))
        seen.add(entry.id)
    private = None if data.private is None else folder / data.private
    if private and not private.is_dir():
        text = f"there is no folder {private}; it holds solutions/ and graders/"
        problems.append((("private",), text))
    if problems:
        raise file.error(problems)
    return Course(
        folder,
        data.title,
        data.topics,
        data.tiers,
        data.ungraded,
        private,
        data.feedback,
        data.gpu,
    )


def find_course(start: Path) -> Path:
    """The nearest folder from ``start`` upwards with a course.yaml; CourseError if none has it."""
    start = _absolute(start)
    for folder in (start, *start.parents):
        if (folder / COURSE_FILE).is_file():
            return folder
    raise CourseError(f"{start}: no {COURSE_FILE} here or in a folder above; go to a course first")


def load_topic(folder: Path) -> Topic:
    """Read ``folder``/assignment.yaml, in a course or alone. Raises CourseError."""
    folder = _absolute(folder)
    try:
        root = find_course(folder)
    except CourseError:
        root = None
    path = folder / TOPIC_FILE
    file = read(path, _shown(path, root), "the topic's title, files, rubric and calls")
    data = file.fit(_TopicFile)
    questions = load_questions(folder / QUESTIONS_FILE, _shown(folder / QUESTIONS_FILE, root))
    rubric = {id: Item(id=id, **dict(entry)) for id, entry in data.rubric.items()}
    for name, asked in questions.items():
        id = f"{QUESTIONS}.{name}"
        rubric[id] = Item(id=id, title=asked.title, points=asked.points, tier=asked.tier)
    twin = None
    if data.twin is not None:
        twin = Twin(data.twin.file, as_calls(data.twin.calls), data.twin.forbid)
    return Topic(
        id=folder.name,
        folder=folder,
        title=data.title,
        hours=data.hours,
        files=data.files,
        given=_given(folder, data.given, root),
        worker=data.worker,
        rubric=Frozen(rubric),
        parts=tuple(_parts(data.parts, list(rubric))),
        calls=as_calls(data.calls),
        limits=data.limits,
        policy=data.policy,
        twin=twin,
        questions=questions,
    )


def _parts(parts: Sequence[PartEntry], ids: Sequence[str]) -> Iterator[Part]:
    for part in parts:
        end = len(ids) if part.until is None else ids.index(part.until) + 1
        yield Part(part.title, tuple(ids[:end]))
        ids = ids[end:]


def _given(folder: Path, names: Sequence[str], root: Path | None) -> Mapping[str, str]:
    texts: dict[str, str] = {}
    for name in names:
        shown = _shown(folder / name, root)
        try:
            texts[name] = (folder / name).read_text(encoding="utf-8")
        except OSError as error:
            said = f"{error.strerror}; {TOPIC_FILE} lists it under 'given'"
            raise CourseError(f"{shown}: {said}") from None
        except UnicodeDecodeError as error:
            raise CourseError(
                f"{shown}: not UTF-8 at byte {error.start}; save it as UTF-8"
            ) from None
    return texts


def _shown(path: Path, root: Path | None) -> str:
    """A path as errors give it: inside the course relative to it, with slashes everywhere."""
    return path.relative_to(root).as_posix() if root and path.is_relative_to(root) else str(path)


def _absolute(path: Path) -> Path:
    """The path from the root, without "..": a topic's folder gives the topic its id."""
    # Links stay where they can: a linked folder goes by the name it has in the course.
    path = path.absolute()
    return path.resolve() if ".." in path.parts else path
