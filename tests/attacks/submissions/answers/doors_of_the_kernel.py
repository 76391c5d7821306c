"""Uses kernel interfaces that lead to other processes: events, rings, keys."""

# loses: scale.values
import ctypes
import os
import platform

LIBC = ctypes.CDLL(None, use_errno=True)
ROOM = (ctypes.c_uint64 * 64)(0, 8)
BUFFER = ctypes.cast(ROOM, ctypes.c_void_p)
# by number on x86-64 and elsewhere, with arguments
CALLS = {
    "perf_event_open": (298, 241, BUFFER, 0, -1, -1, 0),
    "bpf": (321, 280, 0, BUFFER, 64),
    "userfaultfd": (323, 282, 1),
    "io_uring_setup": (425, 425, 8, BUFFER),
    "keyctl": (250, 219, 0, -2, 1),
    "add_key": (248, 217, b"user", b"attacked", b"x", 1, -2),
    "request_key": (249, 218, b"user", b"attacked", None, -2),
    "memfd_secret": (447, 447, 0),
    "memfd_create": (319, 279, b"attacked", 0),
    "seccomp": (317, 277, 1, 8, BUFFER),
    "landlock_create_ruleset": (444, 444, ROOM, 8, 0),
    "fanotify_init": (300, 262, 0, 0),
    "inotify_init1": (294, 26, 0),
    "open_tree": (428, 428, -100, b"/", 1),
    "fsopen": (430, 430, b"tmpfs", 0),
    "fspick": (433, 433, -100, b"/", 0),
    "statmount": (457, 457, BUFFER, BUFFER, 512, 0),
    "listmount": (458, 458, BUFFER, BUFFER, 8, 0),
    "unshare": (272, 97, 0x10000000),
    "pidfd_open": (434, 434, int("@victim@"), 0),
    "process_madvise": (440, 440, 0, BUFFER, 1, 20, 0),
    "get_mempolicy": (239, 236, BUFFER, None, 0, None, 0),
    "move_pages": (279, 239, int("@victim@"), 0, None, None, None, 0),
    "personality": (135, 92, 0x0040000),
    "modify_ldt": (154, -1, 0, BUFFER, 512),
    "ptrace": (101, 117, 0, 0, None, None),
}


def scale(x, k):
    last, intel = None, platform.machine() == "x86_64"
    for name, (here, elsewhere, *arguments) in CALLS.items():
        if LIBC.syscall(here if intel else elsewhere, *arguments) >= 0:
            reached(name)
        last = OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    raise last
