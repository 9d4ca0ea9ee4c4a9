"""Responses of a model to requests with rows, and to CSV files."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.distributions import Predictive, Stacked
from sigmax.errors import TableFileError
from sigmax.serve.columns import RowFormat
from sigmax.serve.limits import http_error
from sigmax.serve.requests import (
    AbstractDensityRequest,
    AbstractDistributionRequest,
    AbstractExplainRequest,
    AbstractPredictRequest,
    request_model,
)
from sigmax.table_model import (
    OFF_DATA,
    PredictOptions,
    RowPredictions,
    SavedTableModel,
    find_neighbors,
    predict_chunks,
    row_notes,
)
from sigmax.tables.reading import read_chunks
from sigmax.tables.sources import Format, open_source
from sigmax.tables.writing import write_table

QUICK_ROWS, BULK_ROWS = 64, 256
"""Rows per prediction: functions are compiled for these two numbers of rows only."""
ROWS_PER_CHUNK = 8192
N_POINTS = 512
"""Points of a density; the mean density between two neighbours is drawn, which shows every peak."""
DRAWN_RANGE = (0.005, 0.995)
"""Probabilities of the quantiles between which a density is drawn."""
SHOWN_COVERAGES = (0.5, 0.9)
MOST_EXPLAINED = 20
"""Columns whose effect on the standard deviation is computed, by their importance."""
REQUESTS = (
    AbstractPredictRequest,
    AbstractDistributionRequest,
    AbstractDensityRequest,
    AbstractExplainRequest,
)

Json = dict[str, Any]
BatchRequest = AbstractPredictRequest | AbstractDistributionRequest


@final
class Predictor:
    """Responses of one loaded model. All methods are thread-safe."""

    def __init__(self, saved: SavedTableModel):
        self.saved, self.format = saved, RowFormat(saved)
        typical = self.format.frame([self.format.row_model.model_validate(self.format.typical)])
        self.has_neighbors = find_neighbors(saved.model, typical, 1) is not None

    def predict_batch(self, requests: Sequence[BatchRequest]) -> list[Json]:
        """Responses to requests whose rows are predicted together, `BULK_ROWS` at a time."""
        rows = [row for request in requests for row in request.all_rows]
        sizes = [len(request.all_rows) for request in requests]
        owners = np.repeat(np.arange(len(requests)), sizes)
        found: list[list[Json]] = [[] for _ in requests]
        for start in range(0, len(rows), BULK_ROWS):
            part = slice(start, start + BULK_ROWS)
            predictions = self.predict(rows[part])
            for i in np.unique(owners[part]):
                indices = np.flatnonzero(owners[part] == i)
                found[i] += describe_rows(predictions, requests[i], indices)
        return [self.response(*pair) for pair in zip(requests, found, strict=True)]

    def predict(self, rows: Sequence[Any]) -> RowPredictions:
        """Predictions of at most `BULK_ROWS` rows.

        Estimators pad up to `QUICK_ROWS` rows; more are padded here with duplicates of the last.
        """
        n_more = BULK_ROWS - len(rows) if len(rows) > QUICK_ROWS else 0
        return RowPredictions(self.saved, self.format.frame([*rows, *[rows[-1]] * n_more]))

    def response(self, request: BatchRequest, found: list[Json]) -> Json:
        content = {"predictions": found} if request.row is None else {"prediction": found[0]}
        if isinstance(request, AbstractPredictRequest):
            method = request.method or self.saved.metadata["intervals"]
            content |= {"coverage": request.coverage, "method": method}
        else:
            content |= {"probabilities": request.probabilities, "values": request.values}
        return {"target": self.saved.target, **content}

    def density(self, request: AbstractDensityRequest) -> Json:
        """Content of the page for one row."""
        found = self.predict([request.row])
        columns = found.columns(PredictOptions())
        names = ("mean", "std", "aleatoric", "epistemic", "off_data")
        low, high = (float(found.quantile(level)[0]) for level in DRAWN_RANGE)
        margin = 0.05 * (high - low) or 1e-6
        ends = np.linspace(low - margin, high + margin, N_POINTS)
        dist = found.dist.dist
        drawn = Predictive(dist.continuous) if isinstance(dist, Stacked) else found.dist
        cdf = drawn[np.zeros(N_POINTS, dtype=int)].cdf(ends)
        heights = np.diff(cdf) / np.diff(ends)
        intervals = []
        for coverage in SHOWN_COVERAGES:
            (lower,), (upper,) = map(json_numbers, found.interval(coverage))
            intervals.append({"coverage": coverage, "lower": lower, "upper": upper})
        return {
            "target": self.saved.target,
            **{name: json_numbers(columns[name])[0] for name in names},
            "median": json_numbers(found.quantile(0.5))[0],
            "intervals": intervals,
            "density": {
                "y": json_numbers((ends[1:] + ends[:-1]) / 2),
                "height": json_numbers(heights),
            },
            "atoms": [
                {"value": value, "probability": float(found.dist.probability_of(value)[0])}
                for value in found.atoms
            ],
            "is_out_of_distribution": bool(columns["off_data"][0] > OFF_DATA),
            "notes": "; ".join(note.text for note in row_notes(self.saved.model, found.X)[0]),
            "neighbors": self.neighbors(found.X, request.n_neighbors),
        }

    def explain(self, request: AbstractExplainRequest) -> Json:
        """Change of the standard deviation by knowing each of the most important columns."""
        X, columns = self.format.frame([request.row]), self.saved.important[:MOST_EXPLAINED]
        change = -self.saved.model.explain_uncertainty(X, columns=columns).iloc[0]
        change = change.sort_values(key=np.abs, ascending=False)
        pairs = zip(change.index, json_numbers(change), strict=True)
        effects = [{"column": name, "effect": effect} for name, effect in pairs]
        return {"target": self.saved.target, "effects": effects}

    def neighbors(self, X: pd.DataFrame, k: int) -> list[Json] | None:
        """Nearest training rows of the first row, None for estimators without any."""
        found = find_neighbors(self.saved.model, X, max(1, k)) if self.has_neighbors else None
        if found is None:
            return None
        pairs = zip(*(part[0, :k].tolist() for part in found), strict=True)
        return [{"row": row + 1, "weight": weight} for row, weight in pairs if weight > 0]

    def warm_up(self) -> None:
        row = self.format.typical
        predict, distribution, density, explain = self.request_models(BULK_ROWS)
        for n_rows in (QUICK_ROWS, BULK_ROWS):
            rows = [row] * n_rows
            self.predict_batch([predict(rows=rows)])
            self.predict_batch([distribution(rows=rows, values=[0.0])])
        self.density(density(row=row))
        self.explain(explain(row=row))

    def request_models(self, max_rows: int) -> list[Any]:
        return [request_model(base, self.format.row_model, max_rows) for base in REQUESTS]


def describe_rows(
    found: RowPredictions, request: BatchRequest, indices: NDArray[np.intp]
) -> list[Json]:
    """Predictions of some of the rows that were predicted together."""
    if isinstance(request, AbstractPredictRequest):
        columns = found.columns(PredictOptions(coverage=request.coverage, method=request.method))
        lists = {name: json_numbers(values[indices]) for name, values in columns.items()}
    else:
        shape = (-1, len(indices))
        quantiles = [found.quantile(level)[indices] for level in request.probabilities]
        cdf = [found.dist.cdf(value)[indices] for value in request.values]
        lists = {
            **{name: json_numbers(found.moments[name][indices]) for name in ("mean", "std")},
            "quantiles": [json_numbers(row) for row in np.reshape(quantiles, shape).T],
            "cdf": [json_numbers(row) for row in np.reshape(cdf, shape).T],
            "off_data": json_numbers(found.moments["off_data"][indices]),
        }
    return [dict(zip(lists, cells, strict=True)) for cells in zip(*lists.values(), strict=True)]


def json_numbers(values: Any) -> list[float | None]:
    """Numbers for JSON, None for those that are not finite."""
    numbers = np.asarray(values, np.float64).tolist()
    return [number if math.isfinite(number) else None for number in numbers]


def predict_upload(
    saved: SavedTableModel, path: Path, options: PredictOptions, max_rows: int
) -> Path:
    """File with the columns that `sigmax predict` adds, next to an uploaded one.

    Raise an `HTTPException` unless all rows can be predicted.
    """
    out = path.with_name("predicted.csv")
    try:
        with open_source(path) as source:
            if source.format is not Format.TEXT or source.compression:
                raise http_error(415, "The file must be plain CSV text.", "body")
        write_table(predict_chunks(saved, upload_batches(path, max_rows), options), out)
    except (TableFileError, ValueError) as error:
        message = str(error).replace(str(path), "The file")
        raise http_error(422, message, "body") from None
    return out


def upload_batches(path: Path, max_rows: int) -> Iterator[pd.DataFrame]:
    """Rows of a file in batches that are padded to `QUICK_ROWS` or `BULK_ROWS`."""
    n_rows = 0
    for chunk in read_chunks(path, rows_per_chunk=ROWS_PER_CHUNK):
        n_rows += len(chunk)
        if n_rows > max_rows:
            raise http_error(413, f"The file may have at most {max_rows:,} rows.", "body")
        start = 0
        while start < max(1, len(chunk)):  # also of no rows, whose columns are checked
            size = BULK_ROWS if len(chunk) - start > BULK_ROWS // 2 else QUICK_ROWS
            yield chunk.iloc[start : start + size]
            start += size
