"""Scores of predictive distributions: ``metric(y, dist)`` is one number.

``dist`` is a ``Predictive``, or an object with the same methods. For y of shape (n, p) every score
is the mean over rows and outputs, except ``log_likelihood``: the outputs of a row are one
observation, whose log-density is the sum of theirs. ``sample_weight`` has one weight per row.
"""

import numpy as np

from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.settings import check_count, check_number

__all__ = [
    "calibration_error",
    "censored_log_likelihood",
    "coverage",
    "covering_levels",
    "crps",
    "energy_score",
    "evaluate",
    "interval_score",
    "interval_width",
    "log_likelihood",
    "pit",
    "pit_histogram",
    "rmse",
    "threshold_crps",
]

LEVELS = np.linspace(0.05, 0.95, 19)
FLAGS = ("no", "above", "below")
CENSORED_NODES = 32
"""Nodes of the Gauss rule on the levels up to a bound."""


def log_likelihood(y, dist, *, sample_weight=None) -> float:
    """Compute the mean log-density of the targets; higher is better.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, p)
        Targets. The log-densities of the outputs of a row are added.
    dist : Predictive
        Predictions of the same shape.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    float

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> dist = Predictive(Normal(np.array([0.0, 1.0]), np.array([1.0, 1.0])))
    >>> round(log_likelihood([0.0, 1.0], dist), 4)
    -0.9189
    """
    per_row = dist.log_prob(_like(y, dist)).reshape(len(dist), -1).sum(axis=1)
    return _mean(per_row, sample_weight)


def crps(y, dist, *, sample_weight=None) -> float:
    """Compute the mean continuous ranked probability score; lower is better.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, p)
    dist : Predictive
        Predictions of the same shape.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    float
        In the units of y.

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> dist = Predictive(Normal(np.zeros(2), np.ones(2)))
    >>> round(crps([0.0, 0.0], dist), 3)
    0.234
    """
    return _mean(dist.crps(_like(y, dist)), sample_weight)


def energy_score(
    y, dist, *, n_samples: int = 200, random_state: int = 0, sample_weight=None
) -> float:
    r"""Compute the mean energy score, which scores the outputs of a row together; lower is better.

    The score is $E\|Y - y\| - \tfrac12 E\|Y - Y'\|$ with independent draws $Y$ and $Y'$ of the
    prediction. For one output it is the CRPS. Unlike the mean CRPS of the outputs, it is better if
    the dependence between them is right. Convert the outputs to comparable units first.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, p)
    dist : Predictive
        Predictions of the same shape.
    n_samples : int
        Number of pairs of draws.
    random_state : int
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    float

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> dist = Predictive(Normal(np.zeros((500, 2)), np.ones((500, 2))))
    >>> round(energy_score(np.zeros((500, 2)), dist), 1)  # √(π / 2) (1 - 1 / √2)
    0.4
    """
    y, n_samples = _like(y, dist), check_count("n_samples", n_samples)
    draws = dist.sample(2 * n_samples, random_state=random_state)
    if y.ndim == 1:
        y, draws = y[:, None], draws[..., None]
    first, second = draws[:n_samples], draws[n_samples:]
    errors = np.linalg.norm(draws - y, axis=-1).mean(axis=0)
    distances = np.linalg.norm(first - second, axis=-1).mean(axis=0)
    return _mean(errors - distances / 2, sample_weight)


def censored_log_likelihood(y, dist, censoring, *, sample_weight=None) -> float:
    """Compute the mean log-likelihood of censored targets; higher is better.

    It is the log-density of observed targets, and the log-probability between the bounds of the
    others.

    Parameters
    ----------
    y : array-like of shape (n,)
    dist : Predictive
        Predictions of the same shape.
    censoring
        As in `SigmaxRegressor.fit`.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    float

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> dist = Predictive(Normal(np.zeros(2), np.ones(2)))
    >>> round(censored_log_likelihood([0.0, 0.0], dist, ["no", "above"]), 4)  # log φ(0), log ½
    -0.806
    """
    low, high = censoring_bounds(_like(y, dist), censoring).T
    known, is_cell = np.where(np.isfinite(low), low, high), high > low
    known = np.where(np.isfinite(known), known, 0.0)
    below = np.where(np.isfinite(low), dist.cdf(known), 0.0)
    upto = np.where(np.isfinite(high), dist.cdf(np.where(np.isfinite(high), high, known)), 1.0)
    mass = np.log(np.maximum(upto - below, 1e-300))
    return _mean(np.where(is_cell, mass, dist.log_prob(known)), sample_weight)


def threshold_crps(y, dist, upto, *, sample_weight=None) -> float:
    r"""Compute the mean CRPS of targets that are observed up to a bound; lower is better.

    It is $\int_{-\infty}^u (F(t) - 1[y \le t])^2 dt$, the integral of the Brier score up to the
    bound u. A target that is censored at u has y = u. The bound must be known for all rows,
    including observed ones: with the bounds of censored rows alone, the score does not prefer the
    truth.

    Parameters
    ----------
    y : array-like of shape (n,)
    dist : Predictive
        Predictions of the same shape.
    upto : float or array-like of shape (n,)
        Bound, such as the end of the study.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    float
        In the units of y.

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> dist = Predictive(Normal(np.zeros(2), np.ones(2)))
    >>> [round(threshold_crps([0.0, 0.0], dist, upto), 3) for upto in (0.0, np.inf)]
    [0.117, 0.234]
    """
    y, infinite = _like(y, dist), np.full(dist.shape, np.inf)
    upto = np.broadcast_to(np.asarray(upto, np.float64), dist.shape)
    if np.isnan(upto).any():
        raise InvalidArgumentError("`upto` must be numbers, which may be infinite, got NaN.")
    y = np.minimum(y, upto)
    above = crps_of_cells(-infinite, y, dist) - crps_of_cells(-infinite, upto, dist)
    return _mean(crps_of_cells(y, infinite, dist) + above, sample_weight)


def crps_of_cells(low: np.ndarray, high: np.ndarray, dist) -> np.ndarray:
    """Integral of F² up to ``low`` and of (1 - F)² from ``high``, over the levels of quantiles."""
    nodes, weights = np.polynomial.legendre.leggauss(CENSORED_NODES)
    total = np.zeros(low.shape)
    for sign, end in ((1, low), (-1, high)):
        is_finite = np.isfinite(end)
        at = np.where(is_finite, end, dist.mean)
        mass = dist.cdf(at) if sign == 1 else 1 - dist.cdf(at)
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            level = np.clip(node * mass, 1e-12, 1 - 1e-12)
            value = dist.inverse_cdf(level if sign == 1 else 1 - level)
            total += is_finite * weight * mass * 2 * level * sign * (at - value)
    return np.maximum(total, 0.0)


def censoring_bounds(y, censoring) -> np.ndarray:
    """Bounds (n, 2) of the possible values of targets, equal if they are observed."""
    y = np.asarray(y, np.float64)
    if y.ndim != 1:
        raise InvalidArgumentError("`censoring` needs a single target: fit one model per output.")
    if isinstance(censoring, tuple):
        rule = f"flags or a pair (low, high) of {len(y):,} numbers each with low <= y <= high"
        try:
            low, high = (np.asarray(end, np.float64) for end in censoring)
        except (TypeError, ValueError):
            raise InvalidArgumentError(f"`censoring` must be {rule}, got {censoring!r}.") from None
        if low.shape != y.shape or high.shape != y.shape:
            found = f"shapes {low.shape} and {high.shape}"
            raise InvalidArgumentError(f"`censoring` must be {rule}, got {found}.")
        if (is_bad := ~((low <= y) & (y <= high))).any():
            at = int(np.argmax(is_bad))
            found = f"{low[at]:g}, {y[at]:g}, {high[at]:g} in row {at + 1}"
            raise InvalidArgumentError(f"`censoring` must be {rule}, got {found}.")
        return np.stack([low, high], axis=1)
    flags = np.array(censoring, dtype=object)
    unknown = [f"shape {flags.shape}"]
    if flags.shape == y.shape:
        flags[[flag is None for flag in flags]] = "no"
        unknown = [repr(one) for one in flags if not (isinstance(one, str) and one in FLAGS)]
    if unknown:
        rule = (
            f'a tuple (low, high), or one of "no", "above" and "below" for each of the {len(y):,}'
        )
        raise InvalidArgumentError(f"`censoring` must be {rule} rows, got {unknown[0]}.")
    low, high = np.where(flags == "below", -np.inf, y), np.where(flags == "above", np.inf, y)
    return np.stack([low, high], axis=1)


def interval_score(y, dist, *, coverage: float = 0.9, sample_weight=None) -> float:
    r"""Compute the mean Winkler score of the central interval; lower is better.

    The score is the width plus a penalty for each miss,
    $(u - l) + \frac{2}{1 - c} \max(l - y, 0, y - u)$.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, p)
    dist : Predictive
        Predictions of the same shape.
    coverage : float
        Nominal coverage c of the interval.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    float
        In the units of y.

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> dist = Predictive(Normal(np.zeros(2), np.ones(2)))
    >>> round(interval_score([0.0, 2.0], dist, coverage=0.9), 2)
    6.84
    """
    y, bounds = _like(y, dist), dist.interval(coverage)
    lower, upper = bounds[..., 0], bounds[..., 1]
    miss = np.maximum(np.maximum(lower - y, y - upper), 0)
    return _mean(upper - lower + 2 / (1 - coverage) * miss, sample_weight)


def coverage(y, dist, *, level: float = 0.9, sample_weight=None) -> float:
    """Compute the share of targets inside their central interval; best if equal to ``level``.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, p)
    dist : Predictive
        Predictions of the same shape. Intervals of rounded targets end at observed values.
    level : float
        Nominal coverage.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    float

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> coverage([0.0, 2.0], Predictive(Normal(np.zeros(2), np.ones(2))))
    0.5
    """
    level = check_number("level", level, above=0.0, below=1.0)
    return _mean(_is_inside(_like(y, dist), dist.interval(level)), sample_weight)


def covering_levels(y, dist, levels) -> np.ndarray:
    """Find the smallest level whose central interval contains each target.

    Intervals of larger levels contain those of smaller ones, so only few of them are computed: some
    about the level that the cdf suggests and, where it is another one, others by bisection.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, p)
    dist : Predictive
        Predictions of the same shape.
    levels : sequence of float
        Nominal coverages, increasing.

    Returns
    -------
    array of the shape of ``y``
        Infinite if no interval contains the target.

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> dist = Predictive(Normal(np.zeros(3), np.ones(3)))
    >>> covering_levels([0.1, -1.0, 9.0], dist, [0.5, 0.9])
    array([0.5, 0.9, inf])
    """
    y, levels = _like(y, dist), np.asarray(levels, np.float64)
    first, last = np.zeros(y.shape, np.intp), np.full(y.shape, len(levels))
    below = dist.cdf(y) - dist.probability_of(y)
    suggested = np.searchsorted(levels, np.maximum(1 - 2 * dist.cdf(y), 2 * below - 1))
    for step in range(2 + len(levels).bit_length()):
        if np.all(first == last):
            break
        middle = (first + last) // 2
        if step < 2:  # at first the level itself, then the one before
            middle = np.minimum(suggested - step, last - 1).clip(first)
        level = levels[np.minimum(middle, len(levels) - 1)]
        ends = [dist.inverse_cdf((1 - level) / 2), dist.inverse_cdf((1 + level) / 2)]
        is_inside = _is_inside(y, dist.to_values(np.stack(ends, axis=-1))) | (first == last)
        first, last = np.where(is_inside, first, middle + 1), np.where(is_inside, middle, last)
    return np.append(levels, np.inf)[last]


def interval_width(y, dist, *, coverage: float = 0.9, sample_weight=None) -> float:
    """Compute the mean width of the central interval; lower is better at equal coverage.

    Parameters
    ----------
    y
        Ignored.
    dist : Predictive
    coverage : float
        Nominal coverage.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    float
        In the units of y.

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> round(interval_width(None, Predictive(Normal(np.zeros(2), np.ones(2)))), 2)
    3.29
    """
    bounds = dist.interval(coverage)
    return _mean(bounds[..., 1] - bounds[..., 0], sample_weight)


def rmse(y, dist, *, sample_weight=None) -> float:
    """Compute the root mean squared error of the predicted mean; lower is better.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, p)
    dist : Predictive
        Predictions of the same shape.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    float
        In the units of y.

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> rmse([3.0, -3.0], Predictive(Normal(np.zeros(2), np.ones(2))))
    3.0
    """
    return float(np.sqrt(_mean((_like(y, dist) - dist.mean) ** 2, sample_weight)))


def calibration_error(y, dist, *, levels=LEVELS, sample_weight=None) -> float:
    """Compute the mean absolute difference of nominal and observed coverage; best at 0.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, p)
    dist : Predictive
        Predictions of the same shape.
    levels : sequence of float
        Nominal coverages of central intervals.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    float

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> y = np.random.default_rng(0).normal(size=1000)
    >>> narrow = Predictive(Normal(np.zeros(1000), np.full(1000, 0.5)))
    >>> round(calibration_error(y, narrow, levels=[0.9]), 2)  # 61 % in the 90 % intervals
    0.29
    """
    levels = np.asarray([check_number("levels", level, above=0.0, below=1.0) for level in levels])
    found = covering_levels(y, dist, np.sort(levels))
    observed = [_mean(found <= level, sample_weight) for level in levels]
    return float(np.mean(np.abs(observed - levels)))


def pit(y, dist) -> np.ndarray:
    """Compute the probability integral transform, the predicted cdf at each target.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, p)
    dist : Predictive
        Predictions of the same shape.

    Returns
    -------
    array of the shape of ``y``
        Uniform on (0, 1) if predictions are calibrated.

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> pit([0.0, 1.0], Predictive(Normal(np.zeros(2), np.ones(2)))).round(2)
    array([0.5 , 0.84])
    """
    return dist.cdf(_like(y, dist))


def pit_histogram(y, dist, bins: int = 10) -> np.ndarray:
    """Compute the histogram of the probability integral transform.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, p)
    dist : Predictive
        Predictions of the same shape.
    bins : int

    Returns
    -------
    array of shape (bins,)
        Heights of the bars, all 1 if predictions are calibrated.

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> dist = Predictive(Normal(np.zeros(4), np.ones(4)))
    >>> pit_histogram([-3.0, -0.1, 0.1, 3.0], dist, bins=4)
    array([1., 1., 1., 1.])
    """
    bins = check_count("bins", bins)
    return np.histogram(pit(y, dist), bins, range=(0, 1), density=True)[0]


def evaluate(y, dist, *, level: float = 0.9, sample_weight=None) -> dict[str, float]:
    """Compute the scores of this module by name.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, p)
    dist : Predictive
        Predictions of the same shape.
    level : float
        Nominal coverage of the intervals.
    sample_weight : array-like of shape (n,), optional
        A row of weight 2 counts as two such rows.

    Returns
    -------
    dict of float

    Examples
    --------
    >>> from sigmax.distributions import Normal, Predictive
    >>> dist = Predictive(Normal(np.zeros(3), np.ones(3)))
    >>> scores = evaluate([-1.0, 0.0, 1.0], dist)
    >>> round(scores["rmse"], 3), scores["coverage"]
    (0.816, 1.0)
    """
    return {
        "log_likelihood": log_likelihood(y, dist, sample_weight=sample_weight),
        "crps": crps(y, dist, sample_weight=sample_weight),
        "rmse": rmse(y, dist, sample_weight=sample_weight),
        "interval_score": interval_score(y, dist, coverage=level, sample_weight=sample_weight),
        "interval_width": interval_width(y, dist, coverage=level, sample_weight=sample_weight),
        "coverage": coverage(y, dist, level=level, sample_weight=sample_weight),
        "calibration_error": calibration_error(y, dist, sample_weight=sample_weight),
    }


def _is_inside(y: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    return (bounds[..., 0] <= y) & (y <= bounds[..., 1])


def _like(y, dist) -> np.ndarray:
    """``y`` as an array; an error unless it has one number per density."""
    if np.shape(y) != dist.shape:
        raise InvalidDataError(
            f"`y` must have the prediction's shape {dist.shape}, got shape {np.shape(y)}."
        )
    return np.asarray(y)


def _mean(scores: np.ndarray, sample_weight) -> float:
    """Mean over all scores, with one weight per row."""
    if sample_weight is None:
        return float(np.mean(scores))
    weight = np.asarray(sample_weight, np.float64)
    if weight.shape != scores.shape[:1]:
        rule = f"one weight per row, {scores.shape[:1]}"
        raise InvalidDataError(f"`sample_weight` must be {rule}, got shape {weight.shape}.")
    if not (np.all(np.isfinite(weight)) and np.all(weight >= 0) and np.any(weight > 0)):
        rule = "finite, at least 0 and somewhere above 0"
        raise InvalidDataError(f"`sample_weight` must be {rule}.")
    return float(np.average(scores.reshape(len(scores), -1).mean(axis=1), weights=weight))
