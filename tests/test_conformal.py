"""Conformal intervals, against sorted lists, all pairs of rows, and new rows of known data."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigmax.calibration import ConformalScores
from sigmax.errors import InvalidArgumentError

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 2))
Y = X[:, 0] + 0.3 * rng.normal(size=200)


def conformal_quantile(scores, coverage, weight=None) -> float:
    """Half width of the interval around 0 of a row with a standard deviation of 1."""
    score = np.asarray(scores, np.float64)[:, None]
    weight = np.ones(len(score)) if weight is None else np.asarray(weight, np.float64)
    own = ConformalScores(score, weight, np.zeros(len(score), dtype=np.int64))
    return float(own.interval(np.zeros((1, 1, 1)), np.ones((1, 1, 1)), coverage)[0, 0, 1])


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_the_quantile_is_the_score_of_its_rank(scores, coverage):
    rank = math.ceil((len(scores) + 1) * coverage - 1e-9)
    expected = sorted(scores)[rank - 1] if rank <= len(scores) else math.inf
    assert conformal_quantile(scores, coverage) == expected


def test_integer_weights_repeat_a_score():
    scores, weight = rng.exponential(size=50), rng.integers(0, 4, 50)
    order = np.argsort(scores)
    total = np.cumsum(weight[order])
    needed = 0.8 * (total[-1] + weight[weight > 0].mean())
    expected = scores[order][np.flatnonzero(total >= needed)[0]]
    assert conformal_quantile(scores, 0.8, weight) == expected
    assert conformal_quantile(scores, 0.8, np.full(50, 7.0)) == conformal_quantile(scores, 0.8)


def test_too_few_scores_give_an_infinite_quantile():
    assert conformal_quantile(np.ones(8), 0.9) == math.inf
    assert conformal_quantile(np.ones(9), 0.9) == 1
    assert conformal_quantile([], 0.5) == math.inf


def test_a_coverage_out_of_range_raises_an_error():
    with pytest.raises(InvalidArgumentError, match="`coverage` must be"):
        conformal_quantile([1.0, 2.0], 1.0)


@pytest.mark.parametrize("n_folds", [1, 2, 5])
@pytest.mark.parametrize("coverage", [0.1, 0.5, 0.9])
def test_intervals_of_several_models_are_quantiles_over_all_rows(n_folds, coverage):
    """Definition of CV+, with the matrix of all calibration and new rows that ours avoids."""
    n, m = 43, 7
    score, fold = rng.exponential(size=n), rng.permutation(np.arange(n) % n_folds)
    mean, std = rng.normal(size=(n_folds, m)), rng.uniform(0.2, 2, (n_folds, m))
    lower = np.sort(mean[fold] - score[:, None] * std[fold], axis=0)
    upper = np.sort(mean[fold] + score[:, None] * std[fold], axis=0)
    rank = math.ceil((n + 1) * coverage - 1e-9)
    expected = np.sort(np.stack([lower[n - rank], upper[rank - 1]], axis=-1), axis=-1)
    scores = ConformalScores(score[:, None], np.ones(n), fold)
    found = scores.interval(mean[..., None], std[..., None], coverage)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-10)


def test_a_standard_deviation_of_zero_gives_an_interval_of_zero_width():
    scores = ConformalScores.create(Y[:, None], np.zeros((200, 1)), np.ones((200, 1)))
    mean = np.full((1, 2, 1), 3.0)
    std = np.array([0.0, math.inf]).reshape(1, 2, 1)
    expected = [[3.0, 3.0], [-math.inf, math.inf]]
    np.testing.assert_array_equal(scores.interval(mean, std, 0.9)[:, 0], expected)
    known = ConformalScores.create(np.ones((2, 1)), np.array([[1.0], [0.0]]), np.zeros((2, 1)))
    np.testing.assert_array_equal(known.score[:, 0], [0.0, math.inf])


def test_memory_grows_with_rows_and_not_with_pairs_of_them():
    n = 20_000  # all pairs would be 3 GB
    scores = ConformalScores(rng.exponential(size=(n, 1)), np.ones(n), np.arange(n) % 3)
    mean, std = rng.normal(size=(3, n, 1)), rng.uniform(1, 2, (3, n, 1))
    tracemalloc.start()
    scores.interval(mean, std, 0.9)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30e6


NOISES = {
    "heteroscedastic": lambda x, rng: (0.1 + x) * rng.normal(size=x.shape),
    "heavy tails": lambda x, rng: rng.standard_t(1.5, size=x.shape),
    "skewed": lambda x, rng: rng.exponential(1 + x),
}


@pytest.mark.parametrize("noise", NOISES)
def test_forty_calibration_rows_give_the_nominal_coverage(noise):
    """Whatever the model: this one is wrong about mean and spread.

    The coverage of one calibration is Beta(37, 4), with mean 37 / 41 and standard deviation 0.046;
    the mean of 200 is farther than 0.015 from it in less than one seed of 10,000.
    """
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 1, (200, 240, 1))
    covered = []
    for mean, y in zip(x, np.sin(3 * x) + NOISES[noise](x, rng), strict=True):
        std = 0.3 + mean**2
        scores = ConformalScores.create(y[:40], mean[:40], std[:40])
        lower, upper = scores.interval(mean[None, 40:], std[None, 40:], 0.9)[:, 0].T
        covered.append(np.mean((lower <= y[40:, 0]) & (y[40:, 0] <= upper)))
    assert np.mean(covered) == pytest.approx(37 / 41, abs=0.015)
