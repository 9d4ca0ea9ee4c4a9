"""`sigmax evaluate` and `sigmax monitor`: a saved model on labelled rows, scored or tested."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast, final

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from rich.text import Text

from sigmax.cli.app import IntervalMethod, ModelFolder, Reading, Source, typed_command
from sigmax.cli.describe import caution_line
from sigmax.cli.fit import first_time_column, model_report
from sigmax.cli.rows import (
    TRAINING_ROWS,
    hash_rows,
    time_order,
    time_parts,
    training_row_caution,
)
from sigmax.cli.scores import (
    Estimate,
    RowScores,
    intervals_of,
    score_difference,
    score_rows,
    score_table,
    score_text,
    summary_to_json,
    verdict,
)
from sigmax.cli.terminal import report_errors, short_name, show_item, show_share
from sigmax.errors import InvalidArgumentError, InvalidCellError, InvalidDataError
from sigmax.monitoring import Monitor
from sigmax.report import HeldOutRows, ModelReport
from sigmax.report.model_page import coverage_cautions
from sigmax.report.page import Caution
from sigmax.report.tables import ReportTable, TableCell, share_text
from sigmax.report.validation import COVERAGE
from sigmax.settings import check_choice
from sigmax.table_model import (
    INTERVAL_METHODS,
    ROWS_PER_CHUNK,
    SavedTableModel,
    check_columns,
    error_values,
    load_folder,
    row_notes,
)
from sigmax.tables.profile import Finding
from sigmax.tables.reading import read_chunks
from sigmax.tables.table import check_names, read_target
from sigmax.tables.writing import new_file

N_PARTS = 10
"""Number of parts by time, of about equal size; rows of equal time are in one part."""
MANY_NEW = 0.01
"""Share of rows with unseen categories or values out of range above which there is a warning."""
MOST_GROUPS = 30
"""Largest number of parts in a table; the file of scores has all."""


@final
@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Parts of the rows that are scored separately, and interval method."""

    by: Annotated[str | None, typer.Option(help="Also score every group of this column.")] = None
    time_column: Annotated[
        str | None, typer.Option(help="Also score ten equal parts in the order of this column.")
    ] = None
    method: IntervalMethod = None

    def check(self) -> None:
        if self.method is not None:
            check_choice("--method", self.method, INTERVAL_METHODS)
        if self.by is not None and self.time_column is not None:
            raise InvalidArgumentError("Choose one of `--by` and `--time-column`.")


@report_errors()
def evaluate(
    model: ModelFolder,
    data: Source,
    options: EvaluateOptions,
    *,
    out: Annotated[Path | None, typer.Option(help="JSON file for all scores.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="HTML file for a report with charts, like that of a fit.")
    ] = None,
    reading: Reading,
) -> None:
    """Score a model on labelled rows, in total and by group or time."""
    options.check()
    saved = load_folder(model)
    chunks = read_chunks(data, rows_per_chunk=ROWS_PER_CHUNK, **asdict(reading))
    found = evaluate_chunks(saved, chunks, options, keep_rows=report is not None)
    for caution in found.cautions:
        show_item(caution_line(caution))
    if found.verdict:
        show_item(Text(found.verdict, "bold"))
    if found.n_left_out:
        show_item(f"Left out {found.n_left_out:,} rows without a target.")
    for table in found.tables():
        show_item(table)
    if out is not None:
        save_json("Scores", found.to_json(), out)
    if report is not None:
        page = evaluation_report(saved, short_name(data), found, options)
        with new_file(report) as stream, show_share("report"):
            stream.write(page.page().to_html().encode())
        show_item(f"Report saved to {report}")


@report_errors()
def monitor(
    model: ModelFolder,
    data: Source,
    *,
    alpha: Annotated[float, typer.Option(help="Largest probability of a false alarm.")] = 0.05,
    state: Annotated[
        Path | None, typer.Option(help="JSON file that keeps the tests between runs.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file for the result of each test.")] = None,
    reading: Reading,
) -> None:
    """Test whether predictions still hold on new labelled rows, in file order."""
    saved = load_folder(model)
    found = Monitor(saved.model, alpha=alpha)
    if state is not None and state.exists():
        found = Monitor.load(state, saved.model)  # with the alpha that it was started with
    chunks = read_chunks(data, rows_per_chunk=ROWS_PER_CHUNK, **asdict(reading))
    for chunk, y, numbers, _ in labelled_chunks(saved, chunks, {}):
        if len(y):
            with InvalidCellError.numbered(numbers):
                found.update(chunk[saved.features], y, **known_errors(saved, chunk, numbers))
    if state is not None:
        found.save(state)
    show_item(str(found))
    if out is not None:
        tests = [asdict(test) | {"is_alarm": test.is_alarm} for test in found.tests]
        content = {"rows": found.n_rows, "has_alarm": found.has_alarm, "tests": tests}
        save_json("Tests", content, out)


def save_json(name: str, content: Any, path: Path) -> None:
    with new_file(path) as stream:
        stream.write((json.dumps(content, indent=2) + "\n").encode())
    show_item(f"{name} saved to {path}")


@final
@dataclass(frozen=True)
class Evaluation:
    """Scores of all rows, and of parts of them by name."""

    target: str
    n_rows: int
    n_left_out: int
    scores: Mapping[str, Estimate]
    parts: Mapping[str, tuple[int, Mapping[str, Estimate]]]
    """Name -> number of rows, and their scores."""
    parts_by: str = ""
    """Column of the groups, or periods of a column."""
    verdict: str = ""
    """Comparison with the linear baseline, if the folder has one."""
    cautions: Sequence[Caution] = ()
    rows: HeldOutRows | None = None
    """Rows for a report, if they were kept."""

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "rows": self.n_rows,
            "rows_without_target": self.n_left_out,
            "verdict": self.verdict,
            "warnings": [caution.text for caution in self.cautions],
            "scores": summary_to_json(self.scores),
            "parts": {
                name: {"rows": n_rows, "scores": summary_to_json(scores)}
                for name, (n_rows, scores) in self.parts.items()
            },
        }

    def tables(self) -> list[ReportTable]:
        """All scores in one table, and the main ones of every part in another."""
        title = f"Scores of {self.target} on {self.n_rows:,} rows"
        tables = [score_table(title, {"model": self.scores})]
        if self.parts:
            titles = {"crps": "CRPS", "rmse": "RMSE"}
            titles |= {"coverage_90": "coverage", "width_90": "width"}
            hidden = len(self.parts) - MOST_GROUPS
            rows = [
                [part, TableCell(f"{n:,}", n), *(score_text(name, scores[name]) for name in titles)]
                for part, (n, scores) in list(self.parts.items())[:MOST_GROUPS]
            ]
            notes = [f"{hidden:,} smaller parts are left out."] if hidden > 0 else []
            header = [self.parts_by, "rows", *titles.values()]
            title = f"Scores by {self.parts_by} (90 % intervals)"
            tables.append(ReportTable(title=title, header=header, rows=rows, notes=notes))
        return tables


def labelled_chunks(
    saved: SavedTableModel, chunks: Iterable[pd.DataFrame], named: Mapping[str, str | None]
) -> Iterator[tuple[pd.DataFrame, NDArray[np.float64], NDArray[np.int64], int]]:
    """Yield rows with a target, their targets and numbers, and the number of other rows."""
    n_rows, n_known = 0, 0
    for chunk in chunks:
        if not n_rows:
            check_columns(saved, chunk)
            for option, name in named.items():
                check_names([name] if name else [], list(chunk.columns), option=option)
        y = read_target(chunk, saved.target, first_row=n_rows)
        known = np.flatnonzero(~np.isnan(y))
        numbers = n_rows + 1 + known
        n_rows, n_known = n_rows + len(chunk), n_known + len(known)
        yield chunk.iloc[known], y[known], numbers, len(chunk) - len(known)
    if not n_known:
        raise InvalidDataError(f"The target {saved.target!r} is missing in all {n_rows:,} rows.")


def known_errors(
    saved: SavedTableModel, chunk: pd.DataFrame, numbers: NDArray[np.int64]
) -> dict[str, Any]:
    """Argument ``y_error`` of rows, if they have the column of errors of the fit."""
    name = saved.error_column
    return {"y_error": error_values(chunk[name], numbers)} if name in chunk else {}


def evaluate_chunks(
    saved: SavedTableModel,
    chunks: Iterable[pd.DataFrame],
    options: EvaluateOptions,
    *,
    keep_rows: bool = False,
) -> Evaluation:
    """Score the rows with a target in chunks; ``keep_rows`` keeps rows for a report."""
    options.check()
    method = options.method or saved.intervals
    scores, linear, hashes, kept_columns, kept_numbers, n_left_out = [], [], [], [], [], 0
    named = {"--by": options.by, "--time-column": options.time_column}
    report: list[HeldOutRows] = []
    group_column = saved.group_column
    by_columns = {options.by, options.time_column, group_column}
    if keep_rows:
        by_columns.add(first_time_column(saved.schema))
    for chunk, y, numbers, n_without in labelled_chunks(saved, chunks, named):
        n_left_out += n_without
        if not len(y):
            continue
        X = chunk.filter(items=saved.features)
        with InvalidCellError.numbered(numbers):
            dist, gate = saved.model.predict_dist_and_gate(X)
            if errors := known_errors(saved, chunk, numbers):
                dist = saved.model.predict_dist(X, **errors)
        intervals = intervals_of(saved.model, X, dist, method)
        scores.append(score_rows(y, dist, intervals))
        hashes.append(hash_rows(X, y, saved.schema))
        if saved.linear is not None:
            linear.append(score_rows(y, saved.linear.predict_dist(X)))
        columns = chunk[[name for name in chunk if name in by_columns]]
        kept_columns.append(columns)
        kept_numbers.append(numbers)
        if keep_rows:
            bounds, thresholds = intervals(COVERAGE), report[0].thresholds if report else None
            known = {"numbers": numbers, "columns": columns, "thresholds": thresholds}
            report.append(HeldOutRows.create(X, y, dist, bounds, gate, **known))
    rows, columns = RowScores.join(scores), pd.concat(kept_columns, ignore_index=True)
    if group_column in columns:
        groups, _ = pd.factorize(columns[group_column], use_na_sentinel=False)
        rows = replace(rows, clusters=groups.astype(np.int64))
    with InvalidCellError.numbered(np.concatenate(kept_numbers)):
        members = find_parts(columns, options)
    cautions = training_row_caution(np.concatenate(hashes), saved.metadata.get("learned_rows"))
    n_inside, n_at_end = (int(rows.values[name].sum()) for name in ("coverage_90", "at_end"))
    return Evaluation(
        saved.target,
        len(rows),
        n_left_out,
        rows.summary(),
        {name: (len(part), rows[part].summary()) for name, part in members.items()},
        options.by or f"period of {options.time_column}",
        verdict(score_difference(rows, RowScores.join(linear), "linear")) if linear else "",
        [*cautions, *coverage_cautions(n_inside, n_at_end, len(rows))],
        HeldOutRows.join(report) if keep_rows else None,
    )


def evaluation_report(
    saved: SavedTableModel, source: str, found: Evaluation, options: EvaluateOptions
) -> ModelReport:
    metadata, rows = saved.metadata, cast(HeldOutRows, found.rows)
    group_column = saved.group_column if saved.group_column in rows.columns else None
    model = f"{type(saved.model).__name__}, fitted to {metadata['fitted_to']}"
    return model_report(
        saved,
        source,
        rows,
        found.scores,
        method=options.method or saved.intervals,
        about_rows=[
            ("table", f"{source}, {len(rows):,} rows with a target"),
            ("model", f"{model} of {metadata['source']}"),
        ],
        subtitle=f"The model of {metadata['source']} on {len(rows):,} labelled rows",
        schema=saved.schema,
        scores=found.tables(),
        verdict=found.verdict,
        findings=[
            Finding(one["code"], tuple(one["columns"]), one["text"])
            for one in metadata.get("findings", [])
            if one["code"] == "leak"
        ],
        group_column=options.by or group_column,
        time_column=options.time_column or first_time_column(saved.schema),
        are_grouped=group_column is not None,
        is_new_table=True,
        command=typed_command.get(),
        cautions=[
            *(caution for caution in found.cautions if caution.code == TRAINING_ROWS),
            *new_content(saved, rows.cells.loc[rows.sample()]),
        ],
    )


def new_content(saved: SavedTableModel, cells: pd.DataFrame) -> list[Caution]:
    """Warnings about unseen categories, and numbers and times out of the training range."""
    X = cells.filter(items=saved.features)
    counts = Counter(
        (note.kind, note.column) for notes in row_notes(saved.model, X) for note in notes
    )
    cautions = []
    for kind, code, text in (
        ("unseen", "unseen categories", "Rows have categories that no training row has"),
        ("range", "out of range", "Rows have values beyond the range of the training rows"),
    ):
        shares = {column: n / len(X) for (found, column), n in counts.items() if found == kind}
        named = [f"{c!r} ({share_text(share)})" for c, share in shares.items() if share > MANY_NEW]
        if named:
            more = f" and {len(named) - 5:,} more columns" if len(named) > 5 else ""
            cautions.append(Caution(code, f"{text}: {', '.join(named[:5])}{more}."))
    return cautions


def find_parts(columns: pd.DataFrame, options: EvaluateOptions) -> dict[str, NDArray[np.intp]]:
    """Rows of every part by name: groups by size, or times in order."""
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
