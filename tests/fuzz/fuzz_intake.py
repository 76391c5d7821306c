"""What intake does with a file that anybody made: unpack, decode, find the source, scan it.

An input is one byte that picks the kind of file, and its bytes. ``check`` raises where a rule is broken;
``mutate`` changes archives, notebooks and texts in their structure.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import random
import stat
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from softmark import policy
from softmark.course import load_course
from softmark.intake import IntakeError, Submission, find_submissions, read_submission
from softmark.questions import ANSWERS_FILE, mark, parse_answers
from softmark.sourcetext import MAX_SOURCE

MOST_SECONDS = 2.0

NAMES = ("lstm.py", "lstm.ipynb", "work.zip", "work.tar", "work.tar.gz", ANSWERS_FILE)
_PY, _NOTEBOOK, _ZIP, _TAR, _TAR_GZ, _ANSWERS = range(len(NAMES))
_MOST_MESSAGE, _MOST_NOTE, _MOST_NOTES = 4000, 2000, 30
_CODE = b"import numpy as np\n\n\ndef sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n"
_TOPIC = load_course(Path(__file__).resolve().parents[2]).topic("02_lstm")
_SHM = Path("/dev/shm")


def check(data: bytes) -> str:
    """Take an input as ``softmark grade`` would, up to where code is run: the submission's status.

    Raises AssertionError, or whatever else went wrong.
    """
    if not data:
        return "missing"
    kind, body = data[0] % len(NAMES), data[1:]
    with tempfile.TemporaryDirectory(dir=_SHM if _SHM.is_dir() else None) as folder:
        place = Path(folder, "in")
        place.mkdir()
        path = place / NAMES[kind]
        path.write_bytes(body)
        if kind == _ANSWERS:
            (place / "lstm.py").write_bytes(_CODE)
            path = place
        before = _listing(Path(folder))
        submission = read_submission(path, _TOPIC)
        with contextlib.suppress(IntakeError):
            for id, _ in find_submissions(place, _TOPIC):
                assert id.isascii() and id.isprintable() and len(id) <= 80
        assert _listing(Path(folder)) == before, "a file was written"
    _check_submission(submission)
    _check_scan(submission)
    return submission.status


def _listing(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


def _check_submission(submission: Submission) -> None:
    assert submission.status in ("ready", "missing", "unreadable")
    assert bool(submission.files) == (submission.status == "ready") == (not submission.message)
    assert submission.files.keys() <= set(_TOPIC.handed_in)
    for name, text in submission.files.items():
        assert 0 < len(text.encode()) <= MAX_SOURCE, name
        assert "\0" not in text and "\r" not in text
    assert len(submission.notes) <= _MOST_NOTES, len(submission.notes)
    _check_text(submission.message, _MOST_MESSAGE)
    for note in submission.notes:
        _check_text(note, _MOST_NOTE)


def _check_scan(submission: Submission) -> None:
    """What else the grading process does with the texts before anything is run."""
    for violation in policy.scan_topic(submission.files, _TOPIC):
        assert violation.name and violation.reason
    for flag in policy.watch(submission.files):
        _check_text(flag, 200)
    answers, problem = parse_answers(submission.files.get(ANSWERS_FILE, ""))
    _check_text(problem, 200)
    for name, question in _TOPIC.questions.items():
        expected = next(iter(question.choices), "1")
        _check_text(mark(name, question, answers, expected), 300)


def _check_text(text: str, most: int) -> None:
    assert text.isprintable(), repr(text[:200])
    assert len(text) <= most, len(text)
    text.encode()


# ---- making and changing files ---------------------------------------------------------------------


def seeds() -> list[bytes]:
    """A good file of each kind, and a few odd ones."""
    files = {"a/lstm.py": _CODE, "a/lstm_torch.py": b"x = 1\n", f"a/{ANSWERS_FILE}": _ANSWERED}
    cells = ["%matplotlib inline\n", _CODE.decode(), "%%writefile lstm_torch.py\nx = 1\n", "y?\n"]
    sheet = {"cells": [{"cell_type": "code", "source": cell} for cell in cells], "nbformat": 4}
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": [c]} for c in cells]}]}
    made = [
        (_PY, _CODE),
        (_PY, b"\xef\xbb\xbf# -*- coding: latin-1 -*-\r\nx = '\xe4'\r\n"),
        (_PY, _CODE.decode().encode("utf-16")),
        (_NOTEBOOK, json.dumps(sheet).encode()),
        (_NOTEBOOK, json.dumps(old).encode()),
        (_ZIP, _zipped([(name, data, 0) for name, data in files.items()])),
        (_ZIP, _zipped([("lstm.ipynb", json.dumps(sheet).encode(), 0), ("b/../c", b"", 0)])),
        (_TAR, _tarred([(name, data, tarfile.REGTYPE) for name, data in files.items()])),
        (_ANSWERS, _ANSWERED),
        (_ANSWERS, b'a: "x"\nb: [1, 2]\nc: &x {d: *x}\n'),
    ]
    made.append((_TAR_GZ, gzip.compress(made[7][1], mtime=0)))
    return [bytes([kind]) + data for kind, data in made]


_ANSWERED = "".join(f"{name}: b\n" for name in _TOPIC.questions).encode()


def mutate(data: bytes, dice: random.Random) -> bytes:
    """``data`` with a few parts of its structure changed."""
    if not data:
        return dice.choice(seeds())
    kind, body = data[0] % len(NAMES), data[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile tells of names that are there twice
        try:
            body = _MUTATORS[kind](body, dice)
        except Exception:
            body = _mutate_bytes(body, dice)
    return bytes([kind]) + body


def _mutate_bytes(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(dice.choice((1, 1, 2, 8))):
        place = dice.randrange(len(changed) + 1)
        what = dice.randrange(4)
        if what == 0:
            changed[place : place + 1] = dice.randbytes(1)
        elif what == 1:
            changed[place : place + 4] = dice.choice((b"\xff\xff\xff\xff", bytes(4), b"\1\0\0\0"))
        elif what == 2:
            del changed[place : place + dice.randrange(1, 64)]
        else:
            other = dice.randrange(len(changed) + 1)
            changed[place:place] = changed[other : other + dice.randrange(1, 64)]
    return bytes(changed)


def _mutate_text(data: bytes, dice: random.Random) -> bytes:
    """A line or a word put in, doubled or taken out."""
    lines = data.splitlines(keepends=True) or [b""]
    for _ in range(dice.choice((1, 1, 2, 4))):
        place = dice.randrange(len(lines))
        what = dice.randrange(5)
        if what == 0:
            lines.insert(place, dice.choice(_LINES))
        elif what == 1:
            at = dice.randrange(len(lines[place]) + 1)
            lines[place] = lines[place][:at] + dice.choice(_WORDS) + lines[place][at:]
        elif what == 2:
            lines.insert(place, lines[place])
        elif what == 3:
            lines[place : place + 1] = []
            lines = lines or [b""]
        else:
            lines[place] = _mutate_bytes(lines[place], dice)
    return b"".join(lines)


_LINES = (
    b"# coding: latin-1\n",
    b"# coding: utf-7\n",
    b"# coding: idna\n",
    b"# -*- coding: " + b"x" * 300 + b" -*-\n",
    b"\xef\xbb\xbf",
    b"import torch as t, os\n",
    b"from numpy import *\n",
    b"__import__('o' + 's').system('x')\n",
    b"x = getattr(__builtins__, '\\x65val')\n",
    b"a = b = a.b = b.a\n",
    b"class A(A): a = A\n",
    b"x = " + b"(" * 150 + b"\n",
    b"x = " + b"-" * 900 + b"1\n",
    b"x" + b".y" * 500 + b"\n",
    b"x = f'{f\"{1}\"}'\n",
    b'x = """\n',
    b"%%writefile -a lstm_torch.py\n",
    b"!ls\n",
    b"? x\n",
    b"key: !!python/object/apply:os.system [x]\n",
    b"&a [*a, *a]\n",
    b'"\\e[2J\\u202e": "\\0\\x1b[31m"\n',
    b"- " * 100 + b"\n",
    b"? [" + b"[" * 200 + b"\n",
    b"forget_bias: 1e999\n",
)
_WORDS = (
    b"\0",
    b"\r",
    b"\f",
    b"\x1b[2J",
    b"\xff",
    b"\\",
    b"'''",
    b'"',
    b"#",
    b"\xe2\x80\xa8",
    b"\xe2\x80\xae",
    b"\xed\xa0\x80",
    b"9" * 5000,
    b"(",
    b"]",
    b"{",
    b": ",
    b"torch",
    b"eval",
    b"\t",
)


def _mutate_answers(data: bytes, dice: random.Random) -> bytes:
    if dice.random() < 0.3:
        name = dice.choice(list(_TOPIC.questions)).encode()
        return data + name + b": " + dice.choice((*_LINES, *_WORDS)) + b"\n"
    return _mutate_text(data, dice)


def _mutate_notebook(data: bytes, dice: random.Random) -> bytes:
    value = json.loads(data)
    for _ in range(dice.choice((1, 1, 3))):
        value = _changed(value, dice)
    return json.dumps(value, ensure_ascii=dice.random() < 0.8).encode("utf-8", "surrogatepass")


def _changed(value: Any, dice: random.Random) -> Any:
    """The same JSON with one part changed."""
    if isinstance(value, dict) and value and dice.random() < 0.95:
        key = dice.choice(list(value))
        changed = {**value, key: _changed(value[key], dice)}
        if dice.random() < 0.1:
            changed[dice.choice(_KEYS)] = changed.pop(key)
        return changed
    if isinstance(value, list) and value and dice.random() < 0.95:
        changed_list = list(value)
        place = dice.randrange(len(value))
        changed_list[place] = _changed(value[place], dice)
        if dice.random() < 0.2:
            changed_list.insert(place, value[place])
        return changed_list
    if isinstance(value, str) and dice.random() < 0.8:
        return _mutate_text(value.encode("utf-8", "surrogatepass"), dice).decode("utf-8", "replace")
    odd: tuple[Any, ...] = (
        None, True, -1, 1e308, 10**30, "", "code", "\ud800", [], {}, [None], {"code": 1},
        ["a\n", "%%bash x\n"], [["x"]], {"nbgrader": {"solution": True, "grade": True}},
    )  # fmt: skip
    return dice.choice(odd)


_KEYS = ("cells", "source", "input", "cell_type", "metadata", "worksheets", "nbgrader", "x")


def _zipped(entries: list[tuple[str, bytes, int]]) -> bytes:
    """A zip archive of (name, content, mode and type)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED if len(data) > 40 else zipfile.ZIP_STORED
            archive.writestr(info, data)
    return buffer.getvalue()


def _tarred(entries: list[tuple[str, bytes, bytes]], form: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar archive of (name, content, type)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, data, type in entries:
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(data), type, "lstm.py"
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


_PATHS = (
    "lstm.py", "LSTM.PY", "lstm (1).py", "lstm_final.py", "my_lstm_torch.py", "lstm.ipynb", "../lstm.py",
    "/lstm.py", "C:\\lstm.py", "a\\lstm.py", "a/b/c/d/e/f/g/h/lstm.py", "__MACOSX/._lstm.py", ".git/x",
    "x" * 300 + ".py", "\x1b[2J\u202e.py", "answers.yaml", "answers.txt", "inner.zip", "test_lstm.py",
    "", ".", "a/", "lstm.py/", "lstm.py/lstm.py", "\ud800.py",
)  # fmt: skip
_MODES = (0, stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFDIR, stat.S_IFBLK, 0o100777)
_TYPES = (b"0", b"0", b"1", b"2", b"3", b"5", b"6", b"7", b"S", b"L", b"K", b"x", b"g", b"V", b"\0")


def _mutate_zip(data: bytes, dice: random.Random) -> bytes:
    if dice.random() < 0.4:
        return _mutate_bytes(data, dice)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [
            (info.filename, archive.read(info)[:9000], info.external_attr >> 16)
            for info in archive.infolist()[:20]
        ]
    return _zipped(_changed_entries(entries, dice, _MODES))


def _mutate_tar(data: bytes, dice: random.Random) -> bytes:
    if dice.random() < 0.4:
        return _mutate_bytes(data, dice)
    entries = []
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in itertools.islice(archive, 20):
            start = member.offset_data
            entries.append((member.name, data[start : start + member.size][:9000], member.type))
    form = dice.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT))
    return _tarred(_changed_entries(entries, dice, _TYPES), form)


def _changed_entries(entries: list[Any], dice: random.Random, kinds: tuple[Any, ...]) -> list[Any]:
    for _ in range(dice.choice((1, 1, 3))):
        place = dice.randrange(len(entries) + 1)
        if place == len(entries) or dice.random() < 0.2:
            entries.insert(place, (dice.choice(_PATHS), _CODE, dice.choice(kinds)))
            continue
        name, data, kind = entries[place]
        what = dice.randrange(5)
        if what == 0:
            entries[place] = (dice.choice(_PATHS), data, kind)
        elif what == 1:
            entries[place] = (name, data, dice.choice(kinds))
        elif what == 2:
            index = 1 + name.endswith("b") if name.endswith((".py", ".ipynb")) else 0
            change = (_mutate_bytes, _mutate_text, _mutate_notebook)[index]
            entries[place] = (name, change(data, dice), kind)
        elif what == 3:
            pax = dice.choice(
                (b"30 size=9999999999999999999999\n", b"19 path=../lstm.py\n", b"9 x=\n")
            )
            entries[place] = (name, pax, kind)
        else:
            del entries[place]
    return entries


def _mutate_tar_gz(data: bytes, dice: random.Random) -> bytes:
    if dice.random() < 0.2:
        return _mutate_bytes(data, dice)
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        plain = stream.read(1 << 20)
    return gzip.compress(_mutate_tar(plain, dice), 1, mtime=0)


_MUTATORS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _mutate_text,
    _mutate_notebook,
    _mutate_zip,
    _mutate_tar,
    _mutate_tar_gz,
    _mutate_answers,
)


def generate(count: int, seed: int) -> list[bytes]:
    """Inputs made from the good files by ``mutate``, the same for a seed."""
    dice = random.Random(seed)
    start = itertools.cycle(seeds())
    return [mutate(next(start), dice) for _ in range(count)]
