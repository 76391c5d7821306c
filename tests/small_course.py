"""A course of one small topic, written into a folder: what a rule of grading needs and no more."""

from __future__ import annotations

from pathlib import Path

from softmark.course import load_course
from softmark.intake import Submission
from softmark.result import ItemResult, Result
from softmark.session import Session

TOPIC = "00_small"
TWIN = "# the twin\n"
"""What stands below this line is about the twin."""

FILES = {
    "course.yaml": """
title: A small course
topics:
  - id: 00_small
""",
    "assignments/00_small/assignment.yaml": """
title: Steps
hours: 1
files: [small.py, small_torch.py]
calls:
  step: {y: "array (N)"}
  steps: {y: "array (N)"}
rubric:
  step.values: {title: one step, points: 2}
  steps.values: {title: many steps, points: 4, follow_through: 0.5}
  steps.quiet: {title: no warning, points: 1}
# the twin
  twin.values: {title: the twin, points: 1, tier: extension}
twin:
  file: small_torch.py
  calls: {step_torch: {y: "array (N)"}}
  forbid: {torch.nn.Linear: write the product yourself}
""",
    "assignments/00_small/questions.yaml": """
questions:
  doubled:
    title: twice three
    ask: What is twice three?
    points: 1
    number: {within: 0.01}
  colour:
    title: the colour
    ask: Which one?
    points: 1
    choices: {a: red, b: green}
""",
    "solutions/00_small/answers.yaml": "doubled: 6\ncolour: b\n",
    "solutions/00_small/small.py": """
import numpy as np

def step(x):
    # BEGIN SOLUTION
    return 2 * x + 1
    # END SOLUTION

def steps(x, n):
    # BEGIN SOLUTION
    for _ in range(n):
        x = step(x)
    return x
    # END SOLUTION
""",
    "solutions/00_small/small_torch.py": """
def step_torch(x):
    # BEGIN SOLUTION
    return 2 * x + 1
    # END SOLUTION
""",
    "solutions/00_small/mistakes.yaml": """
mistakes:
  one_forgotten:
    task: step
    file: small.py
    replace: return 2 * x + 1
    with: return 2 * x
    hint: Something is to be added at the end.
    loses: [step.values, steps.values, steps.quiet]
  one_step_too_many:
    task: steps
    file: small.py
    replace: "for _ in range(n):"
    with: "for _ in range(n + 1):"
    hint: Count the steps.
    loses: [steps.values, steps.quiet]
# the twin
  twin_halves:
    task: step_torch
    file: small_torch.py
    replace: return 2 * x + 1
    with: return x / 2 + 1
    hint: The twin takes the same step.
    loses: [twin.values]
""",
    "autograder/graders/00_small/test_small.py": """
import numpy as np
from softmark.plugin import item


@item("step.values")
def test_step(script, agree, draw):
    run = script()
    run.call("step", draw(4))
    agree(run)


@item("steps.values", depends="step.values")
def test_steps(script, agree, draw):
    run = script()
    run.call("steps", draw(4), 3)
    agree(run)


@item("steps.values", depends="step.values", follow_through=True)
def test_steps_given_ones_own_step(script, student, draw):
    run = script()
    x = draw(4)
    first = run.call("step", x)
    second = run.call("step", first)
    many = run.call("steps", x, 2)
    trace = student(run)
    assert np.ptp(trace[first]) > 0, "step is the same for every x."
    assert np.allclose(trace[second], trace[many]), "steps is not step after step."


@item("steps.quiet", requires="steps.values", claim=True)
def test_quiet(script, student, draw):
    run = script()
    run.call("steps", draw(4), 2)
    assert not student(run).warnings, "steps warns."


# the twin
@item("twin.values")
def test_twin(twin, agree, draw):
    run = twin()
    run.call("step_torch", draw(4))
    agree(run)
""",
}


def write_course(folder: Path, twin: bool = True) -> Path:
    """Write the course into ``folder``; without the twin nothing of it needs PyTorch."""
    files = dict(FILES)
    if not twin:
        del files["solutions/00_small/small_torch.py"]
        for name in files:
            files[name] = files[name].replace(", small_torch.py]", "]").split(TWIN)[0]
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"), encoding="utf-8")
    return folder


def session(folder: Path) -> Session:
    """A grading process for its topic."""
    from softmark.bench import isolate

    course = load_course(folder)
    return Session(course, course.topic(TOPIC), 7, isolate(course, TOPIC))


def solution(folder: Path, *changes: tuple[str, str], twin: bool = False) -> dict[str, str]:
    """The reference's files with parts of small.py replaced, with or without the twin, and the
    right answers."""
    place = folder / "solutions" / TOPIC
    names = ["small.py", "answers.yaml", *(["small_torch.py"] if twin else [])]
    files = {name: (place / name).read_text(encoding="utf-8") for name in names}
    for old, new in changes:
        assert files["small.py"].count(old) == 1
        files["small.py"] = files["small.py"].replace(old, new)
    return files


def grade(grading: Session, files: dict[str, str], quick: bool = False) -> Result:
    return grading.grade(Submission("one", files, "ready", "", (), "digest"), quick)


def items(result: Result) -> dict[str, ItemResult]:
    return {item.id: item for item in result.items}
