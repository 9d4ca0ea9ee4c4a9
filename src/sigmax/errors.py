"""Errors and warnings of sigmax; every error is also a builtin one, such as ValueError."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class SigmaxError(Exception):
    """Base class of all errors of sigmax."""


class InvalidArgumentError(SigmaxError, ValueError):
    """A setting is out of its range; the message names it, the rule and the given value."""


class InvalidDataError(SigmaxError, ValueError):
    """The data cannot be used as given; the message says what is wrong with them."""


class InvalidCellError(InvalidDataError):
    """A cell cannot be used; ``{row}`` in the text becomes its row, counted from 1."""

    def __init__(self, text: str, row: int):
        super().__init__(text, row)

    def __str__(self) -> str:
        text, row = self.args
        return text.replace("{row}", f"{row:,}")

    @classmethod
    @contextmanager
    def numbered(cls, numbers: Any) -> Iterator[None]:
        """Name the rows of a part of a table by their ``numbers`` in the file, one per row."""
        try:
            yield
        except cls as error:
            text, row = error.args
            raise cls(text, int(numbers[row - 1])) from error


class DataFileError(SigmaxError, OSError):
    """A data file is missing or cannot be read; the message says which and what to do."""


class TableFileError(DataFileError):
    """A user's table cannot be read or written; the message names the file and the place in it."""


class ModelFileError(SigmaxError, OSError):
    """A model folder cannot be written or read; the message says why."""


class RecordFileError(SigmaxError, OSError):
    """The records of an experiment cannot be read or written; the message says why."""


class MissingExtraError(SigmaxError, ImportError):
    """An optional package is not installed; the message says how to install it."""

    @classmethod
    @contextmanager
    def unless_imported(cls, text: str, extra: str) -> Iterator[None]:
        """Raise this error in place of that of an import in the block."""
        try:
            yield
        except ImportError as error:
            raise cls(f'{text}: pip install "sigmax[{extra}]".') from error


class ClusterError(SigmaxError, ConnectionError):
    """A Ray cluster cannot be joined, or has failed; the message says why."""


class TrainingError(SigmaxError, ArithmeticError):
    """Training diverged: no ensemble member has a finite score; the message says what to try."""


class TableFileWarning(UserWarning):
    """A table was read with changes; the message names them."""


class TrainingWarning(RuntimeWarning):
    """Training failed in part; the message names the part and the consequence."""
