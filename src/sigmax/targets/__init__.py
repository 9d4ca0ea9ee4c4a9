"""The target as networks learn it: its units, its map, its support, its repeated values."""

from sigmax.targets.support import SUPPORT, Support
from sigmax.targets.units import TARGET_MAPS, TargetUnits
from sigmax.targets.values import RepeatedValues, repeat_probability

__all__ = [
    "SUPPORT",
    "TARGET_MAPS",
    "RepeatedValues",
    "Support",
    "TargetUnits",
    "repeat_probability",
]
