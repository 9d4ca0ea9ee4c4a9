"""Data sets: regression and image sets of the paper, weather stations and simulated data."""

from sigmax.data.images import IMAGE_SETS, ImageData, ImageSet, load_images
from sigmax.data.synthetic import ToyProblem, TwoMoons
from sigmax.data.uci import UCI_SETS, RegressionData, UCISet, load_uci, standard_splits
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
