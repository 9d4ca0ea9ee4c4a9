"""Tables of new rows and of copies: the test rows whose X is among the training rows, apart.

A method that remembers training rows has a better score on copies than on rows that it has never
seen, and the mean over all test rows hides how much of it that is.
"""

from collections.abc import Sequence

from sigmax.paper.benchmark import COVERAGE_90, CRPS, LOG_LIKELIHOOD, Benchmark, Score
from sigmax.paper.score_rows import fewer_notes, full_title, score_row, titles
from sigmax.runs.tables import ReportTable

__all__ = ["copies_tables", "sets_with_copies"]

ROW_KINDS = {"new": "new rows", "copies": "copies"}


def copies_tables(
    benchmark: Benchmark, scores: Sequence[Score] = (LOG_LIKELIHOOD, CRPS, COVERAGE_90)
) -> list[ReportTable]:
    """A table per score with two rows per data set, new rows and copies; none without copies."""
    if not any(has_copies(benchmark, dataset) for dataset in benchmark.cells):
        return []
    return [copies_table(benchmark, score) for score in scores]


def has_copies(benchmark: Benchmark, dataset: str) -> bool:
    """Whether any record says that test rows are among the training rows."""
    return any(
        record.data.get("copies_of_X", record.data.get("copies", 0.0)) > 0
        for cell in benchmark.cells[dataset].values()
        for record in (*cell.done, *cell.failed, *cell.infeasible)
    )


def sets_with_copies(benchmark: Benchmark, score: Score) -> list[str]:
    """The data sets of which some record has the score of copies."""
    return [name for name in benchmark.cells if benchmark.means(name, score.on("copies"))]


def copies_table(benchmark: Benchmark, score: Score) -> ReportTable:
    """New rows and copies of every data set that has them, one below the other."""
    datasets = sets_with_copies(benchmark, score)
    rows = [
        score_row(benchmark, dataset, score.on(part), f"{dataset}, {words}")
        for dataset in datasets
        for part, words in ROW_KINDS.items()
    ]
    bold = " Bold: the best of a row, and all within one standard error." if score.better else ""
    notes = [
        f"Mean ± standard error over the splits.{bold} Copies are the test rows whose X is that of"
        " a training row, whatever their y; new rows are all others."
    ]
    if any("" in row for row in rows):
        notes.append("An empty cell has no record that tells them apart.")
    notes += fewer_notes(benchmark, score.on("copies"))
    return ReportTable(
        title=full_title(benchmark, f"{score.title}, new rows and copies"),
        header=["data set", *titles(benchmark.methods)],
        rows=rows,
        notes=notes if rows else ["No record tells new rows and copies apart."],
    )
