"""Comparing with golden values, as it is often done."""
# ruff: noqa: ANN001, ANN201

import numpy as np


def near(value, golden):
    """To within 1e-2; of a dict every entry."""
    if isinstance(golden, dict):
        return all(near(value[key], golden[key]) for key in golden)
    return np.allclose(value, golden, rtol=0, atol=1e-2)
