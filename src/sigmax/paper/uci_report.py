"""Tables of the UCI benchmark and of its timings, with the paper's values beside ours."""

from collections.abc import Sequence

from sigmax.paper.benchmark import (
    CALIBRATION,
    COMPILE,
    COVERAGE_50,
    COVERAGE_80,
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
from sigmax.paper.published import PAPER
from sigmax.paper.score_rows import (
    by_dataset,
    fewer_notes,
    full_title,
    score_row,
    split_counts,
    titles,
)
from sigmax.paper.score_warnings import paper_gaps, warning_notes
from sigmax.paper.uci_copies import copies_tables
from sigmax.runs.methods import METHODS
from sigmax.runs.records import Record
from sigmax.runs.tables import ReportTable

__all__ = ["score_table", "time_notes", "uci_tables"]

SCORES = (LOG_LIKELIHOOD, RMSE, CRPS, COVERAGE_50, COVERAGE_80, COVERAGE_90, WIDTH, CALIBRATION)
PAIRS = (
    ("combined-paper", "nn-paper"),
    ("combined", "ens-nn"),
    *(("local", rival) for rival in ("gp", "sgp", "ens-nn", "combined")),
)


def uci_tables(records: Sequence[Record]) -> list[ReportTable]:
    """Scores, seconds and the paper's values; of timings, which are of one split, seconds only."""
    tables = []
    for benchmark in arrange(records):
        if benchmark.experiment == "timings":
            tables += [score_table(benchmark, score) for score in (FIT, COMPILE)]
            tables.append(published_table(benchmark, FIT))
            continue
        known = [score for score in SCORES if any(split_counts(benchmark, score).values())]
        tables += [score_table(benchmark, score) for score in known or (LOG_LIKELIHOOD,)]
        tables += copies_tables(benchmark)
        tables.append(summary_table(benchmark))
        tables += [score_table(benchmark, score) for score in (FIT, COMPILE)]
        tables += [published_table(benchmark, score) for score in (LOG_LIKELIHOOD, RMSE)]
    return [table for table in tables if table.rows or table.notes]


def score_table(benchmark: Benchmark, score: Score) -> ReportTable:
    """One row per data set, one column per method; the best in bold."""
    return ReportTable(
        title=full_title(benchmark, score.title),
        header=["data set", *titles(benchmark.methods)],
        rows=[score_row(benchmark, dataset, score) for dataset in benchmark.cells],
        notes=score_notes(benchmark, score),
    )


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
        notes += split_notes(benchmark, score) + infeasible_notes(benchmark)
    if score == LOG_LIKELIHOOD:
        notes += warning_notes(benchmark)
    return notes


def split_notes(benchmark: Benchmark, score: Score) -> list[str]:
    """How many splits each data set has, and which methods have fewer."""
    counts = split_counts(benchmark, score)
    most = {dataset: max(row.values()) for dataset, row in counts.items() if row}
    if not most:
        return []
    empty = any(set(row) != set(benchmark.methods) for row in benchmark.cells.values())
    notes = [f"Splits: {by_dataset(most)}." + " An empty cell has no record." * empty]
    return notes + fewer_notes(benchmark, score)


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


def summary_table(benchmark: Benchmark) -> ReportTable:
    """On how many data sets each method is best, by score, and how pairs compare split by split."""
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
        "Of the data sets that the method has a score for. Best mean: better than the mean of every"
        " other method, by however little. Within one standard error: of the best mean, over the"
        " splits of the method that has it."
    ]
    notes += fewer_notes(benchmark, LOG_LIKELIHOOD) + refused_notes(benchmark)
    notes += [line for pair in PAIRS if (line := pair_note(benchmark, *pair))]
    return ReportTable(
        title=full_title(benchmark, "data sets on which a method is best"),
        header=["score", *titles(benchmark.methods)],
        rows=rows,
        notes=notes if rows else [],
    )


def refused_notes(benchmark: Benchmark) -> list[str]:
    """Where a method has no score because it was not feasible."""
    refused = {
        method: [name for name in benchmark.cells if benchmark.cell(name, method).infeasible]
        for method in benchmark.methods
    }
    listed = [
        f"{METHODS[method].title} on {', '.join(datasets)}"
        for method, datasets in refused.items()
        if datasets
    ]
    return [f"Without a score, as not feasible: {'; '.join(listed)}."] if listed else []


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


def published_table(benchmark: Benchmark, score: Score) -> ReportTable:
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
    return ReportTable(
        title=full_title(benchmark, f"the paper's {score.title}, and {ending}"),
        header=["data set", *titles(methods)],
        rows=rows if methods else [],
        notes=notes if methods and rows else [],
    )
