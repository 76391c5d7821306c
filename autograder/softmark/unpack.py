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
MAX_NAME = 300  # characters of a path in an archive
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
    def shown(self) -> str:
        return shown(str(self.path))

    @property
    def suffix(self) -> str:
        return suffix(self.path.name)


def folder_entries(root: Path, ignored: Ignored) -> list[Entry]:
    """The files in ``root``, least deep first. Raises RefusedError past a limit, OSError."""
    root = root.resolve()
    entries: list[Entry] = []
    seen = 0
    folders = [PurePosixPath()]
    for depth in range(MAX_DEPTH + 1):
        below: list[PurePosixPath] = []
        for folder in folders:
            try:
                with os.scandir(root / folder) as scan:
                    items = sorted(islice(scan, MAX_ENTRIES + 1), key=lambda item: item.name)
            except OSError:
                if depth == 0:
                    raise
                ignored.setdefault("folders that cannot be opened", []).append(str(folder))
                continue
            seen += len(items)
            _check_count(seen, shown(root.name))
            for item in items:
                path = folder / item.name
                if is_litter(item.name):
                    continue
                if item.is_symlink():
                    target = link_target(root / path, root)
                    if target and stat.S_ISREG(target.stat().st_mode):
                        entries.append(Entry(path, partial(read_file, target)))
                        continue
                    why = "links"
                elif item.is_dir():
                    if depth < MAX_DEPTH:
                        below.append(path)
                        continue
                    why = f"folders more than {MAX_DEPTH} deep"
                elif item.is_file():
                    entries.append(Entry(path, partial(read_file, root / path)))
                    continue
                else:
                    why = "what is not a plain file"
                ignored.setdefault(why, []).append(str(path))
        folders = below
    return entries


def link_target(link: Path, root: Path) -> Path | None:
    """What a link leads to; None if that is nothing, or not inside ``root``."""
    try:
        target = link.resolve(strict=True)
        return target if target.is_relative_to(root.resolve()) else None
    except (OSError, RuntimeError):  # RuntimeError: a circle, before Python 3.13
        return None


def read_file(path: Path, limit: int) -> bytes:
    """A plain file's bytes, at most one more than ``limit``. Raises RefusedError."""
    flags = os.O_RDONLY
    for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):  # no system has all
        flags |= getattr(os, flag, 0)
    name = shown(path.name)
    try:
        with open(os.open(path, flags), "rb") as stream:  # noqa: PTH123
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise RefusedError(f"{name} is not a plain file; hand in the file itself.")
            return stream.read(min(limit, status.st_size) + 1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise RefusedError(f"{name} cannot be read: {reason}; hand it in again.") from None


def archive_entries(name: str, data: bytes, ignored: Ignored) -> list[Entry]:
    """The files in an archive called ``name``. Raises RefusedError if it cannot be opened.

    Of files with the same name in the same place the last counts, as with every unpacker.
    """
    if len(data) > MAX_ARCHIVE:
        raise RefusedError(f"{name} is larger than 64 MB; hand in only your source files.")
    if not data:
        raise RefusedError(f"{name} has no content (0 bytes); hand it in again.")
    if not name.lower().endswith(ARCHIVES):
        raise RefusedError(f"{name} is an archive of a kind that is not opened; make it a .zip.")
    listing = _zip_listing if name.lower().endswith(".zip") else _tar_listing
    entries: dict[PurePosixPath, Entry] = {}
    with _sound(name):
        for raw, plain, read in listing(name, data):
            if len(raw) > MAX_NAME:
                ignored.setdefault("names that are too long", []).append(raw)
                continue
            path = PurePosixPath(raw.replace("\\", "/"))
            if not path.parts or any(is_litter(part) for part in path.parts if part != ".."):
                continue
            if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", raw):
                ignored.setdefault("names that lead out of the archive", []).append(raw)
            elif not plain:
                ignored.setdefault("links and what is not a plain file", []).append(raw)
            else:
                if path in entries:
                    ignored.setdefault("earlier files of the same name", []).append(raw)
                entries[path] = Entry(path, read)
                _check_count(len(entries), name)
    return list(entries.values())


_Listing = Iterator[tuple[str, bool, Callable[[int], bytes]]]  # name, whether plain, read


def _zip_listing(name: str, data: bytes) -> _Listing:
    # Opening makes an object for every entry of the directory: count their signatures first.
    _check_count(data.count(b"PK\x01\x02"), name, MAX_LISTED)
    archive = zipfile.ZipFile(io.BytesIO(data))

    def read(info: zipfile.ZipInfo, limit: int) -> bytes:
        if info.flag_bits & 1:
            raise RefusedError(f"{name} is protected by a password; hand it in without one.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise RefusedError(f"{name} is packed by a rare method; make it an ordinary .zip.")
        with _sound(name), archive.open(info) as stream:
            return stream.read(limit + 1)

    for info in archive.infolist():
        if not info.is_dir():
            kind = stat.S_IFMT(info.external_attr >> 16)
            yield _zip_name(info), kind in (0, stat.S_IFREG), partial(read, info)


def _zip_name(info: zipfile.ZipInfo) -> str:
    """A name as it was meant: many packers write UTF-8 and do not say so."""
    if not info.flag_bits & 0x800 and len(info.filename) <= MAX_NAME:
        with suppress(UnicodeError):
            return info.filename.encode("cp437").decode()
    return info.filename


class _Headers(io.BytesIO):
    """Bytes of a tar archive for tarfile, which reads a header whole however long it says it is."""

    _left = MAX_HEADERS

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= MAX_HEADER:
            raise tarfile.ReadError("a header is too long")
        data = super().read(size)
        if size > tarfile.BLOCKSIZE:
            self._left -= size
            # tarfile's own search for a number in it takes the square of the number's length
            if self._left < 0 or re.search(rb"\d{40}", data):
                raise tarfile.ReadError("its headers are too long")
        return data


def _tar_listing(name: str, data: bytes) -> _Listing:
    if data.startswith(b"\x1f\x8b"):
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            data = stream.read(MAX_ARCHIVE + 1)
        if len(data) > MAX_ARCHIVE:
            message = f"{name} unpacks to more than 64 MB; hand in only your source files."
            raise RefusedError(message)

    def read(start: int, size: int, limit: int) -> bytes:
        return data[start : start + min(size, limit + 1)]

    count = 0
    with tarfile.open(fileobj=_Headers(data), mode="r:") as archive:
        while (member := archive.next()) is not None:
            count += 1
            _check_count(count, name, MAX_LISTED)
            if len(archive.pax_headers) > 64:  # they are copied to each member that follows
                raise tarfile.ReadError("too many global headers")
            archive.members = []  # type: ignore[attr-defined]  # else it keeps all it has seen
            if not member.isdir():
                plain = member.isreg() and not member.issparse()
                yield member.name, plain, partial(read, member.offset_data, member.size)


@contextmanager
def _sound(name: str) -> Iterator[None]:
    """Whatever bytes made by anybody do to the library that opens them ends as a sentence."""
    try:
        yield
    except RefusedError:
        raise
    except Exception as error:
        reason = shown(str(error)).rstrip(".") or type(error).__name__
        message = f"{name} is damaged, cut short or of another kind ({reason}); pack it anew."
        raise RefusedError(message) from None


def _check_count(count: int, name: str, most: int = MAX_ENTRIES) -> None:
    if count > most:
        message = f"{name} holds more than {most:,} files; hand in only your source files."
        raise RefusedError(message)


def is_litter(name: str) -> bool:
    """Whether a file or folder of this name is hidden or left about by a machine."""
    return name.startswith(".") or name.casefold() in _LITTER


def is_archive(name: str) -> bool:
    """Whether a file of this name is an archive, of a kind that is opened or not."""
    return name.lower().endswith((*ARCHIVES, *_OTHER_ARCHIVES))


def suffix(name: str) -> str:
    """A file's suffix in lower case; the one before ``.txt``, which some editors and browsers add."""
    path = PurePosixPath(name.lower())
    return path.suffix if path.suffix != ".txt" else PurePosixPath(path.stem).suffix or ".txt"


def shown(text: str) -> str:
    """Text made by anybody, fit for a line of a terminal or a report."""
    short = text if len(text) <= 100 else f"{text[:48]}...{text[-48:]}"
    return "".join(char if char.isprintable() else "?" for char in short)


def listed(names: Iterable[str]) -> str:
    """Up to five names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - 5} more" if len(every) > 5 else ""
    return ", ".join(map(shown, every[:5])) + more
