"""Where original files come from, and how numbers are read from them."""

import socket
from dataclasses import dataclass
from io import BytesIO
from typing import Any, final
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from sigmax.data.store import TIMEOUT, cache_folder, original_file
from sigmax.errors import DataFileError

__all__ = ["ARCHIVE_URL", "Archive", "OpenML"]

ARCHIVE_URL = "https://archive.ics.uci.edu/static/public"


@final
@dataclass(frozen=True, kw_only=True)
class Archive:
    """A table in a zip file of the UCI archive."""

    number: int
    slug: str
    member: str
    """The table's file name inside the zip file, in whichever folder."""
    target: int = -1
    """The target's column."""
    dropped: tuple[int, ...] = ()
    """Columns that are neither input nor target."""
    delimiter: str | None = ","
    """What stands between columns of text; None is white space."""
    decimal_comma: bool = False
    n_header: int = 1
    """Lines of text before the numbers."""
    first_row: tuple[float, ...] = ()
    """Which sheet to take of several with the same rows shuffled: the one that starts so."""

    def fetch(self) -> tuple[NDArray, NDArray]:
        """Inputs and target; a zip file that had to be downloaded is not kept."""
        name = f"{self.slug}.zip"
        with original_file(name, f"{ARCHIVE_URL}/{self.number}/{name}") as path:
            try:
                with ZipFile(path) as archive:
                    members = {name.rsplit("/", 1)[-1]: name for name in archive.namelist()}
                    return self.read(archive.read(members[self.member]))
            except ImportError:
                raise
            except Exception as error:  # every reader has errors of its own for a broken file
                raise DataFileError(f"{path}: cannot read {self.member}: {error!r}.") from error

    def read(self, content: bytes) -> tuple[NDArray, NDArray]:
        """Inputs and target from the bytes of the table's file."""
        if self.member.endswith((".xls", ".xlsx")):
            import pandas as pd

            sheets = list(pd.read_excel(BytesIO(content), sheet_name=None).values())
            starting = (s for s in sheets if len(s) and tuple(s.iloc[0]) == self.first_row)
            table = next(starting, sheets[0])
            table = table.dropna(axis=0, how="all").dropna(axis=1, how="all")
            values = table.to_numpy(dtype=np.float64)
        else:
            lines = BytesIO(content.replace(b",", b".") if self.decimal_comma else content)
            values = np.loadtxt(
                lines,
                delimiter=self.delimiter,
                skiprows=self.n_header,
                ndmin=2,
                encoding="latin1",
            )
        inputs = np.delete(values, [self.target, *self.dropped], axis=1)
        return inputs, values[:, self.target]


@final
@dataclass(frozen=True, kw_only=True)
class OpenML:
    """A data set of OpenML, for what the UCI archive does not have."""

    data_id: int

    def fetch(self) -> tuple[NDArray, NDArray]:
        """Inputs and target; scikit-learn keeps its copy in our cache."""
        from sklearn.datasets import fetch_openml

        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(TIMEOUT)  # scikit-learn sets none, and might wait for ever
        try:
            table: Any = fetch_openml(
                data_id=self.data_id, data_home=cache_folder() / "openml", as_frame=True
            )
            return table.data.astype(float).to_numpy(), table.target.astype(float).to_numpy()
        except ImportError:
            raise
        except Exception as error:  # no network, no such set, a checksum, a broken file
            raise DataFileError(
                f"Fetching data set {self.data_id} from OpenML failed: {error}."
            ) from error
        finally:
            socket.setdefaulttimeout(before)
