"""`sigmax describe`: the columns of a table, its target, and likely problems."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import pandas as pd
import typer
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from sigmax.cli.app import Reading, Source
from sigmax.cli.rows import ColumnOptions
from sigmax.cli.terminal import report_errors, short_name, show_item
from sigmax.report.model_page import GRAVE
from sigmax.report.page import Caution
from sigmax.report.tables import count_text, number_text
from sigmax.tables.profile import Finding, Profile, TargetProfile, profile_table
from sigmax.tables.reading import read_table
from sigmax.tables.table import Kind, Schema, infer_schema

MOST_SHOWN = 24
LONGEST = 20
"""Largest number of characters of a name or a cell."""
PLURALS = {Kind.NUMBER: "numbers", Kind.CATEGORY: "categories", Kind.TIME: "times"}


@report_errors()
def describe(
    data: Source,
    columns: ColumnOptions,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Show every column of a wide table.")] = False,
    reading: Reading,
) -> None:
    """Show the columns of a table and likely problems, before you fit a model."""
    profile = describe_frame(read_table(data, **asdict(reading)), columns)
    for part in screen(profile, short_name(data), every_column=all_):
        show_item(part)


def describe_frame(
    frame: pd.DataFrame, columns: ColumnOptions, schema: Schema | None = None
) -> Profile:
    """Profile of a table; without a schema, the kinds of its features are inferred."""
    names = list(map(str, frame.columns))
    columns = columns.for_columns(names)
    columns.check_names(names)
    if schema is None:
        features = [name for name in names if name not in {*columns.drop, columns.target}]
        schema = infer_schema(
            frame[features],
            categorical=[name for name in columns.categories if name in features],
            numeric=[name for name in columns.numbers if name in features],
        )
    return profile_table(
        frame,
        columns.target,
        schema=schema,
        time_column=columns.time_column,
        group_column=columns.group_column,
        drop=columns.drop,
    )


def count_kinds(kinds: Sequence[Kind]) -> str:
    """Number of columns of each kind: '2 numbers, 1 category and 1 time'."""
    found = {kind: kinds.count(kind) for kind in Kind if kind in kinds}
    words = [f"{n} {PLURALS[kind] if n > 1 else kind}" for kind, n in found.items()]
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def screen(profile: Profile, name: str, *, every_column: bool = False) -> list[RenderableType]:
    """A table of columns, a line about the target, and a line for every finding."""
    kinds = [column.kind for column in profile.columns]
    title = f"{clean(name)}: {profile.n_rows:,} rows, {count_kinds(kinds)}"
    grid = Grid(title=Text(title), title_justify="left", box=SIMPLE_HEAD, expand=True)
    for header in ("column", "kind", "missing", "values"):
        grid.add_column(header, justify="right" if header == "missing" else "left", no_wrap=True)
    grid.add_column("for example", no_wrap=True, ratio=1)
    shown = profile.columns if every_column else profile.columns[:MOST_SHOWN]
    for column in shown:
        share = column.n_missing / profile.target.n_rows
        missing = f"{column.n_missing:,}" if column.n_missing else ""
        missing = f"{share:.0%}" if share >= 0.01 else missing
        values = f"{column.low} to {column.high}" if column.low else ""
        if column.kind is Kind.CATEGORY:
            values = f"{column.n_distinct:,} categories"
        row = clean(column.name), str(column.kind), missing, values, clean(column.example)
        grid.add_row(*map(Text, row))
    lines = [target_line(profile.target), *map(caution_line, profile.findings)]
    if hidden := profile.columns[len(shown) :]:
        n_missing = sum(column.n_missing > 0 for column in hidden)
        grid.add_row(f"… {len(hidden):,} more", "", f"in {n_missing:,}")
        lines.insert(0, Text("Add --all to `sigmax describe` to see every column."))
    return [grid, *lines]


def target_line(target: TargetProfile) -> Text:
    parts = [
        f"{number_text(target.low)} to {number_text(target.high)}",
        f"median {number_text(target.median)}",
        f"standard deviation {number_text(target.std)}",
        f"skew {target.skew:.2g}",
    ]
    if target.is_whole:
        parts.append("whole numbers")
    if target.share_of_most_frequent >= 0.05:
        parts.append(f"{target.share_of_most_frequent:.0%} are {number_text(target.most_frequent)}")
    if target.n_missing:
        verb = "is" if target.n_missing == 1 else "are"
        parts.append(f"missing in {count_text(target.n_missing, 'row')}, which {verb} left out")
    return Text.assemble(("target ", "bold"), (clean(target.name), "bold"), ": ", ", ".join(parts))


def caution_line(caution: Caution | Finding) -> Text:
    is_grave = caution.code in GRAVE or (isinstance(caution, Caution) and caution.is_grave)
    code = f"WARNING: {caution.code}" if isinstance(caution, Caution) else caution.code
    return Text.assemble(
        (code, "bold red" if is_grave else "yellow"), f": {printable(caution.text)}"
    )


def clean(text: str) -> str:
    """Text of a file for a cell of the screen: printable and short."""
    text = printable(text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def printable(text: str) -> str:
    """Text without control characters of the terminal."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)
