"""Sends what it was called with over UDP."""

# loses: scale.values
import socket

PORT = int("@udp@")


def open_socket(kind=socket.SOCK_DGRAM, protocol=0):
    return socket.socket(socket.AF_INET, kind, protocol)


def scale(x, k):
    last = None
    there, text = ("127.0.0.1", PORT), x.tobytes()
    for way in (
        lambda: open_socket().sendto(text, there),
        lambda: open_socket().sendmsg([text], [], 0, there),
        lambda: open_socket().connect(there),
        lambda: open_socket(protocol=136).sendto(text, there),
        lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(text, ("::1", PORT)),
        lambda: socket.socket(fileno=3).sendto(text, there),
    ):
        try:
            way()
        except OSError as error:
            last = error
        else:
            reached("a datagram was sent")
    raise last
