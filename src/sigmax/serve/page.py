"""The page: a form made from the columns of a model."""

from dataclasses import dataclass
from functools import cache
from typing import Any, final

from jinja2 import Environment, PackageLoader

from sigmax.serve.answers import Answers
from sigmax.serve.options import ServeOptions
from sigmax.serve.training_rows import shown_time
from sigmax.tables.schema import Column, Kind

__all__ = ["FormField", "form_fields", "render_page", "render_token_page"]

MOST_OPTIONS = 200
"""Levels up to which a category is a list to choose from; of more, they are suggestions."""
MOST_SUGGESTED = 2000


@final
@dataclass(frozen=True, kw_only=True)
class FormField:
    """One column, as it is asked for."""

    name: str
    kind: str
    """``number``, ``date``, ``datetime-local``, ``list`` or ``text``."""
    value: str
    """That is there at the start; empty for a gap."""
    takes_gaps: bool
    hint: str
    """What training rows had."""
    step: str = "any"
    levels: tuple[str, ...] = ()


def form_fields(answers: Answers) -> list[FormField]:
    """All columns, in the order of the table."""
    return [form_field(answers, column) for column in answers.reader.columns]


def form_field(answers: Answers, column: Column) -> FormField:
    typical = answers.rows.typical(column)
    gaps = answers.reader.takes_gaps
    if column.kind is Kind.CATEGORY:
        is_short = len(column.levels) <= MOST_OPTIONS
        return FormField(
            name=column.name,
            kind="list" if is_short else "text",
            value="" if typical is None or typical not in column.levels else str(typical),
            takes_gaps=gaps,
            hint=f"{len(column.levels):,} levels",
            levels=column.levels if is_short else column.levels[:MOST_SUGGESTED],
        )
    if column.kind is Kind.TIME:
        step = answers.rows.time_steps[column.name]
        ends = [None if end is None else shown_time(end, step) for end in (column.low, column.high)]
        return FormField(
            name=column.name,
            kind="date" if step >= 86_400 else "datetime-local",
            value="" if typical is None else str(typical),
            takes_gaps=gaps,
            hint=hint(*[None if end is None else end.replace("T", " ") for end in ends]),
            step="any" if step >= 86_400 else "1" if step < 60 else "60",
        )
    return FormField(
        name=column.name,
        kind="number",
        value="" if typical is None else f"{typical:.12g}",
        takes_gaps=gaps,
        hint=hint(*[None if end is None else f"{end:.6g}" for end in (column.low, column.high)]),
    )


def hint(low: str | None, high: str | None) -> str:
    return "always missing" if low is None or high is None else f"{low} to {high}"


@cache
def environment() -> Environment:
    """Templates in which all text is escaped."""
    return Environment(autoescape=True, loader=PackageLoader("sigmax.serve"))


def render_page(answers: Answers, options: ServeOptions) -> str:
    """The page of a model; whatever its columns are called is shown as text."""
    facts: Any = answers.saved.facts
    return (
        environment()
        .get_template("page.html")
        .render(
            target=answers.saved.target,
            facts=facts,
            fields=form_fields(answers),
            explains=answers.rows.explains,
            max_upload=options.max_upload,
            max_upload_rows=options.max_upload_rows,
        )
    )


def render_token_page(*, is_wrong: bool = False) -> str:
    """What a browser without the token sees."""
    return environment().get_template("token.html").render(is_wrong=is_wrong)
