"""One implementation of a topic: source files, run Script by Script in forks of a zygote.

Submission, reference, variant, mistake and mutant are the same kind of thing here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from softmark.course import Limits
from softmark.isolation.host import Worker, Zygote
from softmark.isolation.wire import MAX_FRAME, BadFrame
from softmark.script import Raised, Script, Trace


@dataclass(frozen=True, slots=True)
class Question:
    """A Script with its wire form and the digest of that; ``twin``: it is for the PyTorch twin."""

    script: Script
    packed: bytes
    digest: bytes
    twin: bool = False


class Implementation:
    """Runs Scripts in a worker of its own; after a crash the next Script gets a fresh one.

    ``tampered`` tells that its worker sent what no honest worker sends; nothing is run after that.
    ``ending`` tells, after a crash, how the last worker ended.
    """

    def __init__(
        self,
        zygote: Zygote,
        files: Mapping[str, str],
        main: str,
        limits: Limits,
        forbid: Sequence[str] = (),
        given: Mapping[str, str] | None = None,
    ) -> None:
        """``main`` names the file to import; ``forbid``: names of libraries that raise when used;
        ``given``: the course's own files beside it."""
        given = given or {}
        self.files, self.main, self.limits = {**files, **given}, main, limits
        self.forbid = tuple(forbid)
        self.given = tuple(name.removesuffix(".py") for name in given)
        self.seconds = 0.0
        self._patience = 1
        self.tampered = ""
        self.ending = ""
        self._zygote = zygote
        self._worker: Worker | None = None
        self._traces: dict[bytes, Trace] = {}

    def load(self) -> Raised | Trace | None:
        """Import it: None if that went well, what it raised, or a Trace with a cause."""
        worker = self._zygote.spawn()
        limit = min(self._left(), max(5.0, self.limits.call_seconds))
        started = time.monotonic()
        try:
            main = self.main.removesuffix(".py")
            problem = worker.load(self.files, main, limit, self.forbid, self.given)
        except BadFrame as error:
            self.tampered = str(error)
            problem = Trace({}, cause="crashed")
        self.seconds += time.monotonic() - started
        if problem is None:
            self._worker = worker
            return None
        if isinstance(problem, Trace):
            self.ending = _ending(worker)
        worker.close()
        return problem

    def trace(self, question: Question, seconds: float, most: int = MAX_FRAME) -> Trace:
        """What it answers within ``seconds``, if that is at most ``most`` bytes. Equal Scripts are
        run once."""
        if question.digest not in self._traces:
            trace = self._run(question, seconds)
            if trace.nbytes > most:  # they are kept, and there are many Scripts
                said = f"what was returned takes {trace.nbytes >> 20} MB, far more than it should"
                trace = Trace({}, Raised(0, "ReturnedWrong", said, "", ""), seconds=trace.seconds)
            self._traces[question.digest] = trace
        return self._traces[question.digest]

    def answered(self, question: Question) -> Trace | None:
        """What it has answered before; None where it was not asked, or its worker was lost over it."""
        trace = self._traces.get(question.digest)
        return None if trace is None or trace.cause is not None else trace

    def _run(self, question: Question, seconds: float) -> Trace:
        if self.tampered:
            return Trace({}, cause="crashed")
        limit = min(seconds, self._left())
        if limit <= 0:
            return Trace({}, cause="timeout")
        if self._worker is None:
            problem = self.load()
            if problem is not None:
                return problem if isinstance(problem, Trace) else Trace({}, raised=problem)
        worker = self._worker
        assert worker is not None
        try:
            trace = worker.run(question.script, question.packed, limit)
        except BadFrame as error:
            self.tampered = str(error)
            trace = Trace({}, cause="crashed")
        self.seconds += trace.seconds
        if worker.alive:
            return trace
        self.ending = _ending(worker)
        worker.close()
        self._worker = None
        if trace.cause == "timeout" and worker.busy < limit / 2 and self._patience:
            # it hardly got the processor: a busy machine, or a sleeper, who will not profit
            self._patience -= 1
            return self._run(question, 2 * seconds)
        return trace

    def _left(self) -> float:
        return self.limits.submission_seconds - self.seconds

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _ending(worker: Worker) -> str:
    """How a worker ended, in words for the student."""
    end = worker.end
    if end is None:
        return "it did not end by itself"
    if end.code >= 0:
        return f"it ended the Python process with exit code {end.code}"
    names = {4: "an illegal instruction", 6: "an abort", 8: "an arithmetic fault", 9: "a kill"}
    names |= {7: "a memory fault", 11: "a memory fault (segmentation)", 24: "too much CPU time"}
    names |= {25: "too large a file", 31: "a forbidden system call"}
    return f"it was ended by {names.get(-end.code, f'signal {-end.code}')}"
