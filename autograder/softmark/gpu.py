"""This machine's GPU, as its driver tells: whether there is one that times can be taken on.

Asked through ``nvidia-smi``, which comes with every driver: the grader loads no CUDA itself.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import time
from dataclasses import dataclass

_QUERY = {
    "name": "name",
    "memory_mb": "memory.total",
    "used_mb": "memory.used",
    "busy": "utilization.gpu",
    "partitioned": "mig.mode.current",
    "slowed": "clocks_event_reasons.active",
    "driver": "driver_version",
}
_OLD_NAMES = {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}
"""What drivers before 535 call it."""
_SECONDS = 20.0
_PATIENCE = 10.0  # seconds in which what ran before may still count as use
_IDLE_MB, _IDLE_PERCENT = 1024, 5
_LEAST_MB = 7600  # what a card of 8 GiB tells, or a little more
# Bits of the reasons for lower clocks that change how long things take from run to run: power, heat
# and the brake outside. Idle (1) and clocks set by a person (2) do not.
_SLOWED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80


@dataclass(frozen=True, slots=True)
class Gpu:
    """The chosen GPU. ``reasons`` are the driver's bits for why its clock is lowered."""

    name: str
    memory_mb: int
    used_mb: int
    busy: int
    partitioned: bool
    reasons: int
    driver: str

    def unfit(self) -> str:
        """Why no time can be taken on it now, for people; "" where it can."""
        if self.partitioned:
            return f"{self.name} is divided by MIG: times on a part of it tell little"
        if self.used_mb > _IDLE_MB or self.busy > _IDLE_PERCENT:
            return f"{self.name} is in use ({self.used_mb} MB, {self.busy} %): it has to be idle"
        if self.reasons & _SLOWED:
            return f"{self.name} is slowed down for heat or power (reasons {self.reasons:#x})"
        return ""


def chosen() -> str:
    """The GPU that times are taken on: the first that this process may see, by number or id."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0] or "0"


def unfit() -> str:
    """Why no time can be taken on the chosen GPU; "" where it can. Waits while it may fall idle."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        found = look()
        if isinstance(found, str):
            return found
        said = found.unfit()
        if not said or found.partitioned or time.monotonic() > deadline:
            return said
        time.sleep(1.0)


def look() -> Gpu | str:
    """The chosen GPU, or why there is none to be used, for people."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "there is no NVIDIA GPU here, or no driver for it (no nvidia-smi)"
    try:
        said = _ask(tool, list(_QUERY.values()))
        (row,) = csv.reader([said.strip()], skipinitialspace=True)
        found = dict(zip(_QUERY, row, strict=True))
        return Gpu(
            name=found["name"],
            memory_mb=int(found["memory_mb"]),
            used_mb=int(found["used_mb"]),
            busy=_number(found["busy"]),
            partitioned=found["partitioned"] == "Enabled",
            reasons=_number(found["slowed"]),
            driver=found["driver"],
        )
    except subprocess.CalledProcessError as error:
        words = (error.stderr or error.stdout or "").strip().splitlines()
        return f"nvidia-smi fails: {words[0] if words else error.returncode}"
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return f"nvidia-smi gives no answer that is understood: {error}"


def remarks(gpu: Gpu) -> list[str]:
    """What is odd about a GPU and keeps nobody from taking times on it, for people."""
    found = []
    if gpu.memory_mb < _LEAST_MB:
        found.append(f"it has {gpu.memory_mb} MB; what is timed is made for 8 GiB, and may not fit")
    tool = shutil.which("nvidia-smi")
    try:
        capability = float(_ask(tool, ["compute_cap"])) if tool else 8.0
    except (OSError, subprocess.SubprocessError, ValueError):
        return found  # a driver that is too old to tell
    if capability < 8:
        found.append(
            f"of compute capability {capability:g}, it has no bfloat16 of its own: PyTorch computes in "
            "float32 there, for the reference as for submissions"
        )
    return found


def held_mb(pid: int) -> int | None:
    """Memory of the chosen GPU that the driver counts for a process; None where it does not tell.

    That is so for a driver that gives no numbers, and in a container with processes of its own.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    command.append(f"--id={chosen()}")
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
        rows = csv.reader(answer.stdout.splitlines(), skipinitialspace=True)
        return next((int(used) for number, used in rows if number == str(pid)), None)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _ask(tool: str, fields: list[str]) -> str:
    command = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    command.append(f"--id={chosen()}")
    answer = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    older = [_OLD_NAMES.get(field, field) for field in fields]
    if answer.returncode and older != fields:
        return _ask(tool, older)
    answer.check_returncode()
    return answer.stdout


def _number(text: str) -> int:
    """A count or bits in hexadecimal; 0 where a GPU does not tell."""
    return 0 if text.startswith("[") else int(text, 0)
