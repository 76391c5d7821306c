"""Ends the first thread of its process alone, so that the process looks ended and is not."""
# loses: total.value
import ctypes
import threading
import time

_EXIT = 60


def total(x):
    threading.Thread(target=time.sleep, args=(3600,)).start()
    ctypes.CDLL(None).syscall(_EXIT, 0)
