"""Commands for the paper: demo, reproduce, report."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from sigmax.cli.app import app
from sigmax.cli.failures import clear_errors, table_errors
from sigmax.cli.options import (
    Address,
    Device,
    Engine,
    Names,
    RetryFailed,
    Settings,
    Workers,
    parse_setting,
    split_names,
)
from sigmax.cli.showing import show_item, show_line, show_progress, show_share
from sigmax.errors import InvalidArgumentError
from sigmax.runs import PAPER

Out = Annotated[Path, typer.Option(help="Folder for records, tables and pictures.")]


@app.command()
def demo(
    out: Out = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data and of the models.")] = 0,
) -> None:
    """From a made-up table to intervals, then the paper's toy problem with three models."""
    with table_errors():
        from sigmax.commands.demo import TOY_MODELS, make_folder, run_table_demo, start_toy

        make_folder(out)
        wait_for_toy = start_toy(out / "toy", seed)
        run_table_demo(out, seed, show_item, show_share)
        chosen = f"--methods {','.join(TOY_MODELS)} --set preset=fast"
        show_item(f"$ sigmax reproduce toy {chosen} --out {out / 'toy'}")
        show_result(wait_for_toy())


@app.command()
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(help=f"{', '.join(PAPER[:-1])} or {PAPER[-1]}."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for records and report; its name if left out.")
    ] = None,
    datasets: Names = "",
    methods: Names = "",
    splits: Annotated[int, typer.Option(min=0, help="Splits, draws, seeds or repeats.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first of them.")] = 0,
    acquisitions: Annotated[
        str,
        typer.Option(
            help="For active: variance, epistemic, information, joint-information, clusters,"
            " random."
        ),
    ] = "",
    set_: Settings = None,
    quick: Annotated[
        bool, typer.Option(help="For moons and images: few steps and rows, minutes on a CPU.")
    ] = False,
    engine: Engine = "local",
    address: Address = None,
    workers: Workers = 1,
    device: Device = "auto",
    retry_failed: RetryFailed = False,
) -> None:
    """Run an experiment of the paper, or go on with one that was stopped."""
    from sigmax.runs.engines import create_engine
    from sigmax.runs.registry import Choice

    with clear_errors():
        if experiment not in PAPER:
            known = ", ".join(PAPER)
            raise InvalidArgumentError(f"No experiment {experiment!r}: choose from {known}.")
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
    from sigmax.runs.report import write_report

    with clear_errors("FOLDER"):
        show_line(f"report: {write_report(folder)}")


def run_and_show(name: str, choice: Any, out: Path, engine: Any, **options: Any) -> None:
    """Run an experiment with a bar, and show what came."""
    from sigmax.runs.runner import run_experiment

    with clear_errors():
        with show_progress() as observe:
            result = run_experiment(name, choice, out, engine, observe=observe, **options)
        show_result(result)


def show_result(result: Any) -> None:
    """The tables of a run, the paths of its figures, and what failed."""
    for table in result.tables:
        show_item(table)
    for path in result.figures:
        show_item(f"picture: {path}")
    for record in result.failures:
        show_line(f"[red]failed:[/] {escape(f'{record.task.label}: {record.reason}')}")
    show_item(f"report: {result.report}")
