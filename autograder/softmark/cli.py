"""The command ``softmark``: arguments in, tables and exit codes out."""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from softmark import __version__
from softmark.course import Course, CourseError, Topic, find_course, load_course, load_topic
from softmark.files import write_whole
from softmark.result import Result
from softmark.screen import new_console, print_checks, print_mutants, print_results, print_wrong

if TYPE_CHECKING:
    from softmark.batch import Run

app = typer.Typer(
    help="Grade deep-learning assignments: fast, explained, with the answers out of reach.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
build_app = typer.Typer(
    help="Make what students get from the course's sources.", no_args_is_help=True
)
app.add_typer(build_app, name="build")

OK, LOST_POINTS, BAD_USAGE, GRADER_FAILED = 0, 1, 2, 3
_MAX_SEED = 2**63 - 1

CourseOption = Annotated[
    Path | None,
    typer.Option("--course", help="The course's folder (default: found upwards from here)."),
]
IsolationOption = Annotated[
    str | None,
    typer.Option(
        "--isolation",
        help="The least tier to accept: root, userns, container or plain; "
        "'none' grades even where a guarantee does not hold.",
    ),
]
WorkersOption = Annotated[
    int, typer.Option("--workers", min=1, help="Grading processes (default: one per core).")
]
DayOption = Annotated[
    datetime | None,
    typer.Option("--date", formats=["%Y-%m-%d"], help="What is open then (default: today)."),
]
TopicsOption = Annotated[
    list[str] | None, typer.Option("--topic", help="This topic alone; may be given again.")
]
TopicArgument = Annotated[str | None, typer.Argument(help="A topic, such as 02_lstm.")]


@contextmanager
def _errors() -> Iterator[None]:
    """Every expected error as one clear message and its exit code."""
    from softmark.bench import GraderFault
    from softmark.builders.stub import BuildError
    from softmark.cluster import ClusterUnavailable
    from softmark.intake import IntakeError
    from softmark.isolation.host import ZygoteFailed
    from softmark.isolation.tiers import IsolationRefused
    from softmark.session import SessionFailed

    try:
        yield
    except (CourseError, IntakeError, IsolationRefused, BuildError, ClusterUnavailable) as error:
        _complain(str(error), BAD_USAGE)
    except (GraderFault, SessionFailed, ZygoteFailed) as error:
        _complain(f"the grader itself failed: {error}", GRADER_FAILED)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _complain(f"{place}{error.strerror or error}", GRADER_FAILED)
    except KeyboardInterrupt:
        _complain("stopped; results written so far are kept", 130)


def _complain(message: str, code: int) -> None:
    new_console(stderr=True).print(Text(f"softmark: {message}", style="bold red"), soft_wrap=True)
    raise typer.Exit(code)


def _usage(message: str) -> None:
    _complain(message, BAD_USAGE)


def _open_course(course: Path | None) -> Course:
    return load_course(course if course is not None else find_course(Path.cwd()))


def _check_tier(isolation: str | None) -> None:
    from softmark.isolation.tiers import TIERS, UNPROTECTED

    if isolation is not None and isolation not in (*TIERS, UNPROTECTED):
        _usage(
            f"--isolation: '{isolation}' is no tier; allowed: {', '.join([*TIERS, UNPROTECTED])}"
        )


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Grade deep-learning assignments: fast, explained, with the answers out of reach."""
    if version:
        typer.echo(f"softmark {__version__}")
        raise typer.Exit


# ---- grade -------------------------------------------------------------------------------------


@app.command()
def grade(
    path: Annotated[Path, typer.Argument(help="A submission, or a folder of them.")],
    topic: Annotated[str, typer.Option("--topic", help="The topic, such as 02_lstm.")],
    out: Annotated[Path, typer.Option("--out", help="Where results go: DIR/results/<id>.json.")],
    workers: WorkersOption = os.cpu_count() or 1,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", min=0, max=_MAX_SEED, help="Seed of the inputs (default: fresh and secret)."
        ),
    ] = None,
    isolation: IsolationOption = None,
    shard: Annotated[
        str | None,
        typer.Option("--shard", help="i/n: grade only every n-th submission, from the i-th."),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="cpu, or cuda: take the times of what needs a GPU, too.")
    ] = "cpu",
    require_gpu: Annotated[
        bool,
        typer.Option("--require-gpu", help="Exit 3 where something could not be taken on a GPU."),
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Grade on the Dask scheduler at this address."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print results as JSON lines, no table.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 if any submission lost points.")
    ] = False,
    course: CourseOption = None,
) -> None:
    """Grade one submission or a folder of them."""
    from softmark.batch import Run, grade_all
    from softmark.cluster import grade_on_cluster
    from softmark.intake import find_submissions

    with _errors():
        _check_tier(isolation)
        opened = _open_course(course)
        the_topic = opened.topic(topic)
        if device not in ("cpu", "cuda"):
            _usage(f"--device: '{device}' is neither cpu nor cuda")
        if (device == "cuda" or require_gpu) and not the_topic.timed:
            _usage(f"--device: {topic} has no items for a GPU")
        if device == "cuda" and cluster:
            _usage("--device: times are taken on this machine; leave out --cluster")
        entries = _shard(find_submissions(path, the_topic), shard)
        if not entries:
            _usage(f"--shard: no submission falls into {shard}")
        timed_on = "cuda" if device == "cuda" else None
        run = Run(opened, the_topic, _seed(seed), isolation, timed_on)
        _make_folder(out / "results")
        results: list[Result] = []
        with _progress("grading", quiet=as_json or len(entries) < 2) as advance:
            graded = (
                grade_on_cluster(run, entries, cluster)
                if cluster
                else grade_all(run, entries, workers)
            )
            for result in graded:
                if not results:
                    _write_run(out, run, path, result)
                write_whole(out / "results" / f"{result.student}.json", result.to_json())
                if as_json:
                    typer.echo(json.dumps(json.loads(result.to_json())))
                results.append(result)
                advance(len(results), len(entries))
        _write_scores(out, the_topic, results)
        if not as_json:
            print_results(sorted(results, key=lambda r: r.student), the_topic, out)
    if any(result.faulty for result in results):
        raise typer.Exit(GRADER_FAILED)
    if require_gpu and _not_measured(results, the_topic):
        raise typer.Exit(GRADER_FAILED)
    lost = any(r.score is None or r.score < r.max_score for r in results)
    raise typer.Exit(LOST_POINTS if strict and lost else OK)


def _not_measured(results: list[Result], topic: Topic) -> bool:
    """Whether something that needs a GPU has no score, and says so aloud."""
    said = {i.message for r in results for i in r.items if i.id in topic.timed and i.score is None}
    for message in sorted(said):
        typer.echo(f"--require-gpu: {message}", err=True)
    return bool(said)


def _seed(seed: int | None) -> int:
    return secrets.randbits(63) if seed is None else seed


def _shard(entries: list[tuple[str, Path]], shard: str | None) -> list[tuple[str, Path]]:
    if shard is None:
        return entries
    index, _, count = shard.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        _usage(f"--shard: '{shard}' is not i/n with 1 <= i <= n, as in 2/8")
    return entries[int(index) - 1 :: int(count)]


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _usage(f"--out: {folder} cannot be made: {error.strerror}")


def _write_run(out: Path, run: Run, path: Path, first: Result) -> None:
    """What this batch was graded with: for the instructor, and to grade again alike."""
    record = {
        "topic": run.topic.id,
        "course": str(run.course.folder),
        "submissions": str(path.resolve()),
        "seed": run.seed,
        "isolation": dict(first.isolation),
        "versions": dict(first.versions),
    }
    write_whole(out / "run.json", json.dumps(record, indent=2) + "\n")


def _write_scores(out: Path, topic: Topic, results: list[Result]) -> None:
    """A line a submission, for a spreadsheet; what is not a number yet stays empty."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    parts = [part.title for part in topic.parts]
    table.writerow(["id", "score", "max_score", *parts, "status", "flags"])
    for r in sorted(results, key=lambda r: r.student):
        scores = [r.score, r.max_score, *(part.score for part in r.parts)]
        shown = ["" if score is None else f"{score:g}" for score in scores]
        shown += [""] * (2 + len(parts) - len(shown))
        table.writerow([r.student, *shown, r.status, len(r.flags)])
    write_whole(out / "scores.csv", text.getvalue())


@contextmanager
def _progress(what: str, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A bar on the terminal, to be told how many of how many are done."""
    console = new_console(stderr=True)
    if quiet or not sys.stderr.isatty():
        yield lambda done, of: None
        return
    columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


# ---- check -------------------------------------------------------------------------------------


@app.command()
def check(
    topic: TopicArgument = None,
    twin: Annotated[
        bool, typer.Option("--twin", help="Test the file in PyTorch instead of the others.")
    ] = False,
    github: Annotated[
        bool, typer.Option("--github", help="In a workflow: with a summary and marked lines.")
    ] = False,
) -> None:
    """Run the public tests on your own files."""
    from softmark.check import check_topic
    from softmark.student import find_topic_folder, student_console

    with _student_errors():
        the_topic = load_topic(find_topic_folder(topic, Path.cwd()))
        if github:
            from softmark.github import check_on_github

            well = check_on_github(the_topic, twin)
        else:
            well = check_topic(student_console(), the_topic, twin)
    raise typer.Exit(OK if well else LOST_POINTS)


@app.command()
def pack(topic: TopicArgument = None) -> None:
    """Make the .zip to hand in, and show what will be graded."""
    from softmark.pack import pack_topic
    from softmark.student import find_topic_folder, student_console

    with _student_errors():
        pack_topic(student_console(), load_topic(find_topic_folder(topic, Path.cwd())))


@contextmanager
def _student_errors() -> Iterator[None]:
    """As ``_errors``, without loading the grader: students' commands start fast, on any system."""
    from softmark.student import HandInError

    try:
        yield
    except CourseError as error:
        _complain(str(error), BAD_USAGE)
    except HandInError as error:
        _complain(str(error), LOST_POINTS)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _complain(f"{place}{error.strerror or error}", BAD_USAGE)


# ---- for authors -------------------------------------------------------------------------------


@build_app.command()
def starter(course: CourseOption = None) -> None:
    """Write starter/ anew from the solutions and assignments."""
    from softmark.builders.starter import build_starter

    with _errors():
        opened = _open_course(course)
        for path in build_starter(opened, opened.folder / "starter"):
            typer.echo(os.path.relpath(path))


@build_app.command()
def nbgrader(
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="A topic, such as 02_lstm (default: all).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder to write (default: build/nbgrader).")
    ] = None,
    course: CourseOption = None,
) -> None:
    """Write a course folder for nbgrader, with its settings and source notebooks. It holds solutions."""
    if find_spec("nbgrader") is None:
        _usage("nbgrader is not installed: python -m pip install 'softmark[nbgrader]'")
    from softmark.builders.nbgrader_course import build_nbgrader

    with _errors():
        opened = _open_course(course)
        folder = opened.folder / "build" / "nbgrader" if out is None else out
        for path in build_nbgrader(opened, folder, topic or ()):
            typer.echo(os.path.relpath(path))


@build_app.command()
def otter(
    topic: Annotated[str, typer.Option("--topic", help="The topic, such as 02_lstm.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write. It holds solutions.")],
    isolation: IsolationOption = None,
    course: CourseOption = None,
) -> None:
    """Write a topic's notebook for Otter Assign, and run otter assign on it."""
    if find_spec("otter") is None:
        _usage("Otter is not installed: python -m pip install 'softmark[otter]'")
    from softmark.builders.otter import build_otter

    with _errors():
        _check_tier(isolation)
        for path in build_otter(_open_course(course), topic, out, isolation):
            typer.echo(os.path.relpath(path))


@build_app.command()
def gradescope(
    topic: Annotated[str, typer.Option("--topic", help="The topic, such as 02_lstm.")],
    out: Annotated[Path, typer.Option("--out", help="The .zip to write, for Gradescope alone.")],
    isolation: IsolationOption = None,
    course: CourseOption = None,
) -> None:
    """Write a topic's autograder for Gradescope. It holds the solution and the hidden graders."""
    from softmark.builders.gradescope import build_gradescope

    with _errors():
        _check_tier(isolation)
        build_gradescope(_open_course(course), topic, out, isolation)
        typer.echo(os.path.relpath(out))


@build_app.command()
def template(
    out: Annotated[Path, typer.Option("--out", help="The folder of the repository to write.")],
    day: DayOption = None,
    topic: TopicsOption = None,
    course: CourseOption = None,
) -> None:
    """Write the repository on GitHub that students begin with: starter, engine, workflows."""
    from softmark.builders.template import build_template

    with _errors():
        opened = _open_course(course)
        for path in build_template(opened, out, (day or datetime.now()).date(), topic or ()):
            typer.echo(os.path.relpath(path))


@app.command()
def new(
    topic: Annotated[str, typer.Argument(help="Its name, a number and a word: 05_multihead.")],
    course: CourseOption = None,
) -> None:
    """Write a small topic that works, to be rewritten into another."""
    from softmark.scaffold import new_topic

    with _errors():
        made = new_topic(_open_course(course), topic)
        for path in made.files:
            typer.echo(os.path.relpath(path))
        if made.line:
            typer.echo(f"Add it to course.yaml, under topics:  {made.line}")
            typer.echo("Then: softmark build starter")
        typer.echo(f"Does it hold together? softmark verify {topic}")


@app.command()
def release(
    out: Annotated[Path, typer.Argument(metavar="OUT.zip", help="The .zip to write.")],
    day: DayOption = None,
    topic: TopicsOption = None,
    course: CourseOption = None,
) -> None:
    """Pack what students get: the topics that are open, and the engine to install, without network."""
    from softmark.release import release

    with _errors():
        opened = _open_course(course)
        released = release(opened, out, (day or datetime.now()).date(), topic or ())
        typer.echo(f"{os.path.relpath(out)}: {', '.join(entry.id for entry in released)}")
        for entry in opened.topics:
            if entry not in released and not topic:
                typer.echo(f"not in it: {entry.id}, which opens {entry.opens}")


@app.command()
def verify(
    topic: TopicArgument = None,
    mutants: Annotated[
        str | None,
        typer.Option(
            "--mutants",
            metavar="N|all",
            help="Also grade N mutants of the reference, or all.",
        ),
    ] = None,
    all_pairs: Annotated[
        bool,
        typer.Option("--all-pairs", help="Try every two known mistakes together, not ten of them."),
    ] = False,
    workers: WorkersOption = os.cpu_count() or 1,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, max=_MAX_SEED, help="Seed of the inputs.")
    ] = None,
    isolation: IsolationOption = None,
    course: CourseOption = None,
) -> None:
    """Grade the graders: the reference passes, every known mistake is caught, nothing leaks."""
    from softmark import verify as verification
    from softmark.batch import Run
    from softmark.mutation import run_mutants

    count = None if mutants in (None, "all") else _count_of_mutants(mutants)
    failed: dict[str, list[str]] = {}
    seed = _seed(seed)
    with _errors():
        _check_tier(isolation)
        opened = _open_course(course)
        ids = [topic] if topic else [entry.id for entry in opened.topics]
        for id in ids:
            run = Run(opened, opened.topic(id), seed, isolation)
            with _progress(id) as advance:
                checks = list(verification.verify(run, workers, all_pairs, advance))
            wrong = print_checks(run.topic, checks)
            if mutants is not None:
                whole = verification.full_marks(run)
                with _progress("mutants") as advance:
                    report = run_mutants(run, whole, count, workers, advance)
                wrong += print_mutants(report)
            if wrong:
                failed[id] = wrong
        if failed:
            print_wrong(failed, seed)
    raise typer.Exit(LOST_POINTS if failed else OK)


def _count_of_mutants(text: str) -> int:
    if not text.isdecimal() or not int(text):
        _usage(f"--mutants: '{text}' is neither a number of mutants nor 'all'")
    return int(text)


@app.command()
def doctor() -> None:
    """Show what this machine can do: isolation, tier by tier, and what is missing for more."""
    from softmark import gpu
    from softmark.bench import versions
    from softmark.isolation.tiers import GUARANTEES, Level, supported, survey

    console = new_console()
    console.print(
        ", ".join(f"{k} {v}" for k, v in versions().items()) + f", {os.cpu_count()} cores"
    )
    reason = supported()
    if reason:
        console.print(Text(reason, style="yellow"))
        raise typer.Exit(OK)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("tier", *GUARANTEES, "layers"):
        table.add_column(column)
    remarks: dict[str, None] = {}
    tiers = survey(_private_folders())
    for tier, level in tiers.items():
        if isinstance(level, str):
            table.add_row(tier, *["–"] * len(GUARANTEES), Text(f"not here: {level}", style="dim"))
            continue
        marks = [
            Text("✓", style="green") if level.holds[g] else Text("✗", style="red")
            for g in GUARANTEES
        ]
        table.add_row(tier, *marks, Text(", ".join(level.layers), style="dim"))
        remarks |= dict.fromkeys(f"{tier}: {text}" for text in (*level.notes, *level.breaches))
    console.print(table)
    console.print()
    for name, meaning in GUARANTEES.items():
        console.print(Text(f"{name}: a submission {meaning}", style="dim"))
    for remark in remarks:
        console.print(Text(remark, style="yellow"))
    reached = [(tier, level) for tier, level in tiers.items() if isinstance(level, Level)]
    used = "No tier starts here: hidden grading is refused."
    if reached:
        tier, level = reached[0]
        used = f"Grading here uses '{tier}'."
        lost = [guarantee for guarantee in GUARANTEES if not level.holds[guarantee]]
        if lost:
            used = f"Hidden grading is refused at '{tier}': no guarantee of {' and '.join(lost)}."
    console.print(Text(used, style="bold"))
    card = gpu.look()
    if isinstance(card, str):
        console.print(Text(f"Times on a GPU: not here, {card}.", style="dim"))
        return
    reason = card.unfit()
    console.print(Text(f"Times on a GPU: {reason or f'{card.name}, {card.memory_mb} MB'}."))
    for remark in gpu.remarks(card):
        console.print(Text(f"{card.name}: {remark}.", style="yellow"))


def _private_folders() -> list[Path]:
    """Solutions and graders of the course around here, if there is one."""
    try:
        opened = _open_course(None)
        folders = [(opened.solution(t.id), opened.graders(t.id)) for t in opened.topics]
        return [folder for pair in folders for folder in pair]
    except CourseError:
        return []
