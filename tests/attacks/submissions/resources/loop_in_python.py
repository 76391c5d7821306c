"""Loops for ever in a call, and catches all that could end it."""
# loses: total.value
import signal
import threading


def total(x):
    ways = [
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG)),
        lambda: [signal.signal(n, signal.SIG_IGN) for n in range(1, 32) if n not in (9, 19)],
        lambda: threading.setprofile(lambda *_: None),
    ]
    while True:
        try:
            while True:
                for way in ways:
                    way()
        except BaseException:
            pass
