"""Import once, then fork one isolated child for each implementation.

A fresh interpreter started by ``host.Zygote``: ``python -I -m softmark.isolation.zygote FD``. It reads
its plan from the control socket, warms up, takes on the layers that all children share, and then
serves: a request with two descriptors (the child's own socket, a file for its output) is answered with
the child's pidfd, and later with how the child ended. It never sees a grader, a solution or an
expected value; submissions go from the grader straight to the child.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import select
import signal
import socket
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from softmark.isolation import sandbox, wire, worker
from softmark.isolation.arrays import Arrays

# What students import beside NumPy, mostly; the rest they load from the standard library.
_WARM_MODULES = """
    __future__ abc bisect collections contextlib copy dataclasses enum fractions functools heapq inspect
    itertools json linecache logging math numbers operator random re statistics string textwrap time
    traceback typing warnings encodings.idna encodings.ascii numpy.linalg numpy.random
""".split()
# More of it, for where a worker's user may not enter the folders it lies in.
_CLOSED_MODULES = """
    argparse array ast base64 cmath datetime decimal fcntl gc io os pathlib pickle pprint socket struct
    sys threading timeit types unicodedata unittest numpy.fft numpy.polynomial numpy.testing numpy.ma
""".split()

# Between those that systemd gives out by itself. Each zygote takes one by its own number: of two
# with the same, one submission could use up the threads of the other.
_UIDS = range(60_706, 61_184)
_SCRATCH_MEGABYTES = 16
_FILE_BYTES = 1 << 20
_FILES, _GPU_FILES = 64, 1024
_PROCESSES, _GPU_PROCESSES = 64, 256  # threads, all of them: of one user's workers together


@dataclass(frozen=True, slots=True)
class Plan:
    """What ``host.Zygote`` asks for; ``layers`` are the names of the sandbox's layers to take on.

    With ``proc`` among them, more for a child than less, it may read of its own process in /proc; with
    ``cuda`` it may use the GPU's devices: ``devices`` and ``driver_files`` are what that takes. Without
    ``memory_bytes`` the address space is not limited.
    """

    layers: frozenset[str]
    distributions: tuple[str, ...]
    seccomp: bytes
    cpu_seconds: int
    memory_bytes: int | None
    output_bytes: int
    uid: int
    devices: tuple[str, ...] = ()
    driver_files: tuple[str, ...] = ()


class _Installed(importlib.abc.MetaPathFinder):
    """Finds the visible ones of the installed packages by name, since their folder cannot be listed."""

    def __init__(self, paths: Iterable[str]) -> None:
        files = (Path(path, "__init__.py") if Path(path).is_dir() else Path(path) for path in paths)
        self._files = {_module(file): file for file in files if file.is_file()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        file = self._files.get(fullname)
        if file is None:
            return None
        inside = [str(file.parent)] if file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            fullname, file, submodule_search_locations=inside
        )


def _module(file: Path) -> str:
    return file.parent.name if file.name == "__init__.py" else file.name.partition(".")[0]


def main() -> None:
    """Serve on the control socket given as the first argument, until the grader hangs up."""
    control = socket.socket(fileno=int(sys.argv[1]))
    asked = wire.unpack(control.recv(1 << 16))
    plan = Plan(
        layers=frozenset(asked["layers"]),
        distributions=tuple(asked["distributions"]),
        seccomp=asked["seccomp"],
        cpu_seconds=asked["cpu_seconds"],
        memory_bytes=asked["memory_bytes"],
        output_bytes=asked["output_bytes"],
        uid=_UIDS[os.getpid() % len(_UIDS)],
    )
    sandbox.first_to_go()
    os.umask(0o022)  # the private root's folders are for submissions, of another user, to enter
    try:
        if "user_namespace" in plan.layers:
            _enter_user_namespace(control)
        arrays = _warm_up("torch" in plan.distributions, "cuda" in plan.layers)
        for name in plan.distributions:  # what a topic needs besides
            importlib.import_module(name)
        uncompiled = ""
        if "cuda" in plan.layers:
            devices, files = sandbox.load_driver()
            if "triton" in plan.distributions:
                from softmark.isolation import kernels  # no other zygote needs it

                uncompiled = kernels.prepare()
            plan = replace(plan, devices=tuple(devices), driver_files=tuple(files))
        elif "torch" in plan.distributions and plan.memory_bytes is not None:
            # PyTorch maps as much as a build of it likes; submissions get their share on top of that
            room = plan.memory_bytes + sandbox.address_space()
            plan = replace(plan, memory_bytes=room)
        visible, rules, pids = _prepare(plan)
    except (OSError, ImportError) as error:
        control.send(wire.pack({"failed": str(error)}))
        return
    closed = None
    if "user" in plan.layers and "private_root" not in plan.layers:
        closed = sandbox.closed_to_others(visible)
    for name in _CLOSED_MODULES if closed else ():
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    sandbox.undumpable()
    control.send(wire.pack({"visible": visible, "closed": closed, "uncompiled": uncompiled}))
    _serve(control, plan, rules, pids, arrays)


def _enter_user_namespace(control: socket.socket) -> None:
    """Go on as pid 1 of a new user and PID namespace; the process left behind only waits."""
    sandbox.become_root_inside()
    inside = os.fork()
    if inside:
        control.close()
        _, status = os.waitpid(inside, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    sandbox.die_with_parent()


def _warm_up(torch: bool, cuda: bool) -> Arrays:
    """Import what submissions use, and use it once, but for ``cuda``; how workers deal with it."""
    import numpy as np

    for name in _WARM_MODULES:
        importlib.import_module(name)
    rng = np.random.default_rng(0)
    square = rng.normal(size=(4, 4))
    np.linalg.svd(square)
    np.einsum("ij,jk->ik", square, square)
    np.tanh(square @ square + np.exp(-square)).sum(axis=0)
    str(square)
    if not torch:
        return Arrays()
    from softmark.isolation import tensors

    tensors.warm_up(exercise=not cuda)
    return tensors.Tensors()


_Rules = Callable[[], int]
"""Gives a descriptor of the ruleset that a child takes on."""


def _prepare(plan: Plan) -> tuple[list[str], _Rules | None, int | None]:
    """The layers that all children share: what is visible, the rules, the PID namespace."""
    visible, hidden = sandbox.runtime_paths(plan.distributions)
    visible += plan.driver_files
    sys.path[:] = [path for path in sys.path if path not in hidden]
    sys.meta_path.append(_Installed(path for path in visible if str(Path(path).parent) in hidden))
    pids = None
    if "namespaces" in plan.layers:
        pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        sandbox.unshare(sandbox.NEW_NET | sandbox.NEW_IPC | sandbox.NEW_UTS)
        socket.sethostname("worker")
    if "private_root" in plan.layers:
        sandbox.enter_private_root(visible, hidden, plan.devices, "proc" in plan.layers)
    rules: _Rules | None = None
    if "landlock" in plan.layers:
        readable = [path for folder in visible for path in sandbox.without(folder, hidden)]
        writable = ["/dev/null"]
        if "private_root" in plan.layers:
            writable.append(str(Path(sandbox.SCRATCH).parent))
        readable.append("/dev/urandom")
        if "proc" in plan.layers:
            # made by each child: it has mounted what is at /proc, or is another /proc/self
            own = [path for path in sandbox.OWN_PROCESS if Path(path).exists()]
            readable += ["/proc"] if "private_root" in plan.layers else own
            rules = partial(sandbox.landlock_ruleset, readable, writable, plan.devices)
        else:
            made = sandbox.landlock_ruleset(readable, writable)
            rules = lambda: made  # noqa: E731
    return visible, rules, pids


def _serve(
    control: socket.socket, plan: Plan, rules: _Rules | None, pids: int | None, arrays: Arrays
) -> None:
    children: dict[int, tuple[int, int]] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != control.fileno():
                pid, number = children.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                _, status, usage = os.wait4(pid, 0)
                code = os.waitstatus_to_exitcode(status)
                cpu = usage.ru_utime + usage.ru_stime
                ended = {"code": code, "peak_kb": usage.ru_maxrss, "cpu_seconds": cpu}
                control.send(wire.pack({"number": number, **ended}))
                continue
            message, descriptors, _, _ = socket.recv_fds(control, 1 << 12, 2)
            if not message:
                return
            number = wire.unpack(message)
            pid = _fork(plan, pids)
            if pid == 0:
                control.close()
                children.clear()  # its siblings' numbers are nothing to it
                _child(plan, rules, arrays, *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            pidfd = os.pidfd_open(pid)
            children[pidfd] = (pid, number)
            poll.register(pidfd, select.POLLIN)
            socket.send_fds(control, [wire.pack({"number": number, "born": True})], [pidfd])


def _fork(plan: Plan, pids: int | None) -> int:
    if pids is not None:
        sandbox.rejoin(pids, sandbox.NEW_PIDS)
        sandbox.unshare(sandbox.NEW_PIDS)
    return os.fork()


def _child(plan: Plan, rules: _Rules | None, arrays: Arrays, connection: int, output: int) -> None:
    try:
        os.dup2(output, 2)
        _confine(plan, rules, connection, output)
        os.write(3, wire.READY)
        worker.serve(3, plan.output_bytes, arrays)
    except BaseException as error:
        os.write(2, f"\nworker: {type(error).__name__}: {error}\n".encode()[:1000])
        os._exit(1)
    os._exit(0)


def _confine(plan: Plan, rules: _Rules | None, connection: int, output: int) -> None:
    """From a fork of the zygote to a place where a stranger's code may run. The order matters:
    mounts need capabilities, the user change clears the death signal, the filter forbids the rest."""
    layers, gpu = plan.layers, "cuda" in plan.layers
    uid = plan.uid if "user" in layers else 0
    if "namespaces" in layers and "seccomp" not in layers:
        sandbox.unshare(sandbox.NEW_IPC)  # nothing to share through it where the calls are filtered
    if "private_root" in layers:
        sandbox.unshare(sandbox.NEW_MOUNTS)
        sandbox.mount_scratch(_SCRATCH_MEGABYTES, uid)
        if "proc" in layers:
            sandbox.mount_processes()
    sandbox.set_limits(
        cpu_seconds=plan.cpu_seconds,
        memory_bytes=plan.memory_bytes,
        file_bytes=_FILE_BYTES,
        open_files=_GPU_FILES if gpu else _FILES,
        processes=(_GPU_PROCESSES if gpu else _PROCESSES) if "user" in layers else None,
    )
    if rules is not None:  # before its descriptor can be overwritten
        sandbox.landlock_restrict(rules())
    nothing = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2), (connection, 3)):
        os.dup2(source, target)
    os.closerange(4, 1 << 10)
    if "user" in layers:
        sandbox.become_user(uid)
    sandbox.drop_capabilities()
    sandbox.undumpable()
    sandbox.die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if "seccomp" in layers:
        sandbox.load_filter(plan.seccomp)


if __name__ == "__main__":
    main()
    os._exit(0)  # there is nothing to put in order
