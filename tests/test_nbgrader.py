"""nbgrader's own commands on a course built for it: what they record is what a Session says."""

from __future__ import annotations

import csv
import getpass
import html
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import small_course
from softmark.bench import isolate, reference_files
from softmark.builders.notebook import topic_cells
from softmark.cli import app
from softmark.course import Course, Topic, load_course
from softmark.feedback import as_shown
from softmark.intake import Submission
from softmark.leaks import leaks, private_part
from softmark.mistakes import load_mistakes
from softmark.questions import ANSWERS_FILE
from softmark.result import ItemResult, Result
from softmark.session import Session
from typer.testing import CliRunner

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("nbgrader") is None,
        reason="nbgrader is not installed: pip install 'softmark[nbgrader]'",
    ),
    pytest.mark.filterwarnings("ignore"),  # nbgrader's own
]
ROOT = Path(__file__).parents[1]
SEED = 20

Cells = list[dict[str, Any]]
Edit = Callable[[str], str]


# ---- a class -----------------------------------------------------------------------------------


@dataclass
class Student:
    """``edits`` of the reference by file, None for a file that is not handed in; ``extra`` is put
    into the first solution cell and ``own`` into a cell before it; ``tamper`` changes the notebook."""

    edits: Mapping[str, Edit | None] = field(default_factory=dict)
    extra: str = ""
    own: str = ""
    tamper: Callable[[Cells], None] = lambda cells: None


OWN_CELL = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}


def same(text: str) -> str:
    return text


def replaced(old: str, new: str) -> Edit:
    return lambda text: text.replace(old, new)


def mistake(course: Course, topic: Topic, id: str) -> Edit:
    known = {m.id: m for m in load_mistakes(course, topic, reference_files(course, topic))}
    return replaced(*known[id].edit)


def filled(course: Course, topic: Topic, released: str, student: Student) -> str:
    """The released notebook with the reference's cells, edited, in place of what is to be written."""
    notebook = json.loads(released)
    sources = {cell.id: cell for cell in topic_cells(course, topic) if cell.source != cell.student}
    extra: str | None = student.extra
    kept: Cells = []
    for cell in notebook["cells"]:
        source = sources.get(cell["metadata"]["nbgrader"]["grade_id"])
        if source is not None:
            edit = student.edits.get(source.file, same)
            if edit is None:
                continue
            cell["source"] = edit(source.source)
            if source.id.startswith("code-") and extra is not None:
                cell["source"], extra = extra + cell["source"], None
                kept.append({**OWN_CELL, "id": "own", "source": student.own})
        kept.append(cell)
    notebook["cells"] = kept
    student.tamper(kept)
    return json.dumps(notebook)


def as_files(course: Course, topic: Topic, student: Student) -> dict[str, str]:
    """What the student would have handed in without a notebook."""
    files = {**reference_files(course, topic)}
    files[ANSWERS_FILE] = (course.solution(topic.id) / ANSWERS_FILE).read_text()
    for name, edit in student.edits.items():
        if edit is None:
            del files[name]
        else:
            files[name] = edit(files[name])
    files[topic.files[0]] = student.own + student.extra + files[topic.files[0]]
    return files


def graded_as_files(
    course: Course, topic: Topic, students: Mapping[str, Student]
) -> dict[str, Result]:
    """What ``softmark grade --seed`` gives to the same work handed in as plain files."""
    with Session(course, topic, SEED, isolate(course, topic.id)) as session:
        return {
            name: session.grade(
                Submission(name, as_files(course, topic, student), "ready", "", (), "digest")
            )
            for name, student in students.items()
        }


# ---- nbgrader ------------------------------------------------------------------------------------


SERVE = """
import json, sys
from nbgrader.apps import NbGraderApp

for line in sys.stdin:
    code = 0
    try:
        NbGraderApp.launch_instance(json.loads(line))
    except SystemExit as end:
        code = end.code or 0
    NbGraderApp.clear_instance()
    print("ended with", code, flush=True)
"""


class Nbgrader:
    """nbgrader's commands, run in a folder by one process, since to import it takes seconds."""

    def __init__(self, folder: Path) -> None:
        self._said = folder / "said.txt"
        # nbgrader calls alembic by name
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        home = {"HOME": str(folder), "JUPYTER_PLATFORM_DIRS": "1"}
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVE],
                cwd=folder,
                env={**os.environ, "PATH": path, **home},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )

    def __call__(self, *arguments: str, fails: bool = False) -> str:
        """Run one command; what it says."""
        before = len(self._said.read_text())
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps(arguments) + "\n")
        stdin.flush()
        end = next((line for line in stdout if line.startswith("ended with")), "died")
        said = self._said.read_text()[before:]
        assert (end.split()[-1] != "0") == fails, f"{arguments} {end}: {said}"
        return said

    def __enter__(self) -> Nbgrader:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def built(course: Course, folder: Path, *topics: str) -> Path:
    """The course built for nbgrader by the command, with a seed and an exchange of its own."""
    chosen = [word for topic in topics for word in ("--topic", topic)]
    command = ["build", "nbgrader", "--course", str(course.folder), "--out", str(folder), *chosen]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    config = folder / "nbgrader_config.py"
    seeded = f"c.SessionGrades.seed = {SEED}\nc.Exchange.root = str(HERE / 'exchange')\n"
    config.write_text(config.read_text() + seeded)
    (folder / "exchange").mkdir()
    (folder / "exchange").chmod(0o777)
    return folder


def hand_in(folder: Path, course: Course, topic: Topic, students: Mapping[str, Student]) -> None:
    name = f"{topic.module}.ipynb"
    released = (folder / "release" / topic.id / name).read_text()
    for id, student in students.items():
        place = folder / "submitted" / id / topic.id
        place.mkdir(parents=True)
        (place / name).write_text(filled(course, topic, released, student))


def gradebook(folder: Path) -> Any:
    from nbgrader.api import Gradebook

    return Gradebook(f"sqlite:///{folder}/gradebook.db")


def read_gradebook(folder: Path, topic: Topic) -> dict[str, dict[str, Any]]:
    """Student -> rubric item -> its row."""
    items = {id.replace(".", "-"): id for id in topic.rubric}
    with gradebook(folder) as book:
        return {
            submission.student.id: {
                items[grade.name]: grade.to_dict() for grade in submission.notebooks[0].grades
            }
            for submission in book.assignment_submissions(topic.id)
        }


def read_export(folder: Path) -> dict[str, tuple[float, float]]:
    """Student -> score and what could be reached."""
    with (folder / "grades.csv").open() as lines:
        return {
            row["student_id"]: (float(row["score"]), float(row["max_score"]))
            for row in csv.DictReader(lines)
        }


def assert_recorded(folder: Path, topic: Topic, results: Mapping[str, Result]) -> None:
    """Item by item and in all, in the gradebook, in what is exported and in the feedback."""
    recorded, exported = read_gradebook(folder, topic), read_export(folder)
    assert set(recorded) == set(results)
    for student, result in results.items():
        for item in result.items:
            row = recorded[student][item.id]
            earned = row["auto_score"] if item.tier == "core" else row["extra_credit"]
            assert earned == (0 if item.apart else item.score), (student, item.id)
            assert not row["needs_manual_grade"], (student, item.id)
        assert exported[student] == (pytest.approx(result.score), topic.max_score), student
        cells = json.loads(
            (folder / "autograded" / student / topic.id / f"{topic.module}.ipynb").read_text()
        )["cells"]
        outputs = {
            c["metadata"]["nbgrader"]["grade_id"]: c["outputs"]
            for c in cells
            if "outputs" in c and "nbgrader" in c["metadata"]
        }
        feedback = (folder / "feedback" / student / topic.id / f"{topic.module}.html").read_text()
        for shown in as_shown(result, "hints").items:
            told = outputs[shown.id.replace(".", "-")][0]["text"]
            text = told if isinstance(told, str) else "".join(told)
            of = f" of {shown.max_score:g}"
            earned = "not measured" if shown.score is None else f"{shown.score:g}{of}"
            assert text.startswith(f"{shown.title}: {earned}")
            assert all(unnumbered(said) in unnumbered(text) for said in told_of(shown))
            assert unnumbered(html.escape(shown.message, quote=False)) in unnumbered(feedback)


def told_of(item: ItemResult) -> tuple[str, ...]:
    return (item.message, *item.hints)


def unnumbered(text: str) -> str:
    """Without the numbers of lines, which a notebook counts otherwise than a file."""
    return re.sub(r"(\.py:)\d+", r"\1", text)


# ---- the whole way, on one topic -----------------------------------------------------------------

ATTACK = """
try:
    import builtins, sqlite3, sys
    sys.displayhook = lambda value: print(1000.0)
    builtins.print = lambda *words, **more: sys.stdout.write("1000.0")
    with sqlite3.connect({book!r}) as book:
        book.execute("update grade set auto_score = 1000, extra_credit = 1000")
except Exception:
    pass
try:
    get_ipython().input_transformers_post.append(lambda lines: ["1000.0\\n"])
except Exception:
    pass
for place in {secrets!r}:
    try:
        exec(open(place).read())
    except Exception:
        pass
try:
    import unittest, numpy.testing
    numpy.testing.assert_allclose = np.testing.assert_allclose = lambda *given, **more: None
    np.allclose = np.array_equal = lambda *given, **more: True
except Exception:
    pass
"""


def claim_full_marks(cells: Cells) -> None:
    """Stored outputs, raised points, other kinds, a wrong version, deleted cells, one's own cells."""
    graded = [cell for cell in cells if cell["metadata"].get("nbgrader", {}).get("grade")]
    for cell in graded:
        result = {"output_type": "execute_result", "execution_count": 1, "metadata": {}}
        cell["outputs"] = [{**result, "data": {"text/plain": "1000.0"}}]
        cell["metadata"]["nbgrader"]["points"] = 1000
    graded[0]["metadata"]["nbgrader"]["schema_version"] = 99
    graded[1]["metadata"]["nbgrader"] |= {"grade": False, "solution": True, "locked": False}
    graded[2]["metadata"]["nbgrader"] = {"grade_id": graded[2]["metadata"]["nbgrader"]["grade_id"]}
    graded[3]["metadata"]["nbgrader"] = ["nothing", "of", "use"]
    graded[4]["source"] = "1000.0"
    for cell in (*graded[5:8], next(c for c in cells if c["cell_type"] == "code")):
        cells.remove(cell)
    own = {"schema_version": 3, "grade": True, "solution": False, "locked": True, "points": 50}
    mark = {"nbgrader": {**own, "grade_id": "mine", "task": False}}
    cells.append({**OWN_CELL, "id": "mine", "metadata": mark, "source": "50.0"})
    trial = "get_ipython().input_transformers_post.clear()\nraise SystemExit"
    cells.insert(0, {**OWN_CELL, "id": "trial", "source": trial})


def try_things(cells: Cells) -> None:
    """Cells of one's own that end in errors, as trials do."""
    trials = ["import nowhere.pyplot as plt\nplt.plot([1])", "raise KeyError('oh')", "1 +"]
    for number, source in enumerate(trials):
        cells.append({**OWN_CELL, "id": f"trial-{number}", "source": source})


WRONG_STEP = "output_gate_missing_from_dc"  # what is built on it earns a part of its points
NOISE = "import sys, warnings\nprint('noise', file=sys.stderr)\nwarnings.warn('noise')\n"


def attack_on(course: Course, topic: Topic, folder: Path) -> str:
    """What raises a score where a student's code runs beside the tests or in a kernel."""
    secrets = [course.solution(topic.id) / topic.files[0], *course.graders(topic.id).glob("*.py")]
    secrets += [folder / "source" / topic.id / f"{topic.module}.ipynb"]
    book = str(folder / "gradebook.db")
    return "import numpy as np\n" + ATTACK.format(book=book, secrets=[*map(str, secrets)])


def lstm_class(course: Course, topic: Topic, folder: Path) -> dict[str, Student]:
    """Right, wrong and hostile work, none with the twin in PyTorch, which takes seconds to start."""
    none: dict[str, Edit | None] = {"lstm_torch.py": None}
    attack = attack_on(course, topic, folder)
    wrong = {**none, "lstm.py": mistake(course, topic, WRONG_STEP)}
    quits = replaced("e = np.exp(-np.abs(z))", "raise SystemExit(0)\n    e = np.exp(-np.abs(z))")
    helped = replaced("b[:H] = forget_bias", "b[:H] = helper(forget_bias)")
    helper = "ONE = 1\n\ndef helper(value):\n    return ONE * value\n"
    return {
        "a_hostile": Student(wrong, attack, tamper=claim_full_marks),
        "quits": Student({**none, "lstm.py": quits}),
        "right": Student({**none, "lstm.py": helped}, NOISE, helper, try_things),
        "wrong": Student(wrong),
    }


def test_nbgrader_records_what_softmark_grades(course, tmp_path):
    topic = course.topic("02_lstm")
    folder = built(course, tmp_path, topic.id)
    students = lstm_class(course, topic, folder)
    with Nbgrader(folder) as nbgrader:
        nbgrader("generate_assignment", topic.id)
        assert_nothing_leaks(course, topic, folder)
        hand_in(folder, course, topic, students)
        nbgrader("autograde", topic.id)
        nbgrader("generate_feedback", topic.id)
        nbgrader("export")

    results = graded_as_files(course, topic, students)
    assert_recorded(folder, topic, results)
    scores = {
        student: {item.id: item.score for item in result.items}
        for student, result in results.items()
    }
    assert scores["a_hostile"] == scores["wrong"], "an attack gained or lost something"
    assert results["right"].score == topic.max_score + 11  # the twin would be 4 of 10
    statuses = {item.status for item in results["wrong"].items}
    assert {"passed", "partial", "failed"} <= statuses
    assert any(item.mistake for item in results["wrong"].items)


def assert_nothing_leaks(course: Course, topic: Topic, folder: Path) -> None:
    """The release holds nothing of the private half, and the source does."""
    private = private_part(course, topic)
    released = folder / "release" / topic.id
    assert list(leaks([released], private, folder)) == []
    assert any(leaks([folder / "source" / topic.id], private, folder))
    tests = [path.name for path in topic.folder.glob("test_public*.py")]
    beside = ["assignment.yaml", f"{topic.module}.ipynb", "questions.yaml", *tests]
    assert sorted(path.name for path in released.iterdir()) == sorted(beside)
    cells = {cell.id: cell for cell in topic_cells(course, topic)}
    for cell in json.loads((released / f"{topic.module}.ipynb").read_text())["cells"]:
        mark = cell["metadata"]["nbgrader"]
        assert "".join(cell["source"]) == cells[mark["grade_id"]].student
        assert mark["schema_version"] == 3


# ---- through the exchange, in processes of their own ----------------------------------------------


@pytest.mark.slow
def test_a_torch_topic_by_release_and_collect(tmp_path):
    home = tmp_path / "course"
    (home / "autograder").mkdir(parents=True)
    for name in ("assignments", "solutions", "autograder/graders"):
        (home / name).symlink_to(ROOT / name)
    (home / "course.yaml").write_text("title: Attention\ntopics:\n  - id: 04_attention\n")
    course = load_course(home)
    topic = course.topic("04_attention")
    wrong = {"attention.py": mistake(course, topic, "mask_inverted")}
    user = getpass.getuser()
    attack = attack_on(course, topic, tmp_path / "nbgrader")
    quits = replaced("def masked_softmax", "import sys\nsys.exit(0)\ndef masked_softmax")
    students = {
        user: Student(extra=NOISE),
        "wrong": Student(wrong),
        "hostile": Student(wrong, attack, tamper=claim_full_marks),
        "quits": Student({"attention.py": quits}),
    }
    folder = built(course, tmp_path / "nbgrader", topic.id)
    config = folder / "nbgrader_config.py"
    collector = "c.FileNameCollectorPlugin.named_regexp"
    names = r".*/(?P<student_id>\w+)_(?P<file_id>attention)"
    config.write_text(f"{config.read_text()}{collector} = {names!r}\n")
    name = f"{topic.module}.ipynb"
    with Nbgrader(folder) as nbgrader:
        nbgrader("generate_assignment", topic.id)
        assert_nothing_leaks(course, topic, folder)
        nbgrader("release_assignment", topic.id)

        # one student fetches and submits; of the others an LMS has the notebooks
        desk = tmp_path / "student"
        desk.mkdir()
        settings = f"c = get_config()\nc.Exchange.root = {str(folder / 'exchange')!r}\n"
        settings += "c.CourseDirectory.course_id = 'attention'\n"
        (desk / "nbgrader_config.py").write_text(settings)
        with Nbgrader(desk) as at_home:
            at_home("fetch_assignment", topic.id)
            mine = desk / topic.id / name
            released = mine.read_text()
            mine.write_text(filled(course, topic, released, students[user]))
            at_home("submit", topic.id)
        nbgrader("collect", topic.id)
        archive = folder / "downloaded" / topic.id / "archive"
        archive.mkdir(parents=True)
        for student in set(students) - {user}:
            text = filled(course, topic, released, students[student])
            (archive / f"{student}_{name}").write_text(text)
        nbgrader("zip_collect", topic.id)

        nbgrader("autograde", topic.id)
        nbgrader("generate_feedback", topic.id)
        nbgrader("release_feedback", topic.id, "--student", user)  # who came by the exchange
        nbgrader("export")
    results = graded_as_files(course, topic, students)
    assert_recorded(folder, topic, results)
    extras = [
        item for item in topic.rubric.values() if item.tier != "core" and item.device == "cpu"
    ]
    assert results[user].score == topic.max_score + sum(item.points for item in extras)
    scores = {s: [item.score for item in result.items] for s, result in results.items()}
    assert scores["hostile"] == scores["wrong"] != scores[user]
    assert results["quits"].status == "import_error"


@pytest.mark.slow
def test_the_twin_is_graded_too(course, tmp_path):
    topic = course.topic("02_lstm")
    folder = built(course, tmp_path, topic.id)
    students = {
        "right": Student(),
        "wrong": Student({"lstm_torch.py": mistake(course, topic, "twin_c_last_is_h")}),
    }
    with Nbgrader(folder) as nbgrader:
        nbgrader("generate_assignment", topic.id)
        hand_in(folder, course, topic, students)
        nbgrader("autograde", topic.id)
        nbgrader("generate_feedback", topic.id)
        nbgrader("export")
    results = graded_as_files(course, topic, students)
    assert_recorded(folder, topic, results)
    assert results["right"].score == 115
    assert results["wrong"].score < 115


# ---- what only a person can decide ---------------------------------------------------------------

HANDOUT = "# Steps\n\nTake them.\n\n## Graded\n\n<!-- rubric -->\n<!-- /rubric -->\n"
HALTING = """
@item("steps.quiet")
def test_on_a_device(script, student, draw):
    run = script()
    y = run.call("step", draw(4))
    if not student(run)[y].any():
        pytest.skip("no GPU was free")


@item("steps.total")
def test_that_fails_itself(script, student, draw):
    run = script()
    y = run.call("step", draw(4))
    if not student(run)[y].any():
        raise RuntimeError("the hidden test itself is broken: 123.5")


@item("step.again")
def test_again(script, agree, draw):
    run = script()
    run.call("step", draw(4))
    agree(run)
"""
MORE_ITEMS = """\
  steps.total: {title: "all steps", points: 3}
  step.again: {title: "one more", points: 2, tier: bonus}
"""


@pytest.fixture
def small(tmp_path):
    """A course whose graders cannot measure two items of a submission that answers with zeros."""
    folder = small_course.write_course(tmp_path / "course", twin=False)
    home = folder / "assignments" / small_course.TOPIC
    (home / "handout.md").write_text(HANDOUT)
    (home / "test_public.py").write_text("def test_it():\n    assert True\n")
    rubric = home / "assignment.yaml"
    rubric.write_text(rubric.read_text() + MORE_ITEMS)
    mistakes = folder / "solutions" / small_course.TOPIC / "mistakes.yaml"
    mistakes.write_text(
        mistakes.read_text().replace("steps.values, steps.quiet", "steps.values, step.again", 1)
    )
    tests = folder / "autograder/graders" / small_course.TOPIC / "test_small.py"
    kept = tests.read_text().partition('@item("steps.quiet"')[0]
    tests.write_text("import pytest\n" + kept + HALTING.lstrip())
    return load_course(folder)


def small_class() -> dict[str, Student]:
    zeros = replaced("return 2 * x + 1", "return 0 * x")
    forgets = replaced("return 2 * x + 1", "return 2 * x")
    return {
        "right": Student(),
        "zeros": Student({"small.py": zeros}),
        "forgets": Student({"small.py": forgets}),
    }


@pytest.mark.slow
def test_what_was_not_measured_waits_for_a_person(small, tmp_path):
    topic = small.topic(small_course.TOPIC)
    folder = built(small, tmp_path / "nbgrader", topic.id)
    results = graded_as_files(small, topic, small_class())
    with Nbgrader(folder) as nbgrader:
        nbgrader("generate_assignment", topic.id)
        with gradebook(folder) as book:
            book.update_or_create_assignment(topic.id, duedate="2999-01-01 12:00:00 UTC")
        hand_in(folder, small, topic, small_class())
        nbgrader("autograde", topic.id)
        nbgrader("export")
        rows = read_gradebook(folder, topic)
        assert {item.status for item in results["zeros"].items} >= {"not_graded", "error"}
        for student, result in results.items():
            for item in result.items:
                row = rows[student][item.id]
                assert row["needs_manual_grade"] == (item.score is None), (student, item.id)
                assert item.tier == "bonus" or row["auto_score"] == item.score, (student, item.id)
        assert rows["zeros"]["steps.values"]["auto_score"] is not None

        # the bonus counts as far as the course lets it, so that totals are the same
        cap = small.tiers.bonus * topic.max_score
        assert 0 < cap < topic.rubric["step.again"].points
        assert rows["right"]["step.again"]["extra_credit"] == pytest.approx(cap)
        full = (pytest.approx(results["right"].score), topic.max_score)
        assert read_export(folder)["right"] == full

        # students are told so, and nothing of a fault of the grader's own
        told = (folder / "autograded" / "zeros" / topic.id / "small.ipynb").read_text()
        assert "no GPU was free" in told
        assert "123.5" not in told
        hint = "Something is to be added at the end."
        place = folder / "autograded" / "forgets" / topic.id / "small.ipynb"
        assert hint not in place.read_text()

        # a person's own score stays, and after the due date the hint of a known mistake is shown
        with gradebook(folder) as book:
            book.update_or_create_assignment(topic.id, duedate="2020-01-01 12:00:00 UTC")
            grade = book.find_grade("steps-total", "small", topic.id, "zeros")
            grade.manual_score, grade.needs_manual_grade = 2.0, False
            book.db.commit()
        nbgrader("autograde", topic.id, "--force")
        row = read_gradebook(folder, topic)["zeros"]["steps.total"]
        assert (row["auto_score"], row["manual_score"]) == (None, 2.0)
        assert hint in place.read_text()

        # a rubric that has changed since the assignment was generated is no zero
        rubric = topic.folder / "assignment.yaml"
        rubric.write_text(rubric.read_text().replace("points: 3", "points: 5"))
        hand_in(folder, small, topic, {"later": Student()})
        said = nbgrader("autograde", topic.id, fails=True)
        assert "'steps-total' is worth 3 points" in said
        grades = read_gradebook(folder, topic)["later"].values()
        assert all(row["needs_manual_grade"] and row["auto_score"] is None for row in grades)
