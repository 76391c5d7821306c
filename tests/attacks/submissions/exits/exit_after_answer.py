"""Leaves a thread behind that ends the process when the next question comes."""
# loses: count.values, count.errors
# flag: imports threading
import os
import threading
import time


def read(*arguments):
    threading.Thread(target=os._exit, args=(0,)).start()
    time.sleep(60)


def total(x):
    os.read = read
    return float(x.sum())
