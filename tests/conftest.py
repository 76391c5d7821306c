"""Shared by the project's tests: the course in this repository, and copies of it to break."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from softmark.course import Course, load_course

ROOT = Path(__file__).resolve().parent.parent
collect_ignore = ["attacks/course"]  # its tests are hidden graders


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what takes long, but where all is asked for (``make verify-all``)."""
    if not os.environ.get("SOFTMARK_ALL"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="takes long: set SOFTMARK_ALL=1 to run it"))


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
