"""Sequential tests of predictions on new labelled rows, valid at any time."""

from sigmax.monitoring.bets import Bets
from sigmax.monitoring.drift_tests import DriftTest, DriftTests
from sigmax.monitoring.monitor import Monitor, randomised_pit

__all__ = ["Bets", "DriftTest", "DriftTests", "Monitor", "randomised_pit"]
