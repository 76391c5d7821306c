"""The real ``otter assign`` and ``otter run``: what students get, and that scores are a Session's."""

from __future__ import annotations

import base64
import importlib.util
import json
import math
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from softmark.batch import Run, grade_all
from softmark.builders.notebook import topic_cells
from softmark.builders.otter import build_otter
from softmark.builders.stub import BuildError
from softmark.course import Course, CourseError, Feedback, Topic, load_course
from softmark.feedback import NOT_MEASURED
from softmark.leaks import leaks, private_part
from softmark.result import ItemResult, Result

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("otter") is None,
        reason="Otter is not installed: pip install 'softmark[otter]'",
    ),
    pytest.mark.filterwarnings("ignore"),  # Otter's own
]

SEED = 20
WRONG = ("b[:H] = forget_bias", "b[H : 2 * H] = forget_bias")  # loses cell.bias


@dataclass(frozen=True)
class Built:
    """A topic as ``softmark build otter`` leaves it."""

    course: Course
    topic: Topic
    student: Path
    autograder: Path

    def hand_in(self, path: Path, edit=lambda source: source) -> Path:
        """A notebook made from the students' one, with the solutions as ``edit`` changes them."""
        solutions = {
            cell.id: cell.source
            for cell in topic_cells(self.course, self.topic)
            if cell.role in ("solution", "answers")
        }
        notebook = json.loads(self.student.read_text())
        twins = {cell.id for cell in topic_cells(self.course, self.topic) if cell.role == "twin"}
        # its worker takes seconds to start
        notebook["cells"] = [cell for cell in notebook["cells"] if cell["id"] not in twins]
        for cell in notebook["cells"]:
            if cell["id"] in solutions:
                cell["source"] = edit(solutions[cell["id"]])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(notebook))
        return path

    def grade(self, path: Path) -> Result:
        """What ``softmark grade --seed`` says of it."""
        (result,) = grade_all(Run(self.course, self.topic, SEED), [("it", path)], workers=1)
        return result


def build(course, id, folder):
    try:
        topic = course.topic(id)
    except CourseError as error:
        pytest.skip(str(error))
    _, student, autograder = build_otter(course, id, folder, seed=SEED)
    return Built(course, topic, student, autograder)


@pytest.fixture(scope="module")
def lstm(course, tmp_path_factory):
    return build(course, "02_lstm", tmp_path_factory.mktemp("lstm"))


def otter_run(built, submission, out, prefix=()):
    """``otter run``: how it ended, and its results.json if there is one."""
    out.mkdir(exist_ok=True)
    command = [*prefix, str(Path(sys.executable).with_name("otter")), "run"]
    command += ["--no-logo", "-a", str(built.autograder), "-o", str(out), str(submission)]
    done = subprocess.run(command, cwd=out, capture_output=True, text=True, timeout=300)
    written = out / "results.json"
    return done, json.loads(written.read_text()) if written.exists() else None


def same(results, expected):
    """Whether results.json has the scores of this Result, item by item."""
    tests = [(test["name"].removeprefix("Not measured: "), test) for test in results["tests"]]
    told = {name.split(":")[0]: test.get("score") for name, test in tests}
    return told == {item.id: item.score for item in expected.items} and (
        results.get("score") == expected.score
    )


# ---- otter assign ------------------------------------------------------------------------------


def test_assign_gives_students_their_text_and_no_line_of_a_solution(lstm, tmp_path):
    released = {cell["id"]: cell for cell in json.loads(lstm.student.read_text())["cells"]}
    wanted = [cell for cell in topic_cells(lstm.course, lstm.topic) if cell.role != "graded"]
    assert list(released) == [cell.id for cell in wanted]
    for cell in wanted:
        assert "".join(released[cell.id]["source"]) == cell.student, cell.id


def test_only_the_configuration_of_the_autograder_holds_answers(lstm, tmp_path):
    zipfile.ZipFile(lstm.autograder).extractall(tmp_path)
    for wheel in (tmp_path / "files").glob("*.whl"):
        wheel.unlink()  # what is in the engine is tests/test_wheel.py's
    private = private_part(lstm.course, lstm.topic)
    found = list(leaks([tmp_path], private, tmp_path))
    assert any("solutions/02_lstm/lstm.py" in said for said in found)
    assert all(said.startswith("otter_config.json/") for said in found)


@pytest.mark.slow  # 15 s and more a run of Otter
def test_a_solution_that_students_would_get_is_refused(course, course_copy, tmp_path):
    path = course_copy / "assignments" / "02_lstm" / "test_public.py"
    solution = (course.solution("02_lstm") / "lstm.py").read_text()
    (line,) = [line for line in solution.splitlines() if "np.concatenate([x, h_prev]" in line]
    path.write_text(f"{path.read_text()}\n# {line.strip()}\n")
    with pytest.raises(BuildError, match=r"must not go to students: test_public\.py:\d+ holds"):
        build_otter(load_course(course_copy), "02_lstm", tmp_path)


# ---- otter run ---------------------------------------------------------------------------------


class Canary:
    """A pickle that leaves a trace where it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def hostile_zip(lstm, folder, canary):
    """A notebook with a mistake among files for Otter, its kernel and whoever reads its results."""
    import pickle

    trace = f"open({str(canary)!r}, 'w').close()\n"
    notebook = lstm.hand_in(folder / "lstm.ipynb", lambda source: source.replace(*WRONG))
    path = folder / "hand_in.zip"
    with zipfile.ZipFile(path, "w") as target:
        target.write(notebook, "lstm.ipynb")
        target.writestr(".OTTER_LOG", pickle.dumps(Canary(canary)))
        modules = ("otter/__init__", "ipykernel_launcher", "numpy", "pickle", "softmark/__init__")
        for name in (*modules, "tests/02_lstm", "sitecustomize", "google/colab/__init__"):
            target.writestr(f"{name}.py", trace)
        target.writestr("results.json", '{"score": 1000}')
        target.writestr("otter_config.json", "{}")
    return path, notebook


@pytest.mark.slow  # 15 s and more a run of Otter
def test_otter_run_says_what_softmark_grade_says_whatever_lies_beside(lstm, tmp_path):
    canary = tmp_path / "canary"
    submission, notebook = hostile_zip(lstm, tmp_path / "hand_in", canary)
    expected = lstm.grade(notebook)
    lost = {item.id: item for item in expected.items if item.status == "failed"}
    assert "cell.bias" in lost and expected.score > 90

    done, results = otter_run(lstm, submission, tmp_path / "out")
    assert done.returncode == 0, done.stderr[-2000:]
    assert same(results, expected)
    assert not canary.exists()
    text = json.dumps(results)
    bias = lost["cell.bias"]
    assert json.dumps(bias.message)[1:-1] in text
    assert bias.mistake and json.dumps(bias.hints[0])[1:-1] not in text  # not before it is due
    assert f"score {expected.score:g} of 100" in done.stdout  # for the instructor


ATTACKS = {
    "patches what checks": """
from otter.execute import Checker
from otter.test_files.abstract_test import TestFile
Checker.check = Checker.check_if_not_already_checked = classmethod(lambda *a, **k: None)
TestFile.score = TestFile.grade = property(lambda self: 1000)
""",
    "writes the pickle of results": """
import pickle
from otter.test_files import GradingResults
real = pickle.dump
def dump(results, file):
    results.total = 1000
    real(results, file)
pickle.dump = dump
""",
    "reads the tests, and replaces them": """
import pathlib
for path in pathlib.Path("tests").iterdir():
    print(path.read_text())
    path.write_text("OK_FORMAT = True\\ntest = {'name': 'q', 'points': 1000, 'suites': []}")
""",
    "writes results.json": """
import json, pathlib
for place in ("results", "../results", "/autograder/results"):
    pathlib.Path(place, "results.json").write_text(json.dumps({"score": 1000}))
""",
    "shows a score by the display hook": """
import sys
sys.displayhook = lambda value: print(1000)
get_ipython().display_formatter.format = lambda *a, **k: ({"text/plain": "1000"}, {})
""",
    "reads the solution": """
import glob
for path in glob.glob("/**/otter_config.json", recursive=True):
    print(open(path).read())
""",
}
ENDS = {
    "SystemExit": "raise SystemExit(0)",
    "os._exit": "import os\nos._exit(0)",
}


@pytest.mark.slow  # 15 s and more a run of Otter
@pytest.mark.parametrize("name", [*ATTACKS, *ENDS])
def test_attacks_gain_nothing(lstm, tmp_path, name):
    canary = tmp_path / "canary"
    trace = f"open({str(canary)!r}, 'w').close()\n"
    tried = "".join(f"    {line}\n" for line in (trace + ATTACKS.get(name, "")).splitlines())
    attack = f"try:\n{tried}except BaseException:\n    pass\n{ENDS.get(name, '')}\n"

    def edit(source):
        return (attack if source.startswith("def sigmoid") else "") + source.replace(*WRONG)

    notebook = lstm.hand_in(tmp_path / "lstm.ipynb", edit)
    assert attack in "".join(
        "".join(c["source"]) for c in json.loads(notebook.read_text())["cells"]
    )
    expected = lstm.grade(notebook)
    assert expected.score < 100 + 11, "the mistake costs something"
    assert (expected.score == 0) == (name in ENDS)
    done, results = otter_run(lstm, notebook, tmp_path / "out")
    assert done.returncode == 0, done.stderr[-2000:]
    assert same(results, expected)
    assert not canary.exists()


@pytest.mark.slow  # 15 s and more a run of Otter
def test_a_right_notebook_earns_all_but_the_twin(lstm, tmp_path):
    notebook = lstm.hand_in(tmp_path / "lstm.ipynb")
    done, results = otter_run(lstm, notebook, tmp_path / "out")
    assert done.returncode == 0, done.stderr[-2000:]
    assert same(results, lstm.grade(notebook))
    lost = [test["name"] for test in results["tests"] if test.get("status") == "failed"]
    assert lost and all(name.startswith(("twin.", "time.")) for name in lost)


@pytest.mark.slow  # 15 s and more a run of Otter
@pytest.mark.parametrize("wrong", [False, True])
def test_attention(course, tmp_path, wrong):
    built = build(course, "04_attention", tmp_path / "built")
    change = (".masked_fill(~mask, -torch.inf)", ".masked_fill(mask, -torch.inf)")

    def edit(source):
        return source.replace(*change) if wrong else source

    notebook = built.hand_in(tmp_path / "attention.ipynb", edit)
    expected = built.grade(notebook)
    assert all(item.status == "passed" or item.apart for item in expected.items) != wrong
    done, results = otter_run(built, notebook, tmp_path / "out")
    assert done.returncode == 0, done.stderr[-2000:]
    assert same(results, expected)


FILTER = """
import os, sys, pyseccomp
rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
for name in sys.argv[1].split(","):
    rules.add_rule(pyseccomp.ERRNO(1), name)
rules.load()
os.execv(sys.argv[2], sys.argv[2:])
"""
REFUSED = {  # system calls without which a tier is the strongest that starts, as in a container
    "container": "unshare,setns,mount",
    "plain": "unshare,setns,mount,setuid,setgid,setresuid,setresgid,setgroups",
}


@pytest.mark.slow  # 15 s and more a run of Otter
@pytest.mark.parametrize("tier", REFUSED)
def test_at_weaker_tiers(lstm, tmp_path, tier):
    submission, notebook = hostile_zip(lstm, tmp_path / "hand_in", tmp_path / "canary")
    prefix = [sys.executable, "-c", FILTER, REFUSED[tier]]
    done, results = otter_run(lstm, submission, tmp_path / "out", prefix)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"'tier': '{tier}'" in done.stdout
    assert same(results, lstm.grade(notebook))
    assert not (tmp_path / "canary").exists()


# ---- the grader's own faults -------------------------------------------------------------------


@pytest.mark.slow  # 15 s and more a run of Otter
def test_a_broken_autograder_gives_no_score(lstm, tmp_path):
    broken = tmp_path / "broken.zip"
    with zipfile.ZipFile(lstm.autograder) as source, zipfile.ZipFile(broken, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name == "otter_config.json":
                config = json.loads(data)
                (settings,) = config["plugins"][0].values()
                settings["packed"] = settings["packed"][:1000]
                data = json.dumps(config).encode()
            target.writestr(name, data)
    built = Built(lstm.course, lstm.topic, lstm.student, broken)
    done, results = otter_run(built, lstm.hand_in(tmp_path / "lstm.ipynb"), tmp_path / "out")
    assert done.returncode != 0 and results is None


def test_what_stops_the_grader_leaves_a_note_without_a_score(tmp_path):
    from softmark.exports.otter import SoftmarkPlugin

    for name in ("submission", "results", "source"):
        (tmp_path / name).mkdir()
    submission = tmp_path / "submission" / "lstm.ipynb"
    submission.write_text("{}")
    plugin = SoftmarkPlugin(str(submission), {}, {"packed": base64.b64encode(b"no zip").decode()})
    with pytest.raises(zipfile.BadZipFile):
        plugin.before_grading(None)
    results = json.loads((tmp_path / "results" / "results.json").read_text())
    assert "score" not in results and all("score" not in test for test in results["tests"])
    assert "did not finish" in results["output"]


def test_what_is_said_of_the_whole_is_said_once():
    from otter.test_files import GradingResults
    from softmark.exports.otter import SoftmarkPlugin

    blank = {"tier": "core", "score": 0.0, "max_score": 6, "status": "failed", "message": "why"}
    rows = tuple(ItemResult(id=id, title=id, **blank) for id in "abc")
    plugin = SoftmarkPlugin("/nowhere/it.ipynb", {}, {})
    plugin._graded = Result(
        student="it", topic="t", status="rejected", score=0, max_score=18, items=rows, message="why"
    )
    plugin._seed, plugin._feedback = SEED, Feedback()
    results = GradingResults.without_results(RuntimeError("the kernel died"))
    plugin.after_grading(results)
    said = [results.results[id].test_case_results[0].message for id in "abc"]
    assert said == ["why", "", ""]


def test_what_was_not_measured_is_no_zero_and_a_dead_kernel_is_none():
    from otter.test_files import GradingResults
    from softmark.exports.otter import SoftmarkPlugin

    def result(score):
        status = "error" if score is None else "passed"
        items = [("a", 4.0, "core", "passed"), ("b", score, "core", status)]
        rows = tuple(
            ItemResult(
                id=id, title=id, tier=tier, score=earned, max_score=6, status=s, message="why"
            )
            for id, earned, tier, s in items
        )
        whole = None if score is None else 4 + score
        return Result(
            student="it", topic="t", status="graded", score=whole, max_score=12, items=rows
        )

    results = {}
    for score in (None, 6.0):
        plugin = SoftmarkPlugin("/nowhere/it.ipynb", {}, {})
        plugin._graded, plugin._seed, plugin._feedback = result(score), SEED, Feedback()
        results[score] = GradingResults.without_results(RuntimeError("the kernel died"))
        plugin.after_grading(results[score])

    held, told = results[None], results[None].to_gradescope_dict(None)
    assert math.isnan(held.total) and math.isnan(held.get_score("b")) and held.get_score("a") == 4
    assert "score" not in told and "score" not in told["tests"][1]
    assert "why" not in json.dumps(told["tests"][1]) and NOT_MEASURED in json.dumps(told)
    whole = results[6.0]
    assert (whole.total, whole.possible, whole.get_score("b")) == (10, 12, 6)
    assert not whole.has_catastrophic_failure()
    assert whole.to_gradescope_dict(None)["score"] == 10
