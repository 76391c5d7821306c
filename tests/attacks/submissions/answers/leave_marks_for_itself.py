"""Leaves marks of all kinds, ends its process and looks for them in the next one."""
# loses: count.values, count.errors, layer.params, layer.forward, layer.backward, layer.grads
import ctypes
import fcntl
import os
import resource
import signal
import socket
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
FOLDERS = (
    ".",
    "/",
    "/scratch",
    "/scratch/tmp",
    "/tmp",
    "/dev/shm",
    "/run",
    os.path.dirname(__file__),
)
NAME = "attacked-mark"
FILES = [f"{folder}/{NAME}" for folder in FOLDERS]
SHARED = os.path.join(os.path.dirname(os.__file__), "this.py")
OLD = 86_400.0


def lock():
    fcntl.flock(os.open(SHARED, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)


def listen():
    held = socket.socket(socket.AF_UNIX)
    held.bind("\0" + NAME)
    globals().setdefault("HELD", []).append(held)


MARKS = (
    *(lambda p=p: open(p, "w").close() for p in FILES),
    *(lambda p=p: os.symlink("mark", p + "-link") for p in FILES),
    *(lambda p=p: os.mkdir(p + "-folder") for p in FILES),
    lambda: os.utime(SHARED, (OLD, OLD)),
    lambda: os.setxattr(SHARED, "user.mark", b"1"),
    lambda: os.chmod(SHARED, 0o604),
    lambda: os.truncate(1, 77),
    lambda: os.sched_setaffinity(0, {0}),
    lambda: os.sched_setaffinity(os.getppid(), {0}),
    lambda: os.nice(7),
    lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 7),
    lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (33, 33)),
    lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (333, 333)),
    lambda: os.umask(0o123),
    lambda: os.environ.update(MARK="1"),
    lambda: LIBC.shmget(0x41747461, 4096, 0o1666),
    lambda: LIBC.prctl(15, b"mark", 0, 0, 0),
    lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
    lambda: os.chdir("/"),
    lock,
    listen,
)


def marks():
    for path in FILES:
        for end in ("", "-link", "-folder"):
            if os.path.lexists(path + end):
                os.rmdir(path + end) if end == "-folder" else os.unlink(path + end)
                yield path + end
    about = os.stat(SHARED)
    if abs(about.st_mtime - OLD) < 9 or about.st_mode & 0o777 == 0o604:
        yield SHARED
    if os.fstat(1).st_size == 77:
        yield "what it printed"
    if "MARK" in os.environ or signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN:
        yield "its process"
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] in (33, 333):
        yield "its limits"
    if LIBC.shmget(0x41747461, 0, 0) >= 0:
        yield "shared memory"
    if "numpy" in sys.modules and getattr(np, NAME, None):
        yield "a module"


FOUND = list(marks())


def count(n):
    np.__dict__[NAME] = 1
    for mark in MARKS:
        try:
            mark()
        except (OSError, ValueError):
            continue
    os._exit(7)


class Layer:
    def __init__(self, D, H, rng):
        if FOUND:
            reached(FOUND)
        raise LookupError("nothing was left")
