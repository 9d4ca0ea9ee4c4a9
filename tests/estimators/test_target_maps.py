"""What networks learn: y or its normal scores, and which of them held-out rows prefer."""

from typing import Any

import numpy as np
import pytest
from estimator_list import COMBINED, LOCAL, SHORT, SPREAD, build, changed, fresh
from table_cases import table_of

from sigmax import CombinedRegressor, LocalRegressor, MeanVarianceRegressor
from sigmax.distributions import Mapped
from sigmax.errors import InvalidArgumentError
from sigmax.experts.ensemble import Pilot, choose_transforms, is_worth_trying
from sigmax.experts.rows import TrainingRows
from sigmax.random import make_key

N = 400
MODELS: dict[str, Any] = {
    "LocalRegressor": build(LocalRegressor, n_members=2, **SHORT | LOCAL),
    "CombinedRegressor": build(CombinedRegressor, n_members=2, **SHORT | COMBINED),
    "MeanVarianceRegressor": build(MeanVarianceRegressor, n_members=2, **SHORT | SPREAD),
}
rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (N, 3))
NOISE = rng.normal(size=N)
Y = np.exp(X[:, 0] + NOISE)
FAR = np.array([[40.0, -40.0, 0.0], [-40.0, 0.0, 60.0]])


def training_rows(y: np.ndarray, X: np.ndarray = X) -> TrainingRows:
    return TrainingRows(table_of(X), y[:, None], np.ones(N), np.arange(N), True)


def choose(model: Any, *targets: TrainingRows) -> list[str]:
    return choose_transforms(model.expert(N).pilot(), targets, [make_key(0)] * len(targets))


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    settings = {"target_map": "normal-scores", "support": (None, None)}
    return changed(MODELS[request.param], **settings).fit(X, Y)


def test_predictions_are_in_units_of_y(model):
    dist = model.predict_dist(X[:50])
    assert model.model_.target.target_map == "normal-scores" and isinstance(dist.dist, Mapped)
    mean, std = model.predict(X[:50], return_std=True)
    np.testing.assert_allclose(mean, dist.mean)
    np.testing.assert_allclose(std, dist.std)
    draws = dist.sample(4000, random_state=0)
    np.testing.assert_allclose(np.median(draws, axis=0), dist.quantile(0.5), rtol=0.2)
    skew = dist.quantile(0.95) - 2 * dist.quantile(0.5) + dist.quantile(0.05)
    assert np.mean(skew > 0) > 0.9
    assert np.isfinite(dist.log_prob(Y[:50])).all() and np.isfinite(dist.crps(Y[:50])).all()
    parts = model.predict_uncertainty(X[:50])
    total = parts["aleatoric"] ** 2 + parts["epistemic"] ** 2
    np.testing.assert_allclose(parts["total"] ** 2, total, rtol=1e-5)


def test_intervals_are_mapped_back(model):
    """Conformal ones are symmetric in what is learned, and so not in units of y."""
    for method in ("distribution", "conformal"):
        wide, narrow = (model.predict_interval(X, coverage=c, method=method) for c in (0.9, 0.5))
        assert np.isfinite(wide).all() and np.all(np.diff(wide, axis=1) > 0)
        assert np.all(wide[:, 0] <= narrow[:, 0]) and np.all(narrow[:, 1] <= wide[:, 1])
        assert np.mean((wide[:, 0] <= Y) & (Y <= wide[:, 1])) > 0.8
    learned = model.model_.target(wide.reshape(-1, 1), np.float64).reshape(wide.shape)
    center = model.model_.target(narrow.reshape(-1, 1), np.float64).reshape(wide.shape).mean(axis=1)
    np.testing.assert_allclose(learned.mean(axis=1), center, atol=0.5)
    assert np.mean(wide.mean(axis=1) > np.asarray(model.predict_dist(X).quantile(0.5))) > 0.9


def test_off_the_data_the_prediction_is_the_marginal_of_y(model):
    if not isinstance(model, CombinedRegressor):
        pytest.skip("has no gate, or goes on with a trend")
    dist = model.predict_dist(FAR)
    for q in (0.1, 0.5, 0.9):
        learned, expected = (
            model.model_.target(np.reshape(v, (-1, 1)))
            for v in (dist.quantile(q), np.quantile(Y, q))
        )
        np.testing.assert_allclose(learned[:, 0], expected[0, 0], atol=0.35)


def test_a_saved_model_keeps_its_map(model, tmp_path):
    model.save(tmp_path / "model")
    again = type(model).load(tmp_path / "model")
    assert again.model_.target.target_map == "normal-scores"
    dist, expected = again.predict_dist(X[:30]), model.predict_dist(X[:30])
    np.testing.assert_array_equal(dist.mean, expected.mean)
    np.testing.assert_array_equal(dist.log_prob(Y[:30]), expected.log_prob(Y[:30]))
    bounds = (m.predict_interval(X[:30], method="conformal") for m in (again, model))
    np.testing.assert_array_equal(*bounds)


def test_log_normal_noise_is_learned_by_its_scores():
    assert choose(MODELS["LocalRegressor"], training_rows(Y)) == ["normal-scores"]


def test_normal_noise_is_learned_as_it_is():
    """The target is skewed, so both are tried; its noise is not."""
    y = np.exp(1.2 * X[:, 0]) + NOISE
    assert is_worth_trying(y[:, None], np.ones(N))
    assert choose(MODELS["LocalRegressor"], training_rows(y)) == ["none"]


def test_a_target_that_is_normal_or_has_few_values_is_not_tried(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("tried")

    monkeypatch.setattr("sigmax.experts.ensemble.fit_models", refuse)
    for y in (NOISE, np.round(Y).clip(0, 8), np.full(N, 3.0)):
        assert choose(MODELS["LocalRegressor"], training_rows(y)) == ["none"]


def test_models_that_are_fitted_together_choose_as_if_alone():
    """One has nothing to choose, one a map, one none, and one has fewer rows to learn from."""
    model = fresh(MODELS["LocalRegressor"])
    repeated = X.copy()
    repeated[:90] = np.repeat(X[:30], 3, axis=0)
    rows = [training_rows(y) for y in (NOISE, Y, NOISE**3)] + [training_rows(Y, repeated)]
    pilots = [Pilot.create(own, make_key(0)) for own in rows]
    assert pilots[0] is None and all(pilots[1:])
    alone = [choose(model, own)[0] for own in rows]
    assert alone[1] == "normal-scores"
    for some in ([0, 1, 2], [1, 3]):
        expected = [alone[number] for number in some]
        assert choose(model, *(rows[number] for number in some)) == expected


@pytest.mark.parametrize(
    ("n_rows", "settings"),
    [(120, {}), (N, {"validation_fraction": 0.0}), (N, {"target_map": "none"})],
    ids=["few rows", "nothing held out", "not asked for"],
)
def test_without_rows_to_decide_there_is_no_map(n_rows, settings, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("tried")

    monkeypatch.setattr("sigmax.experts.ensemble.fit_models", refuse)
    model = changed(MODELS["LocalRegressor"], **{"target_map": "auto"} | settings)
    expert, given = model.expert(n_rows), model.read_training(X[:n_rows], Y[:n_rows])
    assert expert.targets([given], [make_key(0)])[0].target_map == "none"


def test_only_the_default_of_local_decides_by_itself():
    assert LocalRegressor().settings()["target_map"] == "auto"
    assert LocalRegressor("fast").settings()["target_map"] == "none"
    for regressor in (CombinedRegressor, MeanVarianceRegressor):
        expert: Any = regressor().expert()
        assert expert.target_map == "none"
    with pytest.raises(InvalidArgumentError, match="target_map"):
        LocalRegressor(target_map="logarithm").fit(X, Y)
