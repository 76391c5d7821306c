"""The pytest plugin that hidden graders are written with: ``item``, ``script``, ``draw``, ``agree``, ...

A grader builds a Script and hands it to ``agree``, which runs it on the submission and on the
reference and compares, or to ``student`` and ``reference`` for the Traces themselves. Alone, while
graders are being written::

    pytest autograder/graders/02_lstm --submission solutions/02_lstm/lstm.py

In a batch, ``softmark.grader`` runs the same collected tests for one submission after another.
"""

from __future__ import annotations

import inspect
import traceback
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from softmark.script import Script, Trace
from softmark.verdict import Failure

if TYPE_CHECKING:  # this plugin is loaded by every pytest, on any system; a Bench needs Linux
    from softmark.bench import Bench
    from softmark.implementation import Question

BENCH = pytest.StashKey["Bench"]()
"""Where the Bench of a pytest session is kept."""


class Disagreement(AssertionError):
    """The submission's answer is not the reference's."""

    def __init__(self, failure: Failure) -> None:
        super().__init__("\n".join([failure.message, *failure.hints]))
        self.failure = failure


class Slow(AssertionError):
    """What was timed is right and earns a share of its points, from 0 up, for how long it takes."""

    def __init__(self, credit: float, message: str) -> None:
        super().__init__(message)
        self.credit, self.message = credit, message


class Unclear(Exception):
    """What was measured has to be looked at by a person; the message says why."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a rubric item stands on; of these, ``requires`` must be passed for it to count.

    ``claim`` tells that it is passed on what was seen inside the submission's own process.
    ``follow_through``: it asks whether what is built on a mistake is right given that mistake.
    """

    depends: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    claim: bool = False
    follow_through: bool = False


def item(
    id: str,
    depends: str | tuple[str, ...] = (),
    requires: str | tuple[str, ...] = (),
    draws: str = "",
    claim: bool = False,
    follow_through: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Say which rubric item a test belongs to, and which items it stands on.

    Where an item fails and one it ``depends`` on failed too, the student is sent there first. An item
    that says little by itself (zeros are finite and have the right dtype) ``requires`` others: it
    is passed only where these are. Both must come before it in the rubric. ``{name}`` in any of the
    ids is filled in from the test's parameters.

    Tests of one file with the same ``draws`` draw the same inputs. Where their Scripts are the same
    too, they are run once. ``claim``: what the test looks at (warnings, arguments changed in place) is
    reported by the submission's own process, which could lie; results say so.

    A test with ``follow_through`` is run only where the item failed and something it depends on failed
    too. It compares the submission's outputs with each other: the same computation, chained from the
    student's own parts. Where all such tests of the item pass, the item earns the share of its points
    that the rubric states as its ``follow_through``. They must not pass for outputs that are zero or
    do not depend on the inputs.
    """
    mark: Any = pytest.mark.softmark_item(
        id,
        _ids(depends),
        _ids(requires),
        draws=draws,
        claim=claim,
        follow_through=follow_through,
    )
    return mark  # type: ignore[no-any-return]


def _ids(ids: str | Sequence[str]) -> tuple[str, ...]:
    return (ids,) if isinstance(ids, str) else tuple(ids)


def rubric_item(test: pytest.Item) -> tuple[str, Needs] | None:
    """The rubric item of a collected test and what it stands on; None for an unmarked test."""
    mark = test.get_closest_marker("softmark_item")
    if mark is None:
        return None
    parameters = _parameters(test)
    id, depends, requires = mark.args
    filled = [tuple(need.format_map(parameters) for need in needs) for needs in (depends, requires)]
    return id.format_map(parameters), Needs(
        tuple(dict.fromkeys(sum(filled, ()))),
        filled[1],
        mark.kwargs["claim"],
        mark.kwargs["follow_through"],
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("softmark", "grading hidden graders' submissions")
    group.addoption("--submission", metavar="FILE", help="what to grade: a file, folder or archive")
    group.addoption("--course", metavar="DIR", help="the course, where it is not above the graders")
    group.addoption(
        "--grading-seed", type=int, default=0, help="the seed of the inputs (default 0)"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "softmark_item(id, ...): the rubric item of a hidden grader, see softmark.plugin.item",
    )


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest) -> Generator[Bench]:
    """What the tests are run on; made here when pytest runs the graders alone."""
    stash = request.config.stash
    if BENCH in stash:
        yield stash[BENCH]
        return
    with _alone(request) as made:
        yield made


def _alone(request: pytest.FixtureRequest) -> Bench:
    from softmark.bench import Bench, isolate
    from softmark.course import find_course, load_course
    from softmark.intake import read_submission

    option = request.config.getoption
    if not option("--submission"):
        pytest.fail("say what to grade: pytest GRADERS --submission FILE", pytrace=False)
    graders = Path(str(request.session.items[0].path)).parent
    course = load_course(Path(option("--course") or find_course(graders)))
    topic = course.topic(graders.name)
    submission = read_submission(Path(option("--submission")), topic)
    if submission.status != "ready":
        pytest.fail(submission.message, pytrace=False)
    made = Bench(course, topic, option("--grading-seed"), isolate(course, topic.id))
    problem = made.take(submission.files)
    if problem is not None:
        made.close()
        pytest.fail(problem.message, pytrace=False)
    return made


class Draw:
    """Random inputs of one test: the same for every submission of a run, unknown before it."""

    def __init__(self, bench: Bench, name: str) -> None:
        self._bench = bench
        self.rng = np.random.default_rng([bench.seed, zlib.crc32(name.encode())])
        self._start = self.rng.bit_generator.state

    def rewind(self) -> None:
        """Draw the same again from here on; quicker than a new generator."""
        self.rng.bit_generator.state = self._start

    def __call__(self, *shape: int) -> np.ndarray:
        """float64 standard normals of this shape."""
        return self.rng.normal(size=shape)

    def params(self, name: str, *args: Any, **kwargs: Any) -> dict[str, np.ndarray]:
        """Random parameters, named and shaped as those of the reference's ``name(*args)``.

        Matrices are scaled by 1 / sqrt(rows), so that gates do not saturate; vectors have unit scale.
        """
        shapes = self._bench.parameter_shapes(name, args, kwargs)
        return {
            key: self(*shape) / (np.sqrt(shape[0]) if len(shape) > 1 else 1.0)
            for key, shape in shapes.items()
        }


def draw_for(test: pytest.Item, bench: Bench) -> Draw:
    """Inputs from the run's seed and the test's name.

    Tests that differ only in parameters which choose the rubric item draw the same inputs: their
    Scripts are then equal, and each implementation runs them once.
    """
    mark = test.get_closest_marker("softmark_item")
    ids = " ".join([mark.args[0], *mark.args[1], *mark.args[2]]) if mark else ""
    shared = {k: v for k, v in _parameters(test).items() if f"{{{k}}}" not in ids}
    name = f"{getattr(test, 'originalname', test.name)}{sorted(shared.items())}"
    if mark and mark.kwargs["draws"]:
        name = mark.kwargs["draws"]
    return Draw(bench, f"{test.path.name}::{name}")


class Tools:
    """What the fixtures give: ways to ask both implementations."""

    def __init__(self, bench: Bench, known: list[Question] | None = None) -> None:
        """``known``: what the same test asked of an earlier submission, up to the first that it saw of
        it. It asks the same of any other, and packing that takes longer than many a test."""
        self._bench = bench
        self._known = known
        self._asked = 0

    def question(self, run: Script) -> Question:
        """A Script ready to be asked."""
        if self._known is None:
            return self._bench.question(run)
        if self._asked == len(self._known):
            self._known.append(self._bench.question(run))
        self._asked += 1
        return self._known[self._asked - 1]

    @property
    def device(self) -> str:
        """Where ``timed`` runs."""
        return self._bench.device or "cuda"

    def script(self) -> Script:
        """An empty Script of this topic."""
        return Script(self._bench.topic.calls)

    def twin(self) -> Script:
        """An empty Script of the topic's PyTorch twin; the test fails here where none can be run."""
        __tracebackhide__ = True
        assert self._bench.topic.twin is not None, "assignment.yaml names no twin"
        failure = self._bench.twin_failure()
        if failure is not None:  # no inputs need be drawn
            raise Disagreement(failure)
        return Script(self._bench.topic.twin.calls)

    def student(self, run: Script) -> Trace:
        """The submission's Trace, for properties: its outputs have the reference's types, shapes and
        dtypes, else the test fails here."""
        __tracebackhide__ = True
        question = self.question(run)
        self._known = None  # what is asked from here on may hang on the answer
        with _skipping():
            answer = self._bench.student(question)
        if isinstance(answer, Failure):
            raise Disagreement(answer)
        return answer

    def reference(self, run: Script) -> Trace:
        """The reference's Trace."""
        with _skipping():
            return self._bench.reference(self.question(run))

    def timed(self, run: Script, gate: float, full: float, none: float) -> None:
        """Time what comes after ``run.start_clock()`` on a GPU, against the reference.

        ``gate`` is the relative Frobenius error that outputs may have. Up to ``full`` times the
        reference's time earns all points, from ``none`` times on nothing, in between a share. The test
        is skipped, with the reason, where nothing can be measured.
        """
        __tracebackhide__ = True
        from softmark.timing import Bound

        with _skipping():
            verdict = self._bench.timed(self.question(run), gate, Bound(full, none))
        if verdict.status == "failed":
            raise Disagreement(Failure(verdict.message))
        if verdict.status == "invalid":
            raise Unclear(verdict.message)
        if verdict.status == "not_graded":
            pytest.skip(verdict.message)
        if verdict.interval is not None:
            self.measured("time", verdict.interval.middle)
        if verdict.memory is not None:
            self.measured("memory", verdict.memory.ratio)
        if verdict.credit < 1:
            raise Slow(verdict.credit, verdict.message)

    def measured(self, what: str, ratio: float) -> None:
        """Put on record what the submission takes, as a multiple of what the reference takes."""
        self._bench.measured[what] = ratio

    def agree(self, run: Script, only: str | Sequence[str] = ()) -> None:
        """Compare every output of ``run`` with the reference's; ``only`` names some of them.

        Raises ValueError where no output has such a name.
        """
        __tracebackhide__ = True
        self.demand(self.question(run), _named(run, only))

    def demand(self, question: Question, only: tuple[str, ...]) -> None:
        """Raise Disagreement where the outputs in ``only``, or all, differ from the reference's."""
        __tracebackhide__ = True
        try:
            _demand(self._bench, question, only)
        except Disagreement:
            self._known = None  # a test that goes on has seen this
            raise


def _named(run: Script, only: str | Sequence[str]) -> tuple[str, ...]:
    """The names in ``only``, each of which some output has: else nothing would be compared."""
    names = _ids(only)
    outputs = [output for _, _, output in run.outputs()]
    known = {o.name for o in outputs} | {f'{o.name}["{key}"]' for o in outputs for key in o.entries}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no output is named {unknown[0]}; there are {', '.join(sorted(known))}")
    return names


def _demand(bench: Bench, question: Question, only: tuple[str, ...]) -> None:
    __tracebackhide__ = True
    with _skipping():
        failure = bench.judge(question, only)
    if failure is not None:
        raise Disagreement(failure)


@contextmanager
def _skipping() -> Iterator[None]:
    """What cannot be measured here is skipped, and the reason told."""
    from softmark.bench import NotGraded

    try:
        yield
    except NotGraded as error:
        pytest.skip(str(error))


@pytest.fixture
def draw(request: pytest.FixtureRequest, bench: Bench) -> Draw:
    """Random inputs: ``draw(N, D)``, ``draw.params("LSTMCell", D, H, Rng(0))``, ``draw.rng``."""
    return draw_for(request.node, bench)


@pytest.fixture
def script(bench: Bench) -> Callable[[], Script]:
    """``script()`` is an empty Script of this topic."""
    return Tools(bench).script


@pytest.fixture
def twin(bench: Bench) -> Callable[[], Script]:
    """``twin()`` is an empty Script of the topic's PyTorch twin."""
    return Tools(bench).twin


@pytest.fixture
def student(bench: Bench) -> Callable[[Script], Trace]:
    """``student(run)`` is the submission's Trace, of the reference's types, shapes and dtypes."""
    return Tools(bench).student


@pytest.fixture
def reference(bench: Bench) -> Callable[[Script], Trace]:
    """``reference(run)`` is the reference's Trace."""
    return Tools(bench).reference


@pytest.fixture
def agree(bench: Bench) -> Callable[..., None]:
    """``agree(run)`` compares every output of ``run`` with the reference's; ``only`` names some."""
    return Tools(bench).agree


@pytest.fixture
def timed(bench: Bench) -> Callable[..., None]:
    """``timed(run, gate=1e-5, full=1.5, none=4)`` takes the time of ``run`` on a GPU."""
    return Tools(bench).timed


@pytest.fixture
def device(bench: Bench) -> str:
    """Where ``timed`` runs: "cuda", but for tests of this project."""
    return Tools(bench).device


@pytest.fixture
def measured(bench: Bench) -> Callable[[str, float], None]:
    """``measured("memory", 1.3)`` puts on record what a right submission takes, for leaderboards."""
    return Tools(bench).measured


_TOOLS = ("script", "twin", "student", "reference", "agree", "timed", "device", "measured")


def direct_call(test: pytest.Item, bench: Bench) -> Callable[[], None] | None:
    """A way to run a test without pytest's protocol, which costs more than most tests do.

    Only for a plain function that asks for nothing but this plugin's fixtures and its own parameters;
    None for any other, which pytest has to run.
    """
    if not isinstance(test, pytest.Function) or test.cls is not None:
        return None
    marks = list(test.iter_markers())
    ours = {mark.name for mark in marks} <= {"softmark_item", "parametrize"}
    if not ours or any(mark.kwargs.get("indirect") for mark in marks):
        return None
    parameters = _parameters(test)
    wanted = set(inspect.signature(test.obj).parameters)
    if not set(test.fixturenames) <= {*_TOOLS, *parameters, "draw", "bench", "request"}:
        return None
    if wanted & {"bench", "request"}:
        return None
    return _Direct(test, bench, wanted, {k: v for k, v in parameters.items() if k in wanted})


class _Direct:
    """A test as a call of its function.

    Until a test sees something of the submission it does the same for every one. Of a test that asks for
    ``agree`` alone, which never does, what it demands is written down the first time, and from then on
    only the comparing is done. Of others the questions up to the first answer are kept.
    """

    def __init__(
        self, test: pytest.Function, bench: Bench, wanted: set[str], parameters: dict[str, Any]
    ) -> None:
        self._test, self._bench, self._wanted, self._parameters = test, bench, wanted, parameters
        self._demands: list[tuple[Question, tuple[str, ...]]] | None = None
        self._known: list[Question] = []
        self._draw: Draw | None = None

    def __call__(self) -> None:
        if self._demands is not None:
            for question, only in self._demands:
                _demand(self._bench, question, only)
            return
        demands: list[tuple[Question, tuple[str, ...]]] = []
        tools = Tools(self._bench, self._known)

        def agree(run: Script, only: str | Sequence[str] = ()) -> None:
            demands.append((tools.question(run), _named(run, only)))
            tools.demand(*demands[-1])

        if self._draw is None:
            self._draw = draw_for(self._test, self._bench)
        self._draw.rewind()
        arguments: dict[str, Any] = {name: getattr(tools, name) for name in _TOOLS}
        arguments |= {"agree": agree, "draw": self._draw}
        asked = {name: arguments[name] for name in self._wanted if name in arguments}
        self._test.obj(**asked, **self._parameters)
        if not self._wanted & {"student", "reference", "timed", "measured"}:
            self._demands = demands


def _parameters(test: pytest.Item) -> dict[str, Any]:
    return dict(getattr(getattr(test, "callspec", None), "params", {}))


def failure_of(error: BaseException, test: pytest.Item) -> Failure | None:
    """What the error says of the submission; None where it says that the grader is wrong."""
    if isinstance(error, Disagreement):
        return error.failure
    own = any(Path(f.filename) == test.path for f in traceback.extract_tb(error.__traceback__))
    if isinstance(error, AssertionError) and own:
        said = str(error).split("\n")[0]
        about = (getattr(test, "function", test).__doc__ or test.name).strip().split("\n")[0]
        return Failure(said or about)
    return None


ItemTable = Mapping[str, Needs]
"""Every rubric item of the graders, with what it depends on."""


def item_table(tests: Sequence[pytest.Item]) -> ItemTable:
    """Every rubric item that the tests belong to, with what it depends on; follow-through apart."""
    table: dict[str, Needs] = {}
    for test in tests:
        found = rubric_item(test)
        if found is not None and not found[1].follow_through:
            id, needs = found
            before = table.get(id, Needs())
            depends = dict.fromkeys([*before.depends, *needs.depends])
            requires = dict.fromkeys([*before.requires, *needs.requires])
            claim = before.claim or needs.claim
            table[id] = Needs(tuple(depends), tuple(requires), claim)
    return table
