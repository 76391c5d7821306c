"""Takes 50 GB at once, by every way to ask for it."""
# loses: scale.values
import ctypes

import numpy as np

_SIZE = 50 << 30


def scale(x, k):
    libc = ctypes.CDLL(None)
    libc.malloc.restype = libc.calloc.restype = libc.aligned_alloc.restype = ctypes.c_void_p
    libc.mmap.restype = libc.sbrk.restype = ctypes.c_void_p
    size = ctypes.c_size_t(_SIZE)
    ways = [
        lambda: bytes(_SIZE),
        lambda: bytearray(_SIZE),
        lambda: [None] * (_SIZE // 8),
        lambda: "x" * _SIZE,
        lambda: np.zeros(_SIZE, np.uint8),
        lambda: np.ones(_SIZE // 8),
        lambda: __import__("mmap").mmap(-1, _SIZE),
        lambda: __import__("mmap").mmap(-1, _SIZE, 0x4002),
        lambda: __import__("mmap").mmap(-1, 1 << 30, 0x40001),
        lambda: libc.malloc(size),
        lambda: libc.calloc(size, 1),
        lambda: libc.aligned_alloc(4096, size),
        lambda: libc.mmap(None, size, 3, 0x4022, -1, 0) + 1 & 2**64 - 1,
        lambda: libc.sbrk(size) + 1 & 2**64 - 1,
    ]
    for number, way in enumerate(ways):
        try:
            if way():
                reached(f"way {number}")
        except (OSError, TypeError, ImportError) as error:
            last = error
        except MemoryError as error:
            last = error
    raise MemoryError(f"not to be had: {last}")
