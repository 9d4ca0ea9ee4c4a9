"""The target as networks learn it: its units, its map, the grid that it lies on."""

from sigmax.targets.grid import TargetGrid, repeat_probability, target_step
from sigmax.targets.units import TARGET_MAPS, TargetUnits

__all__ = ["TARGET_MAPS", "TargetGrid", "TargetUnits", "repeat_probability", "target_step"]
