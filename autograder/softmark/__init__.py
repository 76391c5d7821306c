"""Softmark: an auto-graded deep-learning course kit."""

__version__ = "0.1.0"
