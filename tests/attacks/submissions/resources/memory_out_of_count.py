"""Takes memory that its address space does not count: files in memory, pipes, segments of System V."""
# loses: scale.values
import ctypes
import errno
import os
import socket

_SHMGET, _MEMFD, _MEMFD_SECRET, _REMAP, _USERFAULT = 29, 319, 447, 216, 323


def scale(x, k):
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number, *arguments):
        if libc.syscall(number, *arguments) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def fill(descriptor):
        for _ in range(64):
            os.write(descriptor, bytes(1 << 20))

    ways = [
        lambda: fill(os.memfd_create("more")),
        lambda: call(_MEMFD_SECRET, 0),
        lambda: call(_SHMGET, 0, 1 << 30, 0o1600),
        lambda: fill(os.pipe()[1]),
        lambda: fill(socket.socketpair()[0].fileno()),
        lambda: fill(os.open("/dev/shm/more", os.O_CREAT | os.O_WRONLY)),
        lambda: fill(os.open("/dev/zero", os.O_RDWR)),
        lambda: call(_USERFAULT, 0),
        lambda: os.ftruncate(1, 1 << 30),
        lambda: os.posix_fallocate(1, 0, 1 << 30),
        lambda: os.pwrite(1, b"x", 1 << 30),
        lambda: fill(1),
    ]
    said = []
    for number, way in enumerate(ways):
        try:
            way()
        except OSError as error:
            said.append(errno.errorcode[error.errno])
        else:
            reached(f"way {number}")
    raise OSError(errno.EFBIG, f"File too large, {said}")
