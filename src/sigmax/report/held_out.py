"""Labelled rows with their predictions as plain numbers, and the cells of some of them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.metrics import covering_levels

__all__ = ["COVERAGE", "CURVE_LEVELS", "OFF_DATA", "HeldOutRows", "at_end"]

COVERAGE = 0.9
"""Of the intervals that a report shows."""
CURVE_LEVELS = np.round(np.linspace(0.02, 0.98, 49), 2)
"""Nominal levels of the central intervals whose coverage a curve shows."""
OFF_DATA = 0.5
"""The gate from which a row counts as unlike anything that was learned from."""
N_SAMPLED = 2_000
"""Rows whose cells are kept for what needs new predictions."""
N_EXTREME = 12
"""Rows whose cells are kept because they are the least known, or the farthest off."""

MIXER = np.uint64(0xBF58476D1CE4E5B9)
"""An odd multiplier that spreads the bits of row numbers."""

Numbers = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOutRows:
    """Rows that the model has not seen, what it says about them, and what came."""

    y: Numbers
    mean: Numbers
    std: Numbers
    epistemic: Numbers
    """The part of ``std`` that is ignorance."""
    lower: Numbers
    upper: Numbers
    pit: Numbers
    """The predicted probability of at most ``y``."""
    level: Numbers
    """Smallest of `CURVE_LEVELS` whose central interval contains ``y``; infinite if none does."""
    gate: Numbers | None
    """From 0 on the data to 1 far from them, where the model knows it."""
    numbers: NDArray[np.int64]
    """Which rows of the file these are, counted from 1."""
    columns: pd.DataFrame
    """Those by which parts of the rows are judged."""
    cells: pd.DataFrame
    """The features of some rows, indexed by their positions among all."""

    @classmethod
    def predict(
        cls,
        model: Any,
        X: Any,
        y: Numbers,
        *,
        dist: Any = None,
        method: str = "distribution",
        numbers: NDArray[np.integer] | None = None,
        columns: Any = None,
    ) -> "HeldOutRows":
        """What a model says about some rows.

        Parameters
        ----------
        X
            The rows, a pandas frame.
        dist
            The prediction, a `Predictive`, where there is one already.
        method
            Of the intervals: ``distribution`` or ``conformal``.
        numbers
            Which rows of the file these are; by default the first ones.
        columns
            A frame of the columns by which parts of the rows are judged.
        """
        dist = model.predict_dist(X) if dist is None else dist
        if method == "conformal":
            bounds = model.predict_interval(X, COVERAGE, method="conformal")
        else:
            bounds = dist.interval(COVERAGE)
        gate = model.predict_gate(X)
        rows = cls(
            y=y,
            mean=dist.mean,
            std=dist.std,
            epistemic=np.sqrt(dist.epistemic_variance),
            lower=bounds[:, 0],
            upper=bounds[:, 1],
            pit=dist.cdf(y),
            level=covering_levels(y, dist, CURVE_LEVELS),
            gate=None if gate is None else np.asarray(gate, dtype=np.float64),
            numbers=np.arange(1, len(y) + 1) if numbers is None else np.asarray(numbers, np.int64),
            columns=pd.DataFrame(index=range(len(y)))
            if columns is None
            else columns.reset_index(drop=True),
            cells=X.reset_index(drop=True),
        )
        return rows.with_fewer_cells()

    @classmethod
    def join(cls, parts: Sequence["HeldOutRows"]) -> "HeldOutRows":
        """The rows of several parts, one after another."""
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(len(part) for part in parts)])
        cells = [
            part.cells.set_axis(part.cells.index + start, axis=0)
            for part, start in zip(parts, starts, strict=False)
        ]

        def joined(name: str) -> Any:
            arrays = [getattr(part, name) for part in parts]
            return None if arrays[0] is None else np.concatenate(arrays)

        others = ("columns", "cells")
        return cls(
            **{one.name: joined(one.name) for one in fields(cls) if one.name not in others},
            columns=pd.concat([part.columns for part in parts], ignore_index=True),
            cells=pd.concat(cells),
        ).with_fewer_cells()

    def __len__(self) -> int:
        return len(self.y)

    @property
    def is_inside(self) -> NDArray[np.bool_]:
        """Whether the interval holds what came."""
        return (self.lower <= self.y) & (self.y <= self.upper)

    @property
    def n_at_end(self) -> int:
        """Number of rows whose target is an end of its interval, as happens to rounded ones."""
        return int(np.sum(self.is_inside & at_end(self.y, self.lower, self.upper)))

    @property
    def centrality(self) -> Numbers:
        """The level of the smallest central interval that holds what came."""
        return np.abs(2 * self.pit - 1)

    @property
    def half_width(self) -> Numbers:
        return (self.upper - self.lower) / 2

    @property
    def standardized_error(self) -> Numbers:
        """The error of the mean in standard deviations; 0 where these are infinite."""
        return (self.y - self.mean) / np.where(self.std > 0, self.std, np.nan)

    @property
    def unknown_share(self) -> Numbers:
        """The share of the variance that is ignorance."""
        found = (self.epistemic / np.where(self.std > 0, self.std, np.nan)) ** 2
        return np.nan_to_num(found, nan=0.0)

    def least_known(self) -> NDArray[np.intp]:
        """Positions, those farthest off the data first, then those of the most ignorance."""
        gate = np.zeros(len(self)) if self.gate is None else np.round(self.gate, 2)
        return np.lexsort((-self.unknown_share, -gate))

    def farthest_off(self) -> NDArray[np.intp]:
        """Positions, those first whose target was the least expected."""
        error = np.nan_to_num(np.abs(self.standardized_error), nan=0.0)
        return np.lexsort((-error, -np.round(self.centrality, 6)))

    def sample(self, most: int = N_SAMPLED) -> NDArray[np.intp]:
        """Positions of some rows, in their order, the same at every call."""
        return np.sort(priorities(self.numbers).argsort(kind="stable")[:most])

    def with_fewer_cells(self) -> "HeldOutRows":
        """The same rows, with the cells of those alone that the report needs."""
        wanted = {*self.sample(), *self.least_known()[:N_EXTREME], *self.farthest_off()[:N_EXTREME]}
        kept = self.cells.loc[self.cells.index.isin(list(wanted))]
        return HeldOutRows(**{**self.__dict__, "cells": kept})


def at_end(y: Numbers, lower: Numbers, upper: Numbers) -> NDArray[np.bool_]:
    """True where a value is an end of its interval, up to rounding."""
    distance = np.minimum(np.abs(y - lower), np.abs(upper - y))
    return distance <= 1e-4 * (upper - lower) + 1e-6 * np.abs(y)


def priorities(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A random-looking number for every row that does not depend on which other rows there are."""
    mixed = numbers.astype(np.uint64)
    for _ in range(2):
        mixed = (mixed ^ (mixed >> np.uint64(30))) * MIXER
    return mixed ^ (mixed >> np.uint64(29))
