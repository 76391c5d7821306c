"""Run in a worker as a submission would be: try to reach what must be out of reach.

``probe`` returns what it reached, each as ``"guarantee: what"``; an empty list means that all four
guarantees were kept.
"""

import ctypes
import errno
import fcntl
import gc
import os
import socket
import sys

import numpy as np


def probe(places, pids, port, abstract, memory_mb, canary_start, canary_end):
    """Try everything.

    ``places``: paths that exist outside. ``pids``: processes that run outside. ``port``: a listening
    TCP port of the host. ``abstract``: the name of a listening abstract socket. The two halves of
    the canary, joined, are in the grader's memory only.
    """
    return [
        *_files(places),
        *_network(port, abstract),
        *_processes(pids),
        *_memory(pids, memory_mb, canary_start, canary_end),
    ]


def _worked(action):
    try:
        action()
    except BaseException:
        return False
    return True


def _files(places):
    roots = ["", "/proc/1/root", f"/proc/{os.getppid()}/root", "/proc/self/cwd/../../../../../.."]
    for place in places:
        for root in roots:
            path = root + place
            if os.path.isdir(path) and _worked(lambda path=path: os.listdir(path)):
                yield f"files: could list {path}"
            elif _worked(lambda path=path: open(path, "rb").read(1)):
                yield f"files: could read {path}"
    for path in (
        "/etc/passwd",
        "/etc/shadow",
        "/root/.bashrc",
        "/home",
        "/var",
        "/proc/self/environ",
    ):
        if _worked(lambda path=path: os.listdir(path)) or _worked(
            lambda path=path: open(path).read()
        ):
            yield f"files: could read {path}"
    for folder in ("/", "/tmp", "/var/tmp", "/dev/shm", os.path.dirname(os.__file__)):
        path = os.path.join(folder, "softmark-probe")
        if _worked(lambda path=path: open(path, "w").close()):
            os.unlink(path)
            yield f"files: could write to {folder}"
    sys.path += ["/usr/lib/python3/dist-packages", os.path.dirname(os.path.dirname(np.__file__))]
    for name in ("pytest", "torch", "pydantic"):
        if _worked(lambda name=name: __import__(name)):
            yield f"files: could import {name}"


def _network(port, abstract):
    def tcp():
        socket.create_connection(("127.0.0.1", port), 1).close()

    def local():
        with socket.socket(socket.AF_UNIX) as there:
            there.connect("\0" + abstract)

    def lookup():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
            there.connect(("192.0.2.1", 53))

    for action, what in ((tcp, "TCP"), (local, "an abstract socket"), (lookup, "UDP")):
        if _worked(action):
            yield f"network: could connect over {what}"


def _processes(pids):
    for pid in pids:
        if _worked(lambda pid=pid: os.kill(pid, 0)):
            yield f"processes: could signal {pid}"
    try:
        seen = [name for name in os.listdir("/proc") if name.isdigit() and int(name) in pids]
    except OSError:
        seen = []
    if seen:
        yield f"processes: could see {seen[0]}"
    for program in ("/bin/sh", sys.executable):
        if _worked(lambda program=program: os.posix_spawn(program, [program, "-c", "exit 0"], {})):
            yield f"processes: could start {program}"
    if os.getpid() != 1 and _worked(_fork):
        yield "processes: could fork with nobody to end the child"
    owner = lambda: fcntl.fcntl(3, fcntl.F_SETOWN, os.getppid() or pids[0])  # noqa: E731
    if os.getpid() != 1 and _worked(owner):
        yield "processes: could direct signals at another process"


def _fork():
    if os.fork() == 0:
        os._exit(0)


def _memory(pids, memory_mb, canary_start, canary_end):
    if _worked(lambda: np.ones(memory_mb << 20, np.uint8)):
        yield f"memory: could take {memory_mb} MB more than it has"
    if os.getpid() == 1 and _worked(_fork):
        yield "memory: could fork, and each process has a cap of its own"
    if _remembers(canary_start, canary_end):
        yield "memory: found the canary among its own objects"
    libc = ctypes.CDLL(None, use_errno=True)
    room = ctypes.create_string_buffer(8)

    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    here, there = Vector(ctypes.addressof(room), 8), Vector(ctypes.addressof(room), 8)
    for pid in pids:
        if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) >= 0:
            yield f"memory: could read the memory of {pid}"
        elif ctypes.get_errno() == errno.EFAULT:  # it was let in, and only the address was wrong
            yield f"memory: could look into the memory of {pid}"
        if _worked(lambda pid=pid: open(f"/proc/{pid}/mem", "rb").close()):
            yield f"memory: could open the memory of {pid}"


def _remembers(start, end):
    """Whether a text that starts and ends like this hangs on any object."""
    seen, todo = set(), [sys.modules, *gc.get_objects()]
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, (str, bytes)):
            text = str(thing)
            if start in text and end in text:
                return True
        else:
            todo += gc.get_referents(thing)
    return False
