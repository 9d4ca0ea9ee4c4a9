"""Leave-one-out densities in closed form, against fits without the rows."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import BaseEstimator

from sigmax.experts.base import AbstractExpert, HeldOut
from sigmax.experts.gaussian_process import GaussianProcess, SparseGaussianProcess
from sigmax.experts.gaussian_process import expert as gp_expert
from sigmax.experts.gaussian_process.expert import VARIANCE_PRIORS, pad
from sigmax.experts.gaussian_process.inference import (
    GPRows,
    Hyper,
    Inducing,
    predict_latent,
    predict_noise,
    sparse_left_out,
    sparse_posterior,
)
from sigmax.experts.leave_out import LEAST_DF, DuplicateGroups
from sigmax.experts.linear import (
    LEVELS,
    PRIOR_RATE,
    PRIOR_SHAPE,
    Linear,
    Marginal,
    design,
)
from sigmax.experts.matern import JITTER, Covariance, MaternProcess
from sigmax.experts.rows import MOST_SCORED, Rows, TrainingRows
from sigmax.random import make_key

SHORT: dict[str, Any] = {"n_restarts": 1, "max_iter": 15}


def encoded_rows(expert, n=40, *, n_outputs=1, seed=0, n_groups=None) -> Rows:
    """Rows of two numbers and a category, of which ten have one duplicate and one has three.

    With ``n_groups``, rows are also in groups of successive ones.
    """
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    X["kind"] = rng.choice(["x", "y"], n)
    index = np.array([*range(n), *range(10), *[11] * 3])
    X = X.iloc[index]
    y = np.sin(2 * X["a"]) + X["b"] + 0.3 * rng.normal(size=len(X))
    y = np.asarray(y if n_outputs == 1 else np.stack([y, y**2], axis=1))
    weight = rng.uniform(0.5, 2.0, size=len(X))
    given = TrainingRows.read(BaseEstimator(), X.reset_index(drop=True), y, weight)
    if n_groups is not None:
        given = replace(given, group=(index * n_groups // n)[given.indices])
    return Rows.encode(given, expert.target(given))


def conditional(C, y, group, prior=None):
    """Mean, variance or squared scale, and degrees of freedom of some targets given the others.

    ``C`` is the covariance, up to a factor with the inverse-Gamma ``prior`` if there is one.
    """
    others = np.setdiff1d(np.arange(len(y)), group)
    solved = np.linalg.solve(C[np.ix_(others, others)], C[np.ix_(others, group)])
    mean = solved.T @ y[others]
    variance = np.diag(C[np.ix_(group, group)] - C[np.ix_(group, others)] @ solved)
    if prior is None:
        return mean, variance, np.inf
    shape = prior[0] + len(others) / 2
    square = y[others] @ np.linalg.solve(C[np.ix_(others, others)], y[others])
    return mean, variance * (prior[1] + square / 2) / shape, 2 * shape


def members_of(rows: Rows) -> list[np.ndarray]:
    label = rows.given.duplicate_group
    groups = [np.flatnonzero(label == one) for one in range(label.max() + 1)]
    assert rows.given.group is not None or sorted(map(len, groups))[-11:] == [2] * 10 + [4]
    return groups


def kernel(hyper, X) -> np.ndarray:
    """Covariance of the function, written down once more."""
    inverse = np.exp(-np.asarray(hyper.log_length_scale))
    inverse = inverse[list(hyper.groups)] if hyper.groups else inverse
    squared = np.sum((X[:, None] * inverse - X[None] * inverse) ** 2, axis=-1)
    variance, noise = np.exp(hyper.log_variance), np.exp(hyper.log_noise)
    return variance * np.exp(-squared / 2) + hyper.offset * (variance + noise)


@pytest.mark.parametrize(
    ("settings", "prior"),
    [
        ({"average": False}, None),
        ({}, VARIANCE_PRIORS["wide"]),
        ({"noise": "varying", "variance_prior": "sample"}, VARIANCE_PRIORS["sample"]),
    ],
    ids=["maximum", "averaged", "varying noise"],
)
def test_densities_of_an_exact_process_are_conditional_ones(settings, prior):
    expert = GaussianProcess(**SHORT, **settings)
    rows = encoded_rows(expert, n_outputs=2)
    fitted = expert.fit(rows, make_key(0))
    dist: Any = fitted.held_out.dist
    X, weight = fitted.coordinates(rows.X), rows.weight / rows.weight.mean()
    for output in range(2):
        one = jax.tree.map(lambda leaf, at=output: leaf[at], fitted.posterior)
        with jax.enable_x64(True):
            noises = np.asarray(predict_noise(one, X)) / weight
        for draw in (0, len(noises) - 1):
            hyper = jax.tree.map(lambda leaf, at=draw: leaf[at], one.hyper)
            factor = np.exp(hyper.log_variance) + np.exp(hyper.log_noise) if prior else 1.0
            C = (kernel(hyper, X) + np.diag(noises[draw])) / factor
            for group in members_of(rows):
                mean, variance, df = conditional(C, rows.y[:, output], group, prior)
                at = draw, group, output
                scale = dist.components.scale if prior else dist.components.std
                np.testing.assert_allclose(dist.components.mean[at], mean, atol=1e-5)
                np.testing.assert_allclose(scale[at], np.sqrt(variance), rtol=1e-4)
                if prior:
                    np.testing.assert_allclose(dist.components.df[at], df)
                noise = noises[draw, group] / factor
                share = 1 - noise / conditional(C, rows.y[:, output], group)[1]
                np.testing.assert_allclose(dist.epistemic_share[at], share, atol=1e-4)


def test_densities_of_a_sparse_process_are_those_of_a_fit_without_the_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))[[*range(50), *range(8)]]
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=58)
    weight = rng.uniform(0.5, 2, size=58)
    inducing = Inducing(Hyper.create(np.array([0.8, 2.0]), 1.5, 0.1), X[:12] + 0.1, np.ones(12))
    groups = DuplicateGroups.create(np.array([*range(50), *range(8)]))
    with jax.enable_x64(True):
        jitter = np.asarray(1e-10)
        found = sparse_left_out(inducing, pad(GPRows(X, y, weight)), 1e-10, groups)
        for group in range(50):
            own, others = groups.label == group, groups.label != group
            rest = pad(GPRows(X[others], y[others], weight[others]))
            posterior = sparse_posterior(inducing, rest, jitter)
            batched = jax.tree.map(lambda leaf: np.asarray(leaf)[None], posterior)
            mean, latent = predict_latent(batched, X[own])
            np.testing.assert_allclose(found.mean[:, own], mean, atol=1e-7)
            np.testing.assert_allclose(found.latent[:, own], latent, atol=1e-7)
    np.testing.assert_allclose(found.noise[0], 0.1 / weight)
    assert np.all(np.isinf(found.df))


def test_a_sparse_process_holds_out_all_rows(monkeypatch):
    monkeypatch.setattr(gp_expert, "SPARSE_ROWS", 30)
    expert = SparseGaussianProcess(n_inducing=10, average=False, **SHORT)
    rows = encoded_rows(expert, n_outputs=2)
    held_out = expert.fit(rows, make_key(0)).held_out
    assert held_out.dist.shape == (53, 2) and held_out.members.shape == (53, 1)
    errors = np.asarray(held_out.dist.mean)[:, 0] - rows.y[:, 0]
    assert 0.3 < np.mean(errors**2 / np.asarray(held_out.dist.variance)[:, 0]) < 3


@pytest.mark.parametrize(("n_outputs", "n_groups"), [(1, None), (2, None), (1, 20), (2, 5)])
def test_densities_of_a_linear_model_are_those_of_a_fit_without_the_rows(n_outputs, n_groups):
    rows = encoded_rows(Linear(), n_outputs=n_outputs, n_groups=n_groups)
    fitted: Any = Linear().fit(rows, make_key(0))
    dist: Any = fitted.held_out.dist
    found = dist.components
    weight = rows.weight / rows.weight.mean()
    Z = np.column_stack([np.ones(len(rows)), design(rows.X)])
    for output, penalty in enumerate(fitted.penalty):
        penalties = np.diag(np.append(0.0, np.full(Z.shape[1] - 1, penalty)))
        for group in members_of(rows):
            others = np.setdiff1d(np.arange(len(rows)), group)
            A, y, w = Z[others], rows.y[others, output], weight[others]
            precision = A.T @ (w[:, None] * A) + penalties
            beta = np.linalg.solve(precision, A.T @ (w * y))
            loss = np.sum(w * (y - A @ beta) ** 2) + beta @ penalties @ beta
            shape = PRIOR_SHAPE + (len(others) - 1) / 2
            scale = (PRIOR_RATE + loss / 2) / shape
            spread = np.einsum("ij,jk,ik->i", Z[group], np.linalg.inv(precision), Z[group])
            np.testing.assert_allclose(found.mean[0, group, output], Z[group] @ beta, atol=1e-9)
            expected = scale * (spread + 1 / weight[group])
            np.testing.assert_allclose(found.scale[0, group, output] ** 2, expected, rtol=1e-8)
            np.testing.assert_allclose(found.df[0, group, output], 2 * shape)


@pytest.mark.parametrize("n_groups", [None, 8])
def test_densities_of_a_matern_process_are_those_without_the_group(n_groups):
    rows = encoded_rows(MaternProcess(), n_groups=n_groups)
    fitted = MaternProcess(n_search=7).fit(rows, make_key(0))  # more groups: in closed form
    dist: Any = fitted.held_out.dist
    X, weight = np.asarray(rows.X.coordinates), rows.weight / rows.weight.mean()
    noise = np.exp(fitted.theta[0, 1]) * fitted.relative_noise[:, 0] / weight
    C = Covariance(fitted.group)(fitted.theta[0], X, X) + np.diag(noise + JITTER)
    groups = members_of(rows)
    assert max(map(len, groups)) < len(rows) / 2
    for group in groups:
        mean, variance, _ = conditional(C, rows.y[:, 0], group)
        np.testing.assert_allclose(dist.components.mean[0, group, 0], mean, atol=1e-6)
        scale = fitted.factor[0] * np.sqrt(variance - JITTER)
        np.testing.assert_allclose(dist.components.scale[0, group, 0], scale, rtol=1e-5)


def test_quantiles_of_the_marginal_are_those_without_the_group():
    rows = encoded_rows(Marginal(), n=43, n_outputs=2)
    fitted = Marginal().fit(rows, make_key(0))
    dist: Any = fitted.held_out.dist
    for output in range(2):
        for group in members_of(rows):
            others = np.setdiff1d(np.arange(len(rows)), group)
            y, weight = rows.y[others, output], rows.weight[others]
            found = np.quantile(y, LEVELS, weights=weight, method="inverted_cdf")
            for row in group:
                np.testing.assert_array_equal(dist.components.mean[:, row, output], found[:-2])
            least = 0.9 * min((found[-1] - found[-2]) / 1.34, 1.0) * len(others) ** -0.2
            assert dist.components.std[:, group, output].min() == pytest.approx(least)


def fit(expert: AbstractExpert, given: TrainingRows) -> HeldOut:
    """Held-out densities of a fit."""
    return expert.fit(Rows.encode(given, expert.target(given)), make_key(0)).held_out


def test_the_marginal_leaves_out_some_of_many_rows():
    rng = np.random.default_rng(0)
    given = TrainingRows.read(BaseEstimator(), rng.normal(size=(9000, 1)), rng.normal(size=9000))
    held_out = fit(Marginal(), given)
    assert len(held_out) == MOST_SCORED and held_out.row[-1] > 8900
    np.testing.assert_allclose(held_out.y.std(), 1.0, atol=0.05)


@pytest.mark.parametrize("expert", [GaussianProcess(**SHORT), Linear(), Marginal()])
def test_rows_of_one_x_are_left_out_one_by_one(expert):
    """Without them there would be no rows left."""
    y = np.random.default_rng(0).normal(size=12)
    given = TrainingRows.read(BaseEstimator(), np.ones((12, 1)), y)
    held_out = fit(expert, given)
    std = np.sqrt(np.asarray(held_out.dist.variance))
    assert len(held_out) == 12 and np.all(std > 0.5) and np.all(std < 3)


@pytest.mark.parametrize("expert", [GaussianProcess(**SHORT), Linear(), Marginal()])
def test_left_out_densities_of_two_rows_are_finite(expert):
    given = TrainingRows.read(BaseEstimator(), np.array([[0.0], [1.0]]), np.array([3.0, 4.0]))
    held_out = fit(expert, given)
    assert np.all(np.isfinite(held_out.dist.log_prob(held_out.y)))
    assert np.all(np.isfinite(held_out.dist.variance))
    if isinstance(expert, GaussianProcess):
        dist: Any = held_out.dist
        np.testing.assert_allclose(dist.components.df, LEAST_DF)


def test_left_out_densities_are_calibrated():
    """Ranks of 200 rows with Normal noise: a Kolmogorov-Smirnov test fails one seed in 1,000."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=200)
    given = TrainingRows.read(BaseEstimator(), X, y)
    expert = GaussianProcess(average=False, **SHORT)
    held_out = fit(expert, given)
    ranks = np.asarray(held_out.dist.cdf(held_out.y))[:, 0]
    assert stats.kstest(ranks, "uniform").pvalue > 1e-3
