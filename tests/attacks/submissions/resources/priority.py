"""Asks for more than its share of the processors: priority, real time, other processors, higher limits."""
# loses: scale.values
import ctypes
import errno
import os
import resource

_IOPRIO_SET, _SCHED_SETATTR = 251, 314


def scale(x, k):
    libc = ctypes.CDLL(None, use_errno=True)
    limits = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
    most = resource.RLIM_INFINITY
    ways = [
        lambda: os.nice(-20),
        lambda: os.nice(1),
        lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
        lambda: os.setpriority(os.PRIO_USER, 0, 19),
        lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99)),
        lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
        lambda: os.sched_setparam(0, os.sched_param(0)),
        lambda: os.sched_setaffinity(0, range(os.cpu_count())),
        lambda: os.sched_setaffinity(os.getppid(), [0]),
        lambda: libc.syscall(_IOPRIO_SET, 1, 0, 1 << 13) + 1 or 1 / 0,
        lambda: libc.syscall(_SCHED_SETATTR, 0, bytes(56), 0) + 1 or 1 / 0,
        *(lambda limit=limit: resource.setrlimit(limit, (most, most)) for limit in limits),
        *(lambda limit=limit: resource.prlimit(0, limit, (most, most)) for limit in limits),
        lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1)),
    ]
    for number, way in enumerate(ways):
        try:
            way()
        except (OSError, ValueError, ZeroDivisionError):
            pass
        else:
            reached(f"way {number}")
    raise PermissionError(errno.EPERM, "Operation not permitted")
