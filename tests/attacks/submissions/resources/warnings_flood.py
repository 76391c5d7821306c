"""Warns ten million times."""
# loses: total.value
import warnings


def total(x):
    for number in range(10**7):
        warnings.warn(f"{number} " + "x" * 1000, RuntimeWarning, stacklevel=1)
    return float(x.sum())
