"""Predictions for the rows of a file: `sigmax predict` without the command line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.checks import check_choice, check_number
from sigmax.commands.folder import SavedTableModel
from sigmax.commands.unusual_rows import UnusualRows, row_notes
from sigmax.errors import InvalidArgumentError, InvalidCellError, InvalidDataError, TableFileError
from sigmax.tables.reading import read_chunks
from sigmax.tables.writing import write_table

__all__ = [
    "MOST_LEVELS",
    "PredictOptions",
    "RowPredictions",
    "add_predictions",
    "check_columns",
    "default_output",
    "new_names",
    "predict_chunks",
    "predict_file",
]

ROWS_PER_CHUNK = 16_384
"""A power of two, as programs are compiled for: the last chunk alone has another size."""

PREFIX = "predicted_"

MOST_LEVELS = 99
"""Number of quantiles of one prediction."""


@final
@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """What to say about each row."""

    coverage: float = 0.9
    """Of the interval from ``lower`` to ``upper``."""
    quantiles: tuple[float, ...] = ()
    """Levels of further columns, ``q0.05`` and so on."""
    method: str | None = None
    """Of the interval: ``distribution``, ``conformal``, or None for that of the fit."""

    def check(self) -> None:
        check_number("--coverage", self.coverage, above=0.0, below=1.0)
        for level in self.quantiles:
            check_number("--quantiles", level, above=0.0, below=1.0)
        if len({f"{level:g}" for level in self.quantiles}) < len(self.quantiles):
            raise InvalidArgumentError("`--quantiles` must differ in their first six digits.")
        if len(self.quantiles) > MOST_LEVELS:
            raise InvalidArgumentError(
                f"`--quantiles` must be at most {MOST_LEVELS} levels, got {len(self.quantiles):,}."
            )
        if self.method is not None:
            check_choice("--method", self.method, ("distribution", "conformal"))


def predict_chunks(
    saved: SavedTableModel,
    chunks: Iterator[pd.DataFrame],
    options: PredictOptions,
    unusual: UnusualRows | None = None,
) -> Iterator[pd.DataFrame]:
    """The rows of every chunk with their predictions, one chunk at a time.

    ``unusual`` counts the rows that differ from the training rows.
    """
    options.check()
    names: dict[str, str] | None = None
    n_rows = 0
    for chunk in chunks:
        if names is None:
            check_columns(saved, chunk)
            names = new_names(list(map(str, chunk.columns)), options)
        with InvalidCellError.numbered(range(n_rows + 1, n_rows + len(chunk) + 1)):
            predicted = add_predictions(saved, chunk, options, names)
        n_rows += len(chunk)
        if unusual is not None and len(chunk):
            unusual.add(*(predicted[names[name]].to_numpy() for name in ("notes", "off_data")))
        yield predicted


def predict_file(
    saved: SavedTableModel,
    source: str,
    out: str | None,
    options: PredictOptions,
    reading: Mapping[str, Any],
    *,
    overwrite: bool = False,
) -> tuple[str, UnusualRows]:
    """Predict the rows of a file a chunk at a time.

    Returns
    -------
    where predictions were written, and the rows that differ from the training rows
    """
    options.check()
    if out is None:
        out = "-" if source == "-" else str(default_output(Path(source)))
    if out != "-" and source != "-" and is_same_file(out, source):
        raise InvalidArgumentError(f"`--out` {out} is the table itself: name another file.")
    if out != "-" and Path(out).is_file() and not overwrite:
        raise TableFileError(f"{out} exists: name another file by --out, or add --overwrite.")
    chunks = read_chunks(source, rows_per_chunk=ROWS_PER_CHUNK, **reading)
    unusual = UnusualRows()
    write_table(predict_chunks(saved, chunks, options, unusual), out)
    return "standard output" if out == "-" else out, unusual


def add_predictions(
    saved: SavedTableModel, frame: pd.DataFrame, options: PredictOptions, names: dict[str, str]
) -> pd.DataFrame:
    """A table with its predictions in further columns."""
    found = dict.fromkeys(names, np.empty(0)) | {"notes": np.empty(0, dtype=object)}
    if len(frame):
        found = predict_rows(saved, frame.filter(items=saved.features), options)
    columns = {names[name]: values for name, values in found.items()}
    return pd.concat([frame, pd.DataFrame(columns, index=frame.index)], axis=1)


def predict_rows(
    saved: SavedTableModel, X: pd.DataFrame, options: PredictOptions
) -> dict[str, NDArray[Any]]:
    """The columns that predictions add, by name; ``notes`` are texts."""
    return RowPredictions(saved, X).columns(options) | {"notes": row_notes(saved.model, X)}


@final
class RowPredictions:
    """The densities of some rows, and what is read from them, of which nothing is computed twice.

    Parameters
    ----------
    X
        The columns that the model learned from.
    """

    def __init__(self, saved: SavedTableModel, X: pd.DataFrame):
        self.model: Any = saved.model
        self.usual_method, self.X = saved.facts["intervals"], X
        self.dist, self.gate = self.model.predict_dist_and_gate(X)
        self.quantiles: dict[float, NDArray[np.float64]] = {}
        self.conformal: dict[float, NDArray[np.float64]] = {}

    @cached_property
    def moments(self) -> dict[str, NDArray[np.float64]]:
        """Mean, standard deviations, and how far off the data the rows are, NaN if not known."""
        unknown = np.full(len(self.X), np.nan)
        return {
            "mean": self.dist.mean,
            "std": self.dist.std,
            "aleatoric": np.sqrt(self.dist.aleatoric_variance),
            "epistemic": np.sqrt(self.dist.epistemic_variance),
            "off_data": unknown if self.gate is None else self.gate,
        }

    def quantile(self, level: float) -> NDArray[np.float64]:
        if level not in self.quantiles:
            self.quantiles[level] = self.dist.quantile(level)
        return self.quantiles[level]

    def interval(
        self, coverage: float, method: str | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper bounds, by default as the fit has chosen them."""
        if (method or self.usual_method) == "conformal":
            if coverage not in self.conformal:
                bounds = self.model.predict_interval(self.X, coverage, method="conformal")
                self.conformal[coverage] = bounds
            lower, upper = self.conformal[coverage].T
            return lower, upper
        ends = (self.quantile(round((1 + sign * coverage) / 2, 12)) for sign in (-1, 1))
        lower, upper = self.dist.to_values(np.stack([*ends], axis=-1)).T
        return lower, upper

    def columns(self, options: PredictOptions) -> dict[str, NDArray[np.float64]]:
        """All that is to be said about each row, by name."""
        lower, upper = self.interval(options.coverage, options.method)
        mean, std, *others = self.moments.items()
        return {
            **dict([mean, std, ("lower", lower), ("upper", upper), *others]),
            **{f"q{level:g}": self.quantile(level) for level in options.quantiles},
        }


def new_names(columns: Sequence[str], options: PredictOptions) -> dict[str, str]:
    """What the new columns are called: all with a prefix if the table has one of them already.

    Examples
    --------
    >>> new_names(["x", "std"], PredictOptions())["mean"]
    'predicted_mean'
    """
    added = ["mean", "std", "lower", "upper", "aleatoric", "epistemic", "off_data"]
    added += [f"q{level:g}" for level in options.quantiles] + ["notes"]
    if not set(added) & set(columns):
        return {name: name for name in added}
    names = {name: PREFIX + name for name in added}
    if taken := sorted(set(names.values()) & set(columns)):
        raise InvalidDataError(
            f"The file has columns of the names that predictions would get: {', '.join(taken)};"
            " rename them, or predict the file as it was."
        )
    return names


def check_columns(saved: SavedTableModel, frame: pd.DataFrame) -> None:
    """Refuse a file without a column that the model needs."""
    there = set(map(str, frame.columns))
    if missing := [name for name in saved.features if name not in there]:
        listed = ", ".join(map(repr, missing[:5])) + (" and more" if len(missing) > 5 else "")
        raise InvalidDataError(f"The file has no column {listed}, which the model learned from.")


def is_same_file(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return False


def default_output(source: Path) -> Path:
    """Beside the file, as Parquet if it is that, or else as CSV.

    Examples
    --------
    >>> default_output(Path("a/new.csv.gz")).name, default_output(Path("new.parquet")).name
    ('new_predicted.csv', 'new_predicted.parquet')
    """
    stem = source.name.split(".")[0] or source.name
    is_parquet = source.suffix.lower() in (".parquet", ".pq")
    return source.with_name(f"{stem}_predicted{'.parquet' if is_parquet else '.csv'}")
