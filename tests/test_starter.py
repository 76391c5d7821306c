"""Stubs from references, the starter folder, and the public tests that come with it."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from softmark.builders.rubric import with_rubric
from softmark.builders.starter import build_starter, starter_files, starter_in_step
from softmark.builders.stub import BuildError, stub
from softmark.course import load_course, load_topic

ROOT = Path(__file__).parents[1]
TOPIC = "02_lstm"
REFERENCE = ROOT / "solutions" / TOPIC / "lstm.py"

# ---- one file ------------------------------------------------------------------------------------

SOURCE = '''"""A module. # BEGIN SOLUTION in a text is only text."""

import math

# BEGIN SOLUTION
def helper(x):
    return x + 1


# END SOLUTION
class Outer:
    """Kept."""

    size = 3

    # BEGIN SOLUTION
    def secret(self):
        return self.size

    # END SOLUTION

    @staticmethod
    def method(
        x,
    ):
        """Kept too."""
        # BEGIN SOLUTION
        y = helper(x)
        return y
        # END SOLUTION

    class Inner:
        async def deep(self):
            given = 1
            # BEGIN SOLUTION
            return given
            # END SOLUTION


if math.pi > 3:

    def outer():
        def nested(x):
            # BEGIN SOLUTION
            return x
            # END SOLUTION

        return nested

# BEGIN SOLUTION
LAST = helper(1)
# END SOLUTION
'''

STUB = '''"""A module. # BEGIN SOLUTION in a text is only text."""

import math

class Outer:
    """Kept."""

    size = 3


    @staticmethod
    def method(
        x,
    ):
        """Kept too."""
        raise NotImplementedError("Outer.method")

    class Inner:
        async def deep(self):
            given = 1
            raise NotImplementedError("Outer.Inner.deep")


if math.pi > 3:

    def outer():
        def nested(x):
            raise NotImplementedError("outer.nested")

        return nested

'''


def test_each_solution_becomes_an_error_that_names_its_function():
    assert stub(SOURCE, "m.py") == STUB


def test_a_last_function_whose_solution_is_all_it_has():
    assert stub("def f(): \n    # BEGIN SOLUTION\n    pass\n    # END SOLUTION", "m.py") == (
        'def f(): \n    raise NotImplementedError("f")\n'
    )


def lines(*text):
    return "".join(f"{line}\n" for line in text)


BROKEN = {
    "end without begin": (
        lines("def f():", "    pass", "    # END SOLUTION"),
        3,
        "without a '# BEGIN",
    ),
    "begin without end": (
        lines("def f():", "    # BEGIN SOLUTION", "    pass"),
        2,
        "without an '# END",
    ),
    "nested": (
        lines("# BEGIN SOLUTION", "x = 1", "# BEGIN SOLUTION", "# END SOLUTION", "# END SOLUTION"),
        3,
        "inside the part that begins in line 1",
    ),
    "in a string": (lines("x = '''", "# BEGIN SOLUTION", "'''"), 2, "inside a string"),
    "beside code": (lines("x = 1  # BEGIN SOLUTION", "y = 2", "# END SOLUTION"), 1, "of its own"),
    "misspelt": (lines("x = 1", "### begin solution", "y = 2", "### end solution"), 2, "and read"),
    "no solution at all": (lines("x = 1"), 1, "would be the solution"),
    "nothing between": (
        lines("def f():", "    # BEGIN SOLUTION", "    # END SOLUTION", "    pass"),
        2,
        "nothing to write",
    ),
    "over two functions": (
        lines(
            *("def f():", "    # BEGIN SOLUTION", "    pass"),
            *("def g():", "    pass", "    # END SOLUTION"),
        ),
        4,
        "belongs only in part",
    ),
    "half a statement": (
        lines("# BEGIN SOLUTION", "def f():", "    a()", "# END SOLUTION", "    b()"),
        2,
        "belongs only in part",
    ),
    "nothing left of a class": (
        lines("", "class A:", "    # BEGIN SOLUTION", "    x = 1", "    # END SOLUTION", "y = 2"),
        6,
        "without the solution this is not Python",
    ),
    "not Python": (lines("x = 1", "def f(:"), 2, "not Python"),
}


@pytest.mark.parametrize("source, line, said", BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_a_stub_is_refused_with_its_line(source, line, said):
    with pytest.raises(BuildError) as error:
        stub(source, "solutions/x/m.py")
    message = str(error.value)
    assert message.startswith(f"solutions/x/m.py:{line}: ")
    assert said in message
    assert "\n" not in message


def functions(source):
    """Qualified name to (arguments, docstring, body) of every function of a file."""
    found = {}

    def visit(node, names):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(child, [*names, child.name])
            elif isinstance(child, ast.FunctionDef):
                text = ast.unparse(child.args), ast.get_docstring(child)
                found[".".join([*names, child.name])] = (*text, ast.unparse(child.body[1:]))

    visit(ast.parse(source), [])
    return found


def test_the_lstm_stub_keeps_signatures_and_docstrings_and_nothing_else():
    source = REFERENCE.read_text()
    text = stub(source, "lstm.py")
    reference, student = functions(source), functions(text)
    assert list(student) == list(reference)
    for name, (arguments, docstring, body) in student.items():
        assert (arguments, docstring) == reference[name][:2]
        assert docstring
        if name == "LSTMCell.zero_grad":  # given
            assert body == reference[name][2]
        else:
            assert body == f"raise NotImplementedError('{name}')"
    assert "SOLUTION" not in text
    assert len(student) == 8


# ---- a course ------------------------------------------------------------------------------------

HANDOUT = """# Tiny

<!-- rubric -->
an old table
<!-- /rubric -->

The end.
"""
ASSIGNMENT = """
title: Tiny
hours: 0.5
files: [tiny.py]
rubric:
  one: {title: "The value | of one", points: 2}
  two: {title: "Twice", points: 1.5, tier: extension}
  three: {title: "Thrice", points: 3}
calls:
  one: {value: scalar}
"""
TINY = lines("def one():", "    # BEGIN SOLUTION", "    return 1", "    # END SOLUTION")


@pytest.fixture
def tiny(tmp_path):
    """A course of one topic, 01_tiny."""
    folder = tmp_path / "course"
    files = {
        "course.yaml": "title: Tiny\ntopics:\n  - id: 01_tiny\n",
        "assignments/01_tiny/assignment.yaml": ASSIGNMENT,
        "assignments/01_tiny/handout.md": HANDOUT,
        "assignments/01_tiny/test_public.py": "import tiny\n",
        "assignments/01_tiny/notes_for_instructors.md": "private\n",
        "solutions/01_tiny/tiny.py": TINY,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return load_course(folder)


def tree(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_a_build_holds_the_stub_and_the_public_files_only(tiny, tmp_path):
    out = tmp_path / "starter"
    written = build_starter(tiny, out)
    names = ["tiny.py", "handout.md", "assignment.yaml", "test_public.py", "tiny.ipynb"]
    assert written == [out / "01_tiny" / name for name in names]
    built = tree(out)
    assert sorted(built) == sorted(f"01_tiny/{name}" for name in names)
    assert built["01_tiny/tiny.py"] == b'def one():\n    raise NotImplementedError("one")\n'
    assert built["01_tiny/assignment.yaml"] == ASSIGNMENT.encode()
    build_starter(tiny, out)
    assert tree(out) == built


def test_the_rubric_table_is_made_and_kept_in_step_in_both_places(tiny, tmp_path):
    out = tmp_path / "starter"
    build_starter(tiny, out)
    handout = (out / "01_tiny" / "handout.md").read_text()
    home = tiny.folder / "assignments" / "01_tiny" / "handout.md"
    assert home.read_text() == handout
    assert "an old table" not in handout
    assert "| `one` | The value \\| of one | core | 2 |" in handout
    assert "| `two` | Twice | extension | 1.5 |" in handout
    assert "| | **core, all together** | | **5** |" in handout
    assert handout.endswith("<!-- /rubric -->\n\nThe end.\n")


def test_what_is_stale_goes_and_what_is_not_ours_stays(tiny, tmp_path):
    out = tmp_path / "starter"
    stale = [out / "01_tiny" / name for name in ("old.py", "deep/er/old.py", "__pycache__/x.pyc")]
    others = [out / "README.md", out / "extra" / "mine.py"]
    for path in stale + others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("here before")
    build_starter(tiny, out)
    assert not any(path.exists() for path in stale)
    assert not (out / "01_tiny" / "deep").exists()
    assert all(path.read_text() == "here before" for path in others)


def test_in_step_says_which_file_differs_is_missing_or_too_many(tiny, tmp_path):
    out = tmp_path / "starter"
    build_starter(tiny, out)
    assert starter_in_step(tiny, out) == []
    folder = out / "01_tiny"
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "tiny.pyc").write_text("left by running the tests")
    assert starter_in_step(tiny, out) == []
    (folder / "tiny.py").write_text("changed")
    (folder / "test_public.py").unlink()
    (folder / "answers.py").write_text("extra")
    home = tiny.folder / "assignments" / "01_tiny" / "handout.md"
    home.write_text(home.read_text().replace("| core | 2 |", "| core | 20 |"))
    messages = starter_in_step(tiny, out)
    assert [message.partition(";")[0] for message in messages] == [
        "starter/01_tiny/tiny.py: differs from what the course makes of it",
        "assignments/01_tiny/handout.md: the rubric table is out of date",
        "starter/01_tiny/test_public.py: missing",
        "starter/01_tiny/answers.py: not a file of the starter",
    ]
    assert all(message.endswith("run 'softmark build starter'") for message in messages)


def test_a_build_that_fails_writes_nothing(tiny, tmp_path):
    (tiny.folder / "solutions" / "01_tiny" / "tiny.py").write_text("def one():\n    return 1\n")
    with pytest.raises(BuildError, match=r"^solutions/01_tiny/tiny\.py:1: "):
        build_starter(tiny, tmp_path / "starter")
    assert not (tmp_path / "starter").exists()
    handout = tiny.folder / "assignments" / "01_tiny" / "handout.md"
    assert handout.read_text() == HANDOUT


@pytest.mark.parametrize("name", ["handout.md", "test_public.py", "assignment.yaml"])
def test_a_missing_file_is_named(tiny, tmp_path, name):
    path = tiny.folder / "assignments" / "01_tiny" / name
    path.unlink()
    with pytest.raises(Exception, match=re.escape(f"assignments/01_tiny/{name}")) as error:
        build_starter(tiny, tmp_path / "starter")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("out", ["assignments", "solutions"])
def test_the_course_itself_is_never_overwritten(tiny, out):
    before = tree(tiny.folder)
    with pytest.raises(BuildError, match="overwrite"):
        build_starter(tiny, tiny.folder / out)
    assert tree(tiny.folder) == before


def test_a_handout_without_a_place_for_the_table_is_refused(tiny):
    topic = tiny.topic("01_tiny")
    for handout in ("no markers", "<!-- rubric -->\nno end", 2 * HANDOUT):
        with pytest.raises(BuildError, match=r"^assignments/01_tiny/handout\.md: "):
            with_rubric(handout, topic)


# ---- this course ---------------------------------------------------------------------------------


def test_the_committed_starter_is_in_step():
    assert starter_in_step(load_course(ROOT), ROOT / "starter") == []


def test_the_starter_stands_alone(tmp_path):
    """Students have no course.yaml; their copy is a topic all the same."""
    shutil.copytree(ROOT / "starter" / TOPIC, tmp_path / TOPIC)
    topic = load_topic(tmp_path / TOPIC)
    assert (topic.files, topic.max_score) == (("lstm.py", "lstm_torch.py"), 100)


def public_tests(folder, source, *options):
    """Plain pytest in a student's folder: (passed, failed, what it says)."""
    for path, text in starter_files(load_course(ROOT)).items():
        if path.parent.name == TOPIC:
            (folder / path.name).write_text(text)
    (folder / "lstm.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["test_public.py", *options]
    wide = {**os.environ, "COLUMNS": "200"}  # or pytest cuts its summary short
    run = subprocess.run(command, cwd=folder, env=wide, capture_output=True, text=True, check=False)
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", run.stdout)}
    assert not counts.get("error"), run.stdout
    return counts.get("passed", 0), counts.get("failed", 0), run.stdout


@pytest.mark.parametrize(
    "name", ["lstm.py", "variants/einsum_closures/lstm.py", "variants/gate_by_gate/lstm.py"]
)
def test_right_solutions_pass_the_public_tests(tmp_path, name):
    source = (ROOT / "solutions" / TOPIC / name).read_text()
    passed, failed, said = public_tests(tmp_path, source)
    assert failed == 0, said
    assert passed > 20


def test_the_untouched_stub_fails_each_public_test_with_the_name_to_write(tmp_path):
    source = stub(REFERENCE.read_text(), "lstm.py")
    passed, failed, said = public_tests(tmp_path, source, "--tb=line")
    assert passed == 0
    summary = re.findall(r"^FAILED .* - (.*)$", said, re.MULTILINE)
    assert len(summary) == failed
    assert set(summary) == {
        "NotImplementedError: sigmoid",
        "NotImplementedError: LSTMCell.__init__",
        "NotImplementedError: carousel_gradient",
    }


FIRST_FAILURES = {
    "sigmoid_overflows": "test_sigmoid_far_out",
    "h_before_x": "test_step_by_hand",
    "dc_from_next_step_dropped": "test_step_backward_by_hand[dc_prev]",
    "grads_replaced": "test_gradients_add_up",
    "state_not_carried": "test_sequence_in_two_parts",
    "dc_last_ignored": "test_sequence_backward[dx]",
    "writes_into_dc": "test_inputs_are_left_alone",
}


@pytest.mark.parametrize("mistake, test", FIRST_FAILURES.items(), ids=FIRST_FAILURES)
def test_the_first_public_test_to_fail_is_that_of_the_task(tmp_path, mistake, test):
    listed = yaml.safe_load((REFERENCE.parent / "mistakes.yaml").read_text())["mistakes"][mistake]
    right, wrong = listed["replace"].rstrip("\n"), listed["with"].rstrip("\n")
    source = REFERENCE.read_text()
    assert source.count(right) == 1
    _, failed, said = public_tests(tmp_path, source.replace(right, wrong), "-x")
    assert failed == 1
    assert re.search(rf"^FAILED test_public\.py::{re.escape(test)}(?= |$)", said, re.MULTILINE), (
        said
    )
