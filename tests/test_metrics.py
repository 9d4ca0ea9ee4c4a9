"""Scores against sums written out by hand."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from sigmax import metrics
from sigmax.distributions import Normal, Predictive
from sigmax.errors import InvalidArgumentError, InvalidDataError

rng = np.random.default_rng(0)
MEAN, STD = rng.normal(size=(40, 2)), rng.uniform(0.5, 2, (40, 2))
Y, WEIGHT = MEAN + 1.3 * STD * rng.normal(size=(40, 2)), rng.uniform(0, 2, 40)
MANY = Predictive(Normal(MEAN, STD))
ONE = Predictive(Normal(MEAN[:, 0], STD[:, 0]))


def brute_force(name: str, mean, std, y) -> float:
    """The score of one observation under one Normal."""
    normal: Any = stats.norm(mean, std)
    lower, upper = normal.ppf(0.05), normal.ppf(0.95)
    if name == "log_likelihood":
        return normal.logpdf(y)
    if name == "crps":
        x = np.linspace(mean - 12 * std, mean + 12 * std, 20_001)
        return np.trapezoid((normal.cdf(x) - (x >= y)) ** 2, x)
    if name == "interval_score":
        return upper - lower + 20 * (lower - y) * (y < lower) + 20 * (y - upper) * (y > upper)
    if name == "coverage":
        return float(lower <= y <= upper)
    if name == "interval_width":
        return upper - lower
    return (y - mean) ** 2  # rmse


@pytest.mark.parametrize(
    "name", ["log_likelihood", "crps", "interval_score", "coverage", "interval_width", "rmse"]
)
def test_every_score_is_its_brute_force_mean(name):
    scores = np.vectorize(lambda *one: brute_force(name, *one))(MEAN, STD, Y)
    root = np.sqrt if name == "rmse" else np.asarray
    n_summed = 2 if name == "log_likelihood" else 1
    metric = getattr(metrics, name)
    assert metric(Y[:, 0], ONE) == pytest.approx(root(scores[:, 0].mean()), rel=1e-3)
    assert metric(Y, MANY) == pytest.approx(root(n_summed * scores.mean()), rel=1e-3)
    expected = n_summed * np.average(scores.mean(axis=1), weights=WEIGHT)
    assert metric(Y, MANY, sample_weight=WEIGHT) == pytest.approx(root(expected), rel=1e-3)


@pytest.mark.parametrize("outputs", [0, slice(None)])
def test_a_weight_of_two_duplicates_the_row_and_one_of_zero_drops_it(outputs):
    y, dist = Y[:, outputs], MANY if outputs != 0 else ONE
    weight = np.ones(40)
    weight[:3], weight[7] = 0, 2
    rows = np.r_[np.arange(3, 40), 7]
    twice = metrics.evaluate(y[rows], dist[rows], level=0.8)
    weighted = metrics.evaluate(y, dist, level=0.8, sample_weight=weight)
    once = metrics.evaluate(y, dist, level=0.8)
    assert set(twice) == set(weighted)
    for name, score in twice.items():
        assert weighted[name] == pytest.approx(score, rel=1e-12), name
        assert weighted[name] != pytest.approx(once[name], rel=1e-6), name


def test_calibration_error_compares_coverage_with_its_level():
    levels = np.linspace(0.05, 0.95, 19)
    gaps = [abs(metrics.coverage(Y, MANY, level=level) - level) for level in levels]
    assert metrics.calibration_error(Y, MANY) == pytest.approx(np.mean(gaps), abs=1e-12)


def test_coverage_is_that_of_the_predicted_intervals():
    """A rounded target: closed intervals that end at whole numbers contain more than the level."""
    truth = np.random.default_rng(0).normal(size=2000)
    dist = Predictive(Normal(np.zeros(2000), np.ones(2000)), ends=np.round)
    y = np.round(truth)
    for level in (0.3, 0.5, 0.8):
        lower, upper = dist.interval(level).T
        share = np.mean((lower <= y) & (y <= upper))
        assert metrics.coverage(y, dist, level=level) == share
        assert np.mean(metrics.covering_levels(y, dist, [level]) <= level) == share
    levels = np.linspace(0.05, 0.95, 19)
    gaps = [metrics.coverage(y, dist, level=level) - level for level in levels]
    assert metrics.calibration_error(y, dist) == pytest.approx(np.mean(np.abs(gaps)))


@pytest.mark.parametrize("n_levels", [1, 2, 7, 19])
def test_covering_levels_are_those_of_the_first_interval_that_contains_y(n_levels):
    levels = np.linspace(0.1, 0.97, n_levels)
    centrality = np.abs(2 * metrics.pit(Y, MANY) - 1)
    places = np.searchsorted(levels, centrality)
    expected = np.append(levels, np.inf)[places]
    np.testing.assert_array_equal(metrics.covering_levels(Y, MANY, levels), expected)


def test_the_true_distribution_is_calibrated_and_a_narrow_one_is_not():
    """The error of 4000 true draws is below 0.02 in all but 1 seed of about 1000."""
    y = np.random.default_rng(1).normal(size=4000)
    forecast = lambda std: Predictive(Normal(np.zeros(4000), np.full(4000, std)))  # noqa: E731
    assert metrics.calibration_error(y, forecast(1.0)) < 0.02
    assert metrics.calibration_error(y, forecast(0.5)) > 0.15
    assert stats.kstest(metrics.pit(y, forecast(1.0)), "uniform").pvalue > 1e-3


def test_evaluate_returns_every_score():
    scores = metrics.evaluate(Y, MANY, level=0.8, sample_weight=WEIGHT)
    others = {"evaluate", "pit", "pit_histogram", "covering_levels", "energy_score"}
    others |= {"censored_log_likelihood", "threshold_crps"}
    assert set(scores) == set(metrics.__all__) - others
    assert all(type(score) is float for score in scores.values())
    weighted = {"sample_weight": WEIGHT}
    assert scores["coverage"] == metrics.coverage(Y, MANY, level=0.8, **weighted)
    assert scores["interval_width"] == metrics.interval_width(Y, MANY, coverage=0.8, **weighted)
    assert scores["calibration_error"] == metrics.calibration_error(Y, MANY, **weighted)
    assert scores["crps"] == metrics.crps(Y, MANY, **weighted)


def test_anything_with_the_methods_of_a_prediction_can_be_scored():
    class Always:
        shape = (3,)
        log_prob = staticmethod(lambda y: np.full(3, -1.5))

        def __len__(self):
            return 3

    assert metrics.log_likelihood(np.zeros(3), Always()) == -1.5


def test_invalid_arguments_raise_an_error_with_the_reason():
    with pytest.raises(InvalidDataError, match=r"`y` must have .* \(40, 2\), got shape \(40,\)"):
        metrics.rmse(Y[:, 0], MANY)
    with pytest.raises(InvalidDataError, match="`y` must be finite"):
        metrics.crps(np.full((40, 2), np.nan), MANY)
    with pytest.raises(InvalidDataError, match=r"`sample_weight` must be one weight per row"):
        metrics.crps(Y, MANY, sample_weight=np.ones(39))
    for weight in (np.zeros(40), -np.ones(40), np.full(40, np.nan)):
        with pytest.raises(InvalidDataError, match="`sample_weight` must be finite, at least 0"):
            metrics.crps(Y, MANY, sample_weight=weight)
    with pytest.raises(InvalidArgumentError, match="`level` must be"):
        metrics.coverage(Y, MANY, level=1.5)
    with pytest.raises(InvalidArgumentError, match="`coverage` must be"):
        metrics.interval_score(Y, MANY, coverage=0.0)
