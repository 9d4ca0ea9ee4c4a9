"""Summary of a report: its first sentences and its warnings."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import pandas as pd

from sigmax.report.held_out import COVERAGE, OUT_OF_DISTRIBUTION, HeldOutRows, share_interval
from sigmax.report.importance import Importance
from sigmax.report.page import Caution, KeyFigure
from sigmax.report.tables import count_text, number_text, share_text
from sigmax.tables import Kind, Schema, Table
from sigmax.tables.columns import as_frame, columns_of_frame
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
MANY_NEW = 0.01
"""Share of rows with unseen categories or values out of range above which there is a warning."""


@final
@dataclass(frozen=True, eq=False)
class Headline:
    """Coverage and width of the 90 % intervals on held-out rows, in numbers and in words."""

    rows: HeldOutRows
    target: str
    are_grouped: bool = False
    """True if whole groups were held out, so that rows are not independent of each other."""
    origin: str = "rows that the model had not seen"

    @cached_property
    def n_inside(self) -> int:
        return int(self.rows.is_inside.sum())

    @property
    def coverage(self) -> float:
        return self.n_inside / len(self.rows)

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """Confidence interval of the coverage."""
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
        n_within = self.n_inside - self.rows.n_at_end
        return share_interval(n_within, len(self.rows))[0] <= COVERAGE < self.bounds[0]

    @property
    def verdict(self) -> str:
        """Comparison of observed and nominal coverage."""
        if self.bounds[1] < COVERAGE:
            return "so they are too narrow"
        if self.is_rounded:
            return f"more than {share_text(COVERAGE)} because the target is rounded"
        if self.bounds[0] > COVERAGE:
            return "so they are wider than needed"
        return "as expected"

    @property
    def sentence(self) -> str:
        """First sentences of the report."""
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
    def basis(self) -> str:
        """Number of rows behind the first sentences, and the uncertainty that follows."""
        low, high = map(share_text, self.bounds)
        text = (
            f"Computed from {len(self.rows):,} {self.origin}: {self.n_inside:,} of them were inside"
            f" their intervals. The true coverage is between {low} and {high} (95 % confidence)."
        )
        if len(self.rows) < FEW_ROWS:
            text += " These are few rows, so all numbers on this page are uncertain."
        if self.are_grouped:
            text += " Rows of one group are similar, so the true range is wider."
        return text

    @property
    def figures(self) -> list[KeyFigure]:
        """Numbers at the top of the page."""
        low, high = map(share_text, self.bounds)
        between = f"{low} to {high} with 95 % confidence"
        found = [
            KeyFigure("inside the 90 % interval", share_text(self.coverage), between),
            KeyFigure(
                "typical interval", self.typical_width, "half of the rows have a narrower one"
            ),
        ]
        share = self.share_out_of_distribution
        if share is not None:
            n_rows = len(self.rows)
            detail = f"{round(share * n_rows):,} of {count_text(n_rows, 'row')}"
            found.append(KeyFigure("out of distribution", share_text(share), detail))
        return found


def find_cautions(
    findings: Sequence[Finding], headline: Headline, others: Sequence[Caution] = ()
) -> list[Caution]:
    """All warnings: leaks, then the other grave ones, then the rest."""
    grave = [finding for code in GRAVE for finding in findings if finding.code == code]
    mild = [finding for finding in findings if finding.code not in GRAVE]
    found = [
        *(Caution(finding.code, finding.text, is_grave=True) for finding in grave),
        *others,
        *score_cautions(headline),
        *(Caution(finding.code, finding.text) for finding in mild),
    ]
    return sorted(found, key=lambda warning: not warning.is_grave)


def score_cautions(headline: Headline) -> list[Caution]:
    """Warnings from the held-out rows."""
    n_rows, share = len(headline.rows), headline.share_out_of_distribution or 0.0
    found = coverage_cautions(headline.n_inside, headline.rows.n_at_end, n_rows)
    if n_rows < FEW_ROWS:
        few = count_text(n_rows, "row")
        text = f"The scores are computed from {few} only. Hold out more rows if you can."
        found.append(Caution("few rows", text))
    if share > MANY_OUT_OF_DISTRIBUTION:
        text = f"{share_text(share)} of the rows are unlike the training rows."
        found.append(Caution("out of distribution", text))
    return found


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
            " data may have changed since the training, or there were too few training rows."
        )
        return [Caution("intervals too narrow", text, is_grave=True)]
    if low > COVERAGE:
        text = f"{share}, more than chance explains: they are wider than needed."
        return [Caution("intervals wider than needed", text)]
    return []


def new_content(cells: pd.DataFrame, schema: Schema) -> list[Caution]:
    """Warnings about unseen categories, and numbers and times out of the training range."""
    table = Table.from_columns(columns_of_frame(as_frame(cells[schema.names])), schema)
    unseen, out_of_range = [], []
    for column, found in zip(schema.of_kind(Kind.CATEGORY), table.categories, strict=True):
        is_new = found.among(column.categories, unknown=-2) == -2
        if np.mean(is_new) > MANY_NEW:
            unseen.append(f"{column.name!r} ({share_text(float(np.mean(is_new)))})")
    for kind, values in ((Kind.NUMBER, table.numbers), (Kind.TIME, table.times)):
        for i, column in enumerate(schema.of_kind(kind)):
            if column.low is None or column.high is None:
                continue
            is_out = (values[:, i] < column.low) | (values[:, i] > column.high)
            if np.mean(is_out) > MANY_NEW:
                out_of_range.append(f"{column.name!r} ({share_text(float(np.mean(is_out)))})")
    cautions = {
        "unseen categories": ("Rows have categories that no training row has", unseen),
        "out of range": ("Rows are outside the range of the training rows", out_of_range),
    }
    return [
        Caution(code, f"{text}: {named(columns)}.")
        for code, (text, columns) in cautions.items()
        if columns
    ]


def named(texts: Sequence[str], most: int = 5) -> str:
    more = f" and {len(texts) - most:,} more columns" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
