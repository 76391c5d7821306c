"""``softmark grade`` from end to end: the example class, faulty graders, deaths in the middle."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import small_course
from softmark import batch
from softmark.bench import reference_files
from softmark.cli import app
from softmark.course import load_course
from softmark.intake import read_submission
from softmark.mistakes import load_mistakes
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
CLASS = EXAMPLES / "class_02_lstm"
COURSE = load_course(ROOT)
TOPIC = COURSE.topic("02_lstm")
RUBRIC = {id: item for id, item in TOPIC.rubric.items() if item.device == "cpu"}
RIGHT = ("right_as_taught", "right_with_einsum", "right_in_a_notebook", "right_in_a_zip")
TWIN = {id for id in RUBRIC if id.startswith("twin.")}
QUESTIONS = {id for id in RUBRIC if id.startswith("questions.")}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hidden grading needs Linux")


def command(path: Path, out: Path, *options: str) -> list[str]:
    grade = [sys.executable, "-m", "softmark", "grade", str(path), "--topic", "02_lstm"]
    return [*grade, "--out", str(out), *options]


def grade(path: Path, out: Path, *options: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command; it must end with this exit code and never with a traceback."""
    done = subprocess.run(
        command(path, out, *options), cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout
    return done


def results(out: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in (out / "results").iterdir()}


def items(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["id"]: item for item in result["items"]}


def lost(result: Mapping[str, Any]) -> set[str]:
    """The items that it does not pass, of those that can be passed without a GPU."""
    return {id for id in RUBRIC if items(result)[id]["status"] != "passed"}


def starting(*starts: str) -> set[str]:
    """The rubric items whose ids begin with one of these."""
    return {id for id in RUBRIC if id.startswith(starts)}


def points(ids: set[str]) -> float:
    return sum(RUBRIC[id].points for id in ids)


def judgement(result: Mapping[str, Any]) -> dict[str, Any]:
    """All that a result says, but for whose it is, how the file was called and how long it took."""
    return {k: v for k, v in result.items() if k not in ("student", "notes", "seconds")}


def collect(folder: Path, names: Mapping[str, str]) -> Path:
    """A folder of submissions: new name -> the submission of the class that it is a copy of."""
    folder.mkdir()
    for new, name in names.items():
        source = next(path for path in CLASS.iterdir() if path.stem == name)
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / f"{new}{source.suffix}")
    return folder


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The example class, graded by the command once."""
    out = tmp_path_factory.mktemp("class")
    done = grade(CLASS, out, "--workers", "2", "--seed", "1", "--json")
    found = results(out)
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert {result["student"]: result for result in printed} == found
    return found


# ---- the class -------------------------------------------------------------------------------------


def test_the_classes_are_what_their_maker_makes(tmp_path):
    examples = shutil.copytree(EXAMPLES, tmp_path / "examples")
    for path in (examples / CLASS.name).iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in ("forges_a_pass.py", "looks_for_the_solutions.py"):
            path.unlink()  # these two are written by hand
    for name in ("course.yaml", "assignments", "solutions"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "autograder").mkdir()
    maker = [sys.executable, str(examples / "make_class.py")]
    subprocess.run(maker, check=True, capture_output=True, timeout=60)

    def content(folder: Path) -> dict[str, bytes]:
        files = (path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}

    for folder in EXAMPLES.glob("class_*"):
        made = content(examples / folder.name)
        assert made == content(folder), "run: python examples/make_class.py"


def test_the_notebook_is_one():
    notebook = json.loads((CLASS / "right_in_a_notebook.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    cells = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert {cell["cell_type"] for cell in cells} == {"code", "markdown"}
    assert any("".join(cell["source"]).startswith("%matplotlib") for cell in cells)


def test_no_answer_key_in_right_submissions():
    for path in CLASS.rglob("*"):
        if path.is_file() and path.stem != "looks_for_the_solutions":
            assert b"BEGIN SOLUTION" not in path.read_bytes(), path


def test_everyone_is_graded(graded):
    assert set(graded) == {path.stem for path in CLASS.iterdir()}
    unusual = {id: r["status"] for id, r in graded.items() if r["status"] != "graded"}
    assert unusual == {"syntax_error": "import_error"}


@pytest.mark.parametrize("name", RIGHT)
def test_right_submissions_get_everything_that_was_handed_in(graded, name):
    result = graded[name]
    assert result["score"] == sum(item.points for item in RUBRIC.values()) - points(TWIN)
    assert result["message"] == ""
    assert lost(result) == TWIN
    for id, item in items(result).items():
        if id in TWIN:
            assert item["message"] == "lstm_torch.py was not handed in."
        elif id in RUBRIC:
            assert (item["status"], item["score"]) == ("passed", item["max_score"])
            assert (item["message"], item["hints"], item["cause"]) == ("", [], None)


def test_with_the_twin_nothing_is_left_to_earn(graded):
    pytest.importorskip("torch")
    result = graded["right_with_everything"]
    assert lost(result) == set()
    assert result["score"] == 115


def test_answers_that_are_not_there_cost_the_questions(graded):
    assert lost(graded["right_without_answers"]) == TWIN | QUESTIONS


WRONG = {
    "wrong_dc_from_next_step_dropped": "dc_from_next_step_dropped",
    "wrong_output_gate_gets_c": "output_gate_gets_c",
    "wrong_db_averaged": "db_averaged_over_the_batch",
    "wrong_dc_last_ignored": "dc_last_ignored",
    "wrong_h_before_x": "h_before_x",
}


@pytest.mark.parametrize("name", WRONG)
def test_one_mistake_loses_exactly_its_items_and_is_named(graded, name):
    mistakes = {m.id: m for m in load_mistakes(COURSE, TOPIC, reference_files(COURSE, TOPIC))}
    mistake = mistakes[WRONG[name]]
    assert lost(graded[name]) == mistake.loses | TWIN
    named = [item for item in graded[name]["items"] if item["mistake"]]
    assert {item["mistake"] for item in named} == {mistake.id}
    assert all(item["hints"][0] == mistake.hint for item in named)


FOLLOW_THROUGH = {
    # core points of items right by themselves, and with what is right given the mistake
    "wrong_dc_from_next_step_dropped": (51, 64.2),
    "wrong_output_gate_gets_c": (57, 70.2),
    "wrong_h_before_x": (27, 57.6),
}


@pytest.mark.parametrize("name", FOLLOW_THROUGH)
def test_one_mistake_does_not_cost_all_that_is_built_on_it(graded, name):
    """The three examples of docs/instructor.md."""
    core = [item for item in graded[name]["items"] if item["tier"] == "core"]
    alone = sum(item["score"] for item in core if item["status"] == "passed")
    assert (alone, pytest.approx(sum(item["score"] for item in core))) == FOLLOW_THROUGH[name]
    row = " ".join(
        (ROOT / "docs" / "instructor.md").read_text().split(f"`{name}`")[1].split("\n")[0].split()
    )
    assert row.endswith("| {} | {} |".format(*FOLLOW_THROUGH[name]))


def test_an_untouched_stub_loses_everything_and_is_told_why(graded):
    result = graded["stub_untouched"]
    assert result["score"] == 0
    assert lost(result) == set(RUBRIC)
    told = {id: item["message"] for id, item in items(result).items()}
    assert "sigmoid is still to be written" in told["sigmoid.values"]
    assert "LSTMCell.__init__ is still to be written" in told["cell.params"]
    for id in set(RUBRIC) - TWIN - QUESTIONS:
        first = ("still to be written", "Write that first", "Mend that first")
        assert any(said in told[id] for said in first), id
    assert told["twin.forward"] == "lstm_torch.py was not handed in."
    assert "No answer" in told[min(QUESTIONS)]


def test_half_done_keeps_what_it_has(graded):
    result = graded["half_done"]
    kept = starting("sigmoid.", "cell.", "step.forward.")
    assert lost(result) == set(RUBRIC) - kept
    assert result["score"] == points(kept)
    first = items(result)["step.backward.dx"]["message"]
    assert "LSTMCell.backward is still to be written (lstm.py:" in first


def test_a_missing_function_costs_what_needs_it(graded):
    result = graded["missing_function"]
    needs = starting("sequence.backward.", "sequence.accumulate", "robust.", "mask.backward.")
    needs |= starting("mask.padding", "carousel.") | TWIN | QUESTIONS
    assert lost(result) == needs
    assert "lstm_backward" in items(result)["sequence.backward.dx"]["message"]


def test_a_wrong_shape_is_told_with_the_right_one(graded):
    result = graded["wrong_shape"]
    # what looks at properties of sequences needs the right shapes
    needs = starting("sequence.forward.h", "sequence.accumulate", "robust.", "mask.forward.h")
    assert lost(result) == needs | starting("mask.padding") | TWIN | QUESTIONS
    item = items(result)["sequence.forward.h"]
    assert "(N, T, H)" in item["message"]
    assert any("transpose" in hint for hint in item["hints"])


def test_a_syntax_error_is_shown_with_its_line(graded):
    result = graded["syntax_error"]
    assert result["score"] == 0
    assert lost(result) == set(RUBRIC)
    line = (
        (CLASS / "syntax_error.py")
        .read_text()
        .splitlines()
        .index("def lstm_forward(cell, x, h0, c0, mask=None)")
    )
    assert "SyntaxError" in result["message"]
    assert f"lstm.py:{line + 1}" in result["message"]


# ---- hostile ones ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, cause, kept, said",
    [
        ("infinite_loop", "timeout", ("sigmoid.", "cell."), "Not finished after"),
        ("memory_hog", "out_of_memory", ("sigmoid.", "cell.", "step."), "ran out of memory"),
        ("exits_with_code_0", "crashed", ("sigmoid.", "cell.", "step."), "exit code 0"),
    ],
)
def test_a_submission_that_ends_badly_keeps_its_honest_part(graded, name, cause, kept, said):
    result = graded[name]
    own = starting(*kept, "carousel.")  # what is never reached by what ends badly
    assert lost(result) == set(RUBRIC) - own
    assert result["score"] == points(own)
    failed = [item for id, item in items(result).items() if id in lost(result) - TWIN - QUESTIONS]
    assert {item["cause"] for item in failed} == {cause}
    assert said in failed[0]["message"]


def test_a_forged_pass_earns_nothing(graded):
    result = graded["forges_a_pass"]
    assert result["score"] == 0
    assert lost(result) == set(RUBRIC)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some quick submissions of the class, and one that answers zeros without looking around."""
    folder = tmp_path_factory.mktemp("few") / "class"
    names = ("forges_a_pass", "half_done", "stub_untouched", "syntax_error", "wrong_shape")
    collect(folder, {name: name for name in names})
    source = (CLASS / "looks_for_the_solutions.py").read_text()
    assert source.count("SECONDS = 3.0") == 1
    (folder / "zeros.py").write_text(source.replace("SECONDS = 3.0", "SECONDS = 0.0"))
    return folder


@pytest.fixture(scope="module")
def few_again(few: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    out = tmp_path_factory.mktemp("again")
    grade(few, out, "--workers", "1", "--seed", "1", "--json")
    return results(out)


def test_looking_for_solutions_earns_what_zeros_earn(graded, few_again):
    result = graded["looks_for_the_solutions"]
    assert lost(result) == lost(few_again["zeros"])
    values = starting("sigmoid.", "step.", "sequence.", "cell.bias", "cell.weights")
    assert values <= lost(result)
    assert any("os" in flag.split() for flag in result["flags"])


def test_looking_for_solutions_works_where_nothing_is_kept_apart():
    # else the test above would say nothing
    program = (
        "import runpy, numpy as np\n"
        f"found = runpy.run_path({str(CLASS / 'looks_for_the_solutions.py')!r})\n"
        "print(found['sigmoid'](np.zeros(1)))"
    )
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[0.5]", done.stderr


def test_neighbours_are_undisturbed(graded, tmp_path):
    """Alone, a submission gets the result that it gets in the class; full marks are no loss."""
    grade(CLASS / "right_as_taught", tmp_path, "--seed", "1", "--strict")
    alone = results(tmp_path)["right_as_taught"]
    assert {**alone, "seconds": 0} == {**graded["right_as_taught"], "seconds": 0}


# ---- results ---------------------------------------------------------------------------------------


def test_the_schema(graded):
    keys = (
        "schema student topic status score max_score items flags isolation versions digest seconds"
    )
    item_keys = (
        "id title tier score max_score status cause message hints claim mistake counts measured"
    )
    for name, result in graded.items():
        assert set(result) == {*keys.split(), "message", "notes", "parts"}
        assert (result["schema"], result["student"], result["topic"]) == (1, name, "02_lstm")
        assert [item["id"] for item in result["items"]] == list(TOPIC.rubric)
        assert all(set(item) == set(item_keys.split()) for item in result["items"])
        assert {"python", "numpy", "softmark"} <= set(result["versions"])
        assert len(result["digest"]) == 64
        assert result["seconds"] > 0


def test_scores_add_up_and_every_loss_is_explained(graded):
    for name, result in graded.items():
        counted = [item for item in result["items"] if item["counts"]]
        assert {item["id"] for item in counted} == set(RUBRIC)
        earned = sum(item["score"] for item in counted)
        assert result["score"] == pytest.approx(earned), name
        for item in counted:
            share = RUBRIC[item["id"]].follow_through or 0
            earned = {"passed": item["max_score"], "partial": share * item["max_score"]}
            assert item["score"] == pytest.approx(earned.get(item["status"], 0))
            assert item["status"] == "passed" or item["message"], (name, item["id"])


def test_isolation_is_recorded(graded):
    guarantees = ("files", "network", "processes", "memory")
    for result in graded.values():
        recorded = result["isolation"]
        assert recorded["tier"] in ("root", "userns", "container", "plain")
        assert all(isinstance(recorded[name], bool) for name in guarantees)
        assert recorded["files"]


def test_the_same_seed_gives_the_same_results(graded, few_again):
    for name, result in few_again.items():
        if name != "zeros":
            assert {**result, "seconds": 0} == {**graded[name], "seconds": 0}


def test_another_seed_gives_the_same_scores_in_a_table(few, few_again, tmp_path):
    """Other inputs, no other grades. Somebody lost points, so --strict says so."""
    done = grade(few, tmp_path, "--seed", "2", "--strict", code=1)
    assert {n: lost(r) for n, r in results(tmp_path).items()} == {
        n: lost(r) for n, r in few_again.items()
    }
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    words = [[word for word in line.split() if word != "⚑"] for line in lines if line[:1].strip()]
    rows = {row[0]: row for row in words if row}
    for name, result in few_again.items():
        assert rows[name][1] == f"{result['score']:g}"
        told = " ".join(rows[name][2:])
        assert told.startswith(result["message"][:40] if result["message"] else "")
    assert sum(line.split()[:1] == ["half_done"] for line in lines) == 1


def test_two_shards_make_the_whole(few, few_again, tmp_path):
    shards = []
    for shard in ("1/2", "2/2"):
        out = tmp_path / shard[0]
        grade(few, out, "--seed", "1", "--workers", "1", "--shard", shard)
        shards.append(results(out))
    assert not set(shards[0]) & set(shards[1])
    assert abs(len(shards[0]) - len(shards[1])) <= 1
    whole = {name: judgement(result) for name, result in (shards[0] | shards[1]).items()}
    assert whole == {name: judgement(result) for name, result in few_again.items()}


# ---- graders that are wrong ------------------------------------------------------------------------


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A copy of the course, to break."""
    folder = tmp_path / "course"
    skip = shutil.ignore_patterns("__pycache__")
    for part in ("assignments", "solutions", "autograder/graders"):
        shutil.copytree(ROOT / part, folder / part, ignore=skip)
    shutil.copy(ROOT / "course.yaml", folder)
    return folder


def add_test(course: Path, text: str) -> None:
    path = course / "autograder/graders/02_lstm/test_sigmoid.py"
    path.write_text(path.read_text() + text)


PLANTED = """

@item("sigmoid.stable")
def test_planted():
    not_defined_anywhere


@item("cell.bias")
def test_planted_for_zeros(script, student):
    run = script()
    s = run.call("sigmoid", np.ones(3))
    1 // int(np.any(student(run)[s]))


@item("cell.weights")
def test_planted_in_the_middle(script, student, request):
    run = script()
    s = run.call("sigmoid", np.ones(3))
    if not np.any(student(run)[s]):
        request.getfixturevalue("there_is_none")
"""
"""One bug that every submission meets, and two that only one with a sigmoid of zeros meets."""


def test_a_bug_in_a_grader_costs_nobody_a_point(course, graded, few, tmp_path):
    add_test(course, PLANTED)
    names = {"right": "right_as_taught", "wrong": "wrong_db_averaged"}
    submissions = collect(tmp_path / "s", names)
    shutil.copy(few / "zeros.py", submissions)
    done = grade(submissions, tmp_path / "out", "--course", str(course), "--seed", "1", code=3)
    found = results(tmp_path / "out")
    for name, faulty in [
        ("right", {"sigmoid.stable"}),
        ("wrong", {"sigmoid.stable"}),
        ("zeros", {"sigmoid.stable", "cell.bias", "cell.weights"}),
    ]:
        for id, item in items(found[name]).items():
            assert (item["status"] == "error") == (id in faulty), (name, id)
            assert (item["score"] is None) == (id in faulty), (name, id)
        assert found[name]["score"] is None
    told = items(found["right"])["sigmoid.stable"]["message"]
    assert "test_sigmoid.py:" in told
    assert "not_defined_anywhere" in told
    assert lost(found["right"]) == {"sigmoid.stable"} | TWIN
    assert lost(found["wrong"]) == lost(graded["wrong_db_averaged"]) | {"sigmoid.stable"}
    assert done.stdout.count("held") == 3
    assert "not_defined_anywhere" in done.stdout


def test_a_fault_in_reading_one_submission_is_not_its_own_nor_the_others(tmp_path, monkeypatch):
    opened = load_course(small_course.write_course(tmp_path, twin=False))
    paths = [tmp_path / name / "small.py" for name in ("met", "spared")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(small_course.solution(tmp_path)["small.py"])

    def broken(path, topic, id):
        if id == "met":
            raise RecursionError("too deep")
        return read_submission(path, topic, id)

    monkeypatch.setattr(batch, "read_submission", broken)
    run = batch.Run(opened, opened.topic(small_course.TOPIC), 1)
    entries = [(path.parent.name, path.parent) for path in paths]
    found = {result.student: result for result in batch.grade_all(run, entries, 1)}
    assert found["met"].score is None and found["met"].faulty
    assert "RecursionError: too deep" in found["met"].message
    assert found["spared"].score == 7  # all but the questions


def test_what_was_measured_can_stand_for_the_whole(course, graded, tmp_path):
    add_test(course, PLANTED)
    settings = (course / "course.yaml").read_text()
    assert "ungraded: hold" in settings
    (course / "course.yaml").write_text(settings.replace("ungraded: hold", "ungraded: renormalise"))
    names = {"right": "right_as_taught", "wrong": "wrong_db_averaged"}
    submissions = collect(tmp_path / "s", names)
    options = ["--course", str(course), "--seed", "1", "--json"]
    grade(submissions, tmp_path / "out", *options, code=3)
    scores = {name: result["score"] for name, result in results(tmp_path / "out").items()}
    measured = TOPIC.max_score - RUBRIC["sigmoid.stable"].points
    core = [item for item in graded["wrong_db_averaged"]["items"] if item["tier"] == "core"]
    left = sum(item["score"] for item in core) - RUBRIC["sigmoid.stable"].points
    on_top = sum(item.points for item in RUBRIC.values()) - points(TWIN) - TOPIC.max_score
    wrong = 100 * left / measured + sum(
        item["score"] or 0
        for item in graded["wrong_db_averaged"]["items"]
        if item["tier"] != "core"
    )
    assert scores == {"right": 100.0 + on_top, "wrong": pytest.approx(wrong, abs=1e-5)}


def broken_grader(course: Path) -> None:
    add_test(course, "\ndef test_cut_off(:\n")


def no_reference(course: Path) -> None:
    (course / "solutions/02_lstm/lstm.py").unlink()


def broken_reference(course: Path) -> None:
    path = course / "solutions/02_lstm/lstm.py"
    path.write_text(path.read_text() + "\nimport a_module_that_is_not_there\n")


def unknown_item(course: Path) -> None:
    add_test(course, '\n\n@item("sigmoid.speed")\ndef test_speed():\n    pass\n')


def unmarked_test(course: Path) -> None:
    add_test(course, "\n\ndef test_unmarked():\n    pass\n")


def no_graders(course: Path) -> None:
    for path in (course / "autograder/graders/02_lstm").iterdir():
        path.unlink()


@pytest.mark.parametrize(
    "breaking, named",
    [
        (broken_grader, "test_sigmoid.py"),
        (no_reference, "lstm.py"),
        (broken_reference, "a_module_that_is_not_there"),
        (unknown_item, "sigmoid.speed"),
        (unmarked_test, "test_unmarked"),
        (no_graders, "graders"),
    ],
)
def test_graders_that_cannot_grade(course, tmp_path, breaking, named):
    """One line for the instructor, and no result for anyone."""
    breaking(course)
    where = ["--topic", "02_lstm", "--out", str(tmp_path), "--course", str(course)]
    arguments = ["grade", str(CLASS / "right_as_taught"), *where, "--json", "--workers", "1"]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 3
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("softmark: the grader itself failed: ")
    assert named in lines[0]
    assert done.stdout == ""
    assert not results(tmp_path)


# ---- long runs and deaths --------------------------------------------------------------------------


def sessions(parent: int) -> Iterator[int]:
    """The grading processes that ``parent`` started."""
    for folder in Path("/proc").iterdir():
        try:
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        if int(after_name[1]) == parent and b"softmark.server" in words:
            yield int(folder.name)


def test_killing_a_grading_process_loses_no_submission(graded, tmp_path):
    names = ["right_as_taught", "wrong_shape", "half_done"] * 4
    submissions = collect(tmp_path / "s", {f"{i:02d}": name for i, name in enumerate(names)})
    run = command(submissions, tmp_path / "out", "--workers", "2", "--seed", "1", "--json")
    with subprocess.Popen(run, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as batch:
        assert batch.stdout is not None
        batch.stdout.readline()
        before = sorted(sessions(batch.pid))
        assert before, "no grading process found"
        os.kill(before[0], signal.SIGKILL)
        deadline = time.monotonic() + 20
        while before[0] in sessions(batch.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        said, complaints = batch.communicate(timeout=120)
    assert batch.returncode == 0, complaints
    assert len(said.splitlines()) == len(names) - 1
    found = results(tmp_path / "out")
    assert {id: judgement(result) for id, result in found.items()} == {
        f"{i:02d}": judgement(graded[name]) for i, name in enumerate(names)
    }


def test_sixty_submissions_in_one_session(graded, tmp_path):
    """What a submission gets does not depend on who came before it."""
    kinds = [
        *("right_as_taught", "right_in_a_zip", "exits_with_code_0", "wrong_db_averaged"),
        *("stub_untouched", "stub_untouched", "syntax_error", "syntax_error", "forges_a_pass"),
        *("memory_hog", "half_done", "half_done"),
    ]
    names = kinds * 5
    random.Random(2).shuffle(names)
    submissions = collect(tmp_path / "s", {f"{i:02d}": name for i, name in enumerate(names)})
    grade(submissions, tmp_path / "out", "--workers", "1", "--seed", "1", "--json")
    found = results(tmp_path / "out")
    for i, name in enumerate(names):
        assert judgement(found[f"{i:02d}"]) == judgement(graded[name]), (i, name)
