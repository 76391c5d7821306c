"""The installed engine as a wheel, made without a build tool and without network, the same each time."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import softmark

_NAME = "softmark"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def engine_wheel() -> tuple[str, bytes]:
    """The file name and content of a wheel of the ``softmark`` that is running."""
    installed = metadata.distribution(_NAME)
    info = f"{_NAME}-{installed.version}.dist-info"
    folder = Path(softmark.__file__).parent
    files = {
        f"{_NAME}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for name in ("METADATA", "entry_points.txt"):
        files[f"{info}/{name}"] = (installed.read_text(name) or "").encode()
    tags = f"Wheel-Version: 1.0\nGenerator: {_NAME}\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/WHEEL"] = tags.encode()
    record = f"{info}/RECORD"
    rows = [_row(name, content) for name, content in sorted(files.items())]
    files[record] = "".join([*rows, f"{record},,\n"]).encode()
    return f"{_NAME}-{installed.version}-py3-none-any.whl", archive(files)


def _row(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def archive(files: Mapping[str, bytes], executable: tuple[str, ...] = ()) -> bytes:
    """A .zip of these files, in order of their names, equal for equal content."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3  # modes are those of Unix
            entry.external_attr = (0o100755 if name in executable else 0o100644) << 16
            target.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return out.getvalue()
