"""Hangs when its process ends: at exit, in destructors, in threads that are waited for."""

import atexit
import threading
import time
import weakref


def forever(*_):
    while True:
        time.sleep(1)


class Last:
    __del__ = forever


last = Last()
atexit.register(forever)
weakref.finalize(forever, forever)
threading._register_atexit(forever)
threading.Thread(target=forever).start()
