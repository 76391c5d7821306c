"""Makes pairs of sockets, pipes and other channels, to pass descriptors and messages around."""

# loses: scale.values
import importlib
import os
import select
import socket


def scale(x, k):
    last = None
    for way in (
        socket.socketpair,
        lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET),
        lambda: socket.socketpair(30, socket.SOCK_STREAM),
        os.pipe,
        lambda: os.eventfd(0),
        lambda: os.mkfifo("fifo"),
        select.epoll,
        lambda: importlib.import_module("asyncio").new_event_loop(),
        lambda: os.openpty(),
        lambda: os.memfd_create("channel"),
    ):
        try:
            found = way()
        except (OSError, ImportError) as error:
            last = error if isinstance(error, OSError) else last
        else:
            reached(found)
    raise last
