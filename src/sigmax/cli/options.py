"""What commands have in common: the types of their options, and how texts become values."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from sigmax.errors import InvalidArgumentError

__all__ = [
    "Address",
    "Categories",
    "Delimiter",
    "Device",
    "Dropped",
    "Encoding",
    "Engine",
    "Force",
    "GroupColumn",
    "IntervalMethod",
    "ModelFolder",
    "Names",
    "Numbers",
    "RetryFailed",
    "Seed",
    "Settings",
    "Sheet",
    "Source",
    "Target",
    "TimeColumn",
    "Workers",
    "parse_levels",
    "parse_setting",
    "split_names",
]

Names = Annotated[str, typer.Option(help="Names, separated by commas; all that is usual if empty.")]
Source = Annotated[
    str, typer.Argument(help="CSV, TSV, Parquet or Excel, also gzipped; - is standard input.")
]
Target = Annotated[str, typer.Option(help="The column to predict.")]
TimeColumn = Annotated[str | None, typer.Option(help="Hold out the last rows by this column.")]
GroupColumn = Annotated[str | None, typer.Option(help="Hold out whole groups of this column.")]
RetryFailed = Annotated[bool, typer.Option(help="Run failed tasks again.")]
ModelFolder = Annotated[Path, typer.Argument(help="A folder that `sigmax fit` wrote.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the models, as in n_steps=500; may be repeated."),
]
Categories = Annotated[
    list[str] | None, typer.Option(help="Take these columns as categories: a,b or repeated.")
]
Numbers = Annotated[
    list[str] | None, typer.Option(help="Take these columns as numbers: a,b or repeated.")
]
Dropped = Annotated[
    list[str] | None, typer.Option(help="Do not learn from these columns: a,b or repeated.")
]
Workers = Annotated[int, typer.Option(min=1, help="Processes that work at once.")]
Engine = Annotated[str, typer.Option(help="local, or ray (an extra).")]
Address = Annotated[
    str | None, typer.Option(help="A Ray cluster to join; without one, one is started here.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or gpu, of which a Ray worker has one.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the split and of the models.")]
Delimiter = Annotated[
    str | None, typer.Option(help="Between the cells of a text file; found if left out.")
]
Encoding = Annotated[str | None, typer.Option(help="Of a text file; found if left out.")]
Sheet = Annotated[str | None, typer.Option(help="Of an Excel file; the first if left out.")]
IntervalMethod = Annotated[
    str | None, typer.Option(help="Of the intervals: distribution or conformal; that of the fit.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace a folder that is there already.")]


def split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_setting(text: str) -> tuple[str, Any]:
    """``n_steps=500`` or ``hidden_sizes=[50,50]``: a name, and a value in JSON or a bare word."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidArgumentError(f"`--set` must be of the form name=value, got {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def parse_levels(text: str) -> tuple[float, ...]:
    """Numbers separated by commas."""
    try:
        return tuple(float(level) for level in split_names(text))
    except ValueError as error:
        rule = "numbers between 0 and 1, separated by commas"
        raise InvalidArgumentError(f"`--quantiles` must be {rule}, got {text!r}.") from error
