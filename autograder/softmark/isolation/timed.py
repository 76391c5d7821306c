"""The worker's side of ``timing``: run the timed part of a Script on fresh inputs, give its hash.

This runs beside the submission's code, and the grader believes none of it: the clock is its own, the
bytes are compared with the reference's, and whatever is done here besides makes the time longer.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from softmark.script import Unfit


class Clocked:
    """A Script whose steps before ``start_clock`` are done, and those after it are ready to be timed.

    ``step`` does one step, ``take`` gives the result of a handle and ``put`` replaces it: they are those
    of the Script's runner. ``read``: handles of outputs, each with whether it is to be weighed.
    ``shapes``, of outputs as (dtype, shape): make fresh inputs and tensors of these, and run no step.
    """

    def __init__(
        self,
        step: Callable[[int, list[Any]], None],
        take: Callable[[int], Any],
        put: Callable[[int, str, Any], None],
        steps: Sequence[list[Any]],
        read: Sequence[tuple[int, bool]],
        device: str,
        shapes: Sequence[Any] | None = None,
    ) -> None:
        self._step, self._take, self._put, self._read = step, take, put, list(read)
        self._device, self._shapes = torch.device(device), shapes
        start = next(number for number, each in enumerate(steps) if each[0] == "clock")
        self._fresh = [each for each in steps[:start] if each[0] == "fresh"]
        self._timed: list[tuple[int, list[Any]]] = []
        self._modules: list[torch.nn.Module] = []
        self._results: list[tuple[torch.Tensor, bool]] = []
        self._outputs: list[torch.Tensor] = []
        self._claims: list[float] = []
        if shapes is not None:
            return
        self._timed = [
            (n, each) for n, each in enumerate(steps) if n > start and each[0] != "weigh"
        ]
        for number, each in enumerate(steps[:start]):
            if each[0] != "fresh":
                step(number, each)
        made = [take(each[6]) for each in steps[:start] if each[0] == "new"]
        self._modules = [each for each in made if isinstance(each, torch.nn.Module)]

    def go(self, seed: int) -> None:
        """One run on the inputs of ``seed``."""
        cuda = self._device.type == "cuda"
        if cuda:  # which costs time there, and asks for what is not set
            torch.use_deterministic_algorithms(False)
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self._results, self._outputs = [], []
        for _, (*_, results, first) in self._timed:  # the last run's, which would take memory
            for offset in range(len(results)):
                self._put(first + offset, "", None)
        for module in self._modules:
            torch.nn.Module.zero_grad(module)
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
        self._claims = [own, peak]
        self._results = list(self._found())

    def hashed(self, seed: int) -> list[Any]:
        """[hash, own seconds, most bytes in use on the device] of that run; ``seed`` is of the vectors
        that outputs are weighed with."""
        generator = torch.Generator(self._device).manual_seed(seed)
        self._outputs = [
            _weighed(each, generator) if weigh else each for each, weigh in self._results
        ]
        hashed = hashlib.sha256()
        for output in self._outputs:
            hashed.update(_content(output))
        return [hashed.digest(), *self._claims]

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
            if kwargs["scale"] != 1:
                made *= kwargs["scale"]
        made.requires_grad_(kwargs["gradient"])
        self._put(first, name, made)

    def _found(self) -> Iterator[tuple[torch.Tensor, bool]]:
        """The outputs, entries of dicts each by itself, and whether they are to be weighed."""
        if self._shapes is not None:
            for dtype, shape in self._shapes:
                kind = getattr(torch, dtype)
                yield torch.zeros(shape, dtype=kind, device=self._device), False
            return
        for number, weigh in self._read:
            result = self._take(number)
            parts = [result[k] for k in sorted(result)] if type(result) is dict else [result]
            yield from ((_plain(part), weigh) for part in parts)


def _weighed(plain: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A number for each row of a tensor, made with two random vectors of its dtype.

    Products alone could be had without the tensor, as (x W) r = x (W r); what is cut off between two of
    them needs every entry.
    """
    if plain.dim() < 2:
        return plain
    size, dtype = plain.shape[-1], plain.dtype
    first, second = torch.randn(2, size, generator=generator, device=generator.device, dtype=dtype)
    numbers: torch.Tensor = torch.relu(plain * first) @ second
    return numbers


def _content(plain: torch.Tensor) -> bytes:
    """The bytes of a tensor."""
    whole = plain.contiguous().cpu()
    return whole.reshape(-1).view(torch.uint8).numpy().tobytes()  # any dtype, bfloat16 too


def _plain(tensor: Any) -> torch.Tensor:
    """The tensor itself, without its graph and past whatever its class overrides. Raises TypeError for
    what is none, or no plain one."""
    if type(tensor) is Unfit:
        raise TypeError(f"an output is {tensor.text}")
    if not issubclass(type(tensor), torch.Tensor):
        raise TypeError(f"an output is a {type(tensor).__name__}, not a tensor")
    with torch._C.DisableTorchFunctionSubclass():
        if torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python):
            raise TypeError(f"an output is a {type(tensor).__name__}, not a plain tensor")
        return torch.Tensor.detach(tensor)
