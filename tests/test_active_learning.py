"""Selected rows against selections by hand, resumed runs against uninterrupted ones."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sigmax import MeanVarianceRegressor
from sigmax.active_learning import (
    Round,
    active_learning_rounds,
    choose,
    split_for_active_learning,
)
from sigmax.errors import InvalidArgumentError, InvalidDataError

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


def rounds(**settings: Any) -> list[Round]:
    """A run on the line, from ten of its rows."""
    start = {"labelled": range(0, 60, 6), "pool": [i for i in range(60) if i % 6]}
    counts = {"n_rounds": 4, "n_per_round": 3, "random_state": 7}
    chosen: dict[str, Any] = {"estimator": gp(), **start, **counts, **settings}
    return list(active_learning_rounds(X=X_LINE, y=Y_LINE, **chosen))


def assert_same(run: list[Round], other: list[Round]):
    assert [step.number for step in run] == [step.number for step in other]
    for step, twin in zip(run, other, strict=True):
        for name in ("labelled", "pool", "chosen"):
            np.testing.assert_array_equal(getattr(step, name), getattr(twin, name))


@pytest.mark.parametrize("acquisition", ["variance", "epistemic", by_hand])
def test_without_diversity_the_highest_scores_are_chosen_and_ties_go_to_earlier_rows(acquisition):
    pool = np.array([[3.0], [1.0], [5.0], [3.0], [4.0]])
    chosen = choose(Stub(0), pool, 4, acquisition=acquisition)
    np.testing.assert_array_equal(chosen, [2, 4, 0, 3])


def test_with_diversity_each_row_has_the_highest_discounted_score():
    rng = np.random.default_rng(0)
    pool = rng.uniform(1, 2, (30, 3)) * [1.0, 10.0, 0.1]
    for diversity in (0.1, 0.5, 2):
        taken = []
        for _ in range(8):
            worth = np.full(30, -np.inf)
            for i in set(range(30)) - set(taken):
                gaps = [((pool[i] - pool[j]) / pool.std(axis=0)) ** 2 for j in taken]
                nearest = min((gap.mean() for gap in gaps), default=np.inf)
                worth[i] = pool[i, 0] ** 2 * (1 - np.exp(-nearest / (2 * diversity**2)))
            taken.append(int(np.argmax(worth)))
        np.testing.assert_array_equal(choose(Stub(0), pool, 8, diversity=diversity), taken)


def test_two_distinct_rows_give_two_rows_whatever_the_scores_of_the_others():
    places = np.array([[0.0], [0.0], [1.0], [0.0], [1.0]])
    settings = {"acquisition": lambda *_: [3.0, 2.9, 1.0, 2.9, 2.8], "diversity": 0.5}
    np.testing.assert_array_equal(choose(None, places, 2, **settings), [0, 4])
    with pytest.raises(InvalidArgumentError, match=r"hold at least 3 different rows .* got 2"):
        choose(None, places, 3, **settings)


def test_a_tiny_diversity_only_separates_duplicates():
    pool = np.array([[5.0], [1.0], [5.0], [4.0], [5.0]])
    np.testing.assert_array_equal(choose(Stub(0), pool, 3), [0, 2, 4])
    np.testing.assert_array_equal(choose(Stub(0), pool, 3, diversity=1e-6), [0, 3, 1])


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


def test_each_round_fits_a_clone_to_the_rows_chosen_before():
    estimator = gp()
    run = rounds(estimator=estimator)
    assert not hasattr(estimator, "X_train_")
    assert [step.number for step in run] == [0, 1, 2, 3]
    known, pool = set(range(0, 60, 6)), {i for i in range(60) if i % 6}
    for step in run:
        assert set(step.labelled) == known and set(step.pool) == pool
        np.testing.assert_array_equal(step.model.X_train_, X_LINE[step.labelled])
        expected = step.pool[choose(step.model, X_LINE[step.pool], 3)]
        np.testing.assert_array_equal(step.chosen, expected)
        known, pool = known | set(step.chosen), pool - set(step.chosen)


@pytest.mark.parametrize(
    "settings",
    [{"acquisition": "random"}, {"diversity": 0.3}, {"acquisition": "random", "diversity": 0.3}],
)
def test_a_run_depends_neither_on_its_length_nor_on_the_order_of_indices(settings):
    whole, shuffled = rounds(**settings), np.random.default_rng(0).permutation
    start = {"labelled": shuffled(whole[0].labelled), "pool": shuffled(whole[0].pool)}
    assert_same(whole[:2], rounds(**settings, **start, n_rounds=2))


def test_random_selection_is_reproducible_but_differs_between_rounds():
    everywhere = {"n_per_round": 5, "acquisition": "random"}
    run = rounds(**everywhere)
    assert_same(run, rounds(**everywhere))
    other = rounds(**everywhere, random_state=8)
    assert any(set(a.chosen) != set(b.chosen) for a, b in zip(run, other, strict=True))
    places = [np.searchsorted(step.pool, step.chosen) for step in run]
    assert len({tuple(own) for own in places}) == 4  # not the same random numbers
    pool = X_LINE[:20]
    np.testing.assert_array_equal(
        choose(gp(), pool, 9, acquisition="random", random_state=3),
        choose(gp(), pool, 9, acquisition="random", random_state=3),
    )


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
    frame = pd.DataFrame({"x": X_LINE[:, 0]})
    start = {"labelled": range(40), "pool": range(40, 60), "n_rounds": 1, "n_per_round": 4}
    (step,) = active_learning_rounds(
        model, frame, pd.Series(Y_LINE), **start, acquisition=acquisition
    )
    dist = step.model.predict_dist(frame.iloc[40:])
    ratio = 1 if acquisition == "epistemic" else dist.aleatoric_variance
    expected = 40 + np.argsort(-dist.epistemic_variance / ratio)[:4]
    np.testing.assert_array_equal(step.chosen, expected)
    alone = MeanVarianceRegressor(**settings).fit(X_LINE, Y_LINE)
    with pytest.raises(InvalidArgumentError, match="needs epistemic uncertainty"):
        choose(alone, X_LINE, 1, acquisition=acquisition)


def test_the_variance_finds_a_rare_region_sooner_than_random_selection():
    def error(acquisition: str, seed: int) -> float:
        rng = np.random.default_rng(seed)
        x = np.where(rng.uniform(size=200) < 0.05, rng.uniform(2, 4, 200), rng.uniform(-1, 1, 200))
        X, y = x[:, None], np.sin(3 * x)
        labelled, pool, _ = split_for_active_learning(200, seed)
        labelled = labelled[x[labelled] < 1][:10]  # no one has been to the region
        settings = {"n_rounds": 8, "n_per_round": 1, "acquisition": acquisition}
        *_, last = active_learning_rounds(
            gp(0.5), X, y, labelled=labelled, pool=pool, random_state=seed, **settings
        )
        grid = np.linspace(-1, 4, 200)
        return float(np.mean((last.model.predict(grid[:, None]) - np.sin(3 * grid)) ** 2))

    seeds = range(5)  # it was so on each of 60 that we tried
    by_variance = [error("variance", seed) for seed in seeds]
    by_chance = [error("random", seed) for seed in seeds]
    assert all(a < b for a, b in zip(by_variance, by_chance, strict=True))


def test_the_split_is_a_partition_in_the_papers_shares():
    parts = split_for_active_learning(1000, random_state=1)
    assert [len(part) for part in parts] == [200, 600, 200]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(1000))
    for part, same, other in zip(
        parts,
        split_for_active_learning(1000, random_state=1),
        split_for_active_learning(1000, random_state=2),
        strict=True,
    ):
        np.testing.assert_array_equal(part, same)
        assert not np.array_equal(part, other)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n": 61}, "`n` must be at most the pool's 60 rows, got 61"),
        ({"n": 0}, "`n` must be a whole number of at least 1"),
        ({"acquisition": "entropy"}, "`acquisition` must be one of clusters, .* got 'entropy'"),
        ({"acquisition": "epistemic"}, "'epistemic' needs .* got GaussianProcessRegressor"),
        ({"acquisition": "information"}, "`predict_uncertainty"),
        ({"diversity": -1.0}, "`diversity` must be a finite number"),
        ({"acquisition": lambda *_: np.ones(3)}, r"one score per row, shape \(60,\), got \(3,\)"),
        ({"acquisition": lambda *_: np.full(60, np.nan)}, "must be finite, got 60 scores"),
        ({"acquisition": lambda *_: -np.ones(60), "diversity": 1}, "at least 0 .* got -1"),
        ({"model": LinearRegression()}, "`predict_dist.* got LinearRegression"),
        ({"model": StandardScaler()}, "return_std=True.* got StandardScaler"),
    ],
)
def test_invalid_arguments_of_choose_raise_an_error(settings, message):
    settings = {"model": gp(), "n": 1} | settings
    model = settings.pop("model").fit(X_LINE, Y_LINE)
    with pytest.raises(InvalidArgumentError, match=message):
        choose(model, X_LINE, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"labelled": range(6)}, "`labelled` and `pool` must not overlap, got 5 rows in both"),
        ({"labelled": [0, 0]}, "`labelled` must be one or more different row numbers"),
        ({"labelled": []}, "`labelled` must be"),
        ({"pool": [60]}, "`pool` must be one or more different row numbers from 0 to 59"),
        ({"pool": [1, 2]}, "`pool` must hold 4 rounds of 3 rows, 12, got 2"),
        ({"n_rounds": 0}, "`n_rounds` must be"),
        ({"n_per_round": 0}, "`n_per_round` must be"),
        ({"acquisition": "entropy"}, "`acquisition` must be one of"),
    ],
)
def test_invalid_arguments_of_a_run_raise_an_error_before_it_starts(settings, message):
    start = {"labelled": [0], "pool": range(1, 60), "n_rounds": 4, "n_per_round": 3}
    with pytest.raises(InvalidArgumentError, match=message):
        active_learning_rounds(gp(), X_LINE, Y_LINE, **start | settings)


def test_different_numbers_of_rows_and_labels_raise_an_error():
    with pytest.raises(
        InvalidDataError, match="`X` and `y` must have the same length, got 60 and 3"
    ):
        active_learning_rounds(gp(), X_LINE, [1, 2, 3], labelled=[0], pool=[1], n_per_round=1)
