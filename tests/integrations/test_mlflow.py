"""MLflow: models come back as they were, serve as functions of frames, and bring no code."""

import sys
from typing import Any

import mlflow
import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
import yaml
from mlflow.models import Model
from mlflow.types import DataType
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import sigmax
import sigmax.integrations.mlflow as flavor
from sigmax import LocalRegressor, MeanVarianceRegressor
from sigmax.errors import InvalidArgumentError, ModelFileError

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(RNG.normal(size=(60, 2)), columns=["a", "b"])
TARGET = ROWS["a"].to_numpy() + 0.3 * RNG.normal(size=60)
TINY = {"n_steps": 20, "hidden_sizes": (4,), "n_members": 2, "random_state": 0}


@pytest.fixture(scope="module")
def model() -> MeanVarianceRegressor:
    return MeanVarianceRegressor(**TINY).fit(ROWS, TARGET)  # pyright: ignore[reportReturnType]


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Runs and models in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # its databases need SQLAlchemy
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.create_experiment("tested", artifact_location=(tmp_path / "artifacts").as_uri())
    mlflow.set_experiment("tested")
    yield tmp_path
    mlflow.set_tracking_uri("")


def test_a_model_comes_back_from_its_folder(model, tmp_path):
    flavor.save_model(model, tmp_path / "saved")
    loaded = flavor.load_model(str(tmp_path / "saved"))
    assert isinstance(loaded, MeanVarianceRegressor)
    np.testing.assert_array_equal(loaded.predict(ROWS), model.predict(ROWS))
    names = sorted(file.name for file in (tmp_path / "saved" / "model").iterdir())
    assert names == ["arrays.safetensors", "model.json"]
    assert not list((tmp_path / "saved").rglob("*.pkl"))


def test_a_served_model_gives_mean_spread_interval_and_quantiles(model, tmp_path):
    flavor.save_model(model, tmp_path / "saved", input_example=ROWS[:3])
    served = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    found, dist = served.predict(ROWS), model.predict_dist(ROWS)
    expected = ["mean", "std", "lower", "upper", "off_data", "q0.05", "q0.5", "q0.95"]
    assert found.columns.tolist() == expected
    np.testing.assert_array_equal(found["std"], dist.std)
    np.testing.assert_array_equal(found[["lower", "upper"]], dist.interval(0.9))
    np.testing.assert_array_equal(found["q0.95"], dist.quantile(0.95))
    asked = served.predict(ROWS, params={"coverage": 0.5, "quantiles": [0.2]})
    np.testing.assert_array_equal(asked[["lower", "upper"]], dist.interval(0.5))
    np.testing.assert_array_equal(asked["q0.2"], dist.quantile(0.2))
    assert "q0.05" not in asked


def test_the_record_has_a_signature_an_example_and_the_version(model, tmp_path):
    flavor.save_model(model, tmp_path / "saved", input_example=ROWS[:3], metadata={"by": "test"})
    record = Model.load(str(tmp_path / "saved"))
    assert record.signature.inputs.input_names() == ["a", "b"]
    assert [spec.name for spec in record.signature.params] == ["coverage", "quantiles"]
    assert record.metadata == {"by": "test"}
    assert record.flavors["python_function"]["loader_module"] == "sigmax.integrations.mlflow"
    assert record.flavors["sigmax"]["sigmax_version"] == sigmax.__version__
    pd.testing.assert_frame_equal(record.load_input_example(str(tmp_path / "saved")), ROWS[:3])
    wanted = (tmp_path / "saved" / "requirements.txt").read_text()
    assert wanted == f"sigmax[mlflow]=={sigmax.__version__}\n"


def test_without_an_example_the_signature_is_that_of_the_numbers(model, tmp_path):
    signature: Any = flavor.signature_of(model, None)
    assert signature.inputs.input_types() == [DataType.double] * 2
    of_arrays = MeanVarianceRegressor(**TINY).fit(ROWS.to_numpy(), TARGET)
    signature = flavor.signature_of(of_arrays, None)
    assert signature.inputs.inputs[0].shape == (-1, 2)
    flavor.save_model(of_arrays, tmp_path / "saved")
    served = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    found = served.predict(ROWS.to_numpy())
    np.testing.assert_array_equal(found["mean"], of_arrays.predict(ROWS.to_numpy()))


def test_outputs_are_told_apart_by_their_numbers(tmp_path):
    targets = np.stack([TARGET, -TARGET], axis=1)
    several = MeanVarianceRegressor(**TINY).fit(ROWS, targets)
    found = flavor.ServedModel(several).predict(ROWS)
    np.testing.assert_array_equal(found[["mean_0", "mean_1"]], several.predict(ROWS))
    assert "off_data" in found and "q0.5_1" in found


def test_a_logged_model_is_found_by_its_address(model, store):
    with mlflow.start_run():
        logged = flavor.log_model(model, "forecaster", registered_model_name="demand")
    loaded = flavor.load_model(logged.model_uri)
    np.testing.assert_array_equal(loaded.predict(ROWS), model.predict(ROWS))
    served = mlflow.pyfunc.load_model("models:/demand/1")
    np.testing.assert_array_equal(served.predict(ROWS)["mean"], model.predict(ROWS))


def test_loading_runs_no_code_of_the_folder(model, tmp_path):
    flavor.save_model(model, tmp_path / "saved")
    (tmp_path / "saved" / "code").mkdir()
    module = f"raise SystemExit('{tmp_path}')"
    (tmp_path / "saved" / "code" / "brought_along.py").write_text(module)
    record = yaml.safe_load((tmp_path / "saved" / "MLmodel").read_text())
    for name in ("sigmax", "python_function"):
        record["flavors"][name] |= {"code": "code", "loader_module": "brought_along"}
        record["flavors"][name]["data"] = "../elsewhere"
    (tmp_path / "saved" / "MLmodel").write_text(yaml.safe_dump(record))
    before = list(sys.path)
    loaded = flavor.load_model(str(tmp_path / "saved"))
    np.testing.assert_array_equal(loaded.predict(ROWS), model.predict(ROWS))
    assert sys.path == before and "brought_along" not in sys.modules


def test_a_folder_with_files_a_changed_byte_or_another_model_is_refused(model, tmp_path):
    flavor.save_model(model, tmp_path / "saved")
    with pytest.raises(ModelFileError, match="it is not empty"):
        flavor.save_model(model, tmp_path / "saved")
    arrays = tmp_path / "saved" / "model" / "arrays.safetensors"
    content = bytearray(arrays.read_bytes())
    content[-1] ^= 1
    arrays.write_bytes(content)
    with pytest.raises(ModelFileError):
        flavor.load_model(str(tmp_path / "saved"))
    (tmp_path / "other").mkdir()
    with pytest.raises(ModelFileError, match="is not a sigmax model folder"):
        flavor.load_model(str(tmp_path / "other"))


def test_a_model_that_is_not_ours_or_not_fitted_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        flavor.save_model(LocalRegressor(), tmp_path / "first")
    with pytest.raises(InvalidArgumentError, match="estimator of sigmax, got LinearRegression"):
        flavor.save_model(LinearRegression(), tmp_path / "second")
    assert list(tmp_path.iterdir()) == []
