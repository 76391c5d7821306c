"""Finds a forbidden function among the members of its module and among all objects there are."""
# flag: imports gc
import gc
import inspect


def centre(x):
    (own,) = [f for name, f in inspect.getmembers(np, callable) if name[::-1] == "naem"]
    found = [f for f in gc.get_objects() if f is own]
    return x - found[0](x, axis=0)
