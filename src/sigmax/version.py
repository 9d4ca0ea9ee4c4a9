"""The version, in one place that nothing heavy hangs on."""

__version__ = "0.1.0"
