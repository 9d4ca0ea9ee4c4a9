"""Kernel regression in a learned metric: the paper's local likelihood, with a neural prior."""

from sigmax.experts.local.added_rows import add_rows
from sigmax.experts.local.expert import LOCAL_PRESETS, Local, LocalFitted

__all__ = ["LOCAL_PRESETS", "Local", "LocalFitted", "add_rows"]
