"""Guard rails: notes on what may flatter a log-likelihood, from the records alone."""

import math

import numpy as np

from sigmax.experiments.benchmark import LOG_LIKELIHOOD, RMSE, Benchmark
from sigmax.experiments.methods import METHODS
from sigmax.experiments.paper import PAPER
from sigmax.experiments.records import Record

__all__ = ["gap_to_normal", "guard_rails", "paper_gaps"]

MANY_COPIES = 0.01
FEW_TARGETS = 100
LARGE_GAP = 0.5


def gap_to_normal(log_likelihood: float, rmse: float) -> float:
    """By how much a score is above the best of a Normal with one variance and that RMSE, in nats.

    Examples
    --------
    >>> round(gap_to_normal(-1.19, 4.12), 2)
    1.64
    """
    return log_likelihood + 0.5 * math.log(2 * math.pi * math.e * max(rmse, 1e-300) ** 2)


def guard_rails(benchmark: Benchmark) -> list[str]:
    """A sentence for each reason to look twice that applies."""
    copies = {name: data_mean(benchmark, name, "copies") for name in benchmark.cells}
    targets = {name: data_mean(benchmark, name, "n_distinct_targets") for name in benchmark.cells}
    flattered = [f"{name} {100 * c:.1f} %" for name, c in copies.items() if c > MANY_COPIES]
    discrete = [f"{name} {n:.0f}" for name, n in targets.items() if n < FEW_TARGETS]
    gaps = name_gaps(
        {
            (dataset, method): mean_gap(benchmark, dataset, method)
            for dataset in benchmark.cells
            for method in benchmark.methods
        }
    )
    notes = []
    if flattered:
        notes.append(
            f"Test rows that have an exact copy among the training rows: {', '.join(flattered)}. "
            "A model that remembers them scores higher than it would on new rows."
        )
    if discrete:
        notes.append(
            f"Few distinct targets: {', '.join(discrete)}. Log-densities on a grid have no upper"
            " bound: peaks on the grid score high and say little."
        )
    if gaps:
        notes.append(
            "More than 0.5 nats above −½ log(2πe RMSE²), the most that a Normal of one variance"
            f" with that RMSE can have: {gaps}. Noise that depends on the input can"
            " explain it; look twice."
        )
    return notes


def data_mean(benchmark: Benchmark, dataset: str, name: str) -> float:
    """The mean of a fact about the data over the splits; nan if no record has it."""
    facts: dict[int, float] = {}
    for cell in benchmark.cells[dataset].values():
        records: list[Record] = [*cell.done, *cell.failed, *cell.infeasible]
        facts |= {r.task.split: float(r.data[name]) for r in records if name in r.data}
    return float(np.mean(list(facts.values()))) if facts else math.nan


def mean_gap(benchmark: Benchmark, dataset: str, method: str) -> float:
    """The mean over the splits of the gap to a Normal; nan without scores."""
    cell = benchmark.cell(dataset, method)
    scores, errors = cell.by_split(LOG_LIKELIHOOD), cell.by_split(RMSE)
    gaps = [gap_to_normal(scores[i], errors[i]) for i in scores if i in errors]
    return float(np.mean(gaps)) if gaps else math.nan


def name_gaps(gaps: dict[tuple[str, str], float]) -> str:
    """The large gaps of data sets and methods in words, data set by data set."""
    found: dict[str, list[str]] = {}
    for (dataset, method), gap in gaps.items():
        if gap > LARGE_GAP:
            found.setdefault(dataset, []).append(f"{METHODS[method].title} {gap:+.2f}")
    return "; ".join(f"{dataset}: {', '.join(methods)}" for dataset, methods in found.items())


def paper_gaps(datasets: list[str], methods: list[str]) -> str:
    """Published pairs that the same check names, with the least RMSE that rounds to the printed."""
    scores, errors = PAPER["log_likelihood"], PAPER["rmse"]
    half = 0.005
    return name_gaps(
        {
            (dataset, method): gap_to_normal(
                scores[dataset][method][0], errors[dataset][method][0] - half
            )
            for dataset in datasets
            for method in methods
            if method in scores[dataset] and method in errors[dataset]
        }
    )
