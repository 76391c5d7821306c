"""Writes into the solution, the hidden tests, a neighbour's file, the engine and the runtime."""

# loses: scale.values
import os
import sys

PLACES = (
    "@course@/solutions/00_target/target.py",
    "@course@/autograder/graders/00_target/test_target.py",
    "@neighbour@",
    "@home@",
)


def scale(x, k):
    last = None
    runtime = [os.__file__, np.__file__, sys.modules["softmark.isolation.wire"].__file__]
    for path in (*PLACES, *runtime, "/etc/passwd", "/etc/ld.so.cache"):
        for flags in (os.O_WRONLY | os.O_APPEND, os.O_RDWR, os.O_PATH):
            try:
                descriptor = os.open(path, flags)
                if flags != os.O_PATH:
                    reached(path)
                os.write(descriptor, b"#")
            except OSError as error:
                last = error
            else:
                reached(path)
        new = os.path.join(os.path.dirname(path), "conftest.py")
        try:
            os.close(os.open(new, os.O_CREAT | os.O_WRONLY))
            os.unlink(new)
        except OSError as error:
            last = error
        else:
            reached(new)
    raise last
