"""Ends its process with exit code 0 while it is imported."""
# status: import_error
# loses: all
import os

os._exit(0)
