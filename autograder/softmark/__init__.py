"""Softmark: an auto-graded deep-learning course kit."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext softmark``: gives a notebook the magic ``%softmark check``."""
    from softmark.magic import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext softmark``."""
    from softmark.magic import unload

    unload(shell)
