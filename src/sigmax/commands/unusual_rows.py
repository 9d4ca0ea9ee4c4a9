"""Rows to predict that differ from the training rows: how many, in which columns, and how."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.tables import GAP, Column, Kind, Table

__all__ = ["UnusualRows", "row_notes"]

OFF_DATA = 0.5
"""Rows with a larger `predict_gate` count as far from the training data."""

MOST_NAMED = 5
"""Columns or categories that a sentence names."""


def row_notes(model: Any, X: pd.DataFrame) -> NDArray[Any]:
    """What is unusual about every row, as text; empty for most.

    Missing values in columns without any in training, unseen categories, and numbers and times
    beyond the range of the training data.
    """
    table = Table.read(model, X, model.features_.schema)
    notes: list[list[str]] = [[] for _ in range(len(table))]

    def add(is_so: NDArray[np.bool_], text: str) -> None:
        for row in np.flatnonzero(is_so):
            notes[row].append(text)

    schema = table.schema
    for kind, cells in ((Kind.NUMBER, table.numbers), (Kind.TIME, table.times)):
        for column, values in zip(schema.of_kind(kind), cells.T, strict=True):
            add(np.isnan(values) & (not column.has_gaps), f"{column.name} missing")
            if column.low is not None and column.high is not None:
                add(values < column.low, f"{column.name} below {end_text(column, column.low)}")
                add(values > column.high, f"{column.name} above {end_text(column, column.high)}")
    columns = zip(schema.of_kind(Kind.CATEGORY), model.features_.categories, strict=True)
    for (column, learned), levels in zip(columns, table.categories, strict=True):
        is_unknown = learned.is_unknown(levels)
        add(is_unknown & (levels.codes == GAP), f"{column.name} missing")
        for code in np.unique(levels.codes[is_unknown & (levels.codes != GAP)]):
            text = f"{column.name} {levels.names[code]!r} unseen"
            add(is_unknown & (levels.codes == code), text)
    return np.array(["; ".join(of_row) for of_row in notes], dtype=object)


def end_text(column: Column, end: float) -> str:
    """The lowest or highest value of a column, for people."""
    if column.kind is not Kind.TIME:
        return f"{end:g}"
    time = datetime.fromtimestamp(end, UTC)
    return f"{time:%Y-%m-%d}" if not end % 86400 else f"{time:%Y-%m-%d %H:%M}"


@final
class UnusualRows:
    """Counts over all rows of a prediction, and the sentences that report them."""

    def __init__(self) -> None:
        self.n_rows = self.n_off_data = 0
        self.notes: Counter[str] = Counter()
        self.of_off_data: Counter[str] = Counter()

    def add(self, notes: NDArray[Any], gate: NDArray[np.float64]) -> None:
        """Count more rows, with their notes and how far each is off the data (NaN: not known)."""
        self.n_rows += len(notes)
        is_off = gate > OFF_DATA
        self.n_off_data += int(is_off.sum())
        for text, off in zip(notes, is_off, strict=True):
            found = text.split("; ") if text else []
            self.notes.update(found)
            if off:
                self.of_off_data.update(found)

    def sentences(self) -> list[str]:
        """One sentence each on rows far away, missing values, unseen categories and ranges.

        Examples
        --------
        >>> rows = UnusualRows()
        >>> rows.add(np.array(["", "size above 9"], dtype=object), np.array([0.0, 0.0]))
        >>> rows.sentences()
        ['1 value beyond the range of the training data: size above 9 (1).']
        """
        found = []
        if self.n_off_data:
            verb = "is" if self.n_off_data == 1 else "are"
            reasons = f"; in these rows: {listed(self.of_off_data)}" if self.of_off_data else ""
            found.append(
                f"{self.n_off_data:,} of {self.n_rows:,} rows {verb} far from the training data"
                f" (off_data above {OFF_DATA:g}){reasons}."
            )
        missing = self.ending_in(" missing")
        if missing:
            found.append(
                f"{counted(missing, 'missing value')} in columns that had none in training:"
                f" {listed(missing)}. The predictions average over what they could be."
            )
        unseen = self.ending_in(" unseen")
        if unseen:
            found.append(
                f"{counted(unseen, 'cell')} with a category that no training row has:"
                f" {listed(unseen)}. The predictions average over what they could be."
            )
        unknown = (" missing", " unseen")
        beyond = Counter({text: n for text, n in self.notes.items() if not text.endswith(unknown)})
        if beyond:
            what = f"{counted(beyond, 'value')} beyond the range of the training data"
            found.append(f"{what}: {listed(beyond)}.")
        return found

    def ending_in(self, ending: str) -> Counter[str]:
        """Notes of one kind, without their ending."""
        return Counter(
            {
                text.removesuffix(ending): n
                for text, n in self.notes.items()
                if text.endswith(ending)
            }
        )


def counted(counts: Counter[str], noun: str) -> str:
    n = counts.total()
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def listed(counts: Counter[str]) -> str:
    """The most frequent, with how often each occurs."""
    named = ", ".join(f"{text} ({n:,})" for text, n in counts.most_common(MOST_NAMED))
    n_more = len(counts) - MOST_NAMED
    return f"{named} and {n_more:,} more" if n_more > 0 else named
