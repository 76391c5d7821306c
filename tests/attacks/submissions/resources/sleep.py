"""Waits for ever without using the processor, with every signal blocked."""
# loses: total.value
import select
import signal
import threading


def total(x):
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
    threading.Thread(target=threading.Event().wait, daemon=False).start()
    select.select([0, 3], [], [], 0.01)
    threading.Event().wait()
