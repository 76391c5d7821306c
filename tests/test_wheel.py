"""What is installed: the engine, and no answer."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_wheel_holds_the_engine_and_no_answer(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="builds the wheel without asking a registry")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("softmark-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"softmark/cli.py", "softmark/isolation/probe.py", "softmark/py.typed"} <= set(names)
    assert all(name.startswith("softmark/") or ".dist-info/" in name for name in names)
    assert not [name for name in names if "02_lstm" in name or "test_" in Path(name).name]
