"""Censored targets: against quadrature, Kaplan and Meier, and known truth."""

# Types of SciPy's distributions, and of settings, are those of defaults.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import numpy as np
import pytest
from scipy import integrate, stats

from sigmax import SigmaxRegressor, metrics
from sigmax.distributions import Normal, Predictive
from sigmax.errors import InvalidArgumentError
from sigmax.estimators import load_estimator
from sigmax.experts.censored import censored_transform, fit_censored, truncated_moments
from sigmax.experts.linear import Linear
from sigmax.experts.rows import Rows
from sigmax.experts.stack import Stack
from sigmax.random import make_key


def made_up(n: int, seed: int = 0):
    """Targets, of which nearly half are above a bound of their own."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    function = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    exact, bound = function + 0.3 * rng.normal(size=n), rng.normal(0.3, 1.2, n)
    censoring = np.where(exact > bound, "above", "no")
    return X, function, exact, np.minimum(exact, bound), censoring


def linear(n: int = 200, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1))
    return X, 2 * X[:, 0] + rng.normal(size=n), rng.normal(size=n)


def fit(X, y, **given) -> SigmaxRegressor:
    return SigmaxRegressor(experts=["linear"], random_state=0).fit(X, y, **given)


@pytest.fixture(scope="module")
def model() -> SigmaxRegressor:
    X, _, _, y, censoring = made_up(200)
    return SigmaxRegressor("quick", random_state=0).fit(X, y, censoring=censoring)


def test_moments_of_truncated_normal_variables_are_those_of_scipy():
    low = np.array([-np.inf, 0.0, 1.0, -1.0, 8.0, -9.0, -np.inf, 0.3, -np.inf, 2.0])
    high = np.array([0.5, np.inf, 1.5, 2.0, np.inf, -8.0, -12.0, 0.3005, np.inf, 2.002])
    mean, std = np.linspace(-0.3, 0.3, 10), np.linspace(0.5, 1.5, 10)
    a, b = (low - mean) / std, (high - mean) / std
    found = truncated_moments(mean, std**2, low, high)
    expected = [stats.truncnorm(*ends, m, s) for ends, m, s in zip(zip(a, b), mean, std)]  # noqa: B905
    np.testing.assert_allclose(found[0], [one.mean() for one in expected], rtol=1e-6)
    np.testing.assert_allclose(found[1], [one.var() for one in expected], rtol=1e-4)


def test_the_linear_model_has_the_posterior_mean_of_an_integral_over_its_coefficients():
    X, exact, bound = linear(40)
    y, censoring = np.minimum(exact, bound), np.where(exact > bound, "above", "no")
    given = SigmaxRegressor().read_training(X, y, censoring=censoring)
    rows = Rows.encode(given, Stack().target(given))
    assert rows.bounds is not None
    fitted = fit_censored(Linear(), rows, rows.bounds, make_key(0))
    noise, penalty = fitted.linear.noise[0], fitted.linear.penalty[0]
    x, (low, high) = np.asarray(rows.X.numbers)[:, 0], rows.bounds.T
    slope, constant = np.meshgrid(np.linspace(-1, 3, 161), np.linspace(-2, 3, 161))
    log_density = stats.norm(0, np.sqrt(noise / penalty)).logpdf(slope)
    for one, start, end in zip(x, low, high, strict=True):
        own = stats.norm(constant + slope * one, np.sqrt(noise))
        log_density += own.logpdf(start) if start == end else own.logsf(start)
    share = np.exp(log_density - log_density.max())
    share /= share.sum()
    found = np.asarray(fitted.density(rows.X).components.mean)[0, :, 0]
    expected = np.sum(share * constant) + np.sum(share * slope) * x
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_densities_are_about_as_good_as_without_censoring(model):
    """200 rows, 46 % of them censored; standard error of the log score of 2,000: 0.02."""
    X, function, exact, _, _ = made_up(2000, seed=1)
    X_train, _, _, y, _ = made_up(200)
    dist = model.predict_dist(X)
    lower, upper = dist.interval(0.9).T
    assert 0.85 < np.mean((lower <= exact) & (exact <= upper)) < 0.95
    best = stats.norm(function, 0.3).logpdf(exact).mean()
    assert best - 0.2 < dist.log_prob(exact).mean() < best + 0.02
    unknowing = SigmaxRegressor("quick", random_state=0).fit(X_train, y)
    errors = np.abs(dist.mean - exact), np.abs(unknowing.predict(X) - exact)
    assert errors[0].mean() < 0.6 * errors[1].mean()
    assert set(model.leaderboard_["expert"]) == {"marginal", "linear", "gp"}


@pytest.mark.parametrize("kind", ["above", "below", "intervals"])
def test_coefficients_are_recovered_whatever_the_kind(kind):
    X, exact, bound = linear(600)
    if kind == "above":
        y, censoring = np.minimum(exact, bound), np.where(exact > bound, "above", "no")
    elif kind == "below":
        y, censoring = np.maximum(exact, bound), np.where(exact < bound, "below", None)
    else:
        low, high = 2 * np.floor(exact / 2), 2 * np.floor(exact / 2) + 2
        low[::5] = high[::5] = exact[::5]
        y, censoring = (low + high) / 2, (low, high)
    dist = fit(X, y, censoring=censoring).predict_dist([[-2.0], [0.0], [2.0]])
    np.testing.assert_allclose(dist.mean, [-4.0, 0.0, 4.0], atol=0.3)
    np.testing.assert_allclose(dist.std, 1.0, atol=0.2)


@pytest.mark.parametrize(("power", "share"), [(0.0, 0.1), (0.0, 0.4), (1.0, 0.4)])
def test_the_transform_is_that_of_the_targets_behind_the_bounds(power, share):
    """A logarithm, or none; and beyond the greatest bound the targets are Normal after it, too."""
    rng = np.random.default_rng(0)
    values = rng.normal(5, 1, 2000)
    exact = np.exp(values / 2) if power == 0 else values
    bound = np.quantile(exact, 1 - share)
    low = np.minimum(exact, bound)
    transform = censored_transform(np.stack([low, np.where(exact > bound, np.inf, low)], axis=1))
    assert (transform is None) == (power == 1)
    if transform is not None:
        far = np.quantile(exact, [0.1, 0.9, 0.99])[:, None]
        levels = stats.norm.cdf(transform(far))[:, 0]
        np.testing.assert_allclose(levels, [0.1, 0.9, 0.99], atol=0.04)


def test_rows_of_which_nothing_is_known_change_nothing():
    X, y, _ = linear(60)
    infinite = np.full(20, np.inf)
    bounds = np.append(y[:40], -infinite), np.append(y[:40], infinite)
    found = fit(X, y, censoring=bounds).model_.fitted.experts[1].fitted
    usual = fit(X[:40], y[:40], y_error=0.0).model_.fitted.experts[1].fitted
    assert found.linear.noise[0] > 0
    assert len(found.linear.coefficients) == len(usual.linear.coefficients)
    assert found.linear.n_rows == pytest.approx(40, rel=1e-3)


def test_imputed_targets_have_the_distribution_of_kaplan_and_meier():
    rng = np.random.default_rng(0)
    time, end = rng.exponential(size=2000), rng.exponential(1.5, 2000)
    y, is_event = np.minimum(time, end), time <= end
    given = SigmaxRegressor().read_training(
        rng.normal(size=(2000, 1)), y, censoring=np.where(is_event, "no", "above")
    )
    survival = 1.0
    for count, row in enumerate(np.argsort(y)):
        survival *= 1 - is_event[row] / (2000 - count)
        if count in (400, 1000, 1500):
            assert np.mean(given.y > y[row]) == pytest.approx(survival, abs=0.02)


@pytest.mark.parametrize("bounds", [(0.4, np.inf), (-np.inf, 0.4), (-1.0, 0.5), (0.4, 0.4)])
def test_the_log_score_is_that_of_the_probability_between_the_bounds(bounds):
    low, high = bounds
    dist, exact = Predictive(Normal(np.full(3, 0.2), np.full(3, 1.3))), stats.norm(0.2, 1.3)
    y, given = np.full(3, low if np.isfinite(low) else high), (np.full(3, low), np.full(3, high))
    mass = exact.logpdf(low) if low == high else np.log(exact.cdf(high) - exact.cdf(low))
    assert metrics.censored_log_likelihood(y, dist, given) == pytest.approx(mass)


@pytest.mark.parametrize(("y", "upto"), [(0.4, 0.4), (-1.0, 0.5), (0.3, np.inf), (2.0, 0.5)])
def test_the_crps_up_to_a_bound_is_the_integral_of_the_brier_score(y, upto):
    dist, exact = Predictive(Normal(np.full(3, 0.2), np.full(3, 1.3))), stats.norm(0.2, 1.3)
    below, _ = integrate.quad(lambda t: exact.cdf(t) ** 2, -20, min(y, upto))
    above, _ = integrate.quad(lambda t: exact.sf(t) ** 2, min(y, upto), min(upto, 20))
    found = metrics.threshold_crps(np.full(3, y), dist, upto)
    assert found == pytest.approx(below + above, rel=1e-3)


def test_an_unknown_bound_of_the_crps_is_an_error():
    dist = Predictive(Normal(np.zeros(3), np.ones(3)))
    with pytest.raises(InvalidArgumentError, match=r"`upto` must be numbers, .* got NaN"):
        metrics.threshold_crps(np.zeros(3), dist, [1.0, np.nan, 2.0])


def test_the_scores_prefer_the_truth():
    """Differences of the scores of 3,000 rows have standard errors of 3e-3.

    A CRPS that ends at bounds of censored rows only prefers too small values.
    """
    rng = np.random.default_rng(0)
    exact, bound = rng.normal(size=3000), rng.normal(size=3000)
    y, censoring, scores = np.minimum(exact, bound), np.where(exact > bound, "above", "no"), []
    of_censored = np.where(exact > bound, bound, np.inf)
    for mean in (0.0, -0.4, 0.4):
        dist = Predictive(Normal(np.full(3000, mean), np.ones(3000)))
        log_score = metrics.censored_log_likelihood(y, dist, censoring)
        crps = (metrics.threshold_crps(y, dist, upto) for upto in (bound, of_censored))
        scores.append((-log_score, *crps))
    assert np.argmin(scores, axis=0).tolist() == [0, 0, 1]


def test_saved_models_predict_the_same_and_have_no_conformal_intervals(model, tmp_path):
    X = made_up(5)[0]
    model.save(tmp_path / "model")
    loaded = load_estimator(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    with pytest.raises(InvalidArgumentError, match="fit without `censoring`"):
        loaded.predict_interval(X, method="conformal")


FLAGS = np.array(["above"] * 10 + ["no"] * 20)


@pytest.mark.parametrize(
    ("censoring", "given", "words"),
    [
        (np.where(FLAGS == "no", "no", "right"), {}, 'one of "no", .* 30 rows, got .*right'),
        (FLAGS[:9], {}, r"for each of the 30 rows, got shape \(9,\)"),
        (["above"] * 30, {}, "must leave a target observed"),
        ("above", {}, r"30 rows, got shape \(\)"),
        ([np.zeros(30), np.ones(30)], {}, r"a tuple \(low, high\), or .*, got shape \(2, 30\)"),
        ((np.zeros(30), np.ones(29)), {}, r"pair \(low, high\) .* got shapes \(30,\) and \(29,\)"),
        ((np.full(30, 2.0), np.ones(30)), {}, "low <= y <= high, got 2, .*, 1 in row 1"),
        ((np.full(30, np.nan), np.ones(30)), {}, "got nan"),
        (FLAGS, {"y_error": 1.0}, "`censoring` and `y_error` exclude each other"),
    ],
)
def test_wrong_censoring_is_reported_in_a_sentence(censoring, given, words):
    X, y, _ = linear(30)
    with pytest.raises(InvalidArgumentError, match=words):
        SigmaxRegressor("quick").fit(X, np.clip(y, 0, 1), censoring=censoring, **given)


def test_several_outputs_and_forests_are_refused():
    X, y, _ = linear(30)
    with pytest.raises(InvalidArgumentError, match="fit one model per output"):
        SigmaxRegressor("quick").fit(X, np.column_stack([y, y]), censoring=FLAGS)
    with pytest.raises(InvalidArgumentError, match=r"`censoring` into account .* not forest"):
        SigmaxRegressor(experts=["forest"]).fit(X, y, censoring=FLAGS)
