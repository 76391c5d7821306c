"""Public tests as a student runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


def outcomes(folder: Path, only: str = "") -> dict[str, str]:
    """The first line of each public test's outcome, by the test's name; plain pytest.

    ``only``: an expression for ``pytest -k``. Tests that are skipped are not listed.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--tb=no"]
    command += ["-k", only] if only else []
    wide = os.environ | {"COLUMNS": "400", "OMP_NUM_THREADS": "1"}  # what is said is cut off
    done = subprocess.run(command, cwd=folder, env=wide, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = re.findall(r"^(PASSED|FAILED|ERROR) \S+?::(.+?)( - .*)?$", done.stdout, re.MULTILINE)
    return {name: f"{outcome}{said}" for outcome, name, said in lines}
