"""How long the grader waits for an answer: on its own clock, but for stalls of the machine.

A machine that stands still for seconds, or has more to do than processors to do it on, must not cost
a submission points. So what has had less of a processor than it may take is waited for longer. What
sleeps, or waits for itself, looks the same from outside and is ended later than what loops.
"""

from __future__ import annotations

import ctypes
import time

STALLS = 3.0
"""How many times as long an answer is waited for at the most."""

_libc = ctypes.CDLL(None)


def processor_clock(pid: int) -> int | None:
    """The clock of the processor time that a process has used; None where it cannot be read."""
    clock = ctypes.c_int()
    failed = pid <= 0 or _libc.clock_getcpuclockid(pid, ctypes.byref(clock))
    return None if failed else clock.value


class Deadline:
    """Until when an answer may come: ``seconds`` from now, and while the process whose ``clock`` is
    given has used less than that, up to STALLS times as long."""

    def __init__(self, seconds: float, clock: int | None) -> None:
        self.seconds, self._clock = seconds, clock
        self._before = self._used()
        now = time.perf_counter()
        self._end, self._last = now + seconds, now + STALLS * seconds

    def left(self) -> float:
        """How many seconds to wait from now. Raises TimeoutError."""
        now = time.perf_counter()
        if self._end <= now < self._last and self._before is not None:
            used = self._used()
            if used is not None:
                self._end = min(self._last, now + self.seconds - (used - self._before))
        if now >= self._end:
            raise TimeoutError
        return self._end - now

    def _used(self) -> float | None:
        try:
            return None if self._clock is None else time.clock_gettime(self._clock)
        except OSError:  # it has ended: what comes over the connection tells of it
            return None
