"""Targets that repeat: counts, and zeros among other values.

Of 600 rows; 2,000 new ones, of which a share of 0.9 has a standard error of 0.007.
"""

import numpy as np
import pytest

from sigmax import LocalRegressor

N, N_NEW = 600, 2000


def poisson(rate, rng):
    return rng.poisson(rate).astype(float)


def negative_binomial(rate, rng):
    return rng.poisson(rng.gamma(1.5, rate / 1.5)).astype(float)


def zero_inflated(rate, rng):
    return np.where(rng.uniform(size=len(rate)) < 0.5, 0.0, rng.exponential(rate))


KINDS = {kind.__name__: kind for kind in (poisson, negative_binomial, zero_inflated)}


@pytest.fixture(scope="module")
def case(request, optimized):
    """The prediction at new rows, and what they turned out to be."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (N + N_NEW, 2))
    y = KINDS[request.param](np.exp(1 + 0.5 * X[:, 0]), rng)
    model = LocalRegressor("fast", random_state=0).fit(X[:N], y[:N])
    return model.predict_dist(X[N:]), y[N:], model.model_.target.repeated[0]


every_kind = pytest.mark.parametrize("case", KINDS, indirect=True)


def share_inside(case, coverage: float) -> float:
    dist, y, _ = case
    lower, upper = dist.interval(coverage).T
    return float(np.mean((lower <= y) & (y <= upper)))


@every_kind
def test_wide_intervals_hold_what_they_say(case):
    assert share_inside(case, 0.9) >= 0.87


@every_kind
def test_narrow_intervals_hold_what_they_say(case):
    assert share_inside(case, 0.5) >= 0.5


@every_kind
def test_ends_of_intervals_are_observed_values(case):
    dist, _, repeated = case
    ends = dist.interval(0.5)
    if repeated.is_rounded:
        known = np.round(repeated.values[:, 0])
        first_gap = np.setdiff1d(np.arange(known.max() + 2), known).min()
        is_inner = ends <= first_gap - 0.5  # between distant values, ends stay
        np.testing.assert_array_equal(ends[is_inner], np.round(ends[is_inner]))
    else:  # none just beside the zeros
        assert not np.any((ends[:, 0] > 0) & (ends[:, 0] < repeated.half_cells()[0]))


@every_kind
def test_no_interval_has_negative_values(case):
    dist, _, _ = case
    assert dist.interval(0.99).min() >= 0 and np.all(dist.cdf(-1e-6) == 0)


@every_kind
def test_intervals_are_not_wider_than_those_of_all_targets(case):
    dist, y, _ = case
    width = np.diff(dist.interval(0.9), axis=1)[:, 0]
    assert width.mean() < 1.2 * (np.quantile(y, 0.95) - np.quantile(y, 0.05))
