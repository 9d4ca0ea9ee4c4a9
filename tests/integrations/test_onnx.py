"""ONNX: another runtime computes the parameters of our predictions, and what it cannot is said."""

from copy import deepcopy
from typing import Any

import equinox as eqx
import numpy as np
import onnxruntime
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logsumexp
from sklearn.exceptions import NotFittedError

from sigmax import CombinedRegressor, GPRegressor, LocalRegressor, MeanVarianceRegressor
from sigmax.errors import InvalidArgumentError
from sigmax.integrations.onnx import export, to_onnx
from sigmax.targets import TargetUnits

RNG = np.random.default_rng(0)
X = RNG.normal([5, 0, -300], [1, 10, 100], size=(120, 3))
Y = 1000 + 40 * (X[:, 0] - 5) + 5 * RNG.normal(size=120)
NEW = np.concatenate([X[:20] + 0.1, X[:4] * 3, np.full((1, 3), np.nan), [[np.nan, 0, -250]]])

SHORT: dict[str, Any] = {"hidden_sizes": (8,), "n_steps": 60, "n_members": 2, "random_state": 0}
NEAR: dict[str, Any] = {"n_neighbors": 8, "n_inducing": 256}
SPREAD: dict[str, Any] = {"n_secondary": 8, "variance_n_neighbors": 8, "variance_n_secondary": 8}
MODELS: dict[str, Any] = {
    "combined": CombinedRegressor(**SHORT, **NEAR, **SPREAD),
    "ensemble": MeanVarianceRegressor(**SHORT, activation="tanh"),
    "local": LocalRegressor(**SHORT, **NEAR, n_queries=8, n_waves=4, n_trees=0, target_map="none"),
}


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    return {name: deepcopy(model).fit(X, Y) for name, model in MODELS.items()}


def evaluate(model, rows) -> dict[str, Any]:
    """What another runtime computes."""
    session = onnxruntime.InferenceSession(
        to_onnx(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [entry.name for entry in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": rows}), strict=True))


def compare(model, rows=NEW) -> dict[str, Any]:
    """The parameters of both, which have to be the same."""
    found, dist = evaluate(model, rows), model.predict_dist(rows).dist
    ours = {"loc": dist.components.mean, "scale": dist.components.unit}
    if "df" in found:
        ours["df"] = dist.components.df
    log_weight = dist.log_weight
    equal = np.full(ours["loc"].shape, 1 / len(ours["loc"]))
    ours["weight"] = equal if log_weight is None else np.exp(log_weight)
    expected = {name: np.moveaxis(part, 0, -1) for name, part in ours.items()}
    assert found["loc"].shape == expected["loc"].shape and found["loc"].dtype == np.float64
    error = np.abs(found["loc"] - expected["loc"]) / expected["scale"]
    assert error.max() < 1e-4
    for name in found.keys() - {"loc"}:
        np.testing.assert_allclose(found[name], expected[name], rtol=5e-5, atol=1e-6)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_ours_on_the_data_off_the_data_and_with_gaps(fitted, name):
    found = compare(fitted[name])
    assert ("df" in found) == (name != "ensemble")
    assert len(NEW) == len(found["loc"])


@pytest.mark.parametrize("name", MODELS)
def test_the_density_of_the_parameters_is_ours(fitted, name):
    found = evaluate(fitted[name], X[:30])
    components: Any = stats.norm(found["loc"], found["scale"])
    if "df" in found:
        components = stats.t(found["df"], found["loc"], found["scale"])
    log_prob = logsumexp(components.logpdf(Y[:30, None]), b=found["weight"], axis=1)
    expected = fitted[name].predict_dist(X[:30]).log_prob(Y[:30])
    np.testing.assert_allclose(log_prob, expected, atol=5e-5)


def with_networks(model, **parts) -> Any:
    """A copy with other numbers in all members of its networks."""
    copy = deepcopy(model)
    for name, number in parts.items():
        leaf = getattr(copy.networks_, name)
        number = np.full_like(leaf, number)
        copy.networks_ = eqx.tree_at(lambda n, name=name: getattr(n, name), copy.networks_, number)
    if isinstance(copy, LocalRegressor):
        copy._set_rows(copy.rows_)
    return copy


@pytest.mark.parametrize("name", MODELS)
def test_shrinkage_and_factors_of_held_out_rows_are_applied(fitted, name):
    parts = {"shrinkage": 0.3, "factor": 1.4}
    parts |= {"most_df": 7.0} if name == "local" else {}
    compare(with_networks(fitted[name], **parts))


def test_several_outputs_and_steps_of_a_grid(fitted):
    targets = np.stack([np.round(Y / 10), Y], axis=1)
    model = deepcopy(MODELS["local"]).fit(X, targets)
    assert model.units_.step[0] > 0
    assert compare(model)["loc"].shape[:2] == (len(NEW), 2)


def test_an_exported_file_takes_any_number_of_rows_and_says_what_it_is(fitted, tmp_path):
    export(fitted["combined"], tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for n_rows in (1, 7):
        loc: Any = session.run(["loc"], {"X": X[:n_rows]})[0]
        assert loc.shape == (n_rows, 2)
    about = session.get_modelmeta().custom_metadata_map
    assert about["estimator"] == "CombinedRegressor" and about["components"] == "StudentT"


def test_what_cannot_be_exported_is_refused(fitted):
    with pytest.raises(NotFittedError):
        to_onnx(LocalRegressor())
    process = GPRegressor(average=False, n_restarts=1, max_iter=5).fit(X[:20], Y[:20])
    with pytest.raises(InvalidArgumentError, match="got a GPRegressor"):
        to_onnx(process)
    table = pd.DataFrame(X[:, :2]).assign(kind=["a", "b"] * 60)
    table.columns = table.columns.astype(str)
    with pytest.raises(InvalidArgumentError, match="categories, times or gaps"):
        to_onnx(deepcopy(MODELS["ensemble"]).fit(table, Y))
    mapped = deepcopy(fitted["ensemble"])
    mapped.units_ = TargetUnits.fit(Y[:, None], np.ones(120), "normal-scores")
    with pytest.raises(InvalidArgumentError, match='fit it with `target_map="none"`'):
        to_onnx(mapped)
    forests, nearest = deepcopy(fitted["local"]), deepcopy(fitted["local"])
    forests.forests_ = nearest.predictor_.nearest = object()
    with pytest.raises(InvalidArgumentError, match="fit it with `n_trees=0`"):
        to_onnx(forests)
    with pytest.raises(InvalidArgumentError, match="32,768 rows at most"):
        to_onnx(nearest)
