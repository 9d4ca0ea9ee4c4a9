"""MLflow: a flavour for our models, which can also be served as functions of a data frame.

It needs MLflow, ``pip install "sigmax[mlflow]"``. A model is stored in our own format, JSON and
safetensors, and `load_model` reads nothing else. MLflow's own ``mlflow.pyfunc.load_model`` imports
the module that the file ``MLmodel`` names: it is for trusted folders only.
"""

import sys
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from sigmax.errors import InvalidArgumentError, MissingExtraError, ModelFileError
from sigmax.estimators import AbstractRegressor, load_estimator
from sigmax.tables import Kind
from sigmax.version import __version__

with MissingExtraError.unless_imported("sigmax.integrations.mlflow needs MLflow", "mlflow"):
    from mlflow import artifacts, pyfunc
    from mlflow.models import Model, ModelSignature, infer_signature
    from mlflow.models.utils import _save_example
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec
    from mlflow.utils.environment import _mlflow_conda_env, _PythonEnv

FLAVOR_NAME = "sigmax"

DATA, MLMODEL = "model", "MLmodel"
REQUIREMENTS, CONDA, PYTHON = "requirements.txt", "conda.yaml", "python_env.yaml"

COVERAGE, QUANTILES = 0.9, (0.05, 0.5, 0.95)
PARAMS = ParamSchema(
    [
        ParamSpec("coverage", DataType.double, COVERAGE),
        ParamSpec("quantiles", DataType.double, list(QUANTILES), shape=(-1,)),
    ]
)


def save_model(
    model: Any,
    path: str | Path,
    *,
    signature: ModelSignature | None = None,
    input_example: Any = None,
    pip_requirements: list[str] | None = None,
    metadata: dict[str, Any] | None = None,
    mlflow_model: Model | None = None,
) -> None:
    """Write a fitted model to a folder of MLflow.

    Parameters
    ----------
    model : estimator
        Fitted estimator of sigmax.
    path : str or Path
        A folder that does not exist, or is empty.
    signature : mlflow.models.ModelSignature, optional
        By default, it is inferred from the input example or, without one, from the columns of the
        model if all are numbers. Other models have no signature.
    input_example : array or data frame, optional
        Example rows, stored with the model.
    pip_requirements : list of str, optional
        Packages of the served model; by default this version of sigmax.
    metadata : dict, optional
        Stored in the file ``MLmodel``.
    mlflow_model : mlflow.models.Model, optional
        Record to add to, which MLflow passes.
    """
    if not isinstance(model, AbstractRegressor):
        raise InvalidArgumentError(f"`model` must be an estimator of sigmax, got {model!r}.")
    check_is_fitted(model)
    folder = Path(path)
    if folder.exists() and any(folder.iterdir()):
        raise ModelFileError(f"Cannot write the model to {str(path)!r}: it is not empty.")
    folder.mkdir(parents=True, exist_ok=True)
    record = Model() if mlflow_model is None else mlflow_model
    model.save(folder / DATA)
    if input_example is not None:
        _save_example(record, input_example, str(folder))
    if signature is None:
        signature = signature_of(model, input_example)
    if signature is not None:
        record.signature = signature
    if metadata is not None:
        record.metadata = metadata
    pyfunc.add_to_model(
        record, loader_module=__name__, data=DATA, conda_env=CONDA, python_env=PYTHON
    )
    record.add_flavor(
        FLAVOR_NAME, sigmax_version=__version__, estimator=type(model).__name__, data=DATA
    )
    record.model_size_bytes = sum(file.stat().st_size for file in (folder / DATA).iterdir())
    record.save(str(folder / MLMODEL))
    requirements = pip_requirements or [f"sigmax[mlflow]=={__version__}"]
    (folder / REQUIREMENTS).write_text("\n".join(requirements) + "\n", encoding="utf-8")
    _mlflow_conda_env(str(folder / CONDA), additional_pip_deps=requirements, install_mlflow=False)
    _PythonEnv.current().to_yaml(str(folder / PYTHON))


def log_model(model: Any, name: str = "model", **options: Any) -> Any:
    """Log a fitted model to the active run, or to a new one.

    Parameters
    ----------
    model : estimator
        Fitted estimator of sigmax.
    name : str
        Name of the model in the run.
    options
        Options of `save_model` and of ``mlflow.models.Model.log``, such as
        ``registered_model_name`` and ``tags``.

    Returns
    -------
    mlflow.models.model.ModelInfo
        Record of the model; `load_model` takes its ``.model_uri``.
    """
    flavor = sys.modules[__name__]
    return Model.log(artifact_path=None, name=name, flavor=flavor, model=model, **options)


def load_model(model_uri: str, dst_path: str | None = None) -> AbstractRegressor:
    """Read a model that `save_model` or `log_model` wrote; nothing in its folder is executed.

    Parameters
    ----------
    model_uri : str
        A folder, or one of MLflow's addresses, such as ``models:/...`` and ``runs:/.../model``.
    dst_path : str, optional
        Folder for downloads.
    """
    folder = artifacts.download_artifacts(str(model_uri), dst_path=dst_path)
    return load_estimator(Path(folder) / DATA)


def _load_pyfunc(path: str) -> "ServedModel":
    """Called by ``mlflow.pyfunc.load_model``."""
    return ServedModel(load_estimator(path))


@final
class ServedModel:
    """Fitted model as MLflow serves it: rows in, a data frame of predictions out.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import GPRegressor
    >>> from sigmax.integrations.mlflow import ServedModel
    >>> X = np.linspace(0, 6, 30)[:, None]
    >>> model = GPRegressor(average=False, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> ServedModel(model).predict(X[:2], {"quantiles": [0.1, 0.9]}).columns.tolist()
    ['mean', 'std', 'lower', 'upper', 'q0.1', 'q0.9']
    """

    def __init__(self, model: AbstractRegressor):
        self.model = model

    def predict(self, rows: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Mean, standard deviation, interval and quantiles of every row.

        Parameters
        ----------
        rows : data frame or array
            Rows with the columns of the training data.
        params : dict, optional
            ``coverage`` of the interval, by default 0.9, and the levels of the ``quantiles``,
            by default 0.05, 0.5 and 0.95.

        Returns
        -------
        pd.DataFrame
            Columns ``mean``, ``std``, ``lower``, ``upper``, ``off_data`` if the estimator predicts
            it, and ``q0.05`` and so on; ``mean_0``, ``mean_1``, ... for several outputs.
        """
        asked = {"coverage": COVERAGE, "quantiles": QUANTILES} | (params or {})
        levels = [float(level) for level in np.atleast_1d(asked["quantiles"])]
        dist, gate = self.model.predict_dist_and_gate(rows)
        interval = dist.interval(float(asked["coverage"]))
        columns = {"mean": dist.mean, "std": dist.std}
        columns |= {"lower": interval[..., 0], "upper": interval[..., 1]}
        columns |= {} if gate is None else {"off_data": gate}
        columns |= {f"q{level:g}": dist.quantile(level) for level in levels}
        index = rows.index if isinstance(rows, pd.DataFrame) else None
        found = {}
        for name, values in columns.items():
            outputs = (
                [name] if values.ndim == 1 else [f"{name}_{i}" for i in range(values.shape[1])]
            )
            found |= dict(zip(outputs, values.reshape(len(values), -1).T, strict=True))
        return pd.DataFrame(found, index=index)


def signature_of(model: AbstractRegressor, input_example: Any) -> ModelSignature | None:
    """Signature of an example, or else of a model whose columns are all numbers."""
    if input_example is not None:
        predicted = ServedModel(model).predict(input_example)
        found = infer_signature(input_example, predicted)
        return ModelSignature(inputs=found.inputs, outputs=found.outputs, params=PARAMS)
    schema = model.model_.features.schema
    if any(column.kind is not Kind.NUMBER for column in schema):
        return None
    if hasattr(model, "feature_names_in_"):
        inputs = Schema([ColSpec(DataType.double, str(n)) for n in model.feature_names_in_])
    else:
        inputs = Schema([TensorSpec(np.dtype(np.float64), (-1, model.n_features_in_))])
    return ModelSignature(inputs=inputs, params=PARAMS)
