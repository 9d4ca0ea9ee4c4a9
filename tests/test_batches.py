"""Batches that see redundancy: against brute force."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from sigmax import GPRegressor, LocalRegressor, MeanVarianceRegressor
from sigmax.active_learning import (
    JointUncertainty,
    choose,
    expected_gain,
)
from sigmax.errors import InvalidArgumentError

SMALL = {"preset": "fast", "hidden_sizes": (16,), "n_steps": 100, "random_state": 0}


def joint_information(covariance, noise, rows):
    """ln det of the labels' covariance over that of their noise, halved."""
    rows = list(rows)
    own = covariance[np.ix_(rows, rows)] / np.sqrt(np.outer(noise[rows], noise[rows]))
    return 0.5 * np.linalg.slogdet(np.eye(len(rows)) + own)[1]


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(8, 4))
    return root @ root.T, rng.uniform(0.05, 0.5, 8)


@pytest.fixture(scope="module")
def line():
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.uniform(-3, -1, (60, 2)), rng.uniform(1, 3, (60, 2))])
    return X, np.sin(X[:, 0]) + X[:, 1] + 0.05 * rng.normal(size=120)


@pytest.fixture(scope="module")
def model(line):
    return LocalRegressor(**SMALL).fit(*line)


def test_gains_add_up_to_the_information_of_the_batch(problem):
    covariance, noise = problem
    joint = JointUncertainty.of_matrix(covariance, noise)
    for rows in ([3], [0, 5], [7, 1, 2, 6]):
        gains, left = joint.condition(np.array(rows))
        np.testing.assert_allclose(gains.sum(), joint_information(covariance, noise, rows))
        own = covariance[np.ix_(rows, rows)] + np.diag(noise[rows])
        known = covariance[:, rows] @ np.linalg.solve(own, covariance[rows])
        np.testing.assert_allclose(left[:, 0], np.diag(covariance - known), atol=1e-9)


def test_the_greedy_batch_is_the_greedy_one_and_near_the_best(problem):
    covariance, noise = problem
    found, gains = JointUncertainty.of_matrix(covariance, noise).most_informative(3)
    taken = []
    for _ in range(3):
        others = [row for row in range(8) if row not in taken]
        scores = [joint_information(covariance, noise, [*taken, row]) for row in others]
        taken.append(others[int(np.argmax(scores))])
    assert found.tolist() == taken
    best = max(joint_information(covariance, noise, rows) for rows in permutations(range(8), 3))
    assert gains.sum() >= (1 - 1 / np.e) * best


def test_covariances_of_a_model_are_those_of_its_members(line):
    X, y = line
    model = MeanVarianceRegressor(n_members=3, n_steps=50, random_state=0).fit(X, y)
    joint = JointUncertainty.of_model(model, X[:10])
    dist: Any = model.predict_dist(X[:10])
    means = np.asarray(dist.dist.components.mean)
    expected = np.cov(means.T, bias=True)
    columns = np.stack([joint.column(row)[:, 0] for row in range(10)], axis=1)
    np.testing.assert_allclose(columns, expected, atol=1e-6)
    np.testing.assert_allclose(joint.variance[:, 0], dist.epistemic_variance, rtol=1e-3)
    np.testing.assert_allclose(joint.noise[:, 0], dist.aleatoric_variance, rtol=1e-3)


def test_covariances_of_a_local_model_are_sound_and_see_copies(model):
    rng = np.random.default_rng(2)
    X = np.concatenate(
        [np.repeat(rng.uniform(-1, 1, (1, 2)), 5, axis=0), rng.uniform(-3, 3, (15, 2))]
    )
    joint = JointUncertainty.of_model(model, X)
    columns = np.stack([joint.column(row)[:, 0] for row in range(20)], axis=1)
    np.testing.assert_allclose(columns, columns.T, atol=1e-9)
    assert np.linalg.eigvalsh(columns).min() > -1e-6
    dist = model.predict_dist(X)
    np.testing.assert_allclose(np.diag(columns), dist.epistemic_variance, rtol=1e-3)
    np.testing.assert_allclose(columns[0, :5], columns[0, 0], rtol=1e-6)


def test_copies_of_one_row_are_not_chosen_twice(model):
    rng = np.random.default_rng(3)
    others = rng.uniform(-3, 3, (60, 2))
    wanted = others[choose(model, others, 1, acquisition="epistemic")]
    pool = np.concatenate([np.tile(wanted, (30, 1)), others])
    by_variance = choose(model, pool, 6, acquisition="epistemic")
    found = choose(model, pool, 6, acquisition="joint-information")
    assert np.sum(found < 30) <= 1 and len(set(found)) == 6
    assert np.sum(by_variance < 30) >= 2  # which the single rows' scores do not see


def test_a_model_with_a_covariance_of_its_own_can_be_asked():
    X = np.linspace(0, 10, 8)[:, None]
    gp = GaussianProcessRegressor(RBF(1.0, "fixed"), alpha=1e-2).fit(X[:3], np.sin(X[:3, 0]))
    pool = np.array([[8.0], [8.01], [8.02], [5.0]])
    assert set(choose(gp, pool, 2, acquisition="joint-information")) >= {3}
    with pytest.raises(InvalidArgumentError, match="several members"):
        choose(GPRegressor(average=False).fit(X, X[:, 0]), pool, 2, acquisition="joint-information")


def test_the_expected_gain_is_that_of_the_covariance(model):
    pool = np.random.default_rng(5).uniform(-3, 3, (12, 2))
    joint = JointUncertainty.of_model(model, pool)
    rows = [2, 9]
    covariance = np.stack([joint.column(row)[:, 0] for row in range(12)], axis=1)
    own = covariance[np.ix_(rows, rows)] + np.diag(joint.noise[rows, 0])
    known = np.diag(covariance[:, rows] @ np.linalg.solve(own, covariance[rows]))
    total = np.mean(joint.variance + joint.noise)
    np.testing.assert_allclose(expected_gain(model, pool, rows), known.mean() / total, rtol=1e-6)
