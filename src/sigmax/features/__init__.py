"""From a checked table to network inputs and distance coordinates.

Nothing else in the package knows what a table looked like: `sigmax.tables` reads it, `Features`
learns from the training rows how to turn any such table into `Inputs`.
"""

from sigmax.features.completion import Completion
from sigmax.features.features import Features

__all__ = ["Completion", "Features"]
