"""Peeks at its connection for what the grader is going to ask next."""
# loses: scale.values
import array
import fcntl
import os
import select
import socket
import termios

WAYS = (
    lambda: socket.socket(fileno=os.dup(3)).recv(100, socket.MSG_PEEK | socket.MSG_DONTWAIT),
    lambda: socket.socket(fileno=os.dup(3)).recvmsg(100, 4096, socket.MSG_DONTWAIT),
    lambda: fcntl.ioctl(3, termios.FIONREAD, array.array("i", [0])),
    lambda: os.preadv(3, [bytearray(100)], 0, os.RWF_NOWAIT),
    lambda: os.splice(3, 1, 100, flags=2),
    lambda: open("/proc/self/fdinfo/3").read() and b"",
    lambda: os.set_blocking(3, False) or os.read(3, 100),
)


def scale(x, k):
    if select.select([3], [], [], 0.05)[0]:
        reached("a question before its time")
    last = LookupError("nothing")
    for way in WAYS:
        try:
            found = way()
        except OSError as error:
            last = error if error.errno != 11 else last
        else:
            if found:
                reached(found)
    raise last
