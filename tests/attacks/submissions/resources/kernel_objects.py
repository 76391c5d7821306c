"""Makes objects that the kernel keeps memory for: timers, queues, watches, rings, keys, programs."""
# loses: scale.values
import ctypes
import errno

_CALLS = {
    "pipe2": 293,
    "eventfd2": 290,
    "epoll_create1": 291,
    "inotify_init1": 294,
    "signalfd4": 289,
    "timerfd_create": 283,
    "timer_create": 222,
    "setitimer": 38,
    "alarm": 37,
    "memfd_create": 319,
    "userfaultfd": 323,
    "io_uring_setup": 425,
    "io_setup": 206,
    "perf_event_open": 298,
    "bpf": 321,
    "shmget": 29,
    "semget": 64,
    "msgget": 68,
    "mq_open": 240,
    "add_key": 248,
    "keyctl": 250,
    "fanotify_init": 300,
    "landlock_create_ruleset": 444,
    "socket": 41,
    "socketpair": 53,
    "mlock": 149,
    "mlock2": 325,
    "mlockall": 151,
}


def scale(x, k):
    libc = ctypes.CDLL(None, use_errno=True)
    room = ctypes.create_string_buffer(4096)
    for name, number in _CALLS.items():
        ctypes.set_errno(0)
        got = libc.syscall(number, room, 1, 0, room, 0)
        if got >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
            reached(f"{name}: {got} {errno.errorcode.get(ctypes.get_errno())}")
    raise PermissionError(errno.EPERM, "Operation not permitted")
