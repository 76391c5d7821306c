"""Asks the kernel for handles of hidden files and opens these, and guesses handles by inode number."""

# loses: scale.values
import ctypes
import os
import platform
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
NAME, OPEN = (303, 304) if platform.machine() == "x86_64" else (264, 265)


def call(*arguments):
    result = LIBC.syscall(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def handle_of(path):
    handle, mount = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136), ctypes.c_int()
    call(NAME, -100, path.encode(), handle, ctypes.byref(mount), 0)
    reached(f"a handle of {path}")


def guess(inode):
    handle = ctypes.create_string_buffer(struct.pack("IiII", 8, 1, inode, 0), 136)
    for folder in (os.open("/", os.O_RDONLY | os.O_PATH), 1, 3):
        reached(os.read(call(OPEN, folder, handle, 0), 100))


def scale(x, k):
    last = None
    ways = [lambda p=p: handle_of(p) for p in ("@course@/solutions/00_target/target.py", "@home@")]
    ways += [lambda i=i: guess(i) for i in range(2, 40)]
    for way in ways:
        try:
            way()
        except OSError as error:
            last = error
    raise last
