"""Stops, kills and alarms itself with signals, by every call that sends one."""
# loses: total.value
import ctypes
import os
import signal
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)


def system(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def total(x):
    me, thread = os.getpid(), threading.get_native_id()
    said = OSError("nothing was sent")
    for number in (signal.SIGURG, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL):
        for send in (
            lambda: signal.raise_signal(number),
            lambda: os.kill(me, number),
            lambda: os.kill(0, number),
            lambda: os.killpg(0, number),
            lambda: signal.pthread_kill(threading.get_ident(), number),
            lambda: system(200, thread, number),  # tkill
            lambda: system(297, me, thread, number, bytes(128)),  # rt_tgsigqueueinfo
            lambda: system(424, system(434, me, 0), number, None, 0),  # by a pidfd
            lambda: signal.setitimer(signal.ITIMER_REAL, 0.001) and time.sleep(0.01),
            lambda: system(37, 1),  # alarm
            lambda: system(222, 0, bytes(64), bytes(8)),  # timer_create
            lambda: system(157, 1, 0),  # prctl: no signal when the parent ends
        ):
            try:
                send()
                reached(f"signal {number}")
            except OSError as error:
                said = error
    raise said
