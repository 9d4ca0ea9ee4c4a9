"""The command line: each command fills settings, calls one function and shows what came."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import rich.table
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sigmax.errors import InvalidArgumentError, SigmaxError

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
    with clear_errors():
        from sigmax.paper.registry import Choice

        run_experiment("toy", Choice(seed=seed), out)


@app.command()
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="toy, weather, uci, timings, ablation, active, gradients, moons or images."
        ),
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
    with clear_errors():
        from sigmax.paper.registry import Choice

        choice = Choice(
            datasets=split_names(datasets),
            methods=split_names(methods),
            n_splits=splits or None,
            seed=seed,
            settings=dict(map(parse_setting, set_ or [])),
            acquisitions=split_names(acquisitions),
            quick=quick,
        )
        run_experiment(
            experiment,
            choice,
            out or Path(experiment),
            make_engine=lambda: choose_engine(engine, address, workers, device),
            retry_failed=retry_failed,
            device=device,
        )


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder with records of experiments.")],
) -> None:
    """Make the page and the tables of a folder from its records alone."""
    with clear_errors():
        from sigmax.paper.report import write_report

        console.print(f"report: {write_report(folder)}", soft_wrap=True)


def run_experiment(
    name: str,
    choice: Any,
    out: Path,
    *,
    make_engine: Callable[[], Any] | None = None,
    retry_failed: bool = False,
    device: str = "auto",
) -> None:
    """Run what has no record yet, then show tables and pictures and write the report."""
    from sigmax.paper.engines import LocalEngine
    from sigmax.paper.records import FILE_NAME, read_records
    from sigmax.paper.registry import EXPERIMENTS
    from sigmax.paper.report import write_report
    from sigmax.paper.runner import run_tasks

    if name not in EXPERIMENTS:
        raise InvalidArgumentError(f"No experiment {name!r}: choose from {', '.join(EXPERIMENTS)}.")
    experiment = EXPERIMENTS[name]
    tasks = experiment.choose(choice)
    engine = make_engine() if make_engine else LocalEngine()
    make_folder(out)
    kind = "gpu" if device == "gpu" else "cpu"
    try:
        with show_progress() as report:
            records = run_tasks(
                tasks,
                lambda left: experiment.jobs(left, kind),
                out,
                engine,
                retry_failed=retry_failed,
                report=report,
            )
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from here", soft_wrap=True)
        raise typer.Exit(130) from None
    for table in experiment.tables(records):
        console.print(shown(table))
    everything = [r for r in read_records(out / FILE_NAME) if r.task.experiment == name]
    for stem, figure in experiment.figures(everything).items():
        figure.savefig(out / f"{stem}.png", dpi=130)
        console.print(f"picture: {out / f'{stem}.png'}", soft_wrap=True)
    for record in records:
        if record.status == "failed":
            console.print(f"[red]failed:[/] {record.task.label}: {record.reason}", soft_wrap=True)
    console.print(f"report: {write_report(out)}", soft_wrap=True)


def choose_engine(engine: str, address: str | None, workers: int, device: str) -> Any:
    from sigmax.checks import check_choice
    from sigmax.paper.engines import DEVICES, LocalEngine, RayEngine

    check_choice("device", device, DEVICES)
    if check_choice("engine", engine, ("local", "ray")) == "ray":
        return RayEngine(address=address, n_workers=workers, device=device)
    return LocalEngine(n_workers=workers, device=device)


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
def clear_errors() -> Iterator[None]:
    """What sigmax raises on purpose is a message, not a trace."""
    try:
        yield
    except SigmaxError as error:
        console.print(f"[red]error:[/] {error}", soft_wrap=True)
        raise typer.Exit(1) from error


def make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot make the folder: {error}", param_hint="--out") from error
    if not os.access(out, os.W_OK):
        raise typer.BadParameter(f"cannot write to {out}", param_hint="--out")


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


def shown(table: Any) -> rich.table.Table:
    """A table for the terminal."""
    result = rich.table.Table(title=table.title, caption=" ".join(table.notes))
    for i, column in enumerate(table.header):
        result.add_column(column, justify="right" if i else "left", no_wrap=i == 0)
    for row in table.rows:
        result.add_row(*(text.replace("**", "") for text in row))
    return result
