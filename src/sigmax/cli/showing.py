"""Lines, tables and bars on the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rich.table
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sigmax.runs.tables import ReportTable

__all__ = [
    "as_rich",
    "console",
    "short_name",
    "show_item",
    "show_line",
    "show_progress",
    "show_share",
]

console = Console()


def show_line(text: str) -> None:
    console.print(text, soft_wrap=True)


def show_item(item: Any) -> None:
    """A line of plain text, in which nothing is markup, a table of results, or a part of rich."""
    if isinstance(item, str):
        show_line(escape(item))
    else:
        console.print(as_rich(item) if isinstance(item, ReportTable) else item)


def short_name(source: str) -> str:
    return "standard input" if source == "-" else Path(source).name


@contextmanager
def show_progress() -> Iterator[Callable[[Any], None]]:
    """A bar of tasks done, with the time left and what was done last."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console) as bar:
        task = bar.add_task("", total=None)

        def show(progress: Any) -> None:
            failed = f", {progress.n_failed} failed" if progress.n_failed else ""
            text = progress.label + failed
            bar.update(task, total=progress.n_tasks, completed=progress.n_done, description=text)

        yield show


@contextmanager
def show_share(name: str) -> Iterator[Callable[[str, float], None]]:
    """A bar of the share of some work that is done, which begins anew for every part of it.

    It moves to and fro while the share is not known, or 0.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    hidden = not console.is_terminal  # an empty line for every bar otherwise
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(name, total=None)

        def show(what: str, share: float) -> None:
            bar.tasks[0].total = 1.0 if share else None
            bar.update(task, completed=share, description=f"{name}: {what}")

        yield show


def as_rich(table: Any) -> rich.table.Table:
    """A table for the terminal."""
    result = rich.table.Table(title=escape(table.title), caption=escape(" ".join(table.notes)))
    for i, column in enumerate(table.header):
        result.add_column(escape(column), justify="right" if i else "left", no_wrap=i == 0)
    for row in table.rows:
        result.add_row(*(escape(text.replace("**", "")) for text in row))
    return result
