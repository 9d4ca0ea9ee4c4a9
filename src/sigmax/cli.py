"""The command line: each command fills settings, calls one function and shows what came."""

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import rich.table
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sigmax.errors import (
    InvalidArgumentError,
    InvalidDataError,
    ModelFileError,
    SigmaxError,
    TableFileError,
    TableFileWarning,
)
from sigmax.runs import PAPER

app = typer.Typer(
    help="Predictive distributions you can trust.", no_args_is_help=True, add_completion=False
)
console = Console()

Out = Annotated[Path, typer.Option(help="Folder for records, tables and pictures.")]
Names = Annotated[str, typer.Option(help="Names, separated by commas; all that is usual if empty.")]
Source = Annotated[
    str, typer.Argument(help="CSV, TSV, Parquet or Excel, also gzipped; - is standard input.")
]
ModelFolder = Annotated[Path, typer.Argument(help="A folder that `sigmax fit` wrote.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the models, as in n_steps=500; may be repeated."),
]
Categories = Annotated[
    list[str] | None, typer.Option(help="Take this column as categories; may be repeated.")
]
Numbers = Annotated[
    list[str] | None, typer.Option(help="Take this column as numbers; may be repeated.")
]
Dropped = Annotated[
    list[str] | None, typer.Option(help="Do not learn from this column; may be repeated.")
]
Workers = Annotated[int, typer.Option(min=1, help="Processes that work at once.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the split and of the models.")]
Delimiter = Annotated[
    str | None, typer.Option(help="Between the cells of a text file; found if left out.")
]
Encoding = Annotated[str | None, typer.Option(help="Of a text file; found if left out.")]
Sheet = Annotated[str | None, typer.Option(help="Of an Excel file; the first if left out.")]
IntervalMethod = Annotated[
    str | None, typer.Option(help="Of the intervals: distribution or conformal; that of the fit.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace a folder that is there already.")]


@app.callback()
def main() -> None:
    """Predictive distributions you can trust: sharp on the data, wide off it."""


@app.command()
def demo(
    out: Out = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data and of the models.")] = 0,
) -> None:
    """From a made-up table to intervals, then the paper's toy problem with three models."""
    with table_errors():
        from sigmax.commands.demo import TOY_MODELS, run_table_demo
        from sigmax.runs.engines import InProcessEngine
        from sigmax.runs.registry import Choice

        run_table_demo(out, seed, show_item)
        toy = f"$ sigmax reproduce toy --methods {','.join(TOY_MODELS)} --out {out / 'toy'}"
        show_item(toy)
    choice = Choice(methods=TOY_MODELS, seed=seed)
    run_and_show("toy", choice, out / "toy", InProcessEngine())


@app.command()
def fit(
    data: Source,
    target: Annotated[str, typer.Option(help="The column to predict.")],
    out: Annotated[Path, typer.Option(help="Folder for the model, its scores and its report.")] = (
        Path("model")
    ),
    time_column: Annotated[
        str | None, typer.Option(help="Hold out the last rows by this column.")
    ] = None,
    group_column: Annotated[
        str | None, typer.Option(help="Hold out whole groups of this column.")
    ] = None,
    holdout: Annotated[float, typer.Option(help="Share of rows to judge the model by.")] = 0.2,
    category: Categories = None,
    number: Numbers = None,
    drop: Dropped = None,
    preset: Annotated[str | None, typer.Option(help="fast, for a cheaper model.")] = None,
    method: Annotated[str, typer.Option(help="local, combined, nn, ens-nn, gp, ...")] = "local",
    no_refit: Annotated[
        bool, typer.Option("--no-refit", help="Keep the model of the training rows.")
    ] = False,
    conformal: Annotated[
        bool, typer.Option("--conformal", help="Intervals with a guarantee, from held-out rows.")
    ] = False,
    seed: Seed = 0,
    set_: Settings = None,
    force: Force = False,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
) -> None:
    """Fit a model to a table, with honest scores of rows that it has not seen."""
    with table_errors():
        from sigmax.commands.fit import FitOptions, fit_table, write_result
        from sigmax.commands.folder import NAMES
        from sigmax.tables.reading import read_table
        from sigmax.tables.writing import check_new_folder

        options = FitOptions(
            target=target,
            method=method,
            preset=preset,
            settings=dict(map(parse_setting, set_ or [])),
            categories=tuple(category or ()),
            numbers=tuple(number or ()),
            drop=tuple(drop or ()),
            time_column=time_column,
            group_column=group_column,
            holdout=holdout,
            refit=not no_refit,
            conformal=conformal,
            seed=seed,
        )
        check_new_folder(out, force=force, names=NAMES)
        frame = read_table(data, delimiter=delimiter, encoding=encoding, sheet=sheet)
        result = fit_table(frame, options, name=short_name(data), show=show_item, verbose=True)
        write_result(result, out, force=force)
    show_item(f"model, scores and report: {out}")


@app.command()
def describe(
    data: Source,
    target: Annotated[str, typer.Option(help="The column to predict.")],
    category: Annotated[
        Columns, typer.Option(help="Take these columns as categories: a,b or repeated.")
    ] = None,
    number: Annotated[
        Columns, typer.Option(help="Take these columns as numbers: a,b or repeated.")
    ] = None,
    drop: Annotated[Columns, typer.Option(help="Leave these columns out: a,b or repeated.")] = None,
    time_column: Annotated[
        str | None, typer.Option(help="The last rows by this column will be held out.")
    ] = None,
    group_column: Annotated[
        str | None, typer.Option(help="Whole groups of this column will be held out.")
    ] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
) -> None:
    """Show what a table holds and what looks wrong with it, before anything is fitted."""
    with table_errors():
        from sigmax.commands.describe import DescribeOptions, describe_file, screen

        options = DescribeOptions(
            target=target,
            categories=tuple(category or ()),
            numbers=tuple(number or ()),
            drop=tuple(drop or ()),
            time_column=time_column,
            group_column=group_column,
        )
        reading = {"delimiter": delimiter, "encoding": encoding, "sheet": sheet}
        found = describe_file(data, options, reading)
        for part in screen(found, short_name(data)):
            console.print(part)


@app.command()
def predict(
    model: ModelFolder,
    data: Source,
    out: Annotated[
        str | None,
        typer.Option(help="CSV or Parquet by its name, - is standard output; beside the data."),
    ] = None,
    coverage: Annotated[float, typer.Option(help="Of the interval from lower to upper.")] = 0.9,
    quantiles: Annotated[str, typer.Option(help="Levels of more columns, as 0.05,0.5,0.95.")] = "",
    method: IntervalMethod = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
) -> None:
    """Add predictions with their uncertainty to the rows of a file."""
    with table_errors():
        from sigmax.commands.folder import load_folder
        from sigmax.commands.predict import PredictOptions, predict_file

        options = PredictOptions(
            coverage=coverage, quantiles=parse_levels(quantiles), method=method
        )
        saved = load_folder(model)
        reading = {"delimiter": delimiter, "encoding": encoding, "sheet": sheet}
        written = predict_file(saved, data, out, options, reading)
        Console(stderr=True).print(escape(f"predictions: {written}"), soft_wrap=True)


@app.command()
def evaluate(
    model: ModelFolder,
    data: Source,
    by: Annotated[str | None, typer.Option(help="Also score every group of this column.")] = None,
    time_column: Annotated[
        str | None, typer.Option(help="Also score ten equal parts by this column.")
    ] = None,
    method: IntervalMethod = None,
    out: Annotated[Path | None, typer.Option(help="A JSON file for all scores.")] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
) -> None:
    """Score a model on labelled rows, all together and by group or time."""
    with table_errors():
        from sigmax.commands.evaluate import EvaluateOptions, evaluate_file
        from sigmax.commands.folder import load_folder

        options = EvaluateOptions(by=by, time_column=time_column, method=method)
        reading = {"delimiter": delimiter, "encoding": encoding, "sheet": sheet}
        found = evaluate_file(load_folder(model), data, options, reading)
        if found.n_left_out:
            show_item(f"left out: {found.n_left_out:,} rows without a target")
        for table in found.tables():
            show_item(table)
        if out is not None:
            out.write_text(json.dumps(found.to_json(), indent=2) + "\n", encoding="utf-8")
            show_item(f"scores: {out}")


@app.command()
def compare(
    data: Source,
    target: Annotated[str, typer.Option(help="The column to predict.")],
    out: Annotated[Path, typer.Option(help="Folder for records and report.")] = Path("comparison"),
    folds: Annotated[int, typer.Option(help="Parts of the rows, each held out once.")] = 5,
    methods: Names = "",
    rank_by: Annotated[str, typer.Option(help="crps or log_likelihood.")] = "crps",
    group_column: Annotated[
        str | None, typer.Option(help="Groups of this column are never divided.")
    ] = None,
    category: Categories = None,
    number: Numbers = None,
    drop: Dropped = None,
    seed: Seed = 0,
    set_: Settings = None,
    workers: Workers = 1,
    retry_failed: Annotated[bool, typer.Option(help="Run failed tasks again.")] = False,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
) -> None:
    """Cross-validate methods on a table and rank them, or go on with a comparison."""
    with table_errors(stopped="stopped; the same command goes on from here"):
        from sigmax.commands.compare import CompareOptions, compare_file
        from sigmax.commands.compare_tables import ranked_table
        from sigmax.runs.engines import LocalEngine

        options = CompareOptions(
            target=target,
            methods=split_names(methods),
            n_folds=folds,
            categories=tuple(category or ()),
            numbers=tuple(number or ()),
            drop=tuple(drop or ()),
            group_column=group_column,
            seed=seed,
            settings=dict(map(parse_setting, set_ or [])),
            rank_by=rank_by,
        )
        reading = {"delimiter": delimiter, "encoding": encoding, "sheet": sheet}
        engine = LocalEngine(n_workers=workers)
        chosen = {"reading": reading, "retry_failed": retry_failed}
        with show_progress() as observe:
            result = compare_file(data, options, out, engine, observe=observe, **chosen)
        show_item(ranked_table(result.records, rank_by))
        for record in result.failures:
            show_item(f"failed: {record.task.label}: {record.reason}")
        show_item(f"report: {result.report}")


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
        str, typer.Option(help="For active: variance, epistemic, information, random.")
    ] = "",
    set_: Settings = None,
    quick: Annotated[
        bool, typer.Option(help="For moons and images: few steps and rows, minutes on a CPU.")
    ] = False,
    engine: Annotated[str, typer.Option(help="local, or ray (an extra).")] = "local",
    address: Annotated[
        str | None, typer.Option(help="A Ray cluster to join; without one, one is started here.")
    ] = None,
    workers: Workers = 1,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    retry_failed: Annotated[bool, typer.Option(help="Run failed tasks again.")] = False,
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
    """Run an experiment, and show its tables, the paths of its figures, and what failed."""
    from sigmax.runs.runner import run_experiment

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


def show_item(item: Any) -> None:
    """A table, or a line of plain text, in which nothing is markup."""
    if isinstance(item, str):
        show_line(escape(item))
    else:
        console.print(as_rich(item))


def short_name(source: str) -> str:
    return "standard input" if source == "-" else Path(source).name


def parse_levels(text: str) -> tuple[float, ...]:
    """Numbers separated by commas."""
    try:
        return tuple(float(level) for level in split_names(text))
    except ValueError as error:
        rule = "numbers between 0 and 1, separated by commas"
        raise InvalidArgumentError(f"`--quantiles` must be {rule}, got {text!r}.") from error


INPUT_ERRORS = (InvalidArgumentError, InvalidDataError, ModelFileError, TableFileError)


@contextmanager
def table_errors(stopped: str = "stopped; nothing was written") -> Iterator[None]:
    """One sentence for what goes wrong: exit code 2 for bad input, 1 for a failed training."""
    code = 1
    try:
        with shown_notes():
            yield
        return
    except INPUT_ERRORS as error:
        text, code = str(error), 2
    except SigmaxError as error:
        text = str(error)
    except OSError as error:
        text, code = f"Cannot read or write: {error}.", 2
    except MemoryError:
        text = "There is not enough memory; fewer rows or columns, or `--preset fast`, may help."
    except KeyboardInterrupt:
        text, code = stopped, 130
    Console(stderr=True).print(f"[red]error:[/] {escape(' '.join(text.split()))}", soft_wrap=True)
    raise typer.Exit(code)


@contextmanager
def shown_notes() -> Iterator[None]:
    """What was read in another way than it stands is told in a line, on standard error."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Any, category: Any, *place: Any) -> None:
            if issubclass(category, TableFileWarning):
                Console(stderr=True).print(f"[yellow]note:[/] {escape(str(message))}")
            else:
                usual(message, category, *place)

        warnings.simplefilter("always", TableFileWarning)
        warnings.showwarning = show
        yield


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
    result = rich.table.Table(title=escape(table.title), caption=escape(" ".join(table.notes)))
    for i, column in enumerate(table.header):
        result.add_column(escape(column), justify="right" if i else "left", no_wrap=i == 0)
    for row in table.rows:
        result.add_row(*(escape(text.replace("**", "")) for text in row))
    return result
