"""What a student meant by a name, and whose a file is that an LMS filed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from softmark.course import Topic, load_topic
from softmark.intake import IntakeError, Submission, find_submissions, read_submission
from softmark.spelling import alike, nearest
from test_intake import CODE, OTHER, code, make_tar, make_topic, make_zip, notebook, put, tar_file

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return make_topic(tmp_path / "topics" / "pair", "lstm.py", "lstm_torch.py")


@pytest.fixture(scope="module")
def asks() -> Topic:
    """A topic with questions."""
    return load_topic(ROOT / "assignments" / "02_lstm")


@pytest.fixture
def hand_in(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def read_all(folder: Path, topic: Topic) -> dict[str, Submission]:
    return {id: read_submission(path, topic, id) for id, path in find_submissions(folder, topic)}


# Names that were meant as others


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("LSTM_forward", "lstm_forward"),
        ("forward_lstm", "lstm_forward"),
        ("lstmForward", "lstm_forward"),
        ("foward", "forward"),
        ("lstm_backwards", "lstm_backward"),
        ("Lstm_Cell", "LSTMCell"),
        ("gradients", "grads"),
        ("_params", "params"),
        ("lsmt", "lstm"),
    ],
)
def test_a_slip_is_seen(name: str, wanted: str) -> None:
    assert alike(name, wanted)
    assert nearest(wanted, ["other", name]) == name


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("lstm_forward", "lstm_backward"),
        ("dot_product_attention_forward", "dot_product_attention_backward"),
        ("EncoderBlock", "DecoderBlock"),
        ("lstm_forward", "lstm_forward_torch"),
        ("GRUCell", "ResetAfterGRUCell"),
        ("dh_prev", "dc_prev"),
        ("len", "ln"),
        ("params", "grads"),
        ("l" * 10**6, "lstm"),
    ],
)
def test_another_thing_is_no_slip(name: str, wanted: str) -> None:
    assert not alike(name, wanted)
    assert nearest(wanted, ["other", name]) is None


@pytest.mark.parametrize(
    "name",
    ["lsmt.py", "LSTMS.py", "lstm.py.txt", "homework.py", "lstm - Copy.py", "Copy of lstm.py"],
)
def test_the_one_file_that_can_be_meant_is_taken(hand_in: Path, topic: Topic, name: str) -> None:
    packed = {f"hw/{name}": CODE, "hw/test_lstm.py": OTHER, "hw/lstm_torch.py": OTHER}
    got = read_submission(make_zip(hand_in / "hw.zip", packed), topic)
    assert (got.status, got.files) == ("ready", {"lstm.py": CODE, "lstm_torch.py": OTHER})
    assert got.notes[0] == f"took hw.zip/hw/{name} as lstm.py"


def test_of_two_that_can_be_meant_none_is_guessed(hand_in: Path, topic: Topic) -> None:
    put(hand_in / "lsmt.py")
    put(hand_in / "ltsm.py", OTHER)
    got = read_submission(hand_in, topic)
    assert (got.status, got.files) == ("unreadable", {})
    assert "Both lsmt.py and ltsm.py could be lstm.py" in got.message
    (hand_in / "lsmt.py").rename(hand_in / "one.py")
    (hand_in / "ltsm.py").rename(hand_in / "two.py")
    got = read_submission(hand_in, topic)
    assert got.status == "missing"
    assert "holds only one.py, two.py" in got.message


def test_a_misspelt_second_file_is_taken_for_the_second(hand_in: Path, topic: Topic) -> None:
    put(hand_in / "lstm_toch.py", OTHER)
    assert read_submission(hand_in, topic).status == "missing"
    assert read_submission(hand_in / "lstm_toch.py", topic).status == "missing"
    put(hand_in / "lstm.py")
    got = read_submission(hand_in, topic)
    assert got.files == {"lstm.py": CODE, "lstm_torch.py": OTHER}
    assert "took lstm_toch.py as lstm_torch.py" in got.notes


def test_a_helper_is_not_taken_for_what_lies_in_the_archive(hand_in: Path, topic: Topic) -> None:
    put(hand_in / "helper.py", OTHER)
    make_zip(hand_in / "upload.zip", {"lstm.py": CODE})
    assert read_submission(hand_in, topic).files == {"lstm.py": CODE}


def test_a_file_with_an_added_suffix_is_a_submission(hand_in: Path, topic: Topic) -> None:
    put(hand_in / "right.py.txt")
    put(hand_in / "readme.txt")
    got = read_all(hand_in, topic)
    assert {id: one.files for id, one in got.items()} == {"right": {"lstm.py": CODE}}


# Uploads of one student


def test_files_of_one_student_in_canvas_belong_together(hand_in: Path, asks: Topic) -> None:
    for name in ("all_11_501_lstm.py", "late_LATE_12_601_lstm-1.py", "alone_13_701_lstm.py"):
        put(hand_in / name)
    put(hand_in / "all_11_502_answers.yaml", "q: a\n")
    put(hand_in / "all_11_503_lstm_torch.py", OTHER)
    put(hand_in / "all_11_504_report.pdf", b"%PDF")
    put(hand_in / "late_12_590_lstm.py", "old = 1\n")
    put(hand_in / "late_12_591_answers.yaml", "q: old\n")
    put(hand_in / "late_LATE_12_602_answers-1.yaml", "q: new\n")
    got = read_all(hand_in, asks)
    assert set(got) == {"all_11", "late_12", "alone_13"}
    assert got["all_11"].files == {
        "lstm.py": CODE,
        "lstm_torch.py": OTHER,
        "answers.yaml": "q: a\n",
    }
    assert got["all_11"].notes == ("ignored other files: report.pdf",)
    assert got["late_12"].files == {"lstm.py": CODE, "answers.yaml": "q: new\n"}
    assert (
        "ignored earlier uploads: late_12_590_lstm.py, late_12_591_answers.yaml"
        in got["late_12"].notes
    )
    assert got["alone_13"].files == {"lstm.py": CODE}
    # who names an earlier file means it
    early = read_submission(hand_in / "late_12_590_lstm.py", asks)
    assert early.files == {"lstm.py": "old = 1\n"}


def test_files_of_one_student_in_moodle_belong_together(hand_in: Path, topic: Topic) -> None:
    put(hand_in / "Two Files_21_assignsubmission_file_lstm.py")
    put(hand_in / "Two Files_21_assignsubmission_file_lstm_torch.py", OTHER)
    put(hand_in / "Two Files_21_assignsubmission_onlinetext_x.py", "no = 1\n")
    put(hand_in / "One File_22_assignsubmission_file_lsmt.py", OTHER)
    got = read_all(hand_in, topic)
    assert {id: dict(one.files) for id, one in got.items()} == {
        "One_File_22": {"lstm.py": OTHER},
        "Two_Files_21": {"lstm.py": CODE, "lstm_torch.py": OTHER},
    }


def test_the_later_of_an_archive_and_a_file_counts(hand_in: Path, asks: Topic) -> None:
    put(hand_in / "zipped_31_5_lstm.py", OTHER)
    put(hand_in / "zipped_31_6_answers.yaml", "q: a\n")
    make_zip(hand_in / "zipped_31_7_hw.zip", {"lstm.py": CODE})
    make_zip(hand_in / "loose_32_5_hw.zip", {"lstm.py": OTHER})
    put(hand_in / "loose_32_6_lstm.py")
    got = read_all(hand_in, asks)
    assert got["zipped_31"].files == {"lstm.py": CODE, "answers.yaml": "q: a\n"}
    assert got["loose_32"].files == {"lstm.py": CODE}


def test_a_link_beside_an_upload_is_not_followed(hand_in: Path, topic: Topic) -> None:
    secret = put(hand_in.parent / "secret.py", "SECRET = 1\n")
    put(hand_in / "sly_41_5_lstm.py")
    (hand_in / "sly_41_6_lstm_torch.py").symlink_to(secret)
    got = read_all(hand_in, topic)["sly_41"]
    assert got.files == {"lstm.py": CODE}
    assert "missing: lstm_torch.py" in got.notes
    assert not any("left out" in note for note in got.notes)


def test_two_of_one_students_files_do_not_stop_the_class(hand_in: Path, topic: Topic) -> None:
    put(hand_in / "Two Drafts_51_assignsubmission_file_lstm_a.py")
    put(hand_in / "Two Drafts_51_assignsubmission_file_lstm_b.py")
    put(hand_in / "Right One_52_assignsubmission_file_lstm.py")
    got = read_all(hand_in, topic)
    assert got["Right_One_52"].status == "ready"
    assert "Both lstm_a.py and lstm_b.py could be lstm.py" in got["Two_Drafts_51"].message


# The archive of a whole class

CLASSES = {
    "canvas": ("ann_1_2_lstm.py", "bob_3_4_lstm.py"),
    "canvas with archives": ("ann_1_2_hw.zip", "bob_LATE_3_4_hw.tar.gz"),
    "in a folder": ("submissions/ann_1_2_lstm.py", "submissions/bob_3_4_work.ipynb"),
    "moodle": (
        "A A_1_assignsubmission_file_/lstm.py",
        "B B_2_assignsubmission_file_/hw/code.py",
    ),
    "folders": ("week 2/one/lstm.py", "week 2/two/lstm.py", "week 2/grades.csv"),
    "archives": ("one.zip", "two.zip", "grades.csv"),
}


@pytest.mark.parametrize("names", CLASSES.values(), ids=CLASSES)
def test_the_archive_of_a_class_is_refused(
    hand_in: Path, topic: Topic, names: tuple[str, ...]
) -> None:
    packed = [
        make_zip(hand_in / "class.zip", dict.fromkeys(names, CODE)),
        make_tar(hand_in / "class.tar", [tar_file(name) for name in names]),
    ]
    for path in packed:
        with pytest.raises(
            IntakeError, match=r"several submissions.*unpack it and give the folder"
        ):
            find_submissions(path, topic)


STUDENTS = {
    "an old version": ("lstm.py", "old/lstm.py", "older/lstm.py"),
    "in a folder": ("hw/lstm.py", "hw/lstm_torch.py", "hw/old/lstm.py"),
    "a notebook elsewhere": ("src/lstm.py", "notebooks/lstm.ipynb", "data.zip"),
    "one student's uploads": ("ann_1_2_lstm.py", "ann_1_3_lstm_torch.py"),
    "numbered files": ("lstm.py", "run_1_2_a.py", "walk_1_2_a.py"),
    "numbered plots": ("hw/lstm.py", "hw/loss_1_2_a.png", "hw/error_1_2_a.png"),
    "no code": ("readme.txt",),
}


@pytest.mark.parametrize("names", STUDENTS.values(), ids=STUDENTS)
def test_the_archive_of_one_student_is_not(
    hand_in: Path, topic: Topic, names: tuple[str, ...]
) -> None:
    path = make_zip(hand_in / "mine.zip", dict.fromkeys(names, CODE))
    assert find_submissions(path, topic) == [("mine", path)]


def test_a_folder_that_holds_only_the_archive_of_a_class(hand_in: Path, topic: Topic) -> None:
    make_zip(hand_in / "class.zip", dict.fromkeys(CLASSES["canvas"], CODE))
    with pytest.raises(IntakeError, match="several submissions"):
        find_submissions(hand_in, topic)
    make_zip(hand_in / "other.zip", {"lstm.py": CODE})
    assert [id for id, _ in find_submissions(hand_in, topic)] == ["class", "other"]


def test_an_archive_too_large_for_one_submission(hand_in: Path, topic: Topic) -> None:
    with (hand_in / "class.zip").open("wb") as stream:
        stream.truncate(64 * 2**20 + 1)
    with pytest.raises(IntakeError, match="larger than 64 MB"):
        find_submissions(hand_in / "class.zip", topic)


# Notebooks of any version


@pytest.mark.parametrize("version", [(4, n) for n in range(6)] + [(4, 99), (5, 0)])
def test_notebooks_of_any_version(hand_in: Path, topic: Topic, version: tuple[int, int]) -> None:
    book = notebook(code(CODE)).replace('"nbformat": 4', f'"nbformat": {version[0]}')
    book = book.replace('"nbformat_minor": 5', f'"nbformat_minor": {version[1]}')
    got = read_submission(put(hand_in / "lstm.ipynb", book), topic)
    assert got.files == {"lstm.py": f"# cell 1\n{CODE}\n"}


def test_a_notebook_past_the_limits(hand_in: Path, topic: Topic) -> None:
    many = notebook(*[code("%%bash")] * 5_001)
    got = read_submission(put(hand_in / "lstm.ipynb", many), topic)
    assert "more than 5,000 cells" in got.message
    got = read_submission(put(hand_in / "lstm.ipynb", b" " * (8 * 2**20 + 1)), topic)
    assert "larger than 8 MB; clear its outputs" in got.message
    some = notebook(code("x = 1"), *[code("%%bash")] * 4_000)
    got = read_submission(put(hand_in / "lstm.ipynb", some), topic)
    assert got.status == "ready"
    assert max(len(note) for note in got.notes) < 300


# Names in archives


def test_names_in_other_encodings(hand_in: Path, topic: Topic) -> None:
    plain = make_zip(hand_in / "a.zip", {"XYZ/lstm.py": CODE}).read_bytes()
    for raw, name in ((b"\xc3\xa4b", "äb"), (b"\x84bc", "äbc"), (b"\x84\xff\x00", "XYZ")):
        data = plain.replace(b"XYZ", raw.ljust(3, b"_") if name != "XYZ" else raw)
        got = read_submission(put(hand_in / "b.zip", data), topic)
        if name == "XYZ":  # ends at the NUL byte
            assert got.status == "missing"
        else:
            assert got.notes[0] == f"took lstm.py from b.zip/{name}/"
            assert got.files["lstm.py"] == CODE
    flagged = bytearray(plain.replace(b"XYZ", b"\xff\xfe_"))
    for signature, offset in ((b"PK\x03\x04", 7), (b"PK\x01\x02", 9)):
        flagged[flagged.index(signature) + offset] |= 8  # says that it is UTF-8
    got = read_submission(put(hand_in / "c.zip", bytes(flagged)), topic)
    assert got.status == "unreadable"
    assert "c.zip is damaged" in got.message


def test_endless_names_are_passed_over(hand_in: Path, topic: Topic) -> None:
    names = {"a/" * 20_000 + "x.py": OTHER, "lstm.py": CODE}
    got = read_submission(make_zip(hand_in / "long.zip", names), topic)
    assert got.files == {"lstm.py": CODE}
    assert "ignored names that are too long: a/a/a/" in " ".join(got.notes)


def test_litter_of_every_system(hand_in: Path, topic: Topic) -> None:
    litter = ("Desktop.ini", "Thumbs.db", "$RECYCLE.BIN/lstm.py", "__MACOSX/._lstm.py")
    names = ("env/lib/python3.12/site-packages/lstm.py", "hw/__pycache__/lstm.py", *litter)
    packed = dict.fromkeys(names, OTHER) | {"hw/lstm.py": CODE}
    got = read_submission(make_zip(hand_in / "l.zip", packed), topic)
    assert got.files == {"lstm.py": CODE}
    assert got.notes == ("took lstm.py from l.zip/hw/", "missing: lstm_torch.py")


# A class through the command


def broken() -> dict[str, bytes | str | dict[str, bytes | str]]:
    """Thirty uploads by the names of their files; a dict is what an archive or a folder holds."""
    right = (ROOT / "solutions" / "02_lstm" / "lstm.py").read_bytes()
    return {
        "empty.py": "",
        "null.py": right + b"\0",
        "utf16.py": right.decode().encode("utf-16"),
        "latin.py": b"# \xe9\n" + right,
        "unknown_coding.py": "# coding: no-such\n",
        "large.py": b"#" * (2**20 + 1),
        "nested.py": "x = " + "(" * 5_000,
        "minus.py": "x = " + "-" * 500_000 + "1",
        "sum.py": "x = " + "1+" * 400_000 + "1",
        "mixed_tabs.py": right + b"\nif 1:\n\tx = 1\n        y = 2\n",
        "open_string.py": "x = '''",
        "many_names.py": "\n".join(f"v{number} = 1" for number in range(80_000)),
        "json.ipynb": "{",
        "deep.ipynb": "[" * 100_000,
        "no_cells.ipynb": "{}",
        "number_for_source.ipynb": notebook(code(CODE)).replace(json.dumps(CODE), "3"),
        "nothing.zip": b"",
        "noise.zip": b"PK\3\4" + bytes(range(256)) * 20,
        "gzipped.tgz": b"\x1f\x8b" + bytes(range(256)) * 20,
        "static.tar": bytes(range(256)) * 20,
        "closed.rar": b"Rar!",
        "out.zip": {"../lstm.py": right},
        "rooted.zip": {"/lstm.py": right},
        "twice.zip": {"a/lstm.py": right, "b/lstm.py": right},
        "inner.zip": {"a.zip": b"PK"},
        "bomb.zip": {"lstm.py": b"\n" * 100_000_000},
        "many.zip": {f"{number}.txt": "" for number in range(2_001)},
        "bare": {},
        "drafts": {"lstm_a.py": right, "lstm_b.py": right},
        "others": {"report.pdf": b"%PDF", "helper.py": "x = 1\n", "tools.py": "x = 1\n"},
    }


@pytest.mark.skipif(sys.platform != "linux", reason="hidden grading needs Linux")
def test_broken_submissions_do_not_stop_a_class(tmp_path: Path) -> None:
    folder, out = tmp_path / "class", tmp_path / "out"
    uploads = broken()
    assert len(uploads) == 30
    for name, content in uploads.items():
        path = folder / name
        if not isinstance(content, dict):
            put(path, content)
        elif path.suffix == ".zip":
            make_zip(path, content)
        else:
            path.mkdir()
            for inner, text in content.items():
                put(path / inner, text)
    right = put(folder / "a_right.py", (ROOT / "solutions/02_lstm/lstm.py").read_bytes())
    shutil.copy(right, folder / "z_right.py")
    grade = [sys.executable, "-m", "softmark", "grade", str(folder), "--topic", "02_lstm"]
    done = subprocess.run(
        [*grade, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(path.read_text()) for path in (out / "results").iterdir()]
    assert len(results) == 32
    for result in results:
        if result["student"].endswith("_right"):
            assert (result["status"], result["score"]) == ("graded", 105)
        else:
            assert result["status"] in ("missing", "unreadable", "import_error", "rejected"), result
            assert result["score"] == 0
            assert result["message"]


@pytest.mark.skipif(sys.platform != "linux", reason="hidden grading needs Linux")
def test_a_misnamed_function_loses_its_own_items(tmp_path: Path) -> None:
    """And those that build on it; the message names the likely one, and a misnamed file is taken."""
    right = (ROOT / "solutions" / "02_lstm" / "lstm.py").read_text()
    put(tmp_path / "class" / "one" / "lsmt.py", right.replace("lstm_backward", "LSTM_backwards"))
    grade = [sys.executable, "-m", "softmark", "grade", str(tmp_path / "class")]
    done = subprocess.run(
        [*grade, "--topic", "02_lstm", "--out", str(tmp_path / "out")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out" / "results" / "one.json").read_text())
    assert result["notes"][0] == "took lsmt.py as lstm.py"
    items = {item["id"]: item for item in result["items"] if item["tier"] == "core"}
    lost = {id for id, item in items.items() if item["status"] == "failed"}
    kept = {"sigmoid", "cell", "step"}
    assert lost and not {id for id in lost if id.split(".")[0] in kept}
    assert {items[id]["status"] for id in items if id.startswith("sequence.forward")} == {"passed"}
    said = "lstm_backward is not defined; is your `LSTM_backwards` meant to be it? Rename it."
    assert items["sequence.backward.dx"]["message"].startswith(said)
