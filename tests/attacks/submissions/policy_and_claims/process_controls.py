"""Changes what its process may do: dumpable, traceable, personality, filters, capabilities, users, keyrings."""
# loses: scale.values
import ctypes
import errno
import os
import struct

_PRCTL, _PERSONALITY, _SECCOMP, _PTRACE = 157, 135, 317, 101
_CALLS = {
    "dumpable": (_PRCTL, 4, 1, 0, 0, 0),
    "ptracer": (_PRCTL, 0x59616D61, -1, 0, 0, 0),
    "name": (_PRCTL, 15, b"init", 0, 0, 0),
    "securebits": (_PRCTL, 28, 0, 0, 0, 0),
    "keepcaps": (_PRCTL, 8, 1, 0, 0, 0),
    "ambient": (_PRCTL, 47, 2, 21, 0, 0),
    "seccomp by prctl": (_PRCTL, 22, 1, 0, 0, 0),
    "memory map": (_PRCTL, 35, 14, 0, 0, 0),
    "speculation": (_PRCTL, 53, 0, 2, 0, 0),
    "tsc": (_PRCTL, 26, 2, 0, 0, 0),
    "personality": (_PERSONALITY, 0x0040000),
    "seccomp": (_SECCOMP, 0, 0, None),
    "seccomp filter": (_SECCOMP, 1, 8, b"\x01\0\0\0\0\0\0\0" + bytes(8)),
    "traceme": (_PTRACE, 0, 0, 0, 0),
    "attach": (_PTRACE, 16, 1, 0, 0),
    "seize": (_PTRACE, 0x4206, 1, 0, 0),
    "capset": (126, struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[2**32 - 1] * 6)),
    "setuid": (105, 0),
    "setresuid": (117, 0, 0, 0),
    "setgroups": (116, 1, bytes(4)),
    "setfsuid": (122, 0),
    "join keyring": (250, 1, None),
    "add key": (248, b"user", b"name", b"x", 1, -3),
    "kcmp": (312, 1, 1, 0, 0, 0),
    "read another": (310, 1, bytes(16), 1, bytes(16), 1, 0),
    "write another": (311, 1, bytes(16), 1, bytes(16), 1, 0),
    "pidfd": (434, 1, 0),
    "pidfd_getfd": (438, 0, 0, 0),
    "landlock": (444, None, 0, 1),
}


def scale(x, k):
    libc = ctypes.CDLL(None, use_errno=True)
    for name, (number, *arguments) in _CALLS.items():
        ctypes.set_errno(0)
        got = libc.syscall(number, *arguments)
        if got >= 0 or ctypes.get_errno() != errno.EPERM:
            reached(f"{name}: {got}, {os.strerror(ctypes.get_errno())}")
    raise PermissionError(errno.EPERM, "Operation not permitted")
