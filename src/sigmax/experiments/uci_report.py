"""Tables of the UCI benchmark and of its timings, with the paper's values beside ours."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from sigmax.experiments.benchmark import (
    CALIBRATION,
    COMPILE,
    COVERAGE_50,
    COVERAGE_90,
    CRPS,
    FIT,
    LOG_LIKELIHOOD,
    RMSE,
    WIDTH,
    Benchmark,
    Score,
    arrange,
    standard_error,
)
from sigmax.experiments.guard_rails import guard_rails, paper_gaps
from sigmax.experiments.methods import METHODS
from sigmax.experiments.paper import PAPER
from sigmax.experiments.records import Record
from sigmax.experiments.tables import Table, mean_and_error
from sigmax.experiments.uci_pictures import uci_figures

__all__ = ["uci_figures", "uci_tables"]

SCORES = (LOG_LIKELIHOOD, RMSE, CRPS, COVERAGE_50, COVERAGE_90, WIDTH, CALIBRATION)
PAIRS = (("combined-paper", "nn-paper"), ("combined", "ens-nn"))


def uci_tables(records: Sequence[Record]) -> list[Table]:
    """Scores, seconds and the paper's values; of timings, which are of one split, seconds only."""
    tables = []
    for benchmark in arrange(records):
        if benchmark.experiment == "timings":
            tables += [score_table(benchmark, score) for score in (FIT, COMPILE)]
            tables.append(paper_table(benchmark, FIT))
            continue
        tables += [score_table(benchmark, score) for score in SCORES]
        tables.append(summary_table(benchmark))
        tables += [score_table(benchmark, score) for score in (FIT, COMPILE)]
        tables += [paper_table(benchmark, score) for score in (LOG_LIKELIHOOD, RMSE)]
    return [table for table in tables if table.rows]


def full_title(benchmark: Benchmark, title: str) -> str:
    settings = f" ({benchmark.settings})" if benchmark.settings else ""
    return f"{benchmark.experiment}: {title}{settings}"


def titles(methods: Sequence[str]) -> list[str]:
    return [METHODS[method].title for method in methods]


def score_table(benchmark: Benchmark, score: Score) -> Table:
    """One row per data set, one column per method; the best in bold."""
    rows = []
    for dataset in benchmark.cells:
        digits, leaders = row_digits(benchmark, dataset, score), benchmark.leaders(dataset, score)
        row = [dataset]
        for method in benchmark.methods:
            text = cell_text(benchmark, dataset, method, score, digits)
            row.append(f"**{text}**" if method in leaders else text)
        rows.append(row)
    return Table(
        title=full_title(benchmark, score.title),
        header=["data set", *titles(benchmark.methods)],
        rows=rows,
        notes=score_notes(benchmark, score),
    )


def row_digits(benchmark: Benchmark, dataset: str, score: Score) -> int:
    """The score's own, or as many as give the smallest mean of a row three digits."""
    sizes = [abs(mean) for mean in benchmark.means(dataset, score).values() if mean]
    if score.digits is not None or not sizes:
        return score.digits or 0
    return int(np.clip(2 - np.floor(np.log10(min(sizes))), 0, 6))


def cell_text(benchmark: Benchmark, dataset: str, method: str, score: Score, digits: int) -> str:
    """Mean and error; what failed is counted, ``-`` is infeasible, and nothing is no record."""
    cell = benchmark.cell(dataset, method)
    values, failed = cell.values(score), f"failed ({len(cell.failed)})" if cell.failed else ""
    if len(values):
        shown = values if score.part == "scores" else [values.mean()]
        return " ".join(filter(None, [mean_and_error(shown, digits=digits), failed]))
    return failed or ("-" if cell.infeasible else "")


def score_notes(benchmark: Benchmark, score: Score) -> list[str]:
    """How to read a table, and what to look at twice."""
    if score == COMPILE:
        return ["Mean over the splits; shared by models trained together, as the time to fit is."]
    if score == FIT:
        notes = ["Mean over the splits.", *time_notes(benchmark)]
    else:
        bold = " Bold: the best, and all within one standard error of it." if score.better else ""
        notes = [f"Mean ± standard error over the splits.{bold}"]
    if score.note:
        notes.append(score.note)
    if score == LOG_LIKELIHOOD or benchmark.experiment == "timings":
        notes += split_notes(benchmark) + infeasible_notes(benchmark)
    if score == LOG_LIKELIHOOD:
        notes += guard_rails(benchmark)
    return notes


def by_dataset(counts: dict[str, int]) -> str:
    """The most usual count, and the data sets with another.

    Examples
    --------
    >>> by_dataset({"boston": 20, "protein": 5, "yacht": 20})
    '20 (protein 5)'
    """
    usual = Counter(counts.values()).most_common(1)[0][0]
    others = ", ".join(f"{name} {n}" for name, n in counts.items() if n != usual)
    return f"{usual} ({others})" if others else f"{usual}"


def split_notes(benchmark: Benchmark) -> list[str]:
    """How many splits each data set has, and which methods have fewer."""
    counts = {
        dataset: {method: len(cell.done) for method, cell in row.items() if cell.done}
        for dataset, row in benchmark.cells.items()
    }
    most = {dataset: max(row.values()) for dataset, row in counts.items() if row}
    if not most:
        return []
    empty = any(set(row) != set(benchmark.methods) for row in benchmark.cells.values())
    notes = [f"Splits: {by_dataset(most)}." + " An empty cell has no record." * empty]
    fewer = [
        f"{METHODS[method].title} on {dataset} ({n} of {most[dataset]})"
        for dataset, row in counts.items()
        for method, n in row.items()
        if n < most[dataset]
    ]
    return notes + ([f"On fewer splits than others: {', '.join(fewer)}."] if fewer else [])


def infeasible_notes(benchmark: Benchmark) -> list[str]:
    """Why there is a ``-``."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for dataset, row in benchmark.cells.items():
        for method, cell in row.items():
            if cell.infeasible:
                kind = (METHODS[method].title, cell.infeasible[0].reason)
                reasons.setdefault(kind, []).append(dataset)
    listed = "; ".join(
        f"{title} on {', '.join(datasets)} ({reason})"
        for (title, reason), datasets in reasons.items()
    )
    return [f"Not feasible (-): {listed}."] if listed else []


def time_notes(benchmark: Benchmark) -> list[str]:
    """How many models shared one training, and on what."""
    most, devices = {}, {}
    for dataset, row in benchmark.cells.items():
        for record in (record for cell in row.values() for record in cell.done):
            together = int(record.seconds.get("together", 1))
            most[dataset] = max(together, most.get(dataset, 1))
            if "device" in record.machine:
                cores = record.machine.get("cores", "?")
                devices[f"{record.machine['device']}, {cores} cores"] = None
    notes = ["Every model was trained alone."]
    if any(n > 1 for n in most.values()):
        notes = [
            "Networks are trained together and share the time equally; at most so many at once:"
            f" {by_dataset(most)}."
        ]
    return notes + ([f"Measured on: {'; '.join(devices)}."] if devices else [])


def summary_table(benchmark: Benchmark) -> Table:
    """On how many data sets each method leads, by score, and how pairs compare split by split."""
    rows = []
    for score in (LOG_LIKELIHOOD, RMSE, CRPS, CALIBRATION):
        scored = [benchmark.means(dataset, score) for dataset in benchmark.cells]
        leading = [benchmark.leaders(dataset, score) for dataset in benchmark.cells]
        if any(scored):
            counts = [
                f"{sum(m in names for names in leading)} of {sum(m in means for means in scored)}"
                for m in benchmark.methods
            ]
            rows.append([score.title.partition(",")[0], *counts])
    return Table(
        title=full_title(benchmark, "data sets on which a method is best"),
        header=["score", *titles(benchmark.methods)],
        rows=rows,
        notes=["Best, or within one standard error of the best; of those it has a score for."]
        + [line for pair in PAIRS if (line := pair_note(benchmark, *pair))],
    )


def pair_note(benchmark: Benchmark, method: str, other: str) -> str:
    """On how many data sets a method's log-likelihood is above another's, on the same splits."""
    found = [benchmark.gains(dataset, method, other, LOG_LIKELIHOOD) for dataset in benchmark.cells]
    gains = [values for values in found if len(values)]
    if not gains:
        return ""
    above = sum(values.mean() > 0 for values in gains)
    clear = sum(values.mean() > standard_error(values) > 0 for values in gains)
    first, second = titles([method, other])
    return (
        f"{first} above {second} on {above} of {len(gains)} data sets in log-likelihood on the same"
        f" splits; by more than one standard error of the difference on {clear}."
    )


def paper_table(benchmark: Benchmark, score: Score) -> Table:
    """The paper's values, and in brackets ours minus theirs; of seconds, ours."""
    seconds = score.part == "seconds"
    paper = PAPER["seconds" if seconds else score.name]
    datasets = [name for name in benchmark.cells if name in paper]
    methods = [m for m in benchmark.methods if any(m in row for row in paper.values())]
    rows = []
    for dataset in datasets:
        ours, row = benchmark.means(dataset, score), [dataset]
        for method in methods:
            if method not in paper[dataset]:
                row.append("-")
                continue
            mean, error = paper[dataset][method]
            text = f"{mean:.2f} ± {error:.2f}"
            if method in ours:
                text += f" ({ours[method]:.3g})" if seconds else f" ({ours[method] - mean:+.2f})"
            row.append(text)
        rows.append(row)
    notes = [
        "In brackets: ours. The hardware differs; ours is without compilation."
        if seconds
        else "In brackets: ours minus the paper's. ± as printed; the paper's splits are its own."
    ]
    gaps = paper_gaps(datasets, methods) if score == LOG_LIKELIHOOD else ""
    if gaps:
        notes.append(
            "Printed values that are more than 0.5 nats above −½ log(2πe RMSE²) for the printed"
            f" RMSE: {gaps}."
        )
    ending = "ours" if seconds else "ours minus theirs"
    return Table(
        title=full_title(benchmark, f"the paper's {score.title}, and {ending}"),
        header=["data set", *titles(methods)],
        rows=rows if methods else [],
        notes=notes,
    )
