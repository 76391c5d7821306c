"""Gradescope: what results.json says, what the .zip holds, and the .zip run as the platform runs it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
import unicodedata
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("hidden grading needs Linux", allow_module_level=True)

import small_course
import suite
from softmark.builders.gradescope import build_gradescope
from softmark.cli import app
from softmark.course import CourseError, Feedback, load_course
from softmark.exports.gradescope import NOT_GRADED, HandIn, as_results
from softmark.result import ItemResult, Result
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[1]
CLASS = ROOT / "examples/class_02_lstm"

# ---- results.json --------------------------------------------------------------------------------

NOW = datetime(2026, 10, 12, 12, tzinfo=UTC)
PACIFIC = timezone(timedelta(hours=-7))


def item(id, status="passed", score=4.0, tier="core", **more):
    return ItemResult(
        id=id, title=f"about {id}", tier=tier, score=score, max_score=4.0, status=status, **more
    )


RESULT = Result(
    student="submission",
    topic="02_lstm",
    status="graded",
    score=6.0,
    max_score=8.0,
    items=(
        item("right"),
        item("partly", "partial", 2.0, message="Right given your own step."),
        item("wrong", "failed", 0.0, message="db is wrong.", hints=("Known!",), mistake="db_mean"),
        item("more", "failed", 0.0, "extension", message="Wrong.", hints=("3 times too small.",)),
    ),
    flags=("lstm.py:3 imports os",),
    digest="d1935",
)
HELD = RESULT.model_copy(
    update={"score": None, "items": (item("right"), item("fault", "error", None, message="x.py:1"))}
)


def hand_in(**more):
    return HandIn(**{"created": NOW - timedelta(hours=1), **more})


def results(result=RESULT, feedback=None, hand_in=None, now=NOW):
    return as_results(result, feedback or Feedback(), hand_in, now, 2**62 + 1)


def by_name(content):
    tests = [(test["name"].removeprefix("Not measured: "), test) for test in content["tests"]]
    return {name.partition(":")[0]: test for name, test in tests}


def test_items_become_tests():
    content = results()
    assert content["score"] == 6.0
    assert content["stdout_visibility"] == "hidden"
    tests = by_name(content)
    assert [test["number"] for test in content["tests"]] == ["1", "2", "3", "4"]
    assert {name: test["score"] for name, test in tests.items()} == {
        "right": 4.0,
        "partly": 2.0,
        "wrong": 0.0,
        "more": 0.0,
    }
    assert [test["status"] for test in content["tests"]] == ["passed", "failed", "failed", "failed"]
    assert tests["partly"]["output"] == "Right given your own step."
    assert tests["more"]["output"] == "Wrong.\nHint: 3 times too small."
    assert tests["more"]["tags"] == ["extension", "failed"]
    assert {test["visibility"] for test in content["tests"]} == {"visible"}


def test_what_was_measured_stands_on_the_leaderboard_where_it_may_show():
    assert "leaderboard" not in results()
    fast = item("tiled.memory", measured={"memory": 1.23456})
    measured = RESULT.model_copy(update={"items": (*RESULT.items, fast)})
    assert results(measured)["leaderboard"] == [
        {"name": "tiled.memory: memory", "value": 1.235, "order": "asc"}
    ]
    assert "leaderboard" not in results(measured, Feedback(before_due="nothing"), hand_in())


def test_the_maxima_are_those_of_the_core():
    """An extension comes on top: the platform compares the sum with the assignment's points."""
    tests = by_name(results())
    assert [name for name, test in tests.items() if "max_score" not in test] == ["more"]
    assert "up to 4 on top" in tests["more"]["name"]


def test_what_no_machine_here_can_measure_is_no_failure():
    apart = item("time.there", "not_graded", None, "extension", counts=False, message="No GPU.")
    tests = by_name(results(RESULT.model_copy(update={"items": (*RESULT.items, apart)})))
    assert "status" not in tests["time.there"] and "score" not in tests["time.there"]
    assert tests["time.there"]["name"].startswith("Not measured: ")
    assert tests["time.there"]["output"] == "No GPU."


def test_what_is_the_instructors_does_not_show():
    content = results()
    assert content["extra_data"]["softmark"].pop("seed") == str(2**62 + 1)
    text = json.dumps(content)
    for secret in ("Known!", "db_mean", "imports os", str(2**62 + 1)):
        assert secret not in text


def test_what_could_not_be_measured_has_no_score():
    content = results(HELD)
    assert "score" not in content
    fault = content["tests"][1]
    assert "score" not in fault
    assert "max_score" not in fault
    assert "x.py:1" not in json.dumps(content)
    assert "1 of 2 items could not be measured" in content["output"]
    assert content["extra_data"]["softmark"]["measured"] is False
    assert "score" not in NOT_GRADED
    assert not any("score" in test for test in NOT_GRADED["tests"])


@pytest.mark.parametrize("status", ["missing", "unreadable", "import_error", "rejected"])
def test_why_nothing_was_graded_is_said_once(status):
    said = "lstm.py is not in it; hand it in."
    items = tuple(item(id, "failed", 0.0, message=said) for id in ("one", "two"))
    wrong = RESULT.model_copy(
        update={"status": status, "score": 0.0, "items": items, "message": said}
    )
    for feedback in (Feedback(), Feedback(before_due="nothing"), Feedback(before_due="total")):
        content = results(wrong, feedback)
        assert json.dumps(content).count(said) == 1
        assert said in content["output"]


def test_a_total_shows_without_items():
    content = results(feedback=Feedback(before_due="total"))
    assert (content["score"], content["tests"]) == (6.0, [])


def test_nothing_shows_no_points():
    """The platform hides the total where tests are hidden."""
    content = results(feedback=Feedback(before_due="nothing"))
    assert content["score"] == 6.0
    assert {test["visibility"] for test in content["tests"]} == {"after_due_date"}
    assert "do not show now" in content["output"]
    never = results(feedback=Feedback(before_due="nothing", after_due="nothing"))
    assert {test["visibility"] for test in never["tests"]} == {"hidden"}
    assert never["tests"]


def test_after_the_last_date_known_hints_show():
    due = NOW - timedelta(minutes=5)
    content = results(hand_in=hand_in(due=due, last=due))
    assert "Known!" in by_name(content)["wrong"]["output"]
    still_open = results(hand_in=hand_in(due=due, last=NOW + timedelta(days=1)))
    assert "Known!" not in json.dumps(still_open), "late hand-ins are still possible"


def test_answers_of_the_day():
    feedback = Feedback(runs_a_day=3)
    first = results(feedback=feedback, hand_in=hand_in())
    assert "answer 1 of 3 today; 2 left" in first["output"]
    last = results(feedback=feedback, hand_in=hand_in(earlier_today=2))
    assert "answer 3 of 3 today; none left" in last["output"]
    created = datetime(2026, 10, 12, 22, 30, tzinfo=PACIFIC)
    fourth = results(feedback=feedback, hand_in=HandIn(created, earlier_today=3))
    assert fourth["score"] == 6.0, "it counts"
    assert {test["visibility"] for test in fourth["tests"]} == {"after_due_date"}
    assert "Known!" not in json.dumps(fourth), "an extension may last longer than that date"
    assert "from 2026-10-13 00:00 (UTC-07:00) on" in fourth["output"]
    assert "answer" not in results(feedback=Feedback(runs_a_day=0), hand_in=hand_in())["output"]
    assert "answer" not in results(HELD, feedback, hand_in())["output"], "a fault costs no answer"


@pytest.mark.parametrize(
    ("late", "said", "days"),
    [
        (timedelta(0), "", 0),
        (timedelta(seconds=20), "less than a minute: 1 late day.", 1),
        (timedelta(hours=3, minutes=5), "by 3 h 5 min: 1 late day.", 1),
        (timedelta(days=1), "by 1 d: 1 late day.", 1),
        (timedelta(days=1, hours=2), "by 1 d 2 h: 2 late days.", 2),
    ],
)
def test_late_days(late, said, days):
    due = NOW - timedelta(hours=1) - late
    content = results(hand_in=hand_in(due=due, last=NOW + timedelta(days=9)))
    assert said in content["output"]
    assert ("late" in content["output"]) == bool(days)
    assert content["extra_data"]["softmark"]["late_days"] == days
    assert content["score"] == 6.0, "what lateness costs is the instructor's to say"


def test_what_a_student_wrote_stays_text():
    hostile = "<b>x</b> **y** \x1b[2J\x00\u202e\udc80"
    quoted = RESULT.model_copy(
        update={"items": (item("one", "failed", 0.0, message=hostile),), "notes": (hostile,)}
    )
    content = results(quoted)
    formats = {content[key] for key in content if key.endswith("_format")}
    assert formats == {"text"}
    for text in (content["output"], content["tests"][0]["output"]):
        assert "<b>x</b> **y** " in text
        assert not any(unicodedata.category(c)[0] == "C" for c in text.replace("\n", ""))
    endless = RESULT.model_copy(update={"items": (item("one", "failed", 0, message="x" * 10**6),)})
    assert len(json.dumps(results(endless))) < 20_000


# ---- submission_metadata.json --------------------------------------------------------------------


def metadata(**more):
    return {
        "id": 1,
        "created_at": "2026-10-12T20:00:00.365935-07:00",
        "assignment": {
            "due_date": "2026-10-12T18:00:00.000000-07:00",
            "late_due_date": None,
            "outline": [],
            "total_points": "8.0",
        },
        "submission_method": "upload",
        "users": [{"email": "a@example.com", "id": 1, "name": "A"}],
        "previous_submissions": [],
        **more,
    }


def read(**more):
    return HandIn.from_json(json.dumps(metadata(**more)))


def day(hour, days=0):
    return f"2026-10-{12 + days}T{hour:02}:00:00.000000-07:00"


def test_dates_of_the_assignment():
    one = read()
    assert (one.due, one.last) == (datetime.fromisoformat(day(18)),) * 2
    assert one.late_days == 1
    late = read(assignment={"due_date": day(18), "late_due_date": day(18, 3)})
    assert (late.due, late.last) == (one.due, datetime.fromisoformat(day(18, 3)))
    endless = read(assignment={"due_date": None})
    assert (endless.due, endless.last, endless.late_days) == (None, None, 0)


def test_an_extension_is_its_students():
    own = {"due_date": day(18, 2), "late_due_date": None}
    extended = read(users=[{"id": 1, "assignment": own}])
    assert extended.due == extended.last == datetime.fromisoformat(day(18, 2))
    assert extended.late_days == 0


def test_of_a_group_the_latest_date_counts():
    own = {"due_date": day(18, 2), "late_due_date": day(18, 4)}
    group = read(users=[{"id": 1}, {"id": 2, "assignment": own}])
    assert group.due == datetime.fromisoformat(day(18, 2))
    assert group.last == datetime.fromisoformat(day(18, 4))


def test_what_counts_as_an_answer_of_the_day():
    def count(*previous):
        return read(previous_submissions=list(previous)).earlier_today

    def once(hour, days=0, **more):
        return {"submission_time": day(hour, days), "score": 1.0, **more}

    assert count(once(1), once(19)) == 2
    assert count(once(23, -1)) == 0, "the day before"
    assert count({"submission_time": "2026-10-12T06:30:00+00:00", "score": 1}) == 0, "so, too"
    assert count(once(21)) == 0, "after this one: it is graded again"
    assert count(once(1, autograder_error=True)) == 0
    assert count(once(1, autograder_error=False), once(2, autograder_error=None)) == 2
    assert count(once(1, results=NOT_GRADED)) == 0, "the grader's own fault"
    assert count(once(1, results={"tests": [], "extra_data": None})) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"created_at": "yesterday"}', "\x00"])
def test_metadata_of_another_form(text):
    with pytest.raises(ValueError, match=r"submission_metadata\.json"):
        HandIn.from_json(text)


# ---- the .zip ------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path):
    """A course of one small topic, without PyTorch."""
    return small_course.write_course(tmp_path / "small", twin=False)


def build(course, out, *options):
    command = ["build", "gradescope", "--topic", small_course.TOPIC, "--out", str(out)]
    return CliRunner().invoke(app, [*command, "--course", str(course), *options])


def test_the_zip_holds_what_grading_needs_and_no_more(small, tmp_path):
    for extra in (
        "solutions/00_small/variants/other.py",
        "solutions/00_small/equivalents.yaml",
        "assignments/00_small/handout.md",
        "autograder/graders/00_small/__pycache__/test_small.cpython-311.pyc",
        "autograder/graders/00_small/caches.py",
    ):
        (small / extra).parent.mkdir(parents=True, exist_ok=True)
        (small / extra).write_text("extra")
    out = tmp_path / "out.zip"
    assert build(small, out).exit_code == 0
    with zipfile.ZipFile(out) as packed:
        names = packed.namelist()
        (wheel,) = [name for name in names if name.endswith(".whl")]
        assert sorted(set(names) - {wheel}) == [
            "constraints.txt",
            "course/assignments/00_small/assignment.yaml",
            "course/assignments/00_small/questions.yaml",
            "course/autograder/graders/00_small/caches.py",
            "course/autograder/graders/00_small/test_small.py",
            "course/course.yaml",
            "course/solutions/00_small/answers.yaml",
            "course/solutions/00_small/mistakes.yaml",
            "course/solutions/00_small/small.py",
            "not_graded.json",
            "run_autograder",
            "setup.sh",
        ]
        modes = {info.filename: info.external_attr >> 16 & 0o777 for info in packed.infolist()}
        assert [name for name, mode in modes.items() if mode & 0o111] == [
            "run_autograder",
            "setup.sh",
        ]
        pins = packed.read("constraints.txt").decode().split()
        packed.extract(wheel, tmp_path)
    assert all("==" in pin and "+" not in pin for pin in pins)
    assert {"numpy", "pytest", "pyseccomp"} <= {pin.partition("==")[0] for pin in pins}
    assert not any(pin.startswith("torch") for pin in pins)
    assert not list(tmp_path.glob(".*.part"))


def test_the_same_course_gives_the_same_zip(small, tmp_path):
    for name in ("one.zip", "two.zip"):
        assert build(small, tmp_path / name).exit_code == 0
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_other_topics_and_keys_of_the_course(small, tmp_path):
    (small / "assignments/01_other").mkdir()
    (small / "kept/solutions").mkdir(parents=True)
    shutil.move(small / "solutions/00_small", small / "kept/solutions")
    shutil.move(small / "autograder/graders", small / "kept/graders")
    text = (small / "course.yaml").read_text()
    text += "    due: 2026-10-19\n  - id: 01_other\nprivate: kept\nfeedback: {runs_a_day: 7}\n"
    (small / "course.yaml").write_text(text)
    with zipfile.ZipFile(_built(small, tmp_path)) as packed:
        packed.extractall(tmp_path / "x")
    cut = load_course(tmp_path / "x/course")
    assert [entry.id for entry in cut.topics] == [small_course.TOPIC]
    assert (str(cut.topics[0].due), cut.feedback.runs_a_day) == ("2026-10-19", 7)
    assert cut.solution(small_course.TOPIC) and cut.graders(small_course.TOPIC)


def _built(course, folder):
    build_gradescope(load_course(course), small_course.TOPIC, folder / "out.zip")
    return folder / "out.zip"


def test_a_topic_with_a_twin_needs_torch(tmp_path):
    pytest.importorskip("torch", reason="to pin its version")
    course = small_course.write_course(tmp_path / "small")
    with zipfile.ZipFile(_built(course, tmp_path)) as packed:
        assert "needs_torch" in packed.namelist()
        pins = packed.read("constraints.txt").decode().split()
    names = {pin.partition("==")[0] for pin in pins}
    assert {"torch", "sympy"} <= names, "with what it needs itself"
    assert not any("+" in pin for pin in pins), "whatever the build"


@pytest.mark.parametrize(
    "missing", ["solutions/00_small/small.py", "autograder/graders/00_small/test_small.py"]
)
def test_a_file_that_is_missing(small, tmp_path, missing):
    (small / missing).unlink()
    done = build(small, tmp_path / "out.zip")
    assert done.exit_code == 2
    assert Path(missing).parent.name in done.output
    assert not (tmp_path / "out.zip").exists()
    with pytest.raises(CourseError):
        _built(small, tmp_path)


def test_the_least_tier_reaches_the_platform(small, tmp_path):
    out = tmp_path / "out.zip"
    assert build(small, out, "--isolation", "container").exit_code == 0
    script = zipfile.ZipFile(out).read("run_autograder").decode()
    assert 'gradescope_run "$root" container' in script
    assert build(small, out).exit_code == 0
    assert "@" not in zipfile.ZipFile(out).read("run_autograder").decode()
    assert build(small, out, "--isolation", "much").exit_code == 2


def test_the_wheel_is_one(small, tmp_path):
    with zipfile.ZipFile(_built(small, tmp_path)) as packed:
        (name,) = [name for name in packed.namelist() if name.endswith(".whl")]
        wheel = packed.extract(name, tmp_path)
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*install, "--target", tmp_path / "site", wheel], check=True)
    files = {
        path.relative_to(ROOT / "autograder").as_posix()
        for path in (ROOT / "autograder/softmark").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert all((tmp_path / "site" / file).is_file() for file in files)
    assert (tmp_path / "site/bin/softmark").is_file()
    with zipfile.ZipFile(wheel) as packed:
        (record,) = [name for name in packed.namelist() if name.endswith("/RECORD")]
        rows = {row.split(",")[0]: row for row in packed.read(record).decode().splitlines()}
        assert rows.pop(record) == f"{record},,"
        assert set(rows) == set(packed.namelist()) - {record}
        for name, row in rows.items():
            digest = hashlib.sha256(packed.read(name)).digest()
            assert base64.urlsafe_b64encode(digest).decode().rstrip("=") in row


def test_the_scripts_are_shell():
    for script in (ROOT / "autograder/softmark/builders/gradescope_zip").iterdir():
        subprocess.run(["bash", "-n", script], check=True)


# ---- run as the platform runs it -----------------------------------------------------------------


@dataclass
class Platform:
    """A tree like /autograder, with the .zip unpacked in it."""

    root: Path
    environment: Path = Path(sys.prefix)

    def run(self, level="root", first=None):
        """Run the autograder on what lies in submission/ and return (results.json, its output).

        ``level``: the strongest tier that it finds, "root" for all that there is here; ``first`` is
        called in the new process.
        """
        setup = suite.LEVELS[level] if isinstance(level, str) else level
        if setup.capabilities is None and os.geteuid() != 0 and level != "root":
            pytest.skip("not root here")

        def become():
            if first:
                first()
            suite._become(setup)

        done = self.start(preexec_fn=become)
        said, _ = done.communicate(timeout=300)
        assert done.returncode == 0, said
        return self.results(), said

    def start(self, **more):
        environment = {
            "PATH": os.environ["PATH"],
            "SOFTMARK_ROOT": str(self.root),
            "SOFTMARK_ENVIRONMENT": str(self.environment),
        }
        shutil.copy(self.root / "source/run_autograder", self.root)
        return subprocess.Popen(
            [self.root / "run_autograder"],
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **more,
        )

    def results(self):
        return json.loads((self.root / "results/results.json").read_text())

    def hand_in(self, source):
        """Make a folder, a file or a mapping of names to texts the submission."""
        place = self.root / "submission"
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(source, Path) and source.is_dir():
            shutil.copytree(source, place)
            return
        place.mkdir()
        if isinstance(source, Path):
            shutil.copy(source, place)
        else:
            for name, text in source.items():
                (place / name).write_text(text)


def unpack(course, topic, folder, isolation=None):
    """The tree, with the modes that setup.sh leaves."""
    root = folder / "autograder"
    for name in ("source", "submission", "results"):
        (root / name).mkdir(parents=True)
    build_gradescope(load_course(course), topic, folder / "autograder.zip", isolation)
    subprocess.run(["unzip", "-q", folder / "autograder.zip", "-d", root / "source"], check=True)
    subprocess.run(["chmod", "-R", "go=", root / "source"], check=True)
    (root / "submission_metadata.json").write_text(json.dumps(metadata()))
    for path in (folder, *folder.parents):  # else it is pytest that keeps others out
        with contextlib.suppress(PermissionError):
            if str(path).startswith("/tmp/") or path == folder:
                path.chmod(0o755)
    return Platform(root)


@pytest.fixture
def platform(small, tmp_path) -> Platform:
    return unpack(small, small_course.TOPIC, tmp_path)


def right(platform):
    return small_course.solution(platform.root / "source/course")


def scores(content):
    return {name: test.get("score") for name, test in by_name(content).items()}


def graded(course, topic, submission, seed, out):
    """The item scores of the ordinary command."""
    command = [sys.executable, "-m", "softmark", "grade", str(submission), "--topic", topic]
    command += ["--seed", seed, "--out", str(out), "--course", str(course), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    return result["score"], {one["id"]: one["score"] for one in result["items"]}


def measured(item):
    """Whether this machine can, which has no GPU."""
    return item.device == "cpu" and not item.lacks


def agree(platform, content, course, topic, out):
    seed = content["extra_data"]["softmark"]["seed"]
    submission = platform.root / "submission"
    assert (content["score"], scores(content)) == graded(course, topic, submission, seed, out)


def test_a_submission_gets_what_the_command_gives(tmp_path):
    platform = unpack(ROOT, "02_lstm", tmp_path)
    platform.hand_in(CLASS / "wrong_output_gate_gets_c")
    content, said = platform.run()
    agree(platform, content, ROOT, "02_lstm", tmp_path / "out")
    tests = {name: test["output"] for name, test in by_name(content).items()}
    assert len(tests) == len(load_course(ROOT).topic("02_lstm").rubric)
    assert any("wrong" in output for output in tests.values())
    assert "known mistake: " in said, "the instructor sees it"
    assert "Hint: " in json.dumps(content), "it is handed in after the last date"


@pytest.mark.slow
@pytest.mark.parametrize("change", ["right", "wrong"])
def test_right_and_wrong(platform, small, tmp_path, change):
    changes = {"right": [], "wrong": [("return 2 * x + 1", "return 2 * x")]}[change]
    platform.hand_in(small_course.solution(small, *changes))
    content, _ = platform.run()
    agree(platform, content, small, small_course.TOPIC, tmp_path / "out")
    assert (content["score"] < 9.0) == (change == "wrong")


def test_nothing_handed_in(platform):
    content, _ = platform.run()
    assert content["score"] == 0
    assert "small.py" in content["output"]


def test_metadata_that_cannot_be_read(platform):
    (platform.root / "submission_metadata.json").write_text("{")
    platform.hand_in(right(platform))
    content, said = platform.run()
    assert content["score"] == 9.0
    assert "without dates and limits" in said


HOSTILE = '''
import os

ROOT = "@root@"


def tries():
    """What it did that it should not be able to do."""
    done = []

    def attempt(name, action):
        try:
            action()
        except BaseException:
            return
        done.append(name)

    forged = '{"score": 1000, "tests": []}'
    for place in ("results/results.json", "results/.results.json.part", "results/results.json.part"):
        attempt("wrote " + place, lambda: open(f"{ROOT}/{place}", "w").write(forged))
    for place in ("source", "results", "source/course/solutions/00_small"):
        attempt("listed " + place, lambda: os.listdir(f"{ROOT}/{place}"))
    for place in (
        "source/course/solutions/00_small/small.py",
        "source/course/solutions/00_small/answers.yaml",
        "source/course/autograder/graders/00_small/test_small.py",
        "source/run_autograder",
        "submission_metadata.json",
    ):
        attempt("read " + place, lambda: open(f"{ROOT}/{place}").read())
    attempt("wrote run_autograder", lambda: open(f"{ROOT}/run_autograder", "a").write("#"))
    attempt("chmod", lambda: os.chmod(f"{ROOT}/results", 0o777))
    for pid in {os.getppid(), @pid@, *range(max(2, os.getpid() - 60), os.getpid())}:
        # no more than asked: where this succeeds it should not end what is not the test's
        attempt(f"could signal {pid}", lambda: pid > 1 and os.kill(pid, 0) or 1 / (pid > 1))
    for place in ("/tmp", "/var/tmp", "/dev/shm", ROOT + "/submission", ROOT + "/results", ROOT):
        attempt("filled " + place, lambda: open(f"{place}/softmark-full", "wb").write(bytes(1 << 20)))
    return done


REACHED = tries()
if REACHED:
    raise RuntimeError(f"REACHED {REACHED}")
'''


def hostile(platform):
    """The right files, with all that at the end of one."""
    code = HOSTILE.replace("@root@", str(platform.root)).replace("@pid@", str(os.getpid()))
    files = right(platform)
    return files | {"small.py": files["small.py"] + code}


@pytest.mark.parametrize(
    "level",
    [
        "container",
        *(pytest.param(other, marks=pytest.mark.slow) for other in ("root", "userns", "plain")),
    ],
)
def test_hostile_code_gains_nothing(platform, level):
    platform.hand_in(hostile(platform))
    content, said = platform.run(level)
    if level != "root":
        assert f"'tier': '{level}'" in said
    assert "REACHED" not in json.dumps(content)
    assert content["score"] == 9.0, "its other half is right"
    assert not list(platform.root.rglob("softmark-full"))


@pytest.mark.parametrize("link", ["small.py", pytest.param("work", marks=pytest.mark.slow)])
def test_a_link_to_the_solution_is_no_submission(platform, link):
    """The files are read as root: a repository or an archive may hold links."""
    solution = platform.root / "source/course/solutions/00_small"
    target = solution / link if link == "small.py" else solution
    (platform.root / "submission" / link).symlink_to(target)
    content, _ = platform.run()
    assert content["score"] == 0


def test_the_grader_at_fault_gives_no_grade(platform):
    test = platform.root / "source/course/autograder/graders/00_small/test_small.py"
    test.write_text("import gone\n")
    platform.hand_in(right(platform))
    content, said = platform.run()
    assert content == NOT_GRADED
    assert "gone" in said


def test_a_course_that_cannot_be_read_gives_no_grade(platform):
    (platform.root / "source/course/course.yaml").write_text("topics: none\n")
    content, said = platform.run()
    assert content == NOT_GRADED
    assert "course.yaml" in said


def test_no_python_at_all_gives_no_grade(platform):
    platform.environment = platform.root / "gone"
    content, _ = platform.run()
    assert content == NOT_GRADED


def test_a_full_disk_gives_no_grade(platform):
    """The note fits, the results do not."""
    platform.hand_in(right(platform))
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    content, said = platform.run(
        first=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, most))
    )
    assert content == NOT_GRADED
    assert "File too large" in said
    assert os.listdir(platform.root / "results") == ["results.json"]  # noqa: PTH208


def test_a_killed_grader_gives_no_grade(platform):
    earlier = platform.root / "results/results.json"
    earlier.write_text('{"score": 1000}')  # what an earlier run has left
    files = right(platform)
    files["small.py"] += "\nwhile True:\n    pass\n"
    platform.hand_in(files)
    with platform.start(start_new_session=True) as running:
        grader = _child_named(running.pid, "softmark.exports.gradescope_run")
        os.kill(grader, 9)
        running.communicate(timeout=60)
    assert running.returncode == 0
    assert platform.results() == NOT_GRADED


def _child_named(pid, name):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in children:
            with contextlib.suppress(OSError):
                if name in Path(f"/proc/{child}/cmdline").read_text():
                    return int(child)
        time.sleep(0.02)
    raise AssertionError(f"{name} was not started")


# ---- thorough ------------------------------------------------------------------------------------


@contextlib.contextmanager
def limited(megabytes: int, processors: float) -> Iterator[Path]:
    """A control group with this much memory and processor time; skips where none can be made."""
    name = f"softmark-{os.getpid()}"
    base = Path("/sys/fs/cgroup")
    quota = int(processors * 100_000)
    if (base / "cgroup.controllers").exists():
        limits = {
            base / name: {"memory.max": megabytes << 20, "cpu.max": f"{quota} 100000"},
        }
    else:
        limits = {
            base / "memory" / name: {"memory.limit_in_bytes": megabytes << 20},
            base / "cpu" / name: {"cpu.cfs_quota_us": quota},
        }
    made: list[Path] = []
    try:
        try:
            for folder, values in limits.items():
                folder.mkdir()
                made.append(folder)
                for file, value in values.items():
                    (folder / file).write_text(str(value))
        except OSError as error:
            pytest.skip(f"no control group can be made here: {error}")
        yield made
    finally:
        for folder in made:
            _remove_group(folder)


def _remove_group(folder):
    for _ in range(100):
        try:
            return folder.rmdir()
        except OSError:  # its last process is still going
            time.sleep(0.1)


def enter(groups):
    for folder in groups:
        (folder / "cgroup.procs").write_text(str(os.getpid()))


def topics():
    return [entry.id for entry in load_course(ROOT).topics]


@pytest.mark.slow
@pytest.mark.parametrize("topic", topics())
@pytest.mark.parametrize("level", ["container", "plain"])
def test_the_least_machine_of_the_platform(tmp_path, topic, level):
    """768 MB and half a processor: the whole solution, its twin included, in full."""
    platform = unpack(ROOT, topic, tmp_path)
    course = load_course(ROOT)
    names = course.topic(topic).handed_in
    platform.hand_in({name: (course.solution(topic) / name).read_text() for name in names})
    with limited(768, 0.5) as groups:
        content, _ = platform.run(level, lambda: enter(groups))
    told = {name: test.get("status") for name, test in by_name(content).items()}
    rubric = course.topic(topic).rubric
    assert told == {id: "passed" if measured(item) else None for id, item in rubric.items()}
    agree(platform, content, ROOT, topic, tmp_path / "out")


@pytest.mark.slow
def test_a_submission_that_takes_all_memory(tmp_path):
    """It is ended, and not the grader: what does not need so much keeps its points."""
    platform = unpack(ROOT, "02_lstm", tmp_path)
    text = (CLASS / "memory_hog.py").read_text()
    assert text.count("np.zeros((4096, 8192))") == 1
    platform.hand_in({"lstm.py": text.replace("np.zeros((4096, 8192))", "np.ones((4096, 1024))")})
    with limited(768, 1) as groups:
        content, _ = platform.run("container", lambda: enter(groups))
    assert 0 < content["score"] < 100
    assert all("score" in test for test in content["tests"])


@pytest.mark.slow
def test_without_landlock_the_private_half_is_closed_all_the_same(small, tmp_path):
    """With --isolation none: what is left is another user, and the modes of files."""
    platform = unpack(small, small_course.TOPIC, tmp_path, isolation="none")
    bare = suite.Level(None, (*suite._NO_NAMESPACES, "landlock_create_ruleset"))
    platform.hand_in(hostile(platform))
    content, said = platform.run(bare)
    for place in ("/tmp", "/var/tmp", "/dev/shm"):  # which are not kept from it
        Path(place, "softmark-full").unlink(missing_ok=True)
    assert "'tier': 'container', 'files': False" in said
    told = json.dumps(content)
    assert "REACHED" in told, "it is no full isolation"
    for held in ("source", "results", "metadata", "signal", "run_autograder"):
        assert held not in told.partition("REACHED")[2].partition("]")[0]


@pytest.mark.slow
def test_the_example_class(tmp_path):
    platform = unpack(ROOT, "02_lstm", tmp_path)
    for number, submission in enumerate(sorted(CLASS.iterdir())):
        platform.hand_in(submission)
        content, _ = platform.run("container")
        agree(platform, content, ROOT, "02_lstm", tmp_path / f"out_{number}")


@pytest.mark.slow
def test_in_an_environment_of_its_own(small, tmp_path):
    """With the engine from the .zip alone, as setup.sh installs it."""
    platform = unpack(small, small_course.TOPIC, tmp_path)
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    here = [path for path in sys.path if path.endswith("-packages")]
    (site / "here.pth").write_text("\n".join(here) + "\n")
    (wheel,) = (platform.root / "source").glob("*.whl")
    pip = [environment / "bin/python", "-m", "pip", "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--quiet", "--force-reinstall", wheel], check=True)
    platform.environment = environment
    platform.hand_in(right(platform))
    content, _ = platform.run()
    assert content["score"] == 9.0
