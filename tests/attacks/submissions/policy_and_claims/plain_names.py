"""Uses a forbidden name under others: an alias, a star, a literal getattr."""
# status: rejected
# loses: all
import numpy as other
from numpy import *


def centre(x):
    for way in (lambda: mean, lambda: other.mean, lambda: getattr(other, "me" + "an")):
        x = x - way()(x, axis=0)
    return x
