"""The report of a model on rows that it had not seen: `sigmax fit` and `sigmax evaluate`."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import pandas as pd

from sigmax.report.accuracy import predicted_chart, spread_chart
from sigmax.report.calibration_curves import calibration_chart, pit_chart
from sigmax.report.cautions import find_cautions, new_content, too_good
from sigmax.report.dependence import MOST_COLUMNS, dependence_chart, find_dependence
from sigmax.report.groups import group_parts, parts_chart, parts_table, time_parts
from sigmax.report.headline import Headline, write_headline
from sigmax.report.held_out import HeldOutRows
from sigmax.report.importance import Importance, importance_charts, permutation_importance
from sigmax.report.page import Caution, KeyFigure, Page, PagePart, PageTable, TableCell, TableRow
from sigmax.report.rows import LearnedRows, rows_tables
from sigmax.report.texts import count_text, number_text, share_text
from sigmax.report.trials import time_columns
from sigmax.runs.tables import ReportTable
from sigmax.tables import Kind, Schema, Table
from sigmax.tables.columns import as_frame, columns_of_frame
from sigmax.tables.profile import Finding

__all__ = ["ModelReport", "as_page_table"]

FEW_GROUPS = 10
"""Held-out groups below which it is said that they are few."""

Progress = Callable[[str, float], None]
"""Takes what is being done, and the share of it that is done."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ModelReport:
    """All that a report needs to know."""

    title: str
    subtitle: str
    target: str
    model: Any
    rows: HeldOutRows
    schema: Schema
    """Of the features."""
    scores: Sequence[ReportTable]
    verdict: str = ""
    """First sentence: whether the model is better than a plain one."""
    figures: Sequence[KeyFigure] = ()
    """Numbers at the top, besides those of the headline."""
    findings: Sequence[Finding] = ()
    training: LearnedRows | None = None
    group_column: str | None = None
    time_column: str | None = None
    conformal: Mapping[float, float] | None = None
    """Level -> coverage of conformal intervals, if these are the model's."""
    are_grouped: bool = False
    """Whether whole groups were held out."""
    is_new_table: bool = False
    """Whether the rows come from another table than the model's."""
    cautions: Sequence[Caution] = ()
    """Further warnings, after those of leaks."""
    about: Sequence[PageTable] = field(default=())
    """Tables about the data."""
    command: str = ""
    facts: Sequence[tuple[str, str]] = ()

    def page(self, progress: Progress = lambda what, share: None) -> Page:
        """Compute what is not known yet, and put everything in its place."""
        headline = write_headline(
            self.rows,
            self.target,
            are_grouped=self.are_grouped,
            origin="labelled rows of this file"
            if self.is_new_table
            else "rows that the model had not seen",
        )
        sampled = self.rows.cells.loc[self.rows.sample()]
        X: Any = sampled[self.schema.names]
        importance = permutation_importance(
            self.model,
            X,
            self.rows.y[sampled.index.to_numpy()],
            together=time_columns(self.schema),
            progress=lambda share: progress("importance of columns", share),
        )
        order = [name for i in importance.order() for name in importance.units[i]]
        others = new_content(X, self.schema) if self.is_new_table else []
        others = [
            *self.cautions,
            *too_good(importance, self.rows, self.target),
            *self.few_groups(),
            *others,
        ]
        parts = [
            self.accuracy_part(),
            self.calibration_part(headline),
            self.importance_part(importance),
            self.dependence_part(X, order, progress),
            *self.groups_part(),
            self.rows_part(order, progress),
            PagePart(
                name="scores",
                heading="Scores and data",
                tables=[*map(as_page_table, self.scores), *self.about],
            ),
        ]
        return Page(
            title=self.title,
            subtitle=self.subtitle,
            headline=f"{self.verdict} {headline.sentence}".strip(),
            basis=headline.basis,
            figures=[*headline_figures(headline), *self.figures],
            warnings=find_cautions(self.findings, headline, others),
            no_warnings="Nothing was found that speaks against the table or the model.",
            parts=parts,
            command=self.command,
            facts=self.facts,
        )

    def few_groups(self) -> list[Caution]:
        """A warning if the rows are of so few groups that these alone decide the scores."""
        if not self.are_grouped or self.group_column is None:
            return []
        n_groups = len(group_parts(self.rows, self.rows.columns[self.group_column]))
        if n_groups >= FEW_GROUPS:
            return []
        text = f"The rows are those of {count_text(n_groups, 'group')} of {self.group_column!r}:"
        return [Caution("few groups", f"{text} with other groups, scores may be quite different.")]

    def accuracy_part(self) -> PagePart:
        return PagePart(
            name="accuracy",
            heading="How good are the predictions?",
            lead="How near predictions are to actual values, and whether the model knows where it"
            " is unsure.",
            charts=[predicted_chart(self.rows, self.target), spread_chart(self.rows, self.target)],
        )

    def calibration_part(self, headline: Headline) -> PagePart:
        return PagePart(
            name="calibration",
            heading="Do intervals keep their promise?",
            lead=f"The 90 % intervals hold {share_text(headline.share_inside)} of the rows,"
            f" {headline.verdict}.",
            charts=[calibration_chart(self.rows, self.conformal), pit_chart(self.rows)],
        )

    def importance_part(self, found: Importance) -> PagePart:
        rows = [
            TableRow(
                [
                    TableCell(found.columns[i]),
                    TableCell(number_text(found.mean_shift[i], 3), float(found.mean_shift[i])),
                    TableCell(number_text(found.error_rise[i], 3), float(found.error_rise[i])),
                    TableCell(share_text(found.spread_factor[i]), float(found.spread_factor[i])),
                ]
            )
            for i in found.order()
        ]
        table = PageTable(
            title="All columns as numbers",
            is_folded=True,
            header=["column", "mean moves by", "error rises by", "spread changes by"],
            rows=rows,
            notes=["An error that falls does so by chance: the column says nothing."],
        )
        return PagePart(
            name="importance",
            heading="What drives the prediction",
            lead="Which columns move the mean, and which change how wide the distribution is.",
            charts=importance_charts(found, self.target),
            tables=[table],
        )

    def dependence_part(
        self, X: pd.DataFrame, order: Sequence[str], progress: Progress
    ) -> PagePart:
        found = find_dependence(
            self.model,
            X,
            self.schema,
            order,
            progress=lambda share: progress("dependence on columns", share),
        )
        hidden = len(order) - MOST_COLUMNS
        note = f"Shown for the {MOST_COLUMNS} most important of {len(order):,} columns."
        return PagePart(
            name="dependence",
            heading="Dependence on a column",
            choice_label="Column",
            choices=[
                (one.column, dependence_chart(one, self.target, f"dependence-{i}"))
                for i, one in enumerate(found)
            ],
            notes=[note] if hidden > 0 else [],
        )

    def rows_part(self, order: Sequence[str], progress: Progress) -> PagePart:
        progress("rows worth a look", 0.0)
        return PagePart(
            name="rows",
            heading="Rows worth a look",
            lead="A row can be opened to see the training rows behind its prediction."
            if hasattr(self.model, "explain_neighbors")
            else "",
            tables=rows_tables(self.model, self.rows, self.target, order, self.training),
        )

    def groups_part(self) -> list[PagePart]:
        """Coverage by group and over time, where there are such columns."""
        charts, tables = [], []
        if self.group_column is not None:
            parts = group_parts(self.rows, self.rows.columns[self.group_column])
            charts.append(parts_chart(parts, self.group_column, "groups", is_time=False))
            tables.append(parts_table(parts, self.group_column, self.target))
        if self.time_column is not None:
            column = self.rows.columns[self.time_column]
            times, are_times = time_values(column)
            parts = time_parts(self.rows, times, are_times=are_times)
            if len(parts) > 1:
                shown = {"is_time": True, "are_times": are_times}
                charts.append(parts_chart(parts, self.time_column, "periods", **shown))
                tables.append(parts_table(parts, self.time_column, self.target))
        if not charts:
            return []
        lead = "Whether the promise holds in every part of the rows."
        if self.are_grouped:
            lead += " Rows of one group are alike: the confidence intervals are too narrow."
        return [
            PagePart(
                name="parts",
                heading="Coverage by parts of the rows",
                lead=lead,
                charts=charts,
                tables=tables,
            )
        ]


def time_values(column: Any) -> tuple[np.ndarray, bool]:
    """A column as seconds since 1970 or as numbers, and whether these are times."""
    frame = pd.DataFrame({"time": column})
    raw = columns_of_frame(as_frame(frame))
    schema = Schema(tuple(one.describe(None) for one in raw))
    table = Table.from_columns(raw, schema)
    if schema.columns[0].kind is Kind.TIME:
        return table.times[:, 0], True
    if schema.columns[0].kind is Kind.NUMBER:
        return table.numbers[:, 0], False
    return np.full(len(column), np.nan), False


def headline_figures(headline: Headline) -> list[KeyFigure]:
    between = f"{share_text(headline.low)} to {share_text(headline.high)} with 95 % confidence"
    found = [
        KeyFigure("inside the 90 % interval", share_text(headline.share_inside), between),
        KeyFigure(
            "typical interval", headline.typical_text, "half of the rows have a narrower one"
        ),
    ]
    if headline.share_off_data is not None:
        n_off = round(headline.share_off_data * headline.n_rows)
        off = f"{n_off:,} of {count_text(headline.n_rows, 'row')}"
        found.append(KeyFigure("unlike anything seen", share_text(headline.share_off_data), off))
    return found


def as_page_table(table: ReportTable) -> PageTable:
    """A table of texts that can be sorted: cells that begin with a number by that number."""
    rows = [
        TableRow([TableCell(row[0].replace("**", "")), *(as_cell(text, table) for text in row[1:])])
        for row in table.rows
    ]
    title = re.sub("^scores", "Scores", table.title)  # and never the name of a column
    return PageTable(
        title=title, header=table.header, rows=rows, notes=table.notes, has_filter=False
    )


def as_cell(text: str, table: ReportTable) -> TableCell:
    text = text.replace("**", "")
    value = None if table.in_words else leading_number(text)
    return TableCell(text if value is None else text.replace("-", "−"), value)


def leading_number(text: str) -> float | None:
    """The number that a text begins with.

    Examples
    --------
    >>> leading_number("12,346 ± 79"), leading_number("-3.5 %"), leading_number("none")
    (12346.0, -3.5, None)
    """
    words = text.split()
    try:
        value = float(words[0].replace(",", "")) if words else None
    except ValueError:
        return None
    return value if value is not None and np.isfinite(value) else None
