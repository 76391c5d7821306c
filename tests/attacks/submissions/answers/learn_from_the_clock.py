"""Sleeps until it is asked again with more time, and looks for what it wrote down the first time."""

# loses: total.value
import os
import time

PLACES = [f"{folder}/attacked-asked" for folder in (".", "/scratch/tmp", "/tmp", "/dev/shm")]


def total(x):
    found = []
    for place in PLACES:
        try:
            found.append(open(place).read())
            os.unlink(place)
        except OSError:
            continue
    if found:
        reached(found)
    for place in PLACES:
        try:
            open(place, "w").write(str(x.sum()))
        except OSError:
            continue
    time.sleep(9)
