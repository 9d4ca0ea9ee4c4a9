"""What the columns of a table are: names, kinds, levels and ranges, as plain JSON."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, final

__all__ = ["Column", "Kind", "Schema"]


@final
class Kind(StrEnum):
    """What the cells of a column are."""

    NUMBER = "number"
    CATEGORY = "category"
    TIME = "time"


@final
@dataclass(frozen=True)
class Column:
    """One column of the training rows."""

    name: str
    kind: Kind
    has_gaps: bool = False
    levels: tuple[str, ...] = ()
    """Of a category, sorted."""
    low: float | None = None
    """The smallest number, or the earliest time in seconds since 1970; None without any."""
    high: float | None = None
    time_format: str | None = None
    """How times that came as text are written, as `datetime.strptime` has it, or ``ISO8601``."""


@final
@dataclass(frozen=True)
class Schema:
    """The columns of a table, in the order in which a model sees them.

    Examples
    --------
    >>> schema = Schema((Column("size", Kind.NUMBER, low=1.0, high=9.0),))
    >>> schema.names, Schema.from_json(schema.as_json()) == schema
    (['size'], True)
    """

    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def is_plain(self) -> bool:
        """Whether all columns are numbers without gaps."""
        return all(column.kind is Kind.NUMBER and not column.has_gaps for column in self.columns)

    @property
    def reals(self) -> list["Column"]:
        """Columns of numbers, then of times, as `Table` and `Features` have them."""
        return [*self.of_kind(Kind.NUMBER), *self.of_kind(Kind.TIME)]

    def of_kind(self, kind: Kind) -> list[Column]:
        """The columns of one kind."""
        return [column for column in self.columns if column.kind is kind]

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def as_json(self) -> list[dict[str, Any]]:
        """A list of plain objects, one per column."""
        return [
            {name: value for name, value in asdict(column).items() if value not in (None, ())}
            for column in self.columns
        ]

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> "Schema":
        """What `as_json` gave.

        Raises
        ------
        ValueError, TypeError, KeyError
            If it is anything else.
        """
        return cls(tuple(column_from_json(**column) for column in columns))


def column_from_json(
    name: str,
    kind: str,
    has_gaps: bool = False,
    levels: Any = (),
    low: float | None = None,
    high: float | None = None,
    time_format: str | None = None,
) -> Column:
    if not all(isinstance(level, str) for level in (name, *levels)):
        raise TypeError("names and levels of columns must be text")
    first, last = (None if end is None else float(end) for end in (low, high))
    return Column(name, Kind(kind), bool(has_gaps), tuple(levels), first, last, time_format)
