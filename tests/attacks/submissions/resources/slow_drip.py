"""Takes a while in every call, never too long for one, so that it takes all its time and earns nothing."""
# loses: all
import time


def slowly(*_):
    end = time.perf_counter() + 0.2
    while time.perf_counter() < end:
        pass


scale = softmax = centre = total = count = slowly


class Layer:
    __init__ = forward = backward = slowly
