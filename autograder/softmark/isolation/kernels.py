"""Triton's kernels, compiled in workers that can start no program.

Triton's compiler is a library all the way to PTX. Two steps beside are programs. A C compiler builds
the module that launches kernels, one for all of them: a zygote has it built before there are walls, and
its children inherit it loaded. And ptxas makes machine code of PTX: nvJitLink, which PyTorch for CUDA
brings, does the same as a library. What Triton would keep in files stays in the worker's memory, since
not every tier has a folder to write to.

For Triton 3.7 to 3.9 (tried: 3.7.1 and 3.9.0); older ones compile a module for each kernel. Nothing here
touches a GPU.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path, PosixPath
from typing import Any, ClassVar

_PTX = 2  # nvJitLink's number for that kind of input


def prepare() -> str:
    """Let Triton compile in this process and its children, for a GPU; else say why not, for people.

    Where it cannot, a kernel that is started raises RuntimeError with that text.
    """
    triton = importlib.import_module("triton")
    try:
        driver, why = _ready(), ""
    except _Lacking as error:
        why = str(error)
    except Exception as error:  # whatever has changed in it
        said = f"Triton {triton.__version__} is none of the versions that are known, 3.7 to 3.9"
        why = f"{said}: {str(error)[:200]}"
    triton.runtime.driver.set_active(_Refusing(why) if why else driver)
    return why


class _Lacking(Exception):
    """Something has to be installed; the message is for people."""


class _Refusing:
    """In the place of Triton's driver where no kernel can be compiled."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(self._why)


def _ready() -> Any:
    """Triton's driver, once all that would start a program later is done or replaced."""
    import triton.backends.nvidia.compiler as stages
    import triton.backends.nvidia.driver as launching
    import triton.compiler.compiler as compiling
    from triton import knobs
    from triton.runtime.cache import triton_key

    linker = _Linker()
    number = stages.ptx_get_version(linker.version)

    def make_cubin(backend: Any, ptx: str, metadata: Any, options: Any, capability: int) -> bytes:
        more = (options.ptx_options or "").split()
        more += [] if options.enable_fp_fusion else ["--fmad=false"]
        return linker.cubin(ptx, stages.sm_arch_from_capability(capability), more)

    for owner, name, better in (
        (stages.CUDABackend, "make_cubin", make_cubin),
        (stages, "get_ptxas_version", lambda *_: f"nvJitLink {linker.version}"),
        (stages, "get_ptx_version_from_options", lambda options, _: options.ptx_version or number),
        (compiling, "Path", _Kept),
    ):
        getattr(owner, name)  # else it is another Triton
        setattr(owner, name, better)
    triton_key()  # a hash of all of Triton, remembered
    driver = _built(launching.CudaDriver)
    _ = driver.utils.launch  # else a module for each kernel would do that
    knobs.cache.manager_class = _Cache
    return driver


def _built(make: Callable[[], Any]) -> Any:
    """Triton's driver, with its module compiled and loaded. Raises _Lacking."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            return make()
        except (RuntimeError, OSError, subprocess.SubprocessError):
            raise _Lacking(
                "the module that starts Triton's kernels cannot be built: it takes a C compiler and "
                "Python's headers (Debian, Ubuntu: apt install gcc python3-dev)"
            ) from None
        finally:
            del os.environ["TRITON_CACHE_DIR"]
            tempfile.tempdir = None  # children have another


class _Linker:
    """nvJitLink, of the CUDA that PyTorch is built for. Raises _Lacking."""

    def __init__(self) -> None:
        import torch

        major = str(torch.version.cuda or 13).partition(".")[0]
        name, wheel = f"libnvJitLink.so.{major}", "nvidia-nvjitlink"
        wheel += "-cu12" if major == "12" else ""
        installed = (file for file in _files(wheel) if file.name == name)
        try:
            self._library = ctypes.CDLL(str(next(installed, name)))
            numbers = ctypes.c_uint(), ctypes.c_uint()
            self._library.nvJitLinkVersion(*map(ctypes.byref, numbers))
        except (OSError, AttributeError) as error:
            said = f"Triton's kernels cannot be compiled: {error} (pip install {wheel})"
            raise _Lacking(said) from None
        self.version = ".".join(str(number.value) for number in numbers)

    def cubin(self, ptx: str, arch: str, options: Sequence[str]) -> bytes:
        """Machine code of PTX, for an architecture such as sm_90a; ``options`` are those of ptxas.

        Raises Triton's PTXASError.
        """
        from triton.runtime.errors import PTXASError

        given = [f"-arch={arch}", *(f"-Xptxas={option}" for option in options)]
        handle, size = ctypes.c_void_p(), ctypes.c_size_t()
        call, text = self._library, ptx.encode() + b"\0"
        strings = (ctypes.c_char_p * len(given))(*map(str.encode, given))
        failed = call.nvJitLinkCreate(ctypes.byref(handle), len(given), strings)
        if failed:
            raise PTXASError(f"nvJitLink does not take {' '.join(given)}")
        try:
            failed = call.nvJitLinkAddData(
                handle, _PTX, text, ctypes.c_size_t(len(text)), b"kernel"
            )
            failed = failed or call.nvJitLinkComplete(handle)
            what = "ErrorLog" if failed else "LinkedCubin"
            getattr(call, f"nvJitLinkGet{what}Size")(handle, ctypes.byref(size))
            answer = ctypes.create_string_buffer(size.value)
            getattr(call, f"nvJitLinkGet{what}")(handle, answer)
        finally:
            call.nvJitLinkDestroy(ctypes.byref(handle))
        if failed:
            raise PTXASError(answer.value.decode(errors="replace"))
        return answer.raw


def _files(wheel: str) -> list[Path]:
    try:
        return [Path(str(file.locate())) for file in metadata.files(wheel) or ()]
    except metadata.PackageNotFoundError:
        return []


class _Kept(PosixPath):
    """What Triton takes for the path of a file in its cache."""

    contents: ClassVar[dict[str, bytes]] = {}

    def read_bytes(self) -> bytes:
        kept = self.contents.get(str(self))
        return super().read_bytes() if kept is None else kept

    def read_text(self, *args: Any, **kwargs: Any) -> str:
        kept = self.contents.get(str(self))
        return super().read_text(*args, **kwargs) if kept is None else kept.decode()


class _Cache:
    """Triton's cache: it hands back what it was just given, and never finds anything."""

    def __init__(self, key: str, **_: bool) -> None:
        self._key = key

    def get_file(self, filename: str) -> None:
        return None

    def get_group(self, filename: str) -> None:
        return None

    def put(self, data: object, filename: str, binary: bool = True) -> str:
        path = f"{self._key}/{filename}"
        _Kept.contents[path] = data if isinstance(data, bytes) else str(data).encode()
        return path

    def put_group(self, filename: str, group: Mapping[str, str]) -> None:
        return None
