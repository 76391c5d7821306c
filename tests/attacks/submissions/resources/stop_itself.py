"""Stops its own process, which then neither works nor ends."""
# loses: scale.values
import ctypes
import os
import signal
import threading

_TKILL, _TGKILL, _SIGQUEUE, _PIDFD_SEND = 200, 234, 129, 424


def scale(x, k):
    libc, own = ctypes.CDLL(None, use_errno=True), os.getpid()
    ways = [
        lambda: os.kill(own, signal.SIGSTOP),
        lambda: os.kill(0, signal.SIGTSTP),
        lambda: os.killpg(0, signal.SIGSTOP),
        lambda: signal.raise_signal(signal.SIGSTOP),
        lambda: signal.pthread_kill(threading.get_ident(), signal.SIGSTOP),
        lambda: libc.syscall(_TKILL, threading.get_native_id(), signal.SIGSTOP) + 1 or 1 / 0,
        lambda: libc.syscall(_TGKILL, own, own, signal.SIGSTOP) + 1 or 1 / 0,
        lambda: libc.syscall(_SIGQUEUE, own, signal.SIGSTOP, bytes(128)) + 1 or 1 / 0,
        lambda: libc.syscall(_PIDFD_SEND, 0, signal.SIGSTOP, None, 0) + 1 or 1 / 0,
    ]
    for way in ways:
        try:
            way()
        except OSError as error:
            last = error
        except ZeroDivisionError:
            pass
        else:
            reached("stopped, and went on")
    raise last
