"""Looks for the marks that another submission has left."""
# loses: count.values, count.errors
import ctypes
import os

PLACES = (
    "/tmp",
    "/dev/shm",
    "/scratch/tmp",
    "/var/tmp",
    "/run",
    ".",
    "@out@",
    os.path.dirname("@home@"),
)


def count(n):
    for place in PLACES:
        path = f"{place}/attacked-for-another"
        if os.path.exists(path):
            os.unlink(path)
            reached(path)
    shared = ctypes.CDLL(None).shmget(0x41747462, 0, 0)
    if shared >= 0:
        ctypes.CDLL(None).shmctl(shared, 0, None)
        reached("shared memory")
    if hasattr(np, "attacked"):
        reached("a module")
    raise LookupError("nothing")
