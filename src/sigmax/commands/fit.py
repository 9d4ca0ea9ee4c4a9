"""From a table to a model with honest scores: `sigmax fit` without the command line."""

import json
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.text import Text

from sigmax.commands.describe import caution_line, screen
from sigmax.commands.encoding import read_features
from sigmax.commands.fit_options import FitOptions
from sigmax.commands.folder import NAMES, REPORT, SCORES, write_folder
from sigmax.commands.learned_rows import fingerprint, hash_rows
from sigmax.commands.model_report import (
    Bar,
    fit_command,
    fit_report,
    no_bar,
    saved_training,
    times_of,
)
from sigmax.commands.score_tables import PLAIN_NOTES, score_table
from sigmax.commands.scores import Estimate, RowScores, score_model, score_rows
from sigmax.commands.splits import Split, hold_out_rows
from sigmax.commands.usable_rows import ManyRows, UsableRows
from sigmax.commands.verdict import row_gap, verdict
from sigmax.distributions import Predictive
from sigmax.errors import InvalidCellError
from sigmax.estimators import AbstractRegressor
from sigmax.estimators.folds import duplicate_groups
from sigmax.estimators.stream_fit import fit_stream
from sigmax.report import HeldOutRows
from sigmax.report.cautions import TOO_GOOD, coverage_cautions
from sigmax.tables import Schema
from sigmax.tables.profile import profile_table
from sigmax.tables.writing import new_folder
from sigmax.version import __version__

__all__ = ["FitResult", "fit_table", "write_result"]

Show = Callable[[Any], None]
"""Takes a line of plain text, a `ReportTable`, or a part of rich."""


@final
@dataclass(frozen=True, kw_only=True)
class FitResult:
    """A fitted model, what it was fitted to, and how it did on rows that it had not seen."""

    model: AbstractRegressor
    facts: dict[str, Any]
    scores: dict[str, Any]
    page: str
    """The report, as HTML."""
    linear: AbstractRegressor | None
    """A linear model of the same rows, unless the model is one."""


def fit_table(
    frame: pd.DataFrame,
    options: FitOptions,
    *,
    name: str = "the table",
    source: str | None = None,
    out: Path | None = None,
    show: Show = lambda item: None,
    verbose: bool = False,
    reading: Mapping[str, Any] | None = None,
    bar: Bar = no_bar,
    many: ManyRows | None = None,
) -> FitResult:
    """Describe a table, fit a model to a part of it, score the rest, and fit it to all rows.

    Parameters
    ----------
    many
        All rows, where ``frame`` is a sample of them.
    source, out, reading
        The file of the table, the folder for the result, and how the file was read: the command
        that the report shows.
    bar
        Shows which phase the work is in, and how far.

    Raises
    ------
    InvalidDataError, InvalidArgumentError
        If the table or an option cannot be used; nothing has been fitted then.
    """
    options = options.for_columns(list(map(str, frame.columns)))
    options.check()
    data = UsableRows.read(frame, options)
    model = options.create_model()
    with InvalidCellError.numbered(data.numbers):
        table = read_features(data.X, categorical=options.categories, numeric=options.numbers)
    with bar("checking columns"):
        profile = profile_table(
            frame,
            options.target,
            schema=table.schema,
            time_column=options.time_column,
            group_column=options.group_column,
            drop=[name for name in frame.columns if name not in [*data.features, options.target]],
        )
    for part in screen(profile, name):
        show(part)
    for line in options.notes():
        show(line)
    with InvalidCellError.numbered(data.numbers):
        split = hold_out_rows(
            data.frame,
            duplicate_groups(table.values),
            options.holdout,
            time_column=options.time_column,
            group_column=options.group_column,
            seed=options.seed,
        )
    if many is not None:
        how = f"{split.how}, of a random sample of {len(frame):,} of {many.files.n_rows:,} rows"
        split = replace(split, how=how)
    show(f"held out: {len(split.test):,} of {len(data.y):,} rows, {split.how}")
    n_learned = f"{len(split.train):,} rows" if many is None else "all others, in shards"
    show(f"fitting {type(model).__name__} to {n_learned}")
    seconds = fit_model(model, data, options, split, many, verbose=verbose)
    with bar(f"scoring {len(split.test):,} held-out rows"):
        held_out = score_held_out(model, data, split, options)
        rows = report_rows(model, data, split, held_out, table.schema, options)
    show(Text(held_out.verdict, "bold"))
    for caution in coverage_cautions(int(rows.is_inside.sum()), rows.n_at_end, len(rows)):
        show(caution_line(caution))
    scores_table = score_table(held_out.summaries, options.target)
    show(scores_table)
    facts = describe_fit(options, data, table.schema, split, name)
    if many is not None:
        fitted: Any = model
        counts = {"with_target": many.n_with_target, "train": fitted.n_learned_}
        facts["rows"] |= counts | {"in_files": many.files.n_rows}
        facts["fitted_to"] += ", in shards"
    facts["findings"] = [asdict(finding) for finding in profile.findings]
    with bar("report") as progress:
        page = fit_report(
            model,
            rows,
            facts=facts,
            verdict=held_out.verdict,
            scores=scores_table,
            summaries=held_out.summaries,
            profile=profile,
            training=saved_training(model) if many is not None else data.learned(split.train),
            seconds=seconds,
            settings=model.recipe(),
            command=fit_command(facts["options"], source or name, out, reading or {}),
        ).page(progress)
    for caution in page.warnings:
        if caution.code == TOO_GOOD:
            show(caution_line(caution))
    linear = held_out.plain.get("linear")
    if options.refit:
        n_rows = facts["rows"]["with_target"]
        show(f"Refitting on all {n_rows:,} rows.")
        fit_model(model, data, options, None, many, verbose=verbose)
        linear = None if linear is None else linear.fit(data.X, data.y)
    learned = slice(None) if options.refit else split.train
    hashes = hash_rows(data.X.iloc[learned], data.y[learned], model.features_.schema)
    n_learned = len(hashes) if many is None else facts["rows"]["train"]
    facts["learned_rows"] = fingerprint(hashes, n_learned)
    scores = {
        "target": options.target,
        "rows": facts["rows"],
        "split": split.how,
        "seconds_to_fit": round(seconds, 3),
        "verdict": held_out.verdict,
        **{title: to_json(summary) for title, summary in held_out.summaries.items()},
        "crps_difference": {
            title: held_out.rows["model"].less(rows, "crps").to_json()
            for title, rows in held_out.rows.items()
            if title != "model"
        },
    }
    return FitResult(model=model, facts=facts, scores=scores, page=page.to_html(), linear=linear)


def write_result(result: FitResult, out: Path, *, force: bool = False) -> None:
    """Write the folder of a model, whole or not at all."""
    texts = {SCORES: json.dumps(result.scores, indent=2) + "\n", REPORT: result.page}
    with new_folder(out, force=force, names=NAMES) as folder:
        write_folder(folder, result.model, result.facts, texts, result.linear)


@final
@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out rows, their prediction, and the scores of the model and of plain predictors."""

    y: NDArray[np.float64]
    dist: Predictive
    rows: dict[str, RowScores]
    plain: dict[str, AbstractRegressor]
    """Plain predictors, fitted to the training rows."""

    @property
    def verdict(self) -> str:
        """How the model compares with the best plain predictor, in a sentence."""
        name = list(self.plain)[-1]
        return verdict(row_gap(self.rows["model"], self.rows[name], name))

    @property
    def summaries(self) -> dict[str, dict[str, Estimate]]:
        return {title: rows.summary() for title, rows in self.rows.items()}


def score_held_out(
    model: AbstractRegressor, data: UsableRows, split: Split, options: FitOptions
) -> HeldOut:
    """Scores of the model and of plain predictors on the same rows."""
    X, y = data.X.iloc[split.test], data.y[split.test]
    dist, scores = score_model(model, X, y, options.intervals)
    names = [name for name in PLAIN_NOTES if name != options.method]
    plain = {name: options.create_model(name) for name in names}
    rows = {"model": scores}
    for name, other in plain.items():
        other.fit(data.X.iloc[split.train], data.y[split.train])
        rows[name] = score_rows(y, other.predict_dist(X))
    rows = {name: found.together(split.clusters) for name, found in rows.items()}
    return HeldOut(y, dist, rows, plain)


def report_rows(
    model: AbstractRegressor,
    data: UsableRows,
    split: Split,
    held_out: HeldOut,
    schema: Schema,
    options: FitOptions,
) -> HeldOutRows:
    """The held-out rows as a report takes them."""
    named = {options.group_column, options.time_column, *times_of(schema)}
    return HeldOutRows.predict(
        model,
        data.X.iloc[split.test],
        held_out.y,
        dist=held_out.dist,
        method=options.intervals,
        numbers=data.numbers[split.test],
        columns=data.frame.iloc[split.test].filter(items=[c for c in data.frame if c in named]),
    )


def fit_model(
    model: Any,
    data: UsableRows,
    options: FitOptions,
    split: Split | None,
    many: ManyRows | None,
    *,
    verbose: bool,
) -> float:
    """Fit to all rows, or to those that are not held out; the seconds that it took.

    With a progress bar, if it is wanted.
    """
    begin = time.perf_counter()
    has_bar = "verbose" in model.get_params()
    if has_bar:
        model.set_params(verbose=int(verbose))
    if many is not None:
        fit_stream(model, many.stream(data, options, split))
    elif split is not None:
        model.fit(data.X.iloc[split.train], data.y[split.train])
    else:
        model.fit(data.X, data.y)
    if has_bar:
        model.set_params(verbose=0)
    return time.perf_counter() - begin


def describe_fit(
    options: FitOptions, data: UsableRows, schema: Schema, split: Split, name: str
) -> dict[str, Any]:
    """What the folder says about the model."""
    packages = ("jax", "numpy", "pandas", "scikit-learn")
    versions = {"python": platform.python_version(), "sigmax": __version__}
    return {
        "source": name,
        "target": options.target,
        "features": [{"name": column.name, "kind": column.kind.value} for column in schema],
        "rows": {"with_target": len(data.y), "train": len(split.train), "test": len(split.test)},
        "split": split.how,
        "fitted_to": "all rows" if options.refit else "the training rows",
        "intervals": options.intervals,
        "options": asdict(options),
        "versions": versions | {package: version(package) for package in packages},
    }


def to_json(summary: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: estimate.to_json() for name, estimate in summary.items()}
