"""`sigmax reproduce`, `sigmax report` and `sigmax demo`: the paper, and an example."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sigmax.cli.app import (
    EngineOptions,
    Reading,
    RetryFailed,
    Settings,
    command_line,
    parse_settings,
    split_names,
)
from sigmax.cli.fit import FitOptions, fit, fit_command
from sigmax.cli.predict import predict
from sigmax.cli.rows import ColumnOptions
from sigmax.cli.terminal import (
    CONTINUES,
    report_errors,
    show_item,
    show_progress,
)
from sigmax.data.deliveries import make_deliveries
from sigmax.errors import InvalidArgumentError, TableFileError
from sigmax.paper import PAPER, paper_experiments
from sigmax.report.tables import ReportTable
from sigmax.runs.experiments import Choice
from sigmax.runs.report import run_experiment, write_report
from sigmax.tables.reading import read_table
from sigmax.tables.writing import write_table

TOY_MODELS = ("nn", "combined", "local")
"""Models of the toy problem in the demo; `sigmax reproduce toy` has all seven."""
TOY_SETTINGS = {"preset": "fast"}
TARGET = "minutes"
N_NEW = 100
"""Number of last rows that are predicted without their targets."""
N_SHOWN = 8

Names = Annotated[str, typer.Option(help="Names, separated by commas; the usual ones by default.")]


@report_errors(CONTINUES)
def reproduce(
    experiment: Annotated[str, typer.Argument(help=f"{', '.join(PAPER[:-1])} or {PAPER[-1]}.")],
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for records and report; by default the experiment's name."),
    ] = None,
    datasets: Names = "",
    methods: Names = "",
    splits: Annotated[
        int, typer.Option(min=0, help="Number of splits, draws, seeds or repeats.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first split.")] = 0,
    acquisitions: Annotated[
        str,
        typer.Option(
            help="For active: variance, epistemic, information, joint-information, clusters,"
            " random."
        ),
    ] = "",
    set_: Settings = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="For moons and images: few steps and rows, minutes on a CPU."),
    ] = False,
    engine: EngineOptions,
    retry_failed: RetryFailed = False,
) -> None:
    """Run an experiment of the paper; resumes a stopped run."""
    if experiment not in PAPER:
        known = ", ".join(PAPER)
        raise InvalidArgumentError(f"No experiment {experiment!r}: choose from {known}.")
    choice = Choice(
        datasets=split_names(datasets),
        methods=split_names(methods),
        n_splits=splits or None,
        seed=seed,
        settings=parse_settings(set_),
        acquisitions=split_names(acquisitions),
        quick=quick,
    )
    run_and_show(experiment, choice, out or Path(experiment), engine, retry_failed=retry_failed)


@report_errors()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder with records of experiments.")],
) -> None:
    """Rebuild the page and the tables of a folder from its records."""
    from sigmax.cli.compare import COMPARISON

    experiments = {**paper_experiments(), COMPARISON.name: COMPARISON}
    show_item(f"Report saved to {write_report(folder, experiments)}")


def run_and_show(
    name: str,
    choice: Choice,
    folder: Path,
    engine: EngineOptions,
    retry_failed: bool = False,
) -> None:
    """Run an experiment with a progress bar; print tables, paths of figures, and failures."""
    with show_progress() as observe:
        experiments = paper_experiments()
        result = run_experiment(
            experiments[name],
            choice,
            folder,
            engine.create(),
            others=experiments,
            observe=observe,
            retry_failed=retry_failed,
        )
    for table in result.tables:
        show_item(table)
    for path in result.figures:
        show_item(f"Picture saved to {path}")
    for record in result.failures:
        show_item(f"failed: {record.task.label}: {record.reason}")
    show_item(f"Report saved to {result.report}")


@report_errors()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for records, tables and pictures.")] = (
        Path("demo")
    ),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data and of the models.")] = 0,
) -> None:
    """Fit and predict a synthetic table, then compare three models on the toy problem."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TableFileError(f"`--out` {out} cannot be created: {error.strerror}.") from error
    deliveries, new, model = out / "deliveries.csv", out / "new.csv", out / "model"
    frame = make_deliveries(seed=seed)
    write_table([frame.iloc[:-N_NEW]], deliveries)
    write_table([frame.iloc[-N_NEW:].drop(columns=TARGET)], new)
    defaults: dict[str, Any] = {"engine": EngineOptions(), "reading": Reading()}
    columns, options = ColumnOptions(target=TARGET), FitOptions(preset="fast", seed=seed)
    show_item(f"$ {fit_command(str(deliveries), columns, options, model, Reading())}")
    fit(str(deliveries), columns, out=model, options=options, force=True, **defaults)
    show_item(f"$ sigmax predict {model} {new}")
    predict(model, [str(new)], overwrite=True, **defaults)
    predicted = read_table(out / "new_predicted.csv")
    show_item(first_rows(predicted, frame[TARGET].iloc[-N_NEW:].tolist()))
    chosen = {"methods": ",".join(TOY_MODELS), "set": TOY_SETTINGS, "out": out / "toy"}
    show_item(f"$ {command_line('reproduce', ['toy'], chosen)}")
    choice = Choice(methods=TOY_MODELS, seed=seed, settings=TOY_SETTINGS)
    run_and_show("toy", choice, out / "toy", EngineOptions())


def first_rows(predicted: Any, truth: list[float]) -> ReportTable:
    """The first predictions with the actual values."""
    names = ["vehicle", "weather", "distance_km", "mean", "lower", "upper"]
    shown = predicted[names].head(N_SHOWN).fillna("").itertuples(index=False)
    rows = [
        [row[0], row[1], f"{row[2]:.1f}", *(f"{number:.1f}" for number in row[3:]), f"{y:.1f}"]
        for row, y in zip(shown, truth, strict=False)
    ]
    return ReportTable(
        title="new deliveries: predicted minutes and 90 % interval",
        header=[*names, "actual"],
        rows=rows,
    )
