"""Files and formulas in, arrays and splits out."""

from sigmax.data.toy import ToyProblem
from sigmax.data.weather import STATIONS, Station, load_station

__all__ = ["STATIONS", "Station", "ToyProblem", "load_station"]
