"""Opens tests, results and the files of others in every way that Python and C know."""

# loses: scale.values
import ctypes
import importlib
import linecache
import os

PLACES = (
    "@course@/autograder/graders/00_target/test_target.py",
    "@neighbour@",
    "@out@/results/earlier.json",
    "@home@",
)


def by_system_call(path, number, *rest):
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(number, -100, path.encode(), *rest)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return os.read(descriptor, 9999)


def by_stdio(path):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fopen.restype = ctypes.c_void_p
    if not libc.fopen(path.encode(), b"r"):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return path


WAYS = (
    lambda path: open(path).read(),
    lambda path: os.read(os.open(path, os.O_RDONLY | os.O_NOATIME), 9999),
    lambda path: importlib.import_module("mmap").mmap(os.open(path, os.O_RDWR), 0)[:],
    lambda path: np.fromfile(path, np.uint8).tobytes(),
    lambda path: np.memmap(path, mode="r").tobytes(),
    lambda path: np.loadtxt(path, str, delimiter="\0"),
    lambda path: importlib.import_module("codecs").open(path).read(),
    lambda path: linecache.getlines(path)[-1],
    lambda path: type(importlib.__spec__.loader)("it", path).get_data(path),
    lambda path: importlib.import_module("runpy").run_path(path)["CANARY"],
    lambda path: by_system_call(path, 437, (ctypes.c_uint64 * 3)(), 24),
    lambda path: by_system_call(path, 257, 0, 0),
    by_stdio,
)


def scale(x, k):
    last = None
    for path in PLACES:
        for way in WAYS:
            try:
                found = way(path)
            except Exception as error:
                last = error if isinstance(error, OSError) else last
            else:
                reached(f"{path}: {len(found)} characters")
    raise last
