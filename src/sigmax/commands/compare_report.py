"""The page of a comparison, from the records alone."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sigmax.commands.compare_tables import (
    by_method,
    compare_tables,
    difference,
    full_title,
    mean_score,
    method_title,
    ranked_verdict,
    record_groups,
    weighted,
)
from sigmax.commands.repeat import repeat_command
from sigmax.report.calibration_curves import CURVE_LEVELS
from sigmax.report.comparison_page import ComparedMethod, Comparison, comparison_page
from sigmax.report.page import Caution
from sigmax.runs.records import Record

__all__ = ["COVERED", "compare_page"]

COVERED = "covered"
"""The curve of a record with the shares of rows in central intervals."""


def compare_page(folder: Path, records: Sequence[Record]) -> str:
    """The page of all comparisons of a folder."""
    return comparison_page([describe(folder, group) for group in record_groups(records)]).to_html()


def describe(folder: Path, records: Sequence[Record]) -> Comparison:
    """One comparison, its methods ordered by CRPS."""
    found = by_method(records)
    means = {method: mean_score(folds, "crps") for method, folds in found.items()}
    order = sorted(found, key=lambda method: means[method].value)
    methods = []
    for method in order:
        folds = found[method]
        gap = difference(folds, found[order[0]], "crps")
        curves = [record.curves.get(COVERED) for record in folds.values()]
        counts = [record.data["n_test"] for record in folds.values()]
        has_curve = all(curve is not None and len(curve) == len(CURVE_LEVELS) for curve in curves)
        methods.append(
            ComparedMethod(
                name=method_title(method, folds),
                crps=means[method].value,
                crps_error=means[method].error,
                gap=gap.value,
                gap_error=gap.error,
                coverage=weighted(folds, "coverage_90"),
                seconds=float(np.mean([record.seconds["fit"] for record in folds.values()])),
                curve=np.average(np.array(curves), axis=0, weights=counts) if has_curve else None,
            )
        )
    sizes = {record.task.split: record.data["n_test"] for record in records if record.data}
    return Comparison(
        title=full_title(records),
        verdict=ranked_verdict(records),
        target=records[0].task.settings["table"]["options"]["target"],
        n_rows=max(1, sum(sizes.values())),
        methods=methods,
        levels=CURVE_LEVELS.tolist(),
        tables=compare_tables(records),
        warnings=failures(records),
        command=command_of(folder, records),
        facts=facts_of(records),
    )


def failures(records: Sequence[Record]) -> list[Caution]:
    """Methods without scores, once each."""
    reasons = {}
    for record in records:
        if record.status != "done":
            what = "not applicable" if record.status == "infeasible" else "failed"
            reasons.setdefault((record.task.method, what), record.reason)
    return [
        Caution(f"{method}: {what}", reason, is_grave=what == "failed")
        for (method, what), reason in reasons.items()
    ]


def command_of(folder: Path, records: Sequence[Record]) -> str:
    """The command of a comparison."""
    task = records[0].task
    table = task.settings["table"]
    options = table["options"]
    settings = {name: value for name, value in task.settings.items() if name != "table"}
    return repeat_command(
        "compare",
        [task.dataset],
        {
            "target": options["target"],
            "out": folder,
            "methods": ",".join(dict.fromkeys(record.task.method for record in records)),
            "folds": options["n_folds"],
            "category": options["categories"],
            "number": options["numbers"],
            "drop": options["drop"],
            "time-column": options.get("time_column"),
            "group-column": options["group_column"],
            "seed": options["seed"] or None,
            "set": settings,
            **table["reading"],
        },
    )


def facts_of(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Rows, folds, machine and versions."""
    table = records[0].task.settings["table"]
    facts = [("table", records[0].task.dataset), ("SHA-256 of the table", table["sha256"])]
    facts += [("folds", str(table["options"]["n_folds"]))]
    machine = records[-1].machine
    return [*facts, *((name, str(value)) for name, value in machine.items())]
