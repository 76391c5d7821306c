"""Goes from object to object through all that the interpreter holds and searches it for secrets."""

# loses: scale.values
import gc
import re
import sys
import time


def scale(x, k):
    ends, seen = time.monotonic() + 0.35, set()
    gc.unfreeze()
    todo = [sys.modules, sys._getframe(), object.__subclasses__(), *gc.get_objects()]
    todo += gc.get_referrers(np, sys.modules["softmark.isolation.wire"])
    while todo and time.monotonic() < ends:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, (str, bytes)):
            text = thing if isinstance(thing, str) else thing.decode("latin-1")
            found = re.search(r"canary[0-9a-f]{24}|return k \* x\n.*# END", text[:100_000])
            if found and "the attack" not in text:
                reached(text[:50])
        elif isinstance(thing, np.ndarray):
            if thing is not x and thing.shape == x.shape and np.allclose(thing, k * x):
                reached("the expected values")
        else:
            todo += gc.get_referents(thing)
    raise LookupError("nothing but its own")
