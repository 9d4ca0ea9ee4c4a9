"""Warnings of a report, the gravest first: leaks, then what scores say, then the table."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from sigmax.report.chance import share_interval
from sigmax.report.headline import FEW_ROWS, Headline
from sigmax.report.held_out import COVERAGE, HeldOutRows
from sigmax.report.importance import Importance
from sigmax.report.page import Caution
from sigmax.report.texts import count_text, share_text
from sigmax.tables import Kind, Schema, Table
from sigmax.tables.columns import as_frame, columns_of_frame
from sigmax.tables.profile import Finding

__all__ = ["TOO_GOOD", "coverage_cautions", "find_cautions", "new_content", "too_good"]

GRAVE = ("leak", "constant target")
"""Findings after which scores mean nothing."""
TOO_GOOD = "too good to be true?"
EXPLAINED, CARRIED = 0.95, 0.9
"""Share of the variance that predictions explain, and that one column carries, to ask that."""
MANY_OFF_DATA = 0.05
MANY_NEW = 0.01
"""Share of rows with content that was not learned from, from which it is told."""


def find_cautions(
    findings: Sequence[Finding], headline: Headline, others: Sequence[Caution] = ()
) -> list[Caution]:
    """All warnings, those of leaks first, then all others that are grave."""
    order = {code: place for place, code in enumerate(GRAVE)}
    grave = sorted((f for f in findings if f.code in order), key=lambda f: order[f.code])
    mild = [finding for finding in findings if finding.code not in order]
    found = [
        *(Caution(finding.code, finding.text, is_grave=True) for finding in grave),
        *others,
        *score_cautions(headline),
        *(Caution(finding.code, finding.text) for finding in mild),
    ]
    return sorted(found, key=lambda warning: not warning.is_grave)


def score_cautions(headline: Headline) -> list[Caution]:
    """What the held-out rows say against the model."""
    found = coverage_cautions(headline.n_inside, headline.n_at_end, headline.n_rows)
    if headline.n_rows < FEW_ROWS:
        text = f"The scores rest on {count_text(headline.n_rows, 'row')}: hold out more if you can."
        found.append(Caution("few rows", text))
    if (headline.share_off_data or 0) > MANY_OFF_DATA:
        text = (
            f"{share_text(headline.share_off_data or 0)} of the rows are unlike anything learned."
        )
        found.append(Caution("rows off the data", text))
    return found


def too_good(importance: Importance, rows: HeldOutRows, target: str) -> list[Caution]:
    """A question if one column alone gives predictions that are nearly exact."""
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
    """Coverage of 90 % intervals that is off by more than chance: an exact binomial test.

    Intervals of a rounded target end at values that occur, and contain more rows than the nominal
    coverage for no other reason. They are too wide only if they would be without their ends.
    """
    (_, high), (low, _) = (share_interval(n, n_rows) for n in (n_inside, n_inside - n_at_end))
    share = f"The {share_text(COVERAGE)} intervals contained {share_text(n_inside / n_rows)} of"
    share += f" {count_text(n_rows, 'row')}"
    if high < COVERAGE:
        text = (
            f"{share}, fewer than chance explains: they are too narrow for rows like these. Rows"
            " may have changed since the training, or training rows be too few."
        )
        return [Caution("intervals too narrow", text, is_grave=True)]
    if low > COVERAGE:
        text = f"{share}, more than chance explains: they are wider than needed."
        return [Caution("intervals wider than needed", text)]
    return []


def new_content(cells: pd.DataFrame, schema: Schema) -> list[Caution]:
    """What rows hold that the model never saw: new levels, numbers and times out of range."""
    table = Table.from_columns(columns_of_frame(as_frame(cells[schema.names])), schema)
    levels, ranges = [], []
    for column, found in zip(schema.of_kind(Kind.CATEGORY), table.categories, strict=True):
        is_new = found.among(column.levels, unknown=-2) == -2
        if np.mean(is_new) > MANY_NEW:
            levels.append(f"{column.name!r} ({share_text(float(np.mean(is_new)))})")
    for kind, values in ((Kind.NUMBER, table.numbers), (Kind.TIME, table.times)):
        for i, column in enumerate(schema.of_kind(kind)):
            if column.low is None or column.high is None:
                continue
            is_out = (values[:, i] < column.low) | (values[:, i] > column.high)
            if np.mean(is_out) > MANY_NEW:
                ranges.append(f"{column.name!r} ({share_text(float(np.mean(is_out)))})")
    warnings = []
    if levels:
        text = f"Rows have levels that no training row has: {named(levels)}."
        warnings.append(Caution("new levels", text))
    if ranges:
        text = f"Rows lie outside the range of the training rows: {named(ranges)}."
        warnings.append(Caution("out of range", text))
    return warnings


def named(texts: Sequence[str], most: int = 5) -> str:
    more = f" and {len(texts) - most:,} more columns" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
