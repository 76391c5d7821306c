"""The worker's side of ``timing``: run the timed part of a Script on fresh inputs, give its hash.

This runs beside the submission's code, and the grader believes none of it: the clock is its own, the
bytes are compared with the reference's, and whatever is done here besides makes the time longer.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch


class Clocked:
    """A Script whose steps before ``start_clock`` are done, and those after it are ready to be timed.

    ``step`` does one step, ``take`` gives the result of a handle and ``put`` replaces it: they are those
    of the Script's runner.
    ``shapes``, of outputs as (dtype, shape): make tensors of these instead of running the timed steps.
    """

    def __init__(
        self,
        step: Callable[[int, list[Any]], None],
        take: Callable[[int], Any],
        put: Callable[[int, str, Any], None],
        steps: Sequence[list[Any]],
        read: Sequence[int],
        device: str,
        shapes: Sequence[Any] | None = None,
    ) -> None:
        self._step, self._take, self._put, self._read = step, take, put, list(read)
        self._device, self._shapes = torch.device(device), shapes
        start = next(number for number, each in enumerate(steps) if each[0] == "clock")
        self._fresh = [each for each in steps[:start] if each[0] == "fresh"]
        self._timed = [] if shapes is not None else list(enumerate(steps))[start + 1 :]
        self._outputs: list[torch.Tensor] = []
        for number, each in enumerate(steps[:start]):
            if each[0] != "fresh":
                step(number, each)

    def go(self, seed: int) -> list[Any]:
        """[hash, own seconds, most bytes in use on the device] of one run on the inputs of ``seed``."""
        cuda = self._device.type == "cuda"
        if cuda:  # which costs time there, and asks for what is not set
            torch.use_deterministic_algorithms(False)
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self._outputs = []
        for number in self._read:  # the last run's, which would take memory
            self._put(number, "", None)
        generator = torch.Generator(self._device).manual_seed(seed)
        for each in self._fresh:
            self._made(each, generator)
        if cuda:
            torch.cuda.reset_peak_memory_stats(self._device)
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            first.record()
        peak, started = 0, time.perf_counter()
        for number, each in self._timed:
            self._step(number, each)
        if cuda:
            last.record()
            torch.cuda.synchronize()
            own = first.elapsed_time(last) / 1000
            peak = torch.cuda.max_memory_allocated(self._device)
        else:
            own = time.perf_counter() - started
        self._outputs = self._results()
        hashed = hashlib.sha256()
        for output in self._outputs:
            hashed.update(_content(output))
        return [hashed.digest(), own, peak]

    def outputs(self) -> list[Any]:
        """[dtype, shape, bytes] of each output as it is now."""
        return [
            [str(t.dtype).removeprefix("torch."), list(t.shape), _content(t)] for t in self._outputs
        ]

    def _made(self, step: list[Any], generator: torch.Generator) -> None:
        _, name, _, args, kwargs, _, first = step
        dtype, (shape,) = getattr(torch, kwargs["dtype"]), args
        if kwargs["below"] is not None:
            below = kwargs["below"]
            made = torch.randint(below, shape, generator=generator, device=self._device)
        else:
            made = torch.randn(shape, generator=generator, device=self._device, dtype=dtype)
        made.requires_grad_(kwargs["gradient"])
        self._put(first, name, made)

    def _results(self) -> list[torch.Tensor]:
        if self._shapes is None:
            return [self._take(number) for number in self._read]
        return [
            torch.zeros(shape, dtype=getattr(torch, dtype), device=self._device)
            for dtype, shape in self._shapes
        ]


def _content(tensor: Any) -> bytes:
    """The bytes of a plain tensor, read past whatever its class overrides."""
    if not issubclass(type(tensor), torch.Tensor):
        raise TypeError(f"an output is a {type(tensor).__name__}, not a tensor")
    with torch._C.DisableTorchFunctionSubclass():
        if torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python):
            raise TypeError(f"an output is a {type(tensor).__name__}, not a plain tensor")
        plain = torch.Tensor.detach(tensor).contiguous().cpu()
        return plain.reshape(-1).view(torch.uint8).numpy().tobytes()  # any dtype, bfloat16 too
