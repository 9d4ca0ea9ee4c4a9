"""Where data files lie: the folder that ``SIGMAX_DATA`` names."""

import os
from pathlib import Path

from sigmax.errors import DataFileError

__all__ = ["DATA_FOLDER", "find_file"]

DATA_FOLDER = "SIGMAX_DATA"
"""The environment variable that names the folder of data files."""


def find_file(name: str) -> Path:
    """The path of a data file by its name, or an error that says where to put it."""
    folder = os.environ.get(DATA_FOLDER)
    if folder is None:
        hint = f"set the environment variable {DATA_FOLDER} to the folder that holds it"
        raise DataFileError(f"The data file {name} was not found: {hint}.")
    path = Path(folder) / name
    if not path.is_file():
        raise DataFileError(f"The data file {name} was not found: put it into {folder}.")
    return path
