"""What one mistake costs: follow-through, the hint of a known mistake, answers, and the twin apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_course import TOPIC, grade, items, session, solution, write_course
from softmark.course import CourseError, load_course
from softmark.questions import parse_answers
from softmark.session import Session, SessionFailed
from softmark.yamlfile import CourseError as YamlError

WRONG_STEP = ("return 2 * x + 1", "return 3 * x - 1")


LAST = "  steps.last: {title: two steps, points: 1}\n"
LAST_TEST = """

@item("steps.last", depends="steps.values")
def test_two_steps(script, agree, draw):
    run = script()
    run.call("steps", draw(5), 2)
    agree(run)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_course(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def grading(folder: Path) -> Iterator[Session]:
    with session(folder) as made:
        yield made


def test_right_work_earns_everything(grading: Session, folder: Path) -> None:
    pytest.importorskip("torch")
    result = grade(grading, solution(folder, twin=True))
    assert {i.status for i in result.items} == {"passed"}
    assert result.score == 9.9  # 9 core points; what comes on top is held to 10 % of them
    assert all(not i.mistake and not i.hints for i in result.items)


def test_what_is_right_given_ones_own_mistake_earns_its_share(
    grading: Session, folder: Path
) -> None:
    found = items(grade(grading, solution(folder, WRONG_STEP)))
    assert found["step.values"].status == "failed"
    steps = found["steps.values"]
    assert (steps.status, steps.score) == ("partial", 2)
    assert "step.values" in steps.message and "50% of the points" in steps.message
    # what counts only for right values stays lost
    assert found["steps.quiet"].status == "failed"


def test_of_a_chain_the_first_is_to_be_mended(tmp_path: Path) -> None:
    folder = write_course(tmp_path / "course", twin=False)
    replaced(
        folder, f"assignments/{TOPIC}/assignment.yaml", "  steps.quiet:", f"{LAST}  steps.quiet:"
    )
    graders = folder / "autograder/graders" / TOPIC / "test_small.py"
    graders.write_text(graders.read_text() + LAST_TEST)
    with session(folder) as grading:
        last = items(grade(grading, solution(folder, ("2 * x + 1", "2 * x - 1"))))["steps.last"]
    assert last.message == "This stands on step.values, which is not right yet. Mend that first."


@pytest.mark.parametrize(
    "change",
    [
        ("for _ in range(n):", "for _ in range(n + 1):"),  # wrong by itself, too
        ("return 2 * x + 1\n", "return 0 * x\n"),  # consistent, and empty
    ],
)
def test_no_share_for_what_is_not_right_given_it(
    grading: Session, folder: Path, change: tuple[str, str]
) -> None:
    changes = [change] if "2 * x" in change[0] else [WRONG_STEP, change]
    steps = items(grade(grading, solution(folder, *changes)))["steps.values"]
    assert (steps.status, steps.score) == ("failed", 0)


def test_no_share_where_nothing_before_it_is_wrong(grading: Session, folder: Path) -> None:
    change = ("for _ in range(n):", "for _ in range(min(n, 2)):")  # right for 2 steps, not for 3
    steps = items(grade(grading, solution(folder, change)))["steps.values"]
    assert (steps.status, steps.score) == ("failed", 0)


def test_a_known_mistake_is_named_and_nothing_is_guessed(grading: Session, folder: Path) -> None:
    found = items(grade(grading, solution(folder, ("return 2 * x + 1", "return x + x"))))
    assert found["step.values"].mistake == "one_forgotten"
    assert found["step.values"].hints[0] == "Something is to be added at the end."
    assert not found["steps.values"].mistake  # it is told to mend step.values first
    many = solution(folder, ("for _ in range(n):", "for _ in range(1 + n):"))
    assert items(grade(grading, many))["steps.values"].mistake == "one_step_too_many"
    other = items(grade(grading, solution(folder, WRONG_STEP)))["step.values"]
    assert not other.mistake and "Something is to be added" not in " ".join(other.hints)


def test_a_mistake_of_the_twin_is_named_too(grading: Session, folder: Path) -> None:
    pytest.importorskip("torch")
    files = solution(folder, twin=True)
    files["small_torch.py"] = "def step_torch(x):\n    return x * 0.5 + 1\n"
    result = grade(grading, files)
    assert items(result)["twin.values"].mistake == "twin_halves"
    assert result.score == 9


def test_a_twin_that_is_missing_or_forbidden_costs_itself_alone(
    grading: Session, folder: Path
) -> None:
    result = grade(grading, solution(folder))
    assert result.score == 9
    assert "small_torch.py was not handed in" in items(result)["twin.values"].message
    files = solution(folder)
    files["small_torch.py"] = "import torch\nlayer = torch.nn.Linear(1, 1)\nstep_torch = layer\n"
    result = grade(grading, files)
    assert (result.status, result.score) == ("graded", 9)
    assert "write the product yourself" in items(result)["twin.values"].message
    assert any("torch.nn.Linear" in flag for flag in result.flags)


def test_a_twin_that_cannot_be_imported_says_so(grading: Session, folder: Path) -> None:
    pytest.importorskip("torch")
    files = solution(folder)
    files["small_torch.py"] = "def step_torch(x)\n"
    found = items(grade(grading, files))["twin.values"]
    assert found.status == "failed" and "small_torch.py cannot be imported" in found.message


def test_without_torch_the_twin_is_not_graded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A path finder that knows no torch, as where it is not installed."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "from importlib.machinery import PathFinder\n"
        "class NoTorch(PathFinder):\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        return None if name == 'torch' else PathFinder.find_spec(name, path, target)\n"
        "sys.meta_path = [NoTorch if f is PathFinder else f for f in sys.meta_path]\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with session(folder) as grading:
        result = grade(grading, solution(folder, twin=True))
        found = items(result)["twin.values"]
        assert (found.status, found.score) == ("not_graded", None)
        assert "pip install 'softmark[torch]'" in found.message
        assert result.score is None  # held, as course.yaml has it
        assert grade(grading, solution(folder)).score == 9  # nothing to measure: not held


@pytest.mark.parametrize(
    ("text", "colour", "doubled"),
    [
        ("doubled: 6.05\ncolour: b\n", "", ""),
        ("doubled: 6.0e0\ncolour: (B)\n", "", ""),
        ("Doubled: '6'\ncolour: [b]  # sure\n", "", ""),
        ("doubled: 7\ncolour: a\n", "is not right", "is not right"),
        ("doubled: six\ncolour: c\n", "none of a, b", "not a number"),
        ("doubled: 6,0\ncolour: b or a\n", "none of a, b", "with a point and no unit"),
        ("doubled: .nan\n", "No answer", "not a number"),
        ("doubled: 6\ndoubled: 12\n", "No answer", "'6 and 12' is not a number"),
        # what is no YAML costs itself alone
        ("doubled:6\ncolour: b\n", "", ""),
        ("colour: it is, I think: b\ndoubled: 6\n", "none of a, b", ""),
        ("doubled: {6\ncolour: b\n", "", "not a number"),
        ("doubled:\n", "No answer", "No answer"),
        ("", "No answer", "No answer"),
        ("- 6\n- b\n", "holds no names", "holds no names"),
        ("[" * 9000, "is not YAML", "is not YAML"),
        ("a: &x [1]\nb: *x\ncolour: b\n", "", "No answer"),
        ("x" * 30_000, "far too long", "far too long"),
    ],
)
def test_answers(grading: Session, folder: Path, text: str, colour: str, doubled: str) -> None:
    found = items(grade(grading, {**solution(folder), "answers.yaml": text}))
    for name, said in (("colour", colour), ("doubled", doubled)):
        one = found[f"questions.{name}"]
        assert one.status == ("failed" if said else "passed")
        assert said in one.message
        assert one.message.count("6") <= text.count("6")  # never the right one


def test_answers_that_cannot_be_read_cost_nothing_else(grading: Session, folder: Path) -> None:
    result = grade(grading, {**solution(folder), "answers.yaml": "!!python/object:os.system {}"})
    assert result.score == 7
    assert parse_answers("a: !!python/name:os.system x\n")[0] == {"a": "x"}


def test_quick_grading_stops_at_the_first_loss(grading: Session, folder: Path) -> None:
    wrong = grade(grading, solution(folder, WRONG_STEP, twin=True), quick=True)
    assert [(i.id, i.status) for i in wrong.items] == [("step.values", "failed")]
    # nothing but the twin differs: nothing but the twin is run
    files = solution(folder, twin=True)
    files["small_torch.py"] = files["small_torch.py"].replace("2", "3")
    pytest.importorskip("torch")
    assert [i.id for i in grade(grading, files, quick=True).items] == ["twin.values"]


def replaced(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (
            f"autograder/graders/{TOPIC}/test_small.py",
            ", follow_through=True)\ndef",
            ")\ndef",
            "no test is marked @item('steps.values', follow_through=True)",
        ),
        (
            f"assignments/{TOPIC}/assignment.yaml",
            ", follow_through: 0.5",
            "",
            "needs a 'follow_through: 0.6' in the rubric",
        ),
        (f"solutions/{TOPIC}/answers.yaml", "doubled: 6", "doubled: x", "'x' is not a number"),
        (f"solutions/{TOPIC}/answers.yaml", "colour: b\n", "", "colour: has no answer"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    tmp_path: Path, name: str, old: str, new: str, said: str
) -> None:
    folder = write_course(tmp_path)
    replaced(folder, name, old, new)
    with pytest.raises(SessionFailed) as failed:
        session(folder)
    assert said in str(failed.value)


def test_a_follow_through_that_the_reference_does_not_pass_is_the_graders_fault(
    tmp_path: Path,
) -> None:
    folder = write_course(tmp_path)
    replaced(
        folder, f"autograder/graders/{TOPIC}/test_small.py", "trace[many])", "trace[many] + 1)"
    )
    with session(folder) as grading:
        found = items(grade(grading, solution(folder)))["steps.values"]
    assert found.status == "error" and "does not pass the reference" in found.message


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("assignment.yaml", "file: small_torch.py", "file: other.py", "must be one of 'files'"),
        ("assignment.yaml", "follow_through: 0.5", "follow_through: 1.5", "follow_through"),
        ("assignment.yaml", "  step.values:", "  questions.doubled:", "those of questions.yaml"),
        ("questions.yaml", "    number: {within: 0.01}\n", "", "needs either 'number"),
        ("questions.yaml", "{a: red, b: green}", "{a: red}", "one choice only"),
        ("questions.yaml", "within: 0.01", "within: 3", "within"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(
    tmp_path: Path, name: str, old: str, new: str, said: str
) -> None:
    folder = write_course(tmp_path)
    replaced(folder, f"assignments/{TOPIC}/{name}", old, new)
    with pytest.raises((CourseError, YamlError)) as failed:
        load_course(folder).topic(TOPIC)
    assert said in str(failed.value) and f"{name}:" in str(failed.value)


def test_a_name_that_no_output_has_is_the_grader_s_fault(tmp_path: Path) -> None:
    folder = write_course(tmp_path / "course", twin=False)
    graders = folder / "autograder" / "graders" / TOPIC / "test_small.py"
    text = graders.read_text()
    graders.write_text(
        text.replace(
            'run.call("step", draw(4))\n    agree(run)',
            'run.call("step", draw(4))\n    agree(run, only="z")',
        )
    )
    with session(folder) as grading:
        item = items(grade(grading, solution(folder)))["step.values"]
    assert item.status == "error" and item.score is None
    assert "no output is named z; there are y" in item.message
