"""Gaussian processes with a squared-exponential kernel: exact, and sparse for many rows."""

from sigmax.experts.gaussian_process.expert import (
    EXACT_PRESETS,
    LARGEST_VARYING,
    SPARSE_PRESETS,
    GaussianProcess,
    GPFitted,
    SparseGaussianProcess,
    largest_averaged,
)

__all__ = [
    "EXACT_PRESETS",
    "LARGEST_VARYING",
    "SPARSE_PRESETS",
    "GPFitted",
    "GaussianProcess",
    "SparseGaussianProcess",
    "largest_averaged",
]
