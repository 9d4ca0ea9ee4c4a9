"""Conformal intervals from the standardised errors of calibration rows, around any regressor.

The score of a calibration row is the absolute error of its predicted mean over its predicted
standard deviation. It is finite for any tails of y and of the density, so that one outlier among
many rows does not make intervals infinite, and it needs only these two numbers of a model.
"""

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import _safe_indexing, check_array, check_random_state, indexable
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.settings import check_count, check_number

ROUNDING = 1e-12
"""Relative tolerance, as (n + 1) times a coverage such as 0.9 may be just above an integer."""

MOST_HALVINGS = 60
ROWS_AT_ONCE = 16_384


def conformal_quantile(scores, coverage: float = 0.9, sample_weight=None) -> float:
    """Score that a new one exceeds with a probability of at most ``1 - coverage``.

    Of n exchangeable scores it is number ⌈(n + 1) coverage⌉ in ascending order; infinite if n is
    smaller than that, as with eight scores and a coverage of 0.9.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Scores of rows that were not used for training.
    coverage : float
        Nominal coverage, above 0 and below 1.
    sample_weight : array-like of shape (n,), optional
        Weight of each score; the new one has their mean weight.

    Examples
    --------
    >>> conformal_quantile(np.arange(1.0, 20.0), 0.9)
    18.0
    >>> conformal_quantile(np.arange(1.0, 9.0), 0.9)
    inf
    """
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 1 or np.isnan(scores).any():
        raise InvalidDataError("`scores` must be one number per row, without nan.")
    weight = np.ones(len(scores))
    if sample_weight is not None:
        weight = np.asarray(sample_weight, np.float64)
    if weight.shape != scores.shape or not np.all((weight >= 0) & np.isfinite(weight)):
        raise InvalidDataError("`sample_weight` must be one finite weight of at least 0 per row.")
    zero = np.zeros((1, 1))
    return float(upper_bound(zero, zero + 1, [ranked(scores, weight)], coverage)[0])


@final
@dataclass(frozen=True, eq=False)
class ConformalScores:
    """Scores of calibration rows, and the model that predicted each of them.

    With one model the interval of a new row is that of split conformal prediction. With the models
    of several folds it is that of CV+ (Barber, Candès, Ramdas and Tibshirani 2021): its ends are
    quantiles of the means of all models, each plus or minus the scores of its own held-out rows
    times its own standard deviation. Memory grows with the rows, not with pairs of them.

    Examples
    --------
    >>> y, zero, one = np.arange(-9.0, 10.0)[:, None], np.zeros((19, 1)), np.ones((19, 1))
    >>> scores = ConformalScores.create(y, zero, one)
    >>> scores.interval(np.full((1, 1, 1), 5.0), np.full((1, 1, 1), 2.0), coverage=0.5)
    array([[[-5., 15.]]])
    """

    score: Float[np.ndarray, "rows outputs"]
    weight: Float[np.ndarray, " rows"]
    fold: Int[np.ndarray, " rows"]
    """Number of the model that was not trained on the row."""

    @classmethod
    def create(
        cls,
        y: Float[np.ndarray, "rows outputs"],
        mean: Float[np.ndarray, "rows outputs"],
        std: Float[np.ndarray, "rows outputs"],
        weight: Float[np.ndarray, " rows"] | None = None,
        fold: Int[np.ndarray, " rows"] | None = None,
    ) -> "ConformalScores":
        """Scores of rows from their predictions; without ``fold`` by one model."""
        weight = np.ones(len(y)) if weight is None else weight
        fold = np.zeros(len(y), dtype=np.int64) if fold is None else fold
        return cls(over(np.abs(y - mean), std), weight, fold)

    def __len__(self) -> int:
        return len(self.score)

    def __getitem__(self, rows: Bool[np.ndarray, " rows"]) -> "ConformalScores":
        return ConformalScores(self.score[rows], self.weight[rows], self.fold[rows])

    def interval(
        self,
        mean: Float[np.ndarray, "models new outputs"],
        std: Float[np.ndarray, "models new outputs"],
        coverage: float = 0.9,
    ) -> Float[np.ndarray, "new outputs 2"]:
        """Intervals of new rows from the predictions of all models: last axis lower, upper."""
        bounds = np.empty((*mean.shape[1:], 2))
        for output, scores in enumerate(self.score.T):
            own = [self.fold == k for k in range(len(mean))]
            of_models = [ranked(scores[rows], self.weight[rows]) for rows in own]
            for first in range(0, mean.shape[1], ROWS_AT_ONCE):
                rows = slice(first, first + ROWS_AT_ONCE)
                center, spread = mean[:, rows, output], std[:, rows, output]
                ends = [
                    -upper_bound(-center, spread, of_models, coverage),
                    upper_bound(center, spread, of_models, coverage),
                ]
                # With a small coverage, models that disagree may swap the ends.
                bounds[rows, output] = np.sort(np.stack(ends, axis=-1), axis=-1)
        return bounds


Ranked = tuple[np.ndarray, np.ndarray]
"""Scores in ascending order, and their cumulative weights, starting with 0."""


def ranked(score: np.ndarray, weight: np.ndarray) -> Ranked:
    order = np.argsort(score, kind="stable")
    order = order[weight[order] > 0]
    return score[order], np.concatenate([[0.0], np.cumsum(weight[order])])


def upper_bound(
    mean: Float[np.ndarray, "models new"],
    std: Float[np.ndarray, "models new"],
    of_models: list[Ranked],
    coverage: float,
) -> Float[np.ndarray, " new"]:
    """Conformal quantile of each model's mean plus its scores times its std, by bisection."""
    coverage = check_number("coverage", coverage, above=0.0, below=1.0)
    n_rows = sum(len(score) for score, _ in of_models)
    total = sum(weights[-1] for _, weights in of_models)
    needed = coverage * (1 - ROUNDING) * (total + total / max(n_rows, 1))
    if not n_rows or needed > total:
        return np.full(mean.shape[1], np.inf)
    known = [(m, s, *own) for m, s, own in zip(mean, std, of_models, strict=True) if len(own[0])]
    alone = []
    for center, spread, score, weights in known:
        position = np.searchsorted(weights[1:], needed / total * weights[-1])
        quantile = np.append(score, np.inf)[position]
        with np.errstate(invalid="ignore"):
            is_infinite = np.isinf(spread) | np.isinf(quantile)
            alone.append(center + np.where(is_infinite, np.inf, quantile * spread))
    low, high = np.min(alone, axis=0), np.max(alone, axis=0)
    low = np.where(np.isinf(high), high, low)  # infinite if that of a single model is
    precision = ROUNDING * np.maximum(np.abs(low), np.abs(high))
    for _ in range(MOST_HALVINGS):
        is_open = low + precision < high
        if not is_open.any():
            break
        middle = np.where(is_open, low / 2 + high / 2, high)
        below = sum(
            weights[np.searchsorted(score, over(middle - center, spread), side="right")]
            for center, spread, score, weights in known
        )
        high = np.where(is_open & (below >= needed), middle, high)
        low = np.where(is_open & (below < needed), middle, low)
    return high


def over(error: np.ndarray, std: np.ndarray) -> np.ndarray:
    """``error / std``, 0 for an error of 0 even if the standard deviation is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, error / std)


@final
class ConformalRegressor(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """Intervals with guaranteed coverage around any regressor.

    The width of intervals, in units of the predicted standard deviation, follows from the errors
    on calibration rows that were not used for training; without a predicted standard deviation all
    intervals have the same width. If calibration rows and new rows are exchangeable, an interval
    contains a new y with a probability of at least its coverage, for any data and any regressor:
    on average over all rows, or over those of a group, not for every x.

    - By default, some rows are set aside (split conformal prediction).
    - ``cv=5`` trains one clone per fold on the other folds (CV+), so that all rows are used both
      for training and for calibration. The guaranteed coverage is 1 - 2α for a nominal 1 - α, less
      about √(2/n); in practice it is about 1 - α.
    - ``cv="prefit"`` uses a fitted regressor; `fit` takes rows that it was not trained on.

    Parameters
    ----------
    estimator : regressor
        Any regressor. Widths are proportional to the standard deviation of ``predict(X,
        return_std=True)`` if it is supported, as by the regressors of sigmax, ``BayesianRidge`` and
        ``GaussianProcessRegressor``.
    cv : None, int, splitter or "prefit", default None
        None sets `calibration_fraction` of the rows aside; an int is the number of shuffled folds;
        a splitter or a list of splits must hold out every row at most once.
    calibration_fraction : float, default 0.2
        Share of the rows that are set aside without `cv`.
    random_state : int, RandomState or None
        Seed of the split, or of the shuffled folds.

    Examples
    --------
    >>> from sklearn.linear_model import BayesianRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 1, (2000, 1))
    >>> y = X[:, 0] + rng.standard_t(2, 2000)
    >>> model = ConformalRegressor(BayesianRidge(), random_state=0).fit(X[:1000], y[:1000])
    >>> lower, upper = model.predict_interval(X[1000:], coverage=0.9).T
    >>> round(float(np.mean((lower <= y[1000:]) & (y[1000:] <= upper))), 2)
    0.9
    """

    estimators_: list[Any]  # fitted clones
    scores_: ConformalScores
    groups_: NDArray[Any] | None  # group of each calibration row, if groups were given
    is_single_output_: bool

    def __init__(self, estimator, *, cv=None, calibration_fraction=0.2, random_state=None):
        self.estimator = estimator
        self.cv = cv
        self.calibration_fraction = calibration_fraction
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None, groups=None) -> "ConformalRegressor":
        """Fit to rows ``X`` (n, d) and targets ``y`` (n,) or (n, p).

        Parameters
        ----------
        X : array-like of shape (n, d)
            Array or data frame; the regressor gets rows of the same type.
        y : array-like of shape (n,) or (n, p)
        sample_weight : array-like of shape (n,), optional
            Weight of each row, for training and for calibration.
        groups : array-like of shape (n,), optional
            Group of each row, so that `predict_interval` can guarantee the coverage of each group.
        """
        fraction = self.calibration_fraction
        check_number("calibration_fraction", fraction, above=0.0, below=1.0)
        if y is None:
            raise InvalidDataError("`fit` requires y to be passed, but the target y is None.")
        X, y = indexable(X, y)
        given = check_array(y, dtype="float64", ensure_2d=False, input_name="y")
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        labels = None if groups is None else check_groups(groups, len(given))
        folds = self._folds(X, y, len(given))
        is_prefit = isinstance(self.cv, str)
        models: list[Any] = [self.estimator if is_prefit else clone(self.estimator) for _ in folds]
        for model, (rows, _) in zip(models, folds, strict=True):
            if is_prefit:
                check_is_fitted(model)
                continue
            own = {} if weight is None else {"sample_weight": weight[rows]}
            model.fit(_safe_indexing(X, rows), _safe_indexing(y, rows), **own)
        self.estimators_ = models
        mean, std = np.empty_like(given), np.empty_like(given)
        for model, (_, held_out) in zip(self.estimators_, folds, strict=True):
            found = moments(model, _safe_indexing(X, held_out), given.shape[1:])
            mean[held_out], std[held_out] = found
        rows = np.concatenate([held_out for _, held_out in folds])
        number = np.repeat(np.arange(len(folds)), [len(held_out) for _, held_out in folds])
        y, mean, std = (part[rows].reshape(len(rows), -1) for part in (given, mean, std))
        weight = None if weight is None else weight[rows]
        self.scores_ = ConformalScores.create(y, mean, std, weight, number)
        self.groups_ = None if labels is None else labels[rows]
        self.is_single_output_ = given.ndim == 1
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimators_[0], name):
                setattr(self, name, getattr(self.estimators_[0], name))
        return self

    def predict(self, X, return_std: bool = False) -> Any:
        """Predicted mean and, on request, standard deviation; for folds, those of the mixture.

        The standard deviation is that of the regressor itself, without calibration.
        """
        mean, std = self._moments(X, needs_std=return_std)
        mean, spread = mean.mean(axis=0), np.sqrt(np.mean(std**2, axis=0) + mean.var(axis=0))
        return (mean, spread) if return_std else mean

    def predict_interval(self, X, coverage: float = 0.9, groups=None) -> NDArray[np.float64]:
        """Intervals that contain y with a probability of ``coverage``: last axis lower, upper.

        They are infinite with too few calibration rows: ⌈(n + 1) coverage⌉ must be at most n.

        Parameters
        ----------
        X : array-like of shape (n, d)
        coverage : float
        groups : array-like of shape (n,), optional
            Group of each row, if `fit` was given groups. Each group is then calibrated on its own
            rows, and the coverage holds in every group. Intervals of a group that is new or too
            small are infinite. Without ``groups`` all calibration rows are used for all rows.
        """
        mean, std = (part.reshape(*part.shape[:2], -1) for part in self._moments(X))
        if groups is None:
            bounds = self.scores_.interval(mean, std, coverage)
        else:
            if self.groups_ is None:
                raise InvalidArgumentError("`groups` can be given only if `fit` was given groups.")
            labels = check_groups(groups, mean.shape[1])
            bounds = np.empty((*mean.shape[1:], 2))
            for label in np.unique(labels):
                rows = labels == label
                own = self.scores_[self.groups_ == label]
                bounds[rows] = own.interval(mean[:, rows], std[:, rows], coverage)
        return bounds[:, 0] if self.is_single_output_ else bounds

    def _folds(self, X, y, n_rows: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Training rows and calibration rows of each clone."""
        if isinstance(self.cv, str):
            if self.cv != "prefit":
                rule = 'None, a number of folds, a splitter or "prefit"'
                raise InvalidArgumentError(f"`cv` must be {rule}, got {self.cv!r}.")
            return [(np.arange(0), np.arange(n_rows))]
        if self.cv is None:
            n_held_out = max(1, round(self.calibration_fraction * n_rows))
            if n_held_out >= n_rows:
                rule = "rows for training and rows for calibration"
                raise InvalidDataError(f"`X` must have {rule}, got n_samples={n_rows}.")
            order = check_random_state(self.random_state).permutation(n_rows)
            return [(order[n_held_out:], order[:n_held_out])]
        cv: Any = self.cv
        if isinstance(cv, Integral):
            n_folds = check_count("cv", cv, minimum=2)
            if n_rows < n_folds:
                rule = f"at least as many rows as folds, {n_folds}"
                raise InvalidDataError(f"`X` must have {rule}, got n_samples={n_rows}.")
            cv = KFold(n_folds, shuffle=True, random_state=self.random_state)
        splitter: Any = check_cv(cv)
        folds = list(splitter.split(X, y))
        if np.bincount(np.concatenate([held_out for _, held_out in folds])).max() > 1:
            raise InvalidArgumentError("`cv` must hold out every row at most once, got repeats.")
        return folds

    def _moments(
        self, X, *, needs_std: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Means and standard deviations of all clones, along a new first axis."""
        check_is_fitted(self)
        outputs = () if self.is_single_output_ else self.scores_.score.shape[1:]
        found = [moments(model, X, outputs, needs_std=needs_std) for model in self.estimators_]
        mean, std = (np.stack(part) for part in zip(*found, strict=True))
        return mean, std


def moments(
    model: Any, X, outputs: tuple[int, ...], *, needs_std: bool = False
) -> tuple[NDArray, NDArray]:
    """Mean and standard deviation of every row and output; 1 if the model predicts none."""
    try:
        found = model.predict(X, return_std=True)
    except TypeError as error:
        if "return_std" not in str(error):
            raise
        found = model.predict(X)
    if not isinstance(found, tuple):
        if needs_std:
            name = type(model).__name__
            raise InvalidArgumentError(f"`return_std`: {name} predicts no standard deviation.")
        found = found, np.ones(np.shape(found))
    mean, std = (np.asarray(part, np.float64) for part in found)
    shape = (len(mean), *outputs)
    if mean.size != math.prod(shape) or std.shape != mean.shape:
        shapes = f"shapes {mean.shape} and {std.shape}"
        raise InvalidDataError(f"`estimator` must predict one number per y, got {shapes}.")
    if np.isnan(mean).any() or not np.all(std >= 0):
        raise InvalidDataError(
            "`estimator` must predict numbers and no negative standard deviation."
        )
    return mean.reshape(shape), std.reshape(shape)


def check_groups(groups: Any, n_rows: int) -> NDArray[Any]:
    """Labels as an array; an error unless there is one per row."""
    labels = np.asarray(groups)
    if labels.shape != (n_rows,):
        rule = f"one label per row, ({n_rows},)"
        raise InvalidDataError(f"`groups` must be {rule}, got shape {labels.shape}.")
    return labels
