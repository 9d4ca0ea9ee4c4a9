"""Models whose kind only their folder knows."""

from pathlib import Path

from sigmax.errors import ModelFileError
from sigmax.estimators.base import AbstractRegressor
from sigmax.estimators.bayesian import BayesianRegressor
from sigmax.estimators.combined import CombinedRegressor
from sigmax.estimators.dropout import MCDropoutRegressor
from sigmax.estimators.gaussian_process import GPRegressor, SparseGPRegressor
from sigmax.estimators.local import LocalRegressor
from sigmax.estimators.mean_variance import MeanVarianceRegressor
from sigmax.estimators.plain import LinearRegressor, MarginalRegressor
from sigmax.files import HEADER, read_bytes, read_header

__all__ = ["find_class", "load_estimator"]

CLASSES: tuple[type[AbstractRegressor], ...] = (
    BayesianRegressor,
    CombinedRegressor,
    GPRegressor,
    LinearRegressor,
    LocalRegressor,
    MCDropoutRegressor,
    MarginalRegressor,
    MeanVarianceRegressor,
    SparseGPRegressor,
)


def find_class(name: str) -> type[AbstractRegressor]:
    """A final estimator of the package by its name."""
    for known in CLASSES:
        if known.__name__ == name:
            return known
    raise ModelFileError(f"There is no estimator {name!r} in this sigmax.")


def load_estimator(path: str | Path) -> AbstractRegressor:
    """Read a model of any of our estimators that `save` wrote; nothing in it is ever executed.

    Raises
    ------
    ModelFileError
        If a file is missing, too many or changed in any byte, or holds no estimator of ours.
    """
    header = Path(path) / HEADER
    if not header.is_file():
        raise ModelFileError(f"{str(path)!r} is not a sigmax model folder: no {HEADER} in it.")
    return find_class(str(read_header(header, read_bytes(header)).get("estimator"))).load(path)
