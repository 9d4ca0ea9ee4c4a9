"""Conformal intervals, against sorted lists, all pairs of rows, and new rows of known data."""

import math
import tracemalloc
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import BayesianRidge, LinearRegression
from sklearn.model_selection import RepeatedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sigmax.calibration import ConformalRegressor, ConformalScores, conformal_quantile
from sigmax.errors import InvalidArgumentError, InvalidDataError

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 2))
Y = X[:, 0] + 0.3 * rng.normal(size=200)


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((3, 2)),), "`scores` must be one number per row"),
        (([1.0, math.nan],), "without nan"),
        (([1.0, 2.0], 1.0), "`coverage` must be"),
        (([1.0, 2.0], 0.5, [1.0]), "`sample_weight` must be one finite weight"),
        (([1.0, 2.0], 0.5, [1.0, -1.0]), "`sample_weight` must be one finite weight"),
    ],
)
def test_invalid_arguments_of_the_quantile_raise_an_error(arguments, message):
    with pytest.raises((InvalidArgumentError, InvalidDataError), match=message):
        conformal_quantile(*arguments)


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


class LeastSquares(RegressorMixin, BaseEstimator):
    """A line, and its standard deviation."""

    def fit(self, X, y):
        self.line_ = np.polyfit(X[:, 0], y, 1)
        self.std_ = np.std(y - np.polyval(self.line_, X[:, 0]))
        return self

    def predict(self, X, return_std=False):
        mean = np.polyval(self.line_, X[:, 0])
        return (mean, np.full(len(X), self.std_)) if return_std else mean


@pytest.mark.parametrize("noise", NOISES)
def test_five_folds_of_few_rows_have_about_the_nominal_coverage(noise):
    """Only 0.8 is guaranteed. The standard error of the mean of 60 problems is 0.007."""
    rng, covered = np.random.default_rng(2), []
    for seed in range(60):
        x = rng.uniform(0, 1, (90, 1))
        y = x[:, 0] + NOISES[noise](x[:, 0], rng)
        model = ConformalRegressor(LeastSquares(), cv=5, random_state=seed).fit(x[:40], y[:40])
        lower, upper = model.predict_interval(x[40:], coverage=0.9).T
        covered.append(np.mean((lower <= y[40:]) & (y[40:] <= upper)))
    assert 0.87 < np.mean(covered) < 0.95


def test_groups_have_their_own_coverage():
    """One group is ten times noisier, and the model does not know.

    A thousand held-out and 2,000 new rows in each: a standard error of 0.012, so that one seed in
    10,000 fails. Without groups, about 80 % and 100 % are covered.
    """
    rng = np.random.default_rng(3)
    x, group = rng.normal(size=(8000, 1)), rng.choice(["calm", "noisy"], 8000)
    y = x[:, 0] + np.where(group == "noisy", 10.0, 1.0) * rng.normal(size=8000)
    model = ConformalRegressor(LeastSquares(), calibration_fraction=0.5, random_state=0)
    for cv, n in ((None, 4000), (2, 2000)):
        model.set_params(cv=cv).fit(x[:n], y[:n], groups=group[:n])
        pooled = model.predict_interval(x[4000:])
        own = model.predict_interval(x[4000:], groups=group[4000:])
        is_in = [(b[:, 0] <= y[4000:]) & (y[4000:] <= b[:, 1]) for b in (pooled, own)]
        for label in ("calm", "noisy"):
            rows = group[4000:] == label
            assert is_in[1][rows].mean() == pytest.approx(0.9, abs=0.05)
            assert abs(is_in[0][rows].mean() - 0.9) > 0.05


def test_a_group_that_is_new_or_small_has_infinite_intervals():
    groups = np.where(np.arange(200) < 4, "small", "large")
    model = ConformalRegressor(BayesianRidge(), cv=2, random_state=0).fit(X, Y, groups=groups)
    found = model.predict_interval(X[:3], groups=["large", "small", "new"])
    np.testing.assert_array_equal(np.isinf(found), [[False] * 2, [True] * 2, [True] * 2])
    assert np.isfinite(model.predict_interval(X[:3])).all()


OBJECTS = "BayesianRidge predicts no standard deviation of rows of objects"


@parametrize_with_checks(
    [ConformalRegressor(BayesianRidge(), cv=cv, random_state=0) for cv in (None, 3)],
    expected_failed_checks=lambda _: {"check_dtype_object": OBJECTS},
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_rows_set_aside_are_not_used_for_training():
    model = ConformalRegressor(BayesianRidge(), calibration_fraction=0.25, random_state=0)
    model.fit(X, Y)
    assert len(model.scores_) == 50
    order = np.random.RandomState(0).permutation(200)
    alone = BayesianRidge().fit(X[order[50:]], Y[order[50:]])
    mean, std = alone.predict(X, return_std=True)
    for found, expected in zip(model.predict(X, return_std=True), (mean, std), strict=True):
        np.testing.assert_allclose(found, expected)
    score = np.sort(np.abs(Y - mean)[order[:50]] / std[order[:50]])[45]  # ⌈51 · 0.9⌉ = 46
    expected = np.stack([mean - score * std, mean + score * std], axis=-1)
    np.testing.assert_allclose(model.predict_interval(X, coverage=0.9), expected)


def test_a_prefit_regressor_is_not_refitted():
    fitted = make_pipeline(StandardScaler(), GaussianProcessRegressor(alpha=0.1)).fit(
        X[:99], Y[:99]
    )
    model = ConformalRegressor(fitted, cv="prefit").fit(X[99:], Y[99:])
    assert model.estimators_ == [fitted] and len(model.scores_) == 101
    assert np.isfinite(model.predict_interval(X)).all()
    with pytest.raises(NotFittedError):
        ConformalRegressor(BayesianRidge(), cv="prefit").fit(X, Y)


class Lenient(LinearRegression):
    """Takes any setting of ``predict``, and predicts no standard deviation."""

    def predict(self, X, **settings):
        return super().predict(X)


@pytest.mark.parametrize(
    "plain", [LinearRegression(), make_pipeline(StandardScaler(), LinearRegression()), Lenient()]
)
def test_without_a_standard_deviation_widths_follow_from_absolute_residuals(plain):
    model = ConformalRegressor(plain, calibration_fraction=0.25, random_state=0).fit(X, Y)
    order = np.random.RandomState(0).permutation(200)
    alone = LinearRegression().fit(X[order[50:]], Y[order[50:]])
    width = np.sort(np.abs(Y - alone.predict(X))[order[:50]])[45]  # ⌈51 · 0.9⌉ = 46
    expected = alone.predict(X)[:, None] + np.array([-width, width])
    np.testing.assert_allclose(model.predict_interval(X, coverage=0.9), expected)
    np.testing.assert_allclose(model.predict(X), alone.predict(X))
    with pytest.raises(InvalidArgumentError, match="predicts no standard deviation"):
        model.predict(X, return_std=True)


def test_several_outputs_have_their_own_widths():
    y = np.stack([Y, 10 * Y, rng.normal(size=200)], axis=1)
    process = GaussianProcessRegressor(alpha=0.1, optimizer=cast(Any, None))
    model = ConformalRegressor(process, cv=2, random_state=0)
    found = model.fit(X, y).predict_interval(X)
    assert found.shape == (200, 3, 2)
    for output in range(3):
        alone = model.fit(X, y[:, output]).predict_interval(X)
        np.testing.assert_allclose(found[:, output], alone, rtol=1e-6)


def test_weights_go_to_the_regressor_and_to_the_scores():
    weight = np.where(np.arange(200) < 100, 1.0, 0.0)
    splits = [(np.arange(0, 200, 2), np.arange(1, 200, 2))]
    model = ConformalRegressor(BayesianRidge(), cv=splits).fit(X, Y, sample_weight=weight)
    half = [(np.arange(0, 100, 2), np.arange(1, 100, 2))]
    alone = ConformalRegressor(BayesianRidge(), cv=half).fit(X[:100], Y[:100])
    np.testing.assert_allclose(model.predict_interval(X), alone.predict_interval(X))


class FrameRegressor(RegressorMixin, BaseEstimator):
    """The mean of every category; raises an error for anything but a data frame."""

    def fit(self, X, y):
        assert isinstance(X, pd.DataFrame) and isinstance(y, pd.Series)
        means: Any = y.groupby(X["city"].to_numpy()).mean()
        self.means_ = means.to_dict()
        return self

    def predict(self, X, return_std=False):
        assert isinstance(X, pd.DataFrame)
        mean = np.array([self.means_[city] for city in X["city"]])
        return (mean, np.ones(len(X))) if return_std else mean


@pytest.mark.parametrize("cv", [None, 2, "prefit"])
def test_data_frames_are_passed_on_unchanged(cv):
    city = pd.Categorical(np.where(X[:, 0] > 0, "Oslo", "Rome"))
    frame, y = pd.DataFrame({"city": city}), pd.Series(Y, index=np.arange(200)[::-1])
    estimator = FrameRegressor().fit(frame, y) if cv == "prefit" else FrameRegressor()
    model = ConformalRegressor(estimator, cv=cv, random_state=0).fit(frame, y, groups=frame["city"])
    assert np.isfinite(model.predict_interval(frame, groups=frame["city"])).all()


class NoSpread(FrameRegressor):
    def fit(self, X, y):
        return self

    def predict(self, X, return_std=False):
        return np.zeros(len(X)), np.full(len(X), math.nan)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cv": 1}, "`cv` must be a whole number of at least 2"),
        ({"cv": "all"}, '`cv` must be None, a number of folds, a splitter or "prefit"'),
        ({"cv": RepeatedKFold(n_splits=2, n_repeats=2)}, "`cv` must hold out every row at most"),
        ({"calibration_fraction": 1.0}, "`calibration_fraction` must be"),
        (
            {"estimator": NoSpread()},
            "`estimator` must predict numbers and no negative standard deviation",
        ),
    ],
)
def test_invalid_settings_raise_an_error(settings, message):
    estimator: Any = settings.get("estimator", BayesianRidge())
    with pytest.raises((InvalidArgumentError, InvalidDataError), match=message):
        ConformalRegressor(**{"estimator": estimator} | settings).fit(X, Y)


def test_invalid_data_raise_an_error():
    model = ConformalRegressor(BayesianRidge(), random_state=0).fit(X, Y)
    for rows, cv, message in ((1, None, "rows for calibration"), (3, 4, "as many rows as folds")):
        with pytest.raises(InvalidDataError, match=message):
            ConformalRegressor(BayesianRidge(), cv=cv).fit(X[:rows], Y[:rows])
    with pytest.raises(InvalidDataError, match="`groups` must be one label per row"):
        ConformalRegressor(BayesianRidge()).fit(X, Y, groups=["a"])
    with pytest.raises(InvalidArgumentError, match="only if `fit` was given groups"):
        model.predict_interval(X, groups=np.zeros(200))
    with pytest.raises(InvalidDataError, match="one number per y"):
        ConformalRegressor(BayesianRidge(), cv="prefit").set_params(
            estimator=BayesianRidge().fit(X, Y)
        ).fit(X, np.stack([Y, Y], axis=1))
