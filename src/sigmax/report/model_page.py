"""Report of a model on rows that it had not seen: `sigmax fit` and `sigmax evaluate`."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsFloat, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.report.headline import Headline, find_cautions, new_content, too_good
from sigmax.report.held_out import HeldOutRows, LearnedRows
from sigmax.report.importance import (
    dependence_part,
    find_dependence,
    importance_part,
    permutation_importance,
    time_columns,
)
from sigmax.report.page import Caution, KeyFigure, Page, PagePart
from sigmax.report.tables import ReportTable, TableCell, count_text, number_text, share_text
from sigmax.report.validation import accuracy_part, calibration_part, group_parts, groups_part
from sigmax.tables import Schema
from sigmax.tables.profile import Finding

FEW_GROUPS = 10
"""Number of held-out groups below which the report warns that they are few."""
N_SHOWN = 10
"""Rows in each table of single rows."""
N_SUPPORTERS = 5
"""Training rows behind the prediction of a row."""
N_FEATURES = 5
"""Features of a row that are shown."""

Progress = Callable[[str, float], None]
"""Takes the name of the work and its finished share."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ModelReport:
    """Model, rows and scores of a report."""

    title: str
    subtitle: str
    target: str
    model: Any
    rows: HeldOutRows
    schema: Schema
    """Schema of the features."""
    scores: Sequence[ReportTable]
    verdict: str = ""
    """First sentence: comparison with a simple model."""
    figures: Sequence[KeyFigure] = ()
    """Numbers at the top, besides those of the headline."""
    findings: Sequence[Finding] = ()
    training: LearnedRows | None = None
    group_column: str | None = None
    time_column: str | None = None
    conformal: Mapping[float, float] | None = None
    """Level -> coverage of conformal intervals, if the model uses these."""
    are_grouped: bool = False
    """True if whole groups were held out."""
    is_new_table: bool = False
    """True if the rows come from another table than the model's."""
    cautions: Sequence[Caution] = ()
    """Further warnings, after those of leaks."""
    about: Sequence[ReportTable] = ()
    """Tables about the data."""
    command: str = ""
    facts: Sequence[tuple[str, str]] = ()
    """Names and values of the settings, the data and the versions."""

    def page(self, progress: Progress = lambda what, share: None) -> Page:
        """Compute importance and dependence, and assemble the page."""
        origin = "rows that the model had not seen"
        if self.is_new_table:
            origin = "labelled rows of this file"
        headline = Headline(self.rows, self.target, self.are_grouped, origin)
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
        dependence = find_dependence(
            self.model,
            X,
            self.schema,
            order,
            progress=lambda share: progress("dependence on columns", share),
        )
        cautions = [
            *self.cautions,
            *too_good(importance, self.rows, self.target),
            *self.few_groups(),
            *(new_content(X, self.schema) if self.is_new_table else []),
        ]
        progress("rows worth a look", 0.0)
        titles = [re.sub("^scores", "Scores", table.title) for table in self.scores]
        scores = [replace(table, title=t) for table, t in zip(self.scores, titles, strict=True)]
        columns = self.group_column, self.time_column
        can_explain = hasattr(self.model, "explain_neighbors")
        return Page(
            title=self.title,
            subtitle=self.subtitle,
            headline=f"{self.verdict} {headline.sentence}".strip(),
            basis=headline.basis,
            figures=[*headline.figures, *self.figures],
            warnings=find_cautions(self.findings, headline, cautions),
            no_warnings="No problems were found in the table or in the predictions.",
            parts=[
                accuracy_part(self.rows, self.target),
                calibration_part(self.rows, headline.verdict, self.conformal),
                importance_part(importance, self.target),
                dependence_part(dependence, order, self.target),
                *groups_part(self.rows, self.target, columns, self.are_grouped),
                PagePart(
                    name="rows",
                    heading="Rows worth a look",
                    lead="Open a row to see the training rows behind its prediction." * can_explain,
                    tables=rows_tables(self.model, self.rows, self.target, order, self.training),
                ),
                PagePart(
                    name="scores",
                    heading="Scores and data",
                    tables=[*scores, *self.about],
                ),
            ],
            command=self.command,
            facts=self.facts,
        )

    def few_groups(self) -> list[Caution]:
        """Warning if the rows belong to few groups, which then decide the scores."""
        if not self.are_grouped or self.group_column is None:
            return []
        n_groups = len(group_parts(self.rows, self.rows.columns[self.group_column]))
        if n_groups >= FEW_GROUPS:
            return []
        text = f"The rows belong to {count_text(n_groups, 'group')} of {self.group_column!r}."
        return [Caution("few groups", f"{text} Scores may be quite different for other groups.")]


def rows_tables(
    model: Any,
    rows: HeldOutRows,
    target: str,
    columns: Sequence[str],
    training: LearnedRows | None,
) -> list[ReportTable]:
    """Tables of the most uncertain rows and of those with the largest errors.

    ``columns`` are the features by importance, of which the first are shown.
    """
    if rows.gate is not None:
        measure, values = "out of distribution", rows.gate
        note = (
            "Out of distribution: 0 is near the training rows, 1 is unlike all of them. Ties are"
            " sorted by the share of variance due to lack of data."
        )
    else:
        measure, values = "share due to lack of data", rows.epistemic_share
        note = (
            "This method does not measure how far rows are from the training rows: they are sorted"
            " by the share of variance due to lack of data."
        )
    chance = 1 - rows.centrality
    chance_note = (
        "Chance of worse: predicted probability of a target at least as extreme, on either side."
        f" The smallest of {len(rows):,} rows is expected to be about"
        f" {number_text(1 / len(rows), 2)}."
    )

    def table(
        title: str,
        chosen: NDArray[np.intp],
        measure: str,
        measured: Sequence[TableCell],
        note: str,
    ) -> ReportTable:
        cells, shown = rows.cells.loc[chosen], list(columns)[:N_FEATURES]
        supporters = find_supporters(model, cells, training, target, shown)
        notes = [note]
        if not supporters:
            notes.append("This method does not name training rows behind a prediction.")
        elif training is not None and training.numbers is None:
            notes.append("Training rows are counted without those whose target is missing.")
        return ReportTable(
            title=title,
            header=["row", measure, target, "predicted", "90 % interval", "error in std", *shown],
            rows=[
                [
                    TableCell(f"row {rows.numbers[row]:,}", rows.numbers[row]),
                    measured[i],
                    TableCell.number(rows.y[row]),
                    TableCell.number(rows.mean[row]),
                    TableCell(
                        f"{number_text(rows.lower[row])} to {number_text(rows.upper[row])}",
                        rows.upper[row] - rows.lower[row],
                    ),
                    signed_cell(rows.standardized_error[row]),
                    *(TableCell.feature(cells[column].iloc[i]) for column in shown),
                ]
                for i, row in enumerate(chosen.tolist())
            ],
            notes=notes,
            details=supporters,
            details_label="Show the training rows behind it",
            has_filter=True,
        )

    uncertain, errors = rows.most_uncertain()[:N_SHOWN], rows.largest_errors()[:N_SHOWN]
    shares = [TableCell(f"{v:.2f}", v) for v in values[uncertain]]
    chances = [TableCell(f"{p:.2g}" if p >= 1e-6 else "< 0.000001", p) for p in chance[errors]]
    return [
        table("Most uncertain rows", uncertain, measure, shares, note),
        table("Rows with the largest errors", errors, "chance of worse", chances, chance_note),
    ]


def find_supporters(
    model: Any,
    cells: pd.DataFrame,
    training: LearnedRows | None,
    target: str,
    columns: Sequence[str],
) -> list[ReportTable]:
    """Training rows behind each prediction; an empty list if the model does not name them."""
    explain = getattr(model, "explain_neighbors", None)
    if explain is None or training is None or not len(cells):
        return []
    indices, weights = explain(cells, k=N_SUPPORTERS)
    X, y = training.X, training.y
    shown = [] if X is None else list(columns)
    features = [] if X is None else [X[name] for name in shown]
    tables = []
    for supporters, shares in zip(indices.tolist(), weights.tolist(), strict=True):
        rest = share_text(max(0.0, 1 - sum(shares)))
        table = ReportTable(
            title="Training rows with the largest shares in this prediction",
            header=["training row", "share", target, *shown],
            rows=[
                [
                    f"row {training.number(row):,}",
                    TableCell.share(share),
                    TableCell.number(y[row]),
                    *(TableCell.feature(cells.iloc[row]) for cells in features),
                ]
                for row, share in zip(supporters, shares, strict=True)
                if share > 0
            ],
            notes=[f"The other {rest} come from other rows and the model's prior."],
        )
        tables.append(table)
    return tables


def signed_cell(value: SupportsFloat) -> TableCell:
    """Number with its sign; an unknown one is sorted as 0."""
    value = float(value)
    if not np.isfinite(value):
        return TableCell("unknown", 0.0)
    return TableCell(f"{round(value, 1) + 0.0:+.1f}".replace("-", "−"), value)
