"""Warnings of a report, the gravest first: leaks, then what scores say, then the table."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from sigmax.report.headline import FEW_ROWS, Headline
from sigmax.report.held_out import COVERAGE
from sigmax.report.page import Caution
from sigmax.report.texts import count_text, share_text
from sigmax.tables import Kind, Schema, Table
from sigmax.tables.columns import as_frame, columns_of_frame
from sigmax.tables.profile import Finding

__all__ = ["find_cautions", "new_content"]

GRAVE = ("leak", "constant target")
"""Findings after which scores mean nothing."""
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
    found = []
    share, promised = share_text(headline.share_inside), share_text(COVERAGE)
    if headline.high < COVERAGE:
        text = (
            f"{share} of the rows are inside intervals that promise {promised}, which is less than"
            " chance would explain. Rows may have changed since the model learned, or be too few."
        )
        found.append(Caution("intervals too narrow", text, is_grave=True))
    elif headline.is_rounding:
        text = (
            f"{share} of the rows are inside intervals that promise {promised}: values are rounded,"
            " and intervals go from one value to another, so they hold more than nominal."
        )
        found.append(Caution("rounded values", text))
    elif headline.low > COVERAGE:
        text = f"{share} of the rows are inside intervals that promise {promised}: they could be"
        found.append(Caution("intervals wider than needed", f"{text} narrower."))
    if headline.n_rows < FEW_ROWS:
        text = f"The scores rest on {count_text(headline.n_rows, 'row')}: hold out more if you can."
        found.append(Caution("few rows", text))
    if (headline.share_off_data or 0) > MANY_OFF_DATA:
        text = (
            f"{share_text(headline.share_off_data or 0)} of the rows are unlike anything learned."
        )
        found.append(Caution("rows off the data", text))
    return found


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
