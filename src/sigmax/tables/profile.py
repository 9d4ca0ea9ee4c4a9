"""What a table holds, before anything is learned from it: columns, target, and what looks wrong."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
import pandas.util
from numpy.typing import NDArray
from scipy.stats import skew

from sigmax.errors import InvalidDataError
from sigmax.tables.columns import as_frame, columns_of_frame
from sigmax.tables.leaks import find_leaks, find_near_copies
from sigmax.tables.names import listed
from sigmax.tables.schema import Column, Kind, Schema
from sigmax.tables.table import Table, infer_schema
from sigmax.tables.targets import check_names, read_target

__all__ = ["ColumnProfile", "Finding", "Profile", "TargetProfile", "profile_table"]

pandas_util: Any = pandas.util  # its functions are unseen by checkers

N_SAMPLED = 10_000
"""Rows that the search for leaks looks at."""
MIN_ROWS = 20
"""Fewer rows say nothing about ids."""
MOSTLY = 0.5
"""Share of gaps from which a column is mostly empty."""
UNIQUE = 0.95
"""Share of different cells from which text is an id."""
COPIES = 0.001
"""Share of rows that stand twice from which it is told."""
LONG = 10 * 86_400
"""Seconds between the first and the last time from which days are told, and no hours."""
ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|key|idx|index|nr|uuid|guid|serial|rownames|rowid|unnamed)([_\W\d]|$)|[a-z](Id|ID)$"
    r"|^column_1$",
)
GROUP_NAME = re.compile(
    r"(subject|patient|person|user|customer|client|household|site|station|batch|plate|device"
    r"|session|group)s?([_\W]?(id|no|nr|name|code|number))?$|[_\W](id|ID)$|[a-z](Id|ID)$",
)
TIME_NAME = re.compile(r"year|date|day|time|month|week|hour|minute|second|(^|_)(t|yr)($|_)", re.I)


@final
@dataclass(frozen=True)
class Finding:
    """Something about a table that a person should know."""

    code: str
    """What it is: ``leak``, ``id``, ``constant``, ..."""
    columns: tuple[str, ...]
    text: str
    """In a sentence."""


@final
@dataclass(frozen=True)
class ColumnProfile:
    """What stands in one column."""

    name: str
    kind: Kind
    n_gaps: int
    n_distinct: int
    """Different cells without gaps: the number of levels of a category."""
    n_once: int
    """How many of them stand there once."""
    low: str
    """The smallest number or the earliest time, as text; empty for a category."""
    high: str
    example: str
    """The first cell that is no gap."""


@final
@dataclass(frozen=True)
class TargetProfile:
    """What stands in the target; the numbers are those of the rows that have one."""

    name: str
    n_rows: int
    n_gaps: int
    """Rows without a target, from which nothing is learned."""
    low: float
    median: float
    high: float
    std: float
    skew: float
    is_whole: bool
    """Whether all are whole numbers."""
    most_frequent: float
    share_of_most_frequent: float


@final
@dataclass(frozen=True)
class Profile:
    """What stands in a table."""

    n_rows: int
    columns: tuple[ColumnProfile, ...]
    target: TargetProfile
    n_copies: int
    """Rows with a target that are the same as an earlier row."""
    findings: tuple[Finding, ...]
    schema: Schema


def profile_table(
    frame: pd.DataFrame,
    target: str,
    *,
    schema: Schema | None = None,
    time_column: str | None = None,
    group_column: str | None = None,
    drop: Sequence[str] = (),
) -> Profile:
    """Look at a table from which ``target`` is to be learned.

    Parameters
    ----------
    frame
        The table.
    target
        The name of the column to learn.
    schema
        Kinds of the other columns; found if left out.
    time_column, group_column
        The column by which rows will be held out, if there is one.
    drop
        Columns that will not be learned from.

    Raises
    ------
    InvalidDataError
        If there is no such column, if the target is no number, or if fewer than two rows have one.
    """
    names = list(map(str, frame.columns))
    chosen = {"--time-column": time_column, "--group-column": group_column}
    for option, name in chosen.items():
        check_names([] if name is None else [name], names, option=option)
    check_names(drop, names, option="--drop")
    y = read_target(frame, target)
    features = [name for name in names if name != target and name not in set(drop)]
    if not features:
        raise InvalidDataError(f"There is no column besides the target {target!r} to learn from.")
    has_target = ~np.isnan(y)
    if has_target.sum() < 2:
        n = int(has_target.sum())
        raise InvalidDataError(
            f"The target {target!r} has {n} of the two numbers that are needed at least."
        )
    if not has_target.all():
        frame, y = frame.loc[has_target], y[has_target]
    schema = infer_schema(frame[features]) if schema is None else schema
    columns = tuple(describe_column(frame[column.name], column) for column in schema)
    n_copies = count_copies(frame[[*schema.names, target]])
    findings = [
        *target_findings(target, y),
        *leak_findings(frame, schema, y),
        *column_findings(frame, columns),
        *copy_findings(n_copies, len(frame)),
        *split_findings(columns, len(frame), time_column, group_column),
    ]
    about = describe_target(target, y, len(has_target) - len(y))
    return Profile(len(has_target), columns, about, n_copies, tuple(findings), schema)


def describe_target(name: str, y: NDArray[np.float64], n_gaps: int) -> TargetProfile:
    """Range, shape and gaps of the target."""
    values, counts = np.unique(y, return_counts=True)
    is_constant = len(values) == 1
    return TargetProfile(
        name=name,
        n_rows=len(y),
        n_gaps=n_gaps,
        low=float(values[0]),
        median=float(np.median(y)),
        high=float(values[-1]),
        std=float(np.std(y)),
        skew=0.0 if is_constant else float(skew(y)),
        is_whole=bool(np.all(values % 1 == 0)),
        most_frequent=float(values[counts.argmax()]),
        share_of_most_frequent=float(counts.max() / len(y)),
    )


def describe_column(cells: Any, column: Column) -> ColumnProfile:
    """Gaps, levels and range of one column."""
    counts = cells.value_counts(sort=False).to_numpy()
    present = cells.dropna()
    low, high = range_texts(column)
    return ColumnProfile(
        name=column.name,
        kind=column.kind,
        n_gaps=len(cells) - len(present),
        n_distinct=len(counts),
        n_once=int(np.sum(counts == 1)),
        low=low,
        high=high,
        example=str(present.iloc[0]) if len(present) else "",
    )


def range_texts(column: Column) -> tuple[str, str]:
    """Both ends of the range of a column, of times only as far as they differ.

    Examples
    --------
    >>> range_texts(Column("size", Kind.NUMBER, low=0.1234567, high=9.0))
    ('0.123457', '9')
    >>> range_texts(Column("day", Kind.TIME, low=0.0, high=1e7))
    ('1970-01-01', '1970-04-26')
    """
    low, high = column.low, column.high
    if low is None or high is None or column.kind is Kind.CATEGORY:
        return "", ""
    if column.kind is Kind.NUMBER:
        return number_text(low), number_text(high)
    unit = "D" if high - low > LONG else "m" if high - low > LONG / 1440 else "s"
    first, last = (str(np.datetime64(int(end), "s").astype(f"M8[{unit}]")) for end in (low, high))
    return first.replace("T", " "), last.replace("T", " ")


def number_text(number: float) -> str:
    return f"{number:.10g}" if number % 1 == 0 else f"{number:.6g}"


def count_copies(frame: Any) -> int:
    """How many rows are the same as an earlier one."""
    hashes = pandas_util.hash_pandas_object(frame, index=False)
    return int(hashes.duplicated().sum())


def target_findings(name: str, y: NDArray[np.float64]) -> list[Finding]:
    if np.ptp(y) > 0:
        return []
    text = f"The target {name!r} is {y[0]:g} in every row: there is nothing to learn."
    return [Finding("constant target", (name,), text)]


def leak_findings(frame: pd.DataFrame, schema: Schema, y: NDArray[np.float64]) -> list[Finding]:
    """Columns that give the target away, by a sample of the rows."""
    rows = np.arange(len(y))
    if len(y) > N_SAMPLED:
        rows = np.sort(np.random.default_rng(0).choice(len(y), N_SAMPLED, replace=False))
    sample = as_frame(frame[schema.names].iloc[rows])
    table = Table.from_columns(columns_of_frame(sample), schema)
    numbers = {
        column.name: values[:, i]
        for kind, values in ((Kind.NUMBER, table.numbers), (Kind.TIME, table.times))
        for i, column in enumerate(schema.of_kind(kind))
    }
    categories = zip(schema.of_kind(Kind.CATEGORY), table.categories, strict=True)
    levels = {column.name: found.codes for column, found in categories}
    leaks = find_leaks(numbers, levels, y[rows])
    known = {name for names in leaks for name in names}
    near = find_near_copies(numbers, levels, y[rows])
    near = {name: why for name, why in near.items() if name not in known}
    findings = [Finding("leak", names, leak_text(names, how)) for names, how in leaks.items()]
    if near:
        named = ", ".join(f"{name!r} ({why})" for name, why in near.items())
        text = (
            f"{named}: nearly the target itself. That may be right; drop what you know only after"
            " the target."
        )
        findings.append(Finding("near copy", tuple(near), text))
    return findings


def leak_text(names: tuple[str, ...], how: str) -> str:
    """A sentence about a leak, and what to do."""
    lead = listed(names) if how.startswith("together") else repr(names[0])
    them = "it" if len(names) == 1 else "them"
    return f"{lead} {how}. Drop {them} unless you know {them} before the target."


def column_findings(frame: pd.DataFrame, columns: Sequence[ColumnProfile]) -> list[Finding]:
    """Columns that say nothing, little, or only which row it is."""
    n_rows = len(frame)
    constant = tuple(c.name for c in columns if c.n_distinct == 0 or is_constant(c))
    ids = tuple(
        c.name for c in columns if c.name not in constant and is_id(frame[c.name], c, n_rows)
    )
    empty = tuple(c.name for c in columns if c.n_gaps > MOSTLY * n_rows and c.name not in constant)
    rare = tuple(
        c.name for c in columns if c.kind is Kind.CATEGORY and c.n_once and c.name not in ids
    )
    n_rare = sum(c.n_once for c in columns if c.name in rare)
    texts = {
        "id": (ids, "another value in every row, which tells rows apart and no more; drop it"),
        "constant": (constant, "one value in all rows, from which nothing is learned"),
        "mostly empty": (empty, f"empty in more than {MOSTLY:.0%} of the rows"),
        "rare levels": (rare, f"levels that are seen only once, {n_rare:,} in all"),
    }
    return [
        Finding(code, names, f"{listed(names)}: {text}.")
        for code, (names, text) in texts.items()
        if names
    ]


def is_constant(column: ColumnProfile) -> bool:
    return column.n_distinct == 1 and column.n_gaps == 0


def is_id(cells: Any, column: ColumnProfile, n_rows: int) -> bool:
    """Whether a column tells rows apart: text that is new in every row, or a running number."""
    n_present = n_rows - column.n_gaps
    if n_present < MIN_ROWS or column.kind is Kind.TIME:
        return False
    if column.kind is Kind.CATEGORY:
        return column.n_distinct >= UNIQUE * n_present
    if column.n_distinct < n_present or TIME_NAME.search(column.name):
        return False
    values = cells.dropna().to_numpy(np.float64)
    if np.any(values % 1):
        return False
    is_running = np.ptp(values) < 1.1 * n_present and n_present > 100
    is_counting = bool(np.all(np.diff(values) == 1))
    return is_running or is_counting or bool(ID_NAME.search(column.name))


def copy_findings(n_copies: int, n_rows: int) -> list[Finding]:
    share = n_copies / n_rows
    if share < COPIES:
        return []
    text = (
        f"{n_copies:,} rows ({share:.1%}) are the same as an earlier row; copies are held out"
        " together, or scores would be too good."
    )
    return [Finding("copies", (), text)]


def split_findings(
    columns: Sequence[ColumnProfile],
    n_rows: int,
    time_column: str | None,
    group_column: str | None,
) -> list[Finding]:
    """Columns by which rows should perhaps be held out, if none is named."""
    findings = []
    if time_column is not None or group_column is not None:
        return findings
    times = tuple(c.name for c in columns if c.kind is Kind.TIME)
    groups = tuple(c.name for c in columns if is_group(c, n_rows))
    if times:
        text = (
            f"Rows have times ({listed(times)}): if later rows are to be predicted, hold out the"
            " last ones by --time-column, as scores of random rows would be too good."
        )
        findings.append(Finding("time column with a random split", times, text))
    if groups:
        text = (
            f"Rows seem to belong together by {listed(groups)}: if new ones are to be predicted,"
            " hold out whole groups by --group-column."
        )
        findings.append(Finding("groups across the split", groups, text))
    return findings


def is_group(column: ColumnProfile, n_rows: int) -> bool:
    """Whether the name is that of subjects or places, of which each has several rows."""
    n_present = n_rows - column.n_gaps
    is_many = 5 <= column.n_distinct <= n_present / 2
    return is_many and bool(GROUP_NAME.search(column.name.lower())) and column.kind != Kind.TIME
