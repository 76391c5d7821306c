"""Asks the zygote for more workers and the grader for news, through what is left of their sockets."""

# loses: scale.values
import ctypes
import gc
import os
import socket
import sys

from softmark.isolation import wire


def sockets():
    frame = sys._getframe()
    while frame:
        yield from (v for v in frame.f_locals.values() if isinstance(v, socket.socket))
        yield from (v for v in frame.f_locals.values() if type(v) is int and 3 < v < 1024)
        frame = frame.f_back
    gc.unfreeze()
    yield from (thing for thing in gc.get_objects() if isinstance(thing, socket.socket))
    yield from range(4, 1024)


def ask(where):
    number = where if isinstance(where, int) else where.fileno()
    asked = wire.pack({"number": 1000, "born": True})
    if ctypes.CDLL(None, use_errno=True).write(number, asked, len(asked)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    reached(f"an answer on {number}")


def again():
    # the zygote's own module, of which this process is a fork
    if sys.modules["__main__"]._fork(None, None) == 0:
        os._exit(0)
    reached("a worker of its own")


def scale(x, k):
    last = None
    for where in sockets():
        try:
            ask(where)
        except OSError as error:
            last = error
    try:
        again()
    except OSError as error:
        last = error
    raise last
