"""The benchmark on UCI data: every method on standard splits, by many scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigmax.data import UCI_SETS, RegressionData, load_uci
from sigmax.paper.uci_pictures import uci_figures
from sigmax.paper.uci_report import uci_tables
from sigmax.runs.fitting import (
    create_model,
    fit_models,
    own_settings,
    score_parts,
    score_prediction,
    stopwatch,
)
from sigmax.runs.methods import METHODS
from sigmax.runs.records import Record, Task, describe_machine, done, infeasible
from sigmax.runs.registry import Experiment, register

__all__ = ["describe_split", "is_known", "run_splits"]


def run_splits(job: Sequence[Task]) -> list[Record]:
    """Fit a job's splits together and score each on its test rows."""
    data, machine = load_uci(job[0].dataset), describe_machine()
    splits = [data.splits[task.split] for task in job]
    largest = METHODS[job[0].method].largest
    n_train = max(len(train) for train, _ in splits)
    if largest is not None and n_train > largest:
        reason = f"{n_train:,} training rows; an exact Gaussian process takes {largest:,}"
        facts = [describe_split(data, task.split) for task in job]
        return [
            infeasible(task, reason, data=fact, machine=machine)
            for task, fact in zip(job, facts, strict=True)
        ]
    models = [create_model(task) for task in job]
    seconds = fit_models(models, [(data.X[train], data.y[train]) for train, _ in splits])
    records = []
    for task, model, (train, test) in zip(job, models, splits, strict=True):
        with stopwatch() as watch:
            dist = model.predict_dist(data.X[test])
        y, known = data.y[test], is_known(data.X, train, test)
        records.append(
            done(
                task,
                scores=score_prediction(y, dist) | score_parts(y, dist, known),
                seconds={**seconds, "predict": watch.run},
                data={**describe_split(data, task.split), "own_settings": own_settings(task)},
                machine=machine,
            )
        )
    return records


def describe_split(data: RegressionData, split: int) -> dict[str, Any]:
    """Hash and shape of the data, and what may flatter a score: copies across the split."""
    train, test = data.splits[split]
    rows = np.column_stack([data.X, data.y])
    return {
        "hash": data.content_hash,
        "n_train": len(train),
        "n_test": len(test),
        "n_features": data.X.shape[1],
        "copies": float(np.mean(is_known(rows, train, test))),
        "copies_of_X": float(np.mean(is_known(data.X, train, test))),
        "n_distinct_targets": len(np.unique(data.y)),
    }


def is_known(rows: NDArray, train: NDArray, test: NDArray) -> NDArray[np.bool_]:
    """Whether each test row is equal to a training row in every column.

    Examples
    --------
    >>> rows = np.array([[0.0, 1.0], [2.0, 3.0], [-0.0, 1.0], [2.0, 4.0]])
    >>> is_known(rows, np.array([0, 1]), np.array([2, 3]))
    array([ True, False])
    """
    rows = rows + 0.0  # or -0.0 would differ from 0.0 in its bytes
    known = {row.tobytes() for row in rows[train]}
    return np.array([row.tobytes() in known for row in rows[test]], dtype=bool)


register(
    Experiment(
        name="uci",
        about="the UCI benchmark on standard splits",
        datasets=tuple(UCI_SETS),
        methods=tuple(METHODS),
        n_splits=20,
        most_splits=lambda dataset: UCI_SETS[dataset].n_splits,
        n_rows=lambda dataset: UCI_SETS[dataset].n_rows,
        run=run_splits,
        tables=uci_tables,
        figures=uci_figures,
    )
)
