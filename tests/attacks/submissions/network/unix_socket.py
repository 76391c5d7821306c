"""Calls a server of this machine through its socket in the file system."""

# loses: scale.values
import os
import socket

PATH = "@socket@"


def call(path, kind):
    with socket.socket(socket.AF_UNIX, kind) as there:
        there.connect(path)
        reached(path)


def by_link(kind):
    link = f"{os.getcwd()}/to-socket"
    try:
        os.symlink(PATH, link)
        call(link, kind)
    finally:
        if os.path.lexists(link):
            os.unlink(link)


def scale(x, k):
    last = None
    doors = [PATH, f"/proc/self/root{PATH}", f"/proc/1/root{PATH}", "/run/docker.sock", "/dev/log"]
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        ways = [lambda d=d, k=kind: call(d, k) for d in doors] + [lambda k=kind: by_link(k)]
        for way in ways:
            try:
                way()
            except OSError as error:
                last = error
    for flags in (os.O_RDWR, os.O_PATH):
        try:
            descriptor = os.open(PATH, flags)
            socket.socket(socket.AF_UNIX).connect(f"/proc/self/fd/{descriptor}")
        except OSError as error:
            last = error
        else:
            reached("a descriptor of it")
    raise last
