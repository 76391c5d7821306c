"""Listens for others: on all addresses, on a name, on a path."""

# loses: scale.values
import os
import socket


def bind(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as here:
        here.bind(address)
        if kind == socket.SOCK_STREAM:
            here.listen()
    if isinstance(address, str) and address[0] != "\0":
        os.unlink(address)


def by_library():
    from multiprocessing.connection import Listener

    Listener(("127.0.0.1", 0)).close()


def scale(x, k):
    last = None
    for way in (
        lambda: bind(socket.AF_INET, ("0.0.0.0", 0)),
        lambda: bind(socket.AF_INET6, ("::", 0)),
        lambda: bind(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM),
        lambda: bind(socket.AF_UNIX, "\0attacked-listens"),
        lambda: bind(socket.AF_UNIX, f"attacked-{os.getpid()}"),
        lambda: bind(socket.AF_UNIX, f"/tmp/attacked-{os.getpid()}"),
        lambda: bind(socket.AF_NETLINK, (0, 1), socket.SOCK_RAW),
        by_library,
        lambda: socket.create_server(("", 0)).close(),
    ):
        try:
            way()
        except (OSError, ImportError) as error:
            last = error if isinstance(error, OSError) else last
        else:
            reached("a place to be called at")
    raise last
