"""The thirteen regression sets of the paper, by name, with their standard splits.

A set is read from ``<name>.npz`` (arrays ``X`` and ``y``) in the data folder or the cache, or its
original file is downloaded and saved as npz in the cache. Checksums of the original files are not
published, so every set is checked against its description: shape, mean and standard deviation of
the target and, where it is known, the content hash of a downloaded set.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from io import BytesIO
from typing import Any, final
from zipfile import ZipFile

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.data.store import (
    DOWNLOADED,
    TIMEOUT,
    cache_folder,
    content_hash,
    load_set,
    original_file,
    read_toml,
)
from sigmax.errors import DataFileError, MissingExtraError
from sigmax.settings import check_choice, check_count

ARCHIVE_URL = "https://archive.ics.uci.edu/static/public"
TOLERANCE = 1e-3
"""Tolerance for mean and standard deviation of the target, in standard deviations."""

Split = tuple[NDArray[np.integer], NDArray[np.integer]]
"""Training rows and test rows."""


def standard_splits(n_rows: int, n_splits: int) -> list[Split]:
    """The 90/10 splits of Hernandez-Lobato and Adams (2015), used by most publications.

    A smaller number returns the first of the same splits.

    Examples
    --------
    >>> train, test = standard_splits(10, 20)[0]
    >>> train, test
    (array([2, 9, 6, 4, 0, 3, 1, 7, 8]), array([5]))
    """
    check_count("n_rows", n_rows, minimum=2)
    check_count("n_splits", n_splits)
    rng = np.random.RandomState(1)  # this generator defines the splits
    n_train = (9 * n_rows + 5) // 10
    orders = (rng.permutation(n_rows) for _ in range(n_splits))
    return [(order[:n_train], order[n_train:]) for order in orders]


@final
@dataclass(frozen=True, kw_only=True)
class Archive:
    """Table in a zip file of the UCI archive."""

    number: int
    slug: str
    member: str
    """File name of the table inside the zip file, in any folder."""
    target: int = -1
    """Column of the target."""
    dropped: tuple[int, ...] = ()
    """Columns that are neither input nor target."""
    delimiter: str | None = ","
    """Delimiter of a text file; None is white space."""
    decimal_comma: bool = False
    n_header: int = 1
    """Number of header lines."""
    first_row: tuple[float, ...] = ()
    """First row of the sheet to read, if several sheets hold the same rows in other orders."""

    def fetch(self) -> tuple[NDArray, NDArray]:
        """Inputs and target; a downloaded zip file is removed after use."""
        name = f"{self.slug}.zip"
        with original_file(name, f"{ARCHIVE_URL}/{self.number}/{name}") as path:
            try:
                with ZipFile(path) as archive:
                    members = {name.rsplit("/", 1)[-1]: name for name in archive.namelist()}
                    return self.read(archive.read(members[self.member]))
            except MissingExtraError:
                raise
            except Exception as error:  # readers raise their own errors for a broken file
                raise DataFileError(f"{path}: cannot read {self.member}: {error!r}.") from error

    def read(self, content: bytes) -> tuple[NDArray, NDArray]:
        if self.member.endswith((".xls", ".xlsx")):
            with MissingExtraError.unless_imported(f"To read {self.member}", "paper"):
                sheets = list(pd.read_excel(BytesIO(content), sheet_name=None).values())
            starting = (s for s in sheets if len(s) and tuple(s.iloc[0]) == self.first_row)
            table = next(starting, sheets[0])
            table = table.dropna(axis=0, how="all").dropna(axis=1, how="all")
            values = table.to_numpy(dtype=np.float64)
        else:
            lines = BytesIO(content.replace(b",", b".") if self.decimal_comma else content)
            layout: dict[str, Any] = {"delimiter": self.delimiter, "skiprows": self.n_header}
            values = np.loadtxt(lines, ndmin=2, encoding="latin1", **layout)
        inputs = np.delete(values, [self.target, *self.dropped], axis=1)
        return inputs, values[:, self.target]


@final
@dataclass(frozen=True, kw_only=True)
class OpenML:
    """Data set of OpenML, for sets that the UCI archive does not have."""

    data_id: int

    def fetch(self) -> tuple[NDArray, NDArray]:
        """Inputs and target; scikit-learn caches the download in our cache folder."""
        from sklearn.datasets import fetch_openml

        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(TIMEOUT)  # scikit-learn sets no timeout
        try:
            table: Any = fetch_openml(
                data_id=self.data_id, data_home=cache_folder() / "openml", as_frame=True
            )
            return table.data.astype(float).to_numpy(), table.target.astype(float).to_numpy()
        except Exception as error:  # network, unknown set, checksum or damaged file
            raise DataFileError(
                f"Fetching data set {self.data_id} from OpenML failed: {error}."
            ) from error
        finally:
            socket.setdefaulttimeout(before)


@final
@dataclass(frozen=True, kw_only=True)
class UCISet:
    """Description and source of a regression set."""

    name: str
    title: str
    n_rows: int
    n_features: int
    target: str
    target_mean: float
    target_std: float
    remark: str
    """Peculiarities of the data."""
    source: Archive | OpenML
    n_splits: int = 20
    n_train: int | None = None
    """Size of the official training part, the first rows; None for the standard splits."""
    content_hash: str | None = None
    """Hash of a downloaded set, if known."""

    def splits(self) -> list[Split]:
        """The official split, or the standard ones."""
        if self.n_train is None:
            return standard_splits(self.n_rows, self.n_splits)
        rows = np.arange(self.n_rows)
        return [(rows[: self.n_train], rows[self.n_train :])]


def describe_set(name: str, values: dict[str, Any]) -> UCISet:
    if "openml" in values:
        return UCISet(name=name, source=OpenML(**values.pop("openml")), **values)
    layout = values.pop("archive")
    layout |= {key: tuple(v) for key, v in layout.items() if isinstance(v, list)}
    if layout.get("delimiter") == "whitespace":
        layout["delimiter"] = None
    return UCISet(name=name, source=Archive(**layout), **values)


UCI_SETS: dict[str, UCISet] = {
    name: describe_set(name, values) for name, values in read_toml("uci.toml").items()
}
"""Descriptions of all sets, by name."""


@final
@dataclass(frozen=True, eq=False)
class RegressionData:
    """Regression set, unscaled and in the row order of its source."""

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    splits: list[Split]
    """Training rows and test rows of every split."""
    description: UCISet

    @cached_property
    def content_hash(self) -> str:
        """Sixteen hex digits that depend on every value of X and y."""
        return content_hash((self.X, self.y), "<f8")


def load_uci(name: str) -> RegressionData:
    """Load one of `UCI_SETS`, from a file or else from its source.

    Raises
    ------
    DataFileError
        If there is no file and the download fails, or if the data are not the set.
    MissingExtraError
        If reading the original file needs a package that is not installed.
    """
    described = UCI_SETS[check_choice("name", name, UCI_SETS)]
    check = partial(check_regression, described)
    X, y = load_set(name, ("X", "y"), described.source.fetch, check, "arrays X and y")
    X, y = (np.ascontiguousarray(array, dtype=np.float64) for array in (X, y))
    return RegressionData(name, X, y, described.splits(), described)


def check_regression(described: UCISet, arrays: Sequence[NDArray], source: str) -> None:
    X, y = arrays
    shapes = (described.n_rows, described.n_features), (described.n_rows,)
    mean, std, known_hash = described.target_mean, described.target_std, described.content_hash
    if (X.shape, y.shape) != shapes:
        problem = f"X and y have the shapes {X.shape} and {y.shape}, not {shapes[0]}, {shapes[1]}"
    elif {X.dtype.kind, y.dtype.kind} - set("fiu"):
        problem = f"X and y are not numbers but {X.dtype} and {y.dtype}"
    elif not (np.isfinite(X).all() and np.isfinite(y).all()):
        problem = "some values are not finite"
    elif max(abs(y.mean() - mean), abs(y.std() - std)) > TOLERANCE * std:
        problem = (
            f"the target has mean {y.mean():.6g} and standard deviation {y.std():.6g}, "
            f"not {mean:.6g} and {std:.6g}"
        )
    elif source == DOWNLOADED and known_hash not in (None, content_hash(arrays, "<f8")):
        problem = f"its content hash is {content_hash(arrays, '<f8')}, not {known_hash}"
    else:
        return
    raise DataFileError(f"{source} is not {described.title}: {problem}.")
