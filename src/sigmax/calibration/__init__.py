"""Recalibration, its picture, and conformal intervals, whose coverage is guaranteed."""

from sigmax.calibration.conformal import ConformalScores, conformal_quantile
from sigmax.calibration.conformal_regressor import ConformalRegressor
from sigmax.calibration.histogram import pit_histogram
from sigmax.calibration.scale_factor import best_scale_factor, coverage_match

__all__ = [
    "ConformalRegressor",
    "ConformalScores",
    "best_scale_factor",
    "conformal_quantile",
    "coverage_match",
    "pit_histogram",
]
