"""Opens sockets of all families: raw, packet, netlink, to the hypervisor."""

# loses: scale.values
import socket


def scale(x, k):
    last = None
    for family in range(1, 47):
        for kind in (
            socket.SOCK_DGRAM,
            socket.SOCK_RAW,
            socket.SOCK_SEQPACKET,
            socket.SOCK_STREAM,
            socket.SOCK_RDM,
        ):
            try:
                there = socket.socket(family, kind, 0)
            except OSError as error:
                last = error if error.errno not in (93, 94, 97) else last
            else:
                there.close()
                reached(f"family {family}, kind {kind}")
    raise last
