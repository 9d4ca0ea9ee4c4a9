"""What `sigmax fit` and `sigmax evaluate` tell the report of a model."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from sigmax.commands.folder import SavedTableModel
from sigmax.commands.repeat import repeat_command
from sigmax.commands.score_tables import estimate_text
from sigmax.commands.scores import LEVELS, Estimate
from sigmax.report import HeldOutRows, LearnedRows, ModelReport
from sigmax.report.page import Caution, KeyFigure, PageTable, TableCell, TableRow
from sigmax.runs.tables import ReportTable
from sigmax.tables.profile import Finding, Profile
from sigmax.tables.schema import Kind, Schema

__all__ = [
    "Bar",
    "evaluation_report",
    "fit_command",
    "fit_report",
    "no_bar",
    "saved_training",
    "times_of",
]

Progress = Callable[[str, float], None]
Bar = Callable[[str], AbstractContextManager[Progress]]
"""For a name, what shows how much of the work is done."""

Summary = Mapping[str, Estimate]


def no_bar(name: str) -> AbstractContextManager[Progress]:
    """Shows nothing."""
    return nullcontext(lambda what, share: None)


def times_of(schema: Schema) -> list[str]:
    """The first column of times, over which coverage is shown if no other is named."""
    return [column.name for column in schema.of_kind(Kind.TIME)][:1]


def fit_report(
    model: Any,
    rows: HeldOutRows,
    *,
    facts: Mapping[str, Any],
    verdict: str,
    scores: ReportTable,
    summaries: Mapping[str, Summary],
    profile: Profile,
    training: LearnedRows | None,
    seconds: float,
    settings: Mapping[str, Any],
    command: str,
) -> ModelReport:
    """The report of a fit, on the rows that were held out."""
    options, target = facts["options"], facts["target"]
    time_column = options["time_column"] or next(iter(times_of(profile.schema)), None)
    counts = facts["rows"]
    n_rows = counts.get("in_files", profile.n_rows)  # of many rows, the profile has a sample
    n_without = n_rows - counts["with_target"]
    left_out = f", {n_without:,} without a target left out" * bool(n_without)
    made = [
        ("table", f"{facts['source']}, {n_rows:,} rows{left_out}"),
        ("held out", f"{counts['test']:,} of {counts['with_target']:,} rows: {facts['split']}"),
        ("model", f"{type(model).__name__}, fitted to {counts['train']:,} rows for this page"),
        ("kept in the folder", f"the model of {facts['fitted_to']}"),
        ("intervals", facts["intervals"]),
        ("seconds to fit", f"{seconds:.1f}"),
        *version_facts(facts),
        *setting_facts(settings),
    ]
    return ModelReport(
        title=f"{target} of {facts['source']}",
        subtitle=f"A model of {counts['train']:,} rows, judged by {counts['test']:,} others"
        f" ({facts['split']})",
        target=target,
        model=model,
        rows=rows,
        schema=profile.schema,
        scores=[scores],
        verdict=verdict,
        figures=[error_figure(summaries["model"])],
        findings=profile.findings,
        training=training,
        group_column=options["group_column"],
        time_column=time_column,
        conformal=conformal_points(facts["intervals"], summaries["model"]),
        are_grouped=options["group_column"] is not None,
        about=[columns_table(profile)],
        command=command,
        facts=made,
    )


def evaluation_report(
    saved: SavedTableModel,
    source: str,
    rows: HeldOutRows,
    scores: Summary,
    tables: list[ReportTable],
    cautions: Sequence[Caution],
    *,
    verdict: str,
    by: str | None,
    time_column: str | None,
    method: str,
    command: str,
) -> ModelReport:
    """The report of a saved model on new labelled rows."""
    facts, model = saved.facts, saved.model
    schema = model.features_.schema
    found = [Finding(f["code"], tuple(f["columns"]), f["text"]) for f in facts.get("findings", [])]
    group_column = facts["options"]["group_column"]
    made = [
        ("table", f"{source}, {len(rows):,} rows with a target"),
        ("model", f"{type(model).__name__} of {facts['source']}, {facts['fitted_to']}"),
        ("intervals", method),
        *version_facts(facts),
        *setting_facts(model.recipe()),
    ]
    return ModelReport(
        title=f"{saved.target} of {source}",
        subtitle=f"The model of {facts['source']} on {len(rows):,} labelled rows",
        target=saved.target,
        model=model,
        rows=rows,
        schema=schema,
        scores=tables,
        verdict=verdict,
        figures=[error_figure(scores)],
        findings=[finding for finding in found if finding.code == "leak"],
        training=saved_training(model),
        group_column=by or (group_column if group_column in rows.columns else None),
        time_column=time_column or next(iter(times_of(schema)), None),
        conformal=conformal_points(method, scores),
        are_grouped=group_column in rows.columns,
        is_new_table=True,
        cautions=cautions,
        command=command,
        facts=made,
    )


def saved_training(model: Any) -> LearnedRows | None:
    """The targets that a saved model keeps, in the order in which it got its rows."""
    rows = getattr(model, "rows_", None)
    if rows is None:
        return None
    y = np.full(int(rows.indices.max()) + 1, np.nan)
    y[rows.indices] = model.units_.restore(np.asarray(rows.y, np.float64))[:, 0]
    return LearnedRows(y)


def conformal_points(intervals: str, scores: Summary) -> dict[float, float] | None:
    """Coverage of conformal intervals by level."""
    if intervals != "conformal":
        return None
    return {level: scores[f"coverage_{level * 100:g}"].value for level in LEVELS}


def error_figure(scores: Summary) -> KeyFigure:
    return KeyFigure("typical error (CRPS)", estimate_text(scores["crps"]), "lower is better")


def columns_table(profile: Profile) -> PageTable:
    """The columns that the model learns from."""
    rows = [
        TableRow(
            [
                TableCell(column.name),
                TableCell(column.kind.value),
                TableCell(f"{column.n_gaps:,}", column.n_gaps),
                TableCell(f"{column.n_distinct:,}", column.n_distinct),
                TableCell(column.low),
                TableCell(column.high),
            ]
        )
        for column in profile.columns
    ]
    return PageTable(
        title="Columns that the model learns from",
        is_folded=True,
        header=["column", "kind", "gaps", "different values", "from", "to"],
        rows=rows,
    )


def version_facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(f"version of {name}", text) for name, text in facts["versions"].items()]


def setting_facts(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(f"setting {name}", str(value)) for name, value in settings.items()]


def fit_command(
    options: Mapping[str, Any], source: str, out: Path | None, reading: Mapping[str, Any]
) -> str:
    """The command of a fit to a file."""
    return repeat_command(
        "fit",
        [source],
        {
            "target": options["target"],
            "out": out,
            "method": None if options["method"] == "local" else options["method"],
            "preset": options["preset"],
            "set": options["settings"],
            "category": options["categories"],
            "number": options["numbers"],
            "drop": options["drop"],
            "time-column": options["time_column"],
            "group-column": options["group_column"],
            "holdout": None if options["holdout"] == 0.2 else options["holdout"],
            "no-refit": not options["refit"],
            "conformal": options["conformal"],
            "seed": options["seed"] or None,
            **reading,
        },
    )
