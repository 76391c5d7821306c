"""Results for CI: JUnit XML, and the summary and marks of a job on GitHub."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from softmark.exports.actions import MARKS, marks, summary
from softmark.exports.junit import as_junit
from softmark.result import ItemResult, ItemStatus, Result

STATUSES: dict[ItemStatus, str | None] = {
    "passed": None,
    "partial": "failure",
    "failed": "failure",
    "error": "error",
    "invalid": "error",
    "not_graded": "skipped",
}


def item(status: ItemStatus, **changes: Any) -> ItemResult:
    open_ = status in ("error", "invalid", "not_graded")
    fields: dict[str, Any] = {
        "id": f"a.{status}",
        "title": f"An item: {status}",
        "tier": "core",
        "score": None if open_ else 2.0 if status == "passed" else 0.5,
        "max_score": 2,
        "status": status,
        "message": "" if status == "passed" else f"said of {status}\nand more",
        "hints": ("think",) if status == "failed" else (),
    }
    return ItemResult(**{**fields, **changes})


def result(**changes: Any) -> Result:
    fields: dict[str, Any] = {
        "student": "s1",
        "topic": "02_lstm",
        "status": "graded",
        "score": 83.0,
        "max_score": 100.0,
        "items": tuple(map(item, STATUSES)),
        "seconds": 1.25,
    }
    return Result(**{**fields, **changes})


# ---- JUnit ---------------------------------------------------------------------------------------


def test_every_item_is_a_case_and_says_what_became_of_it() -> None:
    (suite,) = ET.fromstring(as_junit([result()]))
    assert suite.attrib == {
        "name": "02_lstm.s1",
        "tests": "6",
        "failures": "2",
        "errors": "2",
        "skipped": "1",
        "time": "1.250",
    }
    for case, (status, kind) in zip(suite, STATUSES.items(), strict=True):
        assert case.get("name") == f"a.{status}: An item: {status}"
        assert case.get("classname") == "02_lstm.s1"
        assert [child.tag for child in case] == ([] if kind is None else [kind])
        for child in case:
            assert child.get("type") == status
            assert child.get("message") == f"said of {status}"
            text = child.text or ""
            assert f"said of {status}\nand more" in text and "of 2 points" in text
            assert ("open of" in text) == (status in ("error", "invalid", "not_graded"))
            assert ("Hint: think" in text) == (status == "failed")


def test_what_could_not_be_run_is_an_error_and_no_suite_is_empty() -> None:
    broken = result(status="import_error", items=(), score=0.0, message="lstm.py: line 3\nis not")
    (suite,) = ET.fromstring(as_junit([broken]))
    (case,) = suite
    (error,) = case
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == ("1", "1", "0")
    assert case.get("name") == "import_error" and error.get("message") == "lstm.py: line 3"


def test_what_a_student_writes_is_text_and_no_markup() -> None:
    nasty = "]]></failure><testcase name='x'/>\x00\x1b[31m\ud800\uffff & <b>"
    told = result(student="s<2>", items=(item("failed", message=nasty, title="a & b"),))
    ((case,),) = ET.fromstring(as_junit([told]))
    (failure,) = case
    assert case.get("classname") == "02_lstm.s<2>" and case.get("name") == "a.failed: a & b"
    assert "]]></failure><testcase name='x'/>\ufffd\ufffd[31m\ufffd\ufffd & <b>" in failure.text


def run(module: str, out: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", f"softmark.exports.{module}", str(out)],
        env={**os.environ, **variables},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_a_folder_of_results_becomes_one_file(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    for name in ("s2", "s1"):
        text = result(student=name).to_json()
        (tmp_path / f"results/{name}.json").write_text(text, encoding="utf-8")
    done = run("junit", tmp_path)
    assert done.returncode == 0, done.stderr
    suites = ET.parse(tmp_path / "junit.xml").getroot()
    assert [suite.get("name") for suite in suites] == ["02_lstm.s1", "02_lstm.s2"]
    (tmp_path / "results/s1.json").write_text("{}", encoding="utf-8")
    done = run("junit", tmp_path)
    assert done.returncode == 1 and "not a result of schema" in done.stderr


# ---- a job on GitHub -----------------------------------------------------------------------------


def raised(student: str, line: int) -> Result:
    said = f"it raised ValueError: 100%, no: yes\n(lstm.py:{line}, `x`)."
    return result(student=student, items=(item("failed", title="One: two, three", message=said),))


def test_lines_that_are_named_are_marked_once_each_and_no_more_than_github_shows() -> None:
    (mark,) = marks([raised("s1", 7)])
    place, _, text = mark.partition("::it raised")
    assert place == "::error file=s1/lstm.py,line=7,title=One%3A two%2C three"
    assert text == " ValueError: 100%25, no: yes%0A(lstm.py:7, `x`)."
    twice = result(
        items=(item("failed", message="a.py:3"), item("partial", message="a.py, line 3"))
    )
    assert len(list(marks([twice]))) == 1
    assert len(list(marks([raised("s1", line) for line in range(1, 30)]))) == MARKS
    assert not list(marks([result()]))


def test_the_summary_has_a_row_each_and_keeps_to_its_size() -> None:
    class_ = [raised(f"s{number:03}", number + 1) for number in range(300)]
    page = summary(class_)
    rows = [line for line in page.splitlines() if line.startswith("| <code>")]
    assert len(rows) == 300 and "83 of 100 points" in rows[0] and "a.failed" in rows[0]
    assert all(row.count("|") == 4 for row in rows)
    short = summary(class_, limit=5_000)
    kept = [line for line in short.splitlines() if line.startswith("| <code>")]
    assert 4_000 < len(short.encode()) <= 5_000 and 0 < len(kept) < 300
    assert f"{300 - len(kept)} more did not fit" in short
    # three bytes a letter, and five where it has to be escaped
    long = result(items=(item("failed", message="&→" * 100_000),))
    assert len(summary([long] * 300).encode()) < 1024 * 1024


def test_the_summary_tells_of_what_could_not_be_measured_only_where_it_counts() -> None:
    gpu = item("not_graded", message="no GPU")
    held = summary([result(items=(item("passed"), gpu), score=None)])
    assert "1 items could not be measured" in held and "a.not_graded: no GPU" in held
    uncounted = item("not_graded", message="no GPU", counts=False)
    free = summary([result(items=(item("passed"), uncounted))])
    assert "could not be measured" not in free and "no GPU" not in free


@pytest.mark.parametrize("in_a_job", [True, False])
def test_the_command_writes_both(tmp_path: Path, in_a_job: bool) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results/s1.json").write_text(raised("s1", 7).to_json(), encoding="utf-8")
    page = tmp_path / "page.md"
    done = run("actions", tmp_path, GITHUB_STEP_SUMMARY=str(page) if in_a_job else "")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"::error file=s1/lstm\.py,line=7,.*\n", done.stdout)
    assert page.is_file() == in_a_job
    if in_a_job:
        assert "### 1 graded" in page.read_text(encoding="utf-8")
