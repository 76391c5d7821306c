"""The plain files in a folder or an archive, listed safely and read on demand.

Archives are read in memory and nothing is written. Limits hold for bytes as they come: no size that
a header states is believed. Links out of a folder are not followed; links in archives, devices and
pipes are never opened; files that machines leave about (.git, __MACOSX, ...) are passed over.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Literal

MB = 2**20
MAX_ARCHIVE = 64 * MB  # packed, and again unpacked
MAX_ENTRIES = 2_000
MAX_LISTED = 10_000  # entries of an archive, litter included
MAX_DEPTH = 6  # folders within the folder
MAX_NAME = 1_000  # characters of a path in an archive
MAX_HEADER = 2**13  # bytes of one header in a tar archive
MAX_HEADERS = 4 * MB  # and of all the longer ones together

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
_OTHER_ARCHIVES = (".rar", ".7z", ".gz", ".bz2", ".xz", ".zst")
_LITTER = frozenset(
    "__macosx __pycache__ node_modules venv site-packages thumbs.db desktop.ini $recycle.bin".split()
)

Ignored = dict[str, list[str]]
"""What was passed over: the kind, in the plural, to names."""


class RefusedError(Exception):
    """Why a submission gives nothing to grade, as a sentence for its author."""

    def __init__(
        self, message: str, status: Literal["missing", "unreadable"] = "unreadable"
    ) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Entry:
    """A plain file. ``read(limit)`` gives its bytes, at most one more than ``limit``."""

    path: PurePosixPath
    read: Callable[[int], bytes]

    @property
    def shown(text: str) -> str:
    """Text made by anybody, fit for a line of a terminal or a report."""
    short = text if len(text) <= 100 else f"{text[:48]}...{text[-48:]}"
    return "".join(char if char.isprintable() else "?" for char in short)


def listed(names: Iterable[str]) -> str:
    """Up to five names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - 5} more" if len(every) > 5 else ""
    return ", ".join(map(shown, every[:5])) + more
