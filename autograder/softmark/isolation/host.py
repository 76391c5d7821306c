"""The grader's side of isolation: start a zygote, get workers from it, run Scripts on them.

The clock here is the only one that counts. Whatever a worker does, its end is told as a cause; what
it sends that no honest worker would send is ``BadFrame``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from softmark.gpu import chosen
from softmark.isolation import wire
from softmark.script import Cause, Raised, Script, Trace

_libc = ctypes.CDLL(None)
_T = TypeVar("_T")
_R = TypeVar("_R")

_START_SECONDS = 60.0
_REAP_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/scratch/tmp",
    "TMPDIR": "/scratch/tmp",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TRITON_INTERPRET": "1",  # kernels are compiled for a GPU alone
}
"""The whole environment of a zygote and its children, but for these:"""
# PyTorch counts devices when it first goes back, and a process that has done so cannot be forked
_NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
_GPU = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_CACHE_DISABLE": "1", "TRITON_INTERPRET": "0"}


class ZygoteFailed(Exception):
    """A zygote that could not start or has died: the grader's fault or the machine's."""


@dataclass(frozen=True, slots=True)
class Caps:
    """What one worker may use. Its address space is held to ``memory_mb`` by the kernel; where
    ``resident_mb`` is given it is not, and the grader watches the memory that it has in use."""

    seconds: float = 60.0
    memory_mb: int = 1024
    output_kb: int = 64
    resident_mb: int | None = None


@dataclass(frozen=True, slots=True)
class End:
    """How a worker's process ended: exit code, or minus the signal; peak resident size; CPU time."""

    code: int
    peak_kb: int
    cpu_seconds: float


class _Starved(Exception):
    """A worker uses more memory than it may."""


class Zygote:
    """A warmed interpreter that forks isolated workers. A context manager."""

    def __init__(
        self, layers: Sequence[str], distributions: Sequence[str], caps: Caps, seccomp: bytes
    ) -> None:
        """Start it. Raises ZygoteFailed, naming the layer that this machine refused."""
        self.caps = caps
        self._ends: dict[int, End] = {}
        self._count = 0
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-I", "-m", "softmark.isolation.zygote", str(theirs.fileno())]
        gpu = _GPU | {"CUDA_VISIBLE_DEVICES": chosen()} if "cuda" in layers else _NO_GPU
        with theirs:
            self._process = subprocess.Popen(
                command,
                env=_ENVIRONMENT | gpu,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # no terminal of the operator's to write to
            )
        try:
            self._control.settimeout(_START_SECONDS)
            self._control.send(
                wire.pack(
                    {
                        "layers": list(layers),
                        "distributions": list(distributions),
                        "seccomp": seccomp,
                        "cpu_seconds": int(caps.seconds) + 5,
                        "memory_bytes": None if caps.resident_mb else caps.memory_mb << 20,
                        "output_bytes": caps.output_kb << 10,
                    }
                )
            )
            answer = wire.unpack(self._receive())
        except (OSError, wire.BadFrame) as error:
            raise ZygoteFailed(f"the zygote did not start: {error}{self._last_words()}") from None
        except ZygoteFailed as error:
            raise ZygoteFailed(f"{error}{self._last_words()}") from None
        if "failed" in answer:
            self.close()
            raise ZygoteFailed(answer["failed"])
        self.visible: tuple[str, ...] = tuple(answer["visible"])
        self.closed: str | None = answer["closed"]
        self.uncompiled: str = answer["uncompiled"]
        """Why no kernel of Triton's can be compiled, for people; "" where one can, or need not."""

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def spawn(self) -> Worker:
        """A fresh worker. Raises ZygoteFailed."""
        self._count += 1
        ours, theirs = socket.socketpair()
        output = os.memfd_create("output", os.MFD_CLOEXEC)
        with theirs:
            try:
                request = wire.pack(self._count)
                socket.send_fds(self._control, [request], [theirs.fileno(), output])
                pidfd = self._await_birth(self._count)
            except (OSError, ZygoteFailed):
                ours.close()
                os.close(output)
                raise ZygoteFailed(f"the zygote has died{self._last_words()}") from None
        worker = Worker(self, self._count, ours, output, pidfd)
        try:
            worker.watch(self.caps.resident_mb)
        except OSError as error:
            worker.close()
            raise ZygoteFailed(f"the memory of a worker cannot be watched: {error}") from None
        if not worker.confined():
            said, _ = worker.printed()
            worker.close()
            raise ZygoteFailed(f"a worker could not be isolated: {said.strip()}")
        return worker

    def check(self) -> None:
        """Raises ZygoteFailed where the zygote has ended."""
        if select.select([self._control], [], [], 0)[0] and not self._control.recv(
            1, socket.MSG_PEEK
        ):
            raise ZygoteFailed(f"the zygote has died{self._last_words()}")

    def _await_birth(self, number: int) -> int:
        while True:
            message, descriptors, _, _ = socket.recv_fds(self._control, 1 << 12, 1)
            if not message:
                raise ZygoteFailed
            if self._note(message) == number:
                return descriptors[0]

    def end_of(self, number: int) -> End | None:
        """How a worker ended, once it has; None where the zygote does not say in time."""
        deadline = time.monotonic() + _REAP_SECONDS
        while number not in self._ends:
            left = deadline - time.monotonic()
            try:
                if left <= 0 or not select.select([self._control], [], [], left)[0]:
                    return None
                self._note(self._receive())
            except (OSError, ValueError, ZygoteFailed):  # gone, or closed before
                return None
        return self._ends.pop(number)

    def _note(self, message: bytes) -> int | None:
        """Keep news of an ended child; the number of one that was born."""
        news: dict[str, Any] = wire.unpack(message)
        if "code" in news:
            end = End(news["code"], news["peak_kb"], news["cpu_seconds"])
            self._ends[news["number"]] = end
            return None
        return int(news["number"])

    def _receive(self) -> bytes:
        message = self._control.recv(1 << 16)
        if not message:
            raise ZygoteFailed("the zygote has died")
        return message

    def _last_words(self) -> str:
        self.close()
        assert self._process.stderr is not None
        said = self._words.decode("utf-8", "replace").strip().splitlines()
        return f" ({said[-1]})" if said else ""

    _words = b""

    def close(self) -> None:
        """End it and every worker of its."""
        self._control.close()
        try:
            _, self._words = self._process.communicate(timeout=_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _, self._words = self._process.communicate()
        except ValueError:  # closed before
            pass


def _processor_clock(pid: int) -> int | None:
    """The clock of the processor time that a process has used; None where it cannot be read."""
    clock = ctypes.c_int()
    failed = pid <= 0 or _libc.clock_getcpuclockid(pid, ctypes.byref(clock))
    return None if failed else clock.value


def _memory(status: bytes, *names: str) -> int:
    """The sum, in bytes, of the lines of these names in a process's status in /proc."""
    text = status.decode("ascii", "replace")  # it may have given itself any name
    lines = re.findall(rf"^(?:{'|'.join(names)}):\s*(\d+) kB", text, re.MULTILINE)
    return sum(int(kb) for kb in lines) << 10


class Worker:
    """The grader's end of one isolated child. Gone after its first failure."""

    def __init__(
        self, zygote: Zygote, number: int, connection: socket.socket, output: int, pidfd: int
    ) -> None:
        self._zygote, self._number = zygote, number
        self._connection, self._output, self._pidfd = connection, output, pidfd
        self.end: End | None = None
        self.alive = True
        self.busy = 0.0
        """Seconds that a processor worked for it, of those that its last question took, if it failed."""
        self._processor = _processor_clock(self.pid)
        self._most: int | None = None
        self._status = -1
        self._next_look = 0.0

    def watch(self, most_mb: int | None) -> None:
        """End it, from now on, where it has more memory in use. Raises OSError."""
        if most_mb is not None:
            # held open, so that no later process of that number is taken for it
            self._status = os.open(f"/proc/{self.pid}/status", os.O_RDONLY | os.O_CLOEXEC)
            self._most = most_mb << 20

    @property
    def pid(self) -> int:
        """Its number among the grader's processes; 0 or less where it has none."""
        lines = Path(f"/proc/self/fdinfo/{self._pidfd}").read_bytes().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(b"Pid:"))

    def confined(self) -> bool:
        """Whether it has taken on its layers."""
        self._connection.settimeout(_START_SECONDS)
        try:
            return self._connection.recv(len(wire.READY)) == wire.READY
        except OSError:
            return False

    def load(
        self,
        files: Mapping[str, str],
        main: str,
        seconds: float,
        forbid: Sequence[str] = (),
        given: Sequence[str] = (),
    ) -> Raised | Trace | None:
        """Import the submission: None if it went well, what it raised, or a Trace with a cause.

        ``forbid``: dotted names, such as ``torch.nn.LSTM``, that raise when the submission uses them
        (``standins``). ``given``: the course's own modules among the files, whose names come first.
        """
        answer, _ = self._ask(wire.pack([dict(files), main, list(given), *forbid]), seconds)
        if isinstance(answer, Trace):
            return answer
        try:
            return wire.unpack_loaded(answer)
        except wire.BadFrame:
            self.kill()
            raise

    def run(self, script: Script, packed: bytes, seconds: float) -> Trace:
        """Run ``script`` (``packed``: its wire form) within ``seconds``.

        A child that did not answer gives a Trace with a cause and no values, and is gone. Raises
        wire.BadFrame; the child is gone then, too.
        """
        before = self._forget_peak() if script.measures_memory else None
        answer, elapsed = self._ask(packed, seconds)
        if isinstance(answer, Trace):
            return answer
        try:
            trace = wire.unpack_trace(answer, script, elapsed)
        except wire.BadFrame:
            self.kill()
            raise
        peak = None if before is None else self._memory("VmHWM")
        return trace if peak is None else replace(trace, resident=max(0, peak - (before or 0)))

    def _forget_peak(self) -> int | None:
        """Let the peak of its memory in use begin anew; what is in use now, in bytes. None where this
        process may not do that."""
        try:
            Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")
        except OSError:
            return None
        return self._memory("VmRSS")

    def _memory(self, name: str) -> int | None:
        """Memory in use, in bytes, by its name in /proc; None where it cannot be read, or has ended."""
        try:
            return _memory(Path(f"/proc/{self.pid}/status").read_bytes(), name) or None
        except OSError:
            return None

    def clocked(self, request: Mapping[str, Any], seconds: float) -> Any:
        """Ask for what ``clock`` wants: plain data, a Raised, or a Trace with a cause.

        In the last case the child is gone. Raises wire.BadFrame; the child is gone then, too.
        """
        answer, _ = self._ask(wire.pack(dict(request)), seconds)
        if isinstance(answer, Trace):
            return answer
        try:
            said = wire.unpack(answer)
            raised = said["raised"] if isinstance(said, dict) else None
            return wire.unpack_raised(raised) if raised else said
        except (wire.BadFrame, KeyError):
            self.kill()
            raise wire.BadFrame("not an answer about time") from None

    def pause(self) -> None:
        """Stop the child and all its threads where they are."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def _ask(self, body: bytes, seconds: float) -> tuple[bytes | Trace, float]:
        """The answer, or a Trace with a cause, and the seconds that it took."""
        message, connection = memoryview(wire.frame(body)), self._connection
        cause: Cause = "crashed"
        started = time.perf_counter()
        deadline = started + seconds
        before = self._processor_seconds()
        try:
            self._look()
            started = time.perf_counter()
            while message:
                message = message[self._patiently(connection.send, message, deadline) :]
            answer = wire.read_frame(
                lambda count: self._patiently(connection.recv, count, deadline)
            )
            return answer, time.perf_counter() - started
        except TimeoutError:
            cause = "timeout"
        except _Starved:
            cause = "out_of_memory"
        except (wire.Closed, ConnectionError):
            pass
        except wire.BadFrame:
            self.kill()
            raise
        self.busy = self._processor_seconds() - before
        self.kill()
        elapsed = time.perf_counter() - started
        if cause == "crashed":
            self._zygote.check()
        limit = seconds if cause == "timeout" else 0.0
        return Trace({}, cause=cause, seconds=elapsed, limit=limit), elapsed

    def _processor_seconds(self) -> float:
        try:
            return 0.0 if self._processor is None else time.clock_gettime(self._processor)
        except OSError:  # it has ended
            return 0.0

    def _patiently(self, action: Callable[[_T], _R], argument: _T, deadline: float) -> _R:
        """What ``action`` on the connection gives, with a look at the worker's memory now and then.

        Raises TimeoutError, _Starved and what ``action`` raises.
        """
        while True:
            now = time.perf_counter()
            if now >= deadline:  # also where bytes keep coming
                raise TimeoutError
            left = deadline - now
            if self._most is not None:
                if now >= self._next_look:
                    self._look()
                left = min(left, _LOOK_SECONDS)
            self._connection.settimeout(left)
            with contextlib.suppress(TimeoutError):
                return action(argument)

    def _look(self) -> None:
        """Raises _Starved where it has more memory in use than it may, swapped out or not."""
        if self._most is None:
            return
        self._next_look = time.perf_counter() + _LOOK_SECONDS
        try:
            status = os.pread(self._status, 1 << 13, 0)
        except ProcessLookupError:  # ended: what comes over the connection tells of it
            return
        if _memory(status, "VmRSS", "VmSwap") > self._most:
            raise _Starved

    def printed(self) -> tuple[str, int]:
        """The end of what the child printed, and how many bytes that was in all."""
        size = os.fstat(self._output).st_size
        tail = os.pread(self._output, 2000, max(0, size - 2000))
        return tail.decode("utf-8", "replace"), size

    def kill(self) -> None:
        """End the child and all it started, and learn how it ended. Idempotent."""
        if not self.alive:
            return
        self.alive = False
        self._connection.close()
        if not select.select([self._pidfd], [], [], 0)[0]:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self.end = self._zygote.end_of(self._number)

    def close(self) -> None:
        """Kill the child and give its descriptors back."""
        self.kill()
        for descriptor in (self._pidfd, self._output, self._status):
            if descriptor >= 0:
                os.close(descriptor)
