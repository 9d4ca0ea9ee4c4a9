"""Rows of a benchmark's tables, one cell per method, and the splits that they are of."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from sigmax.paper.benchmark import Benchmark, Score
from sigmax.runs.methods import METHODS
from sigmax.runs.tables import mean_and_error

__all__ = ["by_dataset", "fewer_notes", "full_title", "score_row", "split_counts", "titles"]


def full_title(benchmark: Benchmark, title: str) -> str:
    settings = f" ({benchmark.settings})" if benchmark.settings else ""
    return f"{benchmark.experiment}: {title}{settings}"


def titles(methods: Sequence[str]) -> list[str]:
    return [METHODS[method].title for method in methods]


def score_row(benchmark: Benchmark, dataset: str, score: Score, name: str = "") -> list[str]:
    """The name, which is the data set's without another, and a cell per method."""
    digits, leaders = row_digits(benchmark, dataset, score), benchmark.leaders(dataset, score)
    row = [name or dataset]
    for method in benchmark.methods:
        text = cell_text(benchmark, dataset, method, score, digits)
        row.append(f"**{text}**" if method in leaders else text)
    return row


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


def split_counts(benchmark: Benchmark, score: Score) -> dict[str, dict[str, int]]:
    """Data set -> method -> how many splits have the score, of those that have any."""
    counts = {
        dataset: {method: len(cell.values(score)) for method, cell in row.items()}
        for dataset, row in benchmark.cells.items()
    }
    return {name: {m: n for m, n in row.items() if n} for name, row in counts.items()}


def fewer_notes(benchmark: Benchmark, score: Score) -> list[str]:
    """Which methods have the score on fewer splits than others."""
    fewer: dict[str, dict[tuple[int, int], list[str]]] = {}
    for dataset, row in split_counts(benchmark, score).items():
        for method, n in row.items():
            if n < max(row.values()):
                kinds = fewer.setdefault(method, {})
                kinds.setdefault((n, max(row.values())), []).append(dataset)
    listed = [
        f"{METHODS[method].title} ({n} of {most} on {', '.join(fewer[method][n, most])})"
        for method in benchmark.methods
        for n, most in fewer.get(method, {})
    ]
    return [f"On fewer splits than others: {'; '.join(listed)}."] if listed else []
