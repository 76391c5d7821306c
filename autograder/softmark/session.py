"""A grading process of one's own: start it, ``grade`` as often as you like, close it.

What goes on in the process is ``softmark.server``; setup and submissions go to it over a socket, as
frames, and a Result comes back for each.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict
from typing import Any

from softmark.course import Course, Topic
from softmark.intake import Submission
from softmark.isolation import wire
from softmark.isolation.tiers import Level
from softmark.result import Result

_START_SECONDS = 120.0
_MARGIN_SECONDS = 60.0
_TIMED_SECONDS = 900.0


class SessionFailed(Exception):
    """The grading process could not start, or died: the grader's fault. The message says why."""


class SessionDied(SessionFailed):
    """It died or hung without a word; another one may fare better."""


class Session:
    """A grading process for one topic. A context manager."""

    def __init__(
        self,
        course: Course,
        topic: Topic,
        seed: int,
        level: Level | None = None,
        cpu: int | None = None,
        device: str | None = None,
    ) -> None:
        """Start it; without a ``level`` it loads what it needs and waits for ``start``.

        ``cpu``: the processor to stay on. Grader and worker take turns, so that one is enough for both,
        and each finds in its cache what the other left there. ``device``: where times are taken, None
        for nowhere. Raises SessionFailed.
        """
        self._course, self._topic, self._seed, self._device = course, topic, seed, device
        self._socket, theirs = socket.socketpair()
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        stay = [] if cpu is None else [str(cpu)]
        with theirs:
            self._process = subprocess.Popen(
                # -P: what lies in the folder of the moment, a submission perhaps, is not imported
                [sys.executable, "-P", "-m", "softmark.server", str(theirs.fileno()), *stay],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the command, which ends this one
            )
        if level is not None:
            self.start(level)

    def start(self, level: Level) -> None:
        """Collect the graders and grade the reference, isolated as ``level`` says.

        Raises SessionFailed; the session is closed then.
        """
        plain = {**asdict(level), "holds": dict(level.holds)}
        setup = [str(self._course.folder), self._topic.id, self._seed, plain, self._device]
        try:
            answer = self._ask(setup, _START_SECONDS + self._timing_seconds())
        except SessionFailed:
            self.close()
            raise
        if "failed" in answer:
            self.close()
            raise SessionFailed(answer["failed"])

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def grade(self, submission: Submission, quick: bool = False) -> Result:
        """Grade one submission; ``quick``: only up to the first item that it loses, and the Result has
        no more than the items known by then. Raises SessionFailed; the session is of no more use then.
        """
        limit = 3 * self._topic.limits.submission_seconds + _MARGIN_SECONDS
        limit += self._timing_seconds()
        answer = self._ask({**asdict(submission), "quick": quick}, limit)
        if "failed" in answer:
            raise SessionDied(answer["failed"])
        return Result.from_json(answer["result"])

    def _timing_seconds(self) -> float:
        """What timing may take on top: fresh processes on a GPU, many times over."""
        return _TIMED_SECONDS * len(self._topic.timed) if self._device else 0.0

    def _ask(self, message: Any, seconds: float) -> Any:
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(wire.frame(wire.pack(message)))
            return wire.unpack(wire.read_frame(self._socket.recv))
        except TimeoutError:
            self._process.kill()
            raise SessionDied(f"the grading process did not answer in {seconds:.0f} s") from None
        except (OSError, wire.Closed, wire.BadFrame):
            self._process.kill()
            self._errors.seek(0)
            words = self._errors.read().decode("utf-8", "replace").strip().splitlines()
            said = f": {words[-1]}" if words else ""
            raise SessionDied(f"the grading process died{said}") from None

    def close(self) -> None:
        """End the process, its zygote and its workers."""
        self._socket.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()
