"""Has the kernel signal others, lock and lease files, and resize pipes, by fcntl and ioctl."""
# loses: scale.values
import errno
import fcntl
import os
import struct

_KEPT = {fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL}


def scale(x, k):
    descriptors = [0, 1, 2, 3, os.open("/dev/null", os.O_RDONLY), os.open(os.__file__, os.O_RDONLY)]
    commands = set(range(64)) | set(range(1024, 1048))
    lock = struct.pack("hhqqi", fcntl.F_RDLCK, 0, 0, 0, 0)
    ways = [
        lambda f: fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB),
        lambda f: fcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB),
        lambda f: fcntl.fcntl(f, fcntl.F_OFD_SETLK, lock),
        lambda f: fcntl.ioctl(f, 0x541B, bytes(8)),
        lambda f: fcntl.ioctl(f, 0x5412, b"x"),
        lambda f: fcntl.ioctl(f, 0x5421, struct.pack("i", 1)),
        lambda f: os.set_blocking(f, False),
        *(lambda f, c=c: fcntl.fcntl(f, c, os.getppid()) for c in commands - _KEPT),
        *(lambda f, c=c: fcntl.fcntl(f, c, lock) for c in commands - _KEPT),
    ]
    for descriptor in descriptors:
        for number, way in enumerate(ways):
            try:
                way(descriptor)
            except OSError as error:
                last = error
            else:
                reached(f"way {number} on {descriptor}")
    raise last
