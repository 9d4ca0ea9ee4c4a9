"""Commands for people with a file: describe, fit, predict, evaluate, compare."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from sigmax.cli.app import app
from sigmax.cli.failures import table_errors
from sigmax.cli.options import (
    Address,
    Categories,
    Delimiter,
    Device,
    Dropped,
    Encoding,
    Engine,
    Force,
    GroupColumn,
    IntervalMethod,
    ModelFolder,
    Numbers,
    RetryFailed,
    Seed,
    Settings,
    Sheet,
    Source,
    Target,
    TimeColumn,
    Workers,
    parse_levels,
    parse_setting,
    split_names,
)
from sigmax.cli.showing import short_name, show_item, show_progress, show_share


@app.command()
def describe(
    data: Source,
    target: Target,
    category: Categories = None,
    number: Numbers = None,
    drop: Dropped = None,
    time_column: TimeColumn = None,
    group_column: GroupColumn = None,
    all_: Annotated[bool, typer.Option("--all", help="Show every column of a wide table.")] = False,
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
        for part in screen(found, short_name(data), every_column=all_):
            show_item(part)


@app.command()
def fit(
    data: Source,
    target: Target,
    out: Annotated[Path, typer.Option(help="Folder for the model, its scores and its report.")] = (
        Path("model")
    ),
    time_column: TimeColumn = None,
    group_column: GroupColumn = None,
    holdout: Annotated[float, typer.Option(help="Share of rows to judge the model by.")] = 0.2,
    category: Categories = None,
    number: Numbers = None,
    drop: Dropped = None,
    preset: Annotated[str | None, typer.Option(help="fast, for a cheaper model.")] = None,
    method: Annotated[
        str, typer.Option(help="local, combined, nn, ens-nn, gp, linear, ...")
    ] = "local",
    min_: Annotated[
        float | None, typer.Option("--min", help="Least possible value of the target.")
    ] = None,
    max_: Annotated[
        float | None, typer.Option("--max", help="Greatest possible value of the target.")
    ] = None,
    no_refit: Annotated[
        bool, typer.Option("--no-refit", help="Keep the model of the training rows.")
    ] = False,
    conformal: Annotated[
        bool, typer.Option("--conformal", help="Intervals with a guarantee, from held-out rows.")
    ] = False,
    seed: Seed = 0,
    set_: Settings = None,
    engine: Engine = "local",
    address: Address = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Cores of a Ray that is started here; all of them.")
    ] = None,
    device: Device = "auto",
    force: Force = False,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
) -> None:
    """Fit a model to a table, with honest scores of rows that it has not seen."""
    with table_errors():
        from sigmax.commands.fit import fit_table, write_result
        from sigmax.commands.fit_options import FitOptions
        from sigmax.commands.folder import NAMES
        from sigmax.commands.place import training_place
        from sigmax.commands.usable_rows import read_rows
        from sigmax.tables.writing import check_new_folder

        settings = dict(map(parse_setting, set_ or []))
        if min_ is not None or max_ is not None:
            settings["support"] = (min_, max_)
        options = FitOptions(
            target=target,
            method=method,
            preset=preset,
            settings=settings,
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
        options.check()
        check_new_folder(out, force=force, names=NAMES)
        reading = {"delimiter": delimiter, "encoding": encoding, "sheet": sheet}
        place = training_place(engine, method, address=address, n_workers=workers, device=device)
        frame, many = read_rows(data, options, reading, show_share)
        with place:
            result = fit_table(
                frame,
                options,
                many=many,
                name=short_name(data),
                source=data,
                out=out,
                show=show_item,
                verbose=True,
                reading=reading,
                bar=show_share,
            )
        write_result(result, out, force=force)
    show_item(f"model, scores and report: {out}")


@app.command()
def predict(
    model: ModelFolder,
    data: Annotated[
        list[str],
        typer.Argument(
            help="CSV, TSV, Parquet or Excel, also gzipped; - is standard input. Many files, a"
            " folder or a pattern in quotes become a folder of parts; Parquet also from s3://..."
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            help="CSV or Parquet by its name, - is standard output; beside the data. Of many"
            " files, a folder."
        ),
    ] = None,
    coverage: Annotated[float, typer.Option(help="Of the interval from lower to upper.")] = 0.9,
    quantiles: Annotated[str, typer.Option(help="Levels of more columns, as 0.05,0.5,0.95.")] = "",
    method: IntervalMethod = None,
    engine: Annotated[str, typer.Option(help="Of parts: local, in this process, or ray.")] = (
        "local"
    ),
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster; one on this machine if left out.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Of Ray; one for every core or GPU if left out.")
    ] = None,
    device: Annotated[str, typer.Option(help="Of Ray's workers: auto, cpu or gpu.")] = "auto",
    rows_per_part: Annotated[
        int, typer.Option(min=1, help="At most, where row groups of the files allow it.")
    ] = 262_144,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", "--force", help="Replace an output file; begin a folder of parts anew."
        ),
    ] = False,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
) -> None:
    """Add predictions with their uncertainty to the rows of a file, or of many.

    Of many files a run that was stopped or killed goes on where it was by the same command.
    """
    with table_errors(stopped="stopped; nothing was written"):
        from sigmax.commands.predict import PredictOptions, predict_file
        from sigmax.commands.predict_parts import is_parts

        options = PredictOptions(
            coverage=coverage, quantiles=parse_levels(quantiles), method=method
        )
        options.check()
        reading = {"delimiter": delimiter, "encoding": encoding, "sheet": sheet}
        pool = ray_pool(engine, address, workers, device)
        if pool is None and not is_parts(data, out):
            from sigmax.commands.folder import load_folder

            written, unusual = predict_file(
                load_folder(model), data[0], out, options, reading, overwrite=overwrite
            )
            for line in (*unusual.sentences(), f"predictions: {written}"):
                Console(stderr=True).print(escape(line), soft_wrap=True)
            return
    with table_errors(stopped="stopped; the same command goes on from here"):
        from sigmax.commands.predict_parts import predict_parts

        with show_share("predict") as progress:
            result = predict_parts(
                model,
                data,
                out,
                options,
                reading,
                rows_per_part=rows_per_part,
                pool=pool,
                force=overwrite,
                progress=progress,
            )
        show_item(str(result))


def ray_pool(engine: str, address: str | None, workers: int | None, device: str) -> Any:
    """Workers of a Ray cluster; None for the engine that is this process alone."""
    from sigmax.checks import check_choice
    from sigmax.commands.predict_ray import RayPool
    from sigmax.errors import InvalidArgumentError
    from sigmax.ray_session import DEVICES

    check_choice("--device", device, DEVICES)
    if check_choice("--engine", engine, ("local", "ray")) == "ray":
        return RayPool(address=address, n_workers=workers, device=device)
    if address is not None or workers is not None or device != "auto":
        raise InvalidArgumentError(
            "`--address`, `--workers` and `--device` are of Ray: add `--engine ray`."
        )
    return None


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
    report: Annotated[
        Path | None, typer.Option(help="An HTML file for a page with charts, as that of a fit.")
    ] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
) -> None:
    """Score a model on labelled rows, all together and by group or time."""
    with table_errors():
        from sigmax.commands.describe import caution_line
        from sigmax.commands.evaluate import EvaluateOptions, evaluate_file, evaluation_page
        from sigmax.commands.folder import load_folder
        from sigmax.tables.writing import new_file

        options = EvaluateOptions(by=by, time_column=time_column, method=method)
        options.check()
        reading = {"delimiter": delimiter, "encoding": encoding, "sheet": sheet}
        saved = load_folder(model)
        found = evaluate_file(saved, data, options, reading, keep_rows=report is not None)
        for caution in found.cautions:
            show_item(caution_line(caution))
        if found.verdict:
            show_item(Text(found.verdict, "bold"))
        if found.n_left_out:
            show_item(f"left out: {found.n_left_out:,} rows without a target")
        for table in found.tables():
            show_item(table)
        if out is not None:
            with new_file(out) as stream:
                stream.write((json.dumps(found.to_json(), indent=2) + "\n").encode())
            show_item(f"scores: {out}")
        if report is not None:
            with new_file(report) as stream, show_share("report") as progress:
                others = {"out": out, "report": report, **reading}
                page = evaluation_page(saved, model, data, found, options, others, progress)
                stream.write(page.encode())
            show_item(f"report: {report}")


@app.command()
def compare(
    data: Source,
    target: Target,
    out: Annotated[Path, typer.Option(help="Folder for records and report.")] = Path("comparison"),
    folds: Annotated[int, typer.Option(help="Parts of the rows, each held out once.")] = 5,
    methods: Annotated[
        str,
        typer.Option(
            help="Of local, local-fast, combined, ens-nn, nn, bnn, mc-dropout, gp, sgp, catboost,"
            " ngboost, xgboost-distribution, linear and marginal, separated by commas; all that are"
            " installed if empty."
        ),
    ] = "",
    rank_by: Annotated[str, typer.Option(help="crps or log_likelihood.")] = "crps",
    time_column: Annotated[
        str | None, typer.Option(help="Hold out later rows by this column, fold after fold.")
    ] = None,
    group_column: GroupColumn = None,
    category: Categories = None,
    number: Numbers = None,
    drop: Dropped = None,
    seed: Seed = 0,
    set_: Settings = None,
    engine: Engine = "local",
    address: Address = None,
    workers: Workers = 1,
    device: Device = "auto",
    retry_failed: RetryFailed = False,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
) -> None:
    """Cross-validate methods on a table and rank them, or go on with a comparison."""
    with table_errors(stopped="stopped; the same command goes on from here"):
        from sigmax.commands.compare import CompareOptions, plan_comparison, run_comparison
        from sigmax.commands.compare_tables import ranked_table, ranked_verdict
        from sigmax.runs.engines import create_engine

        options = CompareOptions(
            target=target,
            methods=split_names(methods),
            n_folds=folds,
            categories=tuple(category or ()),
            numbers=tuple(number or ()),
            drop=tuple(drop or ()),
            time_column=time_column,
            group_column=group_column,
            seed=seed,
            settings=dict(map(parse_setting, set_ or [])),
            rank_by=rank_by,
        )
        reading = {"delimiter": delimiter, "encoding": encoding, "sheet": sheet}
        chosen = create_engine(engine, address=address, n_workers=workers, device=device)
        choice = plan_comparison(data, options, reading)
        with show_progress() as observe:
            result = run_comparison(choice, out, chosen, retry_failed=retry_failed, observe=observe)
        show_item(Text(ranked_verdict(result.records), "bold"))
        show_item(ranked_table(result.records, rank_by))
        for record in result.failures:
            show_item(f"failed: {record.task.label}: {record.reason}")
        show_item(f"report: {result.report}")
