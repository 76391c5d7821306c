"""What a person sees on the terminal: a class at a glance."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from softmark.result import ItemResult, Result


def new_console(stderr: bool = False) -> Console:
    """A console of the terminal's width, or of 100 columns where there is none."""
    # a pipe or a file gets a fixed width, so that a log reads like the screen
    width = None if sys.stdout.isatty() else 100
    return Console(stderr=stderr, width=width, highlight=False)


def print_results(results: list[Result], max_score: float, out: Path) -> None:
    """One row a submission: its score and what to look at first; then what was kept apart."""
    console = new_console()
    table = Table(box=None, expand=True, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("submission", overflow="fold", max_width=36)
    table.add_column(f"of {max_score:g}", justify="right")
    table.add_column("what to look at first", ratio=1, overflow="ellipsis", no_wrap=True)
    for result in results:
        style = _style(result)
        table.add_row(
            Text.assemble(result.student, (" ⚑" if result.flags else "", "yellow")),
            Text("held" if result.score is None else f"{result.score:g}", style=style),
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


def _style(result: Result) -> str:
    if result.score is None:
        return "magenta"
    if result.score >= result.max_score:
        return "green"
    return "yellow" if result.score > 0 else "red"


def _headline(result: Result) -> str:
    if result.message:
        return result.message
    failed = [item for item in result.items if item.status != "passed"]
    if not failed:
        return "all items passed"
    first = _most_telling(failed)
    return f"{first.id}: {first.message}"


def _most_telling(items: list[ItemResult]) -> ItemResult:
    """The first item that failed by itself, not for what it stands on."""
    own = [
        item
        for item in items
        if not item.message.startswith(("This stands on", "This counts", "Not run"))
    ]
    return (own or items)[0]
