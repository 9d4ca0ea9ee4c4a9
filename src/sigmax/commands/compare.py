"""Methods cross-validated on a user's table: `sigmax compare` without the command line.

One task is one method on one fold. A task names the file, its content by a hash, and the options,
so that the same command goes on where it was stopped, and another file is another experiment.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sigmax.checks import check_choice, check_count
from sigmax.commands.compare_report import COVERED, compare_page
from sigmax.commands.compare_tables import compare_tables
from sigmax.commands.encoding import SimpleEncoding, own_categories, read_features
from sigmax.commands.fit_options import FITTED, FitOptions
from sigmax.commands.peers import (
    PACKAGES,
    CatBoost,
    NGBoost,
    XGBoostDistribution,
    is_installed,
    load_package,
)
from sigmax.commands.scores import RowScores, score_rows
from sigmax.commands.splits import cross_validation, group_labels, later_folds
from sigmax.commands.usable_rows import UsableRows
from sigmax.errors import (
    InvalidArgumentError,
    InvalidCellError,
    InvalidDataError,
    TableFileError,
)
from sigmax.estimators.folds import duplicate_groups
from sigmax.metrics import covering_levels
from sigmax.report.calibration_curves import CURVE_LEVELS, coverage_curve
from sigmax.runs.engines import AbstractEngine
from sigmax.runs.fitting import stopwatch, with_settings
from sigmax.runs.methods import Method
from sigmax.runs.records import Record, Task, describe_machine, done, infeasible
from sigmax.runs.registry import Choice, Experiment, register
from sigmax.runs.runner import ExperimentResult, Observer, run_experiment
from sigmax.tables import Table
from sigmax.tables.reading import read_table

__all__ = ["COMPARED", "CompareOptions", "plan_comparison", "run_comparison", "usual_methods"]

NAME = "compare"
MOST_BLOCKS = 500
"""Of held-out rows of a fold whose mean scores a record keeps, for paired differences."""
OURS = ("local", "local-fast", "combined", "ens-nn", "nn", "bnn", "mc-dropout", "gp", "sgp")
OURS += ("linear", "marginal")
OF_TABLES = (*OURS, "catboost")
"""Methods that take categories and gaps as they are; others get a simple encoding."""

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
"""What may be compared, by the names of the command line."""


@final
@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What to compare, and how."""

    target: str
    methods: tuple[str, ...] = ()
    """All that are installed, if empty."""
    n_folds: int = 5
    categories: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    time_column: str | None = None
    """Every fold is later than all rows that are learned from for it."""
    group_column: str | None = None
    """Its groups are never divided between folds."""
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings for the methods that have them."""
    rank_by: str = "crps"

    def check(self) -> None:
        check_count("--folds", self.n_folds, minimum=2)
        check_choice("--rank-by", self.rank_by, ("crps", "log_likelihood"))
        for method in self.methods:
            check_choice("--methods", method, COMPARED)
            if method in PACKAGES:
                load_package(method)
        self.fit_options().check()
        known = {name for method in COMPARED.values() for name in method.create(0).get_params()}
        for name in sorted(set(self.settings) - known):
            raise InvalidArgumentError(f"`--set`: no method has a setting {name!r}.")

    def fit_options(self) -> FitOptions:
        """The same columns, as a fit has them."""
        return FitOptions(
            target=self.target,
            categories=self.categories,
            numbers=self.numbers,
            drop=self.drop,
            time_column=self.time_column,
            group_column=self.group_column,
            seed=self.seed,
        )

    def for_columns(self, columns: Sequence[str]) -> "CompareOptions":
        """The same options, with names that were joined by commas apart."""
        found = self.fit_options().for_columns(columns)
        return replace(self, categories=found.categories, numbers=found.numbers, drop=found.drop)

    def to_json(self) -> dict[str, Any]:
        """What tells two comparisons of the same file apart."""
        return {
            "target": self.target,
            "n_folds": self.n_folds,
            "categories": list(self.categories),
            "numbers": list(self.numbers),
            "drop": list(self.drop),
            "group_column": self.group_column,
            "seed": self.seed,
            **({} if self.time_column is None else {"time_column": self.time_column}),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "CompareOptions":
        lists = {name: tuple(values[name]) for name in ("categories", "numbers", "drop")}
        return cls(**{**values, **lists})


def usual_methods() -> tuple[str, ...]:
    """All methods but those whose packages are not installed."""
    return tuple(name for name in COMPARED if name not in PACKAGES or is_installed(name))


def plan_comparison(
    source: str | Path, options: CompareOptions, reading: Mapping[str, Any] | None = None
) -> Choice:
    """What to run for a file.

    Raises
    ------
    SigmaxError
        If the file or an option cannot be used.
    """
    if str(source) == "-":
        raise TableFileError("`compare` reads its table more than once: give it a file.")
    options.check()
    reading = {name: value for name, value in (reading or {}).items() if value is not None}
    columns = list(map(str, read_table(source, **reading, max_rows=1).columns))
    options = options.for_columns(columns)
    options.check()
    table = {"options": options.to_json(), "reading": reading, "sha256": file_hash(source)}
    read_task_table(str(source), JsonKey(table))  # what is wrong with it is told now
    return Choice(
        datasets=[str(source)],
        methods=options.methods or usual_methods(),
        n_splits=options.n_folds,
        seed=options.seed,
        settings={"table": table, **options.settings},
    )


def run_comparison(
    choice: Choice,
    out: Path,
    engine: AbstractEngine,
    *,
    retry_failed: bool = False,
    observe: Observer = lambda progress: None,
) -> ExperimentResult:
    """Run what has no record in the folder ``out`` yet, and rank the methods."""
    return run_experiment(NAME, choice, out, engine, retry_failed=retry_failed, observe=observe)


@final
class JsonKey:
    """Plain values that can be looked up in a cache."""

    def __init__(self, values: Mapping[str, Any]):
        self.values = values
        self.text = repr(sorted(values.items()))

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonKey) and self.text == other.text


@final
@dataclass(frozen=True, eq=False)
class TaskTable:
    """A table with its folds."""

    data: UsableRows
    table: Table
    folds: list[tuple[NDArray[np.intp], NDArray[np.intp]]]
    clusters: NDArray[np.int64]
    """Rows of one number belong together."""


@lru_cache(maxsize=1)
def read_task_table(source: str, key: JsonKey) -> TaskTable:
    """The table of a task; a worker reads it once."""
    options = CompareOptions.from_json(key.values["options"])
    frame = read_table(source, **key.values["reading"])
    if file_hash(source) != key.values["sha256"]:
        raise TableFileError(f"{source} has changed since the comparison was begun.")
    data = UsableRows.read(frame, options.fit_options())
    if len(data.y) < 2 * options.n_folds:
        raise InvalidDataError(
            f"{options.n_folds} folds need at least {2 * options.n_folds} rows with a target, got"
            f" {len(data.y):,}."
        )
    table = read_features(data.X, categorical=options.categories, numeric=options.numbers)
    clusters = duplicate_groups(table.values)
    if options.group_column is not None:
        clusters = group_labels(data.frame[options.group_column], options.n_folds)
    if options.time_column is not None:
        with InvalidCellError.numbered(data.numbers):
            folds = later_folds(data.frame[options.time_column], options.n_folds)
    else:
        folds = cross_validation(clusters, options.n_folds, seed=options.seed)
    return TaskTable(data, table, folds, clusters)


def run_compare(job: Sequence[Task]) -> list[Record]:
    """Fit and score every task of a job."""
    return [run_task(task) for task in job]


def run_task(task: Task) -> Record:
    """One method on one fold."""
    machine = describe_machine()
    table = read_task_table(task.dataset, JsonKey(task.settings["table"]))
    train, test = table.folds[task.split]
    method, how = COMPARED[task.method], "as it is" if task.method in OF_TABLES else "numbers"
    facts = {"n_train": len(train), "n_test": len(test), "input": how}
    if method.largest is not None and len(train) > method.largest:
        reason = f"{len(train):,} training rows, and it takes {method.largest:,}"
        return infeasible(task, reason, data=facts, machine=machine)
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
        data=facts,
        machine=machine,
    )


def create_model(task: Task) -> Any:
    """The task's method, with those of the settings that it has."""
    model: Any = COMPARED[task.method].create(task.seed)
    options, own = task.settings["table"]["options"], model.get_params()
    settings = {name: value for name, value in task.settings.items() if name in own}
    kinds = {"categorical_features": "categories", "numeric_features": "numbers"}
    settings |= {
        name: options[chosen] for name, chosen in kinds.items() if name in own and options[chosen]
    }
    return with_settings(model, task.method, settings)


def prepare_inputs(
    method: str, table: TaskTable, train: NDArray[np.intp], test: NDArray[np.intp]
) -> tuple[Any, Any]:
    """The training and the test rows as the method takes them."""
    if method in OURS:
        return table.data.X.iloc[train], table.data.X.iloc[test]
    parts = table.table[train], table.table[test]
    encode = own_categories if method == "catboost" else SimpleEncoding.fit(parts[0])
    return encode(parts[0]), encode(parts[1])


def block_means(scores: RowScores, clusters: NDArray[np.int64]) -> dict[str, list[float]]:
    """Mean scores of blocks of rows, the same rows for every method; copies lie in one block."""
    order = np.argsort(clusters, kind="stable")
    blocks = np.array_split(order, min(MOST_BLOCKS, len(order)))
    names = ("crps", "log_likelihood")
    return {name: [float(scores.values[name][block].mean()) for block in blocks] for name in names}


def file_hash(source: str | Path) -> str:
    """Of the content of a file."""
    try:
        with open(source, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TableFileError(f"{source} cannot be read: {error.strerror}.") from error


register(
    Experiment(
        name=NAME,
        about="methods cross-validated on a table",
        datasets=(),
        methods=tuple(COMPARED),
        n_splits=5,
        run=run_compare,
        tables=compare_tables,
        known_methods=COMPARED,
        check_dataset=lambda dataset: None,
        page=compare_page,
    )
)
