"""Whether intervals hold in every part of the rows: by group and over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sigmax.report.chance import share_interval
from sigmax.report.charts import Axis, Chart, Layer
from sigmax.report.held_out import COVERAGE, HeldOutRows
from sigmax.report.page import PageTable, TableCell, TableRow
from sigmax.report.texts import cell_text, number_text, share_text, time_text

__all__ = ["RowPart", "group_parts", "parts_chart", "parts_table", "time_parts"]

MOST_GROUPS = 30
"""That are shown, the largest."""
N_PERIODS = 10


@final
@dataclass(frozen=True)
class RowPart:
    """Some of the rows, and how many of them are inside their intervals."""

    name: str
    n_rows: int
    n_inside: int
    low: float
    """Of the 95 % confidence interval of the share inside."""
    high: float
    half_width: float
    """The median of the intervals'."""
    rmse: float
    place: float = 0.0
    """The middle of a period, in the units of the time column."""

    @property
    def share(self) -> float:
        return self.n_inside / self.n_rows


def make_part(
    name: str, rows: HeldOutRows, members: NDArray[np.intp], place: float = 0.0
) -> RowPart:
    n_inside = int(rows.is_inside[members].sum())
    low, high = share_interval(n_inside, len(members))
    return RowPart(
        name,
        len(members),
        n_inside,
        low,
        high,
        float(np.median(rows.half_width[members])),
        float(np.sqrt(np.mean((rows.y - rows.mean)[members] ** 2))),
        place,
    )


def group_parts(rows: HeldOutRows, column: Any) -> list[RowPart]:
    """The groups of a column, the largest first."""
    codes, groups = pd.factorize(column, use_na_sentinel=False)
    largest_first = np.argsort(-np.bincount(codes), kind="stable")
    return [
        make_part(cell_text(groups[i]), rows, np.flatnonzero(codes == i))
        for i in largest_first[:MOST_GROUPS]
    ]


def time_parts(rows: HeldOutRows, times: NDArray[np.float64], *, are_times: bool) -> list[RowPart]:
    """Periods of equal numbers of rows; rows without a time are left out."""
    known = np.flatnonzero(np.isfinite(times))
    order = known[np.argsort(times[known], kind="stable")]
    text = time_text if are_times else number_text
    return [
        make_part(
            f"{text(float(times[part[0]]))} to {text(float(times[part[-1]]))}",
            rows,
            part,
            float(np.median(times[part])),
        )
        for part in np.array_split(order, N_PERIODS)
        if len(part)
    ]


def parts_chart(
    parts: Sequence[RowPart], column: str, name: str, *, is_time: bool, are_times: bool = False
) -> Chart:
    """The coverage of every part, with its confidence interval and what was promised."""
    shares = [part.share for part in parts]
    low, high = [part.low for part in parts], [part.high for part in parts]
    texts = [f"{part.name}: {part.n_inside:,} of {part.n_rows:,} rows inside" for part in parts]
    off = [part.name for part in parts if part.high < COVERAGE or part.low > COVERAGE]
    worst = min(parts, key=lambda part: part.share)
    description = (
        f"{len(parts)} parts by {column}; in {len(off)} of them the coverage is not"
        f" {share_text(COVERAGE)}, with 95 % confidence. It is lowest, {share_text(worst.share)},"
        f" for {worst.name}."
    )
    shared = {"color": "chance", "label": "95 % confidence", "lower": low, "upper": high}
    coverage = Axis(label="rows inside their 90 % interval", percent=True, high=1.0)
    if is_time:
        places = [part.place for part in parts]
        return Chart(
            name=name,
            title=f"Coverage over {column}",
            description=description,
            x=Axis(label=column, scale="time" if are_times else "linear"),
            y=coverage,
            layers=[
                Layer(mark="rule", label="promised", color="quiet", y=[COVERAGE], dashed=True),
                Layer(mark="intervals", x=places, **shared),
                Layer(mark="points", label="observed", x=places, y=shares, texts=texts),
            ],
            note="Ten periods of equal numbers of rows.",
        )
    places = np.arange(len(parts))
    return Chart(
        name=name,
        title=f"Coverage by {column}",
        description=description,
        x=coverage,
        y=Axis(label="", scale="category", levels=tuple(part.name for part in parts)),
        layers=[
            Layer(mark="rule", label="promised", color="quiet", x=[COVERAGE], dashed=True),
            Layer(mark="intervals", y=places, **shared),
            Layer(mark="points", label="observed", x=shares, y=places, texts=texts),
        ],
        height=max(180, 90 + 24 * len(parts)),
    )


def parts_table(parts: Sequence[RowPart], column: str, target: str) -> PageTable:
    """The same parts as numbers."""
    rows = [
        TableRow(
            [
                TableCell(part.name),
                TableCell(f"{part.n_rows:,}", part.n_rows),
                TableCell(share_text(part.share), part.share),
                TableCell(f"{share_text(part.low)} to {share_text(part.high)}", part.low),
                TableCell(f"± {number_text(part.half_width, 3)}", part.half_width),
                TableCell(number_text(part.rmse, 3), part.rmse),
            ]
        )
        for part in parts
    ]
    header = [column, "rows", "inside", "95 % confidence", "typical interval", f"RMSE of {target}"]
    return PageTable(
        title=f"Parts by {column} as numbers", header=header, rows=rows, is_folded=True
    )
