"""Probabilities of single values: zeros among other values, compared with a known truth.

Of 800 rows, whose share of zeros has a standard error of 0.017 (0.02 in a half of them); 2,000 new
ones. The tolerances of shares are four standard errors.
"""

# Arguments of estimators have the types of their defaults.
# pyright: reportArgumentType=false

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from sigmax import SigmaxRegressor
from sigmax.data.synthetic import make_deliveries
from sigmax.errors import InvalidArgumentError
from sigmax.features import RepeatedValues, TargetUnits
from sigmax.table_model import PredictOptions, SavedTableModel, predict_rows

N, N_NEW, SHAPE = 800, 2000, 3.0


def make_rows(n, seed):
    """Zeros with probability p, and otherwise Gamma values with a mean that depends on x."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.uniform(-2, 2, (n, 2)), columns=["a", "b"])
    p, mean = special.expit(X["a"] - 0.5).to_numpy(), np.exp(1 + 0.5 * X["b"]).to_numpy()
    y = np.where(rng.uniform(size=n) < p, 0.0, rng.gamma(SHAPE, mean / SHAPE))
    return X, y, p, stats.gamma(SHAPE, scale=mean / SHAPE)


def brier(p, y):
    return np.mean((p - (y == 0)) ** 2)


@pytest.fixture(scope="module")
def model():
    X, y, _, _ = make_rows(N, 0)
    return SigmaxRegressor("quick", random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def case(model):
    X, y, p, positive = make_rows(N_NEW, 1)
    return model.predict_dist(X), X, y, p, positive


def test_the_probability_of_zero_is_that_of_the_simulation(case):
    dist, X, y, p, _ = case
    found = dist.probability_of(0)
    assert np.sqrt(np.mean((found - p) ** 2)) < 0.1  # p itself has a standard deviation of 0.23
    for is_low in (X["a"] < 0, X["a"] >= 0):
        assert found[is_low].mean() == pytest.approx(p[is_low].mean(), abs=0.08)
    names = ["a", "b"]
    learned, target, _, _ = make_rows(N, 0)
    logistic = LogisticRegression().fit(learned[names], target == 0).predict_proba(X)[:, 1]
    assert brier(found, y) < brier(logistic, y) + 0.01  # logistic regression is the truth here
    assert brier(found, y) < 0.85 * brier(np.mean(target == 0), y)
    np.testing.assert_array_equal(dist.probability_of(1.5) < 1e-9, True)


def test_cdf_density_quantiles_and_intervals_agree_with_the_simulation(case):
    dist, _, y, p, positive = case
    for value in (0.0, 1.0, 3.0, 8.0):
        expected = np.mean(p + (1 - p) * positive.cdf(value))
        assert dist.cdf(value).mean() == pytest.approx(expected, abs=0.07)
    np.testing.assert_allclose(dist.cdf(0.0), dist.probability_of(0), atol=1e-12)
    below_zero = dist.probability_of(0) > 0.3
    assert np.all(dist.quantile(0.25)[below_zero] == 0) and np.all(dist.interval(0.9) >= 0)
    share = np.mean((dist.interval(0.9)[:, 0] <= y) & (y <= dist.interval(0.9)[:, 1]))
    assert 0.88 <= share <= 0.97  # intervals that begin at 0 hold more
    start = float(np.nextafter(dist.dist.units.cells.max(), np.inf))  # all mass but the atom
    grid = np.linspace(start, 60, 20_000)
    one = dist[np.zeros(len(grid), dtype=int)]
    mass = np.trapezoid(np.exp(one.log_prob(grid)), grid)
    assert mass == pytest.approx(one.cdf(60.0)[0] - one.cdf(start)[0], abs=2e-4)


def test_the_log_score_is_near_that_of_the_truth(case):
    """Logarithm of the probability of zeros, and of the density of other values."""
    dist, _, y, p, positive = case
    found = np.where(y == 0, np.log(dist.probability_of(0)), dist.log_prob(y))
    density = positive.logpdf(np.where(y == 0, 1.0, y))
    missing = np.mean(np.where(y == 0, np.log(p), np.log1p(-p) + density) - found)
    print(f"log score: {missing:.3f} nats below that of the truth")
    assert 0 < missing < 0.08  # 0.036 to 0.047 in four tables of 1,000 rows


def test_draws_are_zero_as_often_as_predicted(case):
    dist = case[0][:200]
    draws = dist.sample(2000, random_state=0)
    error = np.mean(draws == 0, axis=0) - dist.probability_of(0)
    assert np.abs(error).max() < 5 * 0.5 / np.sqrt(2000)
    np.testing.assert_allclose(draws.mean(axis=0), dist.mean, atol=5 * dist.std.max() / 2000**0.5)


def test_predictions_of_a_table_have_a_column_of_every_atom(model, case):
    _, X, _, _, _ = case
    saved = SavedTableModel(model, {"target": "y", "intervals": "distribution"})
    found = predict_rows(saved, X[:20], PredictOptions())
    np.testing.assert_allclose(found["p=0"], model.predict_dist(X[:20]).probability_of(0))


@pytest.mark.parametrize(
    "name, expected",
    [
        ("poisson of mean 3", []),
        ("zero-inflated poisson", [0.0]),
        ("rare events", [0.0]),
        ("3 % zeros among other values", [0.0]),
        ("zeros and a limit", [0.0, 5.0]),
        ("normal", []),
        ("one decimal, some value six times", []),
    ],
)
def test_atoms_are_values_with_a_special_share_of_the_rows(name, expected):
    rng = np.random.default_rng(0)
    y = {
        "poisson of mean 3": rng.poisson(3, N),
        "zero-inflated poisson": np.where(rng.uniform(size=N) < 0.3, 0, rng.poisson(2, N)),
        "rare events": rng.poisson(0.1, N),
        "3 % zeros among other values": np.append(np.zeros(24), rng.gamma(3, 1, N - 24)),
        "zeros and a limit": np.clip(rng.normal(2, 3, N), 0, 5),
        "normal": rng.normal(size=N),
        "one decimal, some value six times": make_deliveries(260)["minutes"].dropna(),
    }[name]
    y = np.asarray(y, float)
    found = RepeatedValues.find(y)
    atoms = [] if found is None else found.atoms(y, np.ones(len(y))).tolist()
    assert atoms == expected


def test_zeros_keep_their_probability_among_hundreds_of_repeated_values(model):
    """As whole dollars: of too many values to give each a probability, the zeros have one."""
    y = np.append(np.zeros(500), np.repeat(np.arange(1.0, 301.0), 5))
    units = TargetUnits.fit(y[:, None], np.ones(len(y)), "auto")
    repeated = units.repeated[0]
    assert repeated is not None and repeated.is_rounded and len(repeated.values) == 301
    atoms = repeated.atoms(y, np.ones(len(y)))
    inputs = model.model_.features(model.read(make_rows(3, 2)[0]), np.float64)
    stack = model.model_.fitted.density(inputs)
    dist = units.distribution(stack, atoms)
    plain = units.distribution(stack)
    shape = np.zeros((3, 1))
    np.testing.assert_allclose(dist.cdf(shape), plain.cdf(shape + 0.5))
    np.testing.assert_allclose(dist.cdf(shape + 7.2), plain.cdf(shape + 7.2))


def test_zeros_of_doctor_visits_are_predicted_as_well_as_by_a_logistic_regression(data_folder):
    """Table of the R package AER, 80 % of 3,870 rows are zeros; 1,500 rows are learned."""
    table = pd.read_csv(data_folder / "panel" / "AER_DoctorVisits.csv.gz")
    table = table.sample(frac=1, random_state=0)
    X, y = table.drop(columns="visits"), table["visits"].to_numpy(float)
    model = SigmaxRegressor("quick", random_state=0).fit(X[:1500], y[:1500])
    found = model.predict_dist(X[1500:]).probability_of(0)
    numbers = pd.get_dummies(X, drop_first=True).astype(float)
    scaling = StandardScaler().fit(numbers[:1500])
    logistic = LogisticRegression(max_iter=1000).fit(
        scaling.transform(numbers[:1500]), y[:1500] == 0
    )
    other = logistic.predict_proba(scaling.transform(numbers[1500:]))[:, 1]
    print(f"Brier scores of no visit: {brier(found, y[1500:]):.4f}, {brier(other, y[1500:]):.4f}")
    assert brier(found, y[1500:]) < brier(other, y[1500:]) + 0.003


def test_a_rare_atom_can_be_declared():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (600, 1))
    y = np.where(rng.uniform(size=600) < 0.01, 0.0, rng.gamma(3.0, 1.0, 600))
    share, plain = np.mean(y == 0), SigmaxRegressor("quick", support=(None, None))
    assert 0 < share < 0.02
    assert np.max(plain.fit(X, y).predict_dist(X).probability_of(0)) < 1e-9
    model = plain.set_params(atoms=[0], random_state=0).fit(X, y)
    dist = model.predict_dist(X)
    assert dist.probability_of(0).mean() == pytest.approx(share, abs=0.008)  # two standard errors
    assert np.mean(dist.sample(20, random_state=0) == 0) == pytest.approx(share, abs=0.008)


@pytest.mark.parametrize(
    ("atoms", "message"),
    [
        ([7.5], r"`atoms` must be values of the target, got \(7\.5,\)"),
        ("zero", r"`atoms` must be a list of numbers, got 'zero'"),
        ([np.nan], r"`atoms` must be a list of numbers, got \[nan\]"),
    ],
)
def test_atoms_that_are_no_values_of_the_target_are_an_error(atoms, message):
    X, y, _, _ = make_rows(50, 0)
    with pytest.raises(InvalidArgumentError, match=message):
        SigmaxRegressor("quick", atoms=atoms).fit(X, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(50), r"`atoms` must be values of the target, got \(7\.0,\)"),
        (np.full((50, 2), 7.0), "`atoms` need a single target: fit one model per output"),
    ],
)
def test_atoms_of_constant_and_of_several_targets_are_an_error(y, message):
    """Probabilities of several targets are continuous, see `TargetUnits.distribution`."""
    with pytest.raises(InvalidArgumentError, match=message):
        SigmaxRegressor("quick", atoms=[7]).fit(make_rows(50, 0)[0], y)
