"""Results of a benchmark: records by data set and method, and who is best by which score."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from sigmax.runs.methods import METHODS
from sigmax.runs.records import Record

__all__ = [
    "CALIBRATION",
    "COMPILE",
    "COVERAGE_50",
    "COVERAGE_80",
    "COVERAGE_90",
    "CRPS",
    "FIT",
    "LOG_LIKELIHOOD",
    "RMSE",
    "WIDTH",
    "Benchmark",
    "Cell",
    "Score",
    "arrange",
    "standard_error",
]


@final
@dataclass(frozen=True, kw_only=True)
class Score:
    """A number of a record, and how a table shows it."""

    title: str
    name: str
    part: str = "scores"
    """Of the record: ``scores`` or ``seconds``."""
    better: int = 0
    """1 if higher is better, -1 if lower is, 0 if neither."""
    factor: float = 1.0
    """From the record's units to those of the table."""
    digits: int | None = None
    """After the point; without them, as many as the smallest number of a row needs."""
    note: str = ""

    def read(self, record: Record) -> float | None:
        """The number in the table's units, if the record has it."""
        value = getattr(record, self.part).get(self.name)
        return None if value is None else self.factor * value

    def on(self, part: str) -> "Score":
        """The same score of a part of the test rows, ``new`` or ``copies``."""
        return replace(self, name=f"{part}_{self.name}")


LOG_LIKELIHOOD = Score(title="test log-likelihood", name="log_likelihood", better=1, digits=2)
RMSE = Score(title="test RMSE", name="rmse", better=-1)
CRPS = Score(title="test CRPS", name="crps", better=-1)
COVERAGE_50, COVERAGE_80, COVERAGE_90 = (
    Score(title=f"coverage of {level} % intervals, in %", name=name, factor=100.0, digits=1)
    for level, name in ((50, "coverage_50"), (80, "coverage_80"), (90, "coverage"))
)
WIDTH = Score(
    title="width of 90 % intervals",
    name="interval_width",
    note="In the units of y. Narrow is good only where the coverage is right: none is bold.",
)
CALIBRATION = Score(
    title="calibration error, in %",
    name="calibration_error",
    better=-1,
    factor=100.0,
    digits=1,
    note="Mean gap between nominal and observed coverage, at levels from 5 % to 95 %.",
)
FIT = Score(
    title="seconds to fit a model, without compilation",
    name="fit",
    part="seconds",
    better=-1,
    digits=2,
)
COMPILE = Score(title="seconds of compilation, per model", name="compile", part="seconds", digits=2)


@final
@dataclass(frozen=True)
class Cell:
    """All records of one method on one data set, by what became of them."""

    done: list[Record] = field(default_factory=list)
    failed: list[Record] = field(default_factory=list)
    infeasible: list[Record] = field(default_factory=list)

    def by_split(self, score: Score) -> dict[tuple[int, int], float]:
        """The score by split and seed."""
        found = {(r.task.split, r.task.seed): score.read(r) for r in self.done}
        return {repeat: value for repeat, value in found.items() if value is not None}

    def values(self, score: Score) -> NDArray:
        return np.array(list(self.by_split(score).values()), dtype=float)


@final
@dataclass(frozen=True)
class Benchmark:
    """The records of one experiment with the same settings."""

    experiment: str
    settings: str
    cells: dict[str, dict[str, Cell]]
    """Data set -> method -> records, in the order of tables."""

    @property
    def methods(self) -> list[str]:
        """Those that occur, in the order of ``METHODS``."""
        return [name for name in METHODS if any(name in row for row in self.cells.values())]

    def cell(self, dataset: str, method: str) -> Cell:
        return self.cells[dataset].get(method, Cell())

    def means(self, dataset: str, score: Score) -> dict[str, float]:
        """The mean of every method that has the score."""
        values = {method: self.cell(dataset, method).values(score) for method in self.methods}
        return {method: float(found.mean()) for method, found in values.items() if len(found)}

    def best(self, dataset: str, score: Score) -> str | None:
        """The one method whose mean is better than all others; none in a tie."""
        means = {m: score.better * mean for m, mean in self.means(dataset, score).items()}
        first = [m for m, mean in means.items() if mean == max(means.values())]
        return first[0] if score.better and len(first) == 1 else None

    def leaders(self, dataset: str, score: Score) -> list[str]:
        """The best method, and those that are within one standard error of its mean.

        Seconds have no error: models trained together share one measurement.
        """
        means = self.means(dataset, score)
        if not means or not score.better:
            return []
        best = max(means, key=lambda method: score.better * means[method])
        repeats = self.cell(dataset, best).values(score)
        reach = standard_error(repeats) if score.part == "scores" else 0.0
        return [m for m in means if score.better * (means[best] - means[m]) <= reach]

    def gains(self, dataset: str, method: str, other: str, score: Score) -> NDArray:
        """By how much one method is better than another, on each split that both have."""
        ours, theirs = (self.cell(dataset, name).by_split(score) for name in (method, other))
        common = sorted(set(ours) & set(theirs))
        return score.better * np.array([ours[i] - theirs[i] for i in common], dtype=float)


def standard_error(values: NDArray) -> float:
    """Of the mean; 0 for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def arrange(records: Sequence[Record]) -> list[Benchmark]:
    """One benchmark per experiment and settings, data sets by name."""
    benchmarks: dict[tuple[str, str], Benchmark] = {}
    for record in sorted(records, key=lambda r: (r.task.dataset, r.task.split, r.task.seed)):
        task = record.task
        kind = (task.experiment, task.settings_text)
        rows = benchmarks.setdefault(kind, Benchmark(*kind, cells={})).cells
        cell = rows.setdefault(task.dataset, {}).setdefault(task.method, Cell())
        getattr(cell, record.status).append(record)
    return list(benchmarks.values())
