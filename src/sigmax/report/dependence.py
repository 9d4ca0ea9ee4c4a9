"""How the prediction depends on one column, all others as they are in held-out rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.report.charts import Axis, Chart, Layer
from sigmax.report.held_out import COVERAGE
from sigmax.report.importance import Progress, blocks_of
from sigmax.report.texts import count_text, number_text
from sigmax.report.trials import Trial, make_trials
from sigmax.tables import Kind, Schema

__all__ = ["Dependence", "dependence_chart", "find_dependence"]

MOST_ROWS = 128
"""Held-out rows over which predictions are averaged."""
MOST_COLUMNS = 12

Numbers = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Dependence:
    """The average prediction of some rows for several values of one column."""

    column: str
    kind: Kind
    places: Numbers
    """The values: numbers, seconds since 1970, or 0, 1, ... for levels."""
    names: tuple[str, ...]
    """The values as text."""
    counts: NDArray[np.int64]
    """Rows with each value, of numbers and times those nearest to it."""
    mean: Numbers
    lower: Numbers
    upper: Numbers
    n_rows: int


def find_dependence(
    model: Any,
    X: pd.DataFrame,
    schema: Schema,
    columns: Sequence[str],
    *,
    progress: Progress = lambda share: None,
) -> list[Dependence]:
    """The dependence on each of some columns, by partial dependence.

    Every value that is tried stands in ``X``. It is given to the same rows, the first of ``X``,
    and the means and the ends of their 90 % intervals are averaged.
    """
    rows = X.iloc[:MOST_ROWS].reset_index(drop=True)
    trials = make_trials(X, rows, schema, list(columns)[:MOST_COLUMNS])
    frames = (rows.assign(**trial.change(i)) for trial in trials for i in range(len(trial.places)))
    total = len(rows) * sum(len(trial.places) for trial in trials)
    found = predict_intervals(model, frames, lambda n_done: progress(n_done / max(total, 1)))
    averages = np.array([part.reshape(-1, len(rows)).mean(axis=1) for part in found])
    ends = np.cumsum([len(trial.places) for trial in trials])
    parts = np.split(averages, ends[:-1], axis=1) if len(ends) else []
    return [describe(trial, part, len(rows)) for trial, part in zip(trials, parts, strict=True)]


def predict_intervals(
    model: Any, frames: Any, progress: Callable[[int], None]
) -> tuple[Numbers, Numbers, Numbers]:
    """Mean and both ends of the interval of the rows of several frames."""
    parts, n_done = [], 0
    for block in blocks_of(frames):
        dist = model.predict_dist(block)
        parts.append(np.column_stack([dist.mean, dist.interval(COVERAGE)]))
        n_done += len(block)
        progress(n_done)
    mean, lower, upper = np.concatenate(parts).T if parts else np.empty((3, 0))
    return mean, lower, upper


def describe(trial: Trial, averages: Numbers, n_rows: int) -> Dependence:
    """The averages with the values that they belong to, levels by their means."""
    order = np.arange(len(trial.places))
    if trial.kind is Kind.CATEGORY:
        order = np.argsort(-averages[0], kind="stable")
    is_level = trial.kind is Kind.CATEGORY
    mean, lower, upper = averages[:, order]
    return Dependence(
        column=trial.name,
        kind=trial.kind,
        places=np.arange(len(order), dtype=np.float64) if is_level else trial.places,
        names=tuple(trial.names[i] for i in order.tolist()),
        counts=trial.counts[order],
        mean=mean,
        lower=lower,
        upper=upper,
        n_rows=n_rows,
    )


def dependence_chart(found: Dependence, target: str, name: str) -> Chart:
    """The average prediction and interval over one column."""
    low, high = int(np.argmin(found.mean)), int(np.argmax(found.mean))
    description = (
        f"The average prediction of {target} is lowest, {number_text(found.mean[low])}, where"
        f" {found.column} is {found.names[low]}, and highest, {number_text(found.mean[high])},"
        f" where it is {found.names[high]}. The average interval is"
        f" {number_text(found.upper[low] - found.lower[low], 3)} wide at the first and"
        f" {number_text(found.upper[high] - found.lower[high], 3)} at the second."
    )
    texts = [f"{count_text(n, 'row')} nearby" for n in found.counts.tolist()]
    note = (
        f"Averages over {count_text(found.n_rows, 'row')}, whose other columns stay as"
        " they are. Where such rows do not exist, the interval grows."
    )
    marks = {"texts": texts, "label": f"mean of {target}"}
    if found.kind is Kind.CATEGORY:
        texts = [count_text(n, "row") for n in found.counts.tolist()]
        return Chart(
            name=name,
            title=f"Dependence on {found.column}",
            description=description,
            x=Axis(label=f"predicted {target}"),
            y=Axis(label=found.column, scale="category", levels=found.names),
            layers=[
                Layer(
                    mark="intervals",
                    label="90 % interval",
                    color="chance",
                    y=found.places,
                    lower=found.lower,
                    upper=found.upper,
                ),
                Layer(
                    mark="points",
                    label=f"mean of {target}",
                    x=found.mean,
                    y=found.places,
                    texts=texts,
                ),
            ],
            note=note,
            height=max(200, 90 + 26 * len(found.places)),
        )
    return Chart(
        name=name,
        title=f"Dependence on {found.column}",
        description=description,
        x=Axis(label=found.column, scale="time" if found.kind is Kind.TIME else "linear"),
        y=Axis(label=f"predicted {target}"),
        layers=[
            Layer(
                mark="band",
                label="90 % interval",
                color="chance",
                x=found.places,
                lower=found.lower,
                upper=found.upper,
            ),
            Layer(mark="line", x=found.places, y=found.mean),
            Layer(mark="points", x=found.places, y=found.mean, **marks),
        ],
        note=note,
        height=380,
    )
