"""The protocol of experts: an expert fits rows and returns a fitted value.

Everything that is done to a fitted value (prediction, calibration, conformal intervals, saving,
adding rows) needs no more of it than `AbstractFitted.density` and its held-out densities.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from jaxtyping import Bool, Float, Int

from sigmax.calibration import ConformalScores
from sigmax.distributions import Mixture, Normal, Predictive, Stacked
from sigmax.errors import InvalidArgumentError
from sigmax.experts.rows import Rows, TrainingRows
from sigmax.features import SUPPORT, TargetUnits
from sigmax.inputs import Inputs
from sigmax.random import RandomKey
from sigmax.settings import AbstractSettings, setting
from sigmax.values import AbstractValue, tree_leaves, tree_map

ROWS_AT_ONCE = 4096

COMPILED = ("combined", "gaussian_process", "local", "stochastic")
"""Modules of experts that are compiled by JAX, and imported when they are used."""


def import_compiled() -> None:
    """Import all experts, of which a document or a user names one."""
    for name in COMPILED:
        import_module(f"sigmax.experts.{name}")


@final
class HeldOut(AbstractValue):
    """Density of training rows under a fit that has not seen them, nor any duplicate of them.

    A row is predicted by the mixture of the ensemble members that hold it out; a method that leaves
    rows out in closed form has one member, which leaves out every row.
    """

    dist: Mixture | Stacked
    """Densities of the transformed targets, leaves (components, k, outputs). Members that have
    learned from a row have weight 0 there."""
    y: Float[np.ndarray, "k outputs"]
    """Transformed targets."""
    weight: Float[np.ndarray, " k"]
    """Sample weights."""
    row: Int[np.ndarray, " k"]
    """Positions of the rows among the training rows; in a `Model`, among those given to `fit`."""
    members: Bool[np.ndarray, "k members"]
    """True for the members that hold a row out."""
    gate: Float[np.ndarray, " k"] | None = None
    """Extrapolation gate of the rows, none of which counts as on the data by itself."""

    @classmethod
    def of_rows(
        cls,
        dist: Mixture | Stacked,
        rows: Rows,
        at: Int[np.ndarray, " k"] | None = None,
        gate: Float[np.ndarray, " k"] | None = None,
    ) -> "HeldOut":
        """All rows, or the rows ``at``, each left out by every member; a stack has one."""
        at = np.arange(len(rows)) if at is None else at
        n_members = 1 if isinstance(dist, Stacked) else dist.n_members
        members = np.ones((len(at), n_members), dtype=bool)
        return cls(dist, rows.y[at], rows.weight[at], at, members, gate)

    @classmethod
    def of_members(
        cls,
        dist: Mixture,
        member: Int[np.ndarray, " pairs"],
        row: Int[np.ndarray, " pairs"],
        n_members: int,
        rows: Rows,
    ) -> "HeldOut":
        """From densities of pairs of a member and a row that it holds out.

        ``dist`` is a mixture of the components of one member: leaves (parts, pairs, outputs).
        """
        kept, position = np.unique(row, return_inverse=True)
        members = np.zeros((len(kept), n_members), dtype=bool)
        members[position, member] = True
        n_parts, _, n_outputs = np.shape(dist.components.mean)

        def spread(leaf: Any, fill: float) -> np.ndarray:
            found = np.full((n_members, n_parts, len(kept), n_outputs), fill)
            found[member, :, position] = np.moveaxis(np.asarray(leaf), 1, 0)
            return found.reshape(n_members * n_parts, len(kept), n_outputs)

        log_weight = dist.log_weight
        if log_weight is None:
            log_weight = np.full(np.shape(dist.components.mean), -np.log(n_parts))
        log_weight = spread(log_weight, -np.inf) - np.log(members.sum(axis=1))[:, None]
        components = tree_map(lambda leaf: spread(leaf, 4.0), dist.components)
        mixture = Mixture(components, None, log_weight, n_parts)
        return cls(mixture, rows.y[kept], rows.given.weight[kept], kept, members)

    @classmethod
    def none(cls, n_members: int, n_outputs: int) -> "HeldOut":
        """No row is held out."""
        nothing = np.zeros((n_members, 0, n_outputs))
        members = np.zeros((0, n_members), dtype=bool)
        dist = Mixture(Normal(nothing, nothing))
        return cls(dist, nothing[0], np.zeros(0), np.zeros(0, int), members)

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def _conformal(self) -> tuple[ConformalScores, Bool[np.ndarray, "folds members"]]:
        """Scores |y - mean| / std of the rows, and the members of each fold of rows."""
        folds, fold = np.unique(self.members, axis=0, return_inverse=True)
        dist = Predictive(self.dist)
        parts = self.y, dist.mean, dist.std, self.weight, fold.reshape(-1)
        return ConformalScores.create(*parts), folds

    def conformal_interval(
        self, dist: Mixture | Stacked, coverage: float
    ) -> Float[np.ndarray, "n p 2"]:
        """Conformal intervals of new rows with the predictive densities ``dist``.

        A new row is predicted by the members of every fold of held-out rows, and compared with the
        errors of these rows: CV+, and where folds overlap the jackknife+ after bootstrap of Kim, Xu
        and Barber (2020).
        """
        if not len(self):
            raise InvalidArgumentError(
                "`method` can be 'conformal' only if ensemble members hold rows out: set"
                " `validation_fraction` above 0, and fit without `censoring`."
            )
        scores, folds = self._conformal
        mean, variance = member_moments(dist, folds.shape[1])
        bounds = []
        for first in range(0, mean.shape[1], ROWS_AT_ONCE):
            rows = slice(first, first + ROWS_AT_ONCE)
            means = np.stack([mean[own, rows].mean(axis=0) for own in folds])
            variances = np.stack(
                [variance[own, rows].mean(axis=0) + mean[own, rows].var(axis=0) for own in folds]
            )
            bounds.append(scores.interval(means, np.sqrt(variances), coverage))
        return np.concatenate(bounds)

    def own_interval(self, coverage: float) -> Float[np.ndarray, "k p 2"]:
        """Conformal intervals of held-out rows, each tenth of them from errors of the others."""
        dist, bounds = Predictive(self.dist), np.empty((*self.y.shape, 2))
        part = np.random.default_rng(0).permutation(len(self)) % 10
        mean, std = dist.mean, dist.std
        for own, others in ((part == i, part != i) for i in range(10)):
            known = (self.y[others], mean[others], std[others], self.weight[others])
            scores = ConformalScores.create(*known)
            bounds[own] = scores.interval(mean[None, own], std[None, own], coverage)
        return bounds


def member_moments(mixture: Mixture | Stacked, n_members: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of every ensemble member, whose components follow each other."""
    if isinstance(mixture, Stacked):
        mean, variance, _ = mixture.summary
        return mean[None], variance[None]
    # Rows come first: `Predictive` computes in blocks of them.
    parts = Predictive(tree_map(lambda leaf: leaf.swapaxes(0, 1), mixture.components))
    shape = *parts.shape[:1], n_members, -1, *parts.shape[2:]
    means, variances = (part.reshape(shape) for part in (parts.mean, parts.variance))
    if mixture.log_weight is None:
        weight = np.full(means.shape, 1 / means.shape[2])
    else:
        weight = n_members * np.exp(mixture.log_weight).swapaxes(0, 1).reshape(shape)
    mean = np.sum(weight * means, axis=2, keepdims=True)
    variance = np.sum(weight * (variances + (means - mean) ** 2), axis=2)
    return mean[:, :, 0].swapaxes(0, 1), variance.swapaxes(0, 1)


@final
class StoredRows(AbstractValue):
    """Training rows in standardised units: those of the fit, then those that were added."""

    X: Inputs
    y: Float[np.ndarray, "rows outputs"]
    weight: Float[np.ndarray, " rows"]
    """Sample weights over the mean weight of the fit."""
    indices: Int[np.ndarray, " rows"]
    """Positions among the rows given to `fit`; added rows are numbered on."""

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> "StoredRows":
        return tree_map(lambda leaf: np.asarray(leaf)[rows], self)

    def joined(self, others: "StoredRows") -> "StoredRows":
        return tree_map(lambda *leaves: np.concatenate(leaves), self, others)

    def check(self) -> None:
        """Raise ValueError unless all rows are complete and have a weight."""
        if any(len(leaf) != len(self.y) for leaf in tree_leaves(self)):
            raise ValueError("arrays of the training rows differ in their number of rows")
        if not (self.weight >= 0).all():
            raise ValueError("weights of training rows must be at least 0")


class AbstractFitted(AbstractValue):
    """All that an expert has learned. A final class gives `density` and ``held_out``."""

    if TYPE_CHECKING:
        held_out: HeldOut

    import_subclasses = staticmethod(import_compiled)

    @abstractmethod
    def density(self, X: Inputs) -> Mixture | Stacked:
        """Predictive densities of the transformed target: leaves (components, rows, outputs)."""

    def gate(self, X: Inputs) -> Float[np.ndarray, " rows"] | None:
        """Extrapolation gate, 0 on the data and 1 far from them; None if there is none."""
        return None

    def describe(
        self, X: Inputs
    ) -> tuple[Mixture | Stacked, dict[str, Float[np.ndarray, " rows"]]]:
        """`density`, and further quantities of every row by name, ``gate`` if there is one."""
        gate = self.gate(X)
        return self.density(X), {} if gate is None else {"gate": gate}

    def explain_neighbors(
        self, X: Inputs, k: int
    ) -> tuple[Int[np.ndarray, "rows k"], Float[np.ndarray, "rows k"]] | None:
        """Training rows with the largest weights in the mean, and these weights.

        None if the method does not average over training rows.
        """
        return None

    def with_rows(self, new: StoredRows) -> "AbstractFitted | None":
        """Value that also predicts from new rows, without another fit; None if it cannot."""
        return None

    def prediction_shape(self, X: Inputs) -> tuple[int, ...]:
        """Shape of the predictions at ``X``; raises an error if arrays do not fit each other."""
        return self.density(X).shape

    def __deepcopy__(self, memo: dict[int, Any]) -> "AbstractFitted":
        """The same value: it never changes."""
        return self


@dataclass(frozen=True, kw_only=True)
class AbstractExpert(AbstractSettings):
    """A method of regression: settings, and how rows are fitted."""

    is_network: ClassVar[bool] = False
    """True for an ensemble of networks, of which several can be trained in one call."""

    knows_errors: ClassVar[bool] = False
    """True if `fit` takes known measurement errors of rows, `Rows.error`, into account."""

    import_subclasses = staticmethod(import_compiled)

    support: str | tuple[float | None, float | None] = setting(*SUPPORT)

    @abstractmethod
    def fit(self, rows: Rows, key: RandomKey, *, verbose: int = 0) -> AbstractFitted:
        """Fit rows. A ``verbose`` above 0 shows the progress."""

    def fit_together(
        self, rows: Sequence[Rows], keys: Sequence[RandomKey], *, verbose: int = 0
    ) -> list[AbstractFitted]:
        """Fit several data sets; in one training, where that is quicker."""
        pairs = zip(rows, keys, strict=True)
        return [self.fit(own, key, verbose=verbose) for own, key in pairs]

    def target(self, rows: TrainingRows) -> TargetUnits:
        """Units of the target, and its support."""
        return TargetUnits.fit(rows.y, rows.weight, self.support)
