"""Climbs the stack of its callers and of tracebacks and searches their variables for secrets."""

# loses: scale.values
import re
import sys
import threading


def stacks():
    yield sys._getframe()
    yield from sys._current_frames().values()
    try:
        raise RuntimeError
    except RuntimeError as error:
        yield error.__traceback__.tb_frame
    for name in ("last_traceback", "last_value", "last_exc"):
        held = getattr(sys, name, None)
        yield getattr(held, "tb_frame", None) or getattr(held, "__traceback__", None)


def scale(x, k):
    seen = []
    for frame in stacks():
        while hasattr(frame, "f_back"):
            seen.append(frame)
            frame = frame.f_back
    for thread in threading.enumerate():
        seen.append(thread)
    for frame in seen:
        for space in ("f_locals", "f_globals", "f_builtins", "__dict__"):
            for name, value in list(getattr(frame, space, {}).items()):
                text = f"{name} {value!r:.20000}" if not callable(value) else name
                if re.search(r"canary[0-9a-f]{24}", text):
                    reached(f"{name} in {frame}")
                if name in ("expected", "reference", "solution", "answers", "questions"):
                    reached(name)
    raise LookupError("nothing but its own")
