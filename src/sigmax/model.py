"""A fitted model: a table in, a predictive distribution out."""

from dataclasses import dataclass
from typing import Any, final

import jax
import numpy as np
from jaxtyping import Float

from sigmax.distributions import Mixture, Predictive, Stacked
from sigmax.experts.base import AbstractFitted
from sigmax.features import Completion, Features, TargetUnits
from sigmax.inputs import Inputs
from sigmax.tables import Table


@final
@dataclass(frozen=True, eq=False)
class Model:
    """All that was learned in a fit: how columns are encoded, the target, the fitted expert."""

    features: Features
    target: TargetUnits
    fitted: AbstractFitted
    is_single_output: bool

    def complete(self, table: Table) -> tuple[Completion, Inputs]:
        """Rows with unknown cells filled in, also encoded."""
        rows = self.features.complete(table)
        return rows, self.features(rows.table, np.float64)

    def encode(self, table: Table) -> Inputs:
        """Encoded rows, each with the first completion of its unknown cells."""
        rows, inputs = self.complete(table)
        return inputs[: rows.n_rows]

    def predict(self, table: Table) -> Predictive:
        """Predictive distributions in the units of y."""
        rows, inputs = self.complete(table)
        return self.predictive(rows.mixture(self.fitted.density(inputs)))

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
        bounds = self.fitted.held_out.conformal_interval(mixture, coverage)
        bounds = self.target.restore(bounds.swapaxes(1, 2)).swapaxes(1, 2)
        bounds = self.target.interval_ends(self.target.within_support(bounds))
        return bounds[:, 0] if self.is_single_output else bounds

    def predictive(self, mixture: Mixture | Stacked) -> Predictive:
        """Densities of the transformed target as predictions in the units of y."""
        dist = self.target.distribution(mixture)
        if self.is_single_output:
            dist = jax.tree.map(lambda leaf: leaf[..., 0], dist)
        return Predictive(dist, self.target.interval_ends if self.target.has_repeated else None)

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
