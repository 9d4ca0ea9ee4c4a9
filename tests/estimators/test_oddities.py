"""Odd but legal data give a finite answer; bad input gets an error that names it."""

import json

import numpy as np
import pytest
from estimator_list import (
    ESTIMATORS,
    NETWORKS,
    X,
    Y,
    build,
    changed,
    fitted,
    fresh,
    make_rows,
    name_of,
)

import sigmax.files
from sigmax import CombinedRegressor, LocalRegressor
from sigmax.errors import InvalidArgumentError, ModelFileError


@pytest.fixture(params=ESTIMATORS, ids=name_of)
def estimator(request):
    return fresh(request.param)


LARGE, LARGE_Y = make_rows(240)
# Of one shape where the oddity allows it, so that one program serves most of them.
LEGAL = {
    "one feature": (X[:, :1], Y),
    "a constant feature": (np.c_[X[:, :2], np.full(120, 7.0)], Y),
    "only constant features": (np.ones((120, 3)), Y),
    "a constant target": (X, np.full(120, 3.5)),
    "a target of zeros": (X, np.zeros(120)),
    "duplicated rows": (np.repeat(X[:8], 15, axis=0), np.repeat(Y[:8], 15)),
    "fewer rows than neighbours": (X[:7], Y[:7]),
    "two rows": (X[:2], Y[:2]),
    "more features than rows": make_rows(20, 50),
    "integers": ((X * 10).astype(int), (Y * 10).astype(int)),
    "single precision": (X.astype(np.float32), Y.astype(np.float32)),
    "a view that is not contiguous": (np.asfortranarray(LARGE)[::2], LARGE_Y[::2]),
    "lists": (X.tolist(), Y.tolist()),
    "tiny targets": (X, 1e-8 * Y),
    "huge targets": (X, 1e8 * Y),
    "a small spread on a large level": (X, 1e8 + Y),
    "huge and tiny features": (X * np.array([1e150, 1e-150, 1.0]), Y),
    "a wild outlier": (np.r_[X[1:], [[1e9, 0, 0]]], np.r_[Y[1:], 0.0]),
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal_oddities_get_finite_answers(estimator, name):
    X, y = LEGAL[name]
    model = estimator.fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()
    dist = model.predict_dist(X)
    assert np.isfinite(dist.log_prob(np.asarray(y, dtype=float))).all()
    assert np.isfinite(dist.interval(0.9)).all()


def test_far_away_inputs_get_finite_answers(estimator):
    model = fitted(estimator)
    mean, std = model.predict([[1e30, -1e30, 0.0], [1e6, 0, 0]], return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(std).all()


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_scores_survive_the_size_of_the_target(estimator, scale):
    reference = fitted(estimator).predict(X)
    found = fresh(estimator).fit(X, scale * Y).predict(X) / scale
    np.testing.assert_allclose(found, reference, rtol=1e-2, atol=1e-2)


def test_a_small_spread_on_a_large_level_is_not_lost(estimator):
    reference = fitted(estimator).predict_dist(X).log_prob(Y).mean()
    found = fresh(estimator).fit(X, Y + 1e8).predict_dist(X).log_prob(Y + 1e8).mean()
    assert found == pytest.approx(reference, abs=0.05)


@pytest.mark.parametrize(
    ("X_bad", "y_bad", "message"),
    [
        (np.where(np.eye(120, 3), np.inf, X), Y, "X contains infinity"),
        (X, np.r_[np.nan, Y[1:]], "y contains NaN"),
        (X, np.r_[np.inf, Y[1:]], "y contains infinity"),
        (X, Y[:-1], "inconsistent numbers of samples"),
        (X[:0], Y[:0], "0 sample"),
        (X[:1], Y[:1], "1 sample"),
        (X + 1j, Y, "[Cc]omplex data"),
        (X[:, 0], Y, "1D array"),
    ],
)
def test_bad_training_data_are_named(estimator, X_bad, y_bad, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(X_bad, y_bad)


def test_wrong_width_at_predict_is_named(estimator):
    with pytest.raises(ValueError, match="3 features"):
        fitted(estimator).predict(X[:, :2])


def test_bad_weights_are_named(estimator):
    with pytest.raises(ValueError, match=r"[Nn]egative values in data.*sample_weight"):
        estimator.fit(X, Y, sample_weight=np.r_[-1.0, np.ones(119)])
    with pytest.raises(ValueError, match=r"(?i)sample.weight"):
        estimator.fit(X, Y, sample_weight=np.zeros(120))
    with pytest.raises(ValueError, match="sample_weight"):
        estimator.fit(X, Y, sample_weight=np.ones(119))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_members", 0),
        ("n_members", 2.5),
        ("preset", "papre"),
        ("hidden_sizes", (0,)),
        ("hidden_sizes", 50),
        ("activation", "swishy"),
        ("n_steps", -1),
        ("n_steps", True),
        ("learning_rate", "slow"),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("validation_fraction", 0.9),
        ("patience", -1),
        ("verbose", "yes"),
    ],
)
@pytest.mark.parametrize("network", NETWORKS, ids=name_of)
def test_a_bad_setting_of_a_network_is_named(network, name, value):
    with pytest.raises(InvalidArgumentError, match=f"`{name}`"):
        if name in network.get_params():
            fresh(network).set_params(**{name: value}).fit(X, Y)
        elif hasattr(network.expert(), name):
            changed(network, **{name: value}).fit(X, Y)
        else:
            pytest.skip(f"{type(network).__name__} has no {name}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("locality", 1),
        ("split", "no"),
        ("learning_rate", (1e-3, 1e-3)),
        ("variance_learning_rate", 0.0),
        ("n_primary", (3, 1)),
        ("n_secondary", 0),
        ("variance_n_neighbors", 0),
        ("n_inducing", 0),
        ("gate_scale", -1.0),
        ("min_concentration", 1.0),
        ("prior_variance", 0.0),
        ("variance_steps", 0),
        ("warmup_fraction", 1.5),
        ("weight_decay", -1.0),
        ("variance_weight_decay", -1.0),
    ],
)
def test_a_bad_setting_of_combined_is_named(name, value):
    with pytest.raises(InvalidArgumentError, match=f"`{name}`"):
        build(CombinedRegressor, **{name: value}).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("embedding_size", 0),
        ("n_waves", 1.5),
        ("frequency", 0.0),
        ("input_scale", -1.0),
        ("min_concentration", 1.0),
        ("prior_rows", 0.0),
        ("effort", 0.0),
        ("n_queries", 0),
        ("weight_decay", -1.0),
        ("error_weight", -0.1),
        ("recalibrate", 1),
    ],
)
def test_a_bad_setting_of_local_is_named(name, value):
    with pytest.raises(InvalidArgumentError, match=f"`{name}`"):
        build(LocalRegressor, **{name: value}).fit(X, Y)


@pytest.fixture
def folder(estimator, tmp_path):
    fitted(estimator).save(tmp_path / "model")
    return tmp_path / "model"


def test_a_missing_or_damaged_model_is_named(estimator, folder, tmp_path):
    load = type(estimator).load
    with pytest.raises(ModelFileError, match=r"no model\.json"):
        load(tmp_path / "nowhere")
    arrays = (folder / "arrays.safetensors").read_bytes()
    (folder / "arrays.safetensors").write_bytes(arrays[: len(arrays) // 2])
    with pytest.raises(ModelFileError, match="damaged"):
        load(folder)
    (folder / "arrays.safetensors").write_bytes(arrays)
    (folder / "model.json").write_text("{")
    with pytest.raises(ModelFileError, match="damaged"):
        load(folder)


def test_a_model_from_a_newer_version_is_refused(estimator, folder):
    header = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**header, "format": 99}))
    with pytest.raises(ModelFileError, match="newer sigmax"):
        type(estimator).load(folder)


def test_arrays_of_the_wrong_shape_are_refused(estimator, folder):
    header = json.loads((folder / "model.json").read_text())
    header["model"]["target"]["scaling"]["mean"] = [2]
    facts = {name: value for name, value in header.items() if name != "sha256"}
    forged = {**facts, "sha256": sigmax.files.header_checksum(facts)}
    (folder / "model.json").write_bytes(sigmax.files.render(forged))
    with pytest.raises(ModelFileError, match="damaged"):
        type(estimator).load(folder)


def test_another_estimators_model_is_refused(estimator, folder):
    header = json.loads((folder / "model.json").read_text())
    facts = {name: value for name, value in header.items() if name != "sha256"}
    facts["estimator"] = "os.system"
    forged = {**facts, "sha256": sigmax.files.header_checksum(facts)}
    (folder / "model.json").write_bytes(sigmax.files.render(forged))
    with pytest.raises(ModelFileError, match=r"holds a os\.system"):
        type(estimator).load(folder)


def test_an_unwritable_folder_is_named(estimator, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelFileError, match="cannot be written"):
        fitted(estimator).save(tmp_path / "file" / "model")
