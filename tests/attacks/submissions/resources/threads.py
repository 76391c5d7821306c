"""Starts threads with small stacks until no more can be had."""
# loses: scale.values
# reached: plain
import threading


def scale(x, k):
    done, threads = threading.Event(), []
    threading.stack_size(1 << 15)
    try:
        while len(threads) < 300:
            threads.append(threading.Thread(target=done.wait, daemon=True))
            threads[-1].start()
        reached(f"{len(threads)} threads")
    finally:
        done.set()
