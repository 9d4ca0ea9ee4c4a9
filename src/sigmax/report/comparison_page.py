"""Report of a comparison of methods on the same rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sigmax.report.page import Axis, Caution, Chart, Layer, Page, PagePart, log_axis_suits
from sigmax.report.tables import ReportTable, count_text, number_text
from sigmax.report.validation import curves_chart


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedMethod:
    """Scores of one method over all folds."""

    name: str
    crps: float
    crps_error: float
    gap: float
    """Paired difference of its CRPS to the best."""
    gap_error: float
    seconds: float
    """Mean duration of a fit."""
    curve: NDArray[np.float64] | None = None
    """Observed coverage of central intervals, at the levels of the comparison."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Methods on the folds of one table, sorted by CRPS, the best first."""

    title: str
    target: str
    n_rows: int
    methods: Sequence[ComparedMethod]
    levels: Sequence[float]
    tables: Sequence[ReportTable]
    verdict: str = ""
    """Comparison of the best method with a linear model."""
    warnings: Sequence[Caution] = ()
    command: str = ""
    facts: Sequence[tuple[str, str]] = ()

    def sentence(self) -> str:
        """Best method, its lead over the next one, and whether that may be chance."""
        if not self.methods:
            return "No method has scores."
        best, *others = self.methods
        if not others:
            return f"{best.name} is the only method that has scores."
        second = others[0]
        share = second.gap / best.crps if best.crps else float("nan")
        ratio = second.gap / second.gap_error if second.gap_error > 0 else float("inf")
        sure = "more than chance would explain" if ratio > 2 else "which may well be chance"
        return (
            f"{best.name} predicts {self.target} best of {len(self.methods)} methods; the next,"
            f" {second.name}, has a {100 * share:.2g} % larger error (CRPS), {sure}."
        )

    def parts(self, suffix: str = "") -> list[PagePart]:
        """Charts and tables; ``suffix`` makes their names unique on the page."""
        tables = PagePart(name=f"tables{suffix}", heading="All scores", tables=self.tables)
        if not self.methods:
            return [tables]
        charts = [score_chart(self.methods, self.target, f"scores{suffix}")]
        charts.append(seconds_chart(self.methods, f"seconds{suffix}"))
        parts = [
            PagePart(
                name=f"ranking{suffix}",
                heading="Scores and seconds" if not suffix else self.title,
                lead="Mean CRPS on held-out rows, in units of the target; lower is better.",
                charts=charts,
            )
        ]
        curves = {m.name: m.curve for m in self.methods if m.curve is not None}
        if curves:
            chart = curves_chart(curves, self.levels, self.n_rows, f"calibration{suffix}")
            parts.append(
                PagePart(
                    name=f"calibration{suffix}",
                    heading="Are the intervals right?",
                    lead="Above the diagonal: wider than needed. Below: too narrow.",
                    charts=[chart],
                )
            )
        return [*parts, tables]


def comparison_page(comparisons: Sequence[Comparison]) -> Page:
    """Page of one comparison, or of several."""
    last = comparisons[-1]
    many = len(comparisons) > 1
    parts = [
        part for i, one in enumerate(comparisons) for part in one.parts(f"-{i + 1}" if many else "")
    ]
    return Page(
        title=last.title if not many else f"{len(comparisons)} comparisons",
        subtitle=f"{count_text(last.n_rows, 'row')}, predicted by models that had not seen them",
        headline=" ".join(f"{one.verdict} {one.sentence()}".strip() for one in comparisons),
        warnings=[warning for one in comparisons for warning in one.warnings],
        no_warnings="No method failed.",
        parts=parts,
        command=last.command,
        facts=last.facts,
    )


def score_chart(methods: Sequence[ComparedMethod], target: str, name: str) -> Chart:
    """CRPS of each method with its standard error."""
    values = np.array([method.crps for method in methods])
    errors = np.nan_to_num([method.crps_error for method in methods])
    y, low, high = np.arange(len(methods)), values - errors, values + errors
    texts = [
        "the best" if not i else f"{number_text(m.gap, 3)} ± {number_text(m.gap_error, 2)} above"
        for i, m in enumerate(methods)
    ]
    return Chart(
        name=name,
        title="CRPS",
        description=f"From {methods[0].name}, {number_text(values[0], 3)}, to {methods[-1].name},"
        f" {number_text(values[-1], 3)}.",
        x=Axis(f"CRPS, in units of {target}", low=0.0 if values.min() >= 0 else None),
        y=Axis("", "category", levels=tuple(method.name for method in methods)),
        layers=[
            Layer("intervals", "± one standard error", "chance", y=y, lower=low, upper=high),
            Layer("points", "CRPS", x=values, y=y, texts=texts),
        ],
        note="Differences between methods are more certain than these errors, because all methods"
        " predict the same rows; the table has them.",
        height=90 + 30 * len(methods),
    )


def seconds_chart(methods: Sequence[ComparedMethod], name: str) -> Chart:
    """Mean duration of a fit."""
    seconds = np.array([max(method.seconds, 1e-6) for method in methods])
    is_log = log_axis_suits(seconds)
    low = float(seconds.min()) / 2 if is_log else 0.0
    slowest = methods[int(np.argmax(seconds))]
    return Chart(
        name=name,
        title="Seconds to fit",
        description=f"The slowest is {slowest.name} with"
        f" {number_text(slowest.seconds, 3)} seconds for a fit.",
        x=Axis("seconds for one fit", "log" if is_log else "linear", low=low),
        y=Axis("", "category", levels=tuple(method.name for method in methods)),
        layers=[Layer("bars", "seconds", "3", x=seconds, y=np.arange(len(methods)))],
        height=90 + 30 * len(methods),
    )
