"""Recalibration of predictive distributions, and conformal intervals with guaranteed coverage."""

from sigmax.calibration.conformal import (
    ConformalRegressor,
    ConformalScores,
    conformal_quantile,
)
from sigmax.calibration.scale_factor import best_scale_factor, coverage_match
from sigmax.metrics import pit_histogram

__all__ = [
    "ConformalRegressor",
    "ConformalScores",
    "best_scale_factor",
    "conformal_quantile",
    "coverage_match",
    "pit_histogram",
]
