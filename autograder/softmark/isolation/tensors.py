"""The values of a PyTorch worker, and what it takes to fork one. Imported in its zygote alone."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from array import array as integers
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
import torch._decomp
from torch import library
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from softmark.isolation import wire
from softmark.isolation.arrays import Arrays, NotDefined, ReturnedWrong, undefined
from softmark.isolation.standins import Places
from softmark.isolation.timed import Clocked
from softmark.script import Unfit

_inference_mode = torch.inference_mode  # of its own: it may be forbidden to submissions
_OWN_KERNELS = ("AutogradCPU", "CPU", "AutogradCUDA", "CUDA")
_OTHER_KERNELS = (*_OWN_KERNELS, "Meta")
_COMPOSED = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
# where functions of functions, as vmap and vjp, have versions of their own
_TRANSFORMS = ("FuncTorchDynamicLayerFrontMode", "FuncTorchBatchedDecomposition", "NestedTensorCPU")
_NO_MEMORY = ("DefaultCPUAllocator", "can't allocate memory", "bad_alloc", "out of memory")


class Tensors(Arrays):
    """The values of a PyTorch worker: arrays go in as tensors, and tensors come out as arrays.

    A tensor is read through the base class's own methods, in C: what a subclass overrides is not asked.
    """

    kind = "a tensor"

    def __init__(self) -> None:
        self.places = Places("torch", _Operators().close)
        self._log: _Log | None = None
        self._gradients = True
        self._keeps_graphs = True

    @contextlib.contextmanager
    def script(self) -> Iterator[None]:
        """PyTorch as it was before the submission was imported; random numbers start anew."""
        self._log, self._gradients = None, True
        set_up()
        with super().script():
            yield

    def watch(self, step: int) -> AbstractContextManager[Any]:
        if self._log is not None:
            self._log.step = step
            if self._log.memory is not None:
                self._log.memory.begin(step)
            if self._gradients:
                return self._log
        modes = contextlib.ExitStack()
        if not self._gradients:
            # in which gradients that are switched on again record nothing
            modes.enter_context(_inference_mode())
        if self._log is not None:
            modes.enter_context(self._log)
        return modes

    def starved(self, error: BaseException) -> bool:
        if isinstance(error, RuntimeError):
            said = error.args[0] if error.args else ""
            return type(said) is str and any(text in said for text in _NO_MEMORY)
        return super().starved(error)

    # ---- arguments

    def fresh(self, array: np.ndarray) -> Any:
        return torch.from_numpy(array)

    def generator(self, seed: int) -> Any:
        return torch.Generator().manual_seed(seed)

    def method(self, owner: Any, name: str, full_name: str) -> Any:
        if full_name == name:  # an operation of Scripts; methods of the submission's have a class
            return {"convert": _converted, "form": self._form}[name]
        function = super().method(owner, name, full_name)
        if name != "forward" or not isinstance(owner, torch.nn.Module):
            return function
        if type(owner).forward is torch.nn.Module.forward:
            raise undefined(owner, name, full_name)
        return owner

    def assign(self, owner: Any, name: str, params: dict[str, Any]) -> None:
        if not isinstance(owner, torch.nn.Module):
            super().assign(owner, name, params)
            return
        own = dict(owner.named_parameters(remove_duplicate=False))
        places = {**own, **dict(owner.named_buffers(remove_duplicate=False))}
        for key, value in params.items():
            if key not in places:
                raise NotDefined(f"{name} has no parameter {key}; it has {_listed(own)}")
            if places[key].shape != value.shape:
                raise ReturnedWrong(
                    f"{name}: the parameter {key} has shape {tuple(places[key].shape)} and should have "
                    f"{tuple(value.shape)}"
                )
            with torch.no_grad() if self._gradients else _inference_mode():
                places[key].copy_(value)
        given = {id(places[key]) for key in params}
        extra = [key for key, parameter in own.items() if id(parameter) not in given]
        if extra:
            raise ReturnedWrong(
                f"{name} has a parameter {extra[0]} that it should not have; "
                f"it should have {_listed(params)}"
            )

    # ---- what else a Script may ask for

    def parameters(self, owner: Any, name: str) -> Any:
        if isinstance(owner, torch.nn.Module):
            return dict(owner.named_parameters())
        return super().parameters(owner, name)

    def gradients(self, owner: Any, name: str) -> Any:
        if isinstance(owner, torch.nn.Module):
            return {key: self.gradient(p, key) for key, p in owner.named_parameters()}
        return super().gradients(owner, name)

    def tensor(self, array: np.ndarray) -> Any:
        return torch.from_numpy(array).requires_grad_()

    def backward(self, outputs: list[Any], names: list[str], upstream: list[Any]) -> None:
        for value, name in zip(outputs, names, strict=True):
            if not self.holds(value):
                raise ReturnedWrong(
                    f"{name} is {self.describe(value)}, not a tensor: no gradient goes back from it"
                )
            if not value.requires_grad:
                raise ReturnedWrong(
                    f"no gradient goes back from {name}: it is cut off from the tensors that it was "
                    "computed from"
                )
        gradients = [
            torch.from_numpy(gradient) if isinstance(gradient, np.ndarray) else gradient
            for gradient in upstream
        ]
        # kept for a second call, but for the memory that it takes while time is taken
        torch.autograd.backward(outputs, gradients, retain_graph=self._keeps_graphs)

    def gradient(self, tensor: Any, name: str) -> Any:
        return Unfit(f"None: no gradient reaches {name}") if tensor.grad is None else tensor.grad

    def count_operators(self) -> None:
        self._log = self._log or _Log()

    def measure_memory(self) -> None:
        self._log = self._log or _Log()
        self._log.memory = _Allocated()

    def no_grad(self) -> None:
        self._gradients = False

    def clocked(self, *parts: Any) -> Any:
        self._keeps_graphs = False
        return Clocked(*parts)

    def operators(self) -> Any:
        return None if self._log is None else self._log.packed()

    # ---- results

    def holds(self, value: Any) -> bool:
        return issubclass(type(value), torch.Tensor)

    def plain(self, value: Any) -> Any:
        if not self.holds(value):
            return self._other(value)
        with torch._C.DisableTorchFunctionSubclass():
            if torch._C._dispatch_keys(value).has(torch._C.DispatchKey.Python):
                return Unfit(self.describe(value))  # its memory is its own class's business
            size = torch.Tensor.numel(value) * torch.Tensor.element_size(value)
            return self._fitting(value, size, lambda: _array(value))

    def describe(self, value: Any) -> str:
        if not self.holds(value):
            return super().describe(value)
        with torch._C.DisableTorchFunctionSubclass():
            dtype, layout, device = _attributes(value, "dtype", "layout", "device")
            name = "tensor" if layout is torch.strided else f"{layout} tensor"
            place = "" if device.type == "cpu" else f" on the device {device}"
            said = f"a {name} of dtype {dtype} with {torch.Tensor.dim(value)} dimensions{place}"
            return said.replace("torch.", "")

    def _form(self, value: Any, name: str) -> dict[str, str]:
        if not self.holds(value):
            raise ReturnedWrong(f"{name} is {self.describe(value)}, not a tensor")
        with torch._C.DisableTorchFunctionSubclass():
            shape, dtype, device = _attributes(value, "shape", "dtype", "device")
            said = {"shape": tuple(shape), "dtype": dtype, "device": device.type}
            return {key: str(part).removeprefix("torch.") for key, part in said.items()}

    def _entry(self, value: Any) -> Any:
        return self._other(value) if isinstance(value, np.ndarray) else super()._entry(value)

    def _other(self, value: Any) -> Unfit:
        return Unfit(
            "an array, not a tensor" if isinstance(value, np.ndarray) else self.describe(value)
        )


def _array(tensor: torch.Tensor) -> np.ndarray:
    """An exact array of a tensor's values, whatever it hangs on. Raises TypeError or ValueError."""
    try:
        array = torch.Tensor.numpy(torch.Tensor.detach(tensor), force=True)
    except RuntimeError as error:  # no values, or in a layout that NumPy does not have
        raise TypeError(str(error)) from None
    return np.array(array, order="C", subok=False)


def _attributes(tensor: torch.Tensor, *names: str) -> list[Any]:
    """What the base class, in C, says of a tensor."""
    return [torch._C.TensorBase.__dict__[name].__get__(tensor) for name in names]


def _converted(value: Any, to: str) -> Any:
    """A tensor, or a module itself, on the device or of the dtype ``to``."""
    dtype = getattr(torch, to, None)
    place = dtype if isinstance(dtype, torch.dtype) else torch.device(to)
    return (torch.nn.Module if isinstance(value, torch.nn.Module) else torch.Tensor).to(
        value, place
    )


def _listed(names: dict[str, Any]) -> str:
    return ", ".join(names) or "none"


class _Log(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every ATen operator that runs within it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.step = 0
        self.memory: _Allocated | None = None
        self._count, self._more = 0, False
        self._names: dict[str, int] = {}
        self._numbers = integers("q")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if torch.is_inference_mode_enabled() and func._can_decompose():
            with self:  # there what is composed of others comes whole
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        if not self._more:
            self._note(func, [*args, *(kwargs or {}).values()])
        if self.memory is not None:
            self.memory.given([*args, *(kwargs or {}).values()])
        result = func(*args, **(kwargs or {}))
        if self.memory is not None:
            self.memory.made(result)
        return result

    def _note(self, func: Any, arguments: list[Any]) -> None:
        name = func.name().partition(".")[0].replace("::", ".")
        shapes = list(_shapes(arguments))
        number = self._names.setdefault(name, len(self._names))
        numbers = [self.step, number, len(shapes)]
        for shape in shapes:
            numbers += [len(shape), *shape]
        size = len(self._numbers) + len(numbers)
        if self._count == wire.MAX_OPERATORS or size > wire.MAX_OPERATOR_NUMBERS:
            self._more = True
            return
        self._numbers.extend(numbers)
        self._count += 1

    def packed(self) -> Any:
        """As ``wire.unpack_trace`` takes it."""
        memory = [] if self.memory is None else self.memory.packed()
        return [list(self._names), np.array(self._numbers, np.int64), self._more, memory]


class _Allocated:
    """The bytes of all that operators have made and that is still there.

    Every operator's results are looked at, and who is gone by then is found out: what an operator takes
    for itself while it runs is not seen.
    """

    def __init__(self) -> None:
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self._steps: list[list[int]] = []
        self._base = 0

    def begin(self, step: int) -> None:
        """A step begins: what is there now is not its own."""
        self._finish()
        self._base = self._sum()
        self._steps.append([step, 0, 0])

    def given(self, arguments: Any) -> None:
        """What an operator is about to read was there before, unless it was seen being made."""
        for storage in _storages(arguments):
            if storage._cdata not in self._alive:
                self._note(storage, 0)

    def made(self, results: Any) -> None:
        """Count what an operator has made."""
        self._drop()
        for storage in _storages([results]):
            if storage._cdata not in self._alive:
                self._note(storage, storage.nbytes())
        if self._steps:
            last = self._steps[-1]
            last[1] = max(last[1], self._sum() - self._base)

    def packed(self) -> list[list[int]]:
        """[step, peak, left] for each step; afterwards nothing more is to be counted."""
        self._finish()
        return self._steps

    def _finish(self) -> None:
        self._drop()
        if self._steps:
            self._steps[-1][2] = max(self._sum() - self._base, 0)

    def _note(self, storage: torch.UntypedStorage, size: int) -> None:
        reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self._alive[storage._cdata] = (reference, size)

    def _drop(self) -> None:
        for key, (reference, _) in list(self._alive.items()):
            if reference.expired():  # type: ignore[no-untyped-call]
                del self._alive[key]

    def _sum(self) -> int:
        return sum(size for _, size in self._alive.values())


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    for value in values:
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            yield value.untyped_storage()
        elif isinstance(value, (list, tuple)):
            yield from _storages(value)


def _shapes(values: Any) -> Iterator[tuple[int, ...]]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield tuple(value.shape)
        elif isinstance(value, (list, tuple)):
            yield from _shapes(value)


def _has(overload: str, key: str) -> bool:
    """Whether an operator of ATen's has a kernel under a dispatch key."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{overload}", key))


def _replace_kernels(overload: str, keys: tuple[str, ...], refuse: Callable[..., Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there was one before
        library.impl(overload, keys, refuse)


class _Operators:
    """PyTorch's own operators, ATen's, by the dotted names under which submissions know them.

    Behind ``torch.lstm`` stand the operators ``aten::lstm.input`` and ``aten::lstm.data``. They are
    reached by many more roads than names, and all of them end at the dispatcher: here the kernel is
    replaced. A name in ``torch`` or ``torch.nn.functional`` stands for the operators that are composed
    of others; the rest is what the library itself is made of, and is closed where it is named as an
    operator, as in ``torch.ops.aten.mm``.
    """

    def __init__(self) -> None:
        self._closed: set[str] = set()

    def close(self, name: str, refuse: Callable[..., Any]) -> None:
        """Have every overload of an operator call ``refuse``; names of no operator are passed over."""
        path, _, last = name.rpartition(".")
        if path.startswith("torch.ops.") and path != "torch.ops.aten":
            self._close_other(path.removeprefix("torch.ops."), last, refuse)
        if path not in ("torch", "torch.nn.functional", "torch.ops.aten"):
            return
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{last}")
        overloads = [f"{last}.{schema.overload_name}".rstrip(".") for schema in schemas]
        any_composed = any(_has(overload, "CompositeImplicitAutograd") for overload in overloads)
        for overload in overloads:
            # what writes to a given tensor is composed of the same, under another key
            composed = any_composed and any(_has(overload, key) for key in _COMPOSED)
            if overload not in self._closed and (composed or path == "torch.ops.aten"):
                self._closed.add(overload)
                self._close(overload, composed, refuse)

    def _close_other(self, library_name: str, last: str, refuse: Callable[..., Any]) -> None:
        """The same for an operator of another library than ATen, as in ``torch.ops.onnx.Attention``."""
        for schema in torch._C._jit_get_schemas_for_operator(f"{library_name}::{last}"):
            overload = f"{library_name}::{last}.{schema.overload_name}".rstrip(".")
            if overload not in self._closed:
                self._closed.add(overload)
                _replace_kernels(overload, _OTHER_KERNELS, refuse)

    def _close(self, overload: str, composed: bool, refuse: Callable[..., Any]) -> None:
        keys: tuple[str, ...] = _OWN_KERNELS
        if composed:  # vmap has no kernel of its own for what is composed in Python
            own = (key for key in (*_COMPOSED, *_TRANSFORMS) if _has(overload, key))
            keys = (*own, "FuncTorchBatched")
        _replace_kernels(f"aten::{overload}", keys, refuse)
        # and what PyTorch has of the operator in Python
        name, _, suffix = overload.partition(".")
        operator = getattr(getattr(torch.ops.aten, name), suffix or "default")
        for table in (operator.py_kernels, *torch._decomp.global_decomposition_table.values()):
            for key in (*operator.py_kernels, operator):
                if key in table:
                    table[key] = refuse


# ---- the zygote --------------------------------------------------------------------------------


def set_up() -> None:
    """The state in which submissions are graded: one thread, float64, deterministic, a fixed seed."""
    torch.set_num_threads(1)
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    torch.set_grad_enabled(True)
    # not torch.manual_seed, which looks for devices: that takes a millisecond
    torch.default_generator.manual_seed(0)


def warm_up(exercise: bool = True) -> None:
    """Do once, before any fork, what would import modules or start threads at its first use.

    A child cannot do so in time, and where its user may not enter Python's folders not at all: operator
    modes and optimizers import the compiler (two seconds), convolutions read /proc/cpuinfo. Without
    ``exercise`` nothing is computed: what goes back looks for GPUs, which must wait for the fork.
    """
    torch.set_num_interop_threads(1)
    with tempfile.TemporaryDirectory() as folder:  # the compiler wants one when it is imported
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        set_up()
        if exercise:
            _exercise()
    del os.environ["TORCHINDUCTOR_CACHE_DIR"]
    tempfile.tempdir = None  # found again by each child, inside its own root


def _exercise() -> None:
    nn = torch.nn
    for dtype in (torch.float64, torch.float32):
        x = torch.randn(2, 3, 4, dtype=dtype, requires_grad=True)
        lstm, gru = (layer(4, 4, batch_first=True, dtype=dtype) for layer in (nn.LSTM, nn.GRU))
        packed = nn.utils.rnn.pack_padded_sequence(
            x, torch.tensor([2, 3]), batch_first=True, enforce_sorted=False
        )
        attention = nn.MultiheadAttention(4, 2, batch_first=True, dtype=dtype)
        with _Log():
            results = [torch.softmax(x @ x.mT, -1), torch.tanh(torch.sigmoid(x))]
        results += [
            lstm(x)[0],
            nn.utils.rnn.pad_packed_sequence(gru(packed)[0], batch_first=True)[0],
            nn.functional.scaled_dot_product_attention(x, x, x),
            attention(x, x, x)[0],
            nn.Conv1d(3, 2, 2, dtype=dtype)(x),
        ]
        torch.autograd.backward([result.sum() for result in results])
        lstm.load_state_dict(lstm.state_dict())
        for optimizer in (torch.optim.SGD, torch.optim.Adam):
            optimizer(lstm.parameters(), 0.1).step()
        torch.linalg.svd(x.detach())
    str(x)
    torch.autograd.gradcheck(torch.tanh, (torch.randn(2, requires_grad=True),))
    torch.randn(2, device="meta") + 1
    torch.multinomial(torch.ones(3), 1, generator=torch.Generator().manual_seed(0))
