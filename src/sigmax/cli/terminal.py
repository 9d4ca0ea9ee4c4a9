"""Terminal output: lines, tables, progress bars, and errors with their exit codes."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import rich.table
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sigmax.errors import (
    DataFileError,
    InvalidArgumentError,
    InvalidDataError,
    ModelFileError,
    RecordFileError,
    SigmaxError,
    TableFileWarning,
    TrainingWarning,
)
from sigmax.report.tables import ReportTable

console = Console()

Bar = Callable[[str], AbstractContextManager[Callable[[str, float], None]]]
"""Opens a progress bar of a name, which is updated with a text and the finished share."""

NOTHING_WRITTEN = "Stopped; nothing was written."
CONTINUES = "Stopped; run the same command again to continue."

BAD_INPUT = (InvalidArgumentError, InvalidDataError, DataFileError, ModelFileError, RecordFileError)
"""Errors of exit code 2, like those of the operating system; failed work has 1."""


@contextmanager
def report_errors(stopped: str = NOTHING_WRITTEN) -> Iterator[None]:
    """Print an error as one sentence and exit with its code; also print warnings in a line."""
    try:
        with warnings.catch_warnings():
            for category in (TableFileWarning, TrainingWarning):
                warnings.simplefilter("always", category)
            warnings.showwarning = partial(show_warning, warnings.showwarning)
            yield
    except typer.Exit:
        raise
    except BrokenPipeError:
        raise typer.Exit(1) from None  # the reader of our output has closed it
    except (Exception, KeyboardInterrupt) as error:
        code = 2 if isinstance(error, BAD_INPUT) else 1
        if isinstance(error, SigmaxError):
            text = str(error)
        elif isinstance(error, OSError):
            path = f" {error.filename}" if error.filename else ""
            code, text = 2, f"Cannot read or write{path}: {error.strerror or error}."
        elif isinstance(error, MemoryError):
            text = "Out of memory. Use fewer rows or columns, or `--effort quick`."
        elif isinstance(error, KeyboardInterrupt):
            code, text = 130, stopped
        elif os.environ.get("SIGMAX_TRACEBACK"):
            raise
        else:
            text = f"{type(error).__name__}: {error} (set SIGMAX_TRACEBACK=1 for the traceback)"
        show_status(f"[red]error:[/] {escape(' '.join(text.split()))}")
        raise typer.Exit(code) from None


def show_warning(usual: Callable[..., None], message: Any, category: Any, *details: Any) -> None:
    """Print a warning about tables and trainings to standard error in a line."""
    if issubclass(category, TableFileWarning | TrainingWarning):
        Console(stderr=True).print(f"[yellow]note:[/] {escape(str(message))}")
    else:
        usual(message, category, *details)


def show_status(text: str) -> None:
    Console(stderr=True).print(text, soft_wrap=True)


def show_item(item: Any) -> None:
    """Print a line of plain text, a `ReportTable`, or a renderable of rich."""
    if isinstance(item, str):
        console.print(escape(item), soft_wrap=True)
    else:
        is_table = isinstance(item, ReportTable)
        console.print(*("", rich_table(item)) if is_table else (item,), sep="\n")


def rich_table(table: ReportTable) -> rich.table.Table:
    result = rich.table.Table(
        title=escape(table.title),
        caption=escape(" ".join(table.notes)),
        box=SIMPLE_HEAD,
        show_edge=False,
    )
    result.padding, result.title_justify, result.caption_justify = (0, 1, 0, 0), "left", "left"
    for i, column in enumerate(table.header):
        cells = [row[i].replace("**", "") for row in table.rows]
        width = max(map(len, cells), default=0)  # headers may wrap
        justify = "right" if i else "left"
        result.add_column(escape(column), justify=justify, min_width=width, overflow="fold")
    for row in table.rows:
        result.add_row(*(escape(text.replace("**", "")) for text in row))
    return result


def short_name(source: str) -> str:
    return "standard input" if source == "-" else Path(source).name


@contextmanager
def show_progress() -> Iterator[Callable[[Any], None]]:
    """A bar of finished tasks, with the remaining time and the last task."""
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
    """A bar of the finished share of each part of the work; it pulses while the share is 0."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    hidden = not console.is_terminal  # an empty line for every bar otherwise
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(name, total=None)

        def show(what: str, share: float) -> None:
            bar.tasks[0].total = 1.0 if share else None
            bar.update(task, completed=share, description=f"{name}: {what}")

        yield show


def no_bar(name: str) -> AbstractContextManager[Callable[[str, float], None]]:
    return nullcontext(lambda what, share: None)
