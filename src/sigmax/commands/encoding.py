"""A table as plain numbers, for models that take nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["SimpleEncoding", "column_kinds", "own_categories"]

MOST_LEVELS = 20
"""Levels of a category that get a column of 0 and 1; the rarer ones are 0 in all of them."""


def column_kinds(
    frame: pd.DataFrame, categorical: tuple[str, ...] = (), numeric: tuple[str, ...] = ()
) -> dict[str, str]:
    """``number``, ``time`` or ``category`` for every column."""
    kinds = {}
    for name, column in frame.items():
        is_number = pd.api.types.is_numeric_dtype(column.dtype)
        is_number = (is_number and name not in categorical) or name in numeric
        is_time = pd.api.types.is_datetime64_any_dtype(column.dtype)
        kinds[str(name)] = "number" if is_number else "time" if is_time else "category"
    return kinds


@final
@dataclass(frozen=True)
class SimpleEncoding:
    """Numbers and times in standard deviations, gaps at the mean and flagged, levels as 0 and 1."""

    units: Mapping[str, tuple[float, float]]
    """Mean and standard deviation of numbers and times."""
    has_gaps: Mapping[str, bool]
    levels: Mapping[str, tuple[str, ...]]
    """The most frequent levels of categories."""

    @classmethod
    def fit(cls, frame: pd.DataFrame, kinds: Mapping[str, str]) -> "SimpleEncoding":
        """Learn from the training rows."""
        units, has_gaps, levels = {}, {}, {}
        for name, kind in kinds.items():
            if kind == "category":
                counts = texts(frame[name]).value_counts()
                levels[name] = tuple(counts.index[:MOST_LEVELS])
            else:
                values = numbers(frame[name], kind)
                known = values[np.isfinite(values)]
                mean, std = (known.mean(), known.std()) if len(known) else (0.0, 1.0)
                units[name] = float(mean), float(std) or 1.0
                has_gaps[name] = len(known) < len(values)
        return cls(units, has_gaps, levels)

    def __call__(self, frame: pd.DataFrame, kinds: Mapping[str, str]) -> NDArray[np.float64]:
        """One row of numbers for every row."""
        columns = []
        for name, kind in kinds.items():
            if kind == "category":
                cells = texts(frame[name]).to_numpy()
                columns += [(cells == level).astype(np.float64) for level in self.levels[name]]
                continue
            mean, std = self.units[name]
            values = (numbers(frame[name], kind) - mean) / std
            is_gap = ~np.isfinite(values)
            columns.append(np.where(is_gap, 0.0, values))
            if self.has_gaps[name]:
                columns.append(is_gap.astype(np.float64))
        return np.column_stack(columns) if columns else np.zeros((len(frame), 0))


def own_categories(frame: pd.DataFrame, kinds: Mapping[str, str]) -> pd.DataFrame:
    """Categories as text, all else as numbers: as CatBoost takes a table."""
    return pd.DataFrame(
        {
            name: texts(frame[name]) if kind == "category" else numbers(frame[name], kind)
            for name, kind in kinds.items()
        },
        index=frame.index,
    )


def texts(column: Any) -> Any:
    """Levels by their names; a gap is a level as well."""
    return column.astype(object).where(column.notna(), "").astype(str)


def numbers(column: Any, kind: str) -> NDArray[np.float64]:
    """Numbers or seconds, nan for gaps."""
    if kind == "time":
        seconds = column.astype("int64").to_numpy(np.float64)
        return np.where(column.isna(), np.nan, seconds)
    return pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
