"""Ends its main thread by the system call alone, while another thread lives on."""
# loses: total.value
import ctypes
import threading
import time


def total(x):
    threading.Thread(target=time.sleep, args=(60,)).start()
    ctypes.CDLL(None).syscall(60, 0)
