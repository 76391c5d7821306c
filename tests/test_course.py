"""course.yaml and assignment.yaml: what good ones give, and one clear line for every bad one."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pydantic
import pytest
from softmark.course import CourseError, find_course, load_course, load_topic
from softmark.script import Output, Script

COURSE = """\
# A course.
title: A course
topics:
  - id: 02_lstm
    opens: 2026-10-05
    due: 2026-10-19
  - id: 03_gru
tiers:
  extension: 0.2
ungraded: renormalise
"""

TOPIC = """\
# A topic.
title: "LSTM"
hours: 6
files: [lstm.py, extra.py]
worker: torch
rubric:
  step.forward:
    title: One step
    points: 5
  step.masks: {title: Masks, points: 2.5, tier: extension}
calls:
  sigmoid: {s: array}
  Cell: {}
  Cell.params:
    params:
      kind: dict
      entries:
        W: {axes: [D + H, 4 H], blocks: {1: [f, i, c, o]}}
        b: "array (4 H,)"
  Cell.forward: {h: "array (N, H)", cache: private}
limits:
  call_seconds: 3
  memory_mb: 512
policy:
  action: flag
  forbid:
    torch.nn.LSTM: write the recurrence yourself
"""

TOPIC_FILE = "assignments/02_lstm/assignment.yaml"


@pytest.fixture
def course(tmp_path: Path) -> Path:
    for topic in ("02_lstm", "03_gru"):
        (tmp_path / "assignments" / topic).mkdir(parents=True)
        (tmp_path / "assignments" / topic / "assignment.yaml").write_text(TOPIC)
    (tmp_path / "course.yaml").write_text(COURSE)
    return tmp_path


def failure(course: Path) -> str:
    with pytest.raises(CourseError) as caught:
        load_course(course).topic("02_lstm")
    return str(caught.value)


# --- good files --------------------------------------------------------------------------------


def test_a_course(course):
    loaded = load_course(course)
    assert (loaded.folder, loaded.title, loaded.ungraded) == (course, "A course", "renormalise")
    assert [topic.id for topic in loaded.topics] == ["02_lstm", "03_gru"]
    assert loaded.topics[0].opens == date(2026, 10, 5)
    assert loaded.topics[0].due == date(2026, 10, 19)
    assert loaded.topics[1].due is None
    assert (loaded.tiers.extension, loaded.tiers.bonus) == (0.2, 0.05)


def test_feedback_of_a_course(course):
    feedback = load_course(course).feedback
    assert (feedback.before_due, feedback.after_due) == ("messages", "hints")
    assert feedback.runs_a_day == 5
    (course / "course.yaml").write_text(COURSE + "feedback: {before_due: total, runs_a_day: 0}\n")
    feedback = load_course(course).feedback
    assert (feedback.before_due, feedback.after_due) == ("total", "hints")
    assert feedback.runs_a_day == 0


def test_a_topic(course):
    topic = load_course(course).topic("02_lstm")
    assert (topic.id, topic.title, topic.hours, topic.worker) == ("02_lstm", "LSTM", 6.0, "torch")
    assert topic.folder == course / "assignments" / "02_lstm"
    assert (topic.files, topic.module) == (("lstm.py", "extra.py"), "lstm")
    assert list(topic.rubric) == ["step.forward", "step.masks"]
    item = topic.rubric["step.masks"]
    assert (item.id, item.title, item.points, item.tier) == (
        "step.masks",
        "Masks",
        2.5,
        "extension",
    )
    assert topic.rubric["step.forward"].tier == "core"
    assert topic.max_score == 5
    assert topic.limits.call_seconds == 3
    assert topic.limits.memory_mb == 512
    assert topic.limits.call_factor == 20
    assert topic.policy.action == "flag"
    assert topic.policy.forbid == {"torch.nn.LSTM": "write the recurrence yourself"}


def test_calls_become_outputs(course):
    calls = load_course(course).topic("02_lstm").calls
    assert list(calls) == ["sigmoid", "Cell", "Cell.params", "Cell.forward"]
    assert calls["sigmoid"] == (Output("s", "array"),)
    assert calls["Cell"] == ()
    assert calls["Cell.forward"] == (Output("h", "array", ("N", "H")), Output("cache", "private"))
    weights = Output("W", "array", ("D + H", "4 H"), {1: ("f", "i", "c", "o")})
    (params,) = calls["Cell.params"]
    assert (params.name, params.kind) == ("params", "dict")
    assert params.entries == {"W": weights, "b": Output("b", "array", ("4 H",))}


def test_calls_serve_a_script(course):
    run = Script(load_course(course).topic("02_lstm").calls)
    cell = run.new("Cell")
    h, _cache = cell.forward(1)
    params = run.read(cell.params)
    assert [handle for _, handle, _ in run.outputs()] == [h, params]


def test_an_alias_repeats_what_it_names(course):
    text = TOPIC.replace("      kind: dict", "      &all\n      kind: dict")
    (course / TOPIC_FILE).write_text(text + "\n")
    text = text.replace("  Cell.forward:", "  Cell.grads: {grads: *all}\n  Cell.forward:")
    (course / TOPIC_FILE).write_text(text)
    calls = load_course(course).topic("02_lstm").calls
    assert calls["Cell.grads"][0].entries == calls["Cell.params"][0].entries


def test_nothing_changes_a_course_or_a_topic(course):
    loaded = load_course(course)
    topic = loaded.topic("02_lstm")
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.title = "Another"
    with pytest.raises(dataclasses.FrozenInstanceError):
        topic.title = "Another"
    with pytest.raises(pydantic.ValidationError):
        topic.rubric["step.forward"].points = 100
    with pytest.raises(pydantic.ValidationError):
        topic.limits.memory_mb = 100_000
    (params,) = topic.calls["Cell.params"]
    for mapping in (
        topic.rubric,
        topic.calls,
        topic.policy.forbid,
        params.entries,
        params.entries["W"].blocks,
    ):
        with pytest.raises(TypeError):
            mapping["x"] = None


def test_courses_and_topics_can_be_sent_to_other_processes(course):
    loaded = load_course(course)
    topic = loaded.topic("02_lstm")
    assert pickle.loads(pickle.dumps(loaded)) == loaded
    assert pickle.loads(pickle.dumps(topic)) == topic


def test_a_student_has_a_topic_and_no_course(course):
    (course / "course.yaml").unlink()
    folder = course / "assignments" / "02_lstm"
    assert load_topic(folder).id == "02_lstm"
    (folder / "assignment.yaml").write_text(TOPIC.replace("points: 5", "points: 0"))
    with pytest.raises(CourseError) as caught:
        load_topic(folder)
    assert str(caught.value).startswith(f"{folder / 'assignment.yaml'}:9: rubric.step.forward.")


def test_a_topic_is_known_by_its_folder_however_it_is_reached(course, monkeypatch):
    monkeypatch.chdir(course / "assignments" / "02_lstm")
    assert load_topic(Path()).id == "02_lstm"
    assert load_topic(Path("../03_gru")).id == "03_gru"
    (course / TOPIC_FILE).write_text(TOPIC + "more: 1\n")
    with pytest.raises(CourseError) as caught:
        load_topic(Path("../02_lstm"))
    assert str(caught.value).startswith(f"{TOPIC_FILE}:28: more: ")


def test_a_bad_topic_does_not_stop_the_others(course):
    (course / TOPIC_FILE).write_text("title: 5\n")
    assert load_course(course).topic("03_gru").id == "03_gru"


def test_the_course_of_a_folder_or_file(course):
    assert find_course(course) == course
    assert find_course(course / "assignments" / "02_lstm") == course
    assert find_course(course / TOPIC_FILE) == course


def test_no_course_anywhere(tmp_path):
    with pytest.raises(CourseError, match=r"no course\.yaml here or in a folder above"):
        find_course(tmp_path)


def test_an_unknown_topic(course):
    loaded = load_course(course)
    for ask in (loaded.topic, loaded.solution, loaded.graders):
        with pytest.raises(CourseError) as caught:
            ask("02_lstn")
        for part in ("course.yaml: topics: ", "'02_lstn'", "mean '02_lstm'?", "02_lstm, 03_gru"):
            assert part in str(caught.value)


@pytest.mark.parametrize(
    "private, solution, graders",
    [
        (None, "solutions/02_lstm", "autograder/graders/02_lstm"),
        ("keep", "keep/solutions/02_lstm", "keep/graders/02_lstm"),
    ],
)
def test_the_private_half(course, private, solution, graders):
    if private:
        (course / private).mkdir()
        (course / "course.yaml").write_text(COURSE + f"private: {private}\n")
    loaded = load_course(course)
    for ask, home in ((loaded.solution, solution), (loaded.graders, graders)):
        with pytest.raises(CourseError) as caught:
            ask("02_lstm")
        assert str(caught.value).startswith(f"{home}: no such folder; ")
        (course / home).mkdir(parents=True)
        assert ask("02_lstm") == course / home


def test_the_course_kept_here():
    root = Path(__file__).parents[1]
    loaded = load_course(root)
    for entry in loaded.topics:
        topic = loaded.topic(entry.id)
        assert topic.id == entry.id
        assert loaded.solution(topic.id).is_dir()
        assert loaded.graders(topic.id).is_dir()


# --- bad files ---------------------------------------------------------------------------------


class Bad(NamedTuple):
    """A change of a good file, the text of the line at fault, the key, and what must be said."""

    old: str
    new: str
    at: str
    key: str
    says: tuple[str, ...]


IN_COURSE = {
    "unknown key": Bad(
        "ungraded:", "ungradd:", "ungradd", "ungradd", ("unknown key", "did you mean 'ungraded'?")
    ),
    "unknown key, nothing near": Bad(
        "ungraded:", "zzz:", "zzz", "zzz", ("unknown key", "allowed: title, topics, tiers")
    ),
    "title missing": Bad("title: A course\n", "", "topics:", "title", ("missing", "course's name")),
    "title empty": Bad("title: A course", "title:", "title:", "title", ("must be text", "empty")),
    "title blank": Bad("title: A course", "title: ' '", "title:", "title", ("not be blank",)),
    "title a list": Bad(
        "title: A course", "title: [a]", "title:", "title", ("must be text, not a list",)
    ),
    "title a key twice": Bad(
        "title: A course\n",
        "title: A course\ntitle: B\n",
        "title: B",
        "title",
        ("given twice", "line 2", "keep one"),
    ),
    "a date for an id": Bad(
        "id: 02_lstm",
        "id: 2026-09-01",
        "id: 2026-09-01",
        "topics[0].id",
        ("must be text, not the date 2026-09-01", "quotes"),
    ),
    "a number for an id": Bad(
        "id: 02_lstm", "id: 02", "id: 02", "topics[0].id", ("must be text, not 2", "quotes")
    ),
    "an id with a space": Bad(
        "id: 02_lstm",
        "id: 02 lstm",
        "id: 02 lstm",
        "topics[0].id",
        ("'02 lstm'", "such as 02_lstm"),
    ),
    "an id that climbs": Bad(
        "id: 02_lstm", "id: ../x", "id: ../x", "topics[0].id", ("'../x'", "name of a folder")
    ),
    "an id in capitals": Bad(
        "id: 02_lstm", "id: 02_LSTM", "02_LSTM", "topics[0].id", ("'02_LSTM'", "lower-case")
    ),
    "an empty id": Bad(
        "id: 02_lstm", "id: ''", "id: ''", "topics[0].id", ("''", "such as 02_lstm")
    ),
    "a topic that is text": Bad(
        "  - id: 03_gru", "  - 03_gru", "- 03_gru", "topics[1]", ("mapping", "the text '03_gru'")
    ),
    "a topic twice": Bad(
        "id: 03_gru", "id: 02_lstm", "  - id: 02_lstm\nt", "topics[1].id", ("listed before", "keep")
    ),
    "a topic without a folder": Bad(
        "id: 03_gru", "id: 04_more", "04_more", "topics[1].id", ("no folder assignments/04_more",)
    ),
    "a topic without an id": Bad(
        "  - id: 03_gru\n",
        "  - due: 2026-11-01\n",
        "- due: 2026-11-01",
        "topics[1].id",
        ("missing", "assignments/"),
    ),
    "topics not a list": Bad(
        COURSE[COURSE.index("topics:") : COURSE.index("tiers:")],
        "topics: 02_lstm\n",
        "topics:",
        "topics",
        ("must be a list", "the text '02_lstm'"),
    ),
    "no topics": Bad(
        COURSE[COURSE.index("topics:") : COURSE.index("tiers:")],
        "topics: []\n",
        "topics:",
        "topics",
        ("is empty", "at least one"),
    ),
    "a date in quotes": Bad(
        "due: 2026-10-19",
        "due: '2026-10-19'",
        "due:",
        "topics[0].due",
        ("a date such as 2026-09-30, without quotes", "the text '2026-10-19'"),
    ),
    "a date with a time": Bad(
        "due: 2026-10-19",
        "due: 2026-10-19 12:00:00",
        "due:",
        "topics[0].due",
        ("without quotes or a time of day",),
    ),
    "due before it opens": Bad(
        "due: 2026-10-19", "due: 2026-10-04", "due:", "topics[0].due", ("before it opens", "10-05")
    ),
    "an unknown tier": Bad(
        "extension: 0.2", "extensions: 0.2", "extensions", "tiers.extensions", ("mean 'extension'",)
    ),
    "a negative tier": Bad(
        "extension: 0.2", "extension: -0.2", "ion: -", "tiers.extension", ("at least 0", "-0.2")
    ),
    "a tier over 1": Bad(
        "extension: 0.2", "extension: 10", "ion: 10", "tiers.extension", ("at most 1, not 10",)
    ),
    "a tier in per cent": Bad(
        "extension: 0.2", "extension: 20 %", "ion: 20", "tiers.extension", ("a number", "'20 %'")
    ),
    "tiers empty": Bad(
        "tiers:\n  extension: 0.2", "tiers:", "tiers:", "tiers", ("must be a mapping", "not empty")
    ),
    "ungraded unknown": Bad(
        "renormalise", "renormalize", "ungraded:", "ungraded", ("'hold' or 'renormalise'", "mean")
    ),
    "feedback misspelt": Bad(
        "tiers:", "feedback: {before: items}\ntiers:", "before", "feedback.before", ("before_due",)
    ),
    "feedback unknown": Bad(
        "tiers:",
        "feedback:\n  after_due: hint\ntiers:",
        "after_due",
        "feedback.after_due",
        ("'nothing', 'total', 'items', 'messages' or 'hints'", "did you mean 'hints'?"),
    ),
    "fewer answers than none": Bad(
        "tiers:",
        "feedback:\n  runs_a_day: -1\ntiers:",
        "runs_a_day",
        "feedback.runs_a_day",
        ("at least 0", "-1"),
    ),
    "answers not whole": Bad(
        "tiers:",
        "feedback:\n  runs_a_day: 2.5\ntiers:",
        "runs_a_day",
        "feedback.runs_a_day",
        ("whole number",),
    ),
    "private missing": Bad(
        "tiers:", "private: away\ntiers:", "private", "private", ("no folder", "away", "graders/")
    ),
    "private not text": Bad(
        "tiers:", "private: 3\ntiers:", "private", "private", ("must be text, not 3",)
    ),
}

IN_TOPIC = {
    "unknown key": Bad(
        "limits:", "limit:", "limit:", "limit", ("unknown key", "did you mean 'limits'?")
    ),
    "the id, which the folder gives": Bad(
        "hours: 6", "hours: 6\nid: 02_lstm", "id: 02_lstm", "id", ("unknown key", "allowed: title")
    ),
    "hours zero": Bad("hours: 6", "hours: 0", "hours:", "hours", ("must be positive, not 0",)),
    "hours true": Bad("hours: 6", "hours: true", "hours:", "hours", ("a number, not true",)),
    "files missing": Bad(
        "files: [lstm.py, extra.py]\n", "", "title:", "files", ("missing", "[lst")
    ),
    "files text": Bad(
        "[lstm.py, extra.py]", "lstm.py", "files:", "files", ("a list, as in [a, b]", "'lstm.py'")
    ),
    "files empty": Bad("[lstm.py, extra.py]", "[]", "files:", "files", ("at least one",)),
    "a file in a folder": Bad(
        "extra.py]", "a/extra.py]", "files:", "files[1]", ("bare file name", "'a/extra.py'")
    ),
    "a file in a Windows folder": Bad(
        "extra.py]", "a\\extra.py]", "files:", "files[1]", ("bare file name", "without folders")
    ),
    "a file above": Bad("extra.py]", "../x.py]", "files:", "files[1]", ("bare file name",)),
    "a file of another kind": Bad(
        "extra.py]", "extra.ipynb]", "files:", "files[1]", ("end in .py", "'extra.ipynb'")
    ),
    "a file that cannot be imported": Bad(
        "extra.py]", "my-lstm.py]", "files:", "files[1]", ("import", "'my-lstm.py'")
    ),
    "a file twice": Bad(
        "extra.py]", "LSTM.py]", "files:", "files[1]", ("listed before", "'LSTM.py'")
    ),
    "worker unknown": Bad(
        "worker: torch", "worker: pytorch", "worker:", "worker", ("'numpy' or 'torch'", "'torch'?")
    ),
    "points as text": Bad(
        "points: 5",
        "points: '5'",
        "points: '5'",
        "rubric.step.forward.points",
        ("a number, not the text '5'", "without quotes"),
    ),
    "points true": Bad(
        "points: 5", "points: yes", "points: yes", "rubric.step.forward.points", ("not true",)
    ),
    "points negative": Bad(
        "points: 5",
        "points: -1",
        "points: -1",
        "rubric.step.forward.points",
        ("must be positive, not -1",),
    ),
    "points zero": Bad(
        "points: 5", "points: 0", "points: 0", "rubric.step.forward.points", ("positive, not 0",)
    ),
    "points infinite": Bad(
        "points: 5", "points: .inf", "points: .inf", "rubric.step.forward.points", ("finite",)
    ),
    "points missing": Bad(
        "    points: 5\n", "", "step.forward:", "rubric.step.forward.points", ("missing", "worth")
    ),
    "an item's tier": Bad(
        "tier: extension",
        "tier: extensoin",
        "step.masks",
        "rubric.step.masks.tier",
        ("'core', 'extension' or 'bonus'", "not 'extensoin'", "did you mean 'extension'?"),
    ),
    "an item's unknown key": Bad(
        "points: 5",
        "point: 5",
        "point: 5",
        "rubric.step.forward.point",
        ("unknown key", "did you mean 'points'?", "allowed: title, points, tier"),
    ),
    "an item's id, which stands above": Bad(
        "points: 5", "points: 5\n    id: x", "id: x", "rubric.step.forward.id", ("unknown key",)
    ),
    "an item twice": Bad(
        "  step.masks:",
        "  step.forward: {title: x, points: 1}\n  step.masks:",
        "step.forward: {",
        "rubric.step.forward",
        ("given twice", "line 7"),
    ),
    "an item that is a number": Bad(
        "step.masks: {title: Masks, points: 2.5, tier: extension}",
        "step.masks: 5",
        "step.masks: 5",
        "rubric.step.masks",
        ("must be a mapping", "not 5"),
    ),
    "a bad item id": Bad(
        "step.masks:",
        "step..masks:",
        "step..masks",
        "rubric.step..masks",
        ("such as step.forward",),
    ),
    "an item id that YAML reads as a truth": Bad(
        "step.masks:", "on:", "on:", "rubric.on", ("is true in YAML", "write 'on'")
    ),
    "an item id that YAML reads as a date": Bad(
        "step.masks:", "2026-09-01:", "2026", "rubric.2026-09-01", ("date", "write '2026-09-01'")
    ),
    "an item id that is a number": Bad(
        "step.masks:", "7:", "7:", "rubric[7]", ("must be text, not 7", "quotes")
    ),
    "no core item": Bad(
        "    points: 5\n",
        "    points: 5\n    tier: bonus\n",
        "rubric:",
        "rubric",
        ("no core item",),
    ),
    "an unknown limit": Bad(
        "call_seconds: 3",
        "call_second: 3",
        "call_second:",
        "limits.call_second",
        ("did you mean 'call_seconds'?",),
    ),
    "a zero limit": Bad(
        "call_seconds: 3", "call_seconds: 0.0", "s: 0.0", "limits.call_seconds", ("positive",)
    ),
    "a negative limit": Bad(
        "memory_mb: 512", "memory_mb: -1", "mb: -1", "limits.memory_mb", ("positive, not -1",)
    ),
    "a fraction of a megabyte": Bad(
        "memory_mb: 512", "memory_mb: 0.5", "mb:", "limits.memory_mb", ("a whole number, not 0.5",)
    ),
    "a limit with its unit": Bad(
        "memory_mb: 512", "memory_mb: 512 MB", "mb:", "limits.memory_mb", ("whole number", "unit")
    ),
    "a limit that is a truth": Bad(
        "memory_mb: 512", "memory_mb: on", "mb:", "limits.memory_mb", ("a whole number, not true",)
    ),
    "an unknown action": Bad(
        "action: flag", "action: warn", "action:", "policy.action", ("'flag' or 'reject'", "'warn'")
    ),
    "a forbidden name that is none": Bad(
        "torch.nn.LSTM:", "torch nn:", "torch nn", "policy.forbid.torch nn", ("such as torch.nn",)
    ),
    "a forbidden name without a reason": Bad(
        "LSTM: write the recurrence yourself",
        "LSTM:",
        "LSTM:\n",
        "policy.forbid.torch.nn.LSTM",
        ("text", "empty"),
    ),
    "forbidden names as a list": Bad(
        "  forbid:\n    torch.nn.LSTM: write the recurrence yourself",
        "  forbid: [torch.nn.LSTM]",
        "forbid:",
        "policy.forbid",
        ("must be a mapping", "not a list"),
    ),
    "an unknown kind": Bad(
        "{s: array}",
        "{s: arry}",
        "sigmoid",
        "calls.sigmoid.s",
        ("kind must be 'array', 'scalar', 'list', 'dict' or 'private'", "'arry'", "mean 'array'?"),
    ),
    "an unknown kind in full": Bad(
        "kind: dict", "kind: dit", "kind: dit", "calls.Cell.params.params.kind", ("mean 'dict'?",)
    ),
    "an unknown key of an output": Bad(
        'b: "array (4 H,)"',
        "b: {axis: [4 H]}",
        "b:",
        "calls.Cell.params.params.entries.b.axis",
        ("allowed: kind, axes, blocks, entries", "did you mean 'axes'?"),
    ),
    "an open parenthesis": Bad(
        '"array (N, H)"',
        '"array (N, H"',
        "Cell.forward",
        "calls.Cell.forward.h",
        ("'array (N, H)'",),
    ),
    "an empty axis": Bad(
        '"array (N, H)"',
        '"array (N, , H)"',
        "Cell.forward",
        "calls.Cell.forward.h.axes[1]",
        ("an axis such as N, 4 H or D + H",),
    ),
    "axes of a scalar": Bad(
        '"array (N, H)"',
        '"scalar (N)"',
        "Cell.forward",
        "calls.Cell.forward.h.axes",
        ("only an array has axes", "scalar"),
    ),
    "an axis that is a number": Bad(
        "[D + H, 4 H]",
        "[D + H, 4]",
        "W:",
        "calls.Cell.params.params.entries.W.axes[1]",
        ("must be text, not 4", "quotes"),
    ),
    "a block along no axis": Bad(
        "{1: [f",
        "{2: [f",
        "W:",
        "calls.Cell.params.params.entries.W.blocks[2]",
        ("is not an axis", "0 (D + H), 1 (4 H)"),
    ),
    "a block along a negative axis": Bad(
        "{1: [f", "{-1: [f", "W:", "calls.Cell.params.params.entries.W.blocks[-1]", ("not an axis",)
    ),
    "a block along a named axis": Bad(
        "{1: [f",
        "{H: [f",
        "W:",
        "calls.Cell.params.params.entries.W.blocks.H",
        ("a whole number, not the text 'H'",),
    ),
    "blocks without axes": Bad(
        "axes: [D + H, 4 H], ",
        "",
        "W:",
        "calls.Cell.params.params.entries.W.blocks[1]",
        ("no axes are given", "add 'axes'"),
    ),
    "a single block": Bad(
        "[f, i, c, o]",
        "[f]",
        "W:",
        "calls.Cell.params.params.entries.W.blocks[1]",
        ("two or more names",),
    ),
    "a block twice": Bad(
        "[f, i, c, o]",
        "[f, i, c, f]",
        "W:",
        "calls.Cell.params.params.entries.W.blocks[1]",
        ("all different",),
    ),
    "entries of an array": Bad(
        "kind: dict",
        "kind: array",
        "entries:",
        "calls.Cell.params.params.entries",
        ("only a dict has entries", "of kind array", "write 'kind: dict'"),
    ),
    "an entry that is a dict": Bad(
        '"array (4 H,)"',
        "dict",
        "b: dict",
        "calls.Cell.params.params.entries.b",
        ("entries of a dict are arrays", "of kind dict"),
    ),
    "a call without outputs": Bad(
        "Cell: {}", "Cell:", "Cell:\n", "calls.Cell", ("must be a mapping", "not empty")
    ),
    "a call that is no name": Bad(
        "sigmoid:", "sig moid:", "sig moid", "calls.sig moid", ("Class or Class.member",)
    ),
    "a member of a member": Bad(
        "Cell.forward:", "Cell.a.b:", "Cell.a.b", "calls.Cell.a.b", ("Class.member",)
    ),
    "a member of no class": Bad(
        "Cell.forward:",
        "Rnn.forward:",
        "Rnn.forward",
        "calls.Rnn.forward",
        ("class Rnn is not listed", "add 'Rnn: {}'"),
    ),
    "a member of a misspelt class": Bad(
        "Cell.forward:", "Cel.forward:", "Cel.f", "calls.Cel.forward", ("did you mean 'Cell'?",)
    ),
    "a key deep inside twice": Bad(
        "kind: dict\n",
        "kind: dict\n      kind: dict\n",
        "      kind: dict\n      e",
        "calls.Cell.params.params.kind",
        ("given twice",),
    ),
}


def line_of(text: str, fragment: str) -> int:
    return text[: text.index(fragment)].count("\n") + 1


@pytest.mark.parametrize("bad", IN_COURSE.values(), ids=IN_COURSE.keys())
def test_a_bad_course_file(course, bad):
    check(course, "course.yaml", COURSE, bad)


@pytest.mark.parametrize("bad", IN_TOPIC.values(), ids=IN_TOPIC.keys())
def test_a_bad_topic_file(course, bad):
    check(course, TOPIC_FILE, TOPIC, bad)


def check(course: Path, file: str, good: str, bad: Bad) -> None:
    assert good.count(bad.old) == 1, "the case must change one place"
    text = good.replace(bad.old, bad.new)
    (course / file).write_text(text)
    said = failure(course)
    line = line_of(text, bad.at)
    assert said.startswith(f"{file}:{line}: {bad.key}: ")
    for part in bad.says:
        assert part in said.splitlines()[0]
    assert "\n" not in said


BROKEN = {
    "a bracket left open": (b"title: [a\nhours: 6\n", 2, ("not valid YAML", "begins in line 1")),
    "a quote left open": (
        b'a: 1\ntitle: "LSTM\n',
        3,
        ("not valid YAML", "quoted scalar", "line 2"),
    ),
    "a tab": (b"title: x\nlimits:\n\tmemory_mb: 1\n", 3, ("not valid YAML", "use spaces")),
    "two documents": (b"title: x\n---\ntitle: y\n", 2, ("not valid YAML", "another document")),
    "an unknown anchor": (b"title: x\nrubric: *all\n", 2, ("not valid YAML", "undefined alias")),
    "an object": (b"title: x\nhours: !!python/object:os.x {}\n", 2, ("only plain mappings",)),
    "a tag": (b"title: x\nhours: !mine 3\n", 2, ("not valid YAML", "!mine")),
    "a set": (b"title: x\nrubric: !!set {a}\n", 2, ("only plain mappings",)),
    "a list as a key": (b"title: x\n[a, b]: 3\n", 2, ("keys must be text",)),
    "a month too many": (b"title: x\nhours: 2026-13-01\n", 2, ("2026-13-01", "quotes")),
    "a control character": (b"title: x\nhours: \x07\n", 2, ("U+0007", "delete it")),
    "an alias of itself": (b"title: &a [*a]\n", 1, ("contains itself",)),
    "empty": (b"", 1, ("empty", "should hold")),
    "comments only": (b"# title: x\n\n", 1, ("empty", "should hold")),
    "a list": (b"# x\n- title: x\n", 2, ("must hold a mapping", "not a list")),
    "text": (b"title\n", 1, ("must hold a mapping", "the text 'title'")),
    "Latin-1": ("title: x\ntitle: für\n".encode("latin-1"), 2, ("0xfc is not UTF-8", "as UTF-8")),
    "UTF-16": ("title: x\n".encode("utf-16"), 1, ("not UTF-8", "save the file as UTF-8")),
}


@pytest.mark.parametrize("file", ["course.yaml", TOPIC_FILE])
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_file_that_is_not_a_yaml_mapping(course, file, broken):
    content, line, says = broken
    (course / file).write_bytes(content)
    said = failure(course)
    assert said.startswith(f"{file}:{line}: ")
    for part in says:
        assert part in said
    assert "\n" not in said


def test_a_byte_order_mark_is_no_fault(course):
    (course / "course.yaml").write_bytes(b"\xef\xbb\xbf" + COURSE.encode())
    assert load_course(course).title == "A course"


def test_a_missing_course_file(tmp_path):
    said = failure(tmp_path / "nowhere")
    assert said.startswith(f"{tmp_path / 'nowhere' / 'course.yaml'}: no such file; ")
    assert "title and topics" in said


def test_a_missing_topic_file(course):
    (course / TOPIC_FILE).unlink()
    said = failure(course)
    assert said.startswith(f"{TOPIC_FILE}: no such file; ")
    assert "rubric" in said


@pytest.mark.parametrize("file", ["course.yaml", TOPIC_FILE])
def test_a_folder_in_place_of_a_file(course, file):
    (course / file).unlink()
    (course / file).mkdir()
    assert failure(course).startswith(f"{file}: cannot be read (")


def test_every_problem_has_its_line_in_the_order_of_the_file(course):
    text = TOPIC.replace("hours: 6\n", "") + "hours: x\n"
    text = text.replace("points: 5", "points: -5").replace("memory_mb: 512", "memory: 512")
    (course / TOPIC_FILE).write_text(text.replace("{s: array}", "{s: tensor}"))
    said = [line.split(": ") for line in failure(course).splitlines()]
    assert [(place, key) for place, key, *_ in said] == [
        (f"{TOPIC_FILE}:8", "rubric.step.forward.points"),
        (f"{TOPIC_FILE}:11", "calls.sigmoid.s"),
        (f"{TOPIC_FILE}:22", "limits.memory"),
        (f"{TOPIC_FILE}:27", "hours"),
    ]


def test_text_over_several_lines_stays_in_one(course):
    (course / "course.yaml").write_text(COURSE.replace("id: 02_lstm", 'id: "a\\nb"'))
    said = failure(course)
    assert said.startswith("course.yaml:4: topics[0].id: 'a b' cannot be a topic")
    assert "\n" not in said


def test_a_wrong_entry_does_not_make_its_list_empty(tmp_path):
    (tmp_path / "course.yaml").write_text(
        "title: x\ntopics:\n  - id: 02_lstm\n    dew: 2026-01-01\n"
    )
    with pytest.raises(CourseError) as error:
        load_course(tmp_path)
    (line,) = str(error.value).splitlines()
    assert line.startswith("course.yaml:4: topics[0].dew: unknown key")
