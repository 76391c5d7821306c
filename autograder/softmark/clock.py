"""What is timed, in workers: the makers that ``timing`` starts them by, and their answers.

Nothing that a worker answers is believed but as what the harness would answer; the seconds are the
grader's own.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from softmark import gpu
from softmark.isolation.host import Worker, Zygote
from softmark.isolation.wire import BadFrame, unread_steps
from softmark.script import Handle, Raised, Script, Trace
from softmark.timing import Forged, Maker, Sample, Stopped, Timed
from softmark.verdict import describe

_START_SECONDS = 120.0  # for a first run, with all that is compiled in it
_OUTPUT_SECONDS = 20.0
_MOST_AXES = 8
_FORGED = "What it answered to the grader's clock was not what the harness answers."
_SIZES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "bool": 1,
}


class Clock:
    """Starts what is to be timed in fresh workers of a zygote, on ``device``.

    The Script makes its inputs by ``fresh``, and ends with what is timed after ``start_clock``; its
    outputs there, arrays or dicts of them, are what is hashed and compared, or what ``weigh`` leaves
    of them. Gradients of modules that were made before start from none in each run.
    """

    def __init__(self, zygote: Zygote, script: Script, device: str, seconds: float) -> None:
        """``seconds``: what one run may take, harness included."""
        self._zygote, self._device, self._seconds = zygote, device, seconds
        self._secret = secrets.token_bytes(16)
        start = next(n for n, step in enumerate(script.steps) if step.operation == "clock")
        late = {id(step) for step in script.steps[start:]}
        read = [h.number for step, h, _ in script.outputs() if id(step) in late]
        weighed = {step.target for step in script.steps if step.operation == "weigh"}
        self._read = [[number, Handle(number) in weighed] for number in read]
        if not self._read:
            raise ValueError("nothing is read after start_clock(): there would be nothing to check")
        self._steps = unread_steps(script)

    def maker(
        self,
        files: Mapping[str, str],
        main: str,
        forbid: Sequence[str] = (),
        given: Sequence[str] = (),
        shapes: Sequence[tuple[str, tuple[int, ...]]] | None = None,
    ) -> Maker:
        """Starts workers of an implementation; with ``shapes``, (dtype, shape) of every output, of the
        harness alone."""
        request: dict[str, Any] = {"steps": self._steps, "read": self._read, "device": self._device}
        request["shapes"] = None if shapes is None else [list(each) for each in shapes]

        def make() -> Timed:
            worker = self._zygote.spawn()
            try:
                problem = worker.load(files, main, _START_SECONDS, forbid, given)
                if problem is not None:
                    raise Stopped(f"It stops where its time is to be taken: {_said(problem)}.")
                return _Worker(worker, request, self._seconds, self._secret)
            except BadFrame:
                worker.close()
                raise Forged(_FORGED) from None
            except BaseException:
                worker.close()
                raise

        return make

    def shapes(self, reference: Maker) -> list[tuple[str, tuple[int, ...]]]:
        """dtype and shape of every output, by one run of the reference."""
        timed = reference()
        try:
            timed.go(0)
            assert isinstance(timed, _Worker)
            return [(dtype, shape) for dtype, shape, _ in timed.fetched()]
        finally:
            timed.close()


class _Worker:
    """A worker that has done the steps before the clock."""

    def __init__(
        self, worker: Worker, request: Mapping[str, Any], seconds: float, secret: bytes
    ) -> None:
        self._worker, self._seconds, self._secret = worker, seconds, secret
        self._first = True
        self._ask(request, _START_SECONDS)

    def go(self, seed: int) -> Sample:
        # libraries are loaded and devices set up by the first run
        limit = _START_SECONDS if self._first else self._seconds
        self._first = False
        started = time.perf_counter()
        if self._ask({"seed": seed}, limit) is not None:
            raise Forged(_FORGED)
        # revealed once the outputs are there: who knew it before could make rows that weigh the same
        weigh = hashlib.blake2b(seed.to_bytes(8), key=self._secret, digest_size=7).digest()
        left = max(0.0, limit - (time.perf_counter() - started))
        said = self._ask({"weigh": int.from_bytes(weigh)}, left)
        seconds = time.perf_counter() - started
        match said:
            case [bytes(digest), float(own), int(peak)] if own >= 0 and peak >= 0:
                return Sample(seconds, digest, own, peak)
        raise Forged(_FORGED)

    def fetched(self) -> list[tuple[str, tuple[int, ...], bytes]]:
        """dtype, shape and bytes of every output of the last run. Raises Stopped."""
        said = self._ask({}, _OUTPUT_SECONDS)
        try:
            return [_output(part) for part in said]
        except (TypeError, ValueError):
            raise Forged(_FORGED) from None

    def outputs(self) -> tuple[bytes, list[tuple[str, np.ndarray]]]:
        found = self.fetched()
        digest = hashlib.sha256(b"".join(data for _, _, data in found)).digest()
        return digest, [(dtype, _array(dtype, shape, data)) for dtype, shape, data in found]

    def held_mb(self) -> int | None:
        return gpu.held_mb(self._worker.pid)

    def pause(self) -> None:
        self._worker.pause()

    def resume(self) -> None:
        self._worker.resume()

    def close(self) -> None:
        self._worker.close()

    def _ask(self, request: Mapping[str, Any], seconds: float) -> Any:
        try:
            said = self._worker.clocked(request, seconds)
        except BadFrame:
            raise Forged(_FORGED) from None
        if isinstance(said, (Raised, Trace)):
            raise Stopped(f"It stops where its time is taken: {_said(said)}.")
        return said


def _said(problem: Raised | Trace) -> str:
    if isinstance(problem, Raised):
        return describe(problem, "it").removesuffix(".")
    causes = {
        "timeout": "it takes far longer than the reference",
        "out_of_memory": "memory ran out",
    }
    return causes.get(str(problem.cause), "its process ended")


def _output(part: Any) -> tuple[str, tuple[int, ...], bytes]:
    """dtype, shape and bytes of an output as the harness sends it. Raises TypeError or ValueError."""
    dtype, shape, data = part
    if type(dtype) is not str or type(shape) is not list or type(data) is not bytes:
        raise TypeError
    if dtype not in _SIZES or len(shape) > _MOST_AXES:
        raise ValueError
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError
    if len(data) != math.prod(shape) * _SIZES[dtype]:
        raise ValueError
    return dtype, tuple(shape), data


def _array(dtype: str, shape: tuple[int, ...], data: bytes) -> np.ndarray:
    """The values of an output; bfloat16, which NumPy does not have, as float32."""
    if dtype == "bfloat16":
        wide = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32).reshape(shape)
    return np.frombuffer(data, dtype).reshape(shape)
