"""Spends its time in its import, then hangs in a call, so that it is imported again and again."""
# loses: total.value, count.values, count.errors, layer.params, layer.forward, layer.backward, layer.grads
import os
import time

time.sleep(3)


def total(x):
    os._exit(1)
