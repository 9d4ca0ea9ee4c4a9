"""skpro: its own checks pass, and its distributions say what our predictions say."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from skpro.distributions import TDistribution
from skpro.metrics import CRPS
from skpro.utils import check_estimator

from sigmax import MeanVarianceRegressor
from sigmax.distributions import Mixture, Normal, Predictive, StudentT
from sigmax.errors import InvalidArgumentError
from sigmax.integrations.skpro import SkproDistribution, SkproRegressor

ROWS = pd.DataFrame(
    np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"], index=range(100, 160)
)
TARGETS = pd.DataFrame(
    {"y": ROWS["a"] + 0.1 * ROWS["b"], "z": ROWS["b"] ** 2}, index=ROWS.index, dtype=float
)


@pytest.mark.filterwarnings("ignore")  # what its checks warn of is between them and skpro
@pytest.mark.parametrize("tested", [SkproDistribution, SkproRegressor])
def test_all_checks_of_skpro_pass(tested):
    results = check_estimator(tested, verbose=False)
    assert len(results) > 50
    assert {name: str(found) for name, found in results.items() if found != "PASSED"} == {}


def student_t() -> tuple[SkproDistribution, TDistribution]:
    """The same distributions, ours and skpro's."""
    mean, df, scale = np.random.default_rng(1).uniform(2.5, 6, (3, 4, 2))
    ours = SkproDistribution(Predictive(StudentT(mean, df, scale)))
    return ours, TDistribution(mu=mean, sigma=scale, df=df)


@pytest.mark.parametrize("name", ["pdf", "log_pdf", "cdf", "energy"])
def test_a_student_t_is_that_of_skpro(name):
    ours, theirs = student_t()
    x = theirs.mean() + 0.7
    expected = getattr(theirs, name)(x)
    np.testing.assert_allclose(getattr(ours, name)(x), expected, rtol=1e-5)


def test_moments_quantiles_and_the_energy_of_a_student_t_are_those_of_skpro():
    ours, theirs = student_t()
    np.testing.assert_allclose(ours.mean(), theirs.mean(), rtol=1e-6)
    np.testing.assert_allclose(ours.var(), theirs.var(), rtol=1e-5)
    np.testing.assert_allclose(ours.energy(), theirs.energy(), rtol=1e-5)
    pd.testing.assert_frame_equal(ours.quantile([0.1, 0.8]), theirs.quantile([0.1, 0.8]))
    np.testing.assert_array_equal(ours.ppf(0.0), np.full((4, 2), -np.inf))
    np.testing.assert_array_equal(ours.cdf(np.inf), np.ones((4, 2)))


def test_the_norm_of_a_density_is_its_integral():
    dist = SkproDistribution(Predictive(Normal(np.array([3.0]), np.array([2.0]))))
    assert dist.pdfnorm() == pytest.approx(1 / (4 * np.sqrt(np.pi)), rel=1e-3)


def test_some_rows_and_columns_of_a_mixture_are_those_of_the_whole():
    rng = np.random.default_rng(2)
    members = StudentT(rng.normal(size=(3, 5, 2)), np.full((3, 5, 2), 4.0), np.ones((3, 5, 2)))
    dist: Any = SkproDistribution(
        Predictive(Mixture(members)), index=list("pqrst"), columns=["y", "z"]
    )
    whole, part = dist.log_pdf(1.5), dist.loc[["t", "q"], ["z"]]
    np.testing.assert_allclose(part.log_pdf(1.5), whole.loc[["t", "q"], ["z"]], rtol=1e-12)
    assert dist.at["r", "z"].log_pdf(1.5) == pytest.approx(whole.loc["r", "z"], rel=1e-12)
    np.testing.assert_allclose(dist.iloc[1:3].mean(), dist.mean().iloc[1:3], rtol=1e-9)
    np.testing.assert_allclose(dist.iloc[:, [1, 0]].var(), dist.var()[["z", "y"]], rtol=1e-9)


def test_draws_follow_the_global_state_of_numpy_and_have_the_moments():
    dist = SkproDistribution(Predictive(Normal(np.array([0.0, 5.0]), np.array([1.0, 2.0]))))
    np.random.seed(3)  # noqa: NPY002 - it is what skpro and sktime seed
    first = dist.sample(1000)
    np.random.seed(3)  # noqa: NPY002
    pd.testing.assert_frame_equal(first, dist.sample(1000))
    found = first[0].to_numpy().reshape(1000, 2)
    z = (found.mean(axis=0) - [0, 5]) / ([1, 2] / np.sqrt(1000))
    assert np.all(np.abs(z) < 5)  # by chance one seed in a million is beyond


@pytest.fixture(scope="module")
def model() -> SkproRegressor:
    network = MeanVarianceRegressor(n_steps=20, hidden_sizes=(4,), n_members=2, random_state=0)
    return SkproRegressor(network).fit(ROWS, TARGETS)


def test_a_regressor_predicts_what_the_estimator_does(model):
    expected = model.estimator_.predict_dist(ROWS)
    dist = model.predict_proba(ROWS)
    assert dist.index.equals(ROWS.index) and list(dist.columns) == ["y", "z"]
    np.testing.assert_array_equal(model.predict(ROWS), expected.mean)
    np.testing.assert_array_equal(model.predict_var(ROWS), expected.variance)
    np.testing.assert_array_equal(dist.log_pdf(TARGETS), expected.log_prob(TARGETS))
    interval = model.predict_interval(ROWS, coverage=[0.5, 0.9])
    np.testing.assert_allclose(interval["z", 0.9], expected.interval(0.9)[:, 1], rtol=1e-9)
    quantiles = model.predict_quantiles(ROWS, alpha=[0.2, 0.7])
    np.testing.assert_allclose(quantiles["y"], expected.quantile([0.2, 0.7])[:, 0], rtol=1e-9)


def test_the_crps_that_skpro_computes_is_ours(model):
    score = CRPS(multivariate=True).evaluate_by_index(TARGETS, model.predict_proba(ROWS))
    expected = model.estimator_.predict_dist(ROWS).crps(TARGETS).sum(axis=1)
    np.testing.assert_allclose(np.ravel(score), expected, rtol=1e-6)


def test_one_target_is_learned_as_one(model):
    single = SkproRegressor(model.estimator).fit(ROWS, TARGETS[["y"]])
    assert single.estimator_.model_.is_single_output
    dist = single.predict_proba(ROWS[:3])
    assert dist.shape == (3, 1)
    between = dist.cdf(dist.ppf(0.3))
    np.testing.assert_allclose(between, np.full((3, 1), 0.3), rtol=1e-6)


def test_an_estimator_without_distributions_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"with `predict_dist`.*LinearRegression"):
        SkproRegressor(LinearRegression()).fit(ROWS, TARGETS)


def test_an_index_of_another_length_is_refused():
    with pytest.raises(InvalidArgumentError, match="4 rows and 2 columns, got 3 and 2"):
        SkproDistribution(student_t()[0].predictive, index=range(3))
