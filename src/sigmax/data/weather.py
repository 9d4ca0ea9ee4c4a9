"""Daily maximum temperatures of many years, which give a variance for every calendar day."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.data.store import find_file
from sigmax.errors import DataFileError
from sigmax.random import make_generator

STATIONS = {
    "san_diego": "San Diego, 1939-2019",
    "sydney": "Sydney, 1859-2018",
    "central_england": "Central England, 1878-2020",
}
FILES = {
    "san_diego": "weather_san_diego.csv.gz",
    "sydney": "weather_sydney_observatory_hill.csv.gz",
    "central_england": "weather_central_england.csv.gz",
}

N_DAYS = 365
MIN_YEARS = 10
"""Minimum number of values per calendar day."""


@final
@dataclass(frozen=True, eq=False)
class Station:
    """Maximum temperatures of one station, one row per measured day but for 29 February."""

    name: str
    day: NDArray[np.integer]
    """Calendar day from 1 to 365."""
    tmax: NDArray[np.floating]
    """Degrees, in the units of the file."""

    @property
    def days(self) -> NDArray[np.float64]:
        """All calendar days, as rows (365, 1) of inputs."""
        return np.arange(1.0, N_DAYS + 1)[:, None]

    def mean(self) -> NDArray[np.float64]:
        """Mean over the years, for every calendar day."""
        return np.bincount(self.day, self.tmax)[1:] / np.bincount(self.day)[1:]

    def variance(self) -> NDArray[np.float64]:
        """Variance over the years, for every calendar day."""
        count = np.bincount(self.day)[1:]
        squares = np.bincount(self.day, (self.tmax - self.mean()[self.day - 1]) ** 2)[1:]
        return squares / (count - 1)

    def draw_year(self, random_state=None) -> tuple[NDArray, NDArray]:
        """Draw a training set: for every calendar day the value of one random year.

        ``random_state`` is an int, RandomState, Generator or None.
        """
        rng = make_generator(random_state)
        order = rng.permutation(len(self.day))
        _, first = np.unique(self.day[order], return_index=True)
        return self.days, self.tmax[order[first]]


def load_station(name: str) -> Station:
    """Load one of `STATIONS`, or another station from a file (see `read_station`)."""
    if name in STATIONS:
        return read_station(find_file(FILES[name]), name=STATIONS[name])
    if Path(name).is_file():
        return read_station(Path(name), name=Path(name).name.split(".")[0])
    raise DataFileError(f"No station {name!r}: give one of {', '.join(STATIONS)}, or a file.")


def read_station(path: Path, *, name: str) -> Station:
    """Read a csv file, gzipped or not, with the columns ``date`` (YYYY-MM-DD) and ``tmax``.

    Days without a value are ignored; every calendar day needs values of at least ten years.
    """
    try:
        table: Any = pd.read_csv(path, dtype=str, skip_blank_lines=False)
    except pd.errors.EmptyDataError:
        table = pd.DataFrame()
    except (OSError, EOFError, ValueError) as error:
        raise DataFileError(f"{path} cannot be read: {error}") from error
    if not len(table) or not {"date", "tmax"} <= set(table):
        raise DataFileError(f"{path}: needs rows with the columns date and tmax.")
    table = table[table["tmax"].fillna("").str.strip() != ""]
    when: Any = pd.to_datetime(table["date"].str.strip(), format="%Y-%m-%d", errors="coerce")
    values: Any = pd.to_numeric(table["tmax"], errors="coerce")
    if (is_bad := when.isna() | values.isna()).any():
        row = int(is_bad.to_numpy().argmax())
        date, value = table.iloc[row][["date", "tmax"]]
        line = table.index[row] + 2
        raise DataFileError(f"{path}, line {line}: no date and number, but {date!r}, {value!r}.")
    is_used = ((when.dt.month != 2) | (when.dt.day != 29)) & np.isfinite(values)
    after_february = when.dt.is_leap_year & (when.dt.month > 2)
    day = (when.dt.dayofyear - after_february)[is_used].to_numpy(int)
    fewest = int(np.bincount(day, minlength=N_DAYS + 1)[1:].min())
    if fewest < MIN_YEARS:
        raise DataFileError(
            f"{path}: every calendar day needs at least {MIN_YEARS} years, one has {fewest}."
        )
    return Station(name, day, values[is_used].to_numpy(float))
