"""Blocks and ignores every signal, takes the signal stack away, and loops in threads."""
# loses: total.value
# flag: imports ctypes
import ctypes
import signal
import sys
import threading


def loop():
    while True:
        try:
            sum(range(1000))
        except BaseException:
            pass


def total(x):
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    ctypes.CDLL(None).sigaltstack(ctypes.create_string_buffer(b"\0" * 8 + b"\2"), None)
    sys.setswitchinterval(1e6)
    for _ in range(3):
        threading.Thread(target=loop).start()
    loop()
