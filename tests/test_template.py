"""The repository that students begin with, its workflows, and those of the private grader."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from softmark.cli import app
from softmark.exports.github import as_markdown, write_feedback
from softmark.result import ItemResult, Result
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "02_lstm"
TEMPLATES = ROOT / "autograder/softmark/templates/repository"
GRADER = ROOT / "ci/github-grade.yml"
WORKFLOWS = [TEMPLATES / "check.yml", TEMPLATES / "hand-in.yml", GRADER]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A course of the one topic 02_lstm."""
    course = tmp_path / "course"
    for place in ("assignments", "solutions", "autograder/graders"):
        skip = shutil.ignore_patterns("__pycache__", ".pytest_cache")
        shutil.copytree(ROOT / place / TOPIC, course / place / TOPIC, ignore=skip)
    text = "title: One topic\ntopics:\n  - {id: 02_lstm, opens: 2026-10-05}\n"
    (course / "course.yaml").write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "constraints.txt", course)
    return course


def build(folder: Path, out: Path, *options: str) -> tuple[int, str]:
    command = ["build", "template", "--out", str(out), "--course", str(folder), *options]
    done = CliRunner().invoke(app, command)
    return done.exit_code, " ".join(done.output.split())


def read(workflow: Path) -> Any:
    """A workflow; YAML 1.1 takes the key ``on`` for a truth value."""
    return yaml.safe_load(workflow.read_text(encoding="utf-8").replace("\non:", '\n"on":'))


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in read(workflow)["jobs"].values() for step in job["steps"]]


# ---- the repository ------------------------------------------------------------------------------


def test_it_holds_what_students_need_and_two_workflows(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "template"
    (out / "engine").mkdir(parents=True)
    (out / "engine/softmark-0.0.1-py3-none-any.whl").write_text("of before", encoding="utf-8")
    (out / "notes.md").write_text("ours", encoding="utf-8")
    code, said = build(folder, out, "--date", "2026-10-05")
    assert code == 0, said
    there = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    (wheel,) = [name for name in there if name.endswith(".whl")]
    assert wheel != "engine/softmark-0.0.1-py3-none-any.whl"
    starter = ["answers.yaml", "assignment.yaml", "decay.svg", "handout.md", "lstm.ipynb"]
    starter += ["lstm.py", "lstm_torch.py", "questions.yaml", "test_public.py"]
    starter += ["test_public_torch.py"]
    assert there == {
        *("README.md", "constraints.txt", "pyproject.toml", ".gitignore", "notes.md"),
        *("engine/from_wheel.py", wheel),
        *(".github/workflows/check.yml", ".github/workflows/hand-in.yml"),
        *(f"{TOPIC}/{name}" for name in starter),
    }
    inputs = read(out / ".github/workflows/hand-in.yml")["on"]["workflow_dispatch"]["inputs"]
    assert inputs["topic"]["options"] == [TOPIC]
    assert "cd 02_lstm" in (out / "README.md").read_text(encoding="utf-8")


def test_what_is_private_or_not_open_is_refused(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "template"
    assert build(folder, out, "--date", "2026-10-04") == (
        2,
        "softmark: course.yaml: no topic is open on 2026-10-04",
    )
    code, said = build(folder, folder)
    assert code == 2 and "it is no repository of students" in said
    with (folder / "assignments" / TOPIC / "test_public.py").open("a", encoding="utf-8") as file:
        file.write("\n# return np.where(z >= 0, 1, e) / (1 + e)\n")
    code, said = build(folder, out)
    assert code == 2 and "02_lstm/test_public.py:" in said
    assert not out.exists()


# ---- the workflows -------------------------------------------------------------------------------


def test_they_are_valid(folder: Path, tmp_path: Path) -> None:
    assert build(folder, tmp_path / "out")[0] == 0
    built = [str(path) for path in (tmp_path / "out/.github/workflows").iterdir()]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    github = [*command, "vendor.github-workflows", *built, str(GRADER)]
    gitlab = [*command, "vendor.gitlab-ci", "--data-transform", "gitlab-ci"]
    for words in (github, [*gitlab, str(ROOT / "ci/gitlab-grade.yml")]):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_they_do_no_more_than_they_must(path: Path) -> None:
    """Actions are GitHub's own, by commit; no job may do what it was not given by name; no checkout
    leaves a token; shells are sound."""
    workflow = read(path)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for name, job in workflow["jobs"].items():
        granted = job.get("permissions", {})
        writes = "write" in granted.values()
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"])
                assert not writes, f"{name} runs only its own lines where it may write"
            if str(step.get("uses", "")).startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
            if "run" in step:
                # what GitHub puts in is no part of a program: it comes by the environment
                inside = re.findall(r"\$\{\{\s*(.*?)\s*\}\}", step["run"])
                assert set(inside) <= {"matrix.shard"}
                code = re.sub(r"\$\{\{.*?\}\}", "1", step["run"])
                if shutil.which("bash"):
                    done = subprocess.run(["bash", "-n"], input=code, text=True, check=False)
                    assert done.returncode == 0


@pytest.mark.parametrize("path", WORKFLOWS[:2], ids=lambda path: path.name)
def test_students_workflows_know_no_secret(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "secrets." not in text and "pull_request_target" not in text
    assert "workflow_run" not in text and "id-token" not in text


def test_no_token_is_where_students_code_runs() -> None:
    jobs = read(GRADER)["jobs"]
    secrets = {
        name: set(re.findall(r"secrets\.(\w+)", json.dumps(job))) for name, job in jobs.items()
    }
    assert secrets == {
        "collect": {"COLLECT_TOKEN"},
        "grade": {"SOFTMARK_SEED"},
        "give-back": {"GIVE_BACK_TOKEN"},
    }
    for name, job in jobs.items():
        grades = "softmark grade" in json.dumps(job)
        assert grades == (name == "grade")
        # a student's repository is never checked out: no checkout names another repository
        for step in job["steps"]:
            assert "repository" not in step.get("with", {}) and "ref" not in step.get("with", {})
    assert jobs["give-back"]["permissions"] == {}
    assert not any("checkout" in str(step.get("uses")) for step in jobs["give-back"]["steps"])


GH = r"""#!/usr/bin/env bash
echo "$*" >>"$LOG"
case "$*" in
  *one/handin/commits/tags/hand-in-02_lstm*) echo 1111 ;;
  *two/handin/commits/tags/hand-in-02_lstm*) echo 2222 ;;
  */commits/tags/*) exit 1 ;;
  *one/handin/commits/1111/status*) echo 0 ;;
  *two/handin/commits/2222/status*) echo 1 ;;
  *one/handin/contents/02_lstm/lstm.py*) echo "x = 1" ;;
  */contents/*) echo '{"message": "Not Found"}'; exit 1 ;;
  "issue list"*) [ "$ISSUE" = none ] || echo 7 ;;
esac
"""


@pytest.fixture
def gh(tmp_path: Path) -> Path:
    """A folder with a stand-in for GitHub's command, which logs what it is asked."""
    if not shutil.which("bash"):
        pytest.skip("needs bash")
    place = tmp_path / "bin"
    place.mkdir()
    (place / "gh").write_text(GH, encoding="utf-8")
    (place / "gh").chmod(0o755)
    return place


def shell(step: dict[str, Any], cwd: Path, gh: Path, **variables: str) -> tuple[str, list[str]]:
    """Run a step as GitHub does; what it writes to its outputs, and what it asked of gh."""
    log, output = cwd / "log", cwd / "outputs"
    log.write_text("")
    output.write_text("")
    environment = {
        **os.environ,
        "PATH": f"{gh}{os.pathsep}{os.environ['PATH']}",
        "LOG": str(log),
        "GITHUB_OUTPUT": str(output),
        "TOPIC": TOPIC,
        **variables,
    }
    code = step["run"]
    done = subprocess.run(
        ["bash", "-e", "-c", code], cwd=cwd, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return output.read_text(), log.read_text().splitlines()


def test_the_grader_collects_files_that_have_no_answer_yet(tmp_path: Path, gh: Path) -> None:
    (step,) = [s for s in steps(GRADER) if s.get("id") == "fetch"]
    shutil.copytree(ROOT / "assignments" / TOPIC, tmp_path / "assignments" / TOPIC)
    students = "# id repository\ns1 one/handin\ns2 two/handin\n\ns3 three/handin\n"
    (tmp_path / "students.txt").write_text(students, encoding="utf-8")
    output, asked = shell(step, tmp_path, gh)
    assert output == "count=1\n"
    batch = tmp_path / "batch"
    assert (batch / "commits.txt").read_text() == "s1 one/handin 1111\n"
    files = [p.relative_to(batch).as_posix() for p in (batch / "submissions").rglob("*.*")]
    assert files == ["submissions/s1/lstm.py"]
    names = {line.split("/")[-1].split("?")[0] for line in asked if "/contents/" in line}
    assert {line.split("?ref=")[-1][:4] for line in asked if "/contents/" in line} == {"1111"}
    assert len(names) >= 1


@pytest.mark.parametrize("issue", ["none", "there"])
def test_it_gives_back_a_page_and_a_status(tmp_path: Path, gh: Path, issue: str) -> None:
    (step,) = steps(GRADER)[-1:]
    feedback = tmp_path / "all/results-2/feedback"
    feedback.mkdir(parents=True)
    (feedback / "s1.md").write_text("a page", encoding="utf-8")
    (feedback / "s1.txt").write_text("83 of 100 points\n", encoding="utf-8")
    (tmp_path / "all/batch").mkdir()
    commits = "s1 one/handin 1111\ns2 two/handin 2222\n"  # the second was not graded
    (tmp_path / "all/batch/commits.txt").write_text(commits, encoding="utf-8")
    _, asked = shell(step, tmp_path, gh, ISSUE=issue)
    verb = "issue create" if issue == "none" else "issue comment 7"
    assert any(line.startswith(verb) and "--repo one/handin" in line for line in asked)
    (status,) = [line for line in asked if "/statuses/" in line]
    assert "repos/one/handin/statuses/1111" in status
    assert "context=softmark/02_lstm" in status and "83 of 100 points" in status
    assert not any("two/handin" in line for line in asked)


# ---- softmark check --github ---------------------------------------------------------------------


def check(work: Path, summary: Path) -> tuple[int, list[str], str]:
    """Its exit code, what it tells GitHub in the log, and the summary."""
    done = subprocess.run(
        [sys.executable, "-m", "softmark", "check", "--github", TOPIC],
        cwd=work,
        env={
            **os.environ,
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_WORKSPACE": str(work),
            "PYTHONIOENCODING": "utf-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("::")]
    return done.returncode, told, summary.read_text(encoding="utf-8")


def test_what_fails_is_marked_on_the_students_lines(tmp_path: Path) -> None:
    work = tmp_path / "work"
    shutil.copytree(ROOT / "starter" / TOPIC, work / TOPIC)
    code, told, page = check(work, tmp_path / "begun.md")
    assert (code, told) == (0, [])  # nothing of it is written, and nothing fails
    assert "to do" in page and "sigmoid is still to be written" in page

    source = (ROOT / "solutions" / TOPIC / "lstm.py").read_text(encoding="utf-8")
    wrong = source.replace("dc * f\n", "-dc * f\n")
    wrong = wrong.replace(
        "return np.where(z >= 0, 1, e)", "return nothing | np.where(z >= 0, 1, e)"
    )
    (work / TOPIC / "lstm.py").write_text(wrong, encoding="utf-8")
    code, told, page = check(work, tmp_path / "raised.md")
    lines = wrong.splitlines()
    raised = next(n for n, line in enumerate(lines, 1) if "nothing |" in line)
    assert code == 1
    assert told[0].startswith(f"::error file={TOPIC}/lstm.py,line={raised},title=")
    assert "::NameError: name 'nothing' is not defined%0A" in told[0]
    assert "nothing &#124; np.where" in page  # and does not end the cell of the table

    (work / TOPIC / "lstm.py").write_text(source.replace("dc * f\n", "-dc * f\n"), "utf-8")
    code, told, page = check(work, tmp_path / "wrong.md")
    lines = source.splitlines()
    backward = next(n for n, line in enumerate(lines, 1) if "def backward" in line)
    assert code == 1
    assert f"file={TOPIC}/lstm.py,line={backward}," in told[0] and "::dc_prev is wrong" in told[0]
    marked = [re.findall(r",line=(\d+),", line)[0] for line in told]
    assert len(set(marked)) == len(marked)

    (work / TOPIC / "lstm.py").write_text("import numpy\n\ndef f(:\n", encoding="utf-8")
    code, told, _ = check(work, tmp_path / "broken.md")
    assert code == 1 and len(told) == 1
    assert told[0].startswith(f"::error file={TOPIC}/lstm.py,line=3,")


# ---- what is given back --------------------------------------------------------------------------


def result(**changes: Any) -> Result:
    item = ItemResult(
        id="a.b",
        title="The first",
        tier="core",
        score=1.5,
        max_score=2,
        status="failed",
        message="h | c is wrong, @everybody: </code> [x](y)\nIn line 3",
        hints=("The hint of a mistake.", "A hint of the shape."),
        mistake="one_of_them",
    )
    fields: dict[str, Any] = {
        "student": "s1",
        "topic": TOPIC,
        "status": "graded",
        "score": 83.0,
        "max_score": 100.0,
        "items": (item,),
        "flags": ("lstm.py:3 imports os",),
        "digest": "0123456789abcdef",
    }
    return Result(**{**fields, **changes})


def test_a_page_says_what_is_there_and_nothing_in_it_is_markdown() -> None:
    page = as_markdown(result())
    assert "**02_lstm: 83 of 100 points**" in page and "Receipt 0123456789ab." in page
    (row,) = [line for line in page.splitlines() if "The first" in line]
    assert row.replace("\\|", "").count("|") == 5
    assert "<code>h &#124; c is wrong, @everybody: &lt;/code&gt; [x](y)</code>" in row


def test_what_is_said_of_the_whole_is_said_once() -> None:
    why = "lstm.py:3 uses os: not here"
    (item,) = result().items
    items = tuple(item.model_copy(update={"id": id, "message": why, "hints": ()}) for id in "abc")
    page = as_markdown(result(status="rejected", score=0.0, items=items, message=why))
    assert page.count("uses os") == 1 and page.count("The first") == 3


def test_pages_hold_no_more_than_the_course_lets_students_see(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "results").mkdir(parents=True)
    (out / "results/s1.json").write_text(result().to_json(), encoding="utf-8")
    held = result(student="s2", status="import_error", score=0.0, items=(), message="line 3")
    (out / "results/s2.json").write_text(held.to_json(), encoding="utf-8")
    run = {"topic": TOPIC, "course": str(folder)}
    (out / "run.json").write_text(json.dumps(run), encoding="utf-8")
    write_feedback(out)
    page = (out / "feedback/s1.md").read_text(encoding="utf-8")
    assert "A hint of the shape." in page
    assert "The hint of a mistake." not in page and "imports os" not in page
    assert (out / "feedback/s1.txt").read_text(encoding="utf-8") == "83 of 100 points\n"
    assert "import error" in (out / "feedback/s2.txt").read_text(encoding="utf-8")
    text = (folder / "course.yaml").read_text(encoding="utf-8")
    text += "feedback: {before_due: nothing}\n"
    (folder / "course.yaml").write_text(text, encoding="utf-8")
    write_feedback(out)
    page = (out / "feedback/s1.md").read_text(encoding="utf-8")
    assert "83" not in page and "The first" not in page
