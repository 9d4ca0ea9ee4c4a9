"""Warnings: notes on what may flatter a log-likelihood, from the records alone."""

import math

import numpy as np

from sigmax.paper.benchmark import LOG_LIKELIHOOD, RMSE, Benchmark
from sigmax.paper.published import PAPER
from sigmax.runs.methods import METHODS, Method
from sigmax.runs.records import Record

__all__ = ["gap_to_normal", "paper_gaps", "warning_notes"]

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


def warning_notes(benchmark: Benchmark) -> list[str]:
    """A sentence for each reason to look twice that applies."""
    targets = {name: data_mean(benchmark, name, "n_distinct_targets") for name in benchmark.cells}
    discrete = [f"{name} {n:.0f}" for name, n in targets.items() if n < FEW_TARGETS]
    gaps = name_gaps(
        {
            (dataset, method): mean_gap(benchmark, dataset, method)
            for dataset in benchmark.cells
            for method in benchmark.methods
        }
    )
    notes = copies_notes(benchmark) + settings_notes(benchmark)
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


def copies_notes(benchmark: Benchmark) -> list[str]:
    """How many test rows are among the training rows, by their X or, in older records, X and y."""
    shares = {}
    for name in benchmark.cells:
        whole, of_X = (data_mean(benchmark, name, fact) for fact in ("copies", "copies_of_X"))
        if of_X > 0:
            shares[name] = f"{100 * of_X:.1f} % ({100 * whole:.1f} % with the same y)"
        elif math.isnan(of_X) and whole > MANY_COPIES:
            shares[name] = f"{100 * whole:.1f} % with the same y"
    if not shares:
        return []
    listed = ", ".join(f"{name} {share}" for name, share in shares.items())
    return [
        f"Test rows whose X is that of a training row: {listed}. A model that remembers them scores"
        " higher than it would on new rows."
    ]


def settings_notes(benchmark: Benchmark) -> list[str]:
    """Records made before a method had settings of its own for a data set."""
    found = [
        f"{METHODS[method].title} on {dataset} without {as_text(METHODS[method], dataset)}"
        for dataset, row in benchmark.cells.items()
        for method, cell in row.items()
        if METHODS[method].own_settings.get(dataset)
        and any("own_settings" not in record.data for record in cell.done)
    ]
    return [f"Records of an earlier version: {', '.join(found)}."] if found else []


def as_text(method: Method, dataset: str) -> str:
    return ", ".join(f"{name}={value}" for name, value in method.own_settings[dataset].items())


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
