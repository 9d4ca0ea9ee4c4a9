"""`sigmax compare`: cross-validate methods on a table, rank them, and write a report.

One task is one method on one fold. A task names the file, a hash of its content and the options,
so that the same command continues a stopped comparison, and a changed file is another comparison.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, final

import numpy as np
import typer
from numpy.typing import NDArray
from rich.text import Text

from sigmax.checks import check_choice, check_count
from sigmax.cli.app import (
    EngineOptions,
    Reading,
    RetryFailed,
    Seed,
    Settings,
    Source,
    changed_options,
    command_line,
    parse_settings,
    split_names,
)
from sigmax.cli.fit import FITTED, FitOptions
from sigmax.cli.peers import (
    PACKAGES,
    CatBoost,
    NGBoost,
    XGBoostDistribution,
    is_installed,
    load_package,
    numeric_encoding,
)
from sigmax.cli.rows import (
    ColumnOptions,
    Fold,
    UsableRows,
    cross_validation,
    group_labels,
    later_folds,
    read_features,
    text_categories,
)
from sigmax.cli.scores import LEVELS, Estimate, Gap, RowScores, estimate_text, score_rows, verdict
from sigmax.cli.terminal import CONTINUES, report_errors, show_item, show_progress
from sigmax.errors import InvalidArgumentError, InvalidCellError, InvalidDataError, TableFileError
from sigmax.experts.rows import duplicate_groups
from sigmax.metrics import covering_levels
from sigmax.report.comparison_page import ComparedMethod, Comparison, comparison_page
from sigmax.report.held_out import CURVE_LEVELS
from sigmax.report.page import Caution
from sigmax.report.tables import ReportTable, TableCell
from sigmax.report.validation import coverage_curve
from sigmax.runs.experiments import Choice, Experiment
from sigmax.runs.methods import Method, stopwatch, with_settings
from sigmax.runs.records import Record, Task, describe_machine, done, infeasible
from sigmax.runs.report import run_experiment
from sigmax.tables import Table
from sigmax.tables.reading import read_table

NAME = "compare"
MOST_BLOCKS = 500
"""Number of blocks of test rows per fold whose mean scores are recorded, for paired differences."""
COVERED = "covered"
"""Recorded curve with the coverage of central intervals."""
OURS = ("local", "local-fast", "combined", "ens-nn", "nn", "bnn", "mc-dropout", "gp", "sgp")
OURS += ("linear", "marginal")
READ_TABLES = (*OURS, "catboost")
"""Methods that read categories and missing values; others get a numeric encoding."""
COMPARED = {
    **{name: FITTED[name] for name in OURS},
    "catboost": Method("CatBoost", lambda seed: CatBoost(random_state=seed), is_network=False),
    "ngboost": Method("NGBoost", lambda seed: NGBoost(random_state=seed), is_network=False),
    "xgboost-distribution": Method(
        "XGBoost-distribution",
        lambda seed: XGBoostDistribution(random_state=seed),
        is_network=False,
    ),
}
"""Methods that can be compared, by name."""
TITLES = {"crps": "CRPS", "log_likelihood": "log-likelihood"}
SIGNS = {"crps": 1.0, "log_likelihood": -1.0}
"""1 if lower is better."""

Folds = dict[int, Record]
"""Records of a method with scores, by fold."""


@final
@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Methods, folds and ranking."""

    n_folds: Annotated[int, typer.Option("--folds", help="Number of cross-validation folds.")] = 5
    methods: Annotated[
        str,
        typer.Option(
            help=f"Methods, separated by commas: {', '.join(COMPARED)}. By default all that are"
            " installed."
        ),
    ] = ""
    rank_by: Annotated[str, typer.Option(help="Score to rank by: crps or log_likelihood.")] = "crps"
    seed: Seed = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings for the methods that have them."""

    @property
    def chosen_methods(self) -> tuple[str, ...]:
        return split_names(self.methods) or usual_methods()

    def check(self) -> None:
        check_count("--folds", self.n_folds, minimum=2)
        check_choice("--rank-by", self.rank_by, TITLES)
        for method in split_names(self.methods):
            check_choice("--methods", method, COMPARED)
            if method in PACKAGES:
                load_package(method)
        FitOptions(seed=self.seed).check()
        known = {name for method in COMPARED.values() for name in method.create(0).get_params()}
        for name in sorted(set(self.settings) - known):
            raise InvalidArgumentError(f"`--set`: no method has a setting {name!r}.")


@report_errors(CONTINUES)
def compare(
    data: Source,
    columns: ColumnOptions,
    *,
    out: Annotated[Path, typer.Option(help="Folder for records and report.")] = Path("comparison"),
    options: CompareOptions,
    set_: Settings = None,
    engine: EngineOptions,
    retry_failed: RetryFailed = False,
    reading: Reading,
) -> None:
    """Cross-validate methods on a table and rank them; resumes a stopped run."""
    options = replace(options, settings=parse_settings(set_))
    choice = plan_comparison(data, columns, options, changed_options(reading))
    with show_progress() as observe:
        result = run_experiment(
            COMPARISON, choice, out, engine.create(), retry_failed=retry_failed, observe=observe
        )
    show_item(Text(ranked_verdict(result.records), "bold"))
    show_item(ranked_table(result.records, options.rank_by))
    for record in result.failures:
        show_item(f"failed: {record.task.label}: {record.reason}")
    show_item(f"Report saved to {result.report}")


def usual_methods() -> tuple[str, ...]:
    """All methods but those whose packages are not installed."""
    return tuple(name for name in COMPARED if name not in PACKAGES or is_installed(name))


def plan_comparison(
    source: str | Path,
    columns: ColumnOptions,
    options: CompareOptions,
    reading: Mapping[str, Any] | None = None,
) -> Choice:
    """The tasks for a file; errors of the file or the options are raised here."""
    if str(source) == "-":
        raise TableFileError("`compare` reads its table more than once: give it a file.")
    options.check()
    columns.check()
    reading = dict(reading or {})
    columns = columns.for_columns([*map(str, read_table(source, **reading, max_rows=1).columns)])
    columns.check()
    table = {
        "options": options_to_json(columns, options),
        "reading": reading,
        "sha256": file_hash(source),
    }
    read_task_table(str(source), json.dumps(table))  # raises its errors before any work
    return Choice(
        datasets=[str(source)],
        methods=options.chosen_methods,
        n_splits=options.n_folds,
        seed=options.seed,
        settings={"table": table, **options.settings},
    )


def options_to_json(columns: ColumnOptions, options: CompareOptions) -> dict[str, Any]:
    """Options that distinguish two comparisons of the same file; also read from old records."""
    values = asdict(columns) | {"n_folds": options.n_folds, "seed": options.seed}
    if columns.time_column is None:
        del values["time_column"]
    return json.loads(json.dumps(values))


def columns_from_json(values: Mapping[str, Any]) -> ColumnOptions:
    chosen = {one.name: values.get(one.name) for one in fields(ColumnOptions)}
    lists = {name: tuple(value) for name, value in chosen.items() if isinstance(value, list)}
    return ColumnOptions(**{**chosen, **lists})


@final
@dataclass(frozen=True, eq=False)
class TaskTable:
    """A table with its folds."""

    data: UsableRows
    table: Table
    folds: list[Fold]
    clusters: NDArray[np.int64]
    """A label for every row; rows of one label are dependent."""


@lru_cache(maxsize=1)
def read_task_table(source: str, description: str) -> TaskTable:
    """The table of a task, from the JSON in its settings; a worker reads it once."""
    values = json.loads(description)
    options = values["options"]
    columns, n_folds = columns_from_json(options), options["n_folds"]
    frame = read_table(source, **values["reading"])
    if file_hash(source) != values["sha256"]:
        raise TableFileError(f"{source} has changed since the comparison was started.")
    data = UsableRows.read(frame, columns)
    if len(data.y) < 2 * n_folds:
        raise InvalidDataError(
            f"{n_folds} folds need at least {2 * n_folds} rows with a target, got {len(data.y):,}."
        )
    table = read_features(data.X, columns)
    clusters = duplicate_groups(table.values)
    if columns.group_column is not None:
        clusters = group_labels(data.frame[columns.group_column], n_folds)
    if columns.time_column is not None:
        with InvalidCellError.numbered(data.numbers):
            folds = later_folds(data.frame[columns.time_column], n_folds)
    else:
        folds = cross_validation(clusters, n_folds, seed=options["seed"])
    return TaskTable(data, table, folds, clusters)


def file_hash(source: str | Path) -> str:
    """SHA-256 of the content of a file."""
    try:
        with open(source, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TableFileError(f"{source} cannot be read: {error.strerror}.") from error


def run_tasks(job: Sequence[Task]) -> list[Record]:
    """Fit and score every task of a job."""
    return [run_task(task) for task in job]


def run_task(task: Task) -> Record:
    """One method on one fold."""
    machine = describe_machine()
    table = read_task_table(task.dataset, json.dumps(task.settings["table"]))
    train, test = table.folds[task.split]
    method = COMPARED[task.method]
    form = "as it is" if task.method in READ_TABLES else "numbers"
    counts = {"n_train": len(train), "n_test": len(test), "input": form}
    if method.largest is not None and len(train) > method.largest:
        reason = f"{len(train):,} training rows, but its limit is {method.largest:,}"
        return infeasible(task, reason, data=counts, machine=machine)
    X_train, X_test = prepare_inputs(task.method, table, train, test)
    model, y = create_model(task), table.data.y
    with stopwatch() as fitting:
        model.fit(X_train, y[train])
    with stopwatch() as predicting:
        dist = model.predict_dist(X_test)
        scores = score_rows(y[test], dist)
    covered = coverage_curve(covering_levels(y[test], dist, CURVE_LEVELS))
    return done(
        task,
        scores={name: estimate.value for name, estimate in scores.summary().items()},
        curves=block_means(scores, table.clusters[test]) | {COVERED: covered.tolist()},
        seconds={**fitting.per_model(1, together=1), "predict": predicting.run},
        data=counts,
        machine=machine,
    )


def create_model(task: Task) -> Any:
    """The method of a task, with the settings that it has."""
    model: Any = COMPARED[task.method].create(task.seed)
    options, known = task.settings["table"]["options"], model.get_params()
    settings = {name: value for name, value in task.settings.items() if name in known}
    kinds = {"categorical_features": "categories", "numeric_features": "numbers"}
    settings |= {
        name: options[chosen] for name, chosen in kinds.items() if name in known and options[chosen]
    }
    return with_settings(model, task.method, settings)


def prepare_inputs(
    method: str, table: TaskTable, train: NDArray[np.intp], test: NDArray[np.intp]
) -> tuple[Any, Any]:
    """The training and the test rows in the form that the method reads."""
    if method in OURS:
        return table.data.X.iloc[train], table.data.X.iloc[test]
    X_train, X_test = (text_categories(table.table[rows]) for rows in (train, test))
    if method == "catboost":
        return X_train, X_test
    encoding = numeric_encoding()
    return encoding.fit_transform(X_train), encoding.transform(X_test)


def block_means(scores: RowScores, clusters: NDArray[np.int64]) -> dict[str, list[float]]:
    """Mean scores of blocks of rows, equal for all methods; duplicates are in one block."""
    order = np.argsort(clusters, kind="stable")
    blocks = np.array_split(order, min(MOST_BLOCKS, len(order)))
    return {name: [float(scores.values[name][block].mean()) for block in blocks] for name in TITLES}


def compare_tables(records: Sequence[Record]) -> list[ReportTable]:
    """Two rankings and the other scores of every comparison."""
    tables = []
    for group in record_groups(records):
        tables += [*(ranked_table(group, name) for name in TITLES), other_scores(group)]
    return tables


def record_groups(records: Sequence[Record]) -> list[list[Record]]:
    """The records of every comparison, which is one table with one set of options."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        task = record.task
        key = json.dumps([task.dataset, task.settings], sort_keys=True)  # files sort names, too
        groups.setdefault(key, []).append(record)
    return list(groups.values())


def ranked_table(records: Sequence[Record], rank_by: str) -> ReportTable:
    """One row per method, the best first, with paired differences from the best."""
    methods = by_method(records)
    means = {method: mean_score(folds, rank_by) for method, folds in methods.items()}
    order = sorted(methods, key=lambda method: SIGNS[rank_by] * means[method].value)
    (other,) = TITLES.keys() - {rank_by}
    rows = []
    for method in order:
        folds, best = methods[method], methods[order[0]]
        gap = "" if folds is best else estimate_text(difference(folds, best, rank_by))
        rows.append(
            [
                method_title(method, folds),
                estimate_text(means[method]),
                gap,
                estimate_text(mean_score(folds, other)),
                number_cell(100 * weighted(folds, "coverage_90"), ".1f", " %"),
                number_cell(mean_seconds(folds), ".3g"),
            ]
        )
    return ReportTable(
        title=f"{full_title(records)}, ranked by {TITLES[rank_by]}",
        header=[
            "method",
            TITLES[rank_by],
            f"{TITLES[rank_by]} minus best",
            TITLES[other],
            "90 % cov.",
            "s to fit",
        ],
        rows=rows,
        notes=[
            "± is one standard error over test rows; errors of differences are paired.",
            "* cannot read categories or missing values, so it got a numeric version: standardised"
            " numbers, missing-value flags, the 20 most frequent categories one-hot.",
            *failure_notes(records, methods),
        ],
    )


def ranked_verdict(records: Sequence[Record]) -> str:
    """The best method compared with a linear model, in a sentence; empty without either."""
    methods = by_method(records)
    linear = methods.pop("linear", None)
    methods.pop("marginal", None)
    if linear is None or not methods:
        return ""
    best = min(methods, key=lambda method: mean_score(methods[method], "crps").value)
    folds = methods[best]
    gap = Gap(
        baseline="linear",
        baseline_crps=mean_score(linear, "crps").value,
        crps=difference(folds, linear, "crps"),
        log_likelihood=difference(folds, linear, "log_likelihood"),
        rmse=pooled_rmse(folds) / pooled_rmse(linear),
    )
    return f"{best}, the best of {len(methods)}: {verdict(gap)}"


def number_cell(value: float | np.floating, digits: str, unit: str = "") -> TableCell:
    return TableCell(f"{value:{digits}}{unit}", value)


def other_scores(records: Sequence[Record]) -> ReportTable:
    """RMSE, and coverage and width of intervals, in no order."""
    header = ["method", "RMSE"]
    for level in LEVELS:
        header += [f"{100 * level:g} % coverage", "width"]
    rows = []
    for method, folds in by_method(records).items():
        row = [method_title(method, folds), number_cell(pooled_rmse(folds), ".4g")]
        for level in LEVELS:
            percent = f"{100 * level:g}"
            row.append(number_cell(100 * weighted(folds, f"coverage_{percent}"), ".1f", " %"))
            row.append(number_cell(weighted(folds, f"width_{percent}"), ".4g"))
        rows.append(row)
    return ReportTable(title=f"{full_title(records)}, other scores", header=header, rows=rows)


def by_method(records: Sequence[Record]) -> dict[str, Folds]:
    """Records with scores, by method and fold."""
    methods: dict[str, Folds] = {}
    for record in records:
        if record.status == "done":
            methods.setdefault(record.task.method, {})[record.task.split] = record
    return methods


def full_title(records: Sequence[Record]) -> str:
    options = records[0].task.settings["table"]["options"]
    file = Path(records[0].task.dataset).name
    by_time = f" by {options['time_column']}" if options.get("time_column") else ""
    return f"{options['target']} of {file}, {options['n_folds']} folds{by_time}"


def method_title(method: str, folds: Folds) -> str:
    """The name of a method, with a star if its input was encoded."""
    is_encoded = next(iter(folds.values())).data["input"] == "numbers"
    return f"{method} *" if is_encoded else method


def mean_seconds(folds: Folds) -> float:
    return float(np.mean([record.seconds["fit"] for record in folds.values()]))


def weighted(folds: Folds, name: str, *, power: int = 1) -> float:
    """The mean over all test rows of a score, or of its power."""
    values = [record.scores[name] ** power for record in folds.values()]
    return float(np.average(values, weights=[r.data["n_test"] for r in folds.values()]))


def pooled_rmse(folds: Folds) -> float:
    return math.sqrt(weighted(folds, "rmse", power=2))


def mean_score(folds: Folds, name: str) -> Estimate:
    """The mean over all test rows, with its error from blocks of rows."""
    return Estimate(weighted(folds, name), block_error(blocks(folds, sorted(folds), name)))


def difference(folds: Folds, best: Folds, name: str) -> Estimate:
    """The difference of two mean scores on their common folds, with its paired error."""
    common = sorted(folds.keys() & best.keys())
    if not common:
        return Estimate(math.nan, math.nan)
    gaps = blocks(folds, common, name) - blocks(best, common, name)
    means = [weighted({fold: of[fold] for fold in common}, name) for of in (folds, best)]
    return Estimate(means[0] - means[1], block_error(gaps))


def blocks(folds: Folds, splits: Sequence[int], name: str) -> NDArray[np.float64]:
    return np.concatenate([folds[split].curves[name] for split in splits])


def block_error(values: NDArray[np.float64]) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def failed_methods(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records without scores, by method."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.status != "done":
            found.setdefault(record.task.method, []).append(record)
    return found


def failure_text(record: Record) -> str:
    return "not applicable" if record.status == "infeasible" else "failed"


def failure_notes(records: Sequence[Record], methods: Mapping[str, Folds]) -> list[str]:
    """A sentence for every method without scores on all folds."""
    notes = []
    for method, failed in failed_methods(records).items():
        where = f" on {len(failed)} folds, compared with the best on the others"
        where = where if method in methods else ""
        notes.append(f"{method}: {failure_text(failed[0])}{where}: {failed[0].reason}.")
    return notes


def compare_page(folder: Path, records: Sequence[Record]) -> str:
    """The page of all comparisons of a folder."""
    groups = record_groups(records)
    return comparison_page([page_comparison(folder, group) for group in groups]).to_html()


def page_comparison(folder: Path, records: Sequence[Record]) -> Comparison:
    """One comparison for the page, with its methods ordered by CRPS."""
    found = by_method(records)
    order = sorted(found, key=lambda method: mean_score(found[method], "crps").value)
    sizes = {record.task.split: record.data["n_test"] for record in records if record.data}
    failed, table = failed_methods(records), records[0].task.settings["table"]
    return Comparison(
        title=full_title(records),
        verdict=ranked_verdict(records),
        target=table["options"]["target"],
        n_rows=max(1, sum(sizes.values())),
        methods=[page_method(method, found[method], found[order[0]]) for method in order],
        levels=CURVE_LEVELS.tolist(),
        tables=compare_tables(records),
        warnings=[
            Caution(
                f"{method}: {failure_text(record)}",
                record.reason,
                is_grave=record.status == "failed",
            )
            for method, (record, *_) in failed.items()
        ],
        command=repeat_comparison(folder, records),
        facts=[
            ("table", records[0].task.dataset),
            ("SHA-256 of the table", table["sha256"]),
            ("folds", str(table["options"]["n_folds"])),
            *((name, str(value)) for name, value in records[-1].machine.items()),
        ],
    )


def page_method(method: str, folds: Folds, best: Folds) -> ComparedMethod:
    crps, gap = mean_score(folds, "crps"), difference(folds, best, "crps")
    curves = [record.curves.get(COVERED) for record in folds.values()]
    counts = [record.data["n_test"] for record in folds.values()]
    has_curve = all(curve is not None and len(curve) == len(CURVE_LEVELS) for curve in curves)
    return ComparedMethod(
        name=method_title(method, folds),
        crps=crps.value,
        crps_error=crps.error,
        gap=gap.value,
        gap_error=gap.error,
        seconds=mean_seconds(folds),
        curve=np.average(np.array(curves), axis=0, weights=counts) if has_curve else None,
    )


def repeat_comparison(folder: Path, records: Sequence[Record]) -> str:
    """The command that repeats a comparison."""
    task = records[0].task
    table = task.settings["table"]
    columns = columns_from_json(table["options"])
    return command_line(
        "compare",
        [task.dataset],
        {
            "target": columns.target,
            "out": folder,
            "methods": ",".join(dict.fromkeys(record.task.method for record in records)),
            "folds": table["options"]["n_folds"],
            **changed_options(columns),
            "seed": table["options"]["seed"] or None,
            "set": {name: value for name, value in task.settings.items() if name != "table"},
            **table["reading"],
        },
    )


COMPARISON = Experiment(
    name=NAME,
    about="methods cross-validated on a table",
    datasets=(),
    methods=tuple(COMPARED),
    n_splits=5,
    run=run_tasks,
    tables=compare_tables,
    known_methods=COMPARED,
    check_dataset=lambda dataset: None,
    page=compare_page,
)
