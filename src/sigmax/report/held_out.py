"""Labelled rows with their predictions, and the sampling error of shares of rows."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pandas.util import hash_array
from scipy import stats

from sigmax.metrics import covering_levels

COVERAGE = 0.9
"""Nominal coverage of the intervals in a report."""
CURVE_LEVELS = np.round(np.linspace(0.02, 0.98, 49), 2)
"""Nominal coverages of the central intervals in a calibration curve."""
OUT_OF_DISTRIBUTION = 0.5
"""Gate above which a row counts as out of distribution."""
N_SAMPLED = 2_000
"""Rows whose features are kept for new predictions."""
N_EXTREME = 12
"""Rows whose features are kept because they are the most uncertain, or have the largest errors."""

Numbers = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOutRows:
    """Rows that were not used for training, with targets and predictions."""

    y: Numbers
    mean: Numbers
    std: Numbers
    epistemic: Numbers
    """Epistemic part of ``std``."""
    lower: Numbers
    upper: Numbers
    pit: Numbers
    """Predicted probability of at most ``y``."""
    level: Numbers
    """Smallest of `CURVE_LEVELS` whose central interval contains ``y``; infinite if none does."""
    gate: Numbers | None
    """From 0 near the training rows to 1 far from them; None if the model has no gate."""
    numbers: NDArray[np.int64]
    """Row numbers in the file, from 1."""
    columns: pd.DataFrame
    """Columns by which the rows are divided into groups or periods."""
    cells: pd.DataFrame
    """Features of some of the rows, indexed by position."""

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
        """Predict labelled rows of a pandas frame, unless their ``dist`` is already known.

        The ``method`` of the intervals is ``distribution`` or ``conformal``; row ``numbers`` are
        counted from 1 by default.
        """
        dist = model.predict_dist(X) if dist is None else dist
        if method == "conformal":
            bounds = model.predict_interval(X, COVERAGE, method="conformal")
        else:
            bounds = dist.interval(COVERAGE)
        gate = model.predict_gate(X)
        columns = pd.DataFrame(index=range(len(y))) if columns is None else columns
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
            columns=columns.reset_index(drop=True),
            cells=X.reset_index(drop=True),
        )
        return rows.with_fewer_cells()

    @classmethod
    def join(cls, parts: Sequence["HeldOutRows"]) -> "HeldOutRows":
        """Concatenate the rows of several parts."""
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
        """True for rows whose interval contains the target."""
        return (self.lower <= self.y) & (self.y <= self.upper)

    @property
    def n_at_end(self) -> int:
        """Number of rows whose target is an end of its interval, as happens with rounded ones."""
        return int(np.sum(self.is_inside & at_end(self.y, self.lower, self.upper)))

    @property
    def centrality(self) -> Numbers:
        """Level of the smallest central interval that contains the target."""
        return np.abs(2 * self.pit - 1)

    @property
    def half_width(self) -> Numbers:
        return (self.upper - self.lower) / 2

    @property
    def standardized_error(self) -> Numbers:
        """Error of the mean in standard deviations."""
        return (self.y - self.mean) / np.where(self.std > 0, self.std, np.nan)

    @property
    def epistemic_share(self) -> Numbers:
        """Epistemic share of the variance."""
        found = (self.epistemic / np.where(self.std > 0, self.std, np.nan)) ** 2
        return np.nan_to_num(found, nan=0.0)

    def most_uncertain(self) -> NDArray[np.intp]:
        """Positions by descending gate, then by descending epistemic share of the variance."""
        gate = np.zeros(len(self)) if self.gate is None else np.round(self.gate, 2)
        return np.lexsort((-self.epistemic_share, -gate))

    def largest_errors(self) -> NDArray[np.intp]:
        """Positions by ascending predicted probability of a target as extreme as this one."""
        error = np.nan_to_num(np.abs(self.standardized_error), nan=0.0)
        return np.lexsort((-error, -np.round(self.centrality, 6)))

    def sample(self, most: int = N_SAMPLED) -> NDArray[np.intp]:
        """Positions of a random sample, sorted, the same at every call."""
        hashed: Any = hash_array  # a hash does not depend on the other rows
        priority = hashed(self.numbers)
        return np.sort(priority.argsort(kind="stable")[:most])

    def with_fewer_cells(self) -> "HeldOutRows":
        """The same rows, with the features of only those rows that the report needs."""
        extreme = self.most_uncertain()[:N_EXTREME], self.largest_errors()[:N_EXTREME]
        wanted = np.concatenate([self.sample(), *extreme])
        return replace(self, cells=self.cells.loc[self.cells.index.isin(wanted)])


@final
@dataclass(frozen=True, eq=False)
class LearnedRows:
    """Training rows, in the order in which the model got them."""

    y: NDArray[np.float64]
    X: pd.DataFrame | None = None
    """None if the model was saved without its features."""
    numbers: NDArray[np.int64] | None = None
    """Row numbers in the file, from 1; by default the order of the training rows."""

    def number(self, row: int) -> int:
        return row + 1 if self.numbers is None else int(self.numbers[row])


def at_end(y: Numbers, lower: Numbers, upper: Numbers) -> NDArray[np.bool_]:
    """True where a value is an end of its interval, up to rounding."""
    distance = np.minimum(np.abs(y - lower), np.abs(upper - y))
    return distance <= 1e-4 * (upper - lower) + 1e-6 * np.abs(y)


def chance_band(n_rows: int, shares: ArrayLike) -> tuple[Numbers, Numbers]:
    """95 % range of each observed share under a calibrated model (binomial distribution)."""
    shares = np.asarray(shares, dtype=np.float64)
    low, high = (stats.binom.ppf(level, n_rows, shares) / n_rows for level in (0.025, 0.975))
    return low, high


def share_interval(n_inside: int, n_rows: int) -> tuple[float, float]:
    """Exact 95 % confidence interval of a share (Clopper and Pearson)."""
    low = stats.beta.ppf(0.025, n_inside, n_rows - n_inside + 1) if n_inside else 0.0
    high = stats.beta.ppf(0.975, n_inside + 1, n_rows - n_inside) if n_inside < n_rows else 1.0
    return float(low), float(high)
