"""Single rows worth a look: the least known and the farthest off, with what they rest on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.report.held_out import HeldOutRows
from sigmax.report.page import PageTable, TableCell, TableRow
from sigmax.report.texts import cell_text, number_text, share_text

__all__ = ["LearnedRows", "rows_tables"]

N_SHOWN = 10
N_SUPPORTERS = 5
MOST_COLUMNS = 5
"""Of the features that are shown beside a row."""


@final
@dataclass(frozen=True, eq=False)
class LearnedRows:
    """The rows that the model learned from, in the order in which it got them."""

    y: NDArray[np.float64]
    X: pd.DataFrame | None = None
    """None where a model was saved without their cells."""
    numbers: NDArray[np.int64] | None = None
    """Which rows of the file these are, counted from 1; by default as they were given."""

    def number(self, row: int) -> int:
        return row + 1 if self.numbers is None else int(self.numbers[row])


def rows_tables(
    model: Any,
    rows: HeldOutRows,
    target: str,
    columns: Sequence[str],
    training: LearnedRows | None,
) -> list[PageTable]:
    """Both tables; ``columns`` are the features to show, the most important first."""
    shown = list(columns)[:MOST_COLUMNS]
    has_gate = rows.gate is not None
    far = rows.farthest_off()[:N_SHOWN]
    least = rows.least_known()[:N_SHOWN]
    what = "off the data" if has_gate else "share of ignorance"
    notes = [
        "Off the data: 0 is among the training rows, 1 is unlike all of them. Rows of the same"
        " value are ordered by the share of their variance that is ignorance."
        if has_gate
        else "This method does not say how far rows are off the data: they are ordered by the share"
        " of their variance that is ignorance about the mean."
    ]
    tables = [
        rows_table("The rows least known", model, rows, least, target, shown, what, training, notes)
    ]
    notes = [
        "Chance of worse: the predicted probability of a target at least as far out, on either"
        f" side. Of {len(rows):,} rows, the least likely one should come with about"
        f" {number_text(1 / len(rows), 2)}."
    ]
    tables.append(
        rows_table(
            "The rows farthest off",
            model,
            rows,
            far,
            target,
            shown,
            "chance of worse",
            training,
            notes,
        )
    )
    return tables


def rows_table(
    title: str,
    model: Any,
    rows: HeldOutRows,
    chosen: NDArray[np.intp],
    target: str,
    columns: Sequence[str],
    what: str,
    training: LearnedRows | None,
    notes: Sequence[str],
) -> PageTable:
    """Some rows, each with the training rows that support its prediction."""
    measures = {
        "off the data": rows.gate if rows.gate is not None else rows.unknown_share,
        "share of ignorance": rows.unknown_share,
        "chance of worse": 1 - rows.centrality,
    }
    cells, measure = rows.cells.loc[chosen], measures[what]
    supporters = find_supporters(model, cells, training, target, columns)
    found = []
    for i, row in enumerate(chosen.tolist()):
        error = rows.standardized_error[row]
        found.append(
            TableRow(
                [
                    TableCell(f"row {rows.numbers[row]:,}", float(rows.numbers[row])),
                    TableCell(measure_text(what, measure[row]), float(measure[row])),
                    number(rows.y[row]),
                    number(rows.mean[row]),
                    TableCell(
                        f"{number_text(rows.lower[row])} to {number_text(rows.upper[row])}",
                        float(rows.upper[row] - rows.lower[row]),
                    ),
                    TableCell(signed_text(error), float(np.nan_to_num(error))),
                    *(feature_cell(cells[column].iloc[i]) for column in columns),
                ],
                supporters[i],
            )
        )
    header = ["row", what, target, "predicted", "90 % interval", "error in std", *columns]
    is_explained = any(details is not None for details in supporters)
    note = "" if is_explained else "This method does not name training rows behind a prediction."
    if is_explained and training is not None and training.numbers is None:
        note = "Training rows are counted as the model got them, without rows that had no target."
    return PageTable(
        title=title,
        header=header,
        rows=found,
        notes=[*notes, *([note] if note else [])],
        opens="Show the training rows behind it" if is_explained else "",
    )


def find_supporters(
    model: Any,
    cells: pd.DataFrame,
    training: LearnedRows | None,
    target: str,
    columns: Sequence[str],
) -> list[PageTable | None]:
    """For every row the training rows that its prediction rests on, None where none are named."""
    explain = getattr(model, "explain_neighbors", None)
    if explain is None or training is None or not len(cells):
        return [None] * len(cells)
    indices, weights = explain(cells, k=N_SUPPORTERS)
    X = training.X
    shown = [] if X is None else list(columns)
    tables = []
    for i in range(len(cells)):
        supporters = []
        for row, weight in zip(indices[i].tolist(), weights[i].tolist(), strict=True):
            features = [] if X is None else [feature_cell(X[name].iloc[row]) for name in shown]
            first = TableCell(f"row {training.number(row):,}")
            share = TableCell(share_text(weight), weight)
            if weight > 0:
                supporters.append(TableRow([first, share, number(training.y[row]), *features]))
        rest = max(0.0, 1 - float(weights[i].sum()))
        tables.append(
            PageTable(
                title="Training rows with the largest shares in this prediction",
                header=["training row", "share", target, *shown],
                rows=supporters,
                notes=[f"The other {share_text(rest)} come from other rows and the model's prior."],
            )
        )
    return tables


def measure_text(what: str, value: SupportsFloat) -> str:
    value = float(value)
    if what == "chance of worse":
        return f"{value:.2g}" if value >= 1e-6 else "< 0.000001"
    return f"{value:.2f}"


def signed_text(value: SupportsFloat) -> str:
    value = float(value)
    if not np.isfinite(value):
        return "unknown"
    return f"{round(value, 1) + 0.0:+.1f}".replace("-", "−")


def number(value: SupportsFloat) -> TableCell:
    value = float(value)
    return TableCell(number_text(value), value if np.isfinite(value) else None)


def feature_cell(cell: Any) -> TableCell:
    """A cell of the file; numbers are sorted as numbers."""
    is_number = isinstance(cell, int | float | np.number) and not isinstance(cell, bool | np.bool_)
    value = float(cell) if is_number and np.isfinite(cell) else None
    return TableCell(
        f"{value:.8g}".replace("-", "−") if value is not None else cell_text(cell), value
    )
