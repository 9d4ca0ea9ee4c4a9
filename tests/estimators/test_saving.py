"""Saved regressors: what is not exactly what was saved is refused, and says so."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from sklearn.base import clone as sklearn_clone

import sigmax
import sigmax.files
from sigmax import CombinedRegressor, GPRegressor
from sigmax.errors import ModelFileError
from sigmax.estimators import find_class, load_estimator
from sigmax.experts import Combined

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
Y = X[:, 0] + 0.1 * rng.normal(size=40)
MODELS = {
    "network": CombinedRegressor(n_members=1, hidden_sizes=(4,), n_steps=20, random_state=0),
    "process": GPRegressor(n_restarts=1, max_iter=2, random_state=0),
}


def clone(model: Any) -> Any:
    return sklearn_clone(model)


@pytest.fixture(scope="module")
def fitted():
    models = {}

    def get(name):
        if name not in models:
            models[name] = clone(MODELS[name]).fit(X, Y)
        return models[name]

    return get


def forge(folder: Path, changes, drop=()) -> None:
    """Other arrays with a header and checksums that fit them, as only a program would write."""
    header, arrays = sigmax.files.read_model(folder)
    arrays = {name: array for name, array in (arrays | changes).items() if name not in drop}
    content = safetensors.numpy.save(arrays)
    header |= {
        "arrays": {name: sigmax.files.describe(array) for name, array in arrays.items()},
        "arrays_sha256": hashlib.sha256(content).hexdigest(),
    }
    del header["sha256"]
    header["sha256"] = sigmax.files.header_checksum(header)
    (folder / sigmax.files.ARRAYS).write_bytes(content)
    (folder / sigmax.files.HEADER).write_bytes(sigmax.files.render(header))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("file", [sigmax.files.HEADER, sigmax.files.ARRAYS])
def test_a_changed_or_missing_file_is_refused_by_its_name(fitted, name, file, tmp_path):
    model = fitted(name)
    model.save(tmp_path / "model")
    path = tmp_path / "model" / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=file):
        type(model).load(tmp_path / "model")
    path.unlink()
    with pytest.raises(ModelFileError, match=file):
        type(model).load(tmp_path / "model")


@pytest.mark.parametrize("name", MODELS)
def test_arrays_that_do_not_fit_the_model_are_refused_even_with_checksums(fitted, name, tmp_path):
    model = fitted(name)
    model.save(tmp_path / "model")
    _, arrays = sigmax.files.read_model(tmp_path / "model")
    starts = ("fitted.networks", "fitted.posterior.points")
    first = next(n for n in arrays if n.startswith(starts) and arrays[n].ndim > 1)
    forgeries = [
        ({"stranger": np.zeros(3)}, (), "'stranger' does not belong"),
        ({}, (first,), "is missing"),
        ({first: arrays[first][..., :-1]}, (), "not"),
        ({first: arrays[first].astype(np.int32)}, (), "int32"),
    ]
    for changes, drop, message in forgeries:
        model.save(tmp_path / "model")
        forge(tmp_path / "model", changes, drop)
        with pytest.raises(ModelFileError, match=rf"arrays\.safetensors .*{message}"):
            type(model).load(tmp_path / "model")


def test_settings_that_do_not_fit_the_model_are_refused_even_with_checksums(fitted, tmp_path):
    fitted("network").save(tmp_path / "model")
    path = tmp_path / "model" / sigmax.files.HEADER
    header = json.loads(path.read_text())
    for params in ({"no_such_setting": 1}, {"preset": {"class": "os.system"}}, [1, 2]):
        changed = {k: v for k, v in header.items() if k != "sha256"} | {"params": params}
        changed["sha256"] = sigmax.files.header_checksum(changed)
        path.write_bytes(sigmax.files.render(changed))
        with pytest.raises(ModelFileError, match=r"model\.json .* do not fit a CombinedRegressor"):
            CombinedRegressor.load(tmp_path / "model")


def reseal(folder: Path, change) -> None:
    """Another header with a checksum that fits it."""
    path = folder / sigmax.files.HEADER
    header = json.loads(path.read_text())
    change(header)
    del header["sha256"]
    header["sha256"] = sigmax.files.header_checksum(header)
    path.write_bytes(sigmax.files.render(header))


@pytest.mark.parametrize("shape", [[10**12], [1, 10**7, 10**7], [-1], ["1"], "all"])
def test_shapes_that_the_file_does_not_have_allocate_nothing(fitted, shape, tmp_path):
    fitted("network").save(tmp_path / "model")

    def forge_shape(header):
        header["model"]["fitted"]["networks"]["mean"]["mlp"]["weights"][0] = shape

    reseal(tmp_path / "model", forge_shape)
    with pytest.raises(ModelFileError, match="do not fit a CombinedRegressor"):
        CombinedRegressor.load(tmp_path / "model")


def test_weights_that_fit_no_other_layer_are_refused(fitted, tmp_path):
    """Shapes are declared and stored, but no row could be predicted with them."""
    fitted("network").save(tmp_path / "model")
    name = "fitted.networks.mean.mlp.weights.0"
    _, arrays = sigmax.files.read_model(tmp_path / "model")
    wide = np.concatenate([arrays[name]] * 2, axis=-1)
    forge(tmp_path / "model", {name: wide})

    def forge_shape(header):
        header["model"]["fitted"]["networks"]["mean"]["mlp"]["weights"][0] = list(wide.shape)

    reseal(tmp_path / "model", forge_shape)
    with pytest.raises(ModelFileError, match="arrays do not fit each other"):
        CombinedRegressor.load(tmp_path / "model")


@pytest.mark.parametrize("forged", ["os.system", "Model", "GPFitted", 7, None])
def test_only_a_class_that_belongs_there_is_made(fitted, forged, tmp_path):
    fitted("network").save(tmp_path / "model")
    reseal(tmp_path / "model", lambda header: header["model"]["fitted"].update({"class": forged}))
    with pytest.raises(ModelFileError, match="do not fit a CombinedRegressor"):
        CombinedRegressor.load(tmp_path / "model")


def test_an_expert_as_preset_is_saved_with_the_model(tmp_path):
    preset = Combined(batch_size=32, hidden_sizes=(4,), gate_scale=1.5, support=(None, 9.0))
    model = CombinedRegressor(preset, n_members=1, n_steps=20, random_state=0).fit(X, Y)
    model.save(tmp_path / "model")
    assert CombinedRegressor.load(tmp_path / "model").preset == preset


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan, np.inf])
def test_scales_that_are_none_are_refused_even_with_checksums(fitted, name, value, tmp_path):
    model = fitted(name)
    for scale in ("target.scaling.scale", "features.scaling.scale"):
        model.save(tmp_path / "model")
        _, arrays = sigmax.files.read_model(tmp_path / "model")
        forge(tmp_path / "model", {scale: np.full_like(arrays[scale], value)})
        with pytest.raises(ModelFileError, match=r"NaN|finite|above 0"):
            type(model).load(tmp_path / "model")


@pytest.mark.parametrize("file", [sigmax.files.HEADER, sigmax.files.ARRAYS])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipes_and_devices_are_refused_at_once(fitted, file, kind, tmp_path):
    fitted("process").save(tmp_path / "model")
    path = tmp_path / "model" / file
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    for load in (load_estimator, GPRegressor.load):
        with pytest.raises(ModelFileError, match=r"not a regular file|no model\.json in it"):
            load(tmp_path / "model")


def test_a_file_longer_than_its_arrays_is_not_read(fitted, tmp_path):
    fitted("process").save(tmp_path / "model")
    with (tmp_path / "model" / sigmax.files.ARRAYS).open("ab") as file:
        file.truncate(1 << 40)  # takes no space on disk
    with pytest.raises(ModelFileError, match=r"more than the .* that belong to the model"):
        load_estimator(tmp_path / "model")


def test_a_generator_is_saved_as_none(tmp_path):
    for random_state in (np.random.default_rng(0), np.random.RandomState(0)):
        model = clone(MODELS["process"]).set_params(random_state=random_state).fit(X, Y)
        model.save(tmp_path / "model")
        loaded = GPRegressor.load(tmp_path / "model")
        assert loaded.random_state is None
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_an_older_model_is_replaced_and_other_files_are_kept(fitted, tmp_path):
    fitted("network").save(tmp_path / "model")
    fitted("process").save(tmp_path / "model")
    np.testing.assert_array_equal(
        GPRegressor.load(tmp_path / "model").predict(X), fitted("process").predict(X)
    )
    (tmp_path / "model" / "notes.txt").write_text("precious")
    with pytest.raises(ModelFileError, match=r"notes\.txt, which would be lost"):
        fitted("network").save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"not belong to the model: notes\.txt"):
        GPRegressor.load(tmp_path / "model")
    assert (tmp_path / "model" / "notes.txt").read_text() == "precious"


def test_a_folder_alone_knows_which_estimator_it_holds(fitted, tmp_path):
    for name in MODELS:
        fitted(name).save(tmp_path / name)
        loaded = load_estimator(tmp_path / name)
        assert type(loaded) is type(MODELS[name])
        np.testing.assert_array_equal(loaded.predict(X), fitted(name).predict(X))
    final = {name for name in sigmax.__all__ if name.endswith("Regressor")}
    assert {find_class(name).__name__ for name in final} == final
    with pytest.raises(ModelFileError, match="no estimator 'VAE'"):
        find_class("VAE")
    with pytest.raises(ModelFileError, match="is not a sigmax model folder"):
        load_estimator(tmp_path)
