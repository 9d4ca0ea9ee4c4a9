"""The version, in one place that nothing heavy hangs on."""

__all__ = ["__version__"]

__version__ = "0.1.0"
