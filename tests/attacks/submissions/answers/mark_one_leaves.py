"""Leaves marks of all kinds for another submission."""

# loses: count.values, count.errors
import ctypes
import os

PLACES = ("/tmp", "/dev/shm", "/scratch/tmp", "@out@", os.path.dirname("@home@"))


def count(n):
    for place in PLACES:
        try:
            open(f"{place}/attacked-for-another", "w").write("canary")
        except OSError:
            continue
    libc = ctypes.CDLL(None)
    place = libc.shmget(0x41747462, 4096, 0o1666)
    np.attacked = place
    os._exit(3)
