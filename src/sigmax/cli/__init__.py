"""The command line: each command fills settings, calls one function and shows what came."""

from sigmax.cli import file_commands, monitor_command, paper_commands, serve_command
from sigmax.cli.app import app
from sigmax.cli.options import split_names
from sigmax.cli.showing import show_progress

__all__ = [
    "app",
    "file_commands",
    "monitor_command",
    "paper_commands",
    "serve_command",
    "show_progress",
    "split_names",
]
