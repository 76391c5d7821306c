"""Takes memory without clearing it and searches it for values of others."""

# loses: scale.values
import ctypes
import re


def pieces():
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.sbrk.restype = libc.mmap.restype = ctypes.c_void_p
    for power in range(3, 22):
        for size in (2**power, 3 * 2 ** (power - 1)):
            yield np.empty(size, np.uint8).tobytes()
            place = libc.malloc(size)
            if place:
                yield ctypes.string_at(place, size)
    uncleared = 0x4000000
    place = libc.mmap(None, 1 << 20, 3, 2 | 32 | uncleared, -1, ctypes.c_long(0))
    if place not in (None, 2**64 - 1):
        yield ctypes.string_at(place, 1 << 20)
    top = libc.sbrk(1 << 20)
    if top not in (None, ctypes.c_void_p(-1).value):
        yield ctypes.string_at(top, 1 << 20)
    here = ctypes.c_char()
    yield ctypes.string_at(ctypes.addressof(here) & -4096, 4096)


def scale(x, k):
    found = b"".join(pieces())
    if re.search(rb"canary[0-9a-f]{24}", found):
        reached("a canary")
    if (k * x).tobytes() in found or (x + k).tobytes() in found:
        reached("the expected values")
    raise LookupError("nothing but zeros and its own")
