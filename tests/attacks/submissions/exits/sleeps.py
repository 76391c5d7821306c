"""Waits for a lock that nobody gives back, so that it uses no CPU time."""
# loses: total.value
import threading

lock = threading.Lock()
lock.acquire()


def total(x):
    lock.acquire()
