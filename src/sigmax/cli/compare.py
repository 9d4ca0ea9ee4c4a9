"""`sigmax compare`: cross-validate methods on a table, rank them, and write a report.

One task is one method on one fold. A task names the file, a hash of its content and the options,
so that the same command continues a stopped comparison, and a changed file is another comparison.
"""

import hashlib
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, final

import numpy as np
import typer
from numpy.typing import NDArray
from rich.text import Text

from sigmax.cli.app import (
    EngineOptions,
    Reading,
    RetryFailed,
    Seed,
    Settings,
    Source,
    parse_settings,
    split_names,
)
from sigmax.cli.fit import FITTED, FitOptions, fit_rows
from sigmax.cli.peers import PACKAGES, CatBoost, is_installed, load_package
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
from sigmax.cli.scores import (
    LEVELS,
    Estimate,
    ScoreDifference,
    estimate_text,
    is_sure,
    score_rows,
    verdict,
)
from sigmax.cli.terminal import CONTINUES, report_errors, show_item, show_progress
from sigmax.errors import InvalidArgumentError, InvalidCellError, InvalidDataError, TableFileError
from sigmax.estimators import SigmaxRegressor
from sigmax.experts.rows import duplicate_groups
from sigmax.metrics import covering_levels
from sigmax.report.page import Axis, Caution, Chart, Layer, Page, PagePart
from sigmax.report.tables import ReportTable, TableCell, count_text
from sigmax.report.validation import CURVE_LEVELS, coverage_curve, curves_chart
from sigmax.runs.experiments import Choice, Experiment
from sigmax.runs.methods import Method, stopwatch, with_settings
from sigmax.runs.records import Record, Task, describe_machine, done, infeasible
from sigmax.runs.report import run_experiment
from sigmax.settings import check_choice, check_count
from sigmax.tables import Table
from sigmax.tables.reading import read_table

NAME = "compare"
MOST_BLOCKS = 500
"""Number of blocks of test rows per fold whose mean scores are recorded, for paired differences."""
COVERED = "covered"
"""Recorded curve with the coverage of central intervals."""
OURS = ("local", "local-fast", "combined", "ens-nn", "nn", "bnn", "mc-dropout", "gp", "sgp")
QUICK = Method(
    "Sigmax (quick)", lambda seed: SigmaxRegressor("quick", random_state=seed), is_network=False
)
COMPARED = {
    **{"sigmax": FITTED["sigmax"], "sigmax-quick": QUICK},
    **{name: FITTED[name] for name in ("linear", "marginal", *OURS)},
    "catboost": Method("CatBoost", lambda seed: CatBoost(random_state=seed), is_network=False),
}
PAIRED = ("crps", "log_likelihood")
"""Scores whose differences between methods are computed on the same rows."""

Folds = dict[int, Record]
"""Records of a method with scores, by fold."""


@final
@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Methods and folds."""

    n_folds: Annotated[int, typer.Option("--folds", help="Number of cross-validation folds.")] = 5
    methods: Annotated[
        str,
        typer.Option(
            help="Comma-separated methods. Default: sigmax, sigmax-quick, linear, marginal and, if"
            f" installed, catboost. Others: {', '.join(OURS)}."
        ),
    ] = ""
    seed: Seed = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        check_count("--folds", self.n_folds, minimum=2)
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
    choice = plan_comparison(data, columns, options, asdict(reading))
    with show_progress() as observe:
        result = run_experiment(
            COMPARISON, choice, out, engine.create(), retry_failed=retry_failed, observe=observe
        )
    show_item(Text(ranked_verdict(result.records), "bold"))
    show_item(ranked_table(result.records))
    for record in result.failures:
        show_item(f"failed: {record.task.label}: {record.reason}")
    show_item(f"Report saved to {result.report}")


def plan_comparison(
    source: str | Path, columns: ColumnOptions, options: CompareOptions, reading: Mapping[str, Any]
) -> Choice:
    """The tasks for a file; errors of the file or the options are raised here."""
    if str(source) == "-":
        raise TableFileError("`compare` reads its table more than once: name a file.")
    options.check()
    columns.check()
    reading = {name: value for name, value in reading.items() if value is not None}
    columns = columns.for_columns([*map(str, read_table(source, **reading, max_rows=1).columns)])
    columns.check()
    chosen = asdict(columns) | {"n_folds": options.n_folds, "seed": options.seed}
    table = {
        "options": json.loads(json.dumps(chosen)),
        "reading": reading,
        "sha256": file_hash(source),
    }
    read_task_table(str(source), json.dumps(table))  # raises its errors before any work
    return Choice(
        datasets=[str(source)],
        methods=split_names(options.methods)
        or ("sigmax", "sigmax-quick", "linear", "marginal", *filter(is_installed, PACKAGES)),
        n_splits=options.n_folds,
        seed=options.seed,
        settings={"table": table, **options.settings},
    )


@final
@dataclass(frozen=True, eq=False)
class TaskTable:
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
    n_folds = options["n_folds"]
    chosen = {one.name: options[one.name] for one in fields(ColumnOptions)}
    lists = {name: tuple(value) for name, value in chosen.items() if isinstance(value, list)}
    columns = ColumnOptions(**{**chosen, **lists})
    frame = read_table(source, **values["reading"])
    if file_hash(source) != values["sha256"]:
        raise TableFileError(f"{source} has changed since the comparison was started.")
    data = UsableRows.read(frame, columns)
    if len(data.y) < 2 * n_folds:
        needed = f"{n_folds} folds need at least {2 * n_folds} rows with a target"
        raise InvalidDataError(f"{needed}, got {len(data.y):,}.")
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
    try:
        with open(source, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TableFileError(f"{source} cannot be read: {error.strerror}.") from error


def run_tasks(job: Sequence[Task]) -> list[Record]:
    return [run_task(task) for task in job]


def run_task(task: Task) -> Record:
    machine = describe_machine()
    table = read_task_table(task.dataset, json.dumps(task.settings["table"]))
    train, test = table.folds[task.split]
    method = COMPARED[task.method]
    counts = {"n_train": len(train), "n_test": len(test)}
    if method.largest is not None and len(train) > method.largest:
        reason = f"{len(train):,} training rows, but its limit is {method.largest:,}"
        return infeasible(task, reason, data=counts, machine=machine)
    of_package = task.method in PACKAGES
    X = [
        text_categories(table.table[part]) if of_package else table.data.X.iloc[part]
        for part in (train, test)
    ]
    model, y = create_model(task), table.data.y
    with stopwatch() as fitting:
        is_grouped = task.settings["table"]["options"]["group_column"] is not None
        fit_rows(model, X[0], y[train], table.clusters[train] if is_grouped else None)
    with stopwatch() as predicting:
        dist = model.predict_dist(X[1])
        scores = score_rows(y[test], dist)
    covered = coverage_curve(covering_levels(y[test], dist, CURVE_LEVELS))
    order = np.argsort(table.clusters[test], kind="stable")  # duplicates are in one block
    parts = np.array_split(order, min(MOST_BLOCKS, len(order)))
    means = {name: [float(scores.values[name][rows].mean()) for rows in parts] for name in PAIRED}
    return done(
        task,
        scores={name: estimate.value for name, estimate in scores.summary().items()},
        curves=means | {COVERED: covered.tolist()},
        seconds={**fitting.per_model(1, together=1), "predict": predicting.run},
        data=counts,
        machine=machine,
    )


def create_model(task: Task) -> Any:
    model: Any = COMPARED[task.method].create(task.seed)
    options, known = task.settings["table"]["options"], model.get_params()
    settings = {name: value for name, value in task.settings.items() if name in known}
    kinds = {"categorical_features": "categories", "numeric_features": "numbers"}
    settings |= {
        name: options[chosen] for name, chosen in kinds.items() if name in known and options[chosen]
    }
    return with_settings(model, task.method, settings)


def compare_tables(records: Sequence[Record]) -> list[ReportTable]:
    last = last_comparison(records)
    return [ranked_table(last), other_scores(last)]


def last_comparison(records: Sequence[Record]) -> list[Record]:
    """Records of the table and the options of the last one."""
    last = records[-1].task
    return [
        one
        for one in records
        if (one.task.dataset, one.task.settings) == (last.dataset, last.settings)
    ]


def ranked_table(records: Sequence[Record]) -> ReportTable:
    """One row per method, the best first, with paired differences from the best."""
    methods = by_method(records)
    rows = []
    for i, (method, folds) in enumerate(methods.items()):
        minus_best = difference(folds, next(iter(methods.values())), "crps")
        rows.append(
            [
                method,
                estimate_text(mean_score(folds, "crps")),
                estimate_text(minus_best) if i else "",
                estimate_text(mean_score(folds, "log_likelihood")),
                number_cell(100 * weighted(folds, "coverage_90"), ".1f", " %"),
                number_cell(np.mean([one.seconds["fit"] for one in folds.values()]), ".3g"),
            ]
        )
    return ReportTable(
        title=f"{full_title(records)}, ranked by CRPS",
        header=["method", "CRPS", "CRPS minus best", "log-likelihood", "90 % coverage", "seconds"],
        rows=rows,
        notes=[
            "± is one standard error over test rows; errors of differences are paired.",
            *(caution.text for caution in failures(records)),
        ],
    )


def ranked_verdict(records: Sequence[Record]) -> str:
    """The best method compared with a linear model, in a sentence; empty without either."""
    methods = by_method(records)
    linear = methods.pop("linear", None)
    methods.pop("marginal", None)
    if linear is None or not methods:
        return ""
    best, folds = next(iter(methods.items()))
    found = ScoreDifference(
        baseline="linear",
        baseline_crps=mean_score(linear, "crps").value,
        crps=difference(folds, linear, "crps"),
        log_likelihood=difference(folds, linear, "log_likelihood"),
        rmse=pooled_rmse(folds) / pooled_rmse(linear),
    )
    return f"{best}, the best of {len(methods)}: {verdict(found)}"


def number_cell(value: float | np.floating, digits: str, unit: str = "") -> TableCell:
    return TableCell(f"{value:{digits}}{unit}", value)


def other_scores(records: Sequence[Record]) -> ReportTable:
    header = ["method", "RMSE", "log-likelihood minus best"]
    for level in LEVELS:
        header += [f"{100 * level:g} % coverage", "width"]
    rows = []
    methods = by_method(records)
    for i, (method, folds) in enumerate(methods.items()):
        minus_best = difference(folds, next(iter(methods.values())), "log_likelihood")
        row = [method, number_cell(pooled_rmse(folds), ".4g")]
        row.append(estimate_text(minus_best) if i else "")
        for level in LEVELS:
            percent = f"{100 * level:g}"
            row.append(number_cell(100 * weighted(folds, f"coverage_{percent}"), ".1f", " %"))
            row.append(number_cell(weighted(folds, f"width_{percent}"), ".4g"))
        rows.append(row)
    return ReportTable(title=f"{full_title(records)}, other scores", header=header, rows=rows)


def by_method(records: Sequence[Record]) -> dict[str, Folds]:
    """Records with scores by method and fold, the method of the lowest CRPS first."""
    methods: dict[str, Folds] = {}
    for record in records:
        if record.status == "done":
            methods.setdefault(record.task.method, {})[record.task.split] = record
    return dict(sorted(methods.items(), key=lambda item: weighted(item[1], "crps")))


def full_title(records: Sequence[Record]) -> str:
    options = records[0].task.settings["table"]["options"]
    file = Path(records[0].task.dataset).name
    by_time = f" by {options['time_column']}" if options.get("time_column") else ""
    return f"{options['target']} of {file}, {options['n_folds']} folds{by_time}"


def weighted(folds: Folds, name: str, *, power: int = 1) -> float:
    """The mean over all test rows of a score, or of its power."""
    values = [record.scores[name] ** power for record in folds.values()]
    return float(np.average(values, weights=n_test_rows(folds)))


def n_test_rows(folds: Folds) -> list[int]:
    return [record.data["n_test"] for record in folds.values()]


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
    differences = blocks(folds, common, name) - blocks(best, common, name)
    means = [weighted({fold: of[fold] for fold in common}, name) for of in (folds, best)]
    return Estimate(means[0] - means[1], block_error(differences))


def blocks(folds: Folds, splits: Sequence[int], name: str) -> NDArray[np.float64]:
    return np.concatenate([folds[split].curves[name] for split in splits])


def block_error(values: NDArray[np.float64]) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def failures(records: Sequence[Record]) -> list[Caution]:
    """Warning about every method without scores on all folds."""
    failed: dict[str, list[Record]] = {}
    for record in records:
        if record.status != "done":
            failed.setdefault(record.task.method, []).append(record)
    methods, cautions = by_method(records), []
    for method, found in failed.items():
        what = "not applicable" if found[0].status == "infeasible" else "failed"
        where = f" on {len(found)} folds; ranked by the other folds"
        where = where if method in methods else ""
        text = f"{method}: {what}{where}: {found[0].reason}."
        cautions.append(Caution("no scores", text, is_grave=found[0].status == "failed"))
    return cautions


def compare_page(folder: Path, records: Sequence[Record]) -> str:
    last = last_comparison(records)
    table = last[0].task.settings["table"]
    page = Page(
        title=full_title(last),
        subtitle=f"{count_text(n_tested(last), 'row')}, predicted by models that had not seen them",
        headline=f"{ranked_verdict(last)} {best_method(last)}".strip(),
        warnings=failures(last),
        no_warnings="No method failed.",
        parts=page_parts(last),
        command=repeat_comparison(folder, last),
        metadata=[
            ("table", last[0].task.dataset),
            ("SHA-256 of the table", table["sha256"]),
            ("folds", str(table["options"]["n_folds"])),
            *((name, str(value)) for name, value in last[-1].machine.items()),
        ],
    )
    return page.to_html()


def n_tested(records: Sequence[Record]) -> int:
    sizes = {record.task.split: record.data["n_test"] for record in records if record.data}
    return max(1, sum(sizes.values()))


def best_method(records: Sequence[Record]) -> str:
    """Best method, its lead over the next one, and whether that may be chance, in a sentence."""
    methods = by_method(records)
    if not methods:
        return "No method has scores."
    best, *others = methods
    if not others:
        return f"{best} is the only method that has scores."
    first, second, *_ = methods.values()
    delta, crps = difference(second, first, "crps"), weighted(first, "crps")
    share = delta.value / crps if crps else math.nan
    sure = "more than chance would explain" if is_sure(delta, 1) else "which may well be chance"
    target = records[0].task.settings["table"]["options"]["target"]
    return (
        f"Of {len(methods)} methods, {best} predicts {target} best; the next, {others[0]}, has a"
        f" {100 * share:.2g} % higher CRPS, {sure}."
    )


def page_parts(records: Sequence[Record]) -> list[PagePart]:
    found = by_method(records)
    tables = PagePart(name="tables", heading="All scores", tables=compare_tables(records))
    if not found:
        return [tables]
    ranking = PagePart(
        name="ranking",
        heading="Scores",
        lead="Mean CRPS on held-out rows, in units of the target; lower is better.",
        charts=[score_chart(found, records[0].task.settings["table"]["options"]["target"])],
    )
    curves = {
        name: np.average(
            np.array([record.curves[COVERED] for record in folds.values()]),
            axis=0,
            weights=n_test_rows(folds),
        )
        for name, folds in found.items()
    }
    calibration = PagePart(
        name="calibration",
        heading="Are the intervals right?",
        lead="Above the diagonal: wider than needed. Below: too narrow.",
        charts=[curves_chart(curves, n_tested(records), "calibration")],
    )
    return [ranking, calibration, tables]


def score_chart(methods: Mapping[str, Folds], target: str) -> Chart:
    names, best = list(methods), next(iter(methods.values()))
    found = [mean_score(folds, "crps") for folds in methods.values()]
    minus_best = [difference(folds, best, "crps") for folds in methods.values()]
    values = np.array([one.value for one in found])
    errors = np.nan_to_num([one.error for one in found])
    ends: Any = {"lower": values - errors, "upper": values + errors}
    y = np.arange(len(names))
    texts = ["the best", *(f"{estimate_text(one)} above" for one in minus_best[1:])]
    return Chart(
        name="scores",
        title="CRPS",
        x=Axis(f"CRPS, in units of {target}", low=0.0 if values.min() >= 0 else None),
        y=Axis("", "category", levels=tuple(names)),
        layers=[
            Layer("intervals", "± one standard error", "chance", y=y, **ends),
            Layer("points", "CRPS", x=values, y=y, texts=texts),
        ],
        note="Differences between methods are more certain than these errors, because all methods"
        " predict the same rows; the table has them.",
        height=90 + 30 * len(names),
    )


def repeat_comparison(folder: Path, records: Sequence[Record]) -> str:
    task = records[0].task
    table = task.settings["table"]
    names = {"n_folds": "folds", "categories": "category", "numbers": "number"}
    chosen = {
        "target": table["options"]["target"],
        "out": folder,
        "methods": ",".join(dict.fromkeys(record.task.method for record in records)),
        **{
            str(names.get(k, k)).replace("_", "-"): v
            for k, v in (table["options"] | table["reading"]).items()
        },
        "set": [f"{k}={json.dumps(v)}" for k, v in task.settings.items() if k != "table"],
    }
    lists = {name: v if isinstance(v, list) else [v] for name, v in chosen.items() if v is not None}
    words = [f"--{name}={value}" for name, values in lists.items() for value in values]
    return shlex.join(["sigmax", "compare", task.dataset, *words])


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
