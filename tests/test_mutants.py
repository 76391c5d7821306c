"""Mutants of a reference, the list of those that are equivalent, and a run of them through graders."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_course import TOPIC, write_course
from softmark.batch import Run, grade_submissions
from softmark.bench import reference_files
from softmark.course import Course, load_course
from softmark.intake import Submission
from softmark.mutants import Mutant, mutants, normalised
from softmark.mutation import load_equivalents, run_mutants
from softmark.yamlfile import CourseError

ROOT = Path(__file__).resolve().parents[1]
LSTM = ROOT / "solutions" / "02_lstm" / "lstm.py"

# ---- what mutants there are ------------------------------------------------------------------------


def module(
    *statements: str, head: str = "import numpy as np\n", given: str = "self, a, b, n"
) -> str:
    """A file with one function that students write."""
    lines = [f"        {line}" for statement in statements for line in statement.split("\n")]
    markers = ["    # BEGIN SOLUTION", *(line[4:] for line in lines), "    # END SOLUTION", ""]
    return "\n".join([f"{head}\n\ndef f({given}):", *markers])


def made(kind: str, *statements: str, **options: str) -> set[str]:
    """The changed statements of this kind, as text."""
    return {m.after for m in mutants("f.py", module(*statements, **options)) if m.kind == kind}


KINDS = [
    ("operator", "return a + n", {"return a - n"}),
    ("operator", "return a * n", {"return a / n", "return a + n"}),
    ("operator", "return a @ b", {"return a * b"}),
    ("operator", "return a ** b", {"return a * b"}),
    ("operator", "return n // b", {"return n / b", "return n * b"}),
    ("operator", "return a and b", {"return a or b"}),
    ("operator", "a -= b", {"a += b"}),
    ("operator dropped", "return -a", {"return a"}),
    ("operator dropped", "return ~a", {"return a"}),
    ("operator dropped", "return not a", {"return a"}),
    ("operand dropped", "return a + b", {"return a", "return b"}),
    ("operand dropped", "return a @ b", set()),
    ("operands swapped", "return a - b", {"return b - a"}),
    ("operands swapped", "return a @ b", {"return b @ a"}),
    ("operands swapped", "return a + b", set()),
    ("comparison", "return a >= b", {"return a > b", "return a <= b"}),
    ("comparison", "return a == b", {"return a != b"}),
    ("comparison", "return a is None", {"return a is not None"}),
    ("comparison", "return a in b", {"return a not in b"}),
    ("condition negated", "if a:\n    return b", {"if not a:"}),
    ("condition negated", "if a is None:\n    return b", set()),
    ("branches swapped", "return a if n else b", {"return b if n else a"}),
    ("sign", "return a, f(b)", {"return (-a, f(b))", "return (a, -f(b))"}),
    ("sign", "return [a]", set()),
    ("constant", "return f(0)", {"return f(1)"}),
    ("constant", "return f(1)", {"return f(0)", "return f(2)"}),
    ("constant", "return f(0.5)", {"return f(0.0)", "return f(1.0)", "return f(1.5)"}),
    ("constant", "return f(a, keepdims=True)", {"return f(a, keepdims=False)"}),
    ("constant", "return f(None, 'text')", set()),
    ("constant", "return a.sum(axis=0)", {"return a.sum(axis=1)"}),
    ("constant", "return a[-1]", {"return a[-0]", "return a[-2]"}),
    ("keyword dropped", "return f(a, axis=1)", {"return f(a)"}),
    ("function", "return np.zeros(n)", {"return np.ones(n)"}),
    ("function", "return max(a, b)", {"return min(a, b)"}),
    ("function", "return a.sum()", {"return a.mean()"}),
    ("call dropped", "return np.tanh(a)", {"return a"}),
    ("call dropped", "return reversed(a)", {"return a"}),
    ("call dropped", "return a.sum(axis=0)", {"return a"}),
    ("call dropped", "return a.transpose(1, 2)", {"return a"}),
    ("call dropped", "a.append(b)", set()),
    ("call dropped", "return np.zeros(n)", set()),
    ("arguments swapped", "return f(a, b, n)", {"return f(b, a, n)", "return f(a, n, b)"}),
    ("arguments swapped", "return f(n, a[0])", {"return f(a[0], n)"}),
    ("arguments swapped", "return np.maximum(a, b)", set()),
    ("arguments swapped", "return a.transpose(1, 2)", set()),
    ("arguments swapped", "return f(*a, b)", set()),
    ("order", "return a, b", {"return (b, a)"}),
    ("order", "return f([a, b])", {"return f([b, a])"}),
    ("order", "a, b = f(n)", {"b, a = f(n)"}),
    ("order", "a, b = b, n", {"a, b = (n, b)"}),
    ("order", "return a[:, n]", {"return a[n, :]"}),
    ("index", "return a[:, n]", {"return a[:, n + 1]", "return a[:, n - 1]"}),
    ("index", "return a[n:]", {"return a[n + 1:]", "return a[n - 1:]"}),
    ("index", "return a['W']", set()),
    ("index dropped", "return a[:, None]", {"return a[:]"}),
    ("index dropped", "return a[..., 0]", {"return a[0]"}),
    ("index dropped", "return a[None]", set()),
    ("bound dropped", "return a[n:b]", {"return a[:b]", "return a[n:]"}),
    ("operator dropped", "return a[::-1]", {"return a[::1]"}),
    ("sign", "b = 0\na[::n] = 0", {"a[::-n] = 0"}),
    ("transpose dropped", "return a.T @ b", {"return a @ b"}),
    ("key", "return a['W'] @ b['b']", {"return a['b'] @ b['b']", "return a['W'] @ b['W']"}),
    ("name", "return self.U(self.V(a))", {"return self.V(self.V(a))", "return self.U(self.U(a))"}),
    ("name", "return a.dot(b)", {"return b.dot(b)", "return a.dot(a)"}),
    ("statement dropped", "a.append(b)", {"pass"}),
    ("statement dropped", "a[n] = b", {"pass"}),
    ("statement dropped", "a = a + b", {"pass"}),
    ("statement dropped", "new = a + b", set()),
    ("statement dropped", "'A docstring.'", set()),
    ("statement dropped", "return a", set()),
    ("statement dropped", "if a:\n    raise ValueError(f'{a}')", {"pass"}),
    ("constant", "if a:\n    raise ValueError(f'{a + 1}')", set()),
    ("statement dropped", "if a:\n    return b\nreturn n", {"pass"}),
    ("accumulation dropped", "a += b", {"a = b"}),
    ("accumulation dropped", "self.grads['b'] += b", {"self.grads['b'] = b"}),
]  # fmt: skip


@pytest.mark.parametrize("kind, statements, expected", KINDS)
def test_each_kind_of_slip(kind: str, statements: str, expected: set[str]) -> None:
    assert made(kind, statements) == expected


def test_names_are_exchanged_for_locals_that_are_known_there() -> None:
    """The next ones in order of binding and the one most alike; none bound later, none never read."""
    code = ("c_new = a * n", "unread = a", "c = c_new + a", "later = c", "return later")
    changed = {
        m.after
        for m in mutants("f.py", module(*code, given="a, c_prev, n"))
        if m.kind == "name" and m.before == "c = c_new + a"
    }
    assert changed == {"c = n + a", "c = c_new + n"}
    code = ("return c_prev + n",)
    assert made("name", *code, given="a, n, b, c_prev") == {
        "return n + n",
        "return c_prev + c_prev",
    }


def test_slips_of_pytorch() -> None:
    head = "import torch\nimport torch.nn.functional as F\n"
    code = ("s = F.softmax(q @ k.transpose(-2, -1), dim=-1)", "y = torch.tanh(s) * v", "return y")
    options = {"head": head, "given": "self, q, k, v"}
    assert made("gradient cut", *code, **options) == {
        "s = F.softmax(q @ k.transpose(-2, -1), dim=-1).detach()",
        "y = (torch.tanh(s) * v).detach()",
    }
    assert made("gradient cut", code[1]) == set()  # without PyTorch there is no graph
    assert "s = F.softmax(q @ k.transpose(-2, -1))" in made("keyword dropped", *code, **options)
    assert "s = F.softmax(q @ k, dim=-1)" in made("call dropped", *code, **options)
    assert "s = F.softmax(q @ k.transpose(-2, -1), dim=1)" in made(
        "operator dropped", *code, **options
    )


SCATTERED = '''\
"""A file with two parts that students write."""

LIMIT = 1 + 1


class Cell:
    """Given."""

    def __init__(self, n=1):
        self.n = n + 1  # given
        # BEGIN SOLUTION
        self.w = (n -
                  2)  # für zwei
        # END SOLUTION
        self.n += 1

    def outer(self, x):
        # BEGIN SOLUTION
        def inner(y):
            return y + 3

        for k in range(4):
            x = inner(x)
        return x
        # END SOLUTION
'''


def test_only_what_stands_between_markers_is_changed() -> None:
    found = mutants("cell.py", SCATTERED)
    assert {m.function for m in found} == {"Cell.__init__", "Cell.outer", "Cell.outer.inner"}
    assert {m.line for m in found} == {12, 13, 20, 22, 23, 24}
    between = re.compile("(?<=# BEGIN SOLUTION\n).*?(?=# END SOLUTION)", re.DOTALL)
    assert {between.sub("", m.source) for m in found} == {between.sub("", SCATTERED)}
    assert "for k in range(5):" in {m.after for m in found}
    assert any("self.w = (n -\n                  3)  # für zwei" in m.source for m in found)


@pytest.mark.slow
def test_mutants_of_the_lstm_are_each_another_program() -> None:
    source = LSTM.read_text(encoding="utf-8")
    found = mutants("lstm.py", source)
    assert len({m.source for m in found}) == len(found) > 400
    assert all(reads(m) for m in found[::20])
    assert all(m.before != m.after for m in found)
    some = found[::20]
    trees = {ast.dump(ast.parse(text)) for text in (source, *(m.source for m in some))}
    assert len(trees) == 1 + len(some)
    functions = {"sigmoid", "LSTMCell.__init__", "LSTMCell.forward", "LSTMCell.backward"}
    functions |= {"lstm_forward", "lstm_backward"}
    assert functions <= {m.function for m in found}
    for m in found:
        assert (normalised(m.before), normalised(m.after)) == (m.before, m.after)
    given = {n for n, line in enumerate(source.splitlines(), 1) if "Given" in line}
    assert given and not given & {m.line for m in found}


def reads(mutant: Mutant) -> bool:
    """Whether the text of a mutant says what the mutant says of itself."""
    nodes = ast.walk(ast.parse(mutant.source))
    shown = (ast.unparse(node).split("\n")[0] for node in nodes if isinstance(node, ast.stmt))
    return mutant.after in shown


def test_what_is_put_in_stays_together() -> None:
    """Where the change binds less tightly than what stood there, it is put in parentheses."""
    code = ("a = n * a ** b", "a = -a.T", "a = (a - b).T @ n", "return a[1:, None]")
    found = mutants("f.py", module(*code))
    assert [m.after for m in found if not reads(m)] == []
    assert any("    a = n * (a * b)\n" in m.source for m in found)


def test_the_order_is_the_same_in_every_process(tmp_path: Path) -> None:
    source = module(*(statements for _, statements, _ in KINDS))
    (tmp_path / "f.py").write_text(source, encoding="utf-8")
    code = (
        "import pathlib, sys; from softmark.mutants import mutants;"
        "found = mutants('f.py', pathlib.Path(sys.argv[1]).read_text(encoding='utf-8'));"
        "print(*(m.diff for m in found), sep='', end='')"
    )
    here = "".join(m.diff for m in mutants("f.py", source))
    for seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "f.py")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout == here


def test_a_diff_shows_the_changed_lines() -> None:
    source = module("a = a + 1", "return np.sum(\n    a,\n    axis=0,\n)")
    swapped = next(m for m in mutants("f.py", source) if m.kind == "keyword dropped")
    assert swapped.diff == (
        "--- f.py\n+++ f.py: keyword dropped\n@@ -7,4 +7,1 @@\n"
        "-    return np.sum(\n-        a,\n-        axis=0,\n-    )\n+    return np.sum(a)\n"
    )


# ---- equivalents -----------------------------------------------------------------------------------

ENTRY = """
  - file: small.py
    function: unwatched
    before: {before}
    after: {after}
    reason: nothing calls it
"""


def listed(folder: Path, *entries: tuple[str, str], text: str = ENTRY) -> Path:
    path = folder / "solutions" / TOPIC / "equivalents.yaml"
    filled = "".join(text.format(before=before, after=after) for before, after in entries)
    path.write_text(f"equivalents:{filled}", encoding="utf-8")
    return path


def load(folder: Path) -> frozenset[Mutant]:
    course = load_course(folder)
    topic = course.topic(TOPIC)
    found = mutants("small.py", reference_files(course, topic)["small.py"])
    return load_equivalents(course, topic, found).mutants


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The small course, with a function that no grader calls, a loop that can fail to end, and a
    grader that divides by what it gets."""
    write_course(tmp_path)
    place = tmp_path / "solutions" / TOPIC
    small = (place / "small.py").read_text(encoding="utf-8")
    loop = "for _ in range(n):\n        x = step(x)\n"
    assert loop in small
    small = small.replace(loop, "while n > 0:\n        x = step(x)\n        n -= 1\n")
    small += "\n\ndef unwatched(x):\n    # BEGIN SOLUTION\n    return x - 7\n    # END SOLUTION\n"
    small += "\n\ndef divisor(x):\n    # BEGIN SOLUTION\n    return x + 1\n    # END SOLUTION\n"
    (place / "small.py").write_text(small, encoding="utf-8")
    (place / "mistakes.yaml").unlink()
    settings = tmp_path / "assignments" / TOPIC / "assignment.yaml"
    text = settings.read_text(encoding="utf-8")
    text = text.replace("rubric:\n", "rubric:\n  divisor.values: {title: division, points: 1}\n", 1)
    text = text.replace("calls:\n", 'calls:\n  divisor: {y: "array (N)"}\n', 1)
    settings.write_text(text + "limits: {call_seconds: 0.3}\n", encoding="utf-8")
    grader = tmp_path / "autograder" / "graders" / TOPIC / "test_divisor.py"
    grader.write_text(DIVIDING_GRADER, encoding="utf-8")
    return tmp_path


DIVIDING_GRADER = """
import numpy as np
from softmark.plugin import item


@item("divisor.values")
def test_divisor(script, student):
    run = script()
    y = run.call("divisor", np.ones(1))
    assert 4 / float(student(run)[y][0]) == 2, "It is not twice as much."
"""


def test_an_entry_is_found_however_it_is_laid_out(folder: Path) -> None:
    listed(folder, ("return (x-7)", "'return(x + 7)'"), ("return x - 7", "return x"))
    assert {m.after for m in load(folder)} == {"return x + 7", "return x"}


@pytest.mark.parametrize(
    "entry, edit, said",
    [
        (("return x - 8", "return x"), ("", ""), r"\[0\]\.before: unwatched has no such statement"),
        (
            ("return x - 7", "return 9"),
            ("", ""),
            r"\[0\]\.after: no mutant of this statement reads",
        ),
        (("return x - 7", "return ("), ("", ""), r"\[0\]\.after: 'return \(' is no statement"),
        (
            ("return x - 7", "return x"),
            ("unwatched", "gone"),
            r"\[0\]\.function: .*mutants of 'gone'",
        ),
        (
            ("return x - 7", "return x"),
            ("small.py", "other.py"),
            r"\[0\]\.function: .*in other\.py",
        ),
        (("return x - 7", "return x"), ("reason: ", "why: "), r"\[0\]\.reason: missing"),
    ],
)
def test_an_entry_that_is_no_mutant_is_told(
    folder: Path, entry: tuple[str, str], edit: tuple[str, str], said: str
) -> None:
    listed(folder, entry, text=ENTRY.replace(*edit) if edit[0] else ENTRY)
    with pytest.raises(
        CourseError, match=rf"^solutions/{TOPIC}/equivalents\.yaml:\d+: equivalents{said}"
    ):
        load(folder)


def test_no_more_than_a_tenth_may_be_listed(folder: Path) -> None:
    source = (folder / "solutions" / TOPIC / "small.py").read_text(encoding="utf-8")
    every = mutants("small.py", source)
    entries = [(m.before, m.after) for m in every if m.function == "unwatched"]
    listed(folder, *entries)
    said = rf"equivalents: {len(entries)} of {len(every)} mutants are listed; at most {len(every) // 10}"
    with pytest.raises(CourseError, match=said):
        load(folder)


# ---- a run -----------------------------------------------------------------------------------------


def test_a_run_tells_what_became_of_each(folder: Path) -> None:
    """Noticed, ended by the clock, not noticed, equivalent, listed wrongly, and a faulty grader."""
    path = listed(folder, ("return x - 7", "return x + 7"))
    wrong = ENTRY.format(before="return 2 * x + 1", after="return 2 * x + 2")
    with path.open("a", encoding="utf-8") as file:
        file.write(wrong.replace("unwatched", "step"))
    course = load_course(folder)
    topic = course.topic(TOPIC)
    reference = dict(reference_files(course, topic))
    reference["answers.yaml"] = (folder / "solutions" / TOPIC / "answers.yaml").read_text("utf-8")
    calls: list[tuple[int, int]] = []
    report = run_mutants(
        Run(course, topic, 5), reference, None, 2, lambda done, of: calls.append((done, of))
    )
    assert {m.function for m in report.survived} == {"unwatched"}
    assert {m.after for m in report.equivalent} == {"return x + 7"}
    told = {v.mutant.after: v.by for v in report.errors}
    assert set(told) == {"return x - 1", "return 2 * x + 2"}
    assert "ZeroDivisionError" in told["return x - 1"]
    assert (
        "equivalents.yaml" in told["return 2 * x + 2"] and "step.values" in told["return 2 * x + 2"]
    )
    assert {v.mutant.after for v in report.timed_out} >= {"n += 1", "n = 1"}
    assert {v.by for v in report.timed_out} == {"steps.values"}
    killers = {v.mutant.function: v.by for v in report.killed}
    expected = {"step": "step.values", "steps": "steps.values", "divisor": "divisor.values"}
    if "small_torch.py" not in report.skipped:
        expected["step_torch"] = "twin.values"
    assert killers == expected
    outcomes = [report.killed, report.timed_out, report.survived, report.equivalent, report.errors]
    run = sum(map(len, outcomes))
    skipped = [m for m in mutants("small_torch.py", reference["small_torch.py"]) if report.skipped]
    assert run + len(skipped) == report.total
    assert calls == [(k, run) for k in range(1, run + 1)]
    noticed = len(report.killed) + len(report.timed_out)
    assert report.score == noticed / (noticed + len(report.survived)) < 1
    assert report.per_second > 0


@pytest.mark.slow
def test_a_sample_of_the_lstm(course: Course) -> None:
    topic = course.topic("02_lstm")
    reference = dict(reference_files(course, topic))
    answers = course.solution(topic.id) / "answers.yaml"
    if answers.exists():
        reference["answers.yaml"] = answers.read_text(encoding="utf-8")
    report = run_mutants(Run(course, topic, 5), reference, 12, 2, lambda done, of: None)
    noticed = [verdict.mutant for verdict in (*report.killed, *report.timed_out)]
    run = [*noticed, *report.survived, *report.equivalent]
    assert not report.errors
    assert len(run) == 12 < report.total
    assert len({mutant.function for mutant in run}) >= 5
    assert len(report.survived) <= 1


def test_a_quick_result_ends_with_what_is_lost(folder: Path) -> None:
    course = load_course(folder)
    topic = course.topic(TOPIC)
    files = dict(reference_files(course, topic))
    files["small.py"] = files["small.py"].replace("2 * x + 1", "2 * x")
    submission = Submission("one", files, "ready", "", (), "")
    (result,) = grade_submissions(Run(course, topic, 5), [submission], 1, quick=True)
    assert [i.id for i in result.items if i.status != "passed"] == ["step.values"]
    assert "steps.values" not in {i.id for i in result.items}
