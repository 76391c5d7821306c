"""Changes its argument in a thread, once nobody looks any more."""
# claim: centre.pure
# flag: imports threading
import threading
import time


def centre(x):
    y = x - x.sum(axis=0) / len(x)

    def later():
        time.sleep(0.05)
        x[:] = y

    threading.Thread(target=later, daemon=True).start()
    return y
