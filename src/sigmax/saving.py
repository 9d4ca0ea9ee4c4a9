"""Estimators that can be saved to a folder and loaded."""

import sys
from abc import ABCMeta
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import sigmax.files
from sigmax.documents import decode, encode
from sigmax.errors import ModelFileError
from sigmax.version import __version__

S = TypeVar("S", bound="AbstractSavable")  # beartype knows no Self


class AbstractSavable(BaseEstimator, metaclass=ABCMeta):
    """Scikit-learn estimator whose fitted state is the attribute ``model_``."""

    model_type: ClassVar[type]
    """Class of ``model_``."""

    setting_type: ClassVar[type] = type(None)
    """Class of constructor arguments that are not plain values."""

    model_: Any
    """Fitted state, which is immutable."""
    n_features_in_: int
    feature_names_in_: np.ndarray

    def unfitted(self: S) -> S:
        """Unfitted copy with the same settings.

        `fit` trains such a copy and ends with `become`, so that a fit that fails or is
        interrupted does not change the estimator.
        """
        if "jax" in sys.modules:
            from sigmax.compilation import clear_if_full

            clear_if_full()
        copy = object.__new__(type(self))
        learned = {name for name in vars(self) if name.endswith("_")}
        vars(copy).update({name: vars(self)[name] for name in vars(self).keys() - learned})
        return copy

    def become(self: S, fitted: S, model: Any) -> S:
        """Set ``model_``, and the column names of the copy."""
        fitted.model_ = model
        vars(self).clear()
        vars(self).update(vars(fitted))
        return self

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a folder (JSON and safetensors, no pickle).

        An older model in this folder is replaced; a folder with any other file raises an error. A
        ``random_state`` that is not an int is saved as None.

        Parameters
        ----------
        path : str or Path
            Folder of the model, which is created if necessary.

        Returns
        -------
        None

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from sigmax import LinearRegressor
        >>> X = np.linspace(0, 1, 20)[:, None]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     LinearRegressor().fit(X, X[:, 0]).save(f"{folder}/model")
        ...     LinearRegressor.load(f"{folder}/model").predict([[0.5]]).round(2)
        array([0.5])
        """
        check_is_fitted(self)
        params = self.get_params(deep=False)
        if not isinstance(params.get("random_state"), int | np.integer | None):
            params["random_state"] = None  # a generator cannot be saved
        document, arrays = encode(self.model_)
        header = {
            "sigmax": __version__,
            "estimator": type(self).__name__,
            "params": {name: plain(value) for name, value in params.items()},
            "n_features_in": self.n_features_in_,
            "feature_names_in": plain(getattr(self, "feature_names_in_", None)),
            "model": document,
        }
        sigmax.files.write_model(path, header, arrays)

    @classmethod
    def setting(cls, value: Any) -> Any:
        """Constructor argument from the JSON of `save`."""
        if isinstance(value, dict):
            return decode(cls.setting_type, value, {})
        return tuple(value) if isinstance(value, list) else value

    @classmethod
    def load(cls: type[S], path: str | Path) -> S:
        """Load a model that `save` wrote; no code in the folder is executed.

        Parameters
        ----------
        path : str or Path
            Folder of the model.

        Returns
        -------
        fitted estimator

        Raises
        ------
        ModelFileError
            If a file is missing, unknown or changed, or contains another model.

        Examples
        --------
        See `save`.
        """
        header, arrays = sigmax.files.read_model(path)
        if header.get("estimator") != cls.__name__:
            raise ModelFileError(
                f"{str(path)!r} holds a {header.get('estimator')}, not a {cls.__name__}."
            )
        try:
            estimator = cls(**{n: cls.setting(v) for n, v in header["params"].items()})
            estimator.n_features_in_ = int(header["n_features_in"])
            if header["feature_names_in"] is not None:
                names = [str(name) for name in header["feature_names_in"]]
                estimator.feature_names_in_ = np.asarray(names, dtype=object)
            estimator.model_ = decode(cls.model_type, header["model"], arrays)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            files = f"{sigmax.files.HEADER} and {sigmax.files.ARRAYS}"
            raise ModelFileError(
                f"{str(path)!r} is damaged, {files} do not fit a {cls.__name__}: {error!r}."
            ) from error
        return estimator


def plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(entry) for entry in value]
    return encode(value)[0] if is_dataclass(value) else value
