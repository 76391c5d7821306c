"""Sends the grader thousands of descriptors and false credentials (SCM_RIGHTS, SCM_CREDENTIALS)."""

# loses: scale.values
import array
import os
import socket
import struct


def scale(x, k):
    last, grader = None, socket.socket(fileno=os.dup(3))
    full = array.array("i", [1] * 253)
    for _ in range(10):
        for what in (
            (socket.SOL_SOCKET, socket.SCM_RIGHTS, full),
            (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [3])),
            (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack("3i", 1, 0, 0)),
        ):
            try:
                grader.sendmsg([b""], [what], socket.MSG_DONTWAIT)
                grader.sendmsg([b"\0"], [what], socket.MSG_DONTWAIT | socket.MSG_OOB)
            except OSError as error:
                last = error
            else:
                reached("the grader's queue")
    raise last
