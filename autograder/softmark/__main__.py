"""``python -m softmark`` is the command ``softmark``."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the folder of the moment: a submission, perhaps, with a numpy.py in it

from softmark.cli import app

app()
