"""What people hand in, as files, folders, archives and notebooks, good, odd and hostile."""

from __future__ import annotations

import codecs
import dataclasses
import gzip
import io
import json
import os
import stat
import struct
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from softmark.course import Topic, load_topic
from softmark.intake import IntakeError, Submission, find_submissions, read_submission

CODE = "def sigmoid(z):\n    return z\n"
OTHER = "x = 1\n"
EVERY_BYTE = bytes(range(256)) * 4096


def make_topic(folder: Path, *files: str) -> Topic:
    folder.mkdir(parents=True)
    text = f"""\
title: Made up
hours: 1
files: [{", ".join(files)}]
rubric:
  sigmoid: {{title: sigmoid, points: 1}}
calls:
  sigmoid: {{s: array}}
"""
    (folder / "assignment.yaml").write_text(text)
    return load_topic(folder)


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return make_topic(tmp_path / "topics" / "one", "lstm.py")


@pytest.fixture
def pair(tmp_path: Path) -> Topic:
    return make_topic(tmp_path / "topics" / "two", "lstm.py", "lstm_torch.py")


@pytest.fixture
def hand_in(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def put(path: Path, content: str | bytes = CODE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def make_zip(path: Path, files: Mapping[str, str | bytes], **how: Any) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **how) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def make_tar(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for member, content in members:
            archive.addfile(member, io.BytesIO(content))
    return path


def tar_file(name: str, content: bytes = CODE.encode(), **more: Any) -> tuple[Any, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in more.items():
        setattr(member, key, value)
    return member, content


def code(source: str | list[str], **nbgrader: bool) -> dict[str, Any]:
    metadata = {"nbgrader": nbgrader} if nbgrader else {}
    return {"cell_type": "code", "metadata": metadata, "outputs": [], "source": source}


def notebook(*cells: dict[str, Any]) -> str:
    return json.dumps({"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def assert_ready(got: Submission, text: str = CODE) -> None:
    assert (got.status, got.message) == ("ready", "")
    assert got.files == {"lstm.py": text}


def assert_unreadable(got: Submission, *words: str) -> None:
    assert got.status == "unreadable", got
    assert got.files == {}
    assert "\n" not in got.message
    for word in words:
        assert word in got.message, got.message


def assert_missing(got: Submission, *words: str) -> None:
    assert got.status == "missing", got
    assert got.files == {}
    for word in words:
        assert word in got.message, got.message


# One file


def test_the_expected_file_needs_no_word(hand_in: Path, topic: Topic) -> None:
    got = read_submission(put(hand_in / "lstm.py"), topic, id="right")
    assert_ready(got)
    assert got.id == "right"
    assert got.notes == ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        got.status = "missing"  # type: ignore[misc]


def test_the_digest_is_of_names_and_text(hand_in: Path, topic: Topic, pair: Topic) -> None:
    first = read_submission(put(hand_in / "a" / "lstm.py"), topic)
    same = read_submission(make_zip(hand_in / "b.zip", {"hw/lstm.py": CODE}), topic)
    other = read_submission(put(hand_in / "c" / "lstm.py", CODE + "\n"), topic)
    assert first.digest == same.digest != other.digest
    assert len(first.digest) == 64
    put(hand_in / "d" / "lstm.py", OTHER)
    put(hand_in / "d" / "lstm_torch.py", CODE)
    put(hand_in / "e" / "lstm.py", CODE)
    put(hand_in / "e" / "lstm_torch.py", OTHER)
    swapped = [read_submission(hand_in / name, pair).digest for name in "de"]
    assert swapped[0] != swapped[1]


@pytest.mark.parametrize(
    "name",
    ["LSTM.py", "lstm.PY", "lstm (1).py", "lstm_final.py", "student_123_lstm.py", "lstm-2.py"],
)
@pytest.mark.parametrize("inside", [True, False], ids=["in a folder", "alone"])
def test_a_name_close_to_it_is_taken_with_a_note(
    hand_in: Path, topic: Topic, name: str, inside: bool
) -> None:
    path = put(hand_in / name)
    put(hand_in / "test_lstm.py", "assert False\n")
    put(hand_in / "helper.py", OTHER)
    got = read_submission(hand_in if inside else path, topic)
    assert_ready(got)
    assert got.notes[0] == f"took {name} as lstm.py"


def test_any_name_will_do_for_a_file_alone_but_not_among_others(
    hand_in: Path, topic: Topic
) -> None:
    path = put(hand_in / "homework.py")
    got = read_submission(path, topic)
    assert_ready(got)
    assert got.notes == ("took homework.py as lstm.py",)
    put(hand_in / "lstmcode.py")
    put(hand_in / "mylstm.py")
    found = read_submission(hand_in, topic)
    assert_missing(found, "Expected lstm.py", "holds only homework.py, lstmcode.py, mylstm.py")


def test_two_names_close_to_it_are_refused(hand_in: Path, topic: Topic) -> None:
    put(hand_in / "lstm_a.py")
    put(hand_in / "sub" / "lstm_b.py")
    assert_unreadable(read_submission(hand_in, topic), "lstm_a.py and sub/lstm_b.py", "only one")


@pytest.mark.parametrize(
    "text",
    [
        "# -*- coding: latin-1 -*-\nname = 'é'\n",
        "#!/usr/bin/python\n# vim: coding=latin-1 :\nn = 'é'\n",
    ],
)
def test_a_declared_coding_is_honoured_and_rewritten(
    hand_in: Path, topic: Topic, text: str
) -> None:
    got = read_submission(put(hand_in / "lstm.py", text.encode("latin-1")), topic)
    assert_ready(got, text.replace("latin-1", "utf-8"))
    names: dict[str, Any] = {}
    exec(compile(got.files["lstm.py"].encode(), "lstm.py", "exec"), names)
    assert "é" in names.values()


def test_bom_and_line_ends_go(hand_in: Path, topic: Topic) -> None:
    raw = codecs.BOM_UTF8 + CODE.replace("\n", "\r\n").encode() + b"# old\r# mac\n"
    got = read_submission(put(hand_in / "lstm.py", raw), topic)
    assert_ready(got, CODE + "# old\n# mac\n")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"x = 1\ny = 2\nname = '\xe9'\n", ("not UTF-8 at byte 20 (line 3)", "save it as UTF-8")),
        (b"name = '\xe9'\n", ("not UTF-8 at byte 8 (line 1)",)),
        (b"# coding: ascii\nname = '\xe9'\n", ("not ASCII at byte 24 (line 2)",)),
        (b"# coding: no-such\nx = 1\n", ("declares a coding",)),
        (b"# coding: punycode\nx = 1\n", ("declares a coding",)),
        (b"# coding: hex\n00\n", ("declares a coding",)),
        (codecs.BOM_UTF8 + b"# coding: latin-1\nx = 1\n", ("declares a coding",)),
        (CODE.encode("utf-16"), ("UTF-16",)),
        (b"x = 1\ny = '\0'\n", ("NUL", "line 2")),
        (b"x = 1\n" * 200_000, ("larger than 1 MB",)),
    ],
    ids=[
        "later",
        "first line",
        "declared",
        "unknown",
        "slow",
        "no text",
        "two",
        "16",
        "NUL",
        "big",
    ],
)
def test_bytes_that_are_no_source(
    hand_in: Path, topic: Topic, raw: bytes, words: tuple[str, ...]
) -> None:
    assert_unreadable(read_submission(put(hand_in / "lstm.py", raw), topic), "lstm.py", *words)


def test_source_of_exactly_the_limit_is_read(hand_in: Path, topic: Topic) -> None:
    text = "#" * (2**20 - 1) + "\n"
    assert_ready(read_submission(put(hand_in / "lstm.py", text), topic), text)


def test_a_slow_cookie_line_is_not_slow(hand_in: Path, topic: Topic) -> None:
    raw = b"#" * 2**19 + b"\n# coding: latin-1\n"
    start = time.monotonic()
    assert read_submission(put(hand_in / "lstm.py", raw), topic).status == "ready"
    assert time.monotonic() - start < 5


def test_an_empty_file_is_missing(hand_in: Path, topic: Topic) -> None:
    for text in ("", " \n\t\n"):
        got = read_submission(put(hand_in / "lstm.py", text), topic)
        assert_missing(got, "lstm.py is empty", "hand in")


def test_what_is_not_there_or_no_source_is_missing(hand_in: Path, topic: Topic) -> None:
    assert_missing(read_submission(hand_in / "none.py", topic), "Expected lstm.py", "no none.py")
    essay = put(hand_in / "essay.pdf", b"%PDF")
    assert_missing(read_submission(essay, topic), "Expected lstm.py, but essay.pdf")
    (hand_in / "empty").mkdir()
    assert_missing(read_submission(hand_in / "empty", topic), "empty holds no file")


# Folders


def test_the_least_deep_file_wins_and_the_rest_is_named(hand_in: Path, topic: Topic) -> None:
    put(hand_in / "hw" / "lstm.py")
    put(hand_in / "hw" / "old" / "lstm.py", OTHER)
    put(hand_in / "notes.txt", "hello")
    got = read_submission(hand_in, topic)
    assert_ready(got)
    assert got.notes == (
        "took lstm.py from hw/",
        "ignored other files: notes.txt, hw/old/lstm.py",
    )


def test_what_students_were_given_is_no_news(hand_in: Path, topic: Topic) -> None:
    given = {"layers.py": "def one():\n    return 1\n"}
    topic = dataclasses.replace(topic, given=given)
    put(hand_in / "hw" / "lstm.py")
    for name in ("handout.md", "assignment.yaml", "questions.yaml", "decay.svg"):
        put(hand_in / "hw" / name, "whatever")
    for name in ("test_public.py", "test_public_torch.py"):
        put(hand_in / "hw" / name, "def test_one():\n    pass\n")
    put(hand_in / "hw" / "layers.py", given["layers.py"].replace("\n", "\r\n"))
    assert read_submission(hand_in, topic).notes == ("took lstm.py from hw/",)
    put(hand_in / "hw" / "layers.py", "def one():\n    return 2\n")
    put(hand_in / "hw" / "handout.txt", "their own")
    assert read_submission(hand_in, topic).notes == (
        "took lstm.py from hw/",
        "ignored other files: hw/handout.txt",
        "ignored changes to files that the course gives: hw/layers.py",
    )
    (hand_in / "hw" / "lstm.py").unlink()
    assert_missing(read_submission(hand_in, topic), "Expected lstm.py", "handout.md")
    alone = hand_in / "hw" / "layers.py"
    assert_missing(read_submission(alone, topic), "Expected lstm.py, but layers.py is no such file")


def test_the_exact_name_wins_over_another_case_beside_it(hand_in: Path, topic: Topic) -> None:
    put(hand_in / "LSTM.py", OTHER)
    put(hand_in / "lstm.py")
    assert_ready(read_submission(hand_in, topic))


def test_two_equally_deep_are_refused(hand_in: Path, topic: Topic) -> None:
    put(hand_in / "a" / "lstm.py")
    put(hand_in / "b" / "lstm.py")
    got = read_submission(hand_in, topic)
    assert_unreadable(got, "a/lstm.py and b/lstm.py", "only one of them")


def test_litter_is_passed_over(hand_in: Path, topic: Topic) -> None:
    for place in ("__MACOSX", "__pycache__", ".git", ".ipynb_checkpoints"):
        put(hand_in / place / "lstm.py", OTHER)
    put(hand_in / ".DS_Store", b"\0")
    put(hand_in / "hw" / "lstm.py")
    put(hand_in / "hw" / "._lstm.py", b"\0")
    got = read_submission(hand_in, topic)
    assert_ready(got)
    assert got.notes == ("took lstm.py from hw/",)
    packed = make_zip(
        hand_in / "mac.zip", {"__MACOSX/lstm.py": OTHER, "._lstm.py": b"\0", "hw/lstm.py": CODE}
    )
    assert_ready(read_submission(packed, topic))


def test_links_are_not_followed_out_of_the_folder(hand_in: Path, topic: Topic) -> None:
    secret = put(hand_in.parent / "secret" / "lstm.py", "SECRET = 1\n")
    box = hand_in / "box"
    box.mkdir()
    (box / "lstm.py").symlink_to(secret)
    (box / "hw").symlink_to(secret.parent)
    (box / "up").symlink_to("../../secret")
    (box / "round").symlink_to("round")
    got = read_submission(box, topic)
    assert_missing(got, "ignored links: hw, lstm.py, round, up")
    assert_unreadable(read_submission(box / "lstm.py", topic), "link that leads elsewhere")
    assert_unreadable(read_submission(box / "hw", topic), "link that leads elsewhere")
    put(box / "real" / "code.py")
    (box / "lstm.py").unlink()
    (box / "lstm.py").symlink_to("real/code.py")
    assert_ready(read_submission(box, topic))


def test_pipes_and_devices_are_not_opened(hand_in: Path, topic: Topic) -> None:
    os.mkfifo(hand_in / "lstm.py")
    assert_missing(read_submission(hand_in, topic), "not a plain file: lstm.py")
    assert_unreadable(read_submission(hand_in / "lstm.py", topic), "not a plain file")
    assert_unreadable(read_submission(Path("/dev/zero"), topic), "not a plain file")


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[None]:
    """Root may read everything: be nobody, for whom the way to tmp_path is opened."""
    if os.geteuid() != 0:
        yield
        return
    modes = {p: p.stat().st_mode for p in (tmp_path, *tmp_path.parents[:2])}
    for path, mode in modes.items():
        path.chmod(mode | 0o055)
    os.seteuid(65534)
    try:
        if not os.access(tmp_path, os.R_OK, effective_ids=True):
            pytest.skip("nobody may not reach the temporary folder")
        yield
    finally:
        os.seteuid(0)
    for path, mode in modes.items():
        path.chmod(mode)


@pytest.fixture
def locked(hand_in: Path) -> Iterator[Path]:
    put(hand_in / "file" / "lstm.py").chmod(0)
    put(hand_in / "whole" / "lstm.py").parent.chmod(0)
    put(hand_in / "part" / "lstm.py")
    put(hand_in / "part" / "closed" / "x.py").parent.chmod(0)
    (hand_in / "astray").symlink_to("whole/lstm.py")
    yield hand_in
    for folder in ("whole", "part/closed"):
        (hand_in / folder).chmod(0o755)


def test_what_may_not_be_read(locked: Path, topic: Topic, nobody: None) -> None:
    for what in ("file", "file/lstm.py", "whole", "whole/lstm.py"):
        assert_unreadable(read_submission(locked / what, topic), "permission denied")
    got = read_submission(locked / "part", topic)
    assert_ready(got)
    assert got.notes == ("ignored folders that cannot be opened: closed",)
    assert set(found(locked, topic)) == {"file", "part", "whole"}
    with pytest.raises(IntakeError, match=r"whole: cannot be read: permission denied"):
        find_submissions(locked / "whole", topic)


def test_depth_and_number_of_entries_are_limited(hand_in: Path, topic: Topic) -> None:
    put(hand_in / "1/2/3/4/5/6/lstm.py")
    assert_ready(read_submission(hand_in, topic))
    got = read_submission(hand_in / "1", topic)
    assert_ready(got)
    deep = put(hand_in / "1/2/3/4/5/6/7/lstm.py")
    (deep.parent.parent / "lstm.py").unlink()
    assert_missing(read_submission(hand_in, topic), "more than 6 deep: 1/2/3/4/5/6/7")
    many = hand_in / "many"
    for number in range(1999):
        put(many / f"{number % 3}" / f"{number}.txt", "")
    assert_unreadable(read_submission(many, topic), "many holds more than 2,000 files")


def test_a_folder_with_one_archive_stands_for_it(hand_in: Path, topic: Topic) -> None:
    make_zip(hand_in / "upload.zip", {"hw/lstm.py": CODE})
    put(hand_in / "readme.txt", "see the zip")
    got = read_submission(hand_in, topic)
    assert_ready(got)
    assert got.notes[0] == "took lstm.py from upload.zip/hw/"
    make_zip(hand_in / "again.zip", {"hw/lstm.py": CODE})
    assert_missing(read_submission(hand_in, topic), "again.zip, readme.txt, upload.zip")


# Several files


def test_several_files_and_what_is_missing(hand_in: Path, pair: Topic) -> None:
    put(hand_in / "lstm_torch.py", OTHER)
    assert_missing(read_submission(hand_in, pair), "Expected lstm.py", "in holds no file")
    put(hand_in / "my_lstm.py")
    got = read_submission(hand_in, pair)
    assert (got.status, got.files) == ("ready", {"lstm.py": CODE, "lstm_torch.py": OTHER})
    (hand_in / "lstm_torch.py").unlink()
    got = read_submission(hand_in, pair)
    assert (got.status, got.files) == ("ready", {"lstm.py": CODE})
    assert "missing: lstm_torch.py" in got.notes


def test_a_second_file_that_cannot_be_read_does_not_take_the_first_along(
    hand_in: Path, pair: Topic
) -> None:
    put(hand_in / "lstm.py")
    put(hand_in / "lstm_torch.py", b"\xff")
    got = read_submission(hand_in, pair)
    assert (got.status, got.files) == ("ready", {"lstm.py": CODE})
    assert got.notes[0].startswith("left out lstm_torch.py: lstm_torch.py is not UTF-8 at byte 0")


def test_a_lone_file_meant_for_another_name_is_not_taken_for_the_first(
    hand_in: Path, pair: Topic
) -> None:
    path = put(hand_in / "lstm_torch (1).py")
    assert_missing(read_submission(path, pair), "Expected lstm.py")


# Archives


@pytest.mark.parametrize(
    ("name", "mode"),
    [("hw.tar", "w"), ("hw.tar.gz", "w:gz"), ("hw.tgz", "w:gz"), ("HW.TAR.GZ", "w")],
)
def test_tar(hand_in: Path, topic: Topic, name: str, mode: str) -> None:
    folder, _ = tar_file("hw", b"", type=tarfile.DIRTYPE)
    path = make_tar(hand_in / name, [(folder, b""), tar_file("./hw/lstm.py")], mode)
    got = read_submission(path, topic)
    assert_ready(got)
    assert got.notes == (f"took lstm.py from {name}/hw/",)


def test_zip_with_windows_slashes_and_more(hand_in: Path, topic: Topic) -> None:
    path = make_zip(
        hand_in / "lstm.zip", {"hw\\lstm.py": CODE, "hw\\a.txt": "a", "inner.zip": b"PK"}
    )
    got = read_submission(path, topic)
    assert_ready(got)
    assert got.notes == (
        "took lstm.py from lstm.zip/hw/",
        "ignored other files: hw/a.txt",
        "ignored archives inside, which are not opened: inner.zip",
    )


def test_archives_in_archives_are_not_opened(hand_in: Path, topic: Topic) -> None:
    inner = make_zip(hand_in / "inner.zip", {"lstm.py": CODE}).read_bytes()
    got = read_submission(make_zip(hand_in / "outer.zip", {"inner.zip": inner}), topic)
    assert_missing(got, "outer.zip holds only inner.zip")
    assert got.notes == ("ignored archives inside, which are not opened: inner.zip",)


def test_names_that_lead_out_of_an_archive_are_ignored(
    hand_in: Path, tmp_path: Path, topic: Topic
) -> None:
    names = ("../lstm.py", "a/../../lstm.py", "/lstm.py", "C:\\lstm.py", "..\\lstm.py")
    before = sorted(tmp_path.rglob("*"))
    for number, name in enumerate(names):
        packed = make_zip(hand_in / f"{number}.zip", {name: CODE})
        got = read_submission(packed, topic)
        assert_missing(got, f"ignored names that lead out of the archive: {name}")
        packed.unlink()
        packed = make_tar(hand_in / f"{number}.tar", [tar_file(name)])
        assert_missing(read_submission(packed, topic), "names that lead out of the archive")
        packed.unlink()
    good = make_zip(hand_in / "good.zip", {"../lstm.py": OTHER, "lstm.py": CODE})
    assert_ready(read_submission(good, topic))
    good.unlink()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_in_a_zip_are_ignored(hand_in: Path, topic: Topic, kind: int) -> None:
    info = zipfile.ZipInfo("lstm.py")
    info.create_system = 3
    info.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(hand_in / "l.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    got = read_submission(hand_in / "l.zip", topic)
    assert_missing(got, "ignored links and what is not a plain file: lstm.py")


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE]
)
def test_links_and_devices_in_a_tar_are_ignored(hand_in: Path, topic: Topic, kind: bytes) -> None:
    member = tar_file("lstm.py", b"", type=kind, linkname="/etc/passwd")
    got = read_submission(make_tar(hand_in / "l.tar", [member]), topic)
    assert_missing(got, "ignored links and what is not a plain file: lstm.py")


def encrypted(packed: bytes) -> bytes:
    """The archive with the bit set that says its only file is encrypted."""
    data = bytearray(packed)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    return bytes(data)


def test_zips_that_cannot_be_opened(hand_in: Path, topic: Topic) -> None:
    whole = make_zip(hand_in / "w.zip", {"lstm.py": EVERY_BYTE[: 2**19]}).read_bytes()
    damaged = bytearray(make_zip(hand_in / "w.zip", {"lstm.py": CODE * 50}).read_bytes())
    damaged[60] ^= 0xFF
    cases = {
        "cut.zip": (whole[: len(whole) // 2], "cut.zip is damaged, cut short"),
        "rar.zip": (b"Rar!\x1a\x07\x00" + EVERY_BYTE, "of another kind"),
        "flip.zip": (bytes(damaged), "flip.zip is damaged"),
        "zero.zip": (b"", "0 bytes"),
        "secret.zip": (encrypted(whole), "protected by a password"),
        "seven.7z": (b"7z\xbc\xaf", "not opened; make it a .zip"),
    }
    for name, (data, words) in cases.items():
        assert_unreadable(read_submission(put(hand_in / name, data), topic), words)
    with zipfile.ZipFile(hand_in / "rare.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("lstm.py", CODE)
    assert_unreadable(read_submission(hand_in / "rare.zip", topic), "rare method")
    empty = make_zip(hand_in / "empty.zip", {})
    assert_missing(read_submission(empty, topic), "empty.zip holds no file")


def test_tars_that_cannot_be_opened(hand_in: Path, topic: Topic) -> None:
    members = [tar_file("lstm.py", EVERY_BYTE[:100_000])]
    plain = make_tar(hand_in / "w.tar", members).read_bytes()
    packed = make_tar(hand_in / "w.tgz", members, "w:gz").read_bytes()
    cases = {
        "cut.tar": plain[:50_000],
        "cut.tgz": packed[: len(packed) // 2],
        "no.tar": b"x" * 2048,
        "no.tgz": b"\x1f\x8b" + b"x" * 2048,
    }
    for name, data in cases.items():
        got = read_submission(put(hand_in / name, data), topic)
        assert_unreadable(got, f"{name} is damaged, cut short or of another kind")


def peak_megabytes(run: Callable[[], Submission]) -> tuple[Submission, float]:
    tracemalloc.start()
    try:
        return run(), tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def test_a_zip_bomb_is_not_unpacked(hand_in: Path, topic: Topic) -> None:
    bomb = hand_in / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("lstm.py", "data.bin"):
            with archive.open(name, "w") as stream:
                for _ in range(200):
                    stream.write(b"\n" * 2**20)
    data = bytearray(bomb.read_bytes())
    assert len(data) < 2**20
    got, peak = peak_megabytes(lambda: read_submission(bomb, topic))
    assert_unreadable(got, "lstm.py is larger than 1 MB")
    assert peak < 16
    # The same, with headers that say that lstm.py holds 100 bytes.
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = struct.pack("<I", 100)
    got, peak = peak_megabytes(lambda: read_submission(put(bomb, bytes(data)), topic))
    assert_unreadable(got, "bomb.zip is damaged")
    assert peak < 16


def test_a_bomb_beside_the_file_does_no_harm(hand_in: Path, topic: Topic) -> None:
    bomb = make_zip(hand_in / "b.zip", {"lstm.py": CODE, "data.bin": b"\0" * (100 * 2**20)})
    got, peak = peak_megabytes(lambda: read_submission(bomb, topic))
    assert_ready(got)
    assert peak < 16


def test_a_tar_bomb_stops_at_64_megabytes(hand_in: Path, topic: Topic) -> None:
    path = hand_in / "bomb.tar.gz"
    member = tarfile.TarInfo("data.bin")
    member.size = 300 * 2**20
    with gzip.open(path, "wb") as stream:
        stream.write(member.tobuf())
        for _ in range(300):
            stream.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    got, peak = peak_megabytes(lambda: read_submission(path, topic))
    assert_unreadable(got, "bomb.tar.gz unpacks to more than 64 MB")
    assert peak < 200


def test_a_packed_archive_past_the_limit_is_not_opened(hand_in: Path, topic: Topic) -> None:
    path = hand_in / "big.zip"
    with path.open("wb") as stream:
        stream.truncate(64 * 2**20 + 1)
    assert_unreadable(read_submission(path, topic), "big.zip is larger than 64 MB")


def test_too_many_entries(hand_in: Path, topic: Topic) -> None:
    names = {f"{number}.txt": "" for number in range(2000)}
    path = make_zip(hand_in / "n.zip", names | {"lstm.py": CODE})
    assert_unreadable(read_submission(path, topic), "n.zip holds more than 2,000 files")
    path = make_tar(hand_in / "n.tar", [tar_file(name, b"") for name in (*names, "lstm.py")])
    assert_unreadable(read_submission(path, topic), "n.tar holds more than 2,000 files")
    litter = {f".git/{number}": "" for number in range(2000)}
    assert_ready(read_submission(make_zip(hand_in / "g.zip", litter | {"lstm.py": CODE}), topic))
    # So many that listing them would fill memory: seen before the directory is read.
    entry = make_zip(hand_in / "one.zip", {"a": ""}).read_bytes()
    entry = entry[entry.index(b"PK\x01\x02") : entry.index(b"PK\x05\x06")]
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(entry) * 10**6, 0, 0)
    path = put(hand_in / "m.zip", entry * 10**6 + end)
    got, peak = peak_megabytes(lambda: read_submission(path, topic))
    assert_unreadable(got, "m.zip holds more than 10,000 files")
    assert peak < 200


def test_a_tar_header_cannot_fill_memory(hand_in: Path, topic: Topic) -> None:
    records = b"".join(b"%d a%06d=1\n" % (13, number) for number in range(200_000))
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, len(records)
    padding = bytes(-len(records) % 512)
    data = header.tobuf() + records + padding
    path = put(
        hand_in / "p.tar", data + make_tar(hand_in / "o.tar", [tar_file("lstm.py")]).read_bytes()
    )
    got, peak = peak_megabytes(lambda: read_submission(path, topic))
    assert_unreadable(got, "p.tar is damaged")
    assert peak < 16


def test_the_last_of_two_files_of_one_name_counts(hand_in: Path, topic: Topic) -> None:
    path = make_tar(hand_in / "t.tar", [tar_file("lstm.py", b"old = 1\n"), tar_file("lstm.py")])
    got = read_submission(path, topic)
    assert_ready(got)
    assert "ignored earlier files of the same name: lstm.py" in got.notes


def test_names_are_made_fit_to_show(hand_in: Path, topic: Topic) -> None:
    tar = make_tar(hand_in / "s.tar", [tar_file("\x1b[31m\udcff\n.txt", b""), tar_file("lstm.py")])
    names = {"a" * 5000: "", **{f"{number}.txt": "" for number in range(99)}, "lstm.py": CODE}
    for path in (tar, make_zip(hand_in / "s.zip", names)):
        got = read_submission(path, topic)
        assert_ready(got)
        for note in got.notes:
            assert note.isprintable()
            assert len(note) < 300
            note.encode()


# Notebooks


def test_code_cells_are_joined_in_order(hand_in: Path, topic: Topic) -> None:
    text = {"cell_type": "markdown", "metadata": {}, "source": "# Title"}
    book = notebook(code("import math"), text, code(["def f():\n", "    return math"]))
    got = read_submission(put(hand_in / "lstm.ipynb", book), topic)
    assert_ready(got, "# cell 1\nimport math\n# cell 2\ndef f():\n    return math\n")
    assert got.notes == ("took lstm.ipynb as lstm.py",)


def test_format_3(hand_in: Path, topic: Topic) -> None:
    cell = {"cell_type": "code", "input": ["x = 1\n", "y = 2"], "language": "python", "outputs": []}
    book = json.dumps({"nbformat": 3, "metadata": {}, "worksheets": [{"cells": [cell]}]})
    got = read_submission(put(hand_in / "lstm.ipynb", book), topic)
    assert_ready(got, "# cell 1\nx = 1\ny = 2\n")


MAGIC = '''\
%matplotlib inline
!pip list
files = !ls
f?
def f(x):
    """Is it
% of what?
right?"""
    %timeit g(x)
    y = (x
         % 3)  # why?
    z = y \\
        % 2
    return "a?", z, 'it\\'s'
f??
a = f(1)  # enough?'''

PLAIN = '''\
# cell 1
# %matplotlib inline
# !pip list
# files = !ls
# f?
def f(x):
    """Is it
% of what?
right?"""
    pass  # %timeit g(x)
    y = (x
         % 3)  # why?
    z = y \\
        % 2
    return "a?", z, 'it\\'s'
# f??
a = f(1)  # enough?
'''


def test_magics_become_comments_and_lines_stay(hand_in: Path, topic: Topic) -> None:
    got = read_submission(put(hand_in / "lstm.ipynb", notebook(code(MAGIC))), topic)
    assert_ready(got, PLAIN)
    names: dict[str, Any] = {}
    exec(got.files["lstm.py"], names)
    assert names["a"] == ("a?", 1, "it's")


@pytest.mark.parametrize("line", ['\\"', " ", "a ", "'\\'", '"""', "("])
def test_a_hostile_cell_is_not_slow(hand_in: Path, topic: Topic, line: str) -> None:
    book = notebook(code(line * (900_000 // len(line)) + "\nx = 1"))
    start = time.process_time()
    assert read_submission(put(hand_in / "lstm.ipynb", book), topic).status == "ready"
    assert time.process_time() - start < 10


def test_cells_under_a_cell_magic(hand_in: Path, pair: Topic) -> None:
    book = notebook(
        code("x = 1"),
        code("%%bash\nls\n"),
        code("\n%%writefile lstm_torch.py\nold = 1"),
        code("%%writefile hw/lstm_torch.py\nnew = 1"),
        code("%%writefile -a 'lstm_torch.py'\nnewer = 2"),
        code("%%writefile other.py\ny = 1"),
    )
    got = read_submission(put(hand_in / "lstm.ipynb", book), pair)
    assert got.status == "ready"
    assert got.files["lstm_torch.py"] == "new = 1\nnewer = 2\n"
    main = got.files["lstm.py"]
    assert main.startswith("# cell 1\nx = 1\n# cell 2\n# %%bash\n# ls\n")
    assert "\ny = 1" not in main
    assert "# y = 1" in main
    assert "left out cells of lstm.ipynb that are not plain Python: 2 (%%bash), 6" in got.notes[0]


def test_a_cell_that_writes_the_main_file_stands_for_it(hand_in: Path, topic: Topic) -> None:
    book = notebook(code("plot()"), code(f"%%writefile lstm.py\n{CODE}"))
    got = read_submission(put(hand_in / "work.ipynb", book), topic)
    assert_ready(got, CODE + "\n")


def test_a_file_wins_over_a_notebook(hand_in: Path, pair: Topic) -> None:
    put(hand_in / "lstm.py")
    put(hand_in / "lstm.ipynb", notebook(code("x = 2")))
    got = read_submission(hand_in, pair)
    assert got.files == {"lstm.py": CODE}
    assert "ignored other files: lstm.ipynb" in got.notes
    (hand_in / "lstm.py").rename(hand_in / "lstm_torch.py")
    put(hand_in / "lstm.ipynb", notebook(code("x = 2"), code("%%writefile lstm_torch.py\ny = 3")))
    got = read_submission(hand_in, pair)
    assert got.files["lstm_torch.py"] == CODE


def test_a_notebook_for_each_file(hand_in: Path, pair: Topic) -> None:
    put(hand_in / "lstm.ipynb", notebook(code("x = 1")))
    put(hand_in / "lstm_torch.ipynb", notebook(code("x = 2")))
    got = read_submission(hand_in, pair)
    assert got.files == {"lstm.py": "# cell 1\nx = 1\n", "lstm_torch.py": "# cell 1\nx = 2\n"}


def test_the_only_notebook_will_do_but_not_two(hand_in: Path, topic: Topic) -> None:
    book = notebook(code("x = 1"))
    assert_ready(
        read_submission(make_zip(hand_in / "b.zip", {"hw/task.ipynb": book}), topic),
        "# cell 1\nx = 1\n",
    )
    two = make_zip(hand_in / "t.zip", {"a.ipynb": book, "b.ipynb": book})
    assert_unreadable(read_submission(two, topic), "a.ipynb and b.ipynb", "lstm.ipynb")


def test_nbgrader_test_cells_are_left_out(hand_in: Path, topic: Topic) -> None:
    cells = (
        code("import math", grade=False, solution=False, locked=True),
        code("x = 1", grade=True, solution=True),
        code("y = 2", grade=False, solution=True),
        code("assert hidden()", grade=True, solution=False),
        code("z = 3"),
    )
    got = read_submission(put(hand_in / "lstm.ipynb", notebook(*cells)), topic)
    assert_ready(
        got,
        "# cell 1\nimport math\n# cell 2\nx = 1\n# cell 3\ny = 2\n# cell 5\n# z = 3\n",
    )
    book = notebook(code("x = 1"), code("y = 2", grade=True, solution=False))
    got = read_submission(put(hand_in / "lstm.ipynb", book), topic)
    assert_ready(got, "# cell 1\nx = 1\n# cell 2\ny = 2\n")


def ours(source: str, file: str = "lstm.py") -> dict[str, Any]:
    return code(source) | {"metadata": {"softmark": {"file": file}}}


TRIALS = """\
import matplotlib.pyplot as plt
from helpers import *

SCALE = 2; unused = f(3)

@wraps(
    plain)
def helper(x):
    return twice(x) * SCALE

cell = Cell(3)
cell.params["W"] = 4
print(helper(cell))
Cell.forward = helper
try:
    import fast
except ImportError:
    fast = None
raise KeyError
"""


def test_of_a_students_own_cells_what_the_others_use_counts(hand_in: Path, topic: Topic) -> None:
    book = notebook(
        ours("import math"),
        code("def twice(x):\n    return 2 * x\ntwice(1) / 0"),
        code(TRIALS),
        ours("class Cell:\n    pass\ndef f(cell, unused):\n    return helper(cell)"),
        code("await nothing\n1 +"),
        ours("def g(plt):\n    return fast or f(plt, 1)\ng(2)"),
    )
    got = read_submission(put(hand_in / "lstm.ipynb", book), topic)
    own = """\
# cell 2
def twice(x):
    return 2 * x
# twice(1) / 0
# cell 3
# import matplotlib.pyplot as plt
# from helpers import *

SCALE = 2; unused = f(3)

@wraps(
    plain)
def helper(x):
    return twice(x) * SCALE

# cell = Cell(3)
# cell.params["W"] = 4
# print(helper(cell))
Cell.forward = helper
try:
    import fast
except ImportError:
    fast = None
# raise KeyError

# cell 4
"""
    text = got.files["lstm.py"]
    assert text[text.index("# cell 2") :].startswith(own)
    assert "# await nothing\n# 1 +\n" in text
    assert text.endswith("g(2)\n"), "cells that are marked count whole"
    assert got.notes[0] == (
        "left out of lstm.ipynb what is in cells of your own that no other cell needs: 2, 3, 5"
    )


def test_own_cells_count_whole_where_nothing_is_marked(hand_in: Path, topic: Topic) -> None:
    got = read_submission(put(hand_in / "lstm.ipynb", notebook(code("x = 1\nprint(x)"))), topic)
    assert_ready(got, "# cell 1\nx = 1\nprint(x)\n")


@pytest.mark.parametrize(
    "cell", ["a = 1\n", "a=1;", "def f():\n  x\n", "(" * 90, "-" * 1000 + "1\n"]
)
def test_hostile_own_cells_are_not_slow(hand_in: Path, topic: Topic, cell: str) -> None:
    book = notebook(ours("def f():\n    return a"), code(cell * (400_000 // len(cell))))
    start = time.process_time()
    assert read_submission(put(hand_in / "lstm.ipynb", book), topic).status == "ready"
    assert time.process_time() - start < 10


def test_a_marked_cell_needs_no_first_line(hand_in: Path, pair: Topic) -> None:
    book = notebook(
        ours("x = 1"),
        ours("import torch\n%time\ny = 2", "lstm_torch.py"),
        code("%%writefile elsewhere.py\nz = 3"),
    )
    got = read_submission(put(hand_in / "lstm.ipynb", book), pair)
    assert got.files["lstm_torch.py"] == "import torch\n# %time\ny = 2\n"
    assert "\nimport torch" not in got.files["lstm.py"]


def test_an_emptied_cell_costs_its_own_file_alone(hand_in: Path, pair: Topic) -> None:
    book = notebook(code("x = 1"), code("%%writefile lstm_torch.py\n"))
    got = read_submission(put(hand_in / "lstm.ipynb", book), pair)
    assert got.status == "ready"
    assert set(got.files) == {"lstm.py"}
    assert any(note.startswith("left out lstm_torch.py: ") for note in got.notes)


def test_what_is_written_counts_where_file_and_notebook_are_handed_in(
    hand_in: Path, pair: Topic
) -> None:
    """As in a copy of the starter, which has both."""
    todo = "def f():\n    raise NotImplementedError('f')\n"
    done = "def f():\n    return 1\n"
    put(hand_in / "lstm.py", todo)
    put(hand_in / "lstm_torch.py", todo)
    twin = code(f"%%writefile lstm_torch.py\n{done}")
    put(hand_in / "lstm.ipynb", notebook(code(done), twin))
    got = read_submission(hand_in, pair)
    assert got.files == {
        "lstm.py": f"# cell 1\n{done}\n# cell 2\n# %%writefile lstm_torch.py\n"
        + "".join(f"# {line}\n" for line in [*done.split("\n")[:-1], ""]),
        "lstm_torch.py": f"{done}\n",
    }
    assert "took lstm.ipynb as lstm.py: more of it is written there" in got.notes
    assert not any("ignored" in note for note in got.notes)

    put(hand_in / "lstm.py", done)
    put(hand_in / "lstm_torch.py", done)
    put(hand_in / "lstm.ipynb", notebook(code(todo)))
    got = read_submission(hand_in, pair)
    assert got.files == {"lstm.py": done, "lstm_torch.py": done}
    assert "ignored other files: lstm.ipynb" in got.notes


@pytest.mark.parametrize(
    ("book", "words"),
    [
        ("", "it is empty"),
        ('{"cells": [', "is not a notebook (JSONDecodeError"),
        ("[" * 100_000, "is not a notebook (RecursionError"),
        ("[]", "is not a notebook"),
        ("{}", "is not a notebook"),
        ('{"cells": [3]}', "is not a notebook"),
        ('{"cells": [{"cell_type": "code"}]}', "is not a notebook"),
        ('{"cells": [{"cell_type": "code", "source": 3}]}', "is not a notebook"),
        ('{"cells": [{"cell_type": "code", "source": "", "metadata": 3}]}', "is not a notebook"),
        (b"\xff\xfe{}", "is not a notebook (UnicodeDecodeError"),
        (notebook(code("x = '\ud800'")), "half of a surrogate pair on line 2"),
        (notebook(code("x = '\0'")), "NUL byte on line 2"),
        (notebook(code("x = 1\n" * 200_000)), "larger than 1 MB"),
        (b" " * (8 * 2**20 + 1), "larger than 8 MB"),
    ],
)
def test_notebooks_that_are_none(
    hand_in: Path, topic: Topic, book: str | bytes, words: str
) -> None:
    assert_unreadable(read_submission(put(hand_in / "lstm.ipynb", book), topic), words)


def test_a_notebook_without_code_is_missing(hand_in: Path, topic: Topic) -> None:
    for book in (notebook(), notebook(code("  "))):
        got = read_submission(put(hand_in / "lstm.ipynb", book), topic)
        assert_missing(got, "lstm.ipynb (lstm.py) is empty")


# Finding submissions


def found(path: Path, topic: Topic) -> dict[str, str]:
    pairs = find_submissions(path, topic)
    assert [id for id, _ in pairs] == sorted(id for id, _ in pairs)
    return {id: entry.name for id, entry in pairs}


def test_one_file_and_one_folder(hand_in: Path, topic: Topic) -> None:
    alone = put(hand_in / "right loop.py")
    assert find_submissions(alone, topic) == [("right_loop", alone.resolve())]
    put(hand_in / "mine" / "Lstm.py")
    put(hand_in / "mine" / "other.py")
    mine = hand_in / "mine"
    assert find_submissions(mine, topic) == [("mine", mine.resolve())]
    assert find_submissions(mine / ".." / "mine", topic) == [("mine", mine.resolve())]


def test_each_entry_of_a_folder(hand_in: Path, topic: Topic) -> None:
    put(hand_in / "b_folder" / "lstm.py")
    (hand_in / "a_empty").mkdir()
    put(hand_in / "Single.py")
    put(hand_in / "book.v2.ipynb")
    make_zip(hand_in / "packed.zip", {})
    put(hand_in / "tarred.tar.gz")
    put(hand_in / "odd.rar")
    for name in ("grades.csv", "essay.pdf", ".hidden.py", "._x.py", ".git/lstm.py"):
        put(hand_in / name)
    for folder in ("__MACOSX", "__pycache__"):
        (hand_in / folder).mkdir()
    assert found(hand_in, topic) == {
        "Single": "Single.py",
        "a_empty": "a_empty",
        "b_folder": "b_folder",
        "book.v2": "book.v2.ipynb",
        "odd.rar": "odd.rar",
        "packed": "packed.zip",
        "tarred": "tarred.tar.gz",
    }


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("Zoë O'Neil, 7", "Zoe_O_Neil__7"),
        ("--rm -rf", "rm_-rf"),
        ("李 1", "u674e_1"),
        ("x" * 200, "x" * 80),
        ("+", "_"),
        ("-", "submission"),
    ],
)
def test_ids_are_safe(hand_in: Path, topic: Topic, name: str, id: str) -> None:
    put(hand_in / name / "lstm.py")
    assert found(hand_in, topic) == {id: name}
    assert read_submission(hand_in / name, topic).id == id


@pytest.mark.parametrize("names", [("a.py", "a.zip"), ("a b.py", "a_b.py"), ("One.py", "one.py")])
def test_ids_that_collide(hand_in: Path, topic: Topic, names: tuple[str, str]) -> None:
    for name in names:
        put(hand_in / name)
    with pytest.raises(IntakeError) as caught:
        find_submissions(hand_in, topic)
    for name in names:
        assert name in str(caught.value)


def test_paths_with_nothing_to_grade(hand_in: Path, topic: Topic) -> None:
    with pytest.raises(IntakeError, match=r"none: cannot be read: no such file"):
        find_submissions(hand_in / "none", topic)
    with pytest.raises(IntakeError, match=r"in: nothing to grade"):
        find_submissions(hand_in, topic)
    table = put(hand_in / "grades.csv")
    with pytest.raises(IntakeError, match=r"in: nothing to grade"):
        find_submissions(hand_in, topic)
    with pytest.raises(IntakeError, match=r"grades\.csv: not a submission"):
        find_submissions(table, topic)


def test_a_linked_entry_is_found_but_not_followed(hand_in: Path, topic: Topic) -> None:
    secret = put(hand_in.parent / "secret" / "lstm.py", "SECRET = 1\n")
    (hand_in / "sly.py").symlink_to(secret)
    (hand_in / "sly_too").symlink_to(secret.parent)
    for id, path in find_submissions(hand_in, topic):
        assert_unreadable(read_submission(path, topic, id), "link that leads elsewhere")
    # Who names the link means what it leads to.
    ((id, path),) = find_submissions(hand_in / "sly_too", topic)
    assert read_submission(path, topic, id).files == {"lstm.py": "SECRET = 1\n"}


def test_canvas_names_and_attempts(hand_in: Path, topic: Topic) -> None:
    for name in (
        "loopright_111_5001_lstm.py",
        "stepwrong_LATE_112_5002_lstm.py",
        "twicetried_113_5003_lstm.py",
        "twicetried_113_5009_lstm-1.py",
        "twicetried_LATE_113_5010_lstm-2.py",
        "helperbeside_114_5004_lstm.py",
        "helperbeside_114_5005_utils.py",
        "helperbeside_114_5006_lstm.ipynb",
        "zippedlater_115_5007_lstm.py",
        "zippedlater_115_5008_hw.zip",
        "reportonly_116_5011_report.pdf",
        "samenumber_117_5012_lstm.py",
        "samenumber_117_5012_lstm-10.py",
        "samenumber_117_5012_lstm-9.py",
    ):
        put(hand_in / name)
    assert found(hand_in, topic) == {
        "helperbeside_114": "helperbeside_114_5004_lstm.py",
        "loopright_111": "loopright_111_5001_lstm.py",
        "samenumber_117": "samenumber_117_5012_lstm-10.py",
        "stepwrong_112": "stepwrong_LATE_112_5002_lstm.py",
        "twicetried_113": "twicetried_LATE_113_5010_lstm-2.py",
        "zippedlater_115": "zippedlater_115_5008_hw.zip",
    }
    ready = read_submission(hand_in / "twicetried_LATE_113_5010_lstm-2.py", topic)
    assert_ready(ready)
    assert ready.id == "twicetried_113"


def test_moodle_folders(hand_in: Path, topic: Topic) -> None:
    for name in ("Loop Right_201_assignsubmission_file_", "Step Wrong_202_assignsubmission_file"):
        put(hand_in / name / "lstm.py")
    put(hand_in / "Loop Right_201_assignsubmission_onlinetext_" / "onlinetext.html")
    put(hand_in / "Flat File_203_assignsubmission_file_lstm.py")
    assert list(found(hand_in, topic)) == ["Flat_File_203", "Loop_Right_201", "Step_Wrong_202"]
    for id, path in find_submissions(hand_in, topic):
        assert_ready(read_submission(path, topic, id))


def test_a_tar_with_endless_numbers_in_its_headers_is_not_slow(hand_in: Path, topic: Topic) -> None:
    """tarfile looks for a number at every digit of a header, up to its end."""
    path = hand_in / "lstm.tar"
    with path.open("wb") as stream:
        for _ in range(20):
            body = b"1" * 7_000 + b"\n"
            header = tarfile.TarInfo("pax")
            header.type, header.size = tarfile.XHDTYPE, len(body)
            stream.write(header.tobuf() + body + bytes(-len(body) % 512))
    started = time.process_time()
    assert read_submission(path, topic).status == "unreadable"
    assert time.process_time() - started < 5
