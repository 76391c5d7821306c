"""Makes system calls through io_uring, which a filter of system calls does not see."""

# loses: scale.values
import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
SETUP, ENTER, REGISTER = 425, 426, 427


def scale(x, k):
    last = None
    room = (ctypes.c_uint32 * 64)()
    for number, arguments in (
        (SETUP, (4, room)),
        (ENTER, (3, 1, 0, 0, None, 0)),
        (REGISTER, (3, 0, room, 1)),
        (REGISTER, (-1, 13, room, 1)),
    ):
        if LIBC.syscall(number, *arguments) >= 0:
            reached("a ring")
        last = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    raise last
