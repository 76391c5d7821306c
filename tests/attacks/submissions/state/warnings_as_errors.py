"""Turns every warning into an error, in its own process and, it hopes, in others."""

import os
import warnings

os.environ["PYTHONWARNINGS"] = "error"
warnings.simplefilter("error")
warnings.filterwarnings("error", append=True)
warnings._filters_mutated()


def total(x):
    warnings.simplefilter("error")
    warnings.resetwarnings()
    return float(x.sum())
