"""Calls servers over TCP: one of this machine, by IPv4 and IPv6, and one far away."""

# loses: scale.values
import socket

PORT = int("@port@")


def at_once(family, *address):
    with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as there:
        code = there.connect_ex(address)
        if code not in (0, 115):
            raise OSError(code, "connect")


def scale(x, k):
    last = None
    for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "127.1.2.3", "::ffff:127.0.0.1"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        for way in (
            lambda h=host: socket.create_connection((h, PORT), 0.1),
            lambda h=host, f=family: at_once(f, h, PORT),
        ):
            try:
                way()
            except OSError as error:
                last = error if error.errno != 111 else last
            else:
                reached(host)
    for far in ("192.0.2.1", "198.51.100.7"):
        try:
            at_once(socket.AF_INET, far, 80)
        except OSError as error:
            last = error
    raise last
