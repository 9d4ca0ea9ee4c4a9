"""Factor and tails for a mixture of known members; intervals and predictions from few rows."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from estimator_list import COMBINED, SHORT, build
from scipy import stats

from sigmax import (
    CombinedRegressor,
    LocalRegressor,
    MeanVarianceRegressor,
    SigmaxRegressor,
)
from sigmax.calibration import FLATTERED_ROWS, few_rows_factor, trusted
from sigmax.distributions import StudentT
from sigmax.estimators import fit_together
from sigmax.experts.ensemble import (
    held_out_densities,
    held_out_factor,
    held_out_predictions,
    mixture_recalibration,
)
from sigmax.inputs import Inputs
from sigmax.training import Fold, Stage, TrainingData

N_ROWS = 4000


class Guess(eqx.Module):
    """A member that says the same of every row, but for an error of its own."""

    error: jax.Array
    std: jax.Array
    factor: jax.Array
    most_df: jax.Array


def guess(network, rows, data):
    mean = rows.X.numbers @ network.error[:, None]
    return StudentT(mean, jnp.full_like(mean, 1e6), jnp.full_like(mean, network.std))


STAGE = Stage(
    name="guess",
    phases=(),
    n_cycles=1,
    cycles_per_chunk=1,
    predict=guess,
    keep_best=True,
    patience=0,
)


def brute_force_factor(centered: np.ndarray, df: float) -> float:
    """Factor by which intervals of 50, 80 and 90 % of a Student-t hold these shares of values."""
    levels = np.array([0.5, 0.8, 0.9])
    ends = stats.t.ppf(0.5 + levels / 2, min(df, 1e6))
    factors = np.exp(np.linspace(-3, 3, 6001))
    size = np.sort(np.abs(centered).ravel())
    shares = np.searchsorted(size, factors[:, None] * ends) / len(size)
    return float(factors[np.argmin(np.sum((shares - levels) ** 2, axis=1))])


def make_case(errors: np.ndarray, std: float, df: float = np.inf):
    """Members that see independent errors in as many features, on rows y ~ t(0, 1)."""
    rng = np.random.default_rng(0)
    n_members = len(errors)
    X = rng.normal(size=(N_ROWS, n_members)).astype(np.float32)
    y = rng.normal(size=(N_ROWS, 1)).astype(np.float32)
    if df < np.inf:
        y = y / np.sqrt(rng.chisquare(df, y.shape) / df).astype(np.float32)
    single = np.arange(N_ROWS)[:, None]
    graphs, weight = {"single": [single]}, np.ones(N_ROWS)
    data = TrainingData.create([Inputs(X)], [y], [np.zeros(N_ROWS, int)], graphs, [weight])
    held_out = [np.arange(N_ROWS // 2) * 2 for _ in errors]
    folds = Fold.create([np.ones(N_ROWS)], held_out, [0] * n_members, data.n_slots)
    ones = jnp.ones(n_members)
    parts = jnp.diag(jnp.asarray(errors)), std * ones, ones, jnp.inf * ones
    return Guess(*parts), folds, data


def recalibrate(errors: np.ndarray, std: float, df: float = np.inf):
    """Factor and bound on the tails; factor by which members are too narrow, by brute force."""
    networks, folds, data = make_case(errors, std, df)
    predicted = held_out_predictions(networks, folds, data, STAGE)
    factor, most_df = map(float, mixture_recalibration(predicted))
    rows = folds.validation[0][folds.validation_weight[0] > 0]
    X, y = np.asarray(data.X.numbers)[0][rows], np.asarray(data.y)[0][rows]
    residuals = y - X * errors  # of every member
    return factor, most_df, brute_force_factor(residuals / std, most_df)


@pytest.mark.parametrize("error", [0.0, 0.3, 0.5])
def test_the_mixture_gets_the_spread_that_its_mean_needs(monkeypatch, error):
    monkeypatch.setattr("sigmax.experts.ensemble.ROWS_TO_DISAGREE_ON", 2000)
    n_members, std = 5, 0.7
    factor, most_df, single = recalibrate(np.full(n_members, error, np.float32), std)
    df = min(most_df, 1e6)
    spread = single * np.sqrt(df / (df - 2))  # of standard deviations
    assert spread == pytest.approx(np.sqrt(1 + error**2) / std, rel=0.05)
    # The members' means have the variance error², most often less: its median over rows.
    draws = np.random.default_rng(1).normal(0, error, size=(20_000, n_members))
    disagreement = np.median(draws.var(axis=1, ddof=1)) * (df - 2) / df
    expected = np.sqrt(single**2 - 2 * disagreement / std**2)
    assert factor == pytest.approx(expected, rel=0.02)


def test_every_member_predicts_what_every_other_holds_out():
    errors = np.array([0.1, 0.2, 0.4], np.float32)
    networks, _, data = make_case(errors, 0.7)
    held_out = [np.arange(i, 90, 3) for i in range(3)]
    folds = Fold.create([np.ones(N_ROWS)], held_out, [0] * 3, data.n_slots)
    found = held_out_predictions(networks, folds, data, STAGE)
    X, y = np.asarray(data.X.numbers)[0], np.asarray(data.y)[0]
    for fold, rows in enumerate(held_out):
        assert np.asarray(found.is_row)[fold].sum() == len(rows) == 30
        np.testing.assert_array_equal(np.asarray(found.y)[fold, :30], y[rows])
        expected = X[rows] * errors  # each member errs in a feature of its own
        of_all = np.asarray(found.of_all.mean)[fold, :, :30, 0]
        np.testing.assert_allclose(of_all, expected.T, rtol=1e-5)
        np.testing.assert_array_equal(np.asarray(found.dist.mean)[fold, :30, 0], of_all[fold])


@pytest.mark.parametrize("error", [0.0, 0.3, 0.5])
def test_the_likeliest_factor_of_single_members_is_that_of_their_errors(error):
    std = 0.7
    networks, folds, data = make_case(np.full(5, error, np.float32), std)
    dist = held_out_densities(networks, folds, data, STAGE)
    single = float(held_out_factor(dist, folds, data))
    assert single == pytest.approx(np.sqrt(1 + error**2) / std, rel=0.05)


def test_one_member_has_nobody_to_disagree_with():
    factor, _, single = recalibrate(np.array([0.5], np.float32), 0.7)
    assert factor == pytest.approx(single, rel=0.01)


def test_wild_members_lose_at_most_half_of_the_factor():
    factor, _, single = recalibrate(np.full(4, 3.0, np.float32), 1.0)
    assert factor == pytest.approx(single / 2, rel=0.01)


@pytest.mark.parametrize("std", [0.125, 8.0])
@pytest.mark.parametrize(("df", "expected"), [(np.inf, np.inf), (12.0, 12.0), (3.0, 4.0)])
def test_the_tails_are_those_of_held_out_rows(df, expected, std):
    factor, most_df, _ = recalibrate(np.zeros(3, np.float32), std, df)
    assert most_df == expected
    if df >= 12:
        n_rows = 3 * N_ROWS / 2  # held out, of which a factor below 1 is taken back a little
        kept = 1.0 if std < 1 else n_rows / (n_rows + FLATTERED_ROWS)
        assert factor == pytest.approx((1 / std) ** kept, rel=0.05)


def test_what_few_rows_make_narrower_is_taken_back_and_what_they_widen_is_not():
    weight = jnp.pad(jnp.full((2, 50), 0.02), ((0, 0), (0, 14)))  # 100 rows and padding
    assert float(trusted(jnp.asarray(0.5), weight)) == pytest.approx(0.5 ** (1 / 3), rel=1e-5)
    assert float(trusted(jnp.asarray(1.5), weight)) == 1.5


# Few rows.


def make_problem(seed, n_rows, n_features):
    rng = np.random.default_rng([seed, n_features])
    direction = rng.normal(size=n_features)
    direction /= np.linalg.norm(direction)
    X = rng.normal(size=(n_rows + 100, n_features))
    y = np.sin(2 * X @ direction) + 0.3 * rng.normal(size=len(X))
    return X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:]


@pytest.mark.long
@pytest.mark.parametrize("n_rows", [12, 25, 50])
def test_intervals_from_few_rows_cover_what_they_say(n_rows):
    """Ten problems of five features, each with 100 new rows.

    Coverage differs by about 0.07 between problems, so that its mean has a standard error of 0.02;
    means of 0.84 to 0.87 were measured.
    """
    covered, widths = [], []
    for seed in range(10):
        X, y, X_new, y_new = make_problem(seed, n_rows, 5)
        model = SigmaxRegressor("quick", random_state=seed).fit(X, y)
        lower, upper = model.predict_interval(X_new, coverage=0.9).T
        covered.append(np.mean((lower <= y_new) & (y_new <= upper)))
        widths.append(np.mean(upper - lower))
    assert np.mean(covered) >= 0.78
    assert np.mean(widths) < 3.0  # the marginal of y has intervals of 2.5


@pytest.mark.long
def test_networks_from_few_rows_are_calibrated_roughly():
    """Intervals of nominal coverage 0.9: without any allowance for few rows they cover below 0.5.

    Members know three fifths of twelve rows each. The bound is three standard errors of the mean of
    ten problems below the least coverage measured.
    """
    problems = [make_problem(seed, 12, 5) for seed in range(10)]
    for create in (
        lambda seed: LocalRegressor("fast", n_steps=100, random_state=seed),
        lambda seed: CombinedRegressor("fast", n_steps=400, random_state=seed),
        lambda seed: MeanVarianceRegressor("fast", n_members=5, n_steps=400, random_state=seed),
    ):
        models = [create(seed) for seed in range(10)]
        fit_together(models, [(X, y) for X, y, *_ in problems])
        covered = []
        for model, (_, _, X, y) in zip(models, problems, strict=True):
            lower, upper = model.predict_interval(X, coverage=0.9).T
            covered.append(np.mean((lower <= y) & (y <= upper)))
        assert np.mean(covered) >= 0.7


@pytest.mark.long
def test_intervals_of_a_design_with_replicates_are_not_narrowed_by_levels_that_were_held_out():
    """Twenty levels of fifteen rows each: new rows are of known levels, held-out ones are not.

    Two problems of 2,000 new rows; narrowed intervals covered 0.4 to 0.9 of them.
    """
    problems = []
    for seed in range(2):
        rng = np.random.default_rng(10 + seed)
        mean, level = 2 * rng.normal(size=20), np.repeat(np.arange(20), 15)
        new = rng.integers(0, 20, 2000)
        y, y_new = (mean[rows] + 0.5 * rng.normal(size=len(rows)) for rows in (level, new))
        problems.append((np.eye(20)[level], y, np.eye(20)[new], y_new))
    models = [LocalRegressor("fast", n_steps=150, random_state=seed) for seed in range(2)]
    fit_together(models, [(X, y) for X, y, *_ in problems])
    for model, (_, _, X, y) in zip(models, problems, strict=True):
        lower, upper = model.predict_interval(X, coverage=0.9).T
        assert np.mean((lower <= y) & (y <= upper)) > 0.85
        assert np.all(model.fitted.networks.factor >= 1)


def test_two_rows_have_a_wide_and_finite_spread():
    X, y = np.array([[0.0], [1.0]]), np.array([1.0, 1.4])
    model = build(CombinedRegressor, **SHORT | COMBINED).fit(X, y)
    mean, std = model.predict([[0.5], [9.0]], return_std=True)
    assert np.all(np.isfinite(std)) and std[0] > 2 * y.std() and std[1] > 0.99 * y.std()
    assert np.all(np.abs(mean - y.mean()) < 10 * y.std())


def test_the_factor_for_few_rows_tends_to_one_without_steps():
    factors = np.array([few_rows_factor(n) for n in range(2, 500)])
    assert np.all(np.diff(factors) < 0) and 1 < factors[-1] < 1.003
    assert np.all(np.abs(np.diff(factors[150:])) < 1e-4)
