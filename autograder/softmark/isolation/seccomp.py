"""The system calls that a worker may make, as a compiled filter.

Built once in the grader through libseccomp, which knows the numbers of every architecture, and handed
to the zygotes as bytes. An allow-list: what is not named answers EPERM.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import tempfile

_ALLOWED = """
    read write readv writev pread64 pwrite64 close lseek dup dup2 dup3 poll ppoll select
    pselect6 open openat stat fstat lstat newfstatat statx access faccessat faccessat2 readlink
    readlinkat getcwd getdents getdents64 mkdir mkdirat unlink unlinkat rmdir rename renameat
    renameat2 ftruncate fallocate mmap mprotect munmap mremap brk madvise membarrier futex
    sched_yield sched_getaffinity set_robust_list rseq rt_sigaction rt_sigprocmask rt_sigreturn
    sigaltstack restart_syscall getpid getppid gettid getuid geteuid getgid getegid uname
    sysinfo getrlimit getrusage times time gettimeofday nanosleep getrandom arch_prctl exit
    exit_group
""".split()

# what the driver asks for beside: its threads wait for events, and it pins memory
_CUDA = """
    ioctl eventfd2 pipe2 epoll_create1 epoll_ctl epoll_wait epoll_pwait mlock mlock2 munlock mincore
    get_mempolicy set_mempolicy mbind getcpu sched_setaffinity sched_getparam sched_getscheduler
    sched_get_priority_max sched_get_priority_min bind listen setsockopt getsockname statfs fstatfs
""".split()

# F_SETOWN with O_ASYNC lets a process signal others of its user: only these commands are let through
_FCNTL = ("F_DUPFD", "F_DUPFD_CLOEXEC", "F_GETFD", "F_SETFD", "F_GETFL")
# the clocks above these are other processes'
_CLOCKS, _LAST_CLOCK = ("clock_gettime", "clock_getres", "clock_nanosleep"), 15
_CLONE_THREAD = 0x00010000


class Unavailable(Exception):
    """libseccomp is not installed; says how to get it."""


def build_filter(cuda: bool = False) -> bytes:
    """The filter as classic BPF for this architecture; with ``cuda`` it lets through what the GPU's
    driver needs, ``ioctl`` first of all. Raises Unavailable."""
    try:
        import pyseccomp as seccomp
    except (ImportError, RuntimeError, OSError):
        raise Unavailable(
            "libseccomp is not installed (Debian, Ubuntu: apt install libseccomp2; "
            "Fedora: dnf install libseccomp)"
        ) from None
    allowed = seccomp.SyscallFilter(seccomp.ERRNO(errno.EPERM))
    equal = seccomp.EQ
    for name in (*_ALLOWED, *(_CUDA if cuda else ())):
        _allow(seccomp, allowed, name)
    for command in _FCNTL:
        _allow(seccomp, allowed, "fcntl", seccomp.Arg(1, equal, getattr(fcntl, command)))
    for name in _CLOCKS:
        _allow(seccomp, allowed, name, seccomp.Arg(0, seccomp.LE, _LAST_CLOCK))
    # threads, not processes; clone3 hides its flags behind a pointer, and libc falls back from ENOSYS
    thread = seccomp.Arg(0, seccomp.MASKED_EQ, _CLONE_THREAD, _CLONE_THREAD)
    _allow(seccomp, allowed, "clone", thread)
    allowed.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
    if cuda:  # the driver makes a local socket of its own; to connect and to accept stay shut
        _allow(seccomp, allowed, "socket", seccomp.Arg(0, equal, socket.AF_UNIX))
    else:
        allowed.add_rule(seccomp.ERRNO(errno.ENOTTY), "ioctl")
    # one's own limits may be asked for, not set
    _allow(seccomp, allowed, "prlimit64", seccomp.Arg(0, equal, 0), seccomp.Arg(2, equal, 0))
    with tempfile.TemporaryFile() as file:
        allowed.export_bpf(file)
        file.seek(0)
        return file.read()


def _allow(seccomp: object, allowed: object, name: str, *conditions: object) -> None:
    try:
        allowed.add_rule(seccomp.ALLOW, name, *conditions)  # type: ignore[attr-defined]
    except OSError as error:  # a call that this architecture does not have
        if error.errno not in (errno.EFAULT, errno.EDOM, errno.EINVAL):
            raise
