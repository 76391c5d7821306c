"""Calls by protocols that a filter may have forgotten: MPTCP, SCTP, DCCP, SMC."""

# loses: scale.values
import socket

THERE = ("127.0.0.1", int("@port@"))
FAST_OPEN, FAST_OPEN_CONNECT = 0x20000000, 30


def fast(protocol):
    there = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    there.setblocking(False)
    return there.sendto(b"x", FAST_OPEN, THERE)


def fast_by_option():
    there = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    there.setsockopt(socket.IPPROTO_TCP, FAST_OPEN_CONNECT, 1)
    there.settimeout(0.1)
    there.connect(THERE)
    return there.send(b"x")


def call(family, kind, protocol):
    there = socket.socket(family, kind, protocol)
    there.settimeout(0.1)
    return there.connect(THERE)


def scale(x, k):
    last = None
    for way in (
        lambda: fast(0),
        lambda: fast(262),
        fast_by_option,
        lambda: call(socket.AF_INET, socket.SOCK_STREAM, 262),
        lambda: call(socket.AF_INET, socket.SOCK_STREAM, 132),
        lambda: call(socket.AF_INET, socket.SOCK_SEQPACKET, 132),
        lambda: call(socket.AF_INET, 6, 33),
        lambda: call(43, socket.SOCK_STREAM, 0),
    ):
        try:
            way()
        except BlockingIOError:
            reached("a call is under way")
        except OSError as error:
            last = error
        else:
            reached("a server")
    raise last
