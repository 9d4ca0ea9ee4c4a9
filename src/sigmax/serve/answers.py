"""From questions about rows to answers as JSON has them, several questions at once."""

import math
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import pandas as pd

from sigmax.commands.folder import SavedTableModel
from sigmax.commands.predict import PredictOptions, RowPredictions
from sigmax.serve.questions import DensityQuestion, PredictQuestion, QuantileQuestion
from sigmax.serve.rows import CheckedRows, RowReader, join_rows
from sigmax.serve.training_rows import RestoredRows
from sigmax.tables.schema import Column, Kind

__all__ = ["BULK_ROWS", "QUICK_ROWS", "Answers"]

QUICK_ROWS, BULK_ROWS = 64, 256
"""Rows that are predicted in one call: programs are compiled for these two numbers alone."""
N_POINTS = 512
"""Between which a density is drawn, by its mean between two of them: no peak is missed."""
DRAWN = (0.005, 0.995)
"""Levels between which it is drawn."""
SHOWN_COVERAGES = (0.5, 0.9)
OFF_DATA = 0.5
"""Above this, a row counts as unlike all that the model has seen."""

Json = dict[str, Any]
BatchQuestion = PredictQuestion | QuantileQuestion


@final
class Answers:
    """Answers by one model, which is loaded once. Every method may be called by any thread."""

    def __init__(self, saved: SavedTableModel, *, show_rows: bool = True):
        self.saved, self.show_rows = saved, show_rows
        self.reader, self.rows = RowReader(saved), RestoredRows(saved)
        self.levels = {column.name: frozenset(column.levels) for column in self.reader.columns}

    def frame(self, rows: CheckedRows) -> pd.DataFrame:
        return rows.frame(self.reader.kinds)

    def answer_batch(self, questions: Sequence[BatchQuestion]) -> list[Json]:
        """Answers to questions whose rows are predicted together, `BULK_ROWS` at once."""
        rows = join_rows([question.rows for question in questions])
        parts = [
            self.padded(rows[start : start + BULK_ROWS])
            for start in range(0, rows.n_rows, BULK_ROWS)
        ]
        lists: list[list[Json]] = [[] for _ in questions]
        owners = np.repeat(
            np.arange(len(questions)), [question.rows.n_rows for question in questions]
        )
        for i, (n_true, found) in enumerate(parts):
            here = owners[i * BULK_ROWS : i * BULK_ROWS + n_true]
            for owner in np.unique(here):
                described = describe(found, questions[owner])
                lists[owner] += [described(int(at)) for at in np.flatnonzero(here == owner)]
        return [
            self.envelope(question, found) for question, found in zip(questions, lists, strict=True)
        ]

    def padded(self, rows: CheckedRows) -> tuple[int, RowPredictions]:
        """Predictions of rows, of which estimators pad few; others are padded here.

        Copies of the last row fill up `BULK_ROWS`, so that no program is compiled.
        """
        n_more = BULK_ROWS - rows.n_rows if rows.n_rows > QUICK_ROWS else 0
        filled = join_rows([rows, *[rows[-1:]] * n_more]) if n_more else rows
        return rows.n_rows, RowPredictions(self.saved, self.frame(filled))

    def envelope(self, question: BatchQuestion, found: list[Json]) -> Json:
        """What is true of all rows, around the answers of each."""
        content = {"prediction": found[0]} if question.is_single else {"predictions": found}
        if isinstance(question, PredictQuestion):
            method = question.options.method or self.saved.facts["intervals"]
            facts = {"coverage": question.options.coverage, "method": method}
        else:
            facts = {
                "probabilities": list(question.probabilities),
                "values": list(question.values),
            }
        return {"target": self.saved.target, **facts, **content}

    def density(self, question: DensityQuestion) -> Json:
        """All that the page shows of one row."""
        _, found = self.padded(question.rows)
        columns = found.columns(PredictOptions())
        names = ("mean", "std", "aleatoric", "epistemic", "off_data")
        numbers = {name: as_json(columns[name][0]) for name in names}
        low, high = (float(found.quantile(level)[0]) for level in DRAWN)
        margin = 0.05 * (high - low) or 1e-6
        ends = np.linspace(low - margin, high + margin, N_POINTS)
        shares = found.dist[np.zeros(N_POINTS, dtype=int)].cdf(ends)
        y, heights = (ends[1:] + ends[:-1]) / 2, np.diff(shares) / np.diff(ends)
        intervals = []
        for coverage in SHOWN_COVERAGES:
            lower, upper = (as_json(bound[0]) for bound in found.interval(coverage))
            intervals.append({"coverage": coverage, "lower": lower, "upper": upper})
        off_data = numbers["off_data"]
        return {
            "target": self.saved.target,
            **numbers,
            "median": as_json(found.quantile(0.5)[0]),
            "intervals": intervals,
            "density": {"y": list(map(as_json, y)), "height": list(map(as_json, heights))},
            "is_unlike": off_data is not None and off_data > OFF_DATA,
            "unusual": self.unusual(question.rows),
            "neighbors": self.neighbors(found.X, question.n_neighbors),
        }

    def neighbors(self, X: pd.DataFrame, k: int) -> list[Json] | None:
        """The training rows behind the first row, None where the estimator does not know them."""
        if not self.rows.explains:
            return None
        if not k:
            return []
        model: Any = self.saved.model
        indices, weights = model.explain_neighbors(X, k)
        pairs = zip(indices[0].tolist(), weights[0].tolist(), strict=True)
        return [self.neighbor(index, weight) for index, weight in pairs if weight > 0]

    def neighbor(self, index: int, weight: float) -> Json:
        """A training row, by the number that people would give it."""
        found: Json = {"row": index + 1, "weight": as_json(weight)}
        if self.show_rows:
            found["target"] = as_json(self.rows.target(index))
            found["cells"] = self.rows.cells(index)
        return found

    def unusual(self, rows: CheckedRows) -> list[Json]:
        """Cells of the first row of which no training row has the like, each with a sentence."""
        found = []
        for column in self.reader.columns:
            message = self.what_is_unusual(column, rows.cells[column.name][0])
            if message is not None:
                found.append({"column": column.name, "msg": message})
        return found

    def what_is_unusual(self, column: Column, cell: Any) -> str | None:
        if cell is None:
            return None if column.has_gaps else "is missing, and was in no training row"
        if column.kind is Kind.CATEGORY:
            is_known = cell in self.levels[column.name]
            return None if is_known else "is a level that no training row has"
        if column.low is None or column.high is None:
            return "was empty in all training rows"
        if column.low <= cell <= column.high:
            return None
        return f"is {'below' if cell < column.low else 'above'} all training rows"

    def typical_rows(self, n_rows: int) -> CheckedRows:
        """Copies of a row of typical cells, checked like any other."""
        row = {column.name: self.rows.typical(column) for column in self.reader.columns}
        for column in self.reader.columns:
            if row[column.name] is None and not self.reader.takes_gaps:
                row[column.name] = 0.0 if column.kind is Kind.NUMBER else ""
        return self.reader([row] * n_rows, "body", "rows")

    def warm_up(self) -> None:
        """Compile all programs that answers need."""
        options = PredictOptions()
        for n_rows in (QUICK_ROWS, BULK_ROWS):
            rows = self.typical_rows(n_rows)
            self.answer_batch([PredictQuestion(rows, False, options)])
            self.answer_batch([QuantileQuestion(rows, False, (0.5,), (0.0,))])
        self.density(DensityQuestion(self.typical_rows(1), 5))


def describe(found: RowPredictions, question: BatchQuestion) -> Callable[[int], Json]:
    """A function that gives the answer for one of the rows that were predicted together."""
    if isinstance(question, PredictQuestion):
        columns = found.columns(question.options)
        return lambda at: {name: as_json(values[at]) for name, values in columns.items()}
    quantiles = [found.quantile(level) for level in question.probabilities]
    shares = [found.dist.cdf(value) for value in question.values]

    def of_row(at: int) -> Json:
        return {
            "mean": as_json(found.moments["mean"][at]),
            "std": as_json(found.moments["std"][at]),
            "quantiles": [as_json(values[at]) for values in quantiles],
            "cdf": [as_json(values[at]) for values in shares],
            "off_data": as_json(found.moments["off_data"][at]),
        }

    return of_row


def as_json(value: Any) -> float | None:
    """A number as JSON has it, None for what is not finite or not known."""
    number = float(value)
    return number if math.isfinite(number) else None
