"""Scores of a saved model on labelled rows: `sigmax evaluate` without the command line."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.checks import check_choice
from sigmax.commands.folder import SavedTableModel
from sigmax.commands.learned_rows import TRAINING_ROWS, hash_rows, learned_caution
from sigmax.commands.model_report import evaluation_report, times_of
from sigmax.commands.predict import ROWS_PER_CHUNK, check_columns
from sigmax.commands.repeat import repeat_command
from sigmax.commands.score_tables import estimate_text, score_titles
from sigmax.commands.scores import Estimate, RowScores, score_model, score_rows
from sigmax.commands.splits import time_order, time_parts
from sigmax.commands.verdict import row_gap, verdict
from sigmax.errors import InvalidArgumentError, InvalidCellError, InvalidDataError
from sigmax.report import HeldOutRows
from sigmax.report.cautions import coverage_cautions
from sigmax.report.page import Caution
from sigmax.runs.tables import ReportTable
from sigmax.tables.reading import read_chunks
from sigmax.tables.targets import check_names, read_target

__all__ = ["EvaluateOptions", "Evaluation", "evaluate_chunks", "evaluate_file", "evaluation_page"]

N_PARTS = 10
"""Of the rows by time, about equal in number; rows of equal time are in one part."""
MOST_GROUPS = 30
"""That a table shows; a file holds all."""


@final
@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Which parts of the rows to score by themselves."""

    by: str | None = None
    """A column of groups."""
    time_column: str | None = None
    """A column of times, cut into at most ten parts of about equal size."""
    method: str | None = None
    """Of the intervals: ``distribution``, ``conformal``, or None for that of the fit."""

    def check(self) -> None:
        if self.method is not None:
            check_choice("--method", self.method, ("distribution", "conformal"))
        if self.by is not None and self.time_column is not None:
            raise InvalidArgumentError("Choose one of `--by` and `--time-column`.")


@final
@dataclass(frozen=True)
class Evaluation:
    """Scores of all rows, and of parts of them by name."""

    target: str
    n_rows: int
    n_left_out: int
    """Rows without a target."""
    scores: Mapping[str, Estimate]
    parts: Mapping[str, tuple[int, Mapping[str, Estimate]]]
    """Name -> number of rows, and their scores."""
    verdict: str = ""
    """How the model compares with a linear one, in a sentence, if the folder has one."""
    cautions: Sequence[Caution] = ()
    """Warnings about the rows and the intervals."""
    rows: HeldOutRows | None = None
    """What a report is made of, if there is to be one."""

    def to_json(self) -> dict[str, Any]:
        def plain(scores: Mapping[str, Estimate]) -> dict[str, Any]:
            return {name: estimate.to_json() for name, estimate in scores.items()}

        return {
            "target": self.target,
            "rows": self.n_rows,
            "rows_without_target": self.n_left_out,
            "verdict": self.verdict,
            "warnings": [caution.text for caution in self.cautions],
            "scores": plain(self.scores),
            "parts": {
                name: {"rows": n_rows, "scores": plain(scores)}
                for name, (n_rows, scores) in self.parts.items()
            },
        }

    def tables(self) -> list[ReportTable]:
        """All scores in one table, and the main ones of every part in another."""
        tables = [
            ReportTable(
                title=f"scores of {self.target} on {self.n_rows:,} rows",
                header=["score", "model"],
                rows=[
                    [title, score_text(name, self.scores[name])]
                    for name, title in score_titles().items()
                ],
                notes=["± is one standard error."],
            )
        ]
        if self.parts:
            titles = {"log_likelihood": "log-likelihood", "crps": "CRPS", "rmse": "RMSE"}
            titles |= {"coverage_90": "90 % coverage", "width_90": "90 % width"}
            shown = list(self.parts.items())[:MOST_GROUPS]
            hidden = len(self.parts) - len(shown)
            tables.append(
                ReportTable(
                    title="scores of parts",
                    header=["part", "rows", *titles.values()],
                    rows=[
                        [part, f"{n:,}", *(score_text(name, scores[name]) for name in titles)]
                        for part, (n, scores) in shown
                    ],
                    notes=[f"{hidden:,} smaller parts are left out."] if hidden else [],
                )
            )
        return tables


def score_text(name: str, estimate: Estimate) -> str:
    return estimate_text(estimate, percent=name.startswith("coverage"))


def evaluate_file(
    saved: SavedTableModel,
    source: str,
    options: EvaluateOptions,
    reading: Mapping[str, Any],
    *,
    keep_rows: bool = False,
) -> Evaluation:
    """Score the rows of a file."""
    options.check()
    chunks = read_chunks(source, rows_per_chunk=ROWS_PER_CHUNK, **reading)
    return evaluate_chunks(saved, chunks, options, keep_rows=keep_rows)


def evaluate_chunks(
    saved: SavedTableModel,
    chunks: Iterable[pd.DataFrame],
    options: EvaluateOptions,
    *,
    keep_rows: bool = False,
) -> Evaluation:
    """Score the rows of a table, a chunk at a time; rows without a target are left out.

    With ``keep_rows`` also what a report needs: some numbers of every row, the cells of a few.
    """
    options.check()
    method = options.method or saved.facts["intervals"]
    scores, linear, hashes, kept_columns, kept_numbers, n_rows = [], [], [], [], [], 0
    report: list[HeldOutRows] = []
    group_column = saved.facts["options"]["group_column"]
    by_columns = {options.by, options.time_column, group_column}
    if keep_rows:
        by_columns |= {*times_of(saved.model.features_.schema)}
    for chunk in chunks:
        wanted = {"--by": options.by, "--time-column": options.time_column}
        if not n_rows:
            check_columns(saved, chunk)
            for option, name in wanted.items():
                check_names([name] if name is not None else [], list(chunk.columns), option=option)
        y = read_target(chunk, saved.target, first_row=n_rows)
        numbers = n_rows + 1 + np.flatnonzero(~np.isnan(y))
        n_rows += len(chunk)
        chunk, y = chunk.loc[~np.isnan(y)], y[~np.isnan(y)]
        if len(y):
            X = chunk[saved.features]
            with InvalidCellError.numbered(numbers):
                dist, found = score_model(saved.model, X, y, method)
            scores.append(found)
            hashes.append(hash_rows(X, y, saved.model.features_.schema))
            if saved.linear is not None:
                linear.append(score_rows(y, saved.linear.predict_dist(X)))
            columns = chunk[sorted(by_columns & set(chunk.columns))]
            kept_columns.append(columns)
            kept_numbers.append(numbers)
            if keep_rows:
                known = {"dist": dist, "method": method, "numbers": numbers, "columns": columns}
                report.append(HeldOutRows.predict(saved.model, X, y, **known))
    if not scores:
        raise InvalidDataError(f"The target {saved.target!r} is missing in all {n_rows:,} rows.")
    rows, columns = RowScores.join(scores), pd.concat(kept_columns, ignore_index=True)
    if group_column in columns:
        groups, _ = pd.factorize(columns[group_column], use_na_sentinel=False)
        rows = rows.together(groups.astype(np.int64))
    else:
        rows = rows.together(np.arange(len(rows)))
    with InvalidCellError.numbered(np.concatenate(kept_numbers)):
        members = find_parts(columns, options)
    parts = {name: (len(part), rows[part].summary()) for name, part in members.items()}
    cautions = learned_caution(np.concatenate(hashes), saved.facts.get("learned_rows"))
    n_inside, n_at_end = (int(rows.values[name].sum()) for name in ("coverage_90", "at_end"))
    return Evaluation(
        saved.target,
        len(rows),
        n_rows - len(rows),
        rows.summary(),
        parts,
        verdict(row_gap(rows, RowScores.join(linear), "linear")) if linear else "",
        [*cautions, *coverage_cautions(n_inside, n_at_end, len(rows))],
        HeldOutRows.join(report) if keep_rows else None,
    )


def evaluation_page(
    saved: SavedTableModel,
    folder: Path,
    source: str,
    found: Evaluation,
    options: EvaluateOptions,
    others: Mapping[str, Any],
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> str:
    """The report of an evaluation that kept its rows, in HTML.

    ``others`` are further options of the command line, for the command that the report shows.
    """
    if found.rows is None:
        raise InvalidArgumentError("A report needs an evaluation with `keep_rows`.")
    chosen = {"by": options.by, "time-column": options.time_column, "method": options.method}
    chosen |= others
    report = evaluation_report(
        saved,
        Path(source).name if source != "-" else "standard input",
        found.rows,
        found.scores,
        found.tables(),
        [caution for caution in found.cautions if caution.code == TRAINING_ROWS],
        verdict=found.verdict,
        by=options.by,
        time_column=options.time_column,
        method=options.method or saved.facts["intervals"],
        command=repeat_command("evaluate", [str(folder), source], chosen),
    )
    return report.page(progress).to_html()


def find_parts(columns: pd.DataFrame, options: EvaluateOptions) -> dict[str, NDArray[np.intp]]:
    """The rows of every part by its name: groups by their size, or times in their order."""
    if options.by is not None:
        codes, groups = pd.factorize(columns[options.by], use_na_sentinel=False)
        texts = np.array(["missing" if pd.isna(group) else str(group) for group in groups])
        codes, names = pd.factorize(texts[codes])
        largest_first = np.argsort(-np.bincount(codes), kind="stable")
        return {str(names[i]): np.flatnonzero(codes == i) for i in largest_first}
    if options.time_column is not None:
        column: Any = columns[options.time_column]
        times = time_order(column, option="--time-column")
        parts = {
            f"{column.iloc[part[0]]} to {column.iloc[part[-1]]}": part
            for part in time_parts(times, N_PARTS)
        }
        without = np.flatnonzero(np.isnan(times))
        return parts | ({"missing": without} if len(without) else {})
    return {}
