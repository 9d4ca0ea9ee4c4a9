"""Encoding of columns as inputs of experts, and transforms of targets.

`sigmax.tables` reads a table, and `Features` learns from the training rows how to convert any table
with the same columns to `Inputs`.
"""

from sigmax.features.completion import Completion
from sigmax.features.features import Features
from sigmax.features.target import SUPPORT, RepeatedValues, Standardizer, Support, TargetUnits

__all__ = [
    "SUPPORT",
    "Completion",
    "Features",
    "RepeatedValues",
    "Standardizer",
    "Support",
    "TargetUnits",
]
