"""Parts of a model's report that `sigmax fit` and `sigmax evaluate` share."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sigmax.cli.scores import LEVELS, Estimate, estimate_text
from sigmax.estimators import AbstractRegressor
from sigmax.experts.local import LocalFitted
from sigmax.report import HeldOutRows, LearnedRows, ModelReport
from sigmax.report.page import KeyFigure
from sigmax.report.tables import ReportTable, TableCell
from sigmax.table_model import SavedTableModel
from sigmax.tables.profile import Profile
from sigmax.tables.schema import Kind, Schema


def model_report(
    saved: SavedTableModel,
    source: str,
    rows: HeldOutRows,
    summary: Mapping[str, Estimate],
    *,
    method: str,
    n_rows: int,
    about_rows: Sequence[tuple[str, str]],
    **details: Any,
) -> ModelReport:
    """The report of a model on rows of ``source``, which are scored with intervals of a method.

    The model was fitted to ``n_rows`` rows. ``about_rows`` are texts on table, split and fit;
    ``details`` are fields of `ModelReport`.
    """
    settings = saved.model.settings(n_rows)
    return ModelReport(
        title=f"{saved.target} of {source}",
        target=saved.target,
        model=saved.model,
        rows=rows,
        figures=[
            KeyFigure("typical error (CRPS)", estimate_text(summary["crps"]), "lower is better")
        ],
        conformal={level: summary[f"coverage_{level * 100:g}"].value for level in LEVELS}
        if method == "conformal"
        else None,
        facts=[
            *about_rows,
            ("intervals", method),
            *((f"version of {name}", text) for name, text in saved.metadata["versions"].items()),
            *((f"setting {name}", str(value)) for name, value in settings.items()),
        ],
        **details,
    )


def first_time_column(schema: Schema) -> str | None:
    """The column over which coverage is shown if no other is named."""
    return next((column.name for column in schema.of_kind(Kind.TIME)), None)


def stored_targets(model: AbstractRegressor) -> LearnedRows | None:
    """Targets of the training rows that a model stores, in their original order."""
    fitted = model.model_.fitted
    if not isinstance(fitted, LocalFitted):
        return None
    rows = fitted.rows
    y = np.full(int(rows.indices.max()) + 1, np.nan)
    y[rows.indices] = model.model_.target.restore(np.asarray(rows.y, np.float64))[:, 0]
    return LearnedRows(y)


def columns_table(profile: Profile) -> ReportTable:
    """The features of the model."""
    rows = [
        [
            column.name,
            column.kind.value,
            TableCell(f"{column.n_missing:,}", column.n_missing),
            TableCell(f"{column.n_distinct:,}", column.n_distinct),
            column.low,
            column.high,
        ]
        for column in profile.columns
    ]
    return ReportTable(
        has_filter=True,
        title="Features of the model",
        is_folded=True,
        header=["column", "kind", "missing", "distinct values", "from", "to"],
        rows=rows,
    )
