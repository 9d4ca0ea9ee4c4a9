"""Gaussian processes against scikit-learn's, GPJax's, each other and brute force."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.test_util import check_grads
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from threadpoolctl import threadpool_limits

from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.estimators import GPRegressor, SparseGPRegressor
from sigmax.experts.gaussian_process import inference
from sigmax.experts.gaussian_process.expert import pad, with_jitter
from sigmax.experts.gaussian_process.inference import (
    GPRows,
    Hyper,
    Inducing,
    exact_posterior,
    predict_latent,
    sparse_posterior,
)

pytestmark = pytest.mark.usefixtures("optimized")

exact_evidence = jax.jit(inference.exact_evidence)
sparse_evidence = jax.jit(inference.sparse_evidence)

HYPER = Hyper.create(np.array([0.7, 1.3, 2.0]), 1.7, 0.05)
JITTER = np.asarray(1e-10)
SHORT: dict[str, Any] = {"n_restarts": 1, "max_iter": 20, "random_state": 0}
MAXIMISED = [GPRegressor(average=False, **SHORT), SparseGPRegressor(average=False, **SHORT)]
MODELS = [*MAXIMISED, GPRegressor(**SHORT)]
NAMES = ["exact", "sparse", "averaged"]


def make_rows(n=90, seed=0, weight=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=n)
    return GPRows(X, y, np.ones(n) if weight is None else weight)


def predict(posterior, X) -> list[np.ndarray]:
    batched = jax.tree.map(lambda leaf: np.asarray(leaf)[None], posterior)
    return [np.asarray(part)[0] for part in predict_latent(batched, X)]


def squared_exponential(variance, length_scale) -> Any:
    """scikit-learn's."""
    rbf: Any = RBF  # whose stubs know no list of length-scales
    return ConstantKernel(variance) * rbf(length_scale)


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True), threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture
def reference() -> Any:
    """scikit-learn's process with the same hyper-parameters."""
    rows = make_rows()
    kernel = squared_exponential(1.7, [0.7, 1.3, 2.0]) + WhiteKernel(0.05)
    settings: dict[str, Any] = {"optimizer": None, "alpha": 0.0}
    return GaussianProcessRegressor(kernel, **settings).fit(rows.X, rows.y)


def test_evidence_is_scikit_learns_with_and_without_padding(reference):
    expected = reference.log_marginal_likelihood_value_
    assert exact_evidence(HYPER, make_rows(), JITTER) == pytest.approx(expected, abs=1e-6)
    padded = pad(make_rows())
    assert len(padded.y) > 90
    assert exact_evidence(HYPER, padded, JITTER) == pytest.approx(expected, abs=1e-6)


def test_predictions_are_scikit_learns(reference):
    X = make_rows(50, seed=1).X
    mean, variance = predict(exact_posterior(HYPER, pad(make_rows()), JITTER), X)
    expected_mean, expected_std = reference.predict(X, return_std=True)
    np.testing.assert_allclose(mean, expected_mean, atol=1e-6)
    np.testing.assert_allclose(np.sqrt(variance + 0.05), expected_std, atol=1e-6)


def test_an_estimator_that_keeps_its_start_is_scikit_learns_in_units_of_y():
    rows = make_rows()
    X, y = rows.X * np.array([1.0, 50.0, 0.1]), 30 * rows.y + 7
    model = GPRegressor(n_restarts=1, max_iter=0, average=False).fit(X, y)
    kernel = squared_exponential(1.0, np.sqrt(3) * np.ones(3)) + WhiteKernel(0.1)
    settings: dict[str, Any] = {"optimizer": None, "alpha": 0.0, "normalize_y": True}
    expected: Any = GaussianProcessRegressor(kernel, **settings).fit(X / X.std(axis=0), y)
    X_new = X[:20] + 0.1
    mean, std = model.predict(X_new, return_std=True)
    expected_mean, expected_std = expected.predict(X_new / X.std(axis=0), return_std=True)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-5)
    np.testing.assert_allclose(std, expected_std, rtol=1e-5)
    np.testing.assert_allclose(model.length_scale_, np.sqrt(3) * X.std(axis=0))
    parts = model.predict_uncertainty(X_new)
    np.testing.assert_allclose(parts["aleatoric"], np.sqrt(0.1) * y.std())
    np.testing.assert_allclose(parts["epistemic"] ** 2, std**2 - 0.1 * y.var(), rtol=1e-6)
    np.testing.assert_allclose(parts["total"], std)


def test_fitted_hyper_parameters_are_no_worse_than_scikit_learns():
    rows = make_rows()
    kernel = squared_exponential(1.0, np.ones(3)) + WhiteKernel(0.1)
    settings: dict[str, Any] = {"alpha": 0.0, "normalize_y": True}
    expected: Any = GaussianProcessRegressor(kernel, **settings).fit(rows.X, rows.y)
    model = GPRegressor(n_restarts=1, average=False).fit(rows.X, rows.y)
    assert model.log_evidence_[0] >= expected.log_marginal_likelihood_value_ - 1e-2


def test_evidence_and_bound_are_gpjaxs():
    gpx = pytest.importorskip("gpjax", reason="GPJax serves as a reference only")
    rows = make_rows()
    data = gpx.Dataset(X=jax.numpy.asarray(rows.X), y=jax.numpy.asarray(rows.y)[:, None])
    points = rows.X[:20] + 0.1
    with jax.numpy_rank_promotion("allow"):
        scales = jax.numpy.array([0.7, 1.3, 2.0])
        kernel = gpx.kernels.RBF(lengthscale=scales, variance=1.7)
        zero = gpx.mean_functions.Zero()
        prior = gpx.gps.Prior(mean_function=zero, kernel=kernel, jitter=1e-10)
        model = prior * gpx.likelihoods.Gaussian(obs_stddev=0.05**0.5)
        evidence = gpx.objectives.conjugate_mll(model, data)
        family = gpx.variational_families.CollapsedVariationalGaussian(
            model=model, inducing_inputs=jax.numpy.asarray(points)
        )
        bound = gpx.objectives.collapsed_elbo(family, data)
    assert exact_evidence(HYPER, rows, JITTER) == pytest.approx(float(evidence), abs=1e-6)
    inducing = Inducing(HYPER, points, np.ones(20))
    assert sparse_evidence(inducing, pad(rows), JITTER) == pytest.approx(float(bound), abs=1e-6)


@pytest.mark.parametrize("n", [90, 1024])  # one block, and two
def test_gradients_are_those_of_finite_differences(n):
    weight = np.random.default_rng(1).uniform(0.5, 2.0, size=n)
    rows = make_rows(n, weight=weight * (np.arange(n) < n - 7))
    points, live = make_rows(12, seed=2).X, np.r_[np.ones(10), np.zeros(2)]

    def bound(hyper, points):
        return sparse_evidence(Inducing(hyper, points, live), rows, np.asarray(1e-6))

    check_grads(bound, (HYPER, points), order=1, modes=["rev"])
    if n < 100:
        check_grads(lambda h: exact_evidence(h, rows, JITTER), (HYPER,), order=1, modes=["rev"])


def test_with_all_rows_as_points_the_sparse_process_is_exact():
    rows, X = make_rows(), make_rows(40, seed=1).X
    exact = predict(exact_posterior(HYPER, rows, JITTER), X)
    inducing = Inducing(HYPER, rows.X, np.ones(90))
    sparse = predict(sparse_posterior(inducing, rows, np.asarray(1e-8)), X)
    np.testing.assert_allclose(sparse, exact, atol=1e-4)
    kept: dict[str, Any] = {"n_restarts": 1, "max_iter": 0, "average": False}
    exact = GPRegressor(**kept).fit(rows.X, rows.y).predict(X, return_std=True)
    sparse = SparseGPRegressor(**kept).fit(rows.X, rows.y).predict(X, return_std=True)
    np.testing.assert_allclose(sparse, exact, atol=1e-3)


def test_the_bound_stays_below_the_evidence_and_rises_with_points():
    rows = make_rows()
    evidence = float(exact_evidence(HYPER, rows, JITTER))
    bounds = [
        float(sparse_evidence(Inducing(HYPER, rows.X, 1.0 * (np.arange(90) < m)), rows, JITTER))
        for m in (1, 5, 20, 60, 90)
    ]
    assert (np.diff(bounds) > 0).all() and bounds[-1] <= evidence + 1e-6
    assert bounds[-1] == pytest.approx(evidence, abs=1e-3)


def test_the_sparse_posterior_is_that_of_the_textbook():
    rows, X = make_rows(), make_rows(30, seed=1).X
    points = rows.X[:15]
    found = predict(sparse_posterior(Inducing(HYPER, points, np.ones(15)), rows, JITTER), X)
    kernel = squared_exponential(1.7, [0.7, 1.3, 2.0])
    Kuu, Kuf, Kus = (kernel(points, other) for other in (points, rows.X, X))
    inverse = np.linalg.inv(Kuu + Kuf @ Kuf.T / 0.05)
    mean = Kus.T @ inverse @ Kuf @ rows.y / 0.05
    variance = 1.7 - np.einsum("us,uv,vs->s", Kus, np.linalg.inv(Kuu) - inverse, Kus)
    np.testing.assert_allclose(found, [mean, variance], atol=1e-6)


def test_a_row_of_weight_two_is_a_row_twice():
    rows, X = make_rows(60), make_rows(30, seed=1).X
    twice = np.arange(60) < 20
    weighted = GPRows(rows.X, rows.y, 1.0 + twice)
    repeated = jax.tree.map(lambda leaf: np.r_[leaf, leaf[twice]], rows)
    points = make_rows(25, seed=2).X
    inducing = Inducing(HYPER, points, np.ones(25))
    for posterior, model in ((exact_posterior, HYPER), (sparse_posterior, inducing)):
        found = predict(posterior(model, weighted, np.asarray(1e-12)), X)
        expected = predict(posterior(model, repeated, np.asarray(1e-12)), X)
        np.testing.assert_allclose(found, expected, atol=1e-7)


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_only_the_ratio_of_weights_counts(model):
    rows, weight = make_rows(), np.random.default_rng(0).uniform(size=90)
    expected = model.fit(rows.X, rows.y, sample_weight=weight).predict(rows.X)
    found = model.fit(rows.X, rows.y, sample_weight=1000 * weight).predict(rows.X)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert not np.allclose(model.fit(rows.X, rows.y).predict(rows.X), expected, atol=1e-3)


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_every_output_is_a_process_of_its_own(model):
    rows = make_rows()
    Y = np.stack([rows.y, 5 * np.random.default_rng(3).normal(size=90)], axis=1)
    mean, std = model.fit(rows.X, Y).predict(rows.X[:9], return_std=True)
    assert mean.shape == std.shape == (9, 2)
    assert model.length_scale_.shape == (2, 3) and model.log_evidence_.shape == (2,)
    assert (std[:, 0] < 1).all() and (std[:, 1] > 3).all()
    alone = model.fit(rows.X, Y[:, 0]).predict(rows.X[:9], return_std=True)
    np.testing.assert_allclose(alone, [mean[:, 0], std[:, 0]], rtol=1e-6)


def test_too_many_rows_for_an_exact_process_raise_an_error():
    with pytest.raises(InvalidDataError, match=r"at most 5000 rows, got 5001.*SparseGPRegressor"):
        GPRegressor().fit(np.zeros((5001, 1)), np.arange(5001))


def test_jitter_grows_until_there_is_a_factor():
    rows = jax.tree.map(lambda leaf: np.repeat(leaf, 20, axis=0), make_rows(12))
    hyper = Hyper.create(np.full(3, 5.0), 1.0, 1e-18)
    evidence, jitter = with_jitter(lambda j: exact_evidence(hyper, rows, j), jitter=1e-20)
    assert np.isfinite(evidence) and 1e-20 < jitter < 1e-10
    inducing = Inducing(hyper, rows.X, np.ones(240))
    posterior, jitter = with_jitter(lambda j: sparse_posterior(inducing, rows, j), jitter=1e-20)
    assert np.isfinite(predict(posterior, rows.X)).all() and 1e-20 < jitter < 1e-8


def test_a_covariance_without_a_factor_is_named():
    with pytest.raises(InvalidDataError, match="no Cholesky factor"):
        with_jitter(lambda jitter: np.nan)


def test_sparse_predictions_of_many_rows_come_near_the_truth():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(1500, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=1500)
    settings: dict[str, Any] = {
        "n_inducing": 60,
        "n_restarts": 1,
        "max_iter": 10,
        "random_state": 0,
    }
    model = SparseGPRegressor(**settings).fit(X[:1300], y[:1300])
    mean, std = model.predict(X[1300:], return_std=True)
    truth = np.sin(2 * X[1300:, 0]) * X[1300:, 1]
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.03
    np.testing.assert_allclose(std, 0.1, rtol=0.15)
    far = model.predict_uncertainty([[50.0, 50.0]])
    assert far["epistemic"] > 5 * far["aleatoric"]


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_a_few_rows_more_compile_nothing(model, monkeypatch):
    traced, covariance = [], inference.covariance

    def counted(*arguments):
        traced.append(arguments)
        return covariance(*arguments)

    monkeypatch.setattr(inference, "covariance", counted)
    counts = []
    for n in (101, 115):  # both in the bucket of 128
        rows = make_rows(n)
        X = np.tile(rows.X, 3)  # of nine features, which no other test has compiled for
        model.fit(X, rows.y).predict(X[: n - 60])
        counts.append(len(traced))
    assert counts[0] == counts[1] > 0


def test_exact_process_of_boston_reaches_a_sane_likelihood(data_folder):
    data = np.load(data_folder / "boston.npz")
    train, test = data["splits_train"][0], data["splits_test"][0]
    X, y = data["X"], data["y"]
    model = GPRegressor(n_restarts=1, random_state=0).fit(X[train], y[train])
    assert model.predict_dist(X[test]).log_prob(y[test]).mean() >= -2.9


@pytest.mark.parametrize("model", MAXIMISED, ids=NAMES[:2])
def test_far_away_the_prediction_is_the_prior(model):
    rows = make_rows()
    model.fit(rows.X, rows.y)
    mean, std = model.predict([[1e30, -1e30, 0.0], [1e6, 0, 0]], return_std=True)
    np.testing.assert_allclose(mean, rows.y.mean())
    hyper = model.model_.fitted.posterior.hyper
    prior_variance = np.exp(hyper.log_variance) + np.exp(hyper.log_noise)
    np.testing.assert_allclose(std, np.sqrt(prior_variance[0, 0]) * rows.y.std())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_restarts", 0),
        ("max_iter", -1),
        ("verbose", "yes"),
        ("n_inducing", 2.5),
        ("average", "no"),
    ],
)
def test_a_bad_setting_is_named(name, value):
    with pytest.raises(InvalidArgumentError, match=f"`{name}`"):
        SparseGPRegressor(**{name: value}).fit(np.eye(3), np.arange(3))


@pytest.mark.filterwarnings("ignore:300 of 600 rows are exact duplicates")
def test_starts_of_the_sparse_process_are_compared_by_its_own_bound():
    """Repeated rows with discrete noise, as in wine: an exact process memorises them, and a sparse
    one that goes on from there collapses to the mean."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(300, 6)), 2, axis=0)
    y = np.repeat(np.round(X[::2, 0] + rng.normal(size=300)), 2)
    model = SparseGPRegressor(n_inducing=50, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.3
