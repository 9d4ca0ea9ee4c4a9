"""Files and formulas in, arrays and splits out."""

from sigmax.data.images import IMAGE_SETS, ImageData, ImageSet, load_images
from sigmax.data.moons import TwoMoons
from sigmax.data.splits import standard_splits
from sigmax.data.toy import ToyProblem
from sigmax.data.uci import RegressionData, load_uci
from sigmax.data.uci_sets import UCI_SETS, UCISet
from sigmax.data.weather import STATIONS, Station, load_station

__all__ = [
    "IMAGE_SETS",
    "STATIONS",
    "UCI_SETS",
    "ImageData",
    "ImageSet",
    "RegressionData",
    "Station",
    "ToyProblem",
    "TwoMoons",
    "UCISet",
    "load_images",
    "load_station",
    "load_uci",
    "standard_splits",
]
