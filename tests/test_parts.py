"""A topic that is handed in in parts: what each of them is, and what it adds to the score."""

from __future__ import annotations

import csv
import json

import pytest
from small_course import TOPIC, write_course
from softmark.builders.rubric import rubric_table
from softmark.cli import app
from softmark.course import CourseError, load_course
from softmark.result import ItemResult, total, totals_of_parts
from typer.testing import CliRunner

PARTS = 'parts: [{title: "First steps", until: step.values}, {title: "The rest"}]\n'


@pytest.fixture
def course(tmp_path):
    write_course(tmp_path)
    path = tmp_path / "assignments" / TOPIC / "assignment.yaml"
    path.write_text(path.read_text() + PARTS)
    return tmp_path


def put(course, file, old, new):
    path = course / file
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))


def test_the_items_of_each_part(course):
    first, rest = load_course(course).topic(TOPIC).parts
    assert (first.title, first.items) == ("First steps", ("step.values",))
    assert rest.items[0] == "steps.values"
    assert rest.items[-1] == "questions.colour"


def test_a_date_for_each_part(course):
    put(course, "course.yaml", TOPIC, f"{TOPIC}\n    parts_due: [2030-01-02, 2030-02-01]")
    (entry,) = load_course(course).topics
    assert (str(entry.due), len(entry.parts_due)) == ("2030-02-01", 2)
    assert len(load_course(course).topic(TOPIC).parts) == 2


@pytest.mark.parametrize(
    "line, said",
    [
        ("parts_due: [2030-01-02]", "parts_due has 1 dates and the topic 2 parts"),
        ("parts_due: [2030-02-01, 2030-01-02]", "2030-01-02 is not after 2030-02-01"),
        ("parts_due: [2030-01-02, 2030-02-01]\n    due: 2030-02-01", "drop one of the two"),
        ("parts_due: [2030-01-02, 2030-02-01]\n    opens: 2030-03-01", "is before it opens"),
    ],
)
def test_dates_that_do_not_fit(course, line, said):
    put(course, "course.yaml", TOPIC, f"{TOPIC}\n    {line}")
    with pytest.raises(CourseError, match=said):
        load_course(course).topic(TOPIC)


@pytest.mark.parametrize(
    "parts, said",
    [
        ("[{title: All}]", "has one part"),
        ("[{title: A, until: step.value}, {title: B}]", "did you mean 'step.values'?"),
        ("[{title: A}, {title: B}]", "must be the id of a core item"),
        ("[{title: A, until: step.values}, {title: B, until: steps.quiet}]", "drop this"),
        (
            "[{title: A, until: steps.quiet}, {title: B, until: step.values}, {title: C}]",
            "must be the id of a core item",
        ),
    ],
)
def test_parts_that_cannot_be(course, parts, said):
    put(course, f"assignments/{TOPIC}/assignment.yaml", PARTS, f"parts: {parts}\n")
    with pytest.raises(CourseError, match=r"assignment.yaml:\d+: parts") as error:
        load_course(course).topic(TOPIC)
    assert said in str(error.value)


def items_of(topic, earned):
    return [
        ItemResult(
            id=item.id,
            title=item.title,
            tier=item.tier,
            score=earned.get(item.id, item.points),
            max_score=item.points,
            status="passed",
        )
        for item in topic.rubric.values()
    ]


@pytest.mark.parametrize("ungraded", ["hold", "renormalise"])
def test_the_parts_add_up_to_the_score(course, ungraded):
    put(course, "course.yaml", "title:", f"ungraded: {ungraded}\ntiers: {{extension: 0.5}}\ntitle:")
    opened = load_course(course)
    topic = opened.topic(TOPIC)
    for earned in ({}, {"step.values": 0.5}, {"steps.values": 1.0, "steps.quiet": 0.0}):
        items = items_of(topic, earned)
        parts = totals_of_parts(opened, topic, items)
        assert sum(part.score for part in parts) == pytest.approx(total(opened, topic, items))
        assert sum(part.max_score for part in parts) == topic.max_score


def test_what_was_not_measured_holds_its_own_part(course):
    opened = load_course(course)
    topic = opened.topic(TOPIC)
    items = items_of(topic, {"steps.quiet": None})
    assert total(opened, topic, items) is None
    assert [part.score for part in totals_of_parts(opened, topic, items)] == [2.0, None]


def test_grading_says_what_each_part_earns(course, tmp_path):
    submission = tmp_path / "in" / "small.py"
    submission.parent.mkdir()
    source = (course / "solutions" / TOPIC / "small.py").read_text()
    submission.write_text(source.replace("range(n)", "range(n + 1)"))
    out = tmp_path / "out"
    options = ["--topic", TOPIC, "--course", str(course), "--out", str(out), "--workers", "1"]
    done = CliRunner().invoke(app, ["grade", str(submission), *options])
    assert done.exit_code == 0, done.output
    assert "part 1 of 2" in done.output
    (row,) = csv.DictReader((out / "scores.csv").read_text().splitlines())
    assert row["First steps"] == "2"
    assert float(row["First steps"]) + float(row["The rest"]) == float(row["score"])
    parts = json.loads((out / "results" / "small.json").read_text())["parts"]
    assert [part["title"] for part in parts] == ["First steps", "The rest"]


def test_the_handout_names_them(course):
    table = rubric_table(load_course(course).topic(TOPIC)).splitlines()
    at = table.index("| | **part 1: First steps** | | |")
    assert "`step.values`" in table[at + 1]
    assert table[at + 2] == "| | **part 2: The rest** | | |"
