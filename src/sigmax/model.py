"""A fitted model: a table in, a predictive distribution out."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float
from scipy import special

from sigmax.distributions import ExpertPart, Mixture, Predictive, Stacked
from sigmax.errors import InvalidCellError, InvalidDataError
from sigmax.experts.base import AbstractFitted, StoredRows
from sigmax.experts.rows import Rows
from sigmax.experts.stack import stacked
from sigmax.features import Completion, Features, TargetUnits
from sigmax.inputs import Inputs
from sigmax.tables import Table
from sigmax.values import tree_map

FEWEST_PAIRS = 10
"""Held-out rows from which on outputs are taken as correlated; with as many the correlation is
halved."""

SMALLEST_LEVEL = 1e-6
"""Probability of a held-out target, at least, on either side: one outlier is not all."""


@final
@dataclass(frozen=True, eq=False)
class Model:
    """All that was learned in a fit: how columns are encoded, the target, the fitted expert."""

    features: Features
    target: TargetUnits
    fitted: AbstractFitted
    is_single_output: bool
    weight_unit: float
    """Mean sample weight of the fit."""
    n_given: int
    """Number of rows given to the fit, and added since."""

    @classmethod
    def create(cls, rows: Rows, fitted: AbstractFitted) -> "Model":
        """Model of the fitted value of training rows."""
        given, unit = rows.given, float(rows.given.weight.mean())
        held_out = fitted.held_out
        held_out = replace(held_out, row=given.indices[held_out.row])
        fitted = replace(fitted, held_out=held_out)
        n_given = int(given.indices.max()) + 1
        return cls(rows.features, rows.target, fitted, given.is_single_output, unit, n_given)

    def complete(self, table: Table, hidden: int | None = None) -> tuple[Completion, Inputs]:
        """Rows with unknown cells filled in, also encoded; see `Features.complete`."""
        rows = self.features.complete(table, hidden)
        return rows, self.features(rows.table, np.float64)

    def encode(self, table: Table) -> Inputs:
        """Encoded rows, each with the first completion of its unknown cells."""
        rows, inputs = self.complete(table)
        return inputs[: rows.n_rows]

    def predict(self, table: Table, hidden: int | None = None) -> Predictive:
        """Predictive distributions in the units of y; the column ``hidden`` is taken as unknown."""
        rows, inputs = self.complete(table, hidden)
        return self.predictive(rows.mixture(self.fitted.density(inputs)))

    def measure(self, table: Table, error: Float[np.ndarray, " rows"]) -> Predictive:
        """`predict` for measurements with errors of these standard deviations, by a stack.

        They may lie beyond the support, and between values that repeat.
        """
        rows, inputs = self.complete(table)
        mixture, scaling = rows.mixture(self.fitted.density(inputs)), self.target.scaling
        assert isinstance(mixture, Stacked)
        dist = mixture.measured(error[:, None] / scaling.scale)
        return Predictive(
            tree_map(lambda leaf: leaf[..., 0], dist.affine(scaling.mean, scaling.scale))
        )

    def describe(self, table: Table) -> tuple[Predictive, dict[str, Float[np.ndarray, " rows"]]]:
        """`predict`, and further quantities of every row by name: ``gate``, ``evidence``."""
        rows, inputs = self.complete(table)
        mixture, found = self.fitted.describe(inputs)
        return self.predictive(rows.mixture(mixture)), {
            name: rows.average(values) for name, values in found.items()
        }

    def gate(self, table: Table) -> Float[np.ndarray, " rows"] | None:
        """Extrapolation gate of every row; None if the expert has none."""
        rows, inputs = self.complete(table)
        gate = self.fitted.gate(inputs)
        return None if gate is None else rows.average(gate)

    def conformal_interval(self, table: Table, coverage: float) -> np.ndarray:
        """Conformal intervals from the held-out densities: last axis lower, upper."""
        rows, inputs = self.complete(table)
        mixture = rows.mixture(self.fitted.density(inputs))
        return self.restored(self.fitted.held_out.conformal_interval(mixture, coverage))

    def held_out(self) -> Predictive:
        """Predictive distributions of the held-out rows, in the units of y, without JAX."""
        dist = self.fitted.held_out.dist
        if isinstance(dist, Mixture):
            dist = stacked([ExpertPart(dist, None)], [1.0], np.zeros(dist.shape[0]))
        return self.predictive(dist)

    def held_out_interval(self, coverage: float) -> np.ndarray:
        """Conformal intervals of the held-out rows."""
        return self.restored(self.fitted.held_out.own_interval(coverage))

    def restored(self, bounds: Float[np.ndarray, "rows outputs 2"]) -> np.ndarray:
        """Conformal intervals in the units of y."""
        bounds = self.target.restore(bounds.swapaxes(1, 2)).swapaxes(1, 2)
        bounds = self.target.interval_ends(self.target.within_support(bounds))
        return bounds[:, 0] if self.is_single_output else bounds

    def add_rows(
        self,
        table: Table,
        y: Float[np.ndarray, "rows ..."],
        weight: Float[np.ndarray, " rows"] | None = None,
    ) -> "Model | None":
        """Model that also predicts from new rows, without another fit; None if it cannot.

        ``y`` and ``weight`` are in the units of the fit; rows of weight 0 are left out. Without
        weights, every row counts as one of the fit on average.

        Raises
        ------
        InvalidDataError
            If ``y`` has another shape than in the fit, or a cell is missing in a column without any
            missing value in the fit.
        """
        n_outputs = len(self.target.scaling.mean)
        if (y.ndim == 1) != self.is_single_output or y.size != len(y) * n_outputs:
            shape = "(n,)" if self.is_single_output else f"(n, {n_outputs})"
            raise InvalidDataError(f"`y` must have the shape {shape} of the fit, got {y.shape}.")
        is_unknown = self.features.unknown_reals(table)
        if is_unknown.any():
            row, column = np.argwhere(is_unknown)[0]
            name = table.schema.reals[column].name
            raise InvalidCellError(
                f"Column {name!r} is missing in row {{row}}, but in no row of the fit: such a row"
                " cannot be added. Fit again with it.",
                int(row) + 1,
            )
        y = y.reshape(len(y), -1)
        weight = np.ones(len(y)) if weight is None else weight / self.weight_unit
        kept, numbers = np.flatnonzero(weight > 0), self.n_given + np.arange(len(y))
        X, target = self.features(table, np.float64), self.target(y, np.float64)
        fitted = self.fitted.with_rows(StoredRows(X, target, weight, numbers)[kept])
        if fitted is None:
            return None
        target, n_given = self.target.with_values(y[kept]), self.n_given + len(y)
        return replace(self, target=target, fitted=fitted, n_given=n_given)

    def predictive(self, mixture: Mixture | Stacked) -> Predictive:
        """Densities of the transformed target as predictions in the units of y."""
        dist = self.target.distribution(mixture, self.atoms)
        if self.is_single_output:
            dist = tree_map(lambda leaf: leaf[..., 0], dist)
        has_repeated = any(own is not None for own in self.target.repeated)
        ends = self.target.interval_ends if has_repeated else None
        return Predictive(dist, ends, None if self.is_single_output else self.correlation)

    @cached_property
    def atoms(self) -> Float[np.ndarray, " atoms"]:
        """Values of a single target with a special share of the held-out rows."""
        own, held_out = self.target.repeated[0], self.fitted.held_out
        if own is None or len(self.target.repeated) > 1:
            return np.empty(0)
        return own.atoms(self.target.restore(held_out.y[:, 0].astype(float)), held_out.weight)

    @cached_property
    def correlation(self) -> Float[np.ndarray, "outputs outputs"] | None:
        """Correlation of the normal scores of held-out targets; None with few of them.

        A score is the standard Normal quantile of the probability that the prediction gives to
        smaller targets. The fewer rows, the nearer it is to that of independent outputs.
        """
        held_out = self.fitted.held_out
        if len(held_out) < FEWEST_PAIRS or held_out.y.shape[1] < 2:
            return None
        levels = Predictive(held_out.dist).cdf(held_out.y)
        scores = special.ndtri(np.clip(levels, SMALLEST_LEVEL, 1 - SMALLEST_LEVEL))
        centered = scores - np.average(scores, axis=0, weights=held_out.weight)
        products = (centered * held_out.weight[:, None]).T @ centered
        unit = np.sqrt(np.diag(products))
        own = len(held_out) / (len(held_out) + FEWEST_PAIRS)
        return own * products / np.outer(unit, unit) + (1 - own) * np.eye(len(unit))

    def check(self) -> None:
        """Raise ValueError unless rows of the schema can be predicted."""
        expected = 1, len(self.target.scaling.mean)
        try:
            found = self.fitted.prediction_shape(self.features.blank(1))
        except (TypeError, AssertionError) as error:
            raise ValueError(f"arrays do not fit each other: {error}") from error
        if found != expected:
            raise ValueError(f"predictions have the shape {found}, not {expected}")

    def __deepcopy__(self, memo: dict[int, Any]) -> "Model":
        """The same value: it never changes."""
        return self
