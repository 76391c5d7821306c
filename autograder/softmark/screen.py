"""What a person sees on the terminal: a class at a glance, and how the graders themselves did."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from softmark.result import ItemResult, Result

if TYPE_CHECKING:  # students see no mutants
    from softmark.course import Topic
    from softmark.mutation import MutationReport
    from softmark.verify import Check

ENOUGH_KILLED = 0.99
"""The share of mutants that graders must notice, of those that are not equivalent."""


def new_console(stderr: bool = False) -> Console:
    """A console of the terminal's width, or of 100 columns where there is none."""
    # a pipe or a file gets a fixed width, so that a log reads like the screen
    width = None if sys.stdout.isatty() else 100
    return Console(stderr=stderr, width=width, highlight=False)


def print_results(results: list[Result], topic: Topic, out: Path) -> None:
    """One row a submission: its score and what to look at first; then what was kept apart."""
    console = new_console()
    table = Table(box=None, expand=True, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("submission", overflow="fold", max_width=36)
    table.add_column(f"of {topic.max_score:g}", justify="right")
    for number, part in enumerate(topic.parts, 1):
        points = sum(
            topic.rubric[id].points for id in part.items if topic.rubric[id].tier == "core"
        )
        table.add_column(f"part {number} of {points:g}", justify="right")
    table.add_column("what to look at first", ratio=1, overflow="ellipsis", no_wrap=True)
    for result in results:
        style = _style(result)
        table.add_row(
            Text.assemble(result.student, (" ⚑" if result.flags else "", "yellow")),
            Text(_points(result.score), style=style),
            *(Text(_points(part.score), style="dim") for part in result.parts),
            *[""] * (len(topic.parts) - len(result.parts)),
            Text(_headline(result), style="dim" if style == "green" else ""),
        )
    console.print(table)
    seconds = sum(result.seconds for result in results)
    isolation = next((result.isolation for result in results if result.isolation), {})
    kept = [name for name, held in isolation.items() if held is True]
    lacking = [name for name, held in isolation.items() if held is False]
    count = "1 submission" if len(results) == 1 else f"{len(results)} submissions"
    lines = [
        f"{count}, {seconds:.1f} s of grading. Isolation '{isolation.get('tier')}': {', '.join(kept)}.",
        f"Results: {out / 'results'}",
    ]
    missing = {i.id for r in results for i in r.items if i.id in topic.timed and i.score is None}
    if missing:
        listed = ", ".join(id for id in topic.timed if id in missing)
        lines.insert(1, f"Not measured, for want of a GPU that is fit for it: {listed}.")
    if any(result.flags for result in results):
        lines.insert(
            1, "⚑ uses or says something that a person may want to look at: see its flags."
        )
    console.print(Text("\n" + "\n".join(lines), style="dim"), soft_wrap=True)
    if lacking:
        said = f"Not kept here: {', '.join(lacking)}. 'softmark doctor' tells more."
        console.print(Text(said, style="bold yellow"), soft_wrap=True)
    if "missing" in isolation:
        console.print(Text(f"Missing: {isolation['missing']}", style="yellow"), soft_wrap=True)
    for fault in dict.fromkeys(i.message for r in results for i in r.items if i.status == "error"):
        console.print(Text(f"grader fault: {fault}", style="bold red"), soft_wrap=True)


def _points(score: float | None) -> str:
    return "held" if score is None else f"{score:g}"


def _style(result: Result) -> str:
    if result.score is None:
        return "magenta"
    if all(item.status == "passed" for item in result.items if item.tier == "core"):
        return "green"
    return "yellow" if result.score > 0 else "red"


def _headline(result: Result) -> str:
    if result.message:
        return result.message
    failed = [item for item in result.items if item.status != "passed"]
    core = [item for item in failed if item.tier == "core" or item.held]
    if not core:
        return "all items passed" if not failed else "all core items passed"
    first = _most_telling(core)
    return f"{first.id}: {first.message}"


def _most_telling(items: list[ItemResult]) -> ItemResult:
    """The first item that failed by itself, not for what it stands on."""
    own = [
        item
        for item in items
        if not item.message.startswith(("This stands on", "This counts", "Not run", "Right given"))
    ]
    return (own or items)[0]


def print_checks(topic: Topic, checks: Iterable[Check]) -> list[str]:
    """A line for each check, the known mistakes in a table; what is wrong, a line each."""
    console = new_console()
    console.print(Text(f"{topic.id}  {topic.title}", style="bold"))
    mistakes: list[Check] = []
    failed = 0
    wrong: list[str] = []
    for check in checks:
        failed += bool(check.problems)
        wrong += [f"{check.title}: {problem}" for problem in check.problems]
        if check.hints:
            mistakes.append(check)
            continue
        if mistakes:
            _print_mistakes(mistakes)
            mistakes = []
        console.print(_marked(check))
        for problem in check.problems:
            console.print(Text(f"    {problem}", style="red"))
    if failed:
        count = "1 check" if failed == 1 else f"{failed} checks"
        console.print(Text(f"{count} failed.", style="bold red"))
    return wrong


def print_wrong(topics: Mapping[str, Sequence[str]], seed: int) -> None:
    """What is wrong with each topic once more, at the end of a long run, and how to see it again."""
    console = new_console()
    for topic, wrong in topics.items():
        console.print(Text(f"{topic} failed", style="bold red"))
        for line in wrong:
            console.print(Text(f"    {line}", style="red"))
        console.print(Text(f"    again: softmark verify {topic} --seed {seed}", style="dim"))


def _print_mistakes(mistakes: list[Check]) -> None:
    """Which hint each known mistake was shown, on how many of the items it lost."""
    console = new_console()
    table = _table("known mistake", "items lost", "own hint", "no hint", "another's")
    for check in mistakes:
        own, none, foreign = check.hints or (0, 0, 0)
        table.add_row(
            _marked(check),
            f"{own + none + foreign}",
            f"{own}" if own else Text("0", style="dim"),
            f"{none}" if none else Text("0", style="dim"),
            Text(f"{foreign}", style="bold red" if foreign else "dim"),
        )
    console.print(table)
    for check in mistakes:
        for problem in check.problems:
            console.print(Text(f"    {check.title}: {problem}", style="red"))


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(first, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _marked(check: Check) -> Text:
    mark = ("✗ ", "red") if check.problems else ("✓ ", "green")
    return Text.assemble(mark, check.title)


def print_mutants(report: MutationReport) -> list[str]:
    """How many mutants the graders noticed, and each that they did not; what is wrong, a line each."""
    console = new_console()
    run = [*report.killed, *report.timed_out]
    count = len(run) + len(report.survived) + len(report.equivalent) + len(report.errors)
    some = "" if count == report.total else f" (a sample of {report.total})"
    console.print(
        f"{count} mutants{some}: {len(report.killed)} killed, {len(report.timed_out)} timed out, "
        f"{len(report.survived)} survived, {len(report.equivalent)} equivalent; "
        f"{report.per_second:.0f} a second"
    )
    for mutant in report.survived:
        console.print(Text(f"survived in {mutant.function}:", style="red"))
        console.print(Text(mutant.diff, style="red"))
    wrong = [
        f"grader fault at the mutant of {verdict.mutant.file}:{verdict.mutant.line} "
        f"({verdict.mutant.after}): {verdict.by}"
        for verdict in report.errors
    ]
    for said in wrong:
        console.print(Text(said, style="bold red"))
    for file, reason in report.skipped.items():
        console.print(Text(f"mutants of {file} were not run: {reason}", style="yellow"))
    if report.score < ENOUGH_KILLED:
        wrong += [f"a mutant of {m.function} survived" for m in report.survived]
    noticed = Text.assemble(
        ("✗ " if wrong else "✓ ", "red" if wrong else "green"),
        f"{report.score:.1%} of the mutants that are not equivalent are noticed; "
        f"{ENOUGH_KILLED:.0%} is asked for",
    )
    console.print(noticed)
    return wrong
