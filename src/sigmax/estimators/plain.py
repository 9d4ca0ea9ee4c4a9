"""Plain predictors in closed form: a linear model, and the distribution of the target alone."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, final

import jax
import numpy as np
from numpy.typing import NDArray

from sigmax.distributions import Mixture, Normal, Predictive, StudentT
from sigmax.estimators.atomic_fit import atomic_fit
from sigmax.estimators.base import AbstractRegressor, TrainingRows
from sigmax.estimators.folds import duplicate_groups
from sigmax.features import Features
from sigmax.files import take_array
from sigmax.inputs import Inputs
from sigmax.scaling import Standardizer
from sigmax.settings import AbstractSettings

__all__ = ["LinearRegressor", "MarginalRegressor"]

Numbers = NDArray[np.float64]

PENALTIES = np.logspace(-6, 6, 49)
"""Ratios of the noise variance to the prior variance of a coefficient, on standardised data."""
PRIOR_SHAPE, PRIOR_RATE = 1.0, 1e-6
"""Inverse-gamma prior of the noise variance, in units of the variance of y."""
MOST_CODES = 200
"""Categories of a column with a coefficient each; columns of more are seen by statistics of y."""
N_QUANTILES = 99


@final
@dataclass(frozen=True, kw_only=True)
class PlainSettings(AbstractSettings):
    """None: there is nothing to set."""


class AbstractPlainRegressor(AbstractRegressor):
    """Features of a table, units of the target, and a few named arrays that follow from them."""

    default_recipe = PlainSettings()

    arrays_: dict[str, Numbers]

    def __init__(self, *, categorical_features=None, numeric_features=None):
        self.categorical_features = categorical_features
        self.numeric_features = numeric_features

    @abstractmethod
    def _learn(self, rows: TrainingRows, inputs: Inputs, y: Numbers) -> dict[str, Numbers]:
        """Arrays to predict from, given standardised targets (n, p)."""

    @abstractmethod
    def _shapes(self, arrays: dict[str, np.ndarray], n_outputs: int) -> dict[str, tuple[int, ...]]:
        """Shapes that these arrays must have in a saved model."""

    def fit(self, X, y, sample_weight=None) -> "AbstractPlainRegressor":
        """Learn from rows ``X`` (n, d) and targets ``y`` (n,) or (n, p).

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
        y : array-like of shape (n,) or (n, p)
        sample_weight : array-like of shape (n,), optional
            Weight of each row relative to the others. A row of weight 0 is as good as absent.
        """
        with atomic_fit([self]) as (fresh,):
            rows = fresh._read_training(X, y, sample_weight)
            fresh.y_scaling_ = Standardizer.fit(rows.y, rows.weight, constant_scale=1e-6)
            y = fresh.y_scaling_(rows.y, np.float64)
            groups = duplicate_groups(rows.table.values)
            fresh.features_, inputs = Features.fit(rows.table, y, rows.weight, groups, np.float64)
            fresh.arrays_ = fresh._learn(rows, inputs, y)
        return self

    def _predictive(self, mixture: Mixture) -> Predictive:
        """A standardised mixture of leaves (m, n, p) as a prediction in the units of ``y``."""
        mixture = mixture.affine(self.y_scaling_.mean, self.y_scaling_.scale)
        if self.is_single_output_:
            mixture = jax.tree.map(lambda leaf: leaf[..., 0], mixture)
        return Predictive(mixture)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        facts = {"is_single_output": bool(self.is_single_output_), **self.features_.facts()}
        return facts, self.arrays_ | self.features_.state() | self.y_scaling_.state("y")

    def _set_state(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.is_single_output_ = bool(facts["is_single_output"])
        p = 1 if self.is_single_output_ else len(arrays["y.mean"])
        self.features_ = Features.from_state(facts, arrays, p)
        self.y_scaling_ = Standardizer.from_state(arrays, "y", p)
        shapes = self._shapes(arrays, p)
        self.arrays_ = {name: take_array(arrays, name, shape) for name, shape in shapes.items()}


@final
class LinearRegressor(AbstractPlainRegressor):
    r"""Bayesian linear regression with a Student-t prediction, in closed form.

    Numbers and times are standardised, missing values are at the mean and flagged, categories are
    one-hot or, in columns of many, the mean and the spread of the target. Coefficients have the
    prior $\beta \sim N(0, \sigma^2 / \lambda)$, the noise variance an inverse-gamma prior, and the
    $\lambda$ that maximises the marginal likelihood is taken. It is what any other model should
    beat, and what to use where none does.

    Parameters
    ----------
    categorical_features, numeric_features : list of str, optional
        Columns of a frame to take as categories or as numbers, whatever they look like.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> model = LinearRegressor().fit(X, X @ [1.0, -2.0] + 0.5 * rng.normal(size=200))
    >>> mean, std = model.predict([[1.0, 1.0]], return_std=True)
    >>> mean.round(1), std.round(1)
    (array([-1.]), array([0.5]))
    """

    def _learn(self, rows, inputs, y):
        weight = rows.weight / rows.weight.mean()
        Z = design(inputs)
        center = weight @ Z / len(Z)
        root = np.sqrt(weight)[:, None]
        left, singular, directions = np.linalg.svd(root * (Z - center), full_matrices=False)
        eigenvalues, y = singular**2, root * y  # which is centred
        projected = singular[:, None] * (left.T @ y)
        shrunk = 1 / (eigenvalues[:, None] + PENALTIES)  # (k, penalties)
        explained = np.einsum("kp,kl->lp", projected**2, shrunk)
        shape = PRIOR_SHAPE + (len(Z) - 1) / 2
        rate = PRIOR_RATE + np.maximum(np.sum(y**2, axis=0) - explained, 0.0) / 2
        evidence = np.sum(np.log(PENALTIES * shrunk), axis=0)[:, None] / 2 - shape * np.log(rate)
        best = np.argmax(evidence, axis=0)
        return {
            "center": center,
            "coefficients": directions.T @ (projected * shrunk[:, best]),
            "directions": directions,
            "eigenvalues": eigenvalues,
            "penalty": PENALTIES[best],
            "noise": np.take_along_axis(rate, best[None], axis=0)[0] / shape,
            "shape": np.array([shape]),
        }

    def _shapes(self, arrays, n_outputs):
        d, k = design(self.features_.blank(1)).shape[1], len(arrays["eigenvalues"])
        return {
            "center": (d,),
            "coefficients": (d, n_outputs),
            "directions": (k, d),
            "eigenvalues": (k,),
            "penalty": (n_outputs,),
            "noise": (n_outputs,),
            "shape": (1,),
        }

    def predict_dist(self, X) -> Predictive:
        """Student-t densities of new measurements, noise included, in the units of ``y``.

        The uncertainty of the coefficients is epistemic.
        """
        rows, known = self._completed(X), self.arrays_
        Z = design(self.features_(rows.table, np.float64)) - known["center"]
        along = (Z @ known["directions"].T) ** 2
        across = np.maximum(np.sum(Z**2, axis=1) - along.sum(axis=1), 0.0)[:, None]
        spread = along @ (1 / (known["eigenvalues"][:, None] + known["penalty"]))
        n_rows = 2 * (known["shape"] - PRIOR_SHAPE) + 1
        latent = known["noise"] * (spread + across / known["penalty"] + 1 / n_rows)
        mean, total = Z @ known["coefficients"], known["noise"] + latent
        df = np.broadcast_to(2 * known["shape"], mean.shape)
        components = StudentT(mean[None], df[None], np.sqrt(total)[None])
        return self._predictive(rows.mixture(Mixture(components, (latent / total)[None])))


@final
class MarginalRegressor(AbstractPlainRegressor):
    """The same density for every row, that of the training targets, whatever the columns say.

    It is a smoothed histogram: a Normal at each of 99 quantiles, as wide as their distance, but no
    narrower than Silverman's bandwidth. A model that does no better has learned nothing.

    Parameters
    ----------
    categorical_features, numeric_features : list of str, optional
        Columns of a frame to take as categories or as numbers; predictions do not depend on them.
    """

    def _learn(self, rows, inputs, y):
        levels = (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
        quantiles, low, high = (weighted_quantiles(y, rows.weight, q) for q in (levels, 0.25, 0.75))
        iqr = (high - low) / 1.34
        spread = np.where(iqr > 0, np.minimum(iqr, 1.0), 1.0)  # y has a standard deviation of 1
        least = 0.9 * spread * len(y) ** -0.2
        return {
            "quantiles": quantiles,
            "widths": np.maximum(np.gradient(quantiles, axis=0), least),
        }

    def _shapes(self, arrays, n_outputs):
        shape = (N_QUANTILES, n_outputs)
        return {"quantiles": shape, "widths": shape}

    def predict_dist(self, X) -> Predictive:
        """The density of the training targets, once for every row."""
        n_rows = self._completed(X).n_rows
        quantiles, widths = (
            np.repeat(self.arrays_[name][:, None], n_rows, axis=1)
            for name in ("quantiles", "widths")
        )
        log_weight = np.full_like(quantiles, -np.log(N_QUANTILES))
        components = Normal(quantiles, widths)
        return self._predictive(Mixture(components, None, log_weight, N_QUANTILES))


def design(rows: Inputs) -> Numbers:
    """Rows as the columns that a linear model weighs: numbers, flags, and one-hot categories."""
    parts = [np.asarray(rows.numbers, np.float64)]
    if rows.extras is not None:
        parts.append(np.asarray(rows.extras, np.float64))
    return np.concatenate([*parts, *one_hot(rows)], axis=1)


def one_hot(rows: Inputs) -> list[Numbers]:
    """Indicators of the categories of every column that has few; unseen ones have none."""
    if rows.codes is None:
        return []
    codes = np.asarray(rows.codes)
    return [
        (codes[:, [j]] == np.arange(1, n_codes)).astype(np.float64)
        for j, n_codes in enumerate(rows.n_codes)
        if n_codes <= MOST_CODES
    ]


def weighted_quantiles(y: Numbers, weight: Numbers, levels: Any) -> Numbers:
    """Quantiles of every column of ``y``."""
    return np.stack(
        [np.quantile(one, levels, weights=weight, method="inverted_cdf") for one in y.T], axis=-1
    )
