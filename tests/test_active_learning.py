"""Selected rows against selections by hand."""

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sigmax import MeanVarianceRegressor
from sigmax.active_learning import choose
from sigmax.errors import InvalidArgumentError
from sigmax.paper.uci import split_rows

X_LINE = np.linspace(0, 10, 60)[:, None]
Y_LINE = np.sin(X_LINE[:, 0])


class Stub:
    """A model whose standard deviations are columns of X, the aleatoric half of each."""

    def __init__(self, *columns: int):
        self.columns = list(columns)

    def predict(self, X, return_std=False):
        std = np.asarray(X)[:, self.columns]
        return np.zeros_like(std), std

    def predict_uncertainty(self, X):
        _, total = self.predict(X, return_std=True)
        return {"total": total, "aleatoric": total / 2, "epistemic": np.sqrt(0.75) * total}


def gp(length_scale: float = 1.0) -> GaussianProcessRegressor:
    return GaussianProcessRegressor(RBF(length_scale, "fixed"), alpha=1e-4)


def by_hand(model, X_pool, rng):
    """First column, as a custom acquisition."""
    return np.asarray(X_pool)[:, 0]


@pytest.mark.parametrize("acquisition", ["variance", "epistemic", by_hand])
def test_the_highest_scores_are_chosen_and_ties_go_to_earlier_rows(acquisition):
    pool = np.array([[3.0], [1.0], [5.0], [3.0], [4.0]])
    chosen = choose(Stub(0), pool, 4, acquisition=acquisition)
    np.testing.assert_array_equal(chosen, [2, 4, 0, 3])


def test_information_is_the_expected_gain_of_a_normal():
    pool = np.array([[1.0, 2.0], [3.0, 0.5], [2.0, 9.0]])

    class Noisy(Stub):
        def predict_uncertainty(self, X):
            total = np.asarray(X)[:, 0]
            aleatoric = total / (1 + np.asarray(X)[:, 1])
            return {
                "total": total,
                "aleatoric": aleatoric,
                "epistemic": np.sqrt(total**2 - aleatoric**2),
            }

    parts = Noisy(0).predict_uncertainty(pool)
    entropy = lambda std: 0.5 * np.log(2 * np.pi * np.e * std**2)  # noqa: E731
    gain = entropy(parts["total"]) - entropy(parts["aleatoric"])
    chosen = choose(Noisy(0), pool, 3, acquisition="information")
    np.testing.assert_array_equal(chosen, np.argsort(-gain))
    np.testing.assert_array_equal(choose(Noisy(0), pool, 3), [1, 2, 0])  # another order


def test_outputs_are_added_in_units_of_their_labels():
    pool = np.array([[1.0, 300.0], [2.0, 200.0], [1.9, 290.0]])
    y = np.random.default_rng(0).normal(0, [1.0, 1000.0], (100, 2))
    model = Stub(0, 1)
    np.testing.assert_array_equal(choose(model, pool, 3), [0, 2, 1])  # the second output alone
    np.testing.assert_array_equal(choose(model, pool, 3, y_labelled=y), [1, 2, 0])
    np.testing.assert_array_equal(
        choose(model, pool, 3, y_labelled=pd.DataFrame(y), acquisition="epistemic"), [1, 2, 0]
    )
    with pytest.raises(InvalidArgumentError, match="`y_labelled` must have as many outputs"):
        choose(Stub(0, 1, 1), pool, 1, y_labelled=y)


@pytest.mark.parametrize("wrapped", [False, True])
def test_any_model_with_return_std_finds_the_gap_in_its_data(wrapped):
    outside = X_LINE[(X_LINE[:, 0] < 3) | (X_LINE[:, 0] > 6)]
    model = make_pipeline(StandardScaler(), gp(0.3)) if wrapped else gp()
    model.fit(outside, np.sin(outside[:, 0]))
    (chosen,) = choose(model, X_LINE, 1)
    assert X_LINE[chosen, 0] == pytest.approx(4.5, abs=0.2)


def test_random_selection_is_uniform():
    # 300 draws of 1 in 3, each count within 4.9 standard deviations: 3 seeds in 10^6 fail
    draws = [
        choose(None, np.zeros((3, 1)), 1, acquisition="random", random_state=i)[0]
        for i in range(300)
    ]
    np.testing.assert_allclose(np.bincount(draws, minlength=3), 100, atol=40)


@pytest.mark.parametrize("acquisition", ["epistemic", "information"])
def test_ensembles_choose_rows_where_their_members_disagree(acquisition):
    settings = {"hidden_sizes": (8,), "n_steps": 40, "random_state": 0}
    model = MeanVarianceRegressor(n_members=2, **settings).set_settings(warmup_fraction=0.0)
    pool = pd.DataFrame({"x": X_LINE[40:, 0]})
    model.fit(pd.DataFrame({"x": X_LINE[:40, 0]}), Y_LINE[:40])
    dist = model.predict_dist(pool)
    ratio = 1 if acquisition == "epistemic" else dist.aleatoric_variance
    expected = np.argsort(-dist.epistemic_variance / ratio)[:4]
    np.testing.assert_array_equal(choose(model, pool, 4, acquisition=acquisition), expected)
    alone = MeanVarianceRegressor(**settings).fit(X_LINE, Y_LINE)
    with pytest.raises(InvalidArgumentError, match="needs epistemic uncertainty"):
        choose(alone, X_LINE, 1, acquisition=acquisition)


def test_the_variance_finds_a_rare_region_sooner_than_random_selection():
    def error(acquisition: str, seed: int) -> float:
        rng = np.random.default_rng(seed)
        x = np.where(rng.uniform(size=200) < 0.05, rng.uniform(2, 4, 200), rng.uniform(-1, 1, 200))
        X, y = x[:, None], np.sin(3 * x)
        labelled, pool, _ = split_rows(200, seed)
        labelled = labelled[x[labelled] < 1][:10]  # no one has been to the region
        model = gp(0.5)
        for number in range(8):
            model.fit(X[labelled], y[labelled])
            (row,) = choose(model, X[pool], acquisition=acquisition, random_state=number)
            labelled, pool = np.append(labelled, pool[row]), np.delete(pool, row)
        grid = np.linspace(-1, 4, 200)
        return float(np.mean((model.predict(grid[:, None]) - np.sin(3 * grid)) ** 2))

    seeds = range(5)
    by_variance = [error("variance", seed) for seed in seeds]
    by_chance = [error("random", seed) for seed in seeds]
    assert all(a < b for a, b in zip(by_variance, by_chance, strict=True))


def test_the_split_is_a_partition_in_the_papers_shares():
    parts = split_rows(1000, 1)
    assert [len(part) for part in parts] == [200, 600, 200]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(1000))
    for part, same, other in zip(parts, split_rows(1000, 1), split_rows(1000, 2), strict=True):
        np.testing.assert_array_equal(part, same)
        assert not np.array_equal(part, other)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n": 61}, "`n` must be at most the pool's 60 rows, got 61"),
        ({"n": 0}, "`n` must be a whole number of at least 1"),
        ({"acquisition": "entropy"}, "`acquisition` must be one of epistemic, .* got 'entropy'"),
        ({"acquisition": "epistemic"}, "'epistemic' needs .* got GaussianProcessRegressor"),
        ({"acquisition": "information"}, "`predict_uncertainty"),
        ({"acquisition": lambda *_: np.ones(3)}, r"one score per row, shape \(60,\), got \(3,\)"),
        ({"acquisition": lambda *_: np.full(60, np.nan)}, "must be finite, got 60 scores"),
        ({"model": LinearRegression()}, "`predict_dist.* got LinearRegression"),
        ({"model": StandardScaler()}, "return_std=True.* got StandardScaler"),
    ],
)
def test_invalid_arguments_of_choose_raise_an_error(settings, message):
    settings = {"model": gp(), "n": 1} | settings
    model = settings.pop("model").fit(X_LINE, Y_LINE)
    with pytest.raises(InvalidArgumentError, match=message):
        choose(model, X_LINE, **settings)
