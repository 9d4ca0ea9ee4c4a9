"""Gaussian processes with a squared-exponential kernel: exact, and sparse for many rows."""

from sigmax.experts.gaussian_process.expert import (
    LARGEST_EXACT,
    LARGEST_VARYING,
    GaussianProcess,
    GPFitted,
    SparseGaussianProcess,
    largest_averaged,
)

__all__ = [
    "LARGEST_EXACT",
    "LARGEST_VARYING",
    "GPFitted",
    "GaussianProcess",
    "SparseGaussianProcess",
    "largest_averaged",
]
