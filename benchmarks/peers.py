"""Our methods against other people's: the same splits, the same machine, one run to resume.

    python benchmarks/peers.py [--datasets yacht,boston] [--methods local,catboost] [--splits 5]
                               [--out out/peers] [--workers 1] [--retry-failed]
    python benchmarks/peers.py --report [--out out/peers] [--page docs/decisions/measurements.md]

Needs SIGMAX_DATA and `pip install "sigmax[peers]"`. One task is one fit, alone, so that seconds can
be compared; the same command goes on where a run was stopped. `--report` prints the Markdown tables
of what is there; `--page` makes those anew that a page shows between `<!-- peers -->` and
`<!-- end -->`. A peer stops early by a tenth of the training rows; no test row chooses anything.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeRegressor

from sigmax.cli import show_progress, split_names
from sigmax.cli.peers import (
    HELD_OUT,
    LEARNING_RATE,
    MOST_TREES,
    PATIENCE,
    AbstractBooster,
    AbstractPeer,
    CatBoost,
    is_installed,
    load_package,
)
from sigmax.data import UCI_SETS
from sigmax.distributions import Mixture, Normal, Predictive
from sigmax.errors import MissingExtraError, SigmaxError
from sigmax.paper.benchmark import (
    COMPILE,
    COVERAGE_90,
    CRPS,
    FIT,
    LOG_LIKELIHOOD,
    RMSE,
    WIDTH,
    Benchmark,
    Score,
    arrange,
    duplicates_tables,
    full_title,
    score_table,
    standard_error,
    time_notes,
    titles,
)
from sigmax.paper.uci import run_splits
from sigmax.report.tables import ReportTable
from sigmax.runs.engines import LocalEngine
from sigmax.runs.experiments import Choice, Experiment, run_tasks
from sigmax.runs.methods import METHODS, Method
from sigmax.runs.records import FILE_NAME, Record, Task, read_records
from sigmax.runs.report import failure_table, machine_table

NAME = "peers"
OURS = "local"
HOUSE = ("local", "local-fast", "combined", "combined-paper", "ens-nn", "gp")
PACKAGES = ("ngboost", "xgboost-distribution", "catboost")
"""Methods with the names of the packages that they come from."""

LEVELS = (np.arange(199) + 0.5) / 199
MARKED = re.compile(r"<!-- peers -->.*?<!-- end -->", re.DOTALL)

PREDICT = Score(
    title="seconds to predict the test rows, without compilation",
    name="predict",
    part="seconds",
    better=-1,
    digits=3,
)


# The models: each predicts a distribution in the units of y.


@final
class Marginal(AbstractPeer):
    """The Normal with mean and standard deviation of y, whatever X: never to be below."""

    def fit(self, X, y, sample_weight=None) -> "Marginal":
        self.mean_, self.std_ = np.mean(y), np.std(y)
        return self

    def predict_dist(self, X) -> Predictive:
        return Predictive(Normal(np.full(len(X), self.mean_), np.full(len(X), self.std_)))


@final
class NGBoost(AbstractBooster):
    """Natural gradient boosting."""

    def boost(self, X, y, X_held, y_held):
        model = load_package("ngboost").NGBRegressor(
            Base=DecisionTreeRegressor(max_depth=3, random_state=self.random_state),
            n_estimators=MOST_TREES,
            learning_rate=LEARNING_RATE,
            random_state=self.random_state,
            verbose=False,
        )
        return model.fit(X, y, X_val=X_held, Y_val=y_held, early_stopping_rounds=PATIENCE)

    def mean_and_std(self, X):
        n_trees = self.model_.best_val_loss_itr + 1  # by default all trees are used
        params = self.model_.pred_dist(X, max_iter=n_trees).params
        return params["loc"], params["scale"]


@final
class XGBoostDistribution(AbstractBooster):
    """XGBoost on natural gradients."""

    def boost(self, X, y, X_held, y_held):
        model = load_package("xgboost-distribution").XGBDistribution(
            distribution="normal",
            n_estimators=MOST_TREES,
            learning_rate=LEARNING_RATE,
            early_stopping_rounds=PATIENCE,
            random_state=self.random_state,
        )
        return model.fit(X, y, eval_set=[(X_held, y_held)], verbose=False)

    def mean_and_std(self, X):
        mean, std = self.model_.predict(X)
        return mean, std


@final
class TabPFN(AbstractPeer):
    """TabPFN from the weights on disk, its density rebuilt from its quantiles."""

    def fit(self, X, y, sample_weight=None) -> "TabPFN":
        model = load_package("tabpfn").TabPFNRegressor(
            model_path=find_tabpfn_weights(), random_state=self.random_state
        )
        self.model_ = model.fit(X, y)
        return self

    def predict_dist(self, X) -> Predictive:
        found = self.model_.predict(X, output_type="quantiles", quantiles=LEVELS.tolist())
        return from_quantiles(np.stack(found))


def from_quantiles(quantiles: NDArray) -> Predictive:
    """A narrow Normal at every quantile: its levels, evenly spaced, lie on the first axis."""
    quantiles = np.sort(np.asarray(quantiles, dtype=np.float64), axis=0)
    spacing = np.gradient(quantiles, axis=0)
    least = 1e-6 * np.abs(quantiles).max()  # where quantiles are tied
    return Predictive(Mixture(Normal(quantiles, np.maximum(spacing, least))))


def find_tabpfn_weights() -> Path | None:
    """Weights of TabPFN's newest regressor, where the package itself looks for them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("TABPFN_MODEL_CACHE_DIR") or cache / "tabpfn")
    return max(folder.glob("tabpfn-*-regressor*.ckpt"), default=None)


def why_no_tabpfn() -> str:
    """Why TabPFN cannot be run; nothing if it can."""
    if not is_installed("tabpfn"):
        return "the package is not installed"
    return "" if find_tabpfn_weights() else "its weights are not on this disk"


PEERS = {
    "ngboost": Method("NGBoost", lambda seed: NGBoost(random_state=seed), is_network=False),
    "xgboost-distribution": Method(
        "XGBoost-distribution",
        lambda seed: XGBoostDistribution(random_state=seed),
        is_network=False,
    ),
    "catboost": Method("CatBoost", lambda seed: CatBoost(random_state=seed), is_network=False),
    "tabpfn": Method("TabPFN", lambda seed: TabPFN(random_state=seed), is_network=False),
    "marginal": Method("Marginal", lambda seed: Marginal(random_state=seed), is_network=False),
}


# The run.


def register_peers() -> None:
    """Make the peers known to the runner and the tables of this process."""
    METHODS.update(PEERS)


def peer_experiment() -> Experiment:
    """The benchmark of our methods and other people's, each fitted alone."""
    return Experiment(
        name=NAME,
        about="our methods and other people's, each fitted alone",
        datasets=tuple(name for name in UCI_SETS if name != "year"),
        methods=(*HOUSE, *PACKAGES, *(() if why_no_tabpfn() else ("tabpfn",)), "marginal"),
        n_splits=5,
        most_splits=lambda dataset: UCI_SETS[dataset].n_splits,
        other_datasets=("year",),
        run=run_peers,
        tables=peer_tables,
    )


def run_peers(job: Sequence[Task]) -> list[Record]:
    """The records of a job, with the versions of the peers' packages."""
    packages = (*PACKAGES, "tabpfn")
    if job[0].method in packages:
        load_package(job[0].method)  # now, for an import is no part of a fit
    versions = {name: version(name) for name in packages if is_installed(name)}
    return [replace(record, machine=record.machine | versions) for record in run_splits(job)]


def run_missing(choice: Choice, folder: Path, n_workers: int, *, retry_failed: bool) -> None:
    """Run what has no record yet; a package that is missing is noticed before anything is run."""
    experiment = peer_experiment()
    tasks = experiment.choose(choice)
    for name in {task.method for task in tasks} & set(PACKAGES):
        load_package(name)
    if any(task.method == "tabpfn" for task in tasks) and why_no_tabpfn():
        raise MissingExtraError(f"TabPFN is not available: {why_no_tabpfn()}.")
    # Workers inherit it; or else XGBoost's threads spin for minutes where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with show_progress() as observe:
        engine = LocalEngine(n_workers=n_workers)
        run_tasks(experiment, tasks, folder, engine, retry_failed=retry_failed, observe=observe)


# The report.


def peer_tables(records: Sequence[Record]) -> list[ReportTable]:
    """Scores, seconds, paired wins and checks of our method, and what was run where."""
    tables = []
    for benchmark in arrange(records):
        tables += [
            score_table(benchmark, score)
            for score in (LOG_LIKELIHOOD, CRPS, RMSE, COVERAGE_90, WIDTH)
        ]
        tables += [table for table in duplicates_tables(benchmark) if table.rows]
        tables += [seconds_table(benchmark, score) for score in (FIT, PREDICT, COMPILE)]
        tables += [wins_table(benchmark), checks_table(benchmark)]
    tables += [
        methods_table(records),
        failure_table(records, {NAME: peer_experiment()}),
        machine_table(records),
    ]
    return [table for table in tables if table.rows]


def seconds_table(benchmark: Benchmark, score: Score) -> ReportTable:
    """One row per data set; the marginal, which takes no time, is left out."""
    cells = {
        dataset: {method: cell for method, cell in row.items() if method != "marginal"}
        for dataset, row in benchmark.cells.items()
    }
    timed = replace(benchmark, cells=cells)
    notes = ["Mean over the splits.", *(time_notes(timed) if score == FIT else [])]
    return replace(score_table(timed, score), notes=notes)


def wins_table(benchmark: Benchmark) -> ReportTable:
    """Our method against each other one, on the splits that both have."""
    others = [method for method in benchmark.methods if method != OURS]
    scores = {"log-likelihood": LOG_LIKELIHOOD, "CRPS": CRPS}
    (ours,) = titles([OURS])
    rows = []
    for other, title in zip(others, titles(others), strict=True):
        counts = [count_wins(benchmark, other, score) for score in scores.values()]
        if any(counts):
            rows.append([title, *(text for found in counts for text in found or ["", "", ""])])
    columns = ("data sets won", "clearly won, lost", "splits won")
    return ReportTable(
        title=full_title(benchmark, f"paired wins of {ours}"),
        header=["against", *(f"{name}: {column}" for name in scores for column in columns)],
        rows=rows,
        notes=[
            "On common splits. A data set is won by the mean, clearly if by more than one standard"
            " error of the difference. A tie is not won."
        ],
    )


def count_wins(benchmark: Benchmark, other: str, score: Score) -> list[str]:
    """Data sets won, data sets clearly won and lost, splits won; nothing without common splits."""
    found = [benchmark.gains(dataset, OURS, other, score) for dataset in benchmark.cells]
    gains = [values for values in found if len(values)]
    if not gains:
        return []
    won = sum(values.mean() > 0 for values in gains)
    clearly_won = sum(values.mean() > standard_error(values) > 0 for values in gains)
    clearly_lost = sum(-values.mean() > standard_error(values) > 0 for values in gains)
    splits = np.concatenate(gains)
    return [
        f"{won} of {len(gains)}",
        f"{clearly_won}, {clearly_lost}",
        f"{np.sum(splits > 0)} of {len(splits)}",
    ]


def checks_table(benchmark: Benchmark) -> ReportTable:
    """Our method's worst splits, by log-likelihood, and the range of its coverage."""
    (ours,) = titles([OURS])
    rows, falls, margins, covered = [], {}, [], {}
    for dataset in benchmark.cells:
        cell = benchmark.cell(dataset, OURS)
        values, coverage = cell.values(LOG_LIKELIHOOD), cell.values(COVERAGE_90)
        if not len(values):
            continue
        margin = benchmark.gains(dataset, OURS, "marginal", LOG_LIKELIHOOD)
        falls[dataset], covered[dataset] = values.min() - np.median(values), coverage.mean()
        margins += margin.tolist()
        rows.append(
            [
                dataset,
                f"{np.median(values):.2f}",
                f"{values.min():.2f}",
                f"{falls[dataset]:.2f}",
                f"{margin.min():.2f}" if len(margin) else "",
                f"{coverage.min():.1f} to {coverage.max():.1f}",
                f"{covered[dataset]:.1f}",
            ]
        )
    notes = []
    if rows:
        worst = min(falls, key=lambda dataset: falls[dataset])
        notes = [
            f"Log-likelihood in nats. The split farthest below its set's median: {worst},"
            f" {falls[worst]:.2f}.",
            f"Below the marginal Normal on {sum(np.array(margins) < 0)} of {len(margins)} splits.",
            f"Mean coverage of a set's 90 % intervals: from {min(covered.values()):.1f} to"
            f" {max(covered.values()):.1f} %.",
        ]
    return ReportTable(
        title=full_title(benchmark, f"checks of {ours}"),
        header=[
            "data set",
            "median split",
            "worst split",
            "worst − median",
            "least above marginal",
            "90 % coverage of splits",
            "mean",
        ],
        rows=rows,
        notes=notes,
    )


def methods_table(records: Sequence[Record]) -> ReportTable:
    """How the peers were set; the house methods have their own defaults."""
    about = {
        "ngboost": "Normal; predicts with its best round",
        "xgboost-distribution": "Normal",
        "catboost": "RMSEWithUncertainty",
        "tabpfn": f"a narrow Normal at each of {len(LEVELS)} quantiles",
        "marginal": "Normal with mean and standard deviation of the training targets",
    }
    found = {record.task.method for record in records}
    notes = [
        f"NGBoost, XGBoost-distribution and CatBoost: learning rate {LEARNING_RATE}, up to"
        f" {MOST_TREES:,} rounds, stopped after {PATIENCE} without gain on"
        f" {100 * HELD_OUT:.0f} % of the training rows, which are used for nothing else; y is"
        " standardised; all else is left as it comes.",
        "All others: the settings of `sigmax.runs.methods`.",
    ]
    if "tabpfn" not in found:
        notes.append(f"TabPFN: not available ({why_no_tabpfn() or 'not run'}).")
    return ReportTable(
        title=f"{NAME}: what was compared",
        header=["method", "how"],
        rows=[[METHODS[name].title, text] for name, text in about.items() if name in found],
        notes=notes,
        in_words=True,
    )


def read_tables(folder: Path) -> list[ReportTable]:
    records = read_records(folder / FILE_NAME)
    return peer_tables([record for record in records if record.task.experiment == NAME])


def refreshed(text: str, tables: Sequence[ReportTable]) -> str:
    """The text of a page with the tables that it shows made anew, and with those of duplicates."""
    short = [replace(table, title=short_title(table)) for table in tables]
    shown = set(re.findall(r"^### (.+)$", "".join(MARKED.findall(text)), re.MULTILINE))
    kept = [t for t in short if t.title in shown or t.title.endswith("new rows and duplicates")]
    body = "\n".join(table.to_markdown() for table in kept)
    return MARKED.sub(lambda match: f"<!-- peers -->\n\n{body}\n<!-- end -->", text)


def short_title(table: ReportTable) -> str:
    title = table.title.removeprefix(f"{NAME}: ")
    return title[0].upper() + title[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--datasets", type=split_names, default=())
    parser.add_argument("--methods", type=split_names, default=())
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("out/peers"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--retry-failed", action="store_true")
    parser.add_argument("--report", action="store_true", help="only print what is there")
    parser.add_argument("--page", type=Path, help="put the tables there instead of printing them")
    given = parser.parse_args()
    choice = Choice(datasets=given.datasets, methods=given.methods, n_splits=given.splits)
    try:
        if not given.report:
            run_missing(choice, given.out, given.workers, retry_failed=given.retry_failed)
        tables = read_tables(given.out)
        if given.page:
            text = given.page.read_text(encoding="utf-8")
            given.page.write_text(refreshed(text, tables), encoding="utf-8")
        else:
            print("\n".join(table.to_markdown() for table in tables))
    except SigmaxError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from here")


if __name__ in ("__main__", "__mp_main__"):  # also in the worker processes
    register_peers()
if __name__ == "__main__":
    main()
