"""Estimators on tables of numbers, categories, times and gaps."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone as clone_any

from sigmax import (
    BayesianRegressor,
    CombinedRegressor,
    GPRegressor,
    LinearRegressor,
    LocalRegressor,
    MCDropoutRegressor,
    MeanVarianceRegressor,
    SparseGPRegressor,
)
from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.estimators import fit_together

N_ROWS = 240


def clone(model: Any) -> Any:
    """An unfitted copy, of a type that type checkers do not guess at."""
    return clone_any(model)


SMALL: dict[str, Any] = {"n_steps": 30, "n_members": 2, "random_state": 0}
MODELS = {
    "Local": LocalRegressor("fast", hidden_sizes=(16,), **SMALL),
    "Combined": CombinedRegressor("fast", hidden_sizes=(16,), **SMALL),
    "MeanVariance": MeanVarianceRegressor("fast", hidden_sizes=(16,), **SMALL),
    "MCDropout": MCDropoutRegressor("fast", hidden_sizes=(16,), **SMALL),
    "Bayesian": BayesianRegressor("fast", hidden_sizes=(16,), **SMALL),
    "GP": GPRegressor(n_restarts=1, max_iter=20, random_state=0),
    "SparseGP": SparseGPRegressor(n_inducing=50, n_restarts=1, max_iter=20, random_state=0),
    "Linear": LinearRegressor(),
}
PROCESSES = {"GP", "SparseGP"}
OFF_DATA = {"Local", "Combined"}
"""Those that know where the data are."""


@pytest.fixture(scope="module")
def rents():
    """Rents: by size, quarter (of many names), heating, year of signing; one column has gaps."""
    rng = np.random.default_rng(0)
    quarters = np.array([f"quarter {i}" for i in range(8)])
    quarter, size = rng.integers(0, 8, N_ROWS), rng.uniform(20, 120, N_ROWS)
    heating = rng.choice(["gas", "oil", "none"], N_ROWS, p=[0.6, 0.37, 0.03])
    signed = pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 1500, N_ROWS), unit="D")
    noise = np.where(heating == "oil", 40.0, 10.0)
    rent = 10 * size + 30 * quarter + 50 * (heating == "gas") + noise * rng.normal(size=N_ROWS)
    frame = pd.DataFrame(
        {
            "size": size,
            "floor": np.where(rng.random(N_ROWS) < 0.3, np.nan, rng.integers(0, 9, N_ROWS)),
            "quarter": quarters[quarter],
            "heating": heating,
            "balcony": rng.random(N_ROWS) < 0.5,
            "signed": signed,
        }
    )
    return frame, rent


@pytest.fixture(scope="module")
def fitted(rents):
    frame, rent = rents
    return {name: clone(model).fit(frame, rent) for name, model in MODELS.items()}


@pytest.mark.parametrize("name", MODELS)
def test_tables_are_learned_from(fitted, rents, name):
    frame, rent = rents
    mean, std = fitted[name].predict(frame, return_std=True)
    assert np.all(np.isfinite(mean)) and np.all(std > 0)
    assert np.corrcoef(mean, rent)[0, 1] > 0.5
    assert list(fitted[name].feature_names_in_) == list(frame)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("name", MODELS)
def test_the_same_row_gives_the_same_answer_in_any_batch_order_and_type(fitted, rents, name):
    frame, _ = rents
    frame = frame.iloc[:64]
    model = fitted[name]
    dist = model.predict_dist(frame)
    texts = frame.astype({"quarter": "category", "heating": object, "floor": "Float64"})
    texts["signed"] = frame["signed"].dt.strftime("%Y-%m-%d")
    texts["balcony"] = frame["balcony"].astype(str)
    for other in (frame[frame.columns[::-1]], texts, pl.from_pandas(frame), frame.to_numpy(object)):
        np.testing.assert_array_equal(model.predict_dist(other).mean, dist.mean)
        np.testing.assert_array_equal(model.predict_dist(other).std, dist.std)
    turned = model.predict_dist(frame.iloc[::-1])
    np.testing.assert_allclose(turned.mean[::-1], dist.mean, rtol=1e-5)
    np.testing.assert_allclose(model.predict_dist(frame.iloc[[7]]).mean, dist.mean[[7]], rtol=1e-5)


@pytest.mark.parametrize("name", ["Local", "Combined"])
def test_the_order_of_rows_and_columns_and_types_do_not_change_a_fit(fitted, rents, name):
    frame, rent = rents
    shuffle = np.random.default_rng(1).permutation(N_ROWS)
    other = frame.iloc[shuffle][frame.columns[::-1]].astype({"quarter": "category"})
    again = clone(MODELS[name]).fit(other, rent[shuffle])
    expected = fitted[name].predict_dist(frame)
    np.testing.assert_array_equal(again.predict_dist(frame).mean, expected.mean)
    np.testing.assert_array_equal(again.predict_dist(frame).std, expected.std)
    if name == "Local":
        rows, weights = fitted[name].explain_neighbors(frame.iloc[:5], k=3)
        shuffled, same = again.explain_neighbors(frame.iloc[:5], k=3)
        np.testing.assert_array_equal(shuffle[shuffled], rows)
        np.testing.assert_array_equal(weights, same)


@pytest.mark.parametrize(
    "change",
    [{"heating": "coal"}, {"size": np.nan}, {"heating": None}, {"signed": pd.NaT}],
    ids=["new level", "new gap in numbers", "new gap in categories", "new gap in times"],
)
@pytest.mark.parametrize("name", MODELS)
def test_unknown_cells_are_averaged_over_and_do_not_discard_the_other_columns(
    fitted, rents, name, change
):
    frame = rents[0].iloc[:100]
    new, model = frame.assign(**change), fitted[name]
    mean, std = model.predict(new, return_std=True)
    before, before_std = model.predict(frame, return_std=True)
    assert np.all(np.isfinite(mean)) and np.all(std > 0)
    assert std.mean() > 0.99 * before_std.mean()
    if "size" in change:  # networks of 30 steps hardly use it
        assert name not in PROCESSES or std.mean() > 1.02 * before_std.mean()
    else:
        assert np.corrcoef(before, mean)[0, 1] > 0.8
    if name in OFF_DATA:
        assert (
            np.mean(model.predict_gate(new) > 0.5)
            <= np.mean(model.predict_gate(frame) > 0.5) + 0.05
        )
    np.testing.assert_allclose(model.predict(new.iloc[[7]]), mean[[7]], rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_saved_models_carry_the_schema(fitted, rents, name, tmp_path):
    frame, model = rents[0].iloc[:20], fitted[name]
    model.save(tmp_path / "model")
    for again in (type(model).load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        new = frame.assign(heating="coal", size=np.nan)
        np.testing.assert_array_equal(again.predict_dist(new).mean, model.predict_dist(new).mean)
        assert again.model_.features.schema == model.model_.features.schema
        with pytest.raises(InvalidDataError, match="Column 'heating' is missing"):
            again.predict(frame.drop(columns="heating"))


def test_kinds_can_be_told(rents):
    frame, rent = rents
    coded = frame.assign(quarter=frame["quarter"].str[-1].astype(int))
    model = clone(MODELS["MeanVariance"]).set_params(categorical_features=["quarter"])
    kinds = {c.name: c.kind.value for c in model.fit(coded, rent).model_.features.schema}
    assert kinds["quarter"] == "category" and kinds["size"] == "number"
    assert model.settings().keys().isdisjoint({"categorical_features", "numeric_features"})
    with pytest.raises(InvalidArgumentError, match="'street', which is no column"):
        clone(MODELS["MeanVariance"]).set_params(categorical_features=["street"]).fit(coded, rent)


def test_arrays_with_gaps_are_learned_from(rents):
    frame, rent = rents
    X = frame[["size", "floor"]].to_numpy(dtype=float)
    model = clone(MODELS["MeanVariance"]).fit(X, rent)
    assert np.all(np.isfinite(model.predict(X)))
    np.testing.assert_array_equal(
        model.predict(X), clone(MODELS["MeanVariance"]).fit(X.tolist(), rent).predict(X)
    )


def test_several_targets_and_weights(rents):
    frame, rent = rents
    y = np.column_stack([rent, -rent])
    weight = np.ones(N_ROWS)
    weight[:10] = 0
    model = clone(MODELS["MeanVariance"]).fit(frame, y, weight)
    assert model.predict(frame).shape == (N_ROWS, 2)
    absent = clone(MODELS["MeanVariance"]).fit(frame.iloc[10:], y[10:])
    np.testing.assert_allclose(absent.predict(frame), model.predict(frame), rtol=1e-4)


@pytest.mark.parametrize("cell", ["missing", None])
def test_rows_of_weight_zero_do_not_shape_the_schema(rents, cell):
    frame, rent = rents
    numbers = pd.DataFrame({"size": frame["size"], "floor": np.arange(N_ROWS, dtype=float)})
    strange = pd.DataFrame({"size": [cell, 30.0], "floor": [1.0, None]}, dtype=object)
    model = clone(MODELS["MeanVariance"])
    expected = model.fit(numbers, rent).predict(numbers)
    weight = np.r_[np.ones(N_ROWS), 0.0, 0.0]
    model.fit(pd.concat([numbers, strange]), np.r_[rent, 0.0, 0.0], sample_weight=weight)
    assert model.model_.features.schema.is_plain
    np.testing.assert_array_equal(model.predict(numbers), expected)


def test_tables_of_one_shape_are_fitted_together(fitted, rents):
    frame, rent = rents
    models = [clone(MODELS["Local"]) for _ in range(2)]
    fit_together(models, [(frame, rent), (frame, rent)])
    for model in models:
        np.testing.assert_allclose(
            model.predict(frame), fitted["Local"].predict(frame), rtol=1e-3, atol=1e-2
        )


def coordinates(model, frame) -> np.ndarray:
    """Encoded rows as distances see them."""
    return model.model_.encode(model.read(frame)).coordinates


@pytest.mark.parametrize("name", sorted(PROCESSES))
def test_the_levels_of_a_column_share_a_length_scale(fitted, rents, name):
    """Size, floor, signed, the gaps of floor, the year, then balcony, heating and quarter."""
    model, frame = fitted[name], rents[0]
    groups = model.model_.features.length_scale_groups()
    assert coordinates(model, frame).shape == (N_ROWS, len(groups)) and groups[-1] == max(groups)
    assert model.length_scale_.shape == (max(groups) + 1,)
    categories = range(max(groups) - 2, max(groups) + 1)
    assert [groups.count(group) for group in categories] == [2, 3, 8]
    varied = frame.iloc[[0] * 8].assign(quarter=sorted(frame["quarter"].unique()))
    apart = np.linalg.norm(np.diff(coordinates(model, varied), axis=0), axis=1)
    np.testing.assert_allclose(apart, 1, rtol=1e-6)


def test_a_process_of_few_rows_averages_over_tables_too(rents):
    frame, rent = rents
    columns = ["size", "quarter"]
    model = GPRegressor(n_restarts=1, noise="varying", random_state=0)
    model.fit(frame[columns].iloc[:120], rent[:120])
    mean, std = model.predict(frame[columns].iloc[120:], return_std=True)
    plain = GPRegressor(n_restarts=1, random_state=0).fit(frame[["size"]].iloc[:120], rent[:120])
    error = np.sqrt(np.mean((mean - rent[120:]) ** 2))
    assert error < 0.7 * np.sqrt(np.mean((plain.predict(frame[["size"]][120:]) - rent[120:]) ** 2))
    assert 0.7 < np.sqrt(np.mean(((mean - rent[120:]) / std) ** 2)) < 1.4
