"""``softmark check``: what a student sees, from the untouched stub to the finished file."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from softmark.check import command_line, python_name
from softmark.cli import app
from softmark.course import load_topic
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "02_lstm"
REFERENCE = (ROOT / "solutions" / TOPIC / "lstm.py").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def next(self) -> str:
        """What comes after the summary."""
        return self.out.partition("Next:")[2]


def run(folder: Path, *command: str, typed: str = "", **variables: str) -> Done:
    """Python as a student starts it."""
    # a .pyc is known by the second and the size of its source: too little for files made by tests
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={"PYTHONIOENCODING": "utf-8", **environment},
        input=typed,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


CHECK = ("-m", "softmark", "check")
Softmark = Callable[..., Done]


@pytest.fixture
def softmark(monkeypatch: pytest.MonkeyPatch) -> Softmark:
    """The command in this process, which forgets the student's modules afterwards."""

    def invoke(folder: Path, *words: str) -> Done:
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(sys, "path", [*sys.path])
            patch.setattr(sys, "dont_write_bytecode", True)
            result = CliRunner().invoke(app, words)
        for name, module in [*sys.modules.items()]:
            if str(getattr(module, "__file__", "")).startswith(str(folder)):
                del sys.modules[name]
        assert isinstance(result.exception, SystemExit | None), result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    return invoke


# ---- the LSTM's starter, as a student has it -----------------------------------------------------


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A student's copy of the starter."""
    shutil.copytree(ROOT / "starter" / TOPIC, tmp_path / TOPIC)
    return tmp_path / TOPIC


def test_the_stub_is_told_what_comes_first(work: Path) -> None:
    done = run(work, *CHECK)
    assert done.code == 1
    assert "sigmoid is still to be written" in done.next
    assert "-m pytest test_public.py::" in done.next
    assert " fail" not in done.out
    assert "Traceback" not in done.out + done.err


def test_the_finished_file_passes_from_the_folder_above(work: Path) -> None:
    (work / "lstm.py").write_text(REFERENCE, encoding="utf-8")
    done = run(work.parent, *CHECK, TOPIC)
    assert done.code == 0, done.out
    assert "All done" in done.out


@pytest.mark.slow
def test_plain_pytest_says_the_same(work: Path) -> None:
    assert REFERENCE.count("dc * f\n") == 1
    (work / "lstm.py").write_text(REFERENCE.replace("dc * f\n", "-dc * f\n"), encoding="utf-8")
    done = run(work, *CHECK)
    assert done.code == 1
    message = done.next.strip().splitlines()[1].strip()
    assert message.startswith("dc_prev is wrong")
    plain = run(work, "-m", "pytest", "-x", "test_public.py", "-p", "no:cacheprovider")
    assert plain.code == 1
    assert message in plain.out


def test_plain_pytest_passes_without_the_file_in_pytorch(work: Path) -> None:
    (work / "lstm.py").write_text(REFERENCE, encoding="utf-8")
    for name in load_topic(work).files[1:]:
        (work / name).unlink()
    done = run(work, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.code == 0, done.out


# ---- a small topic -----------------------------------------------------------------------------

ASSIGNMENT = """
title: Small
hours: 1
files: [small.py, small_torch.py]
rubric:
  half: {title: Half, points: 2}
calls:
  half: {h: array}
  third: {t: array}
  quarter: {q: array}
policy: {forbid: {torch: "NumPy is enough here"}}
twin:
  file: small_torch.py
  calls: {half_torch: {h: array}}
  forbid: {torch.nn: "two tensors are enough here"}
"""
QUESTIONS = """
questions:
  how_many: {title: How many, ask: "How many?", points: 1, number: {within: 0.01}}
  which_one: {title: Which one, ask: "Which one?", points: 1, choices: {a: This, b: That}}
"""
TESTS = '''
import sys
from pathlib import Path

import numpy as np
import pytest
from softmark.compare import check_close

sys.path.insert(0, str(Path(__file__).parent))

import small


@pytest.mark.parametrize("n", [2, 4], ids=["of two", "of four"])
def test_half(n):
    """Half is half."""
    check_close(small.half(np.array([float(n)])), np.array([n / 2]), "h")


def test_extension_third():
    """A third is one of three."""
    check_close(small.third(np.array([3.0])), np.array([1.0]), "t")


def test_quarter():
    """A quarter is half of a half."""
    check_close(small.quarter(np.array([8.0, 4.0])), np.array([2.0, 1.0]), "q")


def test_nothing():
    """Extension: nothing is needed for this one."""
    assert small.third, "third is there"
'''
TWIN_TESTS = """
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import small_torch


def test_half_torch():
    \"\"\"Half is half, in PyTorch too.\"\"\"
    assert small_torch.half_torch(4.0) == 2.0, "half of four is wrong"
"""
RIGHT = """\
def half(x):
    return x / 2


def third(x):
    return x / 3


def quarter(x):
    return x / 4
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder with a solved topic that has an extension, a twin and two questions."""
    folder = tmp_path / "a course" / "small"
    folder.mkdir(parents=True)
    files = {
        "assignment.yaml": ASSIGNMENT,
        "questions.yaml": QUESTIONS,
        "test_public.py": TESTS,
        "test_public_torch.py": TWIN_TESTS,
        "small.py": RIGHT,
        "small_torch.py": "def half_torch(x):\n    raise NotImplementedError('half_torch')\n",
        "answers.yaml": "how_many:\nwhich_one:\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


TODO = "raise NotImplementedError('this one')"


def write(folder: Path, **bodies: str) -> None:
    """Write small.py: with another body for each function named."""
    text = RIGHT
    for name, body in bodies.items():
        text = re.sub(rf"(def {name}\(x\):\n)    .*\n", rf"\1    {body}\n", text)
    (folder / "small.py").write_text(text, encoding="utf-8")


# ---- what is shown first -----------------------------------------------------------------------


def test_a_failure_comes_before_what_is_still_to_be_written(
    small: Path, softmark: Softmark
) -> None:
    write(small, half=TODO, quarter="return -x / 4")
    done = softmark(small, "check")
    assert done.code == 1
    assert "2 pass, 1 fail, 2 to do" in done.out
    assert "A quarter is half of a half" in done.next
    assert "q is wrong" in done.next and "wrong sign" in done.next


def test_the_core_comes_before_an_extension(small: Path, softmark: Softmark) -> None:
    write(small, third="return x", quarter=TODO)
    done = softmark(small, "check")
    assert done.code == 1
    assert "A quarter is half of a half" in done.next
    assert "this one is still to be written" in done.next
    assert "Extension: A third is one of three" in done.out


def test_an_extension_may_wait_but_not_be_wrong(small: Path, softmark: Softmark) -> None:
    write(small, third=TODO)
    done = softmark(small, "check")
    assert done.code == 0
    assert "The core is done: 3 pass." in done.out
    assert "4 pass, 1 to do" in done.out
    assert "A third is one of three" in done.next
    write(small, third="return x")
    assert softmark(small, "check").code == 1


def test_what_the_code_prints_is_kept_apart(small: Path, softmark: Softmark) -> None:
    write(small, half="print('fine'); return x / 2", quarter="print('x is', x); return x")
    done = softmark(small, "check")
    assert done.out.count("x is [8. 4.]") == done.next.count("x is [8. 4.]") == 1
    assert "fine" not in done.out
    write(small, quarter="print(*range(100), sep=chr(10)); return x")
    lines = softmark(small, "check").next.split()
    assert "99" in lines and "50" not in lines


def test_a_test_takes_one_line_and_is_told_whole_once(small: Path, softmark: Softmark) -> None:
    long = "Half is half, " * 10 + "always"
    text = (small / "test_public.py").read_text(encoding="utf-8")
    (small / "test_public.py").write_text(text.replace("Half is half", long), encoding="utf-8")
    write(small, half=TODO)
    done = softmark(small, "check")
    before = done.out.partition("3 pass")[0].splitlines()
    assert len(before) == 6  # the last is blank
    assert [line[-9:] for line in before[:2]] == [" [of two]", "[of four]"]
    assert long in " ".join(done.next.split())


@pytest.mark.parametrize(
    "message, shown", [(', "half of ten is five"', "half of ten is five"), ("", "half(8.0) == 5")]
)
def test_an_assertion_shows_its_message_or_itself(small: Path, message: str, shown: str) -> None:
    text = (small / "test_public.py").read_text(encoding="utf-8")
    text += f"\n\ndef test_more():\n    assert small.half(8.0) == 5{message}\n"
    (small / "test_public.py").write_text(text, encoding="utf-8")
    said = run(small, *CHECK).next  # pytest around this one would rewrite the assertion
    assert shown in said
    assert ("assert" in said) == (not message)


def test_a_syntax_error_names_its_line(small: Path, softmark: Softmark) -> None:
    (small / "small.py").write_text(f"{RIGHT}\ndef half(:\n", encoding="utf-8")
    done = softmark(small, "check")
    assert done.code == 1
    assert f"small.py, line {len(RIGHT.splitlines()) + 2}" in done.out
    assert "def half(:" in done.out


def test_an_exception_names_the_student_s_line(small: Path, softmark: Softmark) -> None:
    write(small, half="return undefined_name")
    done = softmark(small, "check")
    assert "NameError" in done.next
    assert "in small.py, line 2: return undefined_name" in done.next


@pytest.mark.parametrize(
    "text, said",
    [
        ("x = 1 / 0\n", ["ZeroDivisionError", "small.py, line 1: x = 1 / 0"]),
        ("import nowhere_to_be_found\n", ["nowhere_to_be_found", "small.py, line 1"]),
        ("import sys\nsys.exit()\n", ["exit()", "small.py, line 2: sys.exit()"]),
        ("import torch\n", ["small.py, line 1 uses torch", "NumPy is enough here", "Nothing"]),
        ("", ["small.py is empty"]),
    ],
)
def test_a_file_that_cannot_be_tested(
    small: Path, softmark: Softmark, text: str, said: list[str]
) -> None:
    (small / "small.py").write_text(text, encoding="utf-8")
    done = softmark(small, "check")
    assert done.code == 1
    assert all(words in done.out for words in said), done.out
    assert not re.search("Traceback|INTERNALERROR|SystemExit", done.out + done.err)


def test_a_file_saved_as_utf_16(small: Path, softmark: Softmark) -> None:
    (small / "small.py").write_text(RIGHT, encoding="utf-16")
    assert "save it as UTF-8" in softmark(small, "check").out


def test_a_file_under_another_name_is_shown(small: Path, softmark: Softmark) -> None:
    (small / "small.py").rename(small / "small (1).py")
    done = softmark(small, "check")
    assert done.code == 1
    assert "no small.py" in done.out and "(here: small (1).py)" in done.out


def test_a_breakpoint_opens_the_debugger(small: Path) -> None:
    write(small, quarter="breakpoint(); return x / 4")
    done = run(small, *CHECK, typed="p 6 * int(x[0])\nc\n")
    assert "(Pdb) 48" in done.out
    assert done.code == 0, done.out


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to one process there")
def test_a_loop_that_is_stopped_says_where_it_was(small: Path) -> None:
    write(small, quarter="open('begun', 'w').close()\n    while x[0]:\n        pass")
    running = subprocess.Popen(
        [sys.executable, *CHECK],
        cwd=small,
        stdout=subprocess.PIPE,
        text=True,
        # where the tests themselves run in the background, Ctrl-C would be ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        while not (small / "begun").exists() and running.poll() is None:
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert said.count("✓") == 3, said  # the tests before the loop
    assert re.search(r"Stopped in small.py, line 1[123]: (while x\[0\]:|pass)", said), said
    assert "Traceback" not in said


def test_outside_a_topic_it_says_where_to_go(tmp_path: Path, softmark: Softmark) -> None:
    done = softmark(tmp_path, "check")
    assert done.code == 2
    assert "assignment.yaml" in done.err and "Traceback" not in done.err


def test_a_misspelt_topic_is_suggested(small: Path, softmark: Softmark) -> None:
    done = softmark(small.parent, "check", "smal")
    assert done.code == 2
    assert "did you mean 'small'?" in done.err


# ---- questions, and the file in PyTorch --------------------------------------------------------


def test_answers_are_counted_and_never_judged(small: Path, softmark: Softmark) -> None:
    assert "0 of 2 questions answered" in softmark(small, "check").out
    said = set()
    for answers in ("how_many: 3\nwhich_one: a\n", "how_many: -1e9\nwhich_one: b\n"):
        (small / "answers.yaml").write_text(answers, encoding="utf-8")
        said.add(softmark(small, "check").out)
    (told,) = said
    assert "2 of 2 questions answered" in told


@pytest.mark.parametrize(
    "answers, said",
    [
        (
            "how_many: about 3\nwhich_one: c\nwhich_oen: a\n",
            [
                "0 of 2 questions answered",
                "how_many: 'about 3' is not a number",
                "which_one: 'c' is none of a, b",
                "did you mean 'which_one'?",
            ],
        ),
        ("how_many: [1\n", ["0 of 2", "how_many: '[1' is not a number"]),
        ("[[[[", ["0 of 2", "answers.yaml is not YAML"]),
        (None, ["0 of 2", "no answers.yaml"]),
    ],
)
def test_answers_that_cannot_be_read_are_named(
    small: Path, softmark: Softmark, answers: str | None, said: list[str]
) -> None:
    (small / "answers.yaml").unlink()
    if answers is not None:
        (small / "answers.yaml").write_text(answers, encoding="utf-8")
    done = softmark(small, "check")
    assert done.code == 0
    assert all(words in done.out for words in said), done.out


def test_the_twin_is_tested_when_it_is_asked_for(small: Path, softmark: Softmark) -> None:
    pytest.importorskip("torch", reason="the twin's tests need it")
    assert "small_torch.py was not run: softmark check --twin" in softmark(small, "check").out
    done = softmark(small, "check", "--twin")
    assert done.code == 1
    assert "half_torch is still to be written" in done.next
    assert "test_public_torch.py::test_half_torch" in done.next
    right = "def half_torch(x):\n    return x / 2\n"
    (small / "small_torch.py").write_text(right, encoding="utf-8")
    assert softmark(small, "check", "--twin").code == 0
    (small / "small_torch.py").write_text(f"import torch.nn\n{right}", encoding="utf-8")
    done = softmark(small, "check", "--twin")
    assert "line 1 uses torch.nn: two tensors are enough here" in done.out
    assert softmark(small, "check").code == 0, "that is a rule of the other file"


def test_without_pytorch_it_says_how_to_install_it(
    small: Path, softmark: Softmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    done = softmark(small, "check", "--twin")
    assert done.code == 1
    assert "small_torch.py needs PyTorch" in done.out
    assert "/whl/cpu" in done.out and '"softmark[torch]"' in done.out
    assert softmark(small, "check").code == 0
    (small / "small_torch.py").write_bytes(b"\xff\xfe")
    assert softmark(small, "check").code == 0, "that file is not looked at"


def test_a_topic_without_a_twin(small: Path, softmark: Softmark) -> None:
    text = ASSIGNMENT.partition("twin:")[0].replace(", small_torch.py", "")
    (small / "assignment.yaml").write_text(text, encoding="utf-8")
    done = softmark(small, "check", "--twin")
    assert done.code == 2
    assert "--twin" in done.err
    assert "--twin" not in softmark(small, "check").out


# ---- the command to run one test again ---------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("above", [0, 1, 2])
def test_the_command_works_as_it_is_pasted(small: Path, above: int) -> None:
    write(small, half="return x / 2 if x[0] == 2 else x")
    folder = [small, *small.parents][above]
    topic = small.relative_to(folder).as_posix()
    done = run(folder, *CHECK, *([] if topic == "." else [topic]))
    (command,) = re.findall("Just this one: (.*)", done.out)
    again = subprocess.run(
        command, shell=True, cwd=folder, capture_output=True, text=True, check=False
    )
    assert again.returncode == 1, again.stdout + again.stderr
    assert "1 failed" in again.stdout and "of four" in again.stdout
    assert "h is wrong" in again.stdout


@pytest.mark.parametrize(
    "words, posix, windows",
    [
        (
            ["python", "-m", "pytest", "test_public.py::test_a"],
            "python -m pytest test_public.py::test_a",
            "python -m pytest test_public.py::test_a",
        ),
        (
            ["python", "-m", "pytest", "t.py::test_a[dx]"],
            "python -m pytest 't.py::test_a[dx]'",
            'python -m pytest "t.py::test_a[dx]"',
        ),
        (
            [r"..\.venv\Scripts\python.exe", "-m", "pytest", r"my lstm\t.py::test_a"],
            None,
            r'..\.venv\Scripts\python.exe -m pytest "my lstm/t.py::test_a"',
        ),
        (
            [r"C:\Program Files\Python\python.exe", "-m", "pytest", r"D:\x\t.py::test_a"],
            None,
            r'"C:\Program Files\Python\python.exe" -m pytest D:/x/t.py::test_a',
        ),
    ],
)
def test_a_command_line_is_quoted_for_the_shells_of_its_system(
    words: list[str], posix: str | None, windows: str
) -> None:
    assert command_line(words, windows=True) == windows
    if posix:
        assert command_line(words, windows=False) == posix


def test_python_is_called_by_its_name_where_that_is_what_runs() -> None:
    here, elsewhere = str(Path("venv/bin/python3").absolute()), "/usr/bin/python"
    assert python_name(here, str(Path("venv/bin/python")), "x") == "python"
    assert python_name(here, elsewhere, "venv/bin/python3") == "venv/bin/python3"
    assert python_name(here, None, "venv/bin/python3") == "venv/bin/python3"


# ---- other people's machines -------------------------------------------------------------------


def test_what_else_pytest_would_load_is_left_alone(small: Path, tmp_path: Path) -> None:
    """A plugin that is installed and broken, options in the environment, a conftest.py above."""
    site = tmp_path / "site"
    (site / "broken-1.0.dist-info").mkdir(parents=True)
    (site / "broken-1.0.dist-info/METADATA").write_text("Name: broken\nVersion: 1.0\n")
    (site / "broken-1.0.dist-info/entry_points.txt").write_text("[pytest11]\nbroken = broken\n")
    (site / "broken.py").write_text("raise RuntimeError('a broken plugin')\n")
    (small.parent / "conftest.py").write_text("raise RuntimeError('not mine')\n")
    (small.parent / "pytest.ini").write_text("[pytest]\naddopts = --nonsense\n")
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    around = {"PYTHONPATH": path, "PYTEST_ADDOPTS": "--nonsense", "PYTEST_PLUGINS": "broken"}
    done = run(small, *CHECK, **around)
    assert done.code == 0, done.out + done.err
    assert "All done: 5 pass." in done.out


def test_a_pipe_that_knows_few_characters(small: Path) -> None:
    write(small, quarter="raise ValueError('∂q is wrong')")
    done = run(small, *CHECK, PYTHONIOENCODING="cp1252")
    assert done.code == 1, done.err
    assert "+ Half is half" in done.out
    assert "x A quarter is half of a half" in done.out
    assert "q is wrong" in done.out


# Not there on Windows, the first three neither on macOS; what pytest itself needs here is left.
MODULES = ["pyseccomp", "fcntl", "resource", "grp", "pwd", "syslog", "termios"]
FUNCTIONS = ["memfd_create", "unshare", "setns", "sched_setaffinity", "fork", "mkfifo"]
WITHOUT = f"""
import os, sys
sys.modules.update(dict.fromkeys({MODULES}))
for name in {FUNCTIONS}:
    vars(os).pop(name, None)
"""
GRADE = ["grade", "small.py", "--topic", TOPIC, "--out", "out", "--course", str(ROOT)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "code, expected",
    [
        ("from softmark.cli import app; app(['check'])", 0),
        ("from softmark.cli import app; app(['pack'])", 0),
        ("import pytest; raise SystemExit(pytest.main(['-q', 'test_public.py']))", 0),
        ("from softmark.cli import app; sys.platform = 'darwin'; app(['doctor'])", 0),
        (f"from softmark.cli import app; sys.platform = 'darwin'; app({GRADE})", 2),
    ],
    ids=["check", "pack", "pytest", "doctor", "grade"],
)
def test_it_needs_nothing_that_only_linux_has(small: Path, code: str, expected: int) -> None:
    """Students' commands and the pytest plugin run without what Windows and macOS lack."""
    done = run(small, "-c", WITHOUT + code)
    assert done.code == expected, done.out + done.err


def test_students_commands_do_not_load_the_grader(small: Path) -> None:
    code = """
import sys
from softmark.cli import app
try:
    app([{!r}])
finally:
    print(*(name for name in sys.modules if name.startswith(("softmark", "pytest"))))
"""
    grader = {f"softmark.{name}" for name in ("isolation", "bench", "grader", "batch", "cluster")}
    for command, others in (("check", set()), ("pack", {"pytest", "softmark.check"})):
        done = run(small, "-c", code.format(command))
        loaded = set(done.out.splitlines()[-1].split())
        assert "softmark.student" in loaded, done.out + done.err
        assert not loaded & (grader | others)
