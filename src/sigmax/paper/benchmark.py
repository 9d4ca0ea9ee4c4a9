"""Benchmark results: records by data set and method, and their tables."""

import itertools
import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import final

import numpy as np
from numpy.typing import NDArray

from sigmax.report.tables import ReportTable, mean_and_error
from sigmax.runs.methods import METHODS, Method
from sigmax.runs.records import Record

PUBLISHED: dict[str, dict[str, dict[str, dict[str, list[float]]]]] = tomllib.loads(
    (files("sigmax.paper") / "published.toml").read_text(encoding="utf-8")
)
"""Printed values: ``uci`` or ``images`` -> score -> data set -> method -> mean and ±."""


@final
@dataclass(frozen=True, kw_only=True)
class Score:
    """Number of a record, and its format in a table."""

    title: str
    name: str
    part: str = "scores"
    """Part of the record: ``scores`` or ``seconds``."""
    better: int = 0
    """1 if higher is better, -1 if lower is better, 0 if neither."""
    factor: float = 1.0
    """Factor from the units of the record to those of the table."""
    digits: int | None = None
    """Number of decimals; with None, three digits of the smallest mean of a row."""
    note: str = ""


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
    note="In the units of y. Narrow intervals are better only at equal coverage: none is bold.",
)
CALIBRATION = Score(
    title="calibration error, in %",
    name="calibration_error",
    better=-1,
    factor=100.0,
    digits=1,
    note="Mean absolute difference between nominal and observed coverage, at levels from 5 % to"
    " 95 %.",
)
FIT, COMPILE = (
    Score(title=title, name=name, part="seconds", better=better, digits=2)
    for title, name, better in (
        ("seconds to fit a model, without compilation", "fit", -1),
        ("seconds of compilation, per model", "compile", 0),
    )
)


@final
@dataclass(frozen=True)
class Cell:
    """Records of one method on one data set, by status."""

    done: list[Record] = field(default_factory=list)
    failed: list[Record] = field(default_factory=list)
    infeasible: list[Record] = field(default_factory=list)

    def by_split(self, score: Score) -> dict[tuple[int, int], float]:
        """Score by split and seed, in the units of the table."""
        found = {(r.task.split, r.task.seed): getattr(r, score.part) for r in self.done}
        return {k: score.factor * v[score.name] for k, v in found.items() if score.name in v}

    def values(self, score: Score) -> NDArray:
        return np.array(list(self.by_split(score).values()), dtype=float)


@final
@dataclass(frozen=True)
class Benchmark:
    """Records of one experiment with the same settings."""

    experiment: str
    settings: str
    cells: dict[str, dict[str, Cell]]
    """Data set -> method -> records."""

    @property
    def methods(self) -> list[str]:
        """Methods with records, in the order of ``METHODS``."""
        return [name for name in METHODS if any(name in row for row in self.cells.values())]

    def each(self) -> Iterator[tuple[str, str, Cell]]:
        for dataset, row in self.cells.items():
            for method, cell in row.items():
                yield dataset, method, cell

    def cell(self, dataset: str, method: str) -> Cell:
        return self.cells[dataset].get(method, Cell())

    def means(self, dataset: str, score: Score) -> dict[str, float]:
        values = {method: self.cell(dataset, method).values(score) for method in self.methods}
        return {method: float(found.mean()) for method, found in values.items() if len(found)}

    def best(self, dataset: str, score: Score) -> str | None:
        """Method with the best mean, or None in a tie."""
        means = {m: score.better * mean for m, mean in self.means(dataset, score).items()}
        first = [m for m, mean in means.items() if mean == max(means.values())]
        return first[0] if score.better and len(first) == 1 else None

    def leaders(self, dataset: str, score: Score) -> list[str]:
        """The best method and those within one standard error; seconds have no error."""
        means = self.means(dataset, score)
        if not means or not score.better:
            return []
        best = max(means, key=lambda method: score.better * means[method])
        repeats = self.cell(dataset, best).values(score)
        reach = standard_error(repeats) if score.part == "scores" else 0.0
        return [m for m in means if score.better * (means[best] - means[m]) <= reach]

    def gains(self, dataset: str, method: str, other: str, score: Score) -> NDArray:
        """Improvement of one method over another on each common split."""
        first, second = (self.cell(dataset, name).by_split(score) for name in (method, other))
        common = sorted(set(first) & set(second))
        return score.better * np.array([first[i] - second[i] for i in common], dtype=float)

    def data_mean(self, dataset: str, name: str) -> float:
        """Mean of a number of the metadata over the splits; nan if no record has it."""
        found: dict[int, float] = {}
        for cell in self.cells[dataset].values():
            records = (*cell.done, *cell.failed, *cell.infeasible)
            found |= {r.task.split: float(r.data[name]) for r in records if name in r.data}
        return float(np.mean(list(found.values()))) if found else np.nan


def standard_error(values: NDArray) -> float:
    """Standard error of the mean; 0 for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def arrange(records: Sequence[Record]) -> list[Benchmark]:
    """One benchmark per experiment and settings, with data sets sorted by name."""
    benchmarks: dict[tuple[str, str], Benchmark] = {}
    for record in sorted(records, key=lambda r: (r.task.dataset, r.task.split, r.task.seed)):
        task = record.task
        kind = (task.experiment, task.settings_text)
        rows = benchmarks.setdefault(kind, Benchmark(*kind, cells={})).cells
        cell = rows.setdefault(task.dataset, {}).setdefault(task.method, Cell())
        getattr(cell, record.status).append(record)
    return list(benchmarks.values())


SCORES = (LOG_LIKELIHOOD, RMSE, CRPS, COVERAGE_50, COVERAGE_80, COVERAGE_90, WIDTH, CALIBRATION)
PAIRS = (
    ("combined-paper", "nn-paper"),
    ("combined", "ens-nn"),
    *(("local", other) for other in ("gp", "sgp", "ens-nn", "combined")),
)
FEW_TARGETS = 100
LARGE_EXCESS = 0.5


def uci_tables(records: Sequence[Record]) -> list[ReportTable]:
    """Scores, seconds and published values; for timings, seconds only."""
    tables = []
    for benchmark in arrange(records):
        if benchmark.experiment == "timings":
            tables += [score_table(benchmark, score) for score in (FIT, COMPILE)]
            tables.append(published_table(benchmark, FIT))
            continue
        known = [s for s in SCORES if any(benchmark.means(name, s) for name in benchmark.cells)]
        tables += [score_table(benchmark, score) for score in known or (LOG_LIKELIHOOD,)]
        tables += [*duplicates_tables(benchmark), summary_table(benchmark)]
        tables += [score_table(benchmark, score) for score in (FIT, COMPILE)]
        tables += [published_table(benchmark, score) for score in (LOG_LIKELIHOOD, RMSE)]
    return [table for table in tables if table.rows or table.notes]


def title_with_settings(text: str, settings: str) -> str:
    """Title of a table, with the settings that differ from the defaults."""
    return f"{text} ({settings})" if settings else text


def full_title(benchmark: Benchmark, title: str) -> str:
    return title_with_settings(f"{benchmark.experiment}: {title}", benchmark.settings)


def titles(methods: Iterable[str]) -> list[str]:
    return [METHODS[method].title for method in methods]


def score_row(benchmark: Benchmark, dataset: str, score: Score, name: str = "") -> list[str]:
    """Name (by default, of the data set), and one cell per method with the best in bold.

    A cell has mean and error, the number of failures, ``-`` if infeasible, or no record.
    """
    means, digits = benchmark.means(dataset, score), score.digits
    if digits is None:
        sizes = [abs(mean) for mean in means.values() if mean]
        digits = int(np.clip(2 - np.floor(np.log10(min(sizes))), 0, 6)) if sizes else 0
    leaders, row = benchmark.leaders(dataset, score), [name or dataset]
    for method in benchmark.methods:
        cell = benchmark.cell(dataset, method)
        values, text = cell.values(score), f"failed ({len(cell.failed)})" if cell.failed else ""
        if len(values):
            shown = values if score.part == "scores" else [values.mean()]
            text = f"{mean_and_error(shown, digits=digits)} {text}".strip()
        elif not text and cell.infeasible:
            text = "-"
        row.append(f"**{text}**" if method in leaders else text)
    return row


def by_dataset(counts: dict[str, int]) -> str:
    """The most frequent count, and the data sets with another."""
    usual = Counter(counts.values()).most_common(1)[0][0]
    others = ", ".join(f"{name} {n}" for name, n in counts.items() if n != usual)
    return f"{usual} ({others})" if others else f"{usual}"


def method_rows(
    known: Mapping[str, Method],
    methods: Mapping[str, Sequence[Record]],
    columns: Mapping[str, tuple[str, int]],
) -> list[list[str]]:
    """Title of every method, and mean and error of the score of each column."""
    rows = []
    for method, records in methods.items():
        row = [known[method].title]
        for score, digits in columns.values():
            values = [record.scores[score] for record in records]
            mean = float(np.mean(values))
            is_large = abs(mean) >= 1e5
            row.append(f"{mean:.1e}" if is_large else mean_and_error(values, digits=digits))
        rows.append(row)
    return rows


def score_table(benchmark: Benchmark, score: Score) -> ReportTable:
    if score == COMPILE:
        notes = ["Mean over the splits, shared equally by models that are trained together."]
    elif score == FIT:
        notes = ["Mean over the splits.", *time_notes(benchmark)]
    else:
        bold = " Bold: the best, and all within one standard error of it." if score.better else ""
        notes = [f"Mean ± standard error over the splits.{bold}", *filter(None, [score.note])]
    if score == LOG_LIKELIHOOD or (score == FIT and benchmark.experiment == "timings"):
        counts = split_counts(benchmark, score)
        if most := {dataset: max(row.values()) for dataset, row in counts.items() if row}:
            empty = any(set(row) != set(benchmark.methods) for row in benchmark.cells.values())
            notes.append(f"Splits: {by_dataset(most)}." + " An empty cell has no record." * empty)
        notes += fewer_notes(benchmark, score) + infeasible_notes(benchmark)
    if score == LOG_LIKELIHOOD:
        notes += warning_notes(benchmark)
    return ReportTable(
        title=full_title(benchmark, score.title),
        header=["data set", *titles(benchmark.methods)],
        rows=[score_row(benchmark, dataset, score) for dataset in benchmark.cells],
        notes=notes,
    )


def split_counts(benchmark: Benchmark, score: Score) -> dict[str, dict[str, int]]:
    """Data set -> method -> number of splits with the score, if any."""
    counts: dict[str, dict[str, int]] = {dataset: {} for dataset in benchmark.cells}
    for dataset, method, cell in benchmark.each():
        if n := len(cell.values(score)):
            counts[dataset][method] = n
    return counts


def fewer_notes(benchmark: Benchmark, score: Score) -> list[str]:
    fewer: dict[tuple[str, int, int], list[str]] = {}
    for dataset, row in split_counts(benchmark, score).items():
        for method, n in row.items():
            if n < max(row.values()):
                fewer.setdefault((method, n, max(row.values())), []).append(dataset)
    listed = [
        f"{METHODS[method].title} ({n} of {most} on {', '.join(fewer[method, n, most])})"
        for method, n, most in sorted(fewer, key=lambda kind: benchmark.methods.index(kind[0]))
    ]
    return [f"On fewer splits than others: {'; '.join(listed)}."] if listed else []


def infeasible_notes(benchmark: Benchmark, *, with_reason: bool = True) -> list[str]:
    """Methods and data sets of the cells with ``-``."""
    found: dict[tuple[str, str], list[str]] = {}
    for dataset, method, cell in benchmark.each():
        if cell.infeasible:
            reason = f" ({cell.infeasible[0].reason})" if with_reason else ""
            found.setdefault((METHODS[method].title, reason), []).append(dataset)
    listed = [f"{title} on {', '.join(names)}{reason}" for (title, reason), names in found.items()]
    return [f"Not feasible (-): {'; '.join(listed)}."] if listed else []


def time_notes(benchmark: Benchmark) -> list[str]:
    """Number of models trained together, and the devices."""
    most, devices = {}, {}
    for dataset, _, cell in benchmark.each():
        for record in cell.done:
            together = int(record.seconds.get("together", 1))
            most[dataset] = max(together, most.get(dataset, 1))
            if "device" in record.machine:
                cores = record.machine.get("cores", "?")
                devices[f"{record.machine['device']}, {cores} cores"] = None
    notes = ["Every model was trained alone."]
    if any(n > 1 for n in most.values()):
        notes = [
            "Networks that are trained together share the time equally; largest number trained"
            f" together: {by_dataset(most)}."
        ]
    return notes + ([f"Measured on: {'; '.join(devices)}."] if devices else [])


def warning_notes(benchmark: Benchmark) -> list[str]:
    """Properties of the data that can raise a log-likelihood, and scores that are very high."""
    duplicates = {name: benchmark.data_mean(name, "copies_of_X") for name in benchmark.cells}
    shares = [f"{name} {100 * share:.1f} %" for name, share in duplicates.items() if share > 0]
    excesses = {}
    for dataset, method, cell in benchmark.each():
        scores, errors = cell.by_split(LOG_LIKELIHOOD), cell.by_split(RMSE)
        found = [excess_over_normal(scores[i], errors[i]) for i in scores if i in errors]
        excesses[dataset, method] = float(np.mean(found)) if found else math.nan
    targets = {name: benchmark.data_mean(name, "n_distinct_targets") for name in benchmark.cells}
    discrete = [f"{name} {n:.0f}" for name, n in targets.items() if n < FEW_TARGETS]
    notes = []
    if shares:
        notes.append(
            f"Test rows with the X of a training row: {', '.join(shares)}. A model that memorises"
            " training rows scores higher on them than on new rows."
        )
    if discrete:
        notes.append(
            f"Few distinct targets: {', '.join(discrete)}. The log-density of a discrete target has"
            " no upper bound: narrow peaks at its values give a high score."
        )
    if listed := large_excesses(benchmark, excesses):
        notes.append(
            "More than 0.5 nats above −½ log(2πe RMSE²), the maximum for a Normal with constant"
            f" variance and that RMSE: {listed}. Input-dependent noise can explain it; check these"
            " scores."
        )
    return notes


def excess_over_normal(log_likelihood: float, rmse: float) -> float:
    """Log-likelihood minus the maximum for a Normal with constant variance and that RMSE."""
    return log_likelihood + 0.5 * math.log(2 * math.pi * math.e * max(rmse, 1e-300) ** 2)


def large_excesses(benchmark: Benchmark, excesses: dict[tuple[str, str], float]) -> str:
    found: dict[str, list[str]] = {}
    for dataset, method in itertools.product(benchmark.cells, benchmark.methods):
        if (excess := excesses.get((dataset, method), 0.0)) > LARGE_EXCESS:
            found.setdefault(dataset, []).append(f"{METHODS[method].title} {excess:+.2f}")
    return "; ".join(f"{dataset}: {', '.join(methods)}" for dataset, methods in found.items())


def duplicates_tables(benchmark: Benchmark) -> list[ReportTable]:
    """Scores of new rows and of duplicates, test rows whose X is among the training rows.

    Methods that memorise training rows score higher on duplicates. Empty without duplicates.
    """
    tables = []
    for score in (LOG_LIKELIHOOD, CRPS, COVERAGE_90):
        new, duplicates = (
            replace(score, name=f"{part}_{score.name}") for part in ("new", "copies")
        )
        rows = [
            score_row(benchmark, dataset, part, f"{dataset}, {words}")
            for dataset in benchmark.cells
            if benchmark.means(dataset, duplicates)
            for part, words in ((new, "new rows"), (duplicates, "duplicates"))
        ]
        bold = " Bold: the best of a row, and all within one standard error." * bool(score.better)
        notes = [
            f"Mean ± standard error over the splits.{bold} Duplicates are test rows with the X of a"
            " training row, whatever their y; new rows are all others."
        ]
        if any("" in row for row in rows):
            notes.append("An empty cell has no record with separate scores.")
        table = ReportTable(
            title=full_title(benchmark, f"{score.title}, new rows and duplicates"),
            header=["data set", *titles(benchmark.methods)],
            rows=rows,
            notes=notes + fewer_notes(benchmark, duplicates),
        )
        tables += [table] if rows else []
    return tables


def summary_table(benchmark: Benchmark) -> ReportTable:
    """Number of data sets on which each method is best, and comparisons of pairs."""
    rows = []
    for score in (LOG_LIKELIHOOD, RMSE, CRPS, CALIBRATION):
        name = score.title.partition(",")[0]
        scored = [benchmark.means(dataset, score) for dataset in benchmark.cells]
        best = [[benchmark.best(dataset, score)] for dataset in benchmark.cells]
        near = [benchmark.leaders(dataset, score) for dataset in benchmark.cells]
        kinds = {f"{name}: best mean": best, f"{name}: best or within one standard error": near}
        for words, found in kinds.items() if any(scored) else ():
            counts = [
                f"{sum(m in names for names in found)} of {sum(m in means for means in scored)}"
                for m in benchmark.methods
            ]
            rows.append([words, *counts])
    notes = [
        "Counts of data sets, out of those for which the method has a score. Best mean: better than"
        " the mean of every other method. Within one standard error: that of the best mean, over"
        " its splits."
    ]
    notes += fewer_notes(benchmark, LOG_LIKELIHOOD)
    notes += infeasible_notes(benchmark, with_reason=False)
    for pair in PAIRS:
        found = (benchmark.gains(dataset, *pair, LOG_LIKELIHOOD) for dataset in benchmark.cells)
        if gains := [values for values in found if len(values)]:
            above = sum(values.mean() > 0 for values in gains)
            clear = sum(values.mean() > standard_error(values) > 0 for values in gains)
            notes.append(
                f"{' above '.join(titles(pair))} on {above} of {len(gains)} data sets in"
                " log-likelihood on the same splits; by more than one standard error of the"
                f" difference on {clear}."
            )
    return ReportTable(
        title=full_title(benchmark, "data sets on which a method is best"),
        header=["score", *titles(benchmark.methods)],
        rows=rows,
        notes=notes if rows else [],
    )


def published_table(benchmark: Benchmark, score: Score) -> ReportTable:
    """Published values, and in brackets ours minus theirs; for seconds, ours."""
    seconds = score.part == "seconds"
    paper = PUBLISHED["uci"]["seconds" if seconds else score.name]
    datasets = [name for name in benchmark.cells if name in paper]
    methods = [m for m in benchmark.methods if any(m in row for row in paper.values())]
    rows = []
    for dataset in datasets:
        ours, row = benchmark.means(dataset, score), [dataset]
        for method in methods:
            mean, error = paper[dataset].get(method, (0.0, 0.0))
            text = f"{mean:.2f} ± {error:.2f}" if method in paper[dataset] else "-"
            if method in ours and method in paper[dataset]:
                text += f" ({ours[method]:.3g})" if seconds else f" ({ours[method] - mean:+.2f})"
            row.append(text)
        rows.append(row)
    ending = "ours" if seconds else "ours minus theirs"
    notes = ["In brackets: ours minus the paper's. ± as printed; the splits of the paper differ."]
    if seconds:
        notes = ["In brackets: ours. The hardware differs; ours is without compilation."]
    if score == LOG_LIKELIHOOD:
        errors = PUBLISHED["uci"]["rmse"]
        excesses = {  # with the smallest RMSE that rounds to the printed one
            (dataset, m): excess_over_normal(paper[dataset][m][0], errors[dataset][m][0] - 0.005)
            for dataset in datasets
            for m in methods
            if m in paper[dataset] and m in errors[dataset]
        }
        if listed := large_excesses(benchmark, excesses):
            notes.append(
                "Printed values that are more than 0.5 nats above −½ log(2πe RMSE²) for the printed"
                f" RMSE: {listed}."
            )
    return ReportTable(
        title=full_title(benchmark, f"the paper's {score.title}, and {ending}"),
        header=["data set", *titles(methods)],
        rows=rows if methods else [],
        notes=notes if methods and rows else [],
    )
