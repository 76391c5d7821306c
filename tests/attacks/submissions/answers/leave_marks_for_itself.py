"""Leaves marks of all kinds, ends its process and looks for them in the next one."""

# loses: count.values, count.errors, layer.params, layer.forward, layer.backward, layer.grads
import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket

LIBC = ctypes.CDLL(None, use_errno=True)
NAME, KEY, OLD = "attacked-mark", 0x41747461, 86_400.0
FOLDERS = (".", "/scratch", "/scratch/tmp", "/tmp", "/dev/shm", "@out@")
FILES = [f"{folder}/{NAME}" for folder in FOLDERS]
# a file that both can name, and that is nobody's where nothing stops this
SHARED = "@home@"


def lock():
    fcntl.flock(os.open(SHARED, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)


def listen():
    held = socket.socket(socket.AF_UNIX)
    held.bind("\0" + NAME)


MARKS = (
    *(lambda p=p: open(p, "w").close() for p in FILES),
    *(lambda p=p: os.symlink("mark", p + "-link") for p in FILES),
    *(lambda p=p: os.mkdir(p + "-folder") for p in FILES),
    lambda: os.utime(SHARED, (OLD, OLD)),
    lambda: os.setxattr(SHARED, "user.mark", b"1"),
    lambda: os.truncate(1, 77),
    lambda: os.sched_setaffinity(os.getppid(), {0}),
    lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 7),
    lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (33, 33)),
    lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (333, 333)),
    lambda: os.umask(0o123),
    lambda: os.environ.update(MARK="1"),
    lambda: LIBC.shmget(KEY, 4096, 0o1666),
    lambda: LIBC.prctl(15, b"mark", 0, 0, 0),
    lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
    lambda: np.__dict__.update(attacked=1),
    lock,
    listen,
)


def marks():
    for path in (name + end for name in FILES for end in ("", "-link", "-folder")):
        with contextlib.suppress(OSError):
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
            yield path
    with contextlib.suppress(OSError):
        if abs(os.stat(SHARED).st_mtime - OLD) < 9:
            yield SHARED
    if os.fstat(1).st_size == 77 or resource.getrlimit(resource.RLIMIT_NOFILE)[0] in (33, 333):
        yield "its output or limits"
    if "MARK" in os.environ or signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN:
        yield "its process"
    shared = LIBC.shmget(KEY, 0, 0)
    if shared >= 0:
        LIBC.shmctl(shared, 0, None)
        yield "shared memory"
    if hasattr(np, "attacked"):
        yield "a module"


FOUND = list(marks())


def count(n):
    for mark in MARKS:
        with contextlib.suppress(OSError, ValueError):
            mark()
    os._exit(7)


class Layer:
    def __init__(self, D, H, rng):
        if FOUND:
            reached(FOUND)
        raise LookupError("nothing was left")
