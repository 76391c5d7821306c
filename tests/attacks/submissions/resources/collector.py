"""Leaves rubbish whose removal never ends, and collects it."""
# loses: total.value
import gc


class Again:
    def __init__(self):
        self.own = self

    def __del__(self):
        Again()
        gc.collect()
        while True:
            pass


def total(x):
    for _ in range(1000):
        Again()
    gc.collect()
