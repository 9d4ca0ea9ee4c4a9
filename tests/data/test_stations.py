"""Weather stations: files, draws and errors."""

import gzip
from datetime import date, timedelta

import numpy as np
import pytest

from sigmax.data import STATIONS, load_station
from sigmax.errors import DataFileError


def write_station(path, *, n_years=12, first=date(1990, 1, 1), value=lambda when: when.year):
    days = (first + timedelta(days=i) for i in range(round(365.25 * n_years)))
    text = "date,tmax\n" + "".join(f"{when},{value(when)}\n" for when in days)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt") as file:
        file.write(text)
    return path


@pytest.mark.parametrize("name", ["mine.csv", "mine.csv.gz"])
def test_own_file_is_read_with_the_variance_over_the_years(tmp_path, name):
    station = load_station(str(write_station(tmp_path / name)))
    assert station.name == "mine"
    np.testing.assert_allclose(station.mean(), np.arange(1990, 2002).mean())
    np.testing.assert_allclose(station.variance(), np.arange(1990, 2002).var(ddof=1))


def test_leap_days_and_missing_values_are_ignored(tmp_path):
    def value(when):
        return "" if when.year == 1995 else when.timetuple().tm_yday

    station = load_station(str(write_station(tmp_path / "mine.csv", value=value)))
    assert len(station.day) == 11 * 365
    assert set(station.day) == set(range(1, 366))


def test_draw_takes_a_random_year_for_every_day(tmp_path):
    """12 years, 365 days: each year's share to 5 standard errors."""
    station = load_station(str(write_station(tmp_path / "mine.csv")))
    X, y = station.draw_year(0)
    np.testing.assert_array_equal(X[:, 0], np.arange(1, 366))
    counts = np.bincount(y.astype(int) - 1990, minlength=12)
    np.testing.assert_allclose(counts, 365 / 12, atol=5 * np.sqrt(365 / 12))
    np.testing.assert_array_equal(station.draw_year(0)[1], y)
    assert (station.draw_year(1)[1] != y).any()


@pytest.mark.parametrize(
    "text, message",
    [
        ("day,temperature\n1,2\n", "columns date and tmax"),
        ("date,tmax\n1990-01-01,warm\n", "line 2"),
        ("date,tmax\n1990-13-01,20\n", "line 2"),
        ("date,tmax\n1990-01-01\n", "at least 10 years"),
        ("date,tmax\n1990-01-01,20\n", "at least 10 years"),
        ("", "columns date and tmax"),
    ],
)
def test_unusable_files_raise_an_error_with_a_reason(tmp_path, text, message):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(DataFileError, match=message):
        load_station(str(path))


def test_file_that_is_not_gzip_raises_an_error(tmp_path):
    (tmp_path / "mine.csv.gz").write_bytes(b"date,tmax\n")
    with pytest.raises(DataFileError, match="cannot be read"):
        load_station(str(tmp_path / "mine.csv.gz"))


def test_errors_of_unknown_station_and_missing_folder_give_advice(tmp_path, monkeypatch):
    with pytest.raises(DataFileError, match="san_diego, sydney, central_england, or a file"):
        load_station("atlantis")
    monkeypatch.delenv("SIGMAX_DATA", raising=False)
    with pytest.raises(DataFileError, match="SIGMAX_DATA"):
        load_station("sydney")
    monkeypatch.setenv("SIGMAX_DATA", str(tmp_path))
    with pytest.raises(DataFileError, match=f"put it into {tmp_path}"):
        load_station("sydney")


@pytest.mark.parametrize("name", STATIONS)
def test_known_stations_have_their_length_and_standard_deviation(name, data_folder):
    station = load_station(name)
    years = len(station.day) / 365
    assert years == pytest.approx({"san_diego": 79.5}.get(name, 150), rel=0.08)
    assert 2.5 < np.sqrt(station.variance()).mean() < 3.5
