"""`sigmax fit`: fit a model to a table, score it on held-out rows, and save it with a report."""

import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, cast, final

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from rich.text import Text

from sigmax.atomic import check_new_folder, new_folder
from sigmax.cli.app import (
    EngineOptions,
    Reading,
    Seed,
    Settings,
    Source,
    parse_settings,
    typed_command,
)
from sigmax.cli.describe import caution_line, describe_frame, screen
from sigmax.cli.peers import PACKAGES
from sigmax.cli.rows import (
    HELD_OUT,
    IN_TURN,
    ColumnOptions,
    ManyRows,
    Split,
    UsableRows,
    fingerprint,
    group_labels,
    hash_rows,
    hold_out_rows,
    read_features,
    read_rows,
    rows_in_turn,
    typical_values,
)
from sigmax.cli.scores import (
    BASELINES,
    LEVELS,
    Estimate,
    Intervals,
    intervals_of,
    score_difference,
    score_rows,
    score_table,
    score_text,
    summary_to_json,
    verdict,
)
from sigmax.cli.terminal import Bar, no_bar, report_errors, short_name, show_item, show_share
from sigmax.distributions import Predictive
from sigmax.errors import InvalidArgumentError, InvalidCellError
from sigmax.estimators import (
    AbstractRegressor,
    LinearRegressor,
    LocalRegressor,
    MarginalRegressor,
    SigmaxRegressor,
)
from sigmax.experts.rows import duplicate_groups
from sigmax.experts.stack import EFFORTS
from sigmax.report import HeldOutRows, ModelReport
from sigmax.report.model_page import TOO_GOOD, coverage_cautions, leaderboard_tables
from sigmax.report.tables import ReportTable, TableCell
from sigmax.report.validation import COVERAGE
from sigmax.runs.methods import METHODS, Method, with_settings
from sigmax.settings import check_choice, check_count, check_number
from sigmax.table_model import (
    FOLDER_NAMES,
    REPORT,
    SCORES,
    SavedTableModel,
    error_values,
    write_folder,
)
from sigmax.tables.profile import Profile
from sigmax.tables.table import Kind, Schema, check_names
from sigmax.version import __version__

# Once an array of this size was freed, glibc keeps up to 62 MiB for others. Otherwise the pages of
# every large matrix are returned to the system, which clears them: a tenth of the time of a fit.
np.empty(31 * 2**20, np.uint8)

FITTED = {
    "linear": Method("linear", lambda seed: LinearRegressor(), is_network=False),
    "marginal": Method("marginal", lambda seed: MarginalRegressor(), is_network=False),
    **METHODS,
}

Show = Callable[[Any], None]
"""Prints a line of plain text, a `ReportTable`, or a renderable of rich."""


@final
@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """Model to fit, held-out share, and kind of intervals."""

    method: Annotated[
        str,
        typer.Option(help=f"One of {', '.join(FITTED)}; sigmax is a stack of experts."),
    ] = "sigmax"
    effort: Annotated[
        str, typer.Option(help="quick (seconds, no networks), default or best (more networks).")
    ] = "default"
    time_limit: Annotated[
        float | None, typer.Option(help="Start no further expert after this many seconds.")
    ] = None
    holdout: Annotated[
        float | None,
        typer.Option(help="Share of rows held out for a separate fit; 0.2 if one is needed."),
    ] = None
    no_refit: Annotated[
        bool, typer.Option("--no-refit", help="Keep the model fitted without the held-out rows.")
    ] = False
    conformal: Annotated[
        bool, typer.Option("--conformal", help="Conformal intervals, from errors on held-out rows.")
    ] = False
    error_column: Annotated[
        str | None,
        typer.Option(help="Column with the standard deviation of each target's measurement error."),
    ] = None
    seed: Seed = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the estimator that differ from the preset."""

    @property
    def intervals(self) -> str:
        return "conformal" if self.conformal else "distribution"

    def check(self) -> None:
        """Raise an error for options that suit no table."""
        if self.method in PACKAGES:
            raise InvalidArgumentError(
                f"`--method`: {self.method} can be compared but not saved, because its package has"
                " its own file format. Fit and save it with that package, or choose another method."
            )
        check_choice("--method", self.method, FITTED)
        check_choice("--effort", self.effort, EFFORTS)
        has_fast = "fast" in FITTED[self.method].create(0).presets
        is_usual = self.effort == "default" or (self.effort == "quick" and has_fast)
        if self.method != "sigmax" and not (is_usual and self.time_limit is None):
            text = f"`--effort {self.effort}`" if not is_usual else "`--time-limit`"
            raise InvalidArgumentError(f"{text} needs `--method sigmax`, not {self.method!r}.")
        if self.error_column is not None and (self.method != "sigmax" or self.conformal):
            text = "`--method sigmax` and no `--conformal`"
            raise InvalidArgumentError(f"`--error-column` needs {text}.")
        if self.holdout is not None:
            check_number("--holdout", self.holdout, above=0.0, below=1.0)
        check_count("--seed", self.seed, minimum=0)
        self.create_model().expert()

    def scores_in_turn(self, columns: ColumnOptions, model: AbstractRegressor) -> bool:
        """True if held-out predictions of one fit are the scores.

        Members of an ensemble of networks hold out different rows: no row has a prediction of all.
        """
        has_split = columns.time_column is not None or columns.group_column is not None
        is_chosen = self.holdout is not None or self.no_refit
        return not (has_split or is_chosen or model.is_network)

    def create_model(self, columns: ColumnOptions | None = None) -> AbstractRegressor:
        chosen: dict[str, Any] = {"time_limit": self.time_limit}
        if self.effort != "default":
            chosen |= {"effort": self.effort} if self.method == "sigmax" else {"preset": "fast"}
        if columns is not None:
            chosen["categorical_features"] = list(columns.categories)
            chosen["numeric_features"] = list(columns.numbers)
        settings = {
            **self.settings,
            **{name: value for name, value in chosen.items() if value not in (None, [])},
        }
        model = FITTED[self.method].create(self.seed)
        return with_settings(model, f"The method {self.method!r}", settings)

    def in_shards(self) -> "FitOptions":
        """Options for more rows than are fitted at once, which `LocalRegressor` reads in shards."""
        effort = "quick" if self.effort == "quick" else "default"
        return replace(self, method="local", effort=effort, time_limit=None)


@report_errors()
def fit(
    data: Source,
    columns: ColumnOptions,
    *,
    out: Annotated[Path, typer.Option(help="Folder for model, scores and report.")] = Path("model"),
    options: FitOptions,
    min_: Annotated[float | None, typer.Option("--min", help="Smallest possible target.")] = None,
    max_: Annotated[float | None, typer.Option("--max", help="Largest possible target.")] = None,
    set_: Settings = None,
    engine: EngineOptions,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing folder.")] = False,
    reading: Reading,
) -> None:
    """Fit a model to a table and score it on held-out rows."""
    settings = {**options.settings, **parse_settings(set_)}
    if min_ is not None or max_ is not None:
        settings["support"] = (min_, max_)
    options = replace(options, settings=settings)
    options.check()
    columns.check()
    check_new_folder(out, force=force, names=FOLDER_NAMES)
    training = nullcontext()
    if engine.uses_ray():
        if not FITTED[options.method].is_network:
            text = f"not {options.method!r}: choose `--method local`."
            raise InvalidArgumentError(f"`--engine ray` trains ensembles of networks, {text}")
        from sigmax.ray_training import on_ray  # which imports JAX

        training = on_ray(engine.address, engine.workers, engine.device)
    is_stack = options.method == "sigmax"
    largest = (LocalRegressor() if is_stack else options.create_model()).largest_at_once
    frame, many = read_rows(
        data, columns, asdict(reading), largest=largest, seed=options.seed, bar=show_share
    )
    if many is not None and is_stack:
        show_item(f"The table has more than {largest:,} rows: fitting LocalRegressor, in shards.")
        options = options.in_shards()
    with training:
        saved, texts = fit_table(
            frame,
            columns,
            options,
            many=many,
            name=short_name(data),
            command=typed_command.get(),
            show=show_item,
            verbose=True,
            bar=show_share,
        )
    with new_folder(out, force=force, names=FOLDER_NAMES) as folder:
        write_folder(folder, saved, texts)
    show_item(f"Saved to {out}/. Open {out / REPORT}")


def fit_table(
    frame: pd.DataFrame,
    columns: ColumnOptions,
    options: FitOptions,
    *,
    name: str = "the table",
    command: str = "",
    show: Show = lambda item: None,
    verbose: bool = False,
    bar: Bar = no_bar,
    many: ManyRows | None = None,
) -> tuple[SavedTableModel, dict[str, str]]:
    """Describe a table, fit a model to all rows, and score its held-out predictions.

    Where these do not suffice, a part of the rows is held out, predicted and then learned from.
    Return the model, and its scores and its report as texts by the names of their files. The report
    shows ``command``; ``many`` are all rows, if ``frame`` is a sample. Errors of the table or the
    options are raised before anything is fitted.
    """
    columns = columns.for_columns(list(map(str, frame.columns)))
    columns.check()
    options.check()
    if options.error_column is not None:
        if options.error_column == columns.target:
            raise InvalidArgumentError("`--error-column` must not be the target.")
        check_names([options.error_column], list(frame.columns), option="--error-column")
        columns = replace(columns, drop=(*columns.drop, options.error_column))
    data = UsableRows.read(frame, columns)
    error = None
    if options.error_column is not None:
        error = error_values(data.frame[options.error_column], data.numbers)
    model = options.create_model(columns)
    with InvalidCellError.numbered(data.numbers):
        table = read_features(data.X, columns)
    with bar("checking columns"):
        used = {*data.features, columns.target}
        unused = tuple(column for column in frame.columns if column not in used)
        profile = describe_frame(frame, replace(columns, drop=unused), table.schema)
    for item in (*screen(profile, name), *columns.split_notes()):
        show(item)
    with InvalidCellError.numbered(data.numbers):
        duplicates = duplicate_groups(table.values)

    def hold_out() -> Split:
        share = options.holdout or HELD_OUT
        with InvalidCellError.numbered(data.numbers):
            found = hold_out_rows(data.frame, duplicates, share, columns, options.seed)
        if many is not None:
            sampled = f", from a random sample of {len(frame):,} of {many.files.n_rows:,} rows"
            found = replace(found, how=found.how + sampled)
        show(f"Held out {len(found.test):,} of {len(data.y):,} rows {found.how}")
        return found

    def train(split: Split | None) -> float:
        """Seconds of a fit to the training rows, or to all rows without a split."""
        begin, has_bar = time.perf_counter(), "verbose" in model.get_params()
        if has_bar:
            model.set_params(verbose=int(verbose))
        if many is not None:
            cast(LocalRegressor, model).fit_stream(many.stream(data, columns, split))
        else:
            rows = np.arange(len(data.y)) if split is None else split.train
            name = columns.group_column
            groups = None if name is None else group_labels(data.frame[name].iloc[rows], 1)
            given = {} if error is None else {"y_error": error[rows]}
            fit_rows(model, data.X.iloc[rows], data.y[rows], groups, **given)
        if has_bar:
            model.set_params(verbose=0)
        return time.perf_counter() - begin

    def fit_scored(split: Split | None) -> tuple[float, dict[str, AbstractRegressor]]:
        n_train = f"{len(data.y) if split is None else len(split.train):,} rows"
        n_train = n_train if many is None else "all other rows, in shards"
        show(f"Fitting {type(model).__name__} to {n_train}")
        seconds = train(split)
        rows = slice(None) if split is None else split.train
        others = {
            name: FitOptions(method=name, seed=options.seed).create_model(columns)
            for name in BASELINES
            if name != options.method
        }
        return seconds, {k: one.fit(data.X.iloc[rows], data.y[rows]) for k, one in others.items()}

    in_turn = many is None and options.scores_in_turn(columns, model)
    split = None if in_turn else hold_out()
    seconds, baselines = fit_scored(split)
    if split is None:
        fitted = [one.model_.fitted for one in (model, *baselines.values())]
        split = rows_in_turn([one.held_out.row for one in fitted], duplicates)
        if split is None:  # too few
            split = hold_out()
            seconds, baselines = fit_scored(split)
        else:
            show(f"Scored on {len(split.test):,} of {len(data.y):,} rows, {split.how}")
    with bar(f"scoring {len(split.test):,} held-out rows"):
        y, clusters = data.y[split.test], split.clusters
        dist, intervals, gate = predict_test(model, data, split, options.intervals, error)
        row_scores = {"model": score_rows(y, dist, intervals)}
        for title, other in baselines.items():
            row_scores[title] = score_rows(y, predict_test(other, data, split)[0])
        row_scores = {k: replace(found, clusters=clusters) for k, found in row_scores.items()}
        summaries = {title: found.summary() for title, found in row_scores.items()}
        best = list(baselines)[-1]
        sentence = verdict(score_difference(row_scores["model"], row_scores[best], best))
        named = {columns.group_column, columns.time_column, first_time_column(table.schema)}
        rows = HeldOutRows.create(
            *(data.X.iloc[split.test], y, dist, intervals(COVERAGE), gate),
            numbers=data.numbers[split.test],
            columns=data.frame.iloc[split.test].filter(items=[c for c in data.frame if c in named]),
        )
    show(Text(sentence, "bold"))
    for caution in coverage_cautions(int(rows.is_inside.sum()), rows.n_at_end, len(rows)):
        show(caution_line(caution))
    scores_shown = score_table(f"Scores of {columns.target} on held-out rows", summaries)
    for shown in (scores_shown, *leaderboard_tables(model)):
        show(shown)
    metadata = fit_metadata(columns, options, data, profile, split, name, typical_values(table))
    if many is not None:
        metadata["rows"] |= {
            "with_target": many.n_with_target,
            "train": cast(LocalRegressor, model).n_learned_,
            "in_files": many.files.n_rows,
        }
        metadata["fitted_to"] += ", in shards"
    with bar("report"):
        report = fit_report(
            SavedTableModel(model, metadata),
            rows,
            summaries["model"],
            profile,
            seconds,
            scores=[scores_shown],
            verdict=sentence,
            training=data.learned(split.train) if many is None else None,
            command=command,
        )
        page, metadata["important"] = report.page(), report.order
    for caution in page.warnings:
        if caution.code == TOO_GOOD:
            show(caution_line(caution))
    linear: Any = baselines.get("linear")
    learned = split.train
    if not (split.how == IN_TURN or options.no_refit):
        show(f"Refitting on all {metadata['rows']['with_target']:,} rows.")
        train(None)
        linear = None if linear is None else linear.fit(data.X, data.y)
        learned = np.arange(len(data.y))
    saved = SavedTableModel(model, metadata, linear)
    n_learned = len(learned) if many is None else metadata["rows"]["train"]
    hashes = hash_rows(data.X.iloc[learned], data.y[learned], saved.schema)
    metadata["learned_rows"] = fingerprint(hashes, n_learned)
    scores = {
        "target": columns.target,
        "rows": metadata["rows"],
        "split": split.how,
        "seconds_to_fit": round(seconds, 3),
        "verdict": sentence,
        **{title: summary_to_json(summary) for title, summary in summaries.items()},
        "crps_difference": {
            title: row_scores["model"].minus(row_scores[title], "crps").to_json()
            for title in baselines
        },
    }
    return saved, {SCORES: json.dumps(scores, indent=2) + "\n", REPORT: page.to_html()}


def fit_rows(model: Any, X: Any, y: NDArray[np.float64], groups: Any, **given: Any) -> None:
    """Fit; a stack weighs its experts by how well they predict other groups, if there are any."""
    if isinstance(model, SigmaxRegressor) and groups is not None and len(np.unique(groups)) > 1:
        model.fit(X, y, groups=groups, **given)
    else:
        model.fit(X, y, **given)


def predict_test(
    model: AbstractRegressor,
    data: UsableRows,
    split: Split,
    method: str = "distribution",
    error: NDArray[np.float64] | None = None,
) -> tuple[Predictive, Intervals, NDArray[np.float64] | None]:
    """Densities of the test rows, bounds (n, 2) of the intervals of a level, and the gate."""
    if split.how != IN_TURN:
        X = data.X.iloc[split.test]
        dist, gate = model.predict_dist_and_gate(X)
        if error is not None and isinstance(model, SigmaxRegressor):
            dist = model.predict_dist(X, y_error=error[split.test])
        return dist, intervals_of(model, X, dist, method), gate
    row, gate = model.model_.fitted.held_out.row, model.model_.fitted.held_out.gate
    order = np.argsort(row)
    at = order[np.searchsorted(row[order], split.test)]
    dist, gate = model.model_.held_out()[at], None if gate is None else gate[at]
    intervals = dist.interval
    if method == "conformal":
        intervals = lambda level: model.model_.held_out_interval(level)[at]  # noqa: E731
    return dist, cache(intervals), gate


def fit_report(
    saved: SavedTableModel,
    rows: HeldOutRows,
    summary: Mapping[str, Estimate],
    profile: Profile,
    seconds: float,
    **details: Any,
) -> ModelReport:
    metadata, name = saved.metadata, type(saved.model).__name__
    counts, split, source = metadata["rows"], metadata["split"], metadata["source"]
    n_rows = counts.get("in_files", profile.n_rows)  # the profile may describe a sample
    n_without = n_rows - counts["with_target"]
    left_out = f", {n_without:,} without a target left out" * bool(n_without)
    if split == IN_TURN:
        fitted = [("model", f"{name}, fitted to all rows")]
        tested = f"{counts['test']:,} of them, {split}"
    else:
        fitted = [
            ("model", f"{name}, fitted to {counts['train']:,} rows for this page"),
            ("final model", f"fitted to {metadata['fitted_to']}"),
        ]
        tested = f"{counts['test']:,} others {split}"
    return model_report(
        saved,
        source,
        rows,
        summary,
        method=saved.intervals,
        about_rows=[
            ("table", f"{source}, {n_rows:,} rows{left_out}"),
            ("test rows", f"{counts['test']:,} of {counts['with_target']:,}, {split}"),
            *fitted,
            ("seconds to fit", f"{seconds:.1f}"),
        ],
        subtitle=f"Trained on {counts['train']:,} rows, tested on {tested}",
        schema=profile.schema,
        findings=profile.findings,
        group_column=saved.group_column,
        time_column=metadata["options"]["time_column"] or first_time_column(profile.schema),
        are_grouped=saved.group_column is not None,
        about=[columns_table(profile)],
        **details,
    )


def fit_metadata(
    columns: ColumnOptions,
    options: FitOptions,
    data: UsableRows,
    profile: Profile,
    split: Split,
    name: str,
    typical: Mapping[str, float | str | None],
) -> dict[str, Any]:
    packages = ("jax", "numpy", "pandas", "scikit-learn")
    versions = {"python": platform.python_version(), "sigmax": __version__}
    return {
        "source": name,
        "target": columns.target,
        "features": [
            {"name": column.name, "kind": column.kind.value, "typical": typical[column.name]}
            for column in profile.schema
        ],
        "rows": {"with_target": len(data.y), "train": len(split.train), "test": len(split.test)},
        "split": split.how,
        "fitted_to": "the training rows" if options.no_refit else "all rows",
        "intervals": options.intervals,
        "options": {
            name: value
            for name, value in (asdict(columns) | asdict(options)).items()
            if name != "error_column" or value is not None
        },
        "versions": versions | {package: version(package) for package in packages},
        "findings": [asdict(finding) for finding in profile.findings],
    }


def model_report(
    saved: SavedTableModel,
    source: str,
    rows: HeldOutRows,
    summary: Mapping[str, Estimate],
    *,
    method: str,
    about_rows: Sequence[tuple[str, str]],
    **details: Any,
) -> ModelReport:
    """Report of a fitted model; ``details`` are fields of `ModelReport`."""
    settings = saved.model.settings()
    details["subtitle"] += f". Created on {datetime.now(UTC):%Y-%m-%d}"
    return ModelReport(
        title=f"{saved.target} of {source}",
        target=saved.target,
        model=saved.model,
        rows=rows,
        crps=score_text("crps", summary["crps"]),
        conformal={level: summary[f"coverage_{level * 100:g}"].value for level in LEVELS}
        if method == "conformal"
        else None,
        metadata=[
            *about_rows,
            ("intervals", method),
            *((f"version of {name}", text) for name, text in saved.metadata["versions"].items()),
            *((f"setting {name}", str(value)) for name, value in settings.items()),
        ],
        **details,
    )


def first_time_column(schema: Schema) -> str | None:
    """The column over which coverage is shown if no other is named."""
    return next((column.name for column in schema.of_kind(Kind.TIME)), None)


def columns_table(profile: Profile) -> ReportTable:
    rows = []
    for column in profile.columns:
        n_missing, n_distinct = (
            TableCell(f"{n:,}", n) for n in (column.n_missing, column.n_distinct)
        )
        kind = column.kind.value
        rows.append([column.name, kind, n_missing, n_distinct, column.low, column.high])
    header = ["column", "kind", "missing", "distinct values", "from", "to"]
    title = "Features of the model"
    return ReportTable(title=title, header=header, rows=rows, is_folded=True, has_filter=True)
