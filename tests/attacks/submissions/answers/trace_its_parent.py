"""Attaches to its parent as a debugger would."""

# loses: scale.values
import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long
TRACE_ME, DETACH, SEIZE, INTERRUPT = 0, 17, 0x4206, 0x4207


def scale(x, k):
    last = None
    for pid in {os.getppid(), int("@victim@")} - {0}:
        if LIBC.ptrace(SEIZE, pid, None, None) == 0:
            LIBC.ptrace(INTERRUPT, pid, None, None)
            os.waitpid(pid, 0x40000000)
            LIBC.ptrace(DETACH, pid, None, None)
            reached(f"process {pid}")
        last = ctypes.get_errno()
    if last is None and LIBC.ptrace(TRACE_ME, 0, None, None) < 0:
        last = ctypes.get_errno()
    raise OSError(last, os.strerror(last or 0))
