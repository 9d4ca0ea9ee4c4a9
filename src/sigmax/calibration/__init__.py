"""Recalibration of predictive distributions, and conformal intervals with guaranteed coverage."""

from sigmax.calibration.conformal import ConformalScores
from sigmax.calibration.scale_factor import best_scale_factor, coverage_match
from sigmax.metrics import pit_histogram

__all__ = ["ConformalScores", "best_scale_factor", "coverage_match", "pit_histogram"]
