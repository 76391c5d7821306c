"""Reaches for the solution through /proc: roots and folders of itself and its parents."""

# loses: scale.values
import os

TARGET = "@course@/solutions/00_target/target.py"


def scale(x, k):
    last = None
    people = ["self", "thread-self", "1", "2", str(os.getppid()), str(os.getpid())]
    people += [f"self/task/{os.getpid()}", "self/../1", f"../proc/{os.getppid()}"]
    for who in people:
        for door in ("root", "cwd", "cwd/../../../../../..", "root/proc/self/root", "map_files/.."):
            try:
                text = open(f"/proc/{who}/{door}{TARGET}").read()
            except OSError as error:
                last = error
            else:
                reached(f"/proc/{who}/{door}: {len(text)} characters")
    raise last
