"""Command line: each command fills its options, calls one function and prints the result."""

from sigmax.cli.app import app, split_names
from sigmax.cli.terminal import show_progress

__all__ = ["app", "show_progress", "split_names"]
