"""The stack: weights, cells of repeated values, the gate, and what users see of it."""

# Arguments of estimators have the types of their defaults.
# pyright: reportArgumentType=false

import copy
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

from sigmax import SigmaxRegressor
from sigmax.distributions import Predictive
from sigmax.errors import InvalidArgumentError, TrainingWarning
from sigmax.experts import Forest, Linear, Local, MaternProcess
from sigmax.experts.linear import PRIOR_RATE, PRIOR_SHAPE
from sigmax.experts.stack import (
    LEAST_WEIGHT,
    PRIOR_COUNT,
    StackFitted,
    shorten_tails,
    stacking_weights,
)
from sigmax.tables import Table


def smooth(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=n)


@pytest.fixture(scope="module")
def model() -> SigmaxRegressor:
    return SigmaxRegressor("quick", random_state=0).fit(*smooth(200))


def test_weights_maximise_the_penalised_log_score():
    rng = np.random.default_rng(0)
    log_density, weight = rng.normal(size=(60, 3)), rng.uniform(0.5, 2.0, 60)

    def loss(free: np.ndarray) -> float:
        w = np.exp(free - np.logaddexp.reduce(free))
        scores = np.log(np.exp(log_density) @ w)
        return -np.sum(weight / weight.mean() * scores) - PRIOR_COUNT * np.sum(np.log(w))

    best = optimize.minimize(loss, np.zeros(3), tol=1e-12).x
    expected = np.exp(best - np.logaddexp.reduce(best))
    np.testing.assert_allclose(stacking_weights(log_density, weight), expected, atol=2e-4)


def test_the_expert_of_the_right_family_has_the_weight(model):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 4))
    linear = SigmaxRegressor("quick", random_state=0)
    linear.fit(X, X @ [1.0, -1.0, 0.5, 0.0] + 0.3 * rng.normal(size=150))
    board = linear.leaderboard_.set_index("expert")["weight"]
    assert board["linear"] + board["gp"] > 0.9  # whose covariance has a linear part
    assert model.leaderboard_["expert"][0] == "gp"
    for one in (model, linear):
        board = one.leaderboard_
        assert board["weight"].sum() == pytest.approx(1)
        assert board["weight"].is_monotonic_decreasing
        assert np.isfinite(board[["log_likelihood", "crps", "seconds"]].to_numpy()).all()


def test_predictions_are_as_good_as_they_say(model):
    X, y = smooth(400, seed=5)
    low, high = model.predict_interval(X).T
    assert 0.84 < np.mean((low <= y) & (y <= high)) < 0.96  # 4 standard deviations of a share
    truth = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    assert np.sqrt(np.mean((model.predict(X) - truth) ** 2)) < 0.12
    assert np.mean(model.predict_dist(X).crps(y)) < 1.2 * 0.2 * 0.564 + 0.01


def test_probabilities_are_calibrated_on_held_out_rows():
    """Exponential noise, which experts with symmetric densities do not have.

    The distance of PIT values of 1,000 new rows from uniform is below 0.043 by chance in 95 of 100
    samples.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(1800, 1))
    y = X[:, 0] + rng.exponential(size=1800)
    model = SigmaxRegressor(experts=[Linear()], random_state=0).fit(X[:800], y[:800])
    dist = model.predict_dist(X[800:])
    plain = replace(dist.dist, calibration=None)
    after, before = (
        stats.kstest(one.cdf(y[800:]), "uniform").statistic for one in (dist, Predictive(plain))
    )
    assert after < 0.06 and after < 0.8 * before
    assert np.mean(dist.log_prob(y[800:])) > np.mean(plain.log_prob(y[800:])) + 0.05
    far = model.predict_dist([[600.0]])  # the marginal, uncalibrated
    at = np.array([0.3])
    np.testing.assert_allclose(far.cdf(at), replace(far.dist, calibration=None).cdf(at))


def test_skewed_columns_are_transformed_except_for_linear_models():
    rng = np.random.default_rng(0)
    z, noise = rng.normal(size=(300, 2)), 0.1 * rng.normal(size=300)
    skewed = np.exp(2 * z)
    model = SigmaxRegressor("quick", random_state=0).fit(skewed[:150], np.sin(z[:150, 0]))
    assert np.mean((model.predict(skewed[150:]) - np.sin(z[150:, 0])) ** 2) < 0.02
    fitted = model.model_.fitted
    assert isinstance(fitted, StackFitted)
    assert fitted.inputs.column.tolist() == [0, 1]
    linear = skewed @ [1.0, -2.0] + noise
    model = SigmaxRegressor("quick", random_state=0).fit(skewed[:150], linear[:150])
    assert np.abs(model.predict(skewed[150:]) - linear[150:]).mean() < 0.2
    plain = SigmaxRegressor("quick", random_state=0).fit(z, z[:, 0])
    fitted = plain.model_.fitted
    assert isinstance(fitted, StackFitted) and fitted.inputs.transform is None


@pytest.mark.parametrize("code, n_codes", [(1e9, 1), (-999.0, 9), (1e6, 9)])
def test_outliers_and_codes_in_a_column_leave_the_other_rows_as_known(code, n_codes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=600)
    clean = SigmaxRegressor("quick", random_state=0).fit(X[:300], y[:300])
    expected = clean.predict_dist(X[300:]).crps(y[300:]).mean()
    X[:n_codes, 0] = code
    model = SigmaxRegressor("quick", random_state=0).fit(X[:300], y[:300])
    assert model.predict_dist(X[300:]).crps(y[300:]).mean() < 1.2 * expected
    gate = model.predict_gate(X[300:])
    assert gate is not None and gate.max() < 0.5


def test_transformed_columns_are_linear_between_short_tails_and_normal_scores_otherwise():
    rng = np.random.default_rng(0)
    column = rng.normal(size=1000)
    column[:20] = -999.0
    knots, values = shorten_tails(column)
    inside = np.linspace(-3, 3, 50)
    assert np.ptp(np.diff(np.interp(inside, knots, values))) < 1e-9
    assert np.interp(-999.0, knots, values) > -20 * np.interp(1.0, knots, values)
    heavy = rng.standard_cauchy(1000) ** 3
    scores = np.interp(heavy, *shorten_tails(heavy))
    expected = stats.norm.ppf((stats.rankdata(heavy) - 0.5) / 1000)
    assert np.corrcoef(scores, expected)[0, 1] > 0.999


def test_predictions_leave_out_experts_of_small_weight(model):
    fitted = model.model_.fitted
    kept = [one for one in fitted.experts if one.weight >= LEAST_WEIGHT or one.name == "marginal"]
    dist = fitted.density(model.model_.encode(model.read(np.zeros((1, 2)))))
    assert len(dist.parts) == len(kept)
    assert dist.weight.sum(axis=0) == pytest.approx(1.0)


def test_a_target_that_is_exactly_linear_is_predicted_exactly():
    X = np.random.default_rng(0).normal(size=(120, 5))
    y = X @ np.arange(5.0)
    dist = SigmaxRegressor("quick", random_state=0).fit(X[:80], y[:80]).predict_dist(X[80:])
    np.testing.assert_allclose(
        dist.quantile([0.1, 0.5, 0.9]), np.repeat(y[80:, None], 3, 1), atol=1e-3
    )
    assert dist.crps(y[80:]).mean() < 1e-3 * y.std()


def test_off_the_data_the_marginal_is_predicted(model):
    _, y = smooth(200)
    far = np.array([[80.0, 80.0], [-90.0, 10.0]])
    mean, std = model.predict(far, return_std=True)
    np.testing.assert_allclose(mean, y.mean(), atol=0.2)
    np.testing.assert_allclose(std, y.std(), rtol=0.15)
    np.testing.assert_allclose(model.predict_gate(far), 1.0, atol=1e-3)
    parts = model.predict_uncertainty(smooth(50, seed=3)[0])
    np.testing.assert_allclose(
        parts["total"] ** 2, parts["aleatoric"] ** 2 + parts["epistemic"] ** 2
    )


def test_counts_have_the_probability_of_every_value():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 2, size=(600, 1))
    rate = np.exp(1.2 * X[:, 0] - 1)
    is_zero = rng.random(600) < 0.3
    y = np.where(is_zero, 0, rng.poisson(rate)).astype(float)
    model = SigmaxRegressor("quick", random_state=0).fit(X[:400], y[:400])
    dist = model.predict_dist(X[400:])
    found = dist.cdf(0.0)
    truth = 0.3 + 0.7 * np.exp(-rate[400:])
    assert np.sqrt(np.mean((found - truth) ** 2)) < 0.08
    assert np.all(dist.cdf(-1e-9) == 0) and np.all(dist.interval(0.9) >= 0)
    np.testing.assert_allclose(dist.cdf(1.2), dist.cdf(1.0))  # nothing between two counts
    draws = dist.sample(300, random_state=0)
    inside = draws <= y[:400].max()
    assert np.all(draws[inside] == np.round(draws[inside]))
    np.testing.assert_allclose(np.mean(draws == 0, axis=0), found, atol=0.12)
    steps = np.arange(0, 60)
    levels = np.stack([dist.cdf(float(step)) for step in steps])
    is_below = steps[:, None] < y[400:]
    expected = np.sum((levels - ~is_below) ** 2, axis=0)  # the CRPS of a distribution of counts
    np.testing.assert_allclose(dist.crps(y[400:]), expected, atol=0.03)


def test_tables_weights_outputs_and_missing_values():
    rng = np.random.default_rng(2)
    n = 160
    kind = rng.choice(["a", "b", "c"], n)
    frame = pd.DataFrame({"x": rng.normal(size=n), "kind": kind})
    y = frame["x"].to_numpy() + (kind == "b") * 2 + 0.2 * rng.normal(size=n)
    model = SigmaxRegressor("quick", random_state=0).fit(frame, np.column_stack([y, np.exp(y)]))
    new = frame[:6].copy()
    new.loc[0, "x"], new.loc[1, "kind"] = np.nan, "unseen"
    dist = model.predict_dist(new)
    assert dist.shape == (6, 2) and np.isfinite(dist.std).all() and np.all(dist.std[:2] > 0)
    assert dist.std[0, 0] > 2 * dist.std[2, 0] and dist.std[1, 0] > 2 * dist.std[2, 0]
    assert model.predict_interval(new, method="conformal").shape == (6, 2, 2)
    assert np.all(dist.interval(0.99)[:, 1] >= 0)  # a positive output stays positive


@pytest.mark.parametrize("first", [199, 399])  # processes of more than 400 rows have no folds
def test_scores_do_not_jump_between_numbers_of_rows(first):
    X, y = smooth(first + 2)
    X_new, y_new = smooth(300, seed=9)
    scores = []
    for n in range(first, first + 3):
        model = SigmaxRegressor("quick", random_state=0).fit(X[:n], y[:n])
        scores.append(model.predict_dist(X_new).crps(y_new).mean())
    assert max(scores) / min(scores) < 1.05


def test_held_out_densities_leave_duplicates_out():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(40, 3)), 3, axis=0)  # a design with three replicates
    y = np.repeat(rng.normal(size=40), 3) + 0.01 * rng.normal(size=120)  # nothing to learn
    model = SigmaxRegressor("quick", random_state=0).fit(X, y)
    held_out = model.model_.fitted.held_out
    assert len(held_out) == 120
    new = rng.normal(size=(500, 3)), rng.normal(size=500)
    low, high = model.predict_interval(new[0]).T
    assert np.mean((low <= new[1]) & (new[1] <= high)) > 0.8


def test_experts_can_be_chosen_by_name_or_as_objects():
    X, y = smooth(80)
    named = SigmaxRegressor(experts=["linear", "forest"], random_state=0).fit(X, y)
    assert set(named.leaderboard_["expert"]) == {"marginal", "linear", "forest"}
    objects = [Linear(), MaternProcess(), Forest(n_trees=20)]
    given = SigmaxRegressor(experts=objects, random_state=0).fit(X, y)
    names = {"marginal", "Linear", "MaternProcess", "Forest"}
    assert set(given.leaderboard_["expert"]) == names
    forests = [Forest(n_trees=20), Forest(n_trees=30), Forest(n_trees=20)]
    found = SigmaxRegressor(experts=forests, time_limit=np.int64(9), random_state=0).fit(X, y)
    assert set(found.leaderboard_["expert"]) == {"marginal", "Forest", "Forest 2"}
    for wrong in ("linear", [], ["nearest"], 3):
        with pytest.raises(InvalidArgumentError, match="`experts` must be"):
            SigmaxRegressor(experts=wrong).fit(X, y)
    with pytest.raises(InvalidArgumentError, match="`effort` must be"):
        SigmaxRegressor("slow").fit(X, y)


def test_a_time_limit_leaves_experts_out_and_says_so():
    X, y = smooth(60)
    model = SigmaxRegressor("quick", time_limit=1e-9, random_state=0)
    with pytest.warns(TrainingWarning, match="left out linear, gp, forest"):
        model.fit(X, y)
    assert list(model.leaderboard_["expert"]) == ["marginal"]
    with pytest.raises(InvalidArgumentError, match="`time_limit` must be"):
        SigmaxRegressor(time_limit=-1).fit(X, y)


def test_weights_with_groups_are_those_for_new_groups():
    """Twelve rows of each of 25 groups, whose offsets a categorical column gives away."""
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(50), 12)
    offset = rng.normal(size=50)[group]
    frame = pd.DataFrame({"x": rng.normal(size=600), "site": group.astype(float)})
    y = frame["x"].to_numpy() + offset + 0.1 * rng.normal(size=600)
    old, new = group < 25, group >= 25
    plain = SigmaxRegressor("quick", random_state=0).fit(frame[old], y[old])
    grouped = SigmaxRegressor("quick", random_state=0).fit(frame[old], y[old], groups=group[old])
    scores = [one.predict_dist(frame[new]).crps(y[new]).mean() for one in (plain, grouped)]
    assert scores[1] < scores[0]
    low, high = grouped.predict_interval(frame[new]).T
    assert np.mean((low <= y[new]) & (y[new] <= high)) > 0.8
    known = grouped.leaderboard_.set_index("expert")["log_likelihood"]
    assert known["gp"] < plain.leaderboard_.set_index("expert")["log_likelihood"]["gp"] - 0.3
    with pytest.raises(InvalidArgumentError, match="at least 2 different values"):
        grouped.fit(frame, y, groups=np.ones(600))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        grouped.fit(frame, y, groups=group[:9])
    with pytest.raises(InvalidArgumentError, match=r"one label per row, got shape \(600, 2\)"):
        grouped.fit(frame, y, groups=np.ones((600, 2)))


def test_intervals_hold_in_new_groups_that_a_column_gives_away():
    """Rows of 90 groups with an offset each, and a column that hardly varies within groups."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(290), 6)
    place, offset = rng.normal(0, [[1], [2]], (2, 290))[:, group]
    x, error = rng.normal(0, [[1], [0.3]], (2, len(group)))
    X, y = np.column_stack([place + 0.02 * rng.normal(size=len(group)), x]), x + offset + error
    old = group < 90
    model = SigmaxRegressor("quick", random_state=0).fit(X[old], y[old], groups=group[old])
    low, high = model.predict_interval(X[~old]).T
    assert 0.85 < np.mean((low <= y[~old]) & (y[~old] <= high)) < 0.95


def test_groups_are_labels_of_any_type_and_rows_without_one_are_a_group():
    X, y = smooth(60)
    names = [None if row % 6 == 0 else f"site {row % 6}" for row in range(60)]
    fit = SigmaxRegressor(experts=["linear"], random_state=0).fit
    found = fit(X, y, groups=names).predict(X)
    np.testing.assert_array_equal(found, fit(X, y, groups=np.arange(60) % 6).predict(X))


def test_shares_of_experts_tend_to_the_marginal_off_the_data(model):
    shares = model.predict_shares([[0.0, 0.0], [90.0, 90.0]])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    weights = model.leaderboard_.set_index("expert")["weight"]
    np.testing.assert_allclose(shares.loc[0], weights[shares.columns], atol=1e-3)
    assert shares.loc[1, "marginal"] > 0.99


def test_neighbours_are_those_of_the_experts_that_average_over_rows(model):
    X, y = smooth(200)
    rows, weights = model.explain_neighbors(X[:20] + 0.01, k=5)
    assert rows.shape == weights.shape == (20, 5)
    assert np.all(np.diff(weights) <= 0) and np.all(weights.sum(axis=1) < 1)
    distance = np.linalg.norm(X[rows] - X[:20, None], axis=2)
    assert np.median(distance) < 1.0  # in a square of length 6
    linear = SigmaxRegressor(experts=["linear"]).fit(X, y)
    with pytest.raises(InvalidArgumentError, match="no expert that averages"):
        linear.explain_neighbors(X[:2])


def test_many_rows_are_sampled(monkeypatch):
    monkeypatch.setattr("sigmax.estimators.LARGEST_AT_ONCE", 90)
    X, y = smooth(300)
    model = SigmaxRegressor("quick", random_state=0).fit(pd.DataFrame(X), y)
    rows, _ = model.explain_neighbors(pd.DataFrame(X), k=3)
    assert len(np.unique(rows)) <= 90 and rows.max() > 200
    assert model.predict_dist(pd.DataFrame(X)).crps(y).mean() < 0.3


def test_added_rows_are_followed():
    X, y = smooth(160, seed=7)
    model = SigmaxRegressor("quick", random_state=0).fit(X[:60], y[:60])
    X_new = smooth(300, seed=8)[0]
    truth = np.sin(2 * X_new[:, 0]) + 0.5 * X_new[:, 1]
    before = np.std(model.predict(X_new) - truth)
    linear: Any = model.stack.experts[1].fitted
    once = copy.deepcopy(model).add_rows(X[60:], y[60:])
    assert np.std(once.predict(X_new) - truth) < 0.8 * before
    twice = model.add_rows(X[60:100], y[60:100]).add_rows(X[100:], y[100:])
    np.testing.assert_allclose(twice.predict(X_new), once.predict(X_new), atol=0.02)
    assert twice.explain_neighbors(X[150:151], k=3)[0].max() >= 60
    far = np.array([[40.0, 0.0]])
    gates = [twice.predict_uncertainty(far)["gate"]]
    gates.append(twice.add_rows(far, [3.0]).predict_uncertainty(far)["gate"])
    assert gates[0] > 0.99 and gates[1] < 0.1
    # The linear model is that of a fit to all rows with the same penalty and units.
    found: Any = once.stack.experts[1].fitted
    Z = np.column_stack([np.ones(160), np.asarray(once.model_.encode(once.read(X)).numbers)])
    target = once.model_.target(y[:, None], np.float64)
    penalty = np.diag([0.0, *linear.penalty, *linear.penalty])
    expected = np.linalg.solve(Z.T @ Z + penalty, Z.T @ target)
    np.testing.assert_allclose(found.coefficients, expected[1:], atol=1e-8)
    mean = found.density(once.model_.encode(once.read(X))).mean
    np.testing.assert_allclose(mean, Z @ expected, atol=1e-8)
    residual = target - Z @ expected
    loss = np.sum(residual**2) + linear.penalty * np.sum(expected[1:] ** 2)
    shape = PRIOR_SHAPE + 159 / 2
    np.testing.assert_allclose(found.noise, (PRIOR_RATE + loss / 2) / shape, rtol=1e-6)


@pytest.mark.slow
def test_a_time_limit_stops_the_training_of_networks():
    X, y = smooth(60)
    endless = Local(n_members=1, hidden_sizes=(8,), n_steps=60_000, patience=0)
    model = SigmaxRegressor(experts=[endless], time_limit=2, random_state=0)
    with pytest.warns(TrainingWarning, match="the training of networks ended after"):
        model.fit(X, y)
    assert set(model.leaderboard_["expert"]) == {"marginal", "Local"}
    assert np.isfinite(model.predict_dist(X).log_prob(y)).all()


@pytest.mark.slow
def test_networks_join_the_stack_and_are_saved(tmp_path):
    X, y = smooth(120)
    model = SigmaxRegressor(experts=["linear", "local"], random_state=0).fit(X, y)
    assert set(model.leaderboard_["expert"]) == {"marginal", "linear", "local"}
    model.save(tmp_path / "model")
    again = SigmaxRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.leaderboard_.equals(model.leaderboard_)


def test_held_out_scores_are_those_of_new_rows():
    """Difference of the mean log-likelihoods: below 4 standard errors for this seed."""
    X, y = smooth(300, seed=11)
    model = SigmaxRegressor("quick", random_state=0).fit(X[:150], y[:150])
    unit = y[:150].std()
    new = model.predict_dist(X[150:]).log_prob(y[150:]) + np.log(unit)
    held_out = model.model_.fitted.held_out
    old = held_out.dist.log_prob(held_out.y)[:, 0]
    error = np.hypot(stats.sem(new), stats.sem(old))
    assert abs(new.mean() - old.mean()) < 4 * error


def test_a_saved_stack_with_a_changed_weight_is_an_error(model, tmp_path):
    experts = model.model_.fitted.experts
    assert sum(one.weight for one in experts) == pytest.approx(1)
    object.__setattr__(experts[0], "weight", experts[0].weight + 0.5)
    try:
        with pytest.raises(ValueError, match="sum to 1"):
            model.model_.fitted.check()
    finally:
        object.__setattr__(experts[0], "weight", experts[0].weight - 0.5)
    assert isinstance(model.read(smooth(3)[0]), Table)


def test_an_interruption_keeps_fitted_experts_if_the_progress_is_shown(monkeypatch, capsys):
    def interrupted(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(Local, "fit", interrupted)
    X = np.random.default_rng(0).normal(size=(60, 2))
    experts: Any = ["linear", Local()]
    model = SigmaxRegressor(experts=experts, random_state=0, verbose=1)
    with pytest.warns(TrainingWarning, match="Interrupted: left out Local."):
        model.fit(X, X[:, 0])
    assert set(model.leaderboard_["expert"]) == {"marginal", "linear"}
    assert re.search(r"Without networks: CRPS 0\.\d+, log-likelihood", capsys.readouterr().out)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(verbose=0).fit(X, X[:, 0])
