"""Censored targets: a fit by expectation propagation, and the transform of a skewed target."""

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from scipy import special

from sigmax.distributions import ExpertPart, Mixture, PowerTransform
from sigmax.experts.base import AbstractExpert, AbstractFitted
from sigmax.experts.rows import Rows
from sigmax.random import RandomKey

NORMAL_ROUNDS, BEYOND, LEAST_SKEWED = 50, 10.0, 0.02
"""Rounds in which a Normal distribution is fitted to censored targets, the range of targets, in
ranges of their bounds, in which a transform of them goes on, and the gain of log-likelihood per row
from which they are transformed: that of a skewness of ½."""

CENSORED_ROUNDS, LEAST_LEARNED = 5, 1e-6
"""Rounds of expectation propagation, and the share of variance that a censored target explains."""


def fit_censored(
    expert: AbstractExpert, rows: Rows, bounds: Float[np.ndarray, "rows 2"], key: RandomKey
) -> AbstractFitted:
    """Fit to censored targets by expectation propagation (Minka 2001).

    Given the other rows, a target is Normal, and within its bounds a truncated Normal. It is
    replaced by the measurement, with a known error, after which it would have the mean and the
    variance of the latter; the next fit gives another distribution given the other rows.
    """
    is_censored, infinite = bounds[:, 0] < bounds[:, 1], np.full(1, np.inf)
    low, high = np.where(is_censored, bounds.T, [[-np.inf], [np.inf]])
    mean, variance, fitted = np.zeros(len(rows)), np.ones(len(rows)), cast(Any, None)
    for _ in range(CENSORED_ROUNDS):
        center, left, _ = truncated_moments(mean, variance, low, high)
        error = variance * left / np.maximum(variance - left, LEAST_LEARNED * variance)
        y = mean + (center - mean) * (1 + error / variance)
        y, error = np.where(is_censored, y, rows.y[:, 0]), np.where(is_censored, error, 0.0)
        fitted = expert.fit(replace(rows, y=y[:, None], error=np.sqrt(error)), key)
        found = ExpertPart(cast(Mixture, fitted.held_out.dist)).summary(-infinite, infinite)
        at = fitted.held_out.row
        mean[at], variance[at] = found[0][:, 0], found[1][:, 0]
    return fitted


def censored_transform(bounds: Float[np.ndarray, "rows 2"]) -> PowerTransform | None:
    """Power transform after which targets between bounds are likeliest as Normal variables.

    It goes on beyond the greatest bound, where targets have not been observed.
    """
    is_censored, known = bounds[:, 0] < bounds[:, 1], bounds[np.isfinite(bounds)]
    low, span = known.min(), np.ptp(known)
    ends = np.array([[low], [low + BEYOND * span]])
    origin, best, found = np.array([low - PowerTransform.MARGIN * span - 1e-9]), -np.inf, None
    for power in (1.0, *PowerTransform.POWERS):
        raw = PowerTransform(np.array([power]), origin, ends, np.zeros(1), np.ones(1))
        cells = raw(bounds[..., None])[..., 0].T
        mean, variance = np.mean(cells[0][~is_censored]), np.var(cells[0][~is_censored]) + 1e-9
        log_mass = np.zeros(len(bounds))
        for _ in range(NORMAL_ROUNDS):
            center, left, log_mass = truncated_moments(mean, variance, *cells)
            center, left = np.where(is_censored, (center, left), (cells[0], np.zeros(len(bounds))))
            mean, variance = center.mean(), np.mean(left + (center - center.mean()) ** 2)
        slope = raw.log_slope(bounds[~is_censored, :1]).sum()
        log_density = -0.5 * ((cells[0] - mean) ** 2 / variance + np.log(2 * np.pi * variance))
        score = slope + np.sum(np.where(is_censored, log_mass, log_density))
        score += LEAST_SKEWED * len(bounds) * (power == 1)
        if score > best:
            scaled = replace(raw, mean=np.array([mean]), std=np.array([math.sqrt(variance)]))
            best, found = score, None if power == 1 else scaled
    return found


def truncated_moments(
    mean: Any, variance: Any, low: Float[np.ndarray, " rows"], high: Float[np.ndarray, " rows"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and variance of Normal variables between bounds, and the log-probability of these.

    Examples
    --------
    >>> zero, one = np.zeros(1), np.ones(1)
    >>> mean, variance, _ = truncated_moments(zero, one, zero, np.inf * one)
    >>> bool(np.isclose(mean**2, 2 / np.pi)[0]), bool(np.isclose(variance, 1 - 2 / np.pi)[0])
    (True, True)
    """
    std = np.sqrt(variance)
    a, b = (low - mean) / std, (high - mean) / std
    is_upper = a > 0  # probabilities are precise in the lower tail
    a, b = np.where(is_upper, -b, a), np.where(is_upper, -a, b)
    a, b = np.clip(a, -40, 30), np.clip(b, -30, 40)
    share = np.exp(special.log_ndtr(a) - special.log_ndtr(b))
    log_mass = special.log_ndtr(b) + np.log(np.maximum(1 - share, 1e-300))
    at_a, at_b = (np.exp(-0.5 * z**2 - log_mass) / math.sqrt(2 * math.pi) for z in (a, b))
    center = at_a - at_b
    spread = 1 + a * at_a - b * at_b - center**2
    is_narrow = b - a < 1e-3  # and uniform
    center, spread = np.where(is_narrow, ((a + b) / 2, (b - a) ** 2 / 12), (center, spread))
    return mean + std * np.where(is_upper, -center, center), variance * spread, log_mass
