"""Shared by the project's tests: the course in this repository, and copies of it to break."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from softmark.course import Course, load_course

ROOT = Path(__file__).resolve().parent.parent
collect_ignore = ["attacks/course"]  # its tests are hidden graders


@pytest.fixture(scope="session")
def course() -> Course:
    """The course of this repository."""
    return load_course(ROOT)


@pytest.fixture
def course_copy(tmp_path: Path) -> Path:
    """A copy of the course's folder that a test may spoil."""
    copy = tmp_path / "course"
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
    for name in ("assignments", "solutions", "starter", "autograder/graders"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    shutil.copy(ROOT / "course.yaml", copy)
    return copy
