"""From a table to a model with honest scores: `sigmax fit` without the command line."""

import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.checks import check_choice, check_count, check_number
from sigmax.commands.baselines import LinearBaseline, MarginalBaseline
from sigmax.commands.describe import screen
from sigmax.commands.encoding import SimpleEncoding, read_features
from sigmax.commands.folder import NAMES, REPORT, SCORES, write_folder
from sigmax.commands.model_report import Bar, fit_report, no_bar, times_of
from sigmax.commands.score_tables import score_table
from sigmax.commands.scores import Estimate, RowScores, score_model, score_rows
from sigmax.commands.splits import Split, hold_out_rows
from sigmax.distributions import Predictive
from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.estimators import AbstractRegressor
from sigmax.estimators.folds import duplicate_groups
from sigmax.report import HeldOutRows, LearnedRows
from sigmax.runs.fitting import with_settings
from sigmax.runs.methods import METHODS
from sigmax.tables import Schema, Table
from sigmax.tables.names import split_columns
from sigmax.tables.profile import profile_table
from sigmax.tables.targets import check_names, read_target
from sigmax.tables.writing import new_folder
from sigmax.version import __version__

__all__ = ["FitOptions", "FitResult", "fit_table", "write_result"]

FEWEST_ROWS = 10
"""Rows with a target that a fit needs."""

Show = Callable[[Any], None]
"""Takes a line of plain text, a `ReportTable`, or a part of rich."""


@final
@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What to fit, to what, and how to judge it."""

    target: str
    method: str = "local"
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the estimator that differ from the preset's."""
    categories: tuple[str, ...] = ()
    """Columns to take as categories, whatever they look like."""
    numbers: tuple[str, ...] = ()
    """Columns to take as numbers."""
    drop: tuple[str, ...] = ()
    """Columns to leave out."""
    time_column: str | None = None
    """Its last rows are held out; it is learned from unless dropped."""
    group_column: str | None = None
    """Whole groups are held out; it is learned from only if named as category or number."""
    holdout: float = 0.2
    refit: bool = True
    """Whether the model that is kept learns from all rows."""
    conformal: bool = False
    """Whether intervals are conformal, from held-out rows, rather than quantiles."""
    seed: int = 0

    @property
    def intervals(self) -> str:
        """The kind of intervals."""
        return "conformal" if self.conformal else "distribution"

    def check(self) -> None:
        """Refuse what no table could be fitted with."""
        check_choice("--method", self.method, METHODS)
        check_number("--holdout", self.holdout, above=0.0, below=1.0)
        check_count("--seed", self.seed, minimum=0)
        if self.time_column is not None and self.group_column is not None:
            raise InvalidArgumentError(
                "`--time-column` and `--group-column` are two ways to hold out rows: choose one."
            )
        if self.conformal and not METHODS[self.method].is_network:
            raise InvalidArgumentError(
                f"`--conformal` needs members that hold rows out, which {self.method!r} has not."
            )
        if self.target in self.drop:
            raise InvalidArgumentError(f"`--drop`: {self.target!r} is the target.")
        for name in sorted(set(self.categories) & set(self.numbers)):
            raise InvalidArgumentError(f"{name!r} cannot be both `--category` and `--number`.")
        for name in sorted({*self.categories, *self.numbers} & {self.target, *self.drop}):
            raise InvalidArgumentError(f"{name!r} is no feature, so it has no kind to choose.")

    def for_columns(self, columns: Sequence[str]) -> "FitOptions":
        """The same options, with names that were joined by commas apart."""
        names = {
            name: split_columns(getattr(self, name), columns)
            for name in ("categories", "numbers", "drop")
        }
        return replace(self, **names)

    def notes(self) -> list[str]:
        """What becomes of the column by which rows are held out."""
        named = {*self.categories, *self.numbers, *self.drop}
        if self.time_column is not None and self.time_column not in named:
            name = self.time_column
            return [f"{name!r} is also learned from; --drop {name!r} holds out by it alone"]
        if self.group_column is not None and self.group_column not in named:
            name = self.group_column
            return [f"{name!r} is not learned from; --category {name!r} would have it learned"]
        return []

    def create_model(self) -> AbstractRegressor:
        """The estimator, unfitted."""
        settings = dict(self.settings)
        if self.preset is not None:
            settings["preset"] = self.preset
        if self.categories:
            settings["categorical_features"] = list(self.categories)
        if self.numbers:
            settings["numeric_features"] = list(self.numbers)
        model = METHODS[self.method].create(self.seed)
        return with_settings(model, f"The method {self.method!r}", settings)


@final
@dataclass(frozen=True, kw_only=True)
class FitResult:
    """A fitted model, what it was fitted to, and how it did on rows that it had not seen."""

    model: AbstractRegressor
    facts: dict[str, Any]
    scores: dict[str, Any]
    page: str
    """The report, as HTML."""


def fit_table(
    frame: pd.DataFrame,
    options: FitOptions,
    *,
    name: str = "the table",
    show: Show = lambda item: None,
    verbose: bool = False,
    reading: Mapping[str, Any] | None = None,
    bar: Bar = no_bar,
) -> FitResult:
    """Describe a table, fit a model to a part of it, score the rest, and fit it to all rows.

    Parameters
    ----------
    reading
        How the table was read from its file, for the report.
    bar
        Shows how far the report is.

    Raises
    ------
    InvalidDataError, InvalidArgumentError
        If the table or an option cannot be used; nothing has been fitted then.
    """
    options = options.for_columns(list(map(str, frame.columns)))
    options.check()
    data = UsableRows.read(frame, options)
    model = options.create_model()
    table = read_features(data.X, categorical=options.categories, numeric=options.numbers)
    profile = profile_table(
        frame,
        options.target,
        schema=table.schema,
        time_column=options.time_column,
        group_column=options.group_column,
        drop=[column for column in frame.columns if column not in [*data.features, options.target]],
    )
    for part in screen(profile, name):
        show(part)
    for line in options.notes():
        show(line)
    split = hold_out_rows(
        data.frame,
        duplicate_groups(table.values),
        options.holdout,
        time_column=options.time_column,
        group_column=options.group_column,
        seed=options.seed,
    )
    show(f"held out: {len(split.test):,} of {len(data.y):,} rows, {split.how}")
    show(f"fitting {type(model).__name__} to {len(split.train):,} rows")
    seconds = fit_model(model, data.X.iloc[split.train], data.y[split.train], verbose=verbose)
    held_out = score_held_out(model, data, split, table, method=options.intervals)
    scores_table = score_table(held_out.summaries, options.target)
    show(scores_table)
    facts = describe_fit(options, data, table.schema, split, name)
    facts["findings"] = [asdict(finding) for finding in profile.findings]
    with bar("report") as progress:
        page = fit_report(
            model,
            report_rows(model, data, split, held_out, table.schema, options),
            facts=facts,
            scores=scores_table,
            summaries=held_out.summaries,
            profile=profile,
            training=LearnedRows(
                data.y[split.train],
                data.X.iloc[split.train],
                data.numbers[split.train],
            ),
            seconds=seconds,
            settings=model.recipe(),
            reading=reading or {},
        ).page(progress)
    if options.refit:
        show(f"fitting again, to all {len(data.y):,} rows, for the model that is kept")
        fit_model(model, data.X, data.y, verbose=verbose)
    scores = {
        "target": options.target,
        "rows": facts["rows"],
        "split": split.how,
        "seconds_to_fit": round(seconds, 3),
        **{title: to_json(summary) for title, summary in held_out.summaries.items()},
        "crps_difference": {
            title: held_out.rows["model"].less(rows, "crps").to_json()
            for title, rows in held_out.rows.items()
            if title != "model"
        },
    }
    return FitResult(model=model, facts=facts, scores=scores, page=page.to_html())


def write_result(result: FitResult, out: Path, *, force: bool = False) -> None:
    """Write the folder of a model, whole or not at all."""
    texts = {SCORES: json.dumps(result.scores, indent=2) + "\n", REPORT: result.page}
    with new_folder(out, force=force, names=NAMES) as folder:
        write_folder(folder, result.model, result.facts, texts)


@final
@dataclass(frozen=True, eq=False)
class UsableRows:
    """The rows that have a target."""

    frame: pd.DataFrame
    features: list[str]
    y: NDArray[np.float64]
    numbers: NDArray[np.int64]
    """Which rows of the table these are, counted from 1."""

    @classmethod
    def read(cls, frame: pd.DataFrame, options: FitOptions) -> "UsableRows":
        """Check the columns and the target."""
        columns = [str(column) for column in frame.columns]
        for option, names in {
            "--target": [options.target],
            "--drop": options.drop,
            "--category": options.categories,
            "--number": options.numbers,
            "--time-column": [options.time_column] if options.time_column is not None else [],
            "--group-column": [options.group_column] if options.group_column is not None else [],
        }.items():
            check_names(names, columns, option=option)
        y = read_target(frame, options.target)
        has_target = ~np.isnan(y)
        if not has_target.any():
            raise InvalidDataError(
                f"The target {options.target!r} is missing in all {len(frame):,} rows."
            )
        if has_target.sum() < FEWEST_ROWS:
            raise InvalidDataError(
                f"At least {FEWEST_ROWS} rows with a target are needed, got {has_target.sum():,}."
            )
        left_out = {options.target, *options.drop}
        if options.group_column not in {*options.categories, *options.numbers}:
            left_out.add(options.group_column or options.target)
        features = [column for column in columns if column not in left_out]
        if not features:
            raise InvalidDataError("There is no column left to learn from.")
        kept = frame if has_target.all() else frame.loc[has_target].reset_index(drop=True)
        return cls(kept, features, y[has_target], np.flatnonzero(has_target) + 1)

    @property
    def X(self) -> pd.DataFrame:
        return self.frame.filter(items=self.features)


@final
@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out rows, their prediction, and the scores of the model and of plain predictors."""

    y: NDArray[np.float64]
    dist: Predictive
    rows: dict[str, RowScores]

    @property
    def summaries(self) -> dict[str, dict[str, Estimate]]:
        return {title: rows.summary() for title, rows in self.rows.items()}


def score_held_out(
    model: AbstractRegressor,
    data: UsableRows,
    split: Split,
    table: Table,
    *,
    method: str,
) -> HeldOut:
    """Scores of the model and of both plain predictors on the same rows."""
    X, y = data.X.iloc[split.test], data.y[split.test]
    y_train = data.y[split.train]
    dist, scores = score_model(model, X, y, method)
    rows, encoding = {"model": scores}, SimpleEncoding.fit(table[split.train])
    numbers, numbers_train = encoding(table[split.test]), encoding(table[split.train])
    for title, plain in {"marginal": MarginalBaseline(), "linear": LinearBaseline()}.items():
        found = plain.fit(numbers_train, y_train).predict_dist(numbers)
        rows[title] = score_rows(y, found)
    rows = {title: found.together(split.clusters) for title, found in rows.items()}
    return HeldOut(y, dist, rows)


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


def fit_model(model: Any, X: pd.DataFrame, y: NDArray, *, verbose: bool) -> float:
    """Fit, with a progress bar if it is wanted; the seconds that it took."""
    begin = time.perf_counter()
    model.set_params(verbose=int(verbose))
    model.fit(X, y)
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
