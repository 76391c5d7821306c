"""A student's folder of one topic: where it is, and what is in it to hand in."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from softmark.course import TOPIC_FILE, CourseError, Topic
from softmark.policy import Violation
from softmark.questions import ANSWERS_FILE, parse_answers
from softmark.screen import new_console
from softmark.sourcetext import python_text
from softmark.unpack import RefusedError
from softmark.yamlfile import suggestion

PUBLIC_TESTS = "test_public.py"
TWIN_TESTS = "test_public_torch.py"


class HandInError(Exception):
    """Why nothing was packed to hand in, in words for the student."""


def find_topic_folder(topic: str | None, start: Path) -> Path:
    """The folder to check: ``topic`` below ``start``, or ``start`` itself.

    Raises CourseError where there is no assignment there.
    """
    folder = start if topic is None else start / topic
    if (folder / TOPIC_FILE).exists():
        return folder
    if topic is not None and topic == start.name and (start / TOPIC_FILE).exists():
        return start
    known = sorted(path.parent.name for path in start.glob(f"*/{TOPIC_FILE}"))
    if known:
        near = suggestion(topic, known) if topic else ""
        asked = f"there is no assignment in {topic}; " if topic else ""
        raise CourseError(f"{asked}say which folder: {', '.join(known)}{near}")
    raise CourseError(
        f"no {TOPIC_FILE} in {folder}; go to the folder of a topic, the one with handout.md"
    )


def missing(topic: Topic, name: str) -> str:
    """As in: There is no lstm.py in my_lstm (here: lstm (1).py)."""
    stem = Path(name).stem.lower()
    known = {PUBLIC_TESTS, TWIN_TESTS, *topic.handed_in}
    there = [path.name for path in sorted(topic.folder.iterdir()) if path.name not in known]
    like = [n for n in there if n.endswith(".py") or (stem in n.lower() and n[-4:] != ".zip")]
    found = f" (here: {', '.join(like)})" if like else ""
    return f"There is no {name} in {topic.folder}{found}."


def violated(topic: Topic, found: Violation) -> str:
    """A forbidden name, the reason, and what it costs."""
    said = f"{found.file}, line {found.line} uses {found.name}: {found.reason}."
    if topic.policy.action == "flag":
        return f"{said} A person will look at it."
    whole = topic.twin is None or found.file != topic.twin.file
    return f"{said} Nothing {'' if whole else 'of this file '}would be graded."


@dataclass(frozen=True, slots=True)
class Answers:
    """How far a student's answers.yaml is; never whether an answer is right."""

    answered: int
    total: int
    problems: tuple[str, ...]
    """What cannot be graded as it stands, a sentence each."""

    def __str__(self) -> str:
        return f"{self.answered} of {self.total} questions answered"


def read_answers(topic: Topic, text: str) -> Answers:
    """Read the text of an answers.yaml."""
    answers, problem = parse_answers(text)
    problems = [problem] if problem else []
    for name in answers.keys() - topic.questions.keys():
        near = suggestion(name, topic.questions)
        problems.append(f"{name} is no question of this topic{near}")
    unfit = {name: q.unfit(answers[name]) for name, q in topic.questions.items() if name in answers}
    problems += [f"{name}: {said}" for name, said in unfit.items() if said]
    answered = sum(not said for said in unfit.values())
    return Answers(answered, len(topic.questions), tuple(sorted(problems)))


def find_answers(topic: Topic) -> Answers | None:
    """Those in the topic's folder; None where the topic has no questions."""
    if not topic.questions:
        return None
    try:
        text = python_text(ANSWERS_FILE, (topic.folder / ANSWERS_FILE).read_bytes())
    except FileNotFoundError:
        return Answers(0, len(topic.questions), (f"there is no {ANSWERS_FILE} in {topic.folder}",))
    except RefusedError as refused:
        return Answers(0, len(topic.questions), (str(refused),))
    return read_answers(topic, text)


def student_console() -> Console:
    """A console that prints something for every character, whatever it is connected to."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a pipe on Windows may hold no more than cp1252
    return new_console()
