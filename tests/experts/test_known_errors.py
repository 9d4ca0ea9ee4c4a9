"""Known measurement errors: against the covariance written out, quadrature, and known truth."""

# Densities of experts are mixtures here.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOptionalOperand=false, reportOptionalSubscript=false

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, optimize, stats

from sigmax import LinearRegressor, LocalRegressor, SigmaxRegressor
from sigmax.distributions import ExpertPart, Mixture, Normal, StudentT
from sigmax.errors import InvalidArgumentError
from sigmax.estimators import load_estimator
from sigmax.experts.linear import PENALTIES, PRIOR_RATE, PRIOR_SHAPE, Linear, Marginal
from sigmax.experts.matern import JITTER, Covariance, MaternProcess
from sigmax.experts.rows import Rows
from sigmax.experts.stack import Stack
from sigmax.random import make_key


def made_up(n: int, seed: int = 0):
    """Half of the rows are measured well, half of them badly; noise of 0.2 is in all."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    error = np.where(rng.random(n) < 0.5, 0.05, 1.0)
    function = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    exact = function + 0.2 * rng.normal(size=n)
    return X, exact, exact + error * rng.normal(size=n), error


def make_rows(n: int = 50, seed: int = 0) -> Rows:
    X, _, y, error = made_up(n, seed)
    weight = np.random.default_rng(seed).uniform(0.5, 2.0, n)
    given = SigmaxRegressor().read_training(X, y, weight, y_error=error)
    return Rows.encode(given, Stack().target(given))


@pytest.fixture(scope="module")
def model() -> SigmaxRegressor:
    X, _, y, error = made_up(300)
    return SigmaxRegressor("quick", random_state=0).fit(X, y, y_error=error)


def by_regression(rows: Rows, noise: float, penalty: float, kept, new):
    """Mean and variance of the linear function, and the log evidence of all targets."""
    A, own = np.column_stack([np.ones(len(rows)), rows.X.numbers]), rows.weight / rows.weight.mean()
    variance, y = noise / own + rows.error**2, rows.y[:, 0]
    precision = np.diag([0.0, *np.full(A.shape[1] - 1, penalty / noise)])  # the constant has none
    inverse = np.linalg.inv((A[kept].T / variance[kept]) @ A[kept] + precision)
    mean = A[new] @ inverse @ (A[kept].T / variance[kept]) @ y[kept]
    basis = np.linalg.svd(np.ones((1, len(A))))[2][1:]  # what the constant leaves
    total = np.diag(variance) + noise / penalty * A[:, 1:] @ A[:, 1:].T
    evidence = stats.multivariate_normal.logpdf(basis @ y, None, basis @ total @ basis.T)
    prior_of_noise = -PRIOR_SHAPE * np.log(noise) - PRIOR_RATE / noise
    spread = np.einsum("ij,jk,ik->i", A[new], inverse, A[new])
    return mean, spread, evidence + prior_of_noise


def test_the_linear_model_is_the_posterior_of_gaussian_targets_with_these_variances():
    rows = make_rows()
    fitted = Linear().fit(rows, make_key(0))
    noise, penalty = fitted.linear.noise[0], fitted.linear.penalty[0]
    everything, dist = np.arange(50), fitted.density(rows.X)
    mean, variance, best = by_regression(rows, noise, penalty, everything, everything)
    np.testing.assert_allclose(dist.components.mean[0, :, 0], mean, atol=1e-5)
    share = dist.epistemic_share[0, :, 0]
    np.testing.assert_allclose(share, variance / (variance + noise), rtol=1e-3)
    others = [
        by_regression(rows, noise * factor, penalty, everything, everything)[2]
        for factor in (0.7, 1.4)
        for penalty in PENALTIES
    ]
    assert best > max(others)


def test_a_row_left_out_is_predicted_as_by_the_other_rows_alone():
    rows = make_rows()
    fitted = Linear().fit(rows, make_key(0))
    noise, penalty = fitted.linear.noise[0], fitted.linear.penalty[0]
    dist = fitted.held_out.dist
    for row in (0, 7, 23):
        kept = np.delete(np.arange(50), row)
        mean, variance, _ = by_regression(rows, noise, penalty, kept, np.array([row]))
        assert dist.components.mean[0, row, 0] == pytest.approx(mean[0], abs=1e-4)
        own = noise * rows.weight.mean() / rows.weight[row]
        assert dist.components.scale[0, row, 0] ** 2 == pytest.approx(variance[0] + own, rel=1e-3)


def test_the_gradient_of_the_process_is_that_of_finite_differences():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 3)), rng.normal(size=30), rng.uniform(0.5, 2, 30), rng.random(30)
    covariance, theta = Covariance(np.array([0, 1, 1])), 0.4 * rng.normal(size=5)
    expected = optimize.approx_fprime(theta, lambda t: covariance.loss(t, *rows)[0], epsilon=1e-6)
    gradient = covariance.loss(theta, *rows)[1]
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4)


def test_the_process_is_the_posterior_of_gaussian_targets_with_these_variances():
    rows = make_rows(29)  # too few for noise that varies
    fitted = MaternProcess().fit(rows, make_key(0))
    theta, covariance = fitted.theta[0], Covariance(fitted.group)
    noise = np.exp(theta[1]) * rows.weight.mean() / rows.weight + rows.error**2 + JITTER
    new = np.asarray(make_rows(10, seed=1).X.coordinates)
    across = covariance(theta, new, fitted.X)
    inverse = np.linalg.inv(covariance(theta, fitted.X, fitted.X) + np.diag(noise))
    mean, latent = fitted.posteriors[0].at(covariance, theta, new, fitted.X)
    np.testing.assert_allclose(mean, across @ inverse @ rows.y[:, 0], atol=1e-6)
    expected = covariance.variance(theta, new) - np.sum(across @ inverse * across, axis=1)
    np.testing.assert_allclose(latent, expected, atol=1e-6)


@pytest.mark.parametrize("expert", [MaternProcess(), Marginal()])
def test_errors_of_zero_change_nothing(expert):
    rows = make_rows()
    none = expert.fit(replace(rows, error=None), make_key(0))
    zero = expert.fit(replace(rows, error=np.zeros(50)), make_key(0))
    for dist in (lambda one: one.density(rows.X), lambda one: one.held_out.dist):
        np.testing.assert_array_equal(dist(none).components.mean, dist(zero).components.mean)
        np.testing.assert_array_equal(dist(none).components.unit, dist(zero).components.unit)


@pytest.mark.parametrize("error", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("df", [5.0, 30.0, np.inf])
def test_a_measured_component_is_the_convolution_with_the_error(df, error):
    mean, scale = np.full((1, 1, 1), 0.7), np.ones((1, 1, 1))
    own = Normal(mean, scale) if np.isinf(df) else StudentT(mean, np.full((1, 1, 1), df), scale)
    part = ExpertPart(Mixture(own, np.full((1, 1, 1), 0.25))).measured(np.full((1, 1), error))
    exact = stats.norm(0.7) if np.isinf(df) else stats.t(df, 0.7)
    infinite = np.full(1, np.inf)
    found, variance, epistemic = part.summary(-infinite, infinite)
    assert found == pytest.approx(0.7) and variance == pytest.approx(exact.var() + error**2)
    assert epistemic == pytest.approx(0.25 * exact.var())
    noise = stats.norm(0, error)
    for y in (-3.0, 0.0, 1.0, 4.0):
        ends = y - 9 * error, y + 9 * error
        expected, _ = integrate.quad(lambda t, y=y: noise.pdf(y - t) * exact.cdf(t), *ends)
        assert part.cdf(np.full((1, 1), y))[0, 0] == pytest.approx(expected, abs=0.01)


def test_densities_are_near_the_truth_and_intervals_hold_their_share(model):
    """300 rows; 4,000 new ones have standard errors of 0.5 % of coverage and 0.01 of scores."""
    X, exact, y, error = made_up(4000, seed=1)
    function = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    for dist, new, std in (
        (model.predict_dist(X), exact, np.full(4000, 0.2)),
        (model.predict_dist(X, y_error=error), y, np.hypot(0.2, error)),
    ):
        lower, upper = dist.interval(0.9).T
        assert 0.87 < np.mean((lower <= new) & (new <= upper)) < 0.97
        best = stats.norm(function, std).logpdf(new).mean()
        assert best - 0.12 < dist.log_prob(new).mean() < best + 0.01
    unknowing = SigmaxRegressor("quick", experts=["linear", "gp"], random_state=0)
    X_train, _, y_train, _ = made_up(300)
    without = unknowing.fit(X_train, y_train).predict_dist(X)
    assert model.predict_dist(X).crps(exact).mean() < 0.9 * without.crps(exact).mean()


def test_a_monitor_of_measured_targets_needs_their_errors(model):
    X, _, y, error = made_up(300, seed=5)
    assert not model.monitor().update(X, y, error).has_alarm
    assert model.monitor(X, y).has_alarm


def test_held_out_densities_have_the_error_of_the_row(model):
    held_out, error = model.model_.held_out(), made_up(300)[3]
    assert held_out.std[error == 1.0].min() > 0.9 > held_out.std[error < 1].max()
    assert model.leaderboard_["expert"].iloc[0] == "gp"
    assert set(model.leaderboard_["expert"]) == {"marginal", "linear", "gp"}


def test_an_error_for_all_rows_is_separated_from_the_noise():
    """The noise of 0.2 is what is left of 0.54 when all errors are 0.5."""
    X, exact, _, _ = made_up(400)
    y = exact + 0.5 * np.random.default_rng(2).normal(size=400)
    model = SigmaxRegressor("quick", random_state=0).fit(X, y, y_error=0.5)
    new = made_up(500, seed=3)[0]
    assert 0.1 < np.median(model.predict_dist(new).std) < 0.35
    total = np.median(model.predict_dist(new, y_error=0.5).std)
    assert 0.5 < total < 0.62


def test_constant_targets_and_errors_larger_than_anything_else_give_finite_predictions():
    X, _, y, _ = made_up(20)
    for target, error in ((np.ones(20), 0.5), (y, 100.0), (y + np.eye(20)[0] * 1e6, 1e6)):
        errors = np.where(np.arange(20) == 0, error, min(error, 100.0))
        dist = (
            SigmaxRegressor("quick", random_state=0).fit(X, target, y_error=errors).predict_dist(X)
        )
        assert np.isfinite(dist.mean).all() and np.isfinite(dist.std).all()


def test_errors_follow_their_rows():
    """Through another order, rows of weight 0 and duplicates, which are not merged."""
    X, _, y, error = made_up(60)
    table = {"x": X[:, 0], "kind": np.where(X[:, 1] > 0, "a", "b")}
    frame = pd.DataFrame(table)
    order = np.random.default_rng(0).permutation(60)
    create = lambda: SigmaxRegressor(experts=["linear"], random_state=0)  # noqa: E731
    usual = create().fit(frame, y, y_error=error)
    moved = create().fit(frame.iloc[order], y[order], y_error=error[order])
    np.testing.assert_allclose(usual.predict(frame), moved.predict(frame), rtol=1e-6)
    weight = np.append(np.ones(60), np.zeros(5))
    longer = pd.concat([frame, frame.iloc[:5]])
    zero = create().fit(
        longer, np.append(y, 99 * y[:5]), weight, y_error=np.append(error, [0.01] * 5)
    )
    np.testing.assert_allclose(usual.predict(frame), zero.predict(frame), rtol=1e-6)
    twice = create().read_training(
        pd.concat([frame, frame]), np.append(y, y), y_error=np.append(error, 2 * error)
    )
    np.testing.assert_array_equal(twice.error, np.append(error, 2 * error)[twice.indices])
    assert len(twice) == 120


def test_saved_models_and_added_rows_predict_as_before(model, tmp_path):
    X, _, _, error = made_up(20, seed=4)
    model.save(tmp_path / "model")
    loaded = load_estimator(tmp_path / "model")
    before = model.predict_dist(X, y_error=error)
    np.testing.assert_allclose(loaded.predict_dist(X, y_error=error).std, before.std, rtol=1e-6)
    far = np.full((1, 2), 5.0)
    assert loaded.add_rows(far, [2.0]).predict_dist(far).std < 0.5 * model.predict_dist(far).std


def test_a_model_of_exact_rows_predicts_measurements_with_errors():
    X, exact, _, _ = made_up(100)
    model = SigmaxRegressor("quick", random_state=0).fit(X, exact)
    usual, wider = model.predict_dist(X), model.predict_dist(X, y_error=2.0)
    np.testing.assert_allclose(wider.variance, usual.variance + 4, rtol=0.15)
    skewed = SigmaxRegressor("quick", random_state=0).fit(X, np.exp(exact))
    with pytest.raises(InvalidArgumentError, match="a transformed target: fit with `y_error`, 0"):
        skewed.predict_dist(X, y_error=0.5)


@pytest.mark.parametrize(
    ("error", "settings", "words"),
    [
        (
            -1.0,
            {},
            "`y_error` must be numbers of at least 0, one or as many as the 30 rows, got -1",
        ),
        (np.r_[np.nan, np.ones(29)], {}, "got nan"),
        (np.ones(29), {}, r"got shape \(29,\)"),
        ("big", {}, "got 'big'"),
        (["big"] * 30, {}, r"got \['big', .*, \.\.\.\]\."),
        (1.0, {"experts": ["linear", "forest"]}, "`experts` that take .* not forest"),
        (1.0, {"support": (0, None)}, '`support` must be "auto" with `y_error`'),
    ],
)
def test_wrong_errors_are_reported_in_a_sentence(error, settings, words):
    X, _, y, _ = made_up(30)
    with pytest.raises(InvalidArgumentError, match=words):
        SigmaxRegressor(**settings).fit(X, y, y_error=error)


def test_errors_of_several_outputs_and_of_other_estimators_are_refused(model):
    X, _, y, _ = made_up(30)
    with pytest.raises(InvalidArgumentError, match="fit one model per output"):
        SigmaxRegressor("quick").fit(X, np.column_stack([y, y]), y_error=1.0)
    with pytest.raises(InvalidArgumentError, match=r"as the 30 rows, got shape \(5,\)"):
        model.predict_dist(X, y_error=np.ones(5))
    for other in (LinearRegressor(), LocalRegressor()):
        with pytest.raises(TypeError, match="y_error"):
            other.fit(X, y, y_error=1.0)
