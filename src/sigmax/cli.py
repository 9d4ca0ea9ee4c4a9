"""The command line: each command fills settings, calls one function and shows what came."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import rich.table
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sigmax.errors import InvalidArgumentError, SigmaxError
from sigmax.paper import EXPERIMENTS

app = typer.Typer(
    help="Predictive distributions you can trust.", no_args_is_help=True, add_completion=False
)
console = Console()

Out = Annotated[Path, typer.Option(help="Folder for records, tables and pictures.")]
Names = Annotated[str, typer.Option(help="Names, separated by commas; all that is usual if empty.")]


@app.callback()
def main() -> None:
    """Predictive distributions you can trust: sharp on the data, wide off it."""


@app.command()
def demo(
    out: Out = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data and of the models.")] = 0,
) -> None:
    """The paper's toy problem: seven models, two pictures, one table, a few minutes."""
    from sigmax.paper.engines import LocalEngine
    from sigmax.paper.registry import Choice

    run_and_show("toy", Choice(seed=seed), out, LocalEngine())


@app.command()
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(help=f"{', '.join(EXPERIMENTS[:-1])} or {EXPERIMENTS[-1]}."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for records and report; its name if left out.")
    ] = None,
    datasets: Names = "",
    methods: Names = "",
    splits: Annotated[int, typer.Option(min=0, help="Splits, draws, seeds or repeats.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first of them.")] = 0,
    acquisitions: Annotated[
        str, typer.Option(help="For active: variance, epistemic, information, random.")
    ] = "",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the models, as in n_steps=500; may be repeated."),
    ] = None,
    quick: Annotated[
        bool, typer.Option(help="For moons and images: few steps and rows, minutes on a CPU.")
    ] = False,
    engine: Annotated[str, typer.Option(help="local, or ray (an extra).")] = "local",
    address: Annotated[
        str | None, typer.Option(help="A Ray cluster to join; without one, one is started here.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that work at once.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    retry_failed: Annotated[bool, typer.Option(help="Run failed tasks again.")] = False,
) -> None:
    """Run an experiment of the paper, or go on with one that was stopped."""
    from sigmax.paper.engines import create_engine
    from sigmax.paper.registry import Choice

    with clear_errors():
        choice = Choice(
            datasets=split_names(datasets),
            methods=split_names(methods),
            n_splits=splits or None,
            seed=seed,
            settings=dict(map(parse_setting, set_ or [])),
            acquisitions=split_names(acquisitions),
            quick=quick,
        )
        chosen = create_engine(engine, address=address, n_workers=workers, device=device)
    out = out or Path(experiment)
    run_and_show(experiment, choice, out, chosen, retry_failed=retry_failed)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder with records of experiments.")],
) -> None:
    """Make the page and the tables of a folder from its records alone."""
    from sigmax.paper.report import write_report

    with clear_errors("FOLDER"):
        show_line(f"report: {write_report(folder)}")


def run_and_show(name: str, choice: Any, out: Path, engine: Any, **options: Any) -> None:
    """Run an experiment, and show its tables, the paths of its figures, and what failed."""
    from sigmax.paper.runner import run_experiment

    with clear_errors():
        with show_progress() as observe:
            result = run_experiment(name, choice, out, engine, observe=observe, **options)
        for table in result.tables:
            console.print(as_rich(table))
        for path in result.figures:
            show_line(f"picture: {path}")
        for record in result.failures:
            show_line(f"[red]failed:[/] {escape(f'{record.task.label}: {record.reason}')}")
        show_line(f"report: {result.report}")


def show_line(text: str) -> None:
    console.print(text, soft_wrap=True)


def split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_setting(text: str) -> tuple[str, Any]:
    """``n_steps=500`` or ``hidden_sizes=[50,50]``: a name, and a value in JSON or a bare word."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidArgumentError(f"`--set` must be of the form name=value, got {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


@contextmanager
def clear_errors(folder: str = "--out") -> Iterator[None]:
    """What sigmax raises on purpose is a message, and so are an interruption and a full disk.

    ``folder`` is the argument that names the folder to write to.
    """
    try:
        yield
    except SigmaxError as error:
        show_line(f"[red]error:[/] {escape(str(error))}")
        raise typer.Exit(1) from error
    except OSError as error:
        raise typer.BadParameter(f"cannot write there: {error}", param_hint=folder) from error
    except KeyboardInterrupt:
        show_line("stopped; the same command goes on from here")
        raise typer.Exit(130) from None


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


def as_rich(table: Any) -> rich.table.Table:
    """A table for the terminal."""
    result = rich.table.Table(title=table.title, caption=" ".join(table.notes))
    for i, column in enumerate(table.header):
        result.add_column(column, justify="right" if i else "left", no_wrap=i == 0)
    for row in table.rows:
        result.add_row(*(text.replace("**", "") for text in row))
    return result
