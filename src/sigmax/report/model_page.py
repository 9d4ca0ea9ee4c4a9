"""Report of a model on rows that it had not seen: `sigmax fit` and `sigmax evaluate`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, SupportsFloat, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.estimators import SigmaxRegressor
from sigmax.report.importance import (
    Importance,
    dependence_part,
    find_dependence,
    importance_part,
    permutation_importance,
)
from sigmax.report.page import Caution, Page, PagePart
from sigmax.report.tables import ReportTable, TableCell, count_text, number_text, share_text
from sigmax.report.validation import (
    COVERAGE,
    OUT_OF_DISTRIBUTION,
    HeldOutRows,
    LearnedRows,
    calibration_chart,
    groups_part,
    pit_chart,
    predicted_chart,
    reliability_charts,
    share_interval,
    spread_chart,
)
from sigmax.table_model import find_neighbors
from sigmax.tables import Kind, Schema
from sigmax.tables.profile import Finding

RELATIVE_RATIO = 2.0
"""Ratio of large to small targets from which widths are given in per cent of the prediction."""
FEW_ROWS = 100
"""Number of rows below which the report warns that they are few."""
GRAVE = ("leak", "constant target")
"""Findings that make scores meaningless."""
TOO_GOOD = "too good to be true?"
EXPLAINED, CARRIED = 0.95, 0.9
"""Shares of variance, explained by the predictions and due to one column, that may be a leak."""
MANY_OUT_OF_DISTRIBUTION = 0.05
FEW_GROUPS = 10
"""Number of held-out groups below which the report warns that they are few."""
N_SHOWN = 10
N_SUPPORTERS = 5
"""Training rows behind the prediction of a row."""
N_FEATURES = 5
MOST_EXPLAINED, N_EFFECTS = 20, 2
"""Columns whose effects on the spread are computed, and columns shown for each row."""
EFFECTS = "largest effects on the spread"


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
    scores: Sequence[ReportTable]
    verdict: str = ""
    """First sentence: comparison with a simple model."""
    crps: str = "unknown"
    findings: Sequence[Finding] = ()
    training: LearnedRows | None = None
    group_column: str | None = None
    time_column: str | None = None
    conformal: Mapping[float, float] | None = None
    """Level -> coverage of conformal intervals, if the model uses these."""
    are_grouped: bool = False
    is_new_table: bool = False
    """True if the rows come from another table than the model's."""
    cautions: Sequence[Caution] = ()
    """Further warnings, after those of leaks."""
    about: Sequence[ReportTable] = ()
    command: str = ""
    metadata: Sequence[tuple[str, str]] = ()
    """Names and values of the settings, the data and the versions."""

    @cached_property
    def sampled(self) -> Any:
        """Features of a sample of the rows, indexed by position."""
        return self.rows.cells.loc[self.rows.sample()][self.schema.names]

    @cached_property
    def importance(self) -> Importance:
        positions = self.sampled.index.to_numpy()
        return permutation_importance(
            self.model,
            self.sampled,
            self.rows.y[positions],
            held_out=self.rows.mean[positions],
            together=[column.name for column in self.schema.of_kind(Kind.TIME)],
        )

    @property
    def order(self) -> list[str]:
        """Columns by their importance, the most important one first."""
        return [name for i in self.importance.order() for name in self.importance.units[i]]

    def page(self) -> Page:
        """Compute importance and dependence, and assemble the page."""
        headline = Headline(self.rows, self.target, self.are_grouped, self.is_new_table)
        importance, order = self.importance, self.order
        dependence = find_dependence(self.model, self.sampled, self.schema, order)
        cautions = [
            *self.cautions,
            *too_good(importance, self.rows, self.target),
            *self.few_groups(),
        ]
        columns = self.group_column, self.time_column
        reliability, hold = reliability_charts(self.rows, self.target)
        rows_shown = rows_tables(self.model, self.rows, self.target, order, self.training)
        return Page(
            title=self.title,
            subtitle=self.subtitle,
            headline=f"{self.verdict} {headline.sentence}".strip(),
            basis=headline.basis,
            figures=[*headline.figures, ("CRPS", self.crps)],
            warnings=find_cautions(self.findings, headline, cautions),
            no_warnings="No problems were found in the table or in the predictions.",
            parts=[
                PagePart(
                    name="accuracy",
                    heading="How good are the predictions?",
                    lead="How close predictions are to the actual values, and whether errors are"
                    " larger where the model predicts a larger spread.",
                    charts=[
                        predicted_chart(self.rows, self.target),
                        spread_chart(self.rows, self.target),
                    ],
                ),
                PagePart(
                    name="calibration",
                    heading="Are intervals and probabilities right?",
                    lead=f"The 90 % intervals contained {share_text(headline.coverage)} of the"
                    f" rows, {headline.verdict}. {hold}",
                    charts=[
                        calibration_chart(self.rows, self.conformal),
                        pit_chart(self.rows),
                        *reliability,
                    ],
                ),
                *(
                    PagePart(name="experts", heading="Experts of the stack", tables=[table])
                    for table in leaderboard_tables(self.model)
                ),
                importance_part(importance, self.target),
                dependence_part(dependence, order, self.target),
                *groups_part(self.rows, self.target, columns, self.are_grouped),
                PagePart(
                    name="rows",
                    heading="Rows worth a look",
                    lead="Open a row to see the training rows behind its prediction."
                    * any(table.details for table in rows_shown),
                    tables=rows_shown,
                ),
                PagePart(
                    name="scores", heading="Scores and data", tables=[*self.scores, *self.about]
                ),
            ],
            command=self.command,
            metadata=self.metadata,
        )

    def few_groups(self) -> list[Caution]:
        """Warning if the rows belong to few groups, which then decide the scores."""
        if not self.are_grouped or self.group_column is None:
            return []
        groups: Any = self.rows.columns[self.group_column]
        n_groups = groups.nunique(dropna=False)
        if n_groups >= FEW_GROUPS:
            return []
        text = f"The rows belong to {count_text(n_groups, 'group')} of {self.group_column!r}."
        text += " Scores may be quite different for other groups: test more of them."
        return [Caution("few groups", text)]


def rows_tables(
    model: Any, rows: HeldOutRows, target: str, columns: Sequence[str], training: LearnedRows | None
) -> list[ReportTable]:
    """Tables of the most uncertain rows and of the largest errors, with the first ``columns``."""
    if rows.gate is not None:
        measure, values = "out of distribution", rows.gate
        note = (
            "Out of distribution: 0 is near the training rows, 1 is far from all of them. Ties are"
            " sorted by the share of variance due to lack of data."
        )
    else:
        measure, values = "share due to lack of data", rows.epistemic_share
        note = (
            "The method has no measure of distance to the training rows, so rows are sorted by the"
            " share of variance due to lack of data."
        )
    chance = 1 - rows.centrality
    chance_note = (
        "Tail probability: predicted probability of a target at least as extreme, on either side."
        f" The smallest of {len(rows):,} rows is expected to be about"
        f" {number_text(1 / len(rows), 2)}."
    )

    def table(
        title: str, chosen: NDArray[np.intp], extra: Mapping[str, Sequence[str]], *notes: str
    ) -> ReportTable:
        measure, *others = extra
        cells, shown = rows.cells.loc[chosen], list(columns)[:N_FEATURES]
        numbers = rows.numbers[chosen].tolist()
        supporters = find_supporters(model, cells, numbers, training, target, shown)
        if not supporters:
            notes = *notes, "This method does not name training rows behind a prediction."
        return ReportTable(
            title=title,
            header=[
                *("row", measure, target, "predicted", "90 % interval", "error / std"),
                *(*others, *shown),
            ],
            rows=[
                [
                    TableCell(f"row {rows.numbers[row]:,}", rows.numbers[row]),
                    extra[measure][i],
                    TableCell.number(rows.y[row]),
                    TableCell.number(rows.mean[row]),
                    TableCell(
                        f"{number_text(rows.lower[row])} to {number_text(rows.upper[row])}",
                        rows.upper[row] - rows.lower[row],
                    ),
                    signed_cell(rows.standardized_error[row]),
                    *(extra[name][i] for name in others),
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
    effects = largest_effects(model, rows.cells.loc[uncertain], columns)
    about = (
        f"{EFFECTS.capitalize()}: change of the standard deviation by knowing a column, in units of"
        f" {target}. Below 0: knowing it makes this prediction narrower; above 0: wider."
    )
    shares = [TableCell(f"{v:.2f}", v) for v in values[uncertain]]
    chances = [TableCell(f"{p:.2g}" if p >= 1e-6 else "< 0.000001", p) for p in chance[errors]]
    return [
        table("Most uncertain rows", uncertain, {measure: shares, EFFECTS: effects}, note, about),
        table("Rows with the largest errors", errors, {"tail probability": chances}, chance_note),
    ]


def largest_effects(model: Any, cells: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Columns whose knowledge changes the standard deviation of each row most, with the change."""
    change = -model.explain_uncertainty(cells, columns=columns[:MOST_EXPLAINED])
    change = change.replace([np.inf, -np.inf], np.nan).fillna(0.0)

    def text(row: Any) -> str:
        largest = row[row != 0].sort_values(key=np.abs, ascending=False)[:N_EFFECTS]
        signs = ("−" if value < 0 else "+" for value in largest)
        sizes = (number_text(abs(value), 2) for value in largest)
        names = (f"{name}\N{NO-BREAK SPACE}" for name in largest.index)
        return ", ".join(map("".join, zip(names, signs, sizes, strict=True)))

    return [text(row) for _, row in change.iterrows()]


def find_supporters(
    model: Any,
    cells: pd.DataFrame,
    numbers: Sequence[int],
    training: LearnedRows | None,
    target: str,
    columns: Sequence[str],
) -> list[ReportTable]:
    """Other training rows behind each prediction; an empty list if the model names none.

    ``numbers`` are those of the rows, which may be training rows of the model themselves.
    """
    found = None if training is None else find_neighbors(model, cells, N_SUPPORTERS + 1)
    if training is None or found is None:
        return []
    indices, weights = found
    features = [training.X[name] for name in columns]
    tables = []
    for number, rows, shares in zip(numbers, indices.tolist(), weights.tolist(), strict=True):
        pairs = zip(rows, shares, strict=True)
        shown = [(row, share) for row, share in pairs if training.numbers[row] != number]
        shown = [(row, share) for row, share in shown if share > 0][:N_SUPPORTERS]
        rest = share_text(max(0.0, 1 - sum(share for _, share in shown)))
        table = ReportTable(
            title="Training rows with the largest shares in this prediction",
            header=["training row", "share", target, *columns],
            rows=[
                [
                    f"row {training.numbers[row]:,}",
                    TableCell.share(share),
                    TableCell.number(training.y[row]),
                    *(TableCell.feature(cells.iloc[row]) for cells in features),
                ]
                for row, share in shown
            ],
            notes=[
                f"The other {rest} come from the row itself, if it is a training row, from other"
                " rows, and from experts that do not average training rows."
            ],
        )
        tables.append(table)
    return tables


def leaderboard_tables(model: Any) -> list[ReportTable]:
    """Weights and scores of the experts of a stack; empty for other models."""
    if not isinstance(model, SigmaxRegressor):
        return []
    shown: dict[str, Callable[[Any], str]] = {
        "expert": str,
        "weight": lambda value: TableCell(f"{100 * value:.1f} %", value),
        "crps": lambda value: TableCell(f"{value:.3f}", value),
        "log_likelihood": lambda value: TableCell(f"{value:.3f}", value),
        "seconds": lambda value: TableCell(f"{value:.1f}", value),
    }
    titles = {"crps": "CRPS", "log_likelihood": "log-likelihood"}
    board = model.leaderboard_.to_dict("records")
    return [
        ReportTable(
            title="Experts and their weights",
            header=[titles.get(name, name) for name in shown],
            rows=[[text(row[name]) for name, text in shown.items()] for row in board],
            notes=[
                "Scores of training rows, each predicted by a fit that has not seen it, with the"
                " target scaled to standard deviation 1. The weights maximise the log-likelihood of"
                " the mixture."
            ],
        )
    ]


def signed_cell(value: SupportsFloat) -> TableCell:
    """Number with its sign; an unknown one is sorted as 0."""
    value = float(value)
    if not np.isfinite(value):
        return TableCell("unknown", 0.0)
    return TableCell(f"{round(value, 1) + 0.0:+.1f}".replace("-", "−"), value)


@final
@dataclass(frozen=True, eq=False)
class Headline:
    """Coverage and width of the 90 % intervals on held-out rows, in numbers and in words."""

    rows: HeldOutRows
    target: str
    are_grouped: bool = False
    """True if whole groups were held out, so that rows are not independent of each other."""
    is_new_table: bool = False

    @cached_property
    def n_inside(self) -> int:
        return int(self.rows.is_inside.sum())

    @property
    def coverage(self) -> float:
        return self.n_inside / len(self.rows)

    @cached_property
    def bounds(self) -> tuple[float, float]:
        return share_interval(self.n_inside, len(self.rows))

    @property
    def is_relative(self) -> bool:
        """True if widths are relative: all values are positive, and targets differ by factors."""
        y, mean = self.rows.y, self.rows.mean
        if not ((y > 0).all() and (mean > 0).all()):
            return False
        low, high = np.quantile(y, [0.05, 0.95])
        return bool(high / low >= RELATIVE_RATIO)

    @property
    def share_out_of_distribution(self) -> float | None:
        """Share of rows that are out of distribution; None if the model has no gate."""
        gate = self.rows.gate
        return None if gate is None else float(np.mean(gate >= OUT_OF_DISTRIBUTION))

    @property
    def typical_width(self) -> str:
        """Median half width of the intervals: relative, or in units of the target."""
        scale = np.abs(self.rows.mean) / 100 if self.is_relative else 1.0
        width = float(np.median(self.rows.half_width / scale))
        if not np.isfinite(width):
            return "of unknown width"
        if self.is_relative:
            return f"± {width:.0f} %" if width >= 9.5 else f"± {width:.1f} %"
        return f"± {number_text(width, 3)}"

    @property
    def is_rounded(self) -> bool:
        """True if intervals contain too many rows only because they end at values that occur."""
        return self.bounds[0] > COVERAGE and not self.cautions

    @cached_property
    def cautions(self) -> list[Caution]:
        return coverage_cautions(self.n_inside, self.rows.n_at_end, len(self.rows))

    @property
    def verdict(self) -> str:
        """Comparison of observed and nominal coverage."""
        if self.is_rounded:
            return f"more than {share_text(COVERAGE)} because the target is rounded"
        found = [one.code.removeprefix("intervals ") for one in self.cautions]
        return f"so they are {found[0]}" if found else "as expected"

    @property
    def sentence(self) -> str:
        of_prediction = " of the predicted value" if self.is_relative else ""
        sentences = [
            f"The {share_text(COVERAGE)} intervals contained {share_text(self.coverage)} of the"
            f" test values of {self.target}, {self.verdict}.",
            f"A typical interval is {self.typical_width}{of_prediction}.",
        ]
        share = self.share_out_of_distribution
        if share is not None:
            text = "None" if share == 0 else share_text(share)
            sentences.append(f"{text} of the rows are out of distribution.")
        return " ".join(sentences)

    @property
    def figures(self) -> list[tuple[str, str]]:
        """Errors of the predicted mean."""
        error = np.abs(self.rows.y - self.rows.mean)
        variance = float(np.var(self.rows.y))
        explained = 1 - float(np.mean(error**2)) / variance if variance else np.nan
        return [
            ("9 of 10 errors are below", number_text(np.quantile(error, 0.9), 3)),
            ("mean absolute error (MAE)", number_text(error.mean(), 3)),
            ("explained variance (R²)", number_text(explained, 2)),
        ]

    @property
    def basis(self) -> str:
        """Number of rows behind the first sentences, and the uncertainty that follows."""
        low, high = map(share_text, self.bounds)
        seen = "labelled rows of this file" if self.is_new_table else "held-out rows"
        text = (
            f"{self.n_inside:,} of {len(self.rows):,} {seen} were inside their intervals: the true"
            f" coverage is between {low} and {high} (95 % confidence). ± of a CRPS is one standard"
            " error; in the first sentence, as a share of the simple model's CRPS."
        )
        if len(self.rows) < FEW_ROWS:
            text += " These are few rows, so all numbers on this page are uncertain."
        if self.are_grouped:
            text += " Rows of one group are similar, so the true range is wider."
        return text


def find_cautions(
    findings: Sequence[Finding], headline: Headline, others: Sequence[Caution] = ()
) -> list[Caution]:
    """All warnings: leaks, then the other grave ones, then the rest."""
    n_rows, share = len(headline.rows), headline.share_out_of_distribution or 0.0
    scores = list(headline.cautions)
    if n_rows < FEW_ROWS:
        few = count_text(n_rows, "row")
        text = f"The scores are computed from {few} only, so they are uncertain."
        scores.append(Caution("few rows", text))
    if share > MANY_OUT_OF_DISTRIBUTION:
        text = (
            f"{share_text(share)} of the rows are out of distribution, so their predictions fall"
            " back to the overall distribution of the target. Check them for wrong units."
        )
        scores.append(Caution("out of distribution", text))
    grave = [finding for code in GRAVE for finding in findings if finding.code == code]
    mild = [finding for finding in findings if finding.code not in GRAVE]
    found = [
        *(Caution(finding.code, finding.text, is_grave=True) for finding in grave),
        *others,
        *scores,
        *(Caution(finding.code, finding.text) for finding in mild),
    ]
    return sorted(found, key=lambda warning: not warning.is_grave)


def too_good(importance: Importance, rows: HeldOutRows, target: str) -> list[Caution]:
    """Warning if one column alone gives predictions that are nearly exact."""
    variance = float(np.var(rows.y))
    explained = 1 - float(np.mean((rows.y - rows.mean) ** 2)) / variance if variance else 0.0
    moved = importance.mean_shift**2
    share = float(np.max(moved) / np.sum(moved)) if np.any(moved > 0) else 0.0
    if explained < EXPLAINED or share < CARRIED:
        return []
    column = importance.columns[int(np.argmax(moved))]
    text = (
        f"Predictions explain {share_text(explained)} of the variance of {target!r}, nearly all of"
        f" it by {column!r}. Do you know {column!r} before {target!r}? If not, drop it."
    )
    return [Caution(TOO_GOOD, text)]


def coverage_cautions(n_inside: int, n_at_end: int, n_rows: int) -> list[Caution]:
    """Warning if the coverage of 90 % intervals is off by more than chance (binomial test).

    Intervals of a rounded target end at values that occur, and contain more rows than the nominal
    coverage for no other reason. They are too wide only if they would be without their ends.
    """
    (_, high), (low, _) = (share_interval(n, n_rows) for n in (n_inside, n_inside - n_at_end))
    share = f"The {share_text(COVERAGE)} intervals contained {share_text(n_inside / n_rows)} of"
    share += f" {count_text(n_rows, 'row')}"
    if high < COVERAGE:
        text = (
            f"{share}, fewer than chance explains: they are too narrow for rows like these. The"
            " data may have changed since the training, or there were too few training rows. Fit"
            " again with newer or more rows, or with --conformal."
        )
        return [Caution("intervals too narrow", text, is_grave=True)]
    if low > COVERAGE:
        text = f"{share}, more than chance explains: they are wider than needed, which is safe."
        text += " Fit with --conformal for narrower ones."
        return [Caution("intervals wider than needed", text)]
    return []
