"""Kernel regression in a learned metric: the paper's local likelihood, with a neural prior."""

from sigmax.experts.local.expert import LOCAL_PRESETS, Local
from sigmax.experts.local.fitted import LocalFitted

__all__ = ["LOCAL_PRESETS", "Local", "LocalFitted"]
