"""``python -m softmark`` is the command ``softmark``."""

from softmark.cli import app

app()
