"""Looks for the marks that another submission has left."""

# loses: count.values, count.errors
import ctypes
import os

PLACES = ("/tmp", "/dev/shm", "/scratch/tmp", "@out@", os.path.dirname("@home@"))


def count(n):
    found = []
    for place in PLACES:
        path = f"{place}/attacked-for-another"
        if os.path.exists(path):
            found.append(path)
            os.unlink(path)
    shared = ctypes.CDLL(None).shmget(0x41747462, 0, 0)
    if shared >= 0:
        ctypes.CDLL(None).shmctl(shared, 0, None)
        found.append("shared memory")
    if hasattr(np, "attacked"):
        found.append("a module")
    if found:
        reached(found)
    raise LookupError("nothing")
