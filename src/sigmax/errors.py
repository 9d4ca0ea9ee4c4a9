"""What sigmax raises: one tree, each leaf also the builtin that people expect."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "ClusterError",
    "DataFileError",
    "InvalidArgumentError",
    "InvalidCellError",
    "InvalidDataError",
    "MissingExtraError",
    "ModelFileError",
    "RecordFileError",
    "SigmaxError",
    "TableFileError",
    "TableFileWarning",
    "TrainingError",
    "TrainingWarning",
]


class SigmaxError(Exception):
    """Base of every error that sigmax raises on purpose."""


class InvalidArgumentError(SigmaxError, ValueError):
    """A setting is out of its range; the message names it, the rule and what came."""


class InvalidDataError(SigmaxError, ValueError):
    """The data cannot be used as given; the message says what is wrong with them."""


class InvalidCellError(InvalidDataError):
    """A cell cannot be used; ``{row}`` in the text stands for its row, counted from 1."""

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


class ClusterError(SigmaxError, ConnectionError):
    """A Ray cluster cannot be joined, or cannot do the work any more; the message says why."""


class TrainingError(SigmaxError, ArithmeticError):
    """A training broke down: no member has a finite score; the message says what to try."""


class TableFileWarning(UserWarning):
    """A table was read, but not just as it stands; the message says what was done about it."""


class TrainingWarning(RuntimeWarning):
    """A training went wrong in part; the message says in which, and what was done about it."""
