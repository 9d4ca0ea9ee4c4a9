"""Scores of a saved model on labelled rows: `sigmax evaluate` without the command line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.checks import check_choice
from sigmax.commands.fit_page import estimate_text, score_titles
from sigmax.commands.folder import SavedTableModel
from sigmax.commands.predict import ROWS_PER_CHUNK, check_columns
from sigmax.commands.scores import Estimate, RowScores, score_model
from sigmax.commands.splits import time_order
from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.runs.tables import ReportTable
from sigmax.tables.reading import read_chunks
from sigmax.tables.targets import check_names, read_target

__all__ = ["EvaluateOptions", "Evaluation", "evaluate_chunks", "evaluate_file"]

N_PARTS = 10
"""Of the rows by time, equal in number."""
MOST_GROUPS = 30
"""That a table shows; a file holds all."""


@final
@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Which parts of the rows to score by themselves."""

    by: str | None = None
    """A column of groups."""
    time_column: str | None = None
    """A column of times, cut into ten equal parts."""
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

    def to_json(self) -> dict[str, Any]:
        def plain(scores: Mapping[str, Estimate]) -> dict[str, Any]:
            return {name: estimate.to_json() for name, estimate in scores.items()}

        return {
            "target": self.target,
            "rows": self.n_rows,
            "rows_without_target": self.n_left_out,
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
    saved: SavedTableModel, source: str, options: EvaluateOptions, reading: Mapping[str, Any]
) -> Evaluation:
    """Score the rows of a file."""
    options.check()
    return evaluate_chunks(
        saved, read_chunks(source, rows_per_chunk=ROWS_PER_CHUNK, **reading), options
    )


def evaluate_chunks(
    saved: SavedTableModel,
    chunks: Iterable[pd.DataFrame],
    options: EvaluateOptions,
) -> Evaluation:
    """Score the rows of a table, a chunk at a time; rows without a target are left out."""
    options.check()
    method = options.method or saved.facts["intervals"]
    scores, kept_columns, n_rows = [], [], 0
    group_column = saved.facts["options"]["group_column"]
    for chunk in chunks:
        wanted = {"--by": options.by, "--time-column": options.time_column}
        if not n_rows:
            check_columns(saved, chunk)
            for option, name in wanted.items():
                check_names([name] if name is not None else [], list(chunk.columns), option=option)
        y = read_target(chunk, saved.target, first_row=n_rows)
        n_rows += len(chunk)
        chunk, y = chunk.loc[~np.isnan(y)], y[~np.isnan(y)]
        if len(y):
            X = chunk[saved.features]
            scores.append(score_model(saved.model, X, y, method)[1])
            names = {options.by, options.time_column, group_column} & set(chunk.columns)
            kept_columns.append(chunk[sorted(names)])
    if not scores:
        raise InvalidDataError(f"The target {saved.target!r} is missing in all {n_rows:,} rows.")
    rows, columns = RowScores.join(scores), pd.concat(kept_columns, ignore_index=True)
    if group_column in columns:
        groups, _ = pd.factorize(columns[group_column], use_na_sentinel=False)
        rows = rows.together(groups.astype(np.int64))
    else:
        rows = rows.together(np.arange(len(rows)))
    parts = {
        name: (len(members), rows[members].summary())
        for name, members in find_parts(columns, options).items()
    }
    return Evaluation(saved.target, len(rows), n_rows - len(rows), rows.summary(), parts)


def find_parts(columns: pd.DataFrame, options: EvaluateOptions) -> dict[str, NDArray[np.intp]]:
    """The rows of every part by its name: groups by their size, or times in their order."""
    if options.by is not None:
        codes, groups = pd.factorize(columns[options.by], use_na_sentinel=False)
        largest_first = np.argsort(-np.bincount(codes), kind="stable")
        names = ["(gap)" if pd.isna(group) else str(group) for group in groups]
        return {names[i]: np.flatnonzero(codes == i) for i in largest_first}
    if options.time_column is not None:
        column: Any = columns[options.time_column]
        times = time_order(column, option="--time-column")
        known = np.flatnonzero(~np.isnan(times))
        order = known[np.argsort(times[known], kind="stable")]
        parts = [part for part in np.array_split(order, N_PARTS) if len(part)]
        return {f"{column.iloc[part[0]]} to {column.iloc[part[-1]]}": part for part in parts}
    return {}
