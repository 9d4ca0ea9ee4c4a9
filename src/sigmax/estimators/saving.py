"""Fitted models as folders, and back: settings, plain facts and named arrays."""

from abc import ABCMeta, abstractmethod
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import sigmax.files
from sigmax.errors import ModelFileError
from sigmax.files import take_array
from sigmax.version import __version__

__all__ = ["AbstractSavable", "named_leaves", "restore"]

S = TypeVar("S", bound="AbstractSavable")  # beartype knows no Self


class AbstractSavable(BaseEstimator, metaclass=ABCMeta):
    """A scikit-learn estimator that can be written to a folder and read again."""

    n_features_in_: int
    feature_names_in_: np.ndarray

    def save(self, path: str | Path) -> None:
        """Write the fitted model to the folder ``path`` (JSON and safetensors, no pickle).

        An older model in this folder is replaced; a folder with any other file is refused. A
        ``random_state`` that is no int is written as None.
        """
        check_is_fitted(self)
        facts, arrays = self._state()
        params = self.get_params(deep=False)
        if not isinstance(params.get("random_state"), int | np.integer | None):
            params["random_state"] = None  # a generator is no setting that could be written down
        facts["n_features_in"] = self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            facts["feature_names_in"] = list(self.feature_names_in_)
        header = {
            "sigmax": __version__,
            "estimator": type(self).__name__,
            "params": {name: plain(value) for name, value in params.items()},
            "facts": facts,
        }
        sigmax.files.write_model(path, header, arrays)

    @classmethod
    def load(cls: type[S], path: str | Path) -> S:
        """Read a model that `save` wrote; nothing in the folder is ever executed.

        Raises
        ------
        ModelFileError
            If a file is missing, too many or changed in any byte, or holds another model.
        """
        header, arrays = sigmax.files.read_model(path)
        if header.get("estimator") != cls.__name__:
            raise ModelFileError(
                f"{str(path)!r} holds a {header.get('estimator')}, not a {cls.__name__}."
            )
        try:
            params = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in header["params"].items()
            }
            facts = header["facts"]
            estimator = cls(**params)
            estimator.n_features_in_ = int(facts["n_features_in"])
            if "feature_names_in" in facts:
                names = np.asarray(facts["feature_names_in"], dtype=object)
                estimator.feature_names_in_ = names
            for name, array in arrays.items():
                # NaN where nothing was scored, and where cells of training rows were missing.
                may_be_nan = name.startswith("history.") or name == "features.donors"
                if array.dtype.kind == "f" and not may_be_nan and np.isnan(array).any():
                    raise ValueError(f"the array {name!r} holds NaN")
            estimator._set_state(facts, arrays)
            kept = {name: sigmax.files.describe(a) for name, a in estimator._state()[1].items()}
            sigmax.files.check_described(arrays, kept)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            files = f"{sigmax.files.HEADER} and {sigmax.files.ARRAYS}"
            raise ModelFileError(
                f"{str(path)!r} is damaged, {files} do not fit a {cls.__name__}: {error!r}."
            ) from error
        return estimator

    @abstractmethod
    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What was learned: plain facts and named arrays."""

    @abstractmethod
    def _set_state(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Take back what `_state` gave."""


def named_leaves(name: str, tree: Any) -> dict[str, np.ndarray]:
    """Every array of a pytree, by ``name`` and the path that leads to it."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {name + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def restore(skeleton: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """The pytree of the shape of ``skeleton`` that `named_leaves` took ``arrays`` from."""
    leaves = [
        take_array(arrays, path, expected.shape, expected.dtype)
        for path, expected in named_leaves(name, skeleton).items()
    ]
    return jax.tree.unflatten(jax.tree.structure(skeleton), leaves)


def plain(value: Any) -> Any:
    """A setting as JSON takes it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(entry) for entry in value]
    return value
