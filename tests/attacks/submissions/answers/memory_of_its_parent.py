"""Reads the memory of its parent and of the reference's process, and takes descriptors."""

# loses: scale.values
import ctypes
import os
import platform
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
READ, KCMP = (310, 312) if platform.machine() == "x86_64" else (270, 272)


def call(*arguments):
    result = LIBC.syscall(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def read_through_kernel(pid):
    here = (ctypes.c_char * 8)()
    local = (ctypes.c_uint64 * 2)(ctypes.addressof(here), 8)
    there = (ctypes.c_uint64 * 2)(id(np), 8)
    return call(READ, pid, local, 1, there, 1, 0)


def take_descriptor(pid):
    for number in range(3, 12):
        try:
            return call(438, os.pidfd_open(pid), number, 0)
        except OSError as error:
            last = error
    raise last


def scale(x, k):
    last, frame = None, sys._getframe()
    pids = [os.getppid(), 1, os.getppid() - 1, os.getpid() - 1, int("@victim@")]
    while frame:
        pids += [pid for pid, _ in dict(frame.f_locals.get("children", {})).values()]
        frame = frame.f_back
    for pid in pids:
        for way in (
            lambda p: os.pread(os.open(f"/proc/{p}/mem", os.O_RDONLY), 8, id(np)),
            lambda p: open(f"/proc/{p}/maps").read(),
            lambda p: open(f"/proc/{p}/syscall").read(),
            read_through_kernel,
            take_descriptor,
            lambda p: call(KCMP, p, p, 2, 0, 0),
        ):
            # its own number is nothing: it is the first of its own processes where it has some
            if pid in (0, os.getpid()):
                continue
            try:
                way(pid)
            except OSError as error:
                last = error
            else:
                reached(f"the memory of {pid}")
    raise last or LookupError("nothing by these numbers")
