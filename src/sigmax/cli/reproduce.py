"""`sigmax reproduce`, `sigmax report` and `sigmax demo`: the paper, and an example."""

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from sigmax.cli.app import EngineOptions, RetryFailed, Settings, app, parse_settings, split_names
from sigmax.cli.terminal import CONTINUES, report_errors, show_item, show_progress
from sigmax.data.synthetic import make_deliveries
from sigmax.errors import InvalidArgumentError, TableFileError
from sigmax.paper import PAPER, paper_experiments
from sigmax.report.tables import ReportTable
from sigmax.runs.experiments import Choice
from sigmax.runs.report import run_experiment, write_report
from sigmax.tables.reading import read_table
from sigmax.tables.writing import write_table

FIT_OPTIONS = ("--effort", "quick")
TOY_OPTIONS = ("--methods", "nn,combined,local", "--set", "preset=fast")
"""Three models in the demo; `sigmax reproduce toy` has all eight."""
TARGET = "minutes"
N_NEW = 100
"""Number of last rows that are predicted without their targets."""
N_SHOWN = 8

Names = Annotated[str, typer.Option(help="Comma-separated names; by default all usual ones.")]


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
    splits: Annotated[int, typer.Option(min=0, help="Number of splits, draws or repeats.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first split.")] = 0,
    acquisitions: Annotated[
        str,
        typer.Option(
            help="For active: variance, epistemic, information, joint-information, random."
        ),
    ] = "",
    set_: Settings = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="For moons and images: fewer steps and rows, for a few minutes on a CPU.",
        ),
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
    experiments = paper_experiments()
    with show_progress() as observe:
        result = run_experiment(
            experiments[experiment],
            choice,
            out or Path(experiment),
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
def report(
    folder: Annotated[Path, typer.Argument(help="Folder with records of experiments.")],
) -> None:
    """Rebuild the page and the tables of a folder from its recorded results."""
    from sigmax.cli.compare import COMPARISON

    experiments = {**paper_experiments(), COMPARISON.name: COMPARISON}
    show_item(f"Report saved to {write_report(folder, experiments)}")


@report_errors()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for records, tables and pictures.")] = (
        Path("demo")
    ),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data and of the models.")] = 0,
) -> None:
    """Fit and predict a synthetic table; with Matplotlib, also compare models."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TableFileError(f"`--out` {out} cannot be created: {error.strerror}.") from error
    deliveries, new, model = out / "deliveries.csv", out / "new.csv", out / "model"
    frame = make_deliveries(seed=seed)
    write_table([frame.iloc[:-N_NEW]], deliveries)
    write_table([frame.iloc[-N_NEW:].drop(columns=TARGET)], new)
    seeded = ("--seed", seed)
    run_command(
        "fit", deliveries, "--target", TARGET, "--out", model, "--force", *FIT_OPTIONS, *seeded
    )
    run_command("predict", model, new, "--overwrite")
    names = ["vehicle", "weather", "distance_km", "mean", "lower", "upper"]
    shown = read_table(out / "new_predicted.csv")[names].head(N_SHOWN).round(1).fillna("")
    shown["actual"] = frame[TARGET].iloc[-N_NEW:].round(1).to_numpy()[:N_SHOWN]
    title = "new deliveries: predicted minutes and 90 % interval"
    rows = shown.astype(str).to_numpy().tolist()
    show_item(ReportTable(title=title, header=list(shown), rows=rows))
    if find_spec("matplotlib") is None:
        show_item("The toy problem needs Matplotlib: pip install 'sigmax[plots]'.")
    else:
        run_command("reproduce", "toy", "--out", out / "toy", *TOY_OPTIONS, *seeded)


def run_command(*words: object) -> None:
    """Show a command and run it; stop at an error, which the command has printed."""
    texts = list(map(str, words))
    show_item(f"$ {shlex.join(['sigmax', *texts])}")
    if code := app(texts, standalone_mode=False):
        raise typer.Exit(code)
