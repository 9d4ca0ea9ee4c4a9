"""Columns of a table as inputs of experts, and targets as they learn them.

Nothing else in the package knows what a table looked like: `sigmax.tables` reads it, `Features`
learns from the training rows how to turn any such table into `Inputs`.
"""

from sigmax.features.completion import Completion
from sigmax.features.features import Features
from sigmax.features.target import (
    SUPPORT,
    TARGET_TRANSFORMS,
    RepeatedValues,
    Support,
    TargetUnits,
    repeat_probability,
)

__all__ = [
    "SUPPORT",
    "TARGET_TRANSFORMS",
    "Completion",
    "Features",
    "RepeatedValues",
    "Support",
    "TargetUnits",
    "repeat_probability",
]
