"""The thirteen regression sets of the paper, by name, with their standard splits.

A set is read from ``<name>.npz`` (arrays ``X`` and ``y``) in the data folder or the cache. Where
there is none, its original file is fetched and an npz file is left in the cache. No checksums of
the archive's files are known for sure, so every set is held against its description: the shape,
and mean and standard deviation of the target. Where the original's digits are known, a fetched set
must also have the known content hash; OpenML's files come with checksums of their own.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from sigmax.data.splits import Split
from sigmax.data.store import (
    cache_folder,
    content_hash,
    look_up,
    read_npz,
    where_to_put,
    write_npz,
)
from sigmax.data.uci_sets import UCI_SETS, UCISet
from sigmax.errors import DataFileError, InvalidArgumentError, MissingExtraError

__all__ = ["RegressionData", "load_uci"]

TOLERANCE = 1e-3
"""How far the target's mean and spread may be off, in standard deviations: room for rounding."""


@final
@dataclass(frozen=True, eq=False)
class RegressionData:
    """A regression set, unscaled and in the row order of its source."""

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    splits: list[Split]
    """Rows to train on and rows to test on, for every split."""
    description: UCISet

    @cached_property
    def content_hash(self) -> str:
        """Sixteen digits that change with any value of X or y."""
        return content_hash((self.X, self.y), "<f8")


def load_uci(name: str) -> RegressionData:
    """One of `UCI_SETS` by its name: from a file if there is one, or else from its source.

    Raises
    ------
    DataFileError
        If there is no file and none can be fetched, or if what came is not the set.
    MissingExtraError
        If reading the original file needs a package that is not installed.
    """
    if name not in UCI_SETS:
        raise InvalidArgumentError(f"`name` must be one of {', '.join(UCI_SETS)}; got {name!r}.")
    described = UCI_SETS[name]
    path = look_up(f"{name}.npz")
    if path is None:
        X, y = fetch_regression(described)
    else:
        X, y = read_npz(path, "X", "y")
        check_regression(described, X, y, f"{path} (replace or remove it)")
    X, y = (np.ascontiguousarray(array, dtype=np.float64) for array in (X, y))
    return RegressionData(name, X, y, described.splits(), described)


def fetch_regression(described: UCISet) -> tuple[NDArray, NDArray]:
    """A set from its source, checked and left in the cache."""
    npz = f"{described.name}.npz"
    try:
        X, y = described.source.fetch()
    except ImportError as error:
        raise MissingExtraError(
            f"Reading the original file of {described.name} needs more packages ({error}): "
            '`pip install "sigmax[table]"`.'
        ) from error
    except DataFileError as error:
        ready = where_to_put(f"{npz}, with the arrays X and y,")
        raise DataFileError(f"{error} If you have the set already, {ready}.") from error
    check_regression(described, X, y, "What was fetched")
    found = content_hash((X, y), "<f8")
    if described.content_hash not in (None, found):
        raise DataFileError(
            f"What was fetched is not {described.title}: its content hash is {found}, not "
            f"{described.content_hash}."
        )
    write_npz(cache_folder() / npz, X=X, y=y)
    return X, y


def check_regression(described: UCISet, X: NDArray, y: NDArray, where: str) -> None:
    """Refuse arrays that cannot be the described set."""
    shapes = (described.n_rows, described.n_features), (described.n_rows,)
    mean, std = described.target_mean, described.target_std
    if (X.shape, y.shape) != shapes:
        problem = f"X and y have the shapes {X.shape} and {y.shape}, not {shapes[0]}, {shapes[1]}"
    elif {X.dtype.kind, y.dtype.kind} - set("fiu"):
        problem = f"X and y are not numbers but {X.dtype} and {y.dtype}"
    elif not (np.isfinite(X).all() and np.isfinite(y).all()):
        problem = "there are values that are not finite"
    elif max(abs(y.mean() - mean), abs(y.std() - std)) > TOLERANCE * std:
        problem = (
            f"the target has mean {y.mean():.6g} and standard deviation {y.std():.6g}, "
            f"not {mean:.6g} and {std:.6g}"
        )
    else:
        return
    raise DataFileError(f"{where} is not {described.title}: {problem}.")
