"""Schema of a table: names, kinds, categories and ranges of its columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import final


@final
class Kind(StrEnum):
    """Kind of a column."""

    NUMBER = "number"
    CATEGORY = "category"
    TIME = "time"


@final
@dataclass(frozen=True)
class Column:
    """Properties of one column of the training rows."""

    name: str
    kind: Kind
    has_missing: bool = False
    categories: tuple[str, ...] = ()
    """Names of the categories, sorted."""
    low: float | None = None
    """Smallest number, or earliest time in seconds since 1970; None without any."""
    high: float | None = None
    time_format: str | None = None
    """Format of times written as text, for `datetime.strptime`, or ``ISO8601``."""


@final
@dataclass(frozen=True)
class Schema:
    """Columns of a table, in the order in which a model has them.

    Examples
    --------
    >>> schema = Schema((Column("size", Kind.NUMBER, low=1.0, high=9.0),))
    >>> schema.names, schema.is_plain
    (['size'], True)
    """

    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def is_plain(self) -> bool:
        """True if all columns are numbers without missing values."""
        return all(column.kind is Kind.NUMBER and not column.has_missing for column in self.columns)

    @property
    def reals(self) -> list["Column"]:
        """Columns of numbers, then of times, as in `Table` and `Features`."""
        return [*self.of_kind(Kind.NUMBER), *self.of_kind(Kind.TIME)]

    def of_kind(self, kind: Kind) -> list[Column]:
        """Columns of one kind."""
        return [column for column in self.columns if column.kind is kind]

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)
