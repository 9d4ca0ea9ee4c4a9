"""One screen about a table: `sigmax describe` without the command line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from sigmax.report.page import Caution
from sigmax.tables.names import split_columns
from sigmax.tables.profile import ColumnProfile, Finding, Profile, TargetProfile, profile_table
from sigmax.tables.reading import read_table
from sigmax.tables.schema import Kind
from sigmax.tables.table import infer_schema
from sigmax.tables.targets import check_names

__all__ = ["DescribeOptions", "caution_line", "describe_file", "describe_frame", "screen"]

MOST_SHOWN = 24
"""Columns of a table that are shown one by one; of a wider one the first of every kind are."""
FIRST_SHOWN = 7
LONGEST = 20
"""Characters of a name or a cell."""
ALARMS = ("leak", "constant target")
PLURALS = {Kind.NUMBER: "numbers", Kind.CATEGORY: "categories", Kind.TIME: "times"}


@final
@dataclass(frozen=True, kw_only=True)
class DescribeOptions:
    """What a person says about the columns of a table."""

    target: str
    categories: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    time_column: str | None = None
    group_column: str | None = None


def describe_file(source: str, options: DescribeOptions, reading: Mapping[str, Any]) -> Profile:
    """What a file holds."""
    return describe_frame(read_table(source, **reading), options)


def describe_frame(frame: Any, options: DescribeOptions) -> Profile:
    """What a table holds, its columns as the options say."""
    names = list(frame.columns)
    categories, numbers, drop = (
        split_columns(given, names) for given in (options.categories, options.numbers, options.drop)
    )
    check_names([options.target], names, option="--target")
    for option, chosen in {"--category": categories, "--number": numbers, "--drop": drop}.items():
        check_names(chosen, names, option=option)
    features = frame.drop(columns=list({*drop, options.target}))
    schema = infer_schema(
        features,
        categorical=[name for name in categories if name in features],
        numeric=[name for name in numbers if name in features],
    )
    return profile_table(
        frame,
        options.target,
        schema=schema,
        time_column=options.time_column,
        group_column=options.group_column,
        drop=drop,
    )


def count_kinds(kinds: Sequence[Kind]) -> str:
    """How many columns there are of each kind.

    Examples
    --------
    >>> count_kinds([Kind.NUMBER, Kind.TIME, Kind.NUMBER, Kind.CATEGORY])
    '2 numbers, 1 category and 1 time'
    """
    found = {kind: kinds.count(kind) for kind in Kind if kind in kinds}
    words = [f"{n} {PLURALS[kind] if n > 1 else kind}" for kind, n in found.items()]
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def screen(profile: Profile, name: str, *, every_column: bool = False) -> list[RenderableType]:
    """A table of columns, a line about the target, and a line for everything that was found."""
    kinds = [column.kind for column in profile.columns]
    title = f"{clean(name)}: {profile.n_rows:,} rows, {count_kinds(kinds)}"
    grid = Grid(title=Text(title), title_justify="left", box=SIMPLE_HEAD, expand=True)
    for header in ("column", "kind", "gaps", "values"):
        grid.add_column(header, justify="right" if header == "gaps" else "left", no_wrap=True)
    grid.add_column("for example", no_wrap=True, ratio=1)
    for row in rows_of(profile, every_column=every_column):
        grid.add_row(*map(Text, row))
    lines = [target_line(profile.target), *map(finding_line, profile.findings)]
    if len(profile.columns) > MOST_SHOWN and not every_column:
        lines.insert(0, Text("`sigmax describe --all` shows every column."))
    return [grid, *lines]


def rows_of(profile: Profile, *, every_column: bool = False) -> list[list[str]]:
    """One row for every column, or for the first columns of every kind."""
    if len(profile.columns) <= MOST_SHOWN or every_column:
        return [row_of(column, profile) for column in profile.columns]
    rows = []
    for kind in Kind:
        columns = [column for column in profile.columns if column.kind is kind]
        rows += [row_of(column, profile) for column in columns[:FIRST_SHOWN]]
        if hidden := columns[FIRST_SHOWN:]:
            n_gaps = sum(column.n_gaps > 0 for column in hidden)
            rows.append([f"… {len(hidden):,} more", str(kind), f"in {n_gaps:,}", "", ""])
    return rows


def row_of(column: ColumnProfile, profile: Profile) -> list[str]:
    share = column.n_gaps / profile.target.n_rows
    gaps = f"{share:.0%}" if share >= 0.01 else f"{column.n_gaps:,}" if column.n_gaps else ""
    values = f"{column.low} to {column.high}" if column.low else ""
    if column.kind is Kind.CATEGORY:
        values = f"{column.n_distinct:,} levels"
    return [clean(column.name), str(column.kind), gaps, values, clean(column.example)]


def target_line(target: TargetProfile) -> Text:
    """The target in a line."""
    facts = [
        f"{number_text(target.low)} to {number_text(target.high)}",
        f"median {number_text(target.median)}",
        f"standard deviation {number_text(target.std)}",
        f"skew {target.skew:.2g}",
    ]
    if target.is_whole:
        facts.append("whole numbers")
    if target.share_of_most_frequent >= 0.05:
        facts.append(f"{target.share_of_most_frequent:.0%} are {number_text(target.most_frequent)}")
    if target.n_gaps:
        facts.append(f"{target.n_gaps:,} rows without it are left out")
    return Text.assemble(("target ", "bold"), (clean(target.name), "bold"), ": ", ", ".join(facts))


def number_text(number: float) -> str:
    """A number for people, without an exponent where none is needed.

    Examples
    --------
    >>> number_text(79873.0587), number_text(0.012345), number_text(3e12)
    ('79,873', '0.01235', '3e+12')
    """
    return f"{number:,.0f}" if 1e3 <= abs(number) < 1e10 else f"{number:.4g}"


def finding_line(finding: Finding) -> Text:
    style = "bold red" if finding.code in ALARMS else "yellow"
    return Text.assemble((finding.code, style), ": ", printable(finding.text))


def caution_line(caution: Caution) -> Text:
    style = "bold red" if caution.is_grave else "bold yellow"
    return Text.assemble(("WARNING", style), f": {caution.code}: ", printable(caution.text))


def clean(text: str) -> str:
    """Text of a file for a cell of the screen: printable and not too long."""
    text = printable(text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def printable(text: str) -> str:
    """Text without characters that could steer a terminal.

    Examples
    --------
    >>> printable("red\\x1b[31m")
    'red�[31m'
    """
    return "".join(letter if letter.isprintable() else "�" for letter in text)
