"""Reads, maps and names everything behind the descriptors 0 to 1023 that it has inherited."""

# loses: scale.values
import ctypes
import importlib
import os


def scale(x, k):
    last, held = None, []
    for number in range(1024):
        try:
            held.append((number, os.fstat(number)))
        except OSError as error:
            last = error
    if [number for number, _ in held] != [0, 1, 2, 3]:
        reached(held)
    for number, _ in held:
        for way in (
            lambda n: os.pread(n, 9999, 0),
            lambda n: importlib.import_module("mmap").mmap(n, 0)[:],
            lambda n: os.listdir(n),
            lambda n: os.readlink(f"/proc/self/fd/{n}").encode(),
            lambda n: ctypes.CDLL(None).lseek(n, 0, 1).to_bytes(8, "big", signed=True),
        ):
            try:
                found = way(number)
            except (OSError, ValueError, ImportError) as error:
                last = error if isinstance(error, (PermissionError, FileNotFoundError)) else last
            else:
                if b"canary" in bytes(found) or b"attacked-" in bytes(found):
                    reached(number)
    raise last
