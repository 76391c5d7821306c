"""Small tasks that have every kind of rubric item."""

import numpy as np


def scale(x, k):
    """x of shape (N, D), times the number k."""
    # BEGIN SOLUTION
    return k * x
    # END SOLUTION


def softmax(x):
    """Along the last axis of x of shape (N, D); does not overflow."""
    # BEGIN SOLUTION
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
    # END SOLUTION


def centre(x):
    """x of shape (N, D) less the mean of each of its columns; x itself stays as it was."""
    # BEGIN SOLUTION
    return x - x.sum(axis=0) / len(x)
    # END SOLUTION


def total(x):
    """The sum of all of x, a float."""
    # BEGIN SOLUTION
    return float(x.sum())
    # END SOLUTION


def count(n):
    """The list [0, ..., n - 1]; ValueError for a negative n."""
    # BEGIN SOLUTION
    if n < 0:
        raise ValueError("n should not be negative")
    return list(range(n))
    # END SOLUTION


class Layer:
    """y = x W + b, with W of shape (D, H) drawn from rng and b = 0."""

    def __init__(self, D, H, rng):
        # BEGIN SOLUTION
        self.params = {"W": rng.standard_normal((D, H)), "b": np.zeros(H)}
        self.grads = {}
        # END SOLUTION

    def forward(self, x):
        """y of shape (N, H), and what backward needs."""
        # BEGIN SOLUTION
        return x @ self.params["W"] + self.params["b"], x
        # END SOLUTION

    def backward(self, dy, cache):
        """dx of shape (N, D); sets the grads."""
        # BEGIN SOLUTION
        self.grads = {"W": cache.T @ dy, "b": dy.sum(axis=0)}
        return dy @ self.params["W"].T
        # END SOLUTION
