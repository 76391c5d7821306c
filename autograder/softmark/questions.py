"""Short questions with a number or a choice for an answer, and what the student's answers earn.

``questions.yaml`` is public, the right ``answers.yaml`` is not; the student fills in a file of the
same name, made blank by ``blank_answers``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, model_validator

from softmark.unpack import shown
from softmark.yamlfile import Frozen, Problem, Strict, Text, is_identifier, read

QUESTIONS = "questions"
QUESTIONS_FILE = "questions.yaml"
ANSWERS_FILE = "answers.yaml"
_MOST_TEXT, _MOST_BRACKETS = 20_000, 100

Tier = Literal["core", "extension", "bonus"]


class Number(Strict):
    """An answer that is a number."""

    unit: str = ""
    within: float = Field(gt=0, le=0.5, description="the relative error that is accepted")


class Question(Strict):
    """One question of questions.yaml, under its name."""

    title: Text = Field(description="what it is about, for the rubric")
    ask: Text = Field(description="the question")
    points: float = Field(gt=0, description="what it is worth, a number")
    tier: Tier = "core"
    number: Number | None = None
    choices: Mapping[Text, Text] = Frozen({})

    @model_validator(mode="after")
    def _number_or_choices(self) -> Question:
        if (self.number is None) == (not self.choices):
            raise ValueError("needs either 'number: {within: 0.01}' or 'choices: {a: ..., b: ...}'")
        if len(self.choices) == 1:
            raise ValueError("has one choice only; give two or more")
        return self

    def unfit(self, answer: str) -> str:
        """What keeps ``answer`` from being one; "" where nothing does."""
        if self.choices:
            allowed = ", ".join(self.choices)
            known = _choice(answer) in map(_choice, self.choices)
            return "" if known else f"'{shown(answer[:40])}' is none of {allowed}"
        if _number(answer) is not None:
            return ""
        given = shown(answer[:40])
        return f"'{given}' is not a number: write it as 1200 or 0.57, with a point and no unit"

    def right(self, answer: str, expected: str) -> bool:
        """Whether ``answer`` is accepted where ``expected`` is right."""
        if self.number is None:
            return _choice(answer) == _choice(expected)
        given, wanted = _number(answer), _number(expected)
        assert wanted is not None
        return given is not None and abs(given - wanted) <= self.number.within * abs(wanted)


class _QuestionsFile(Strict):
    questions: Mapping[str, Question] = Field(description="the questions, by name")


def load_questions(path: Path, shown: str) -> Mapping[str, Question]:
    """A topic's questions; none where it has no such file. Raises CourseError."""
    if not path.exists():
        return Frozen({})
    file = read(path, shown, "the topic's short questions")
    questions = file.fit(_QuestionsFile).questions
    problems: list[Problem] = [
        (("questions", name), "must be a name such as forget_bias, in lower case")
        for name in questions
        if not is_identifier(name) or name != name.lower()
    ]
    if problems:
        raise file.error(problems)
    return Frozen(questions)


def load_answers(path: Path, shown: str, questions: Mapping[str, Question]) -> Mapping[str, str]:
    """The right answers, one for each question. Raises CourseError."""
    file = read(path, shown, "the right answers to questions.yaml")
    answers, problem = parse_answers(path.read_text(encoding="utf-8"))
    problems: list[Problem] = [((), problem)] if problem else []
    problems += [((name,), "is no question") for name in answers if name not in questions]
    for name, question in questions.items():
        unfit = question.unfit(answers[name]) if name in answers else "has no answer here"
        if unfit:
            problems.append(((name,) if name in answers else (), f"{name}: {unfit}"))
    if problems:
        raise file.error(problems)
    return answers


def parse_answers(text: str) -> tuple[dict[str, str], str]:
    """The answers in the text of an answers.yaml by name, as text; and what is wrong with it.

    Never raises: the text is a student's. Where it is not YAML, the lines that are still count.
    """
    if len(text) > _MOST_TEXT:
        return {}, f"{ANSWERS_FILE} is far too long; a line for each question is enough"
    try:
        if text.count("[") + text.count("{") > _MOST_BRACKETS:
            raise ValueError  # to read YAML that is so deep takes seconds
        node = yaml.compose(
            text, Loader=yaml.BaseLoader
        )  # nothing is made of it: no types, no objects
    except (yaml.YAMLError, ValueError, RecursionError):
        pairs = _LINE.findall(text)
        if not pairs:
            return {}, f"{ANSWERS_FILE} is not YAML. Write 'name: answer', one a line"
    else:
        if node is None:
            return {}, ""
        if not isinstance(node, yaml.MappingNode):
            return {}, f"{ANSWERS_FILE} holds no names. Write 'name: answer', one a line"
        pairs = [(str(key.value), _shown(value, text)) for key, value in node.value]
    answers: dict[str, str] = {}
    for name, answer in pairs:
        key, answer = name.strip().casefold(), answer.strip()
        if answer:  # of two that differ neither is meant
            known = answers.get(key, answer)
            answers[key] = answer if known == answer else f"{known} and {answer}"
    return answers, ""


_LINE = re.compile(r"^[ \t]*(\w+)[ \t]*:[ \t]*([^#\n]*)", re.MULTILINE)


def _shown(node: yaml.Node, text: str) -> str:
    """An answer as it stands in the text, without quotes."""
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    return text[node.start_mark.index : node.end_mark.index][:100]


def mark(name: str, question: Question, answers: Mapping[str, str], expected: str) -> str:
    """What is wrong with the answer to one question, for the student; "" if it is right."""
    answer = answers.get(name)
    if answer is None:
        return f"No answer to {name} in {ANSWERS_FILE} yet."
    unfit = question.unfit(answer)
    if unfit:
        return f"The answer to {name} cannot be graded: {unfit}."
    return "" if question.right(answer, expected) else f"The answer to {name} is not right."


def blank_answers(questions: Mapping[str, Question]) -> str:
    """The answers.yaml that students fill in."""
    lines = ["# Your answers to questions.yaml: a number, or the letter of a choice.", ""]
    for name, question in questions.items():
        lines += [f"# {question.title}"]
        if question.number is not None:
            unit = f" in {question.number.unit}" if question.number.unit else ""
            lines.append(f"# a number{unit}, within {100 * question.number.within:g} %")
        else:
            lines.append(f"# one of {', '.join(question.choices)}")
        lines += [f"{name}:", ""]
    return "\n".join(lines)


def _choice(text: str) -> str:
    """A choice without what people put around it: (B) is b."""
    return text.strip("()[]. \t").casefold()


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
