"""What every estimator does alike: all predictions are views of one distribution per row."""

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from sigmax.checks import check_choice
from sigmax.distributions import Predictive
from sigmax.errors import InvalidArgumentError, TrainingWarning
from sigmax.estimators.saving import AbstractSavable
from sigmax.features import Completion, Features
from sigmax.monitoring import Monitor
from sigmax.tables import Table

__all__ = ["AbstractRegressor"]

NO_SETTINGS = (
    "preset",
    "categorical_features",
    "numeric_features",
    "random_state",
    "verbose",
)
"""Arguments of constructors that do not belong to the method."""

INTERVALS = ("conformal", "distribution")

FEWEST_DISTINCT = 10
"""Number of different rows below which no duplicates are merged: all may be repeated by chance."""


class AbstractRegressor(RegressorMixin, AbstractSavable):
    """A scikit-learn regressor that predicts a distribution for every row.

    A final class gives `fit`, `predict_dist` and the pair `_state` and `_set_state`.
    """

    default_recipe: ClassVar[Any]
    """Its settings and their defaults."""
    presets: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Other named sets of defaults."""

    features_: Features
    is_single_output_: bool

    @abstractmethod
    def fit(self, X, y, sample_weight=None) -> "AbstractRegressor":
        """Learn from rows ``X`` (n, d) and targets ``y`` (n,) or (n, p)."""

    @abstractmethod
    def predict_dist(self, X) -> Predictive:
        """One density per row and output, in the units of ``y``."""

    def partial_remember(self, X, y, sample_weight=None) -> Any:
        """Let new rows join the memory of a fitted model, if it has one: `LocalRegressor` does."""
        raise InvalidArgumentError(
            f"{type(self).__name__} keeps no rows that new ones could join: fit it again with them,"
            " or use LocalRegressor."
        )

    def monitor(
        self,
        X=None,
        y=None,
        *,
        alpha: float = 0.05,
        coverage: float = 0.9,
        tolerance: float | None = None,
        most_off_data: float = 0.05,
        random_state: int = 0,
    ) -> Monitor:
        """Tests whether predictions still hold on labelled rows, valid whenever one looks.

        Without rows, the `Monitor` waits for its first ``update(X, y)``; with rows it has taken
        these in. Its settings are explained there.
        """
        found = Monitor(
            self,
            alpha=alpha,
            coverage=coverage,
            tolerance=tolerance,
            most_off_data=most_off_data,
            random_state=random_state,
        )
        return found if X is None else found.update(X, y)

    def _conformal_interval(self, X, coverage: float) -> NDArray[np.float64]:
        """What `predict_interval` gives by the method "conformal"."""
        raise InvalidArgumentError(
            "`method` can be 'conformal' only where members hold rows out;"
            f" wrap {type(self).__name__} in sigmax.calibration.ConformalRegressor instead."
        )

    def recipe(self) -> dict[str, Any]:
        """All settings in force, by name."""
        settings = self.get_params(deep=False)
        return {name: value for name, value in settings.items() if name not in NO_SETTINGS}

    def predict(self, X, return_std: bool = False) -> Any:
        """Mean of the predictive distribution and, on request, its standard deviation.

        Parameters
        ----------
        X : array-like of shape (n, d)
        return_std : bool
            Whether to return the total predictive standard deviation as well.

        Returns
        -------
        mean, or (mean, std) : arrays of shape (n,) or (n, p)
        """
        dist = self.predict_dist(X)
        return (dist.mean, dist.std) if return_std else dist.mean

    def predict_interval(
        self, X, coverage: float = 0.9, method: str = "distribution"
    ) -> NDArray[np.float64]:
        """An interval for every row and output: last axis lower, upper.

        Parameters
        ----------
        X : array-like of shape (n, d)
        coverage : float
            The probability with which a new y is meant to lie in its interval.
        method : "conformal" or "distribution"
            "distribution" is the central interval that holds ``coverage`` of the distribution.
            "conformal" trusts the distribution for its mean and its relative spread only: how wide
            intervals are follows from the errors of the rows that members held out in `fit`. They
            are infinite where these rows are too few, fewer than nine for a coverage of 0.9.
        """
        if check_choice("method", method, INTERVALS) == "conformal":
            return self._conformal_interval(X, coverage)
        return self.predict_dist(X).interval(coverage)

    def predict_quantiles(self, X, alpha=(0.05, 0.5, 0.95)) -> NDArray[np.float64]:
        """Quantiles at the levels ``alpha``, one per entry of the last axis."""
        return self.predict_dist(X).quantile(np.atleast_1d(np.asarray(alpha, dtype=float)))

    def predict_uncertainty(self, X) -> dict[str, NDArray[np.float64]]:
        """Where the uncertainty comes from, as standard deviations: total² = a² + e².

        Returns
        -------
        dict with
            ``total``, the standard deviation of the predictive distribution;
            ``aleatoric``, the noise that more data would not take away;
            ``epistemic``, which they would: the disagreement of the members, and the
            uncertainty of each about its mean where it has one;
            and, where the estimator knows it, ``gate``, 0 on the data and 1 far from them.
        """
        return uncertainty_parts(self.predict_dist(X))

    def predict_gate(self, X) -> NDArray[np.float64] | None:
        """How far each row is off the data, from 0 to 1; None where the estimator does not know."""
        return None

    def predict_dist_and_gate(self, X) -> tuple[Predictive, NDArray[np.float64] | None]:
        """What `predict_dist` and `predict_gate` give, by one pass where that is possible."""
        return self.predict_dist(X), self.predict_gate(X)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def _completed(self, X) -> Completion:
        """Rows to predict, their unknown cells filled in."""
        check_is_fitted(self)
        return self.features_.complete(Table.read(self, X, self.features_.schema))

    def _read_training(self, X, y, sample_weight) -> "TrainingRows":
        """Checked rows of positive weight, duplicates merged. Sets ``is_single_output_``.

        Rows of more than numbers are put into an order that depends on their content alone.
        """
        kinds = {
            kind: getattr(self, f"{kind}_features", None) for kind in ("categorical", "numeric")
        }
        table, y, weight, indices = Table.read_training(self, X, y, sample_weight, **kinds)
        self.is_single_output_ = y.ndim == 1
        rows = merge_duplicates(TrainingRows(table, y.reshape(len(y), -1), weight, indices))
        if table.schema.is_plain:
            return rows
        return rows.take(rows.table.canonical_order(rows.y, rows.weight))


@final
class TrainingRows(NamedTuple):
    """Rows to learn from."""

    table: Table
    y: NDArray[np.float64]
    """Of shape (n, p)."""
    weight: NDArray[np.float64]
    """Above 0."""
    indices: NDArray[np.intp]
    """Which of the rows given to `fit` these are."""

    def take(self, rows: NDArray[np.intp]) -> "TrainingRows":
        table, y, weight, indices = self
        return TrainingRows(table[rows], y[rows], weight[rows], indices[rows])


def merge_duplicates(rows: TrainingRows) -> TrainingRows:
    """Rows with duplicates merged into rows of summed weight, where they are no measurements.

    In a table that was appended to itself, a row's duplicate gives its target away to
    leave-one-out training. If every row of equal X and y occurs a multiple of k times, each k are
    merged into one. Of the others all are merged, unless chance can have repeated them, as in a
    table of few categories: new rows will then be repeats as often, and all rows stay.
    """
    of_both = rows.table.hashes(rows.y)
    first, label, counts = np.unique(
        of_both, return_index=True, return_inverse=True, return_counts=True
    )[1:]
    n_rows, n_distinct = len(label), len(counts)
    if n_distinct == n_rows or n_distinct < FEWEST_DISTINCT:
        return rows
    kept = counts // np.gcd.reduce(counts)
    if not can_be_chance(kept) and repeats_agree(rows.table.hashes(), first):
        kept = np.ones_like(counts)
    if kept.sum() == n_rows:
        return rows
    order = np.argsort(label, kind="stable")
    rank = np.arange(n_rows) - np.repeat(np.cumsum(counts) - counts, counts)
    keeps = np.sort(order[rank < kept[label[order]]])
    weight = (np.bincount(label, rows.weight) / kept)[label[keeps]]
    warnings.warn(
        f"{n_rows - len(keeps):,} of {n_rows:,} rows are exact duplicates of other rows, in all"
        " columns and the target. They were merged into rows of larger weight.",
        TrainingWarning,
        stacklevel=2,
    )
    return rows.take(keeps)._replace(weight=weight)


def can_be_chance(counts: NDArray[np.intp]) -> bool:
    """True if independent draws can have repeated distinct rows ``counts`` times.

    Let a row be drawn with some rate λ, whatever its distribution over rows. The ordered pairs and
    triples of equal rows are then E λ² and E λ³ on average, and E λ · E λ³ is at least (E λ²)².
    Fewer triples by two standard deviations are no chance.

    Examples
    --------
    >>> can_be_chance(np.full(100, 2)), can_be_chance(np.random.default_rng(0).poisson(2, 100))
    (False, True)
    """
    n_rows, n_pairs = np.sum(counts), np.sum(counts * (counts - 1))
    if not n_pairs:
        return True
    share = n_rows * np.sum(counts * (counts - 1) * (counts - 2)) / n_pairs**2
    return bool(1 - share <= 2 * np.sqrt(6 * n_rows / n_pairs**2 + 2 / n_pairs))


def repeats_agree(of_X: NDArray[np.uint64], first: NDArray[np.intp]) -> bool:
    """True if rows of equal X have one target, but for a tenth of those that are repeated.

    ``of_X`` are hashes of X, ``first`` one row of each different X and y.
    """
    label, counts = np.unique(of_X, return_inverse=True, return_counts=True)[1:]
    n_targets = np.bincount(label[first])[counts > 1]
    return bool(np.mean(n_targets == 1) >= 0.9)


def uncertainty_parts(dist: Predictive) -> dict[str, NDArray[np.float64]]:
    """The standard deviation and its two parts."""
    return {
        "total": dist.std,
        "aleatoric": np.sqrt(dist.aleatoric_variance),
        "epistemic": np.sqrt(dist.epistemic_variance),
    }
