"""The report of a comparison: methods side by side on the same rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from sigmax.report.calibration_curves import curves_chart
from sigmax.report.charts import Axis, Chart, Layer, log_axis_suits
from sigmax.report.model_page import as_page_table
from sigmax.report.page import Caution, Page, PagePart
from sigmax.report.texts import count_text, number_text
from sigmax.runs.tables import ReportTable

__all__ = ["ComparedMethod", "Comparison", "comparison_page"]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedMethod:
    """What one method did on all folds."""

    name: str
    crps: float
    crps_error: float
    gap: float
    """Of its CRPS to the best, paired."""
    gap_error: float
    coverage: float
    """Of 90 % intervals."""
    seconds: float
    """Of a fit, on average."""
    curve: NDArray[np.float64] | None = None
    """The share of rows in central intervals, at the levels of the comparison."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Methods on the folds of one table, the best by CRPS first."""

    title: str
    target: str
    n_rows: int
    methods: Sequence[ComparedMethod]
    levels: Sequence[float]
    tables: Sequence[ReportTable]
    verdict: str = ""
    """Whether the best method is better than a linear model."""
    warnings: Sequence[Caution] = ()
    command: str = ""
    facts: Sequence[tuple[str, str]] = field(default=())

    def sentence(self) -> str:
        """Which method is best, and by how much that is more than chance."""
        if not self.methods:
            return "No method has given scores."
        best, *others = self.methods
        score = f"{best.name} predicts {self.target} best"
        if not others:
            return f"{best.name} is the only method that has given scores."
        second = others[0]
        share = second.gap / best.crps if best.crps else float("nan")
        ratio = second.gap / second.gap_error if second.gap_error > 0 else float("inf")
        sure = (
            "more than chance would explain"
            if ratio > 2
            else "which may well be chance: take the one that suits you better"
        )
        return (
            f"{score} of {len(self.methods)} methods; the next, {second.name}, has a"
            f" {100 * share:.2g} % larger error (CRPS), {sure}."
        )

    def parts(self, suffix: str = "") -> list[PagePart]:
        """The charts and tables of this comparison; ``suffix`` tells it from others of a page."""
        if not self.methods:
            return [self.tables_part(suffix)]
        charts = [score_chart(self.methods, self.target, f"scores{suffix}")]
        charts.append(seconds_chart(self.methods, f"seconds{suffix}"))
        parts = [
            PagePart(
                name=f"ranking{suffix}",
                heading="Scores and seconds" if not suffix else self.title,
                lead="Mean CRPS on held-out rows, in units of the target: less is better.",
                charts=charts,
            )
        ]
        curves = {m.name: m.curve for m in self.methods if m.curve is not None}
        if curves:
            chart = curves_chart(curves, self.levels, self.n_rows, f"calibration{suffix}")
            parts.append(
                PagePart(
                    name=f"calibration{suffix}",
                    heading="Do intervals keep their promise?",
                    lead="Above the diagonal intervals are wider than needed, below it too narrow.",
                    charts=[chart],
                )
            )
        return [*parts, self.tables_part(suffix)]

    def tables_part(self, suffix: str) -> PagePart:
        tables = list(map(as_page_table, self.tables))
        return PagePart(name=f"tables{suffix}", heading="All scores", tables=tables)


def comparison_page(comparisons: Sequence[Comparison], extra: Sequence[PagePart] = ()) -> Page:
    """The page of one comparison, or of all that a folder holds."""
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
        parts=[*parts, *extra],
        command=last.command,
        facts=last.facts,
    )


def score_chart(methods: Sequence[ComparedMethod], target: str, name: str) -> Chart:
    """The CRPS of every method, with its standard error and the paired gap to the best."""
    places = np.arange(len(methods))
    values = np.array([method.crps for method in methods])
    errors = np.nan_to_num([method.crps_error for method in methods])
    texts = [
        "the best" if not i else f"{number_text(m.gap, 3)} ± {number_text(m.gap_error, 2)} above"
        for i, m in enumerate(methods)
    ]
    return Chart(
        name=name,
        title="CRPS",
        description=f"From {methods[0].name}, {number_text(values[0], 3)}, to {methods[-1].name},"
        f" {number_text(values[-1], 3)}.",
        x=Axis(label=f"CRPS, in units of {target}", low=0.0 if values.min() >= 0 else None),
        y=Axis(label="", scale="category", levels=tuple(method.name for method in methods)),
        layers=[
            Layer(
                mark="intervals",
                label="± one standard error",
                color="chance",
                y=places,
                lower=values - errors,
                upper=values + errors,
            ),
            Layer(mark="points", label="CRPS", x=values, y=places, texts=texts),
        ],
        note="Differences between methods are surer than these errors: they are of the same rows,"
        " and stand in the table.",
        height=90 + 30 * len(methods),
    )


def seconds_chart(methods: Sequence[ComparedMethod], name: str) -> Chart:
    """How long a fit takes."""
    seconds = np.array([max(method.seconds, 1e-6) for method in methods])
    slowest = methods[int(np.argmax(seconds))]
    return Chart(
        name=name,
        title="Seconds to fit",
        description=f"The slowest is {slowest.name}, {number_text(slowest.seconds, 3)} seconds for"
        " a fit.",
        x=Axis(
            label="seconds for one fit",
            scale="log" if log_axis_suits(seconds) else "linear",
            low=float(seconds.min()) / 2 if log_axis_suits(seconds) else 0.0,
        ),
        y=Axis(label="", scale="category", levels=tuple(method.name for method in methods)),
        layers=[
            Layer(mark="bars", label="seconds", color="3", x=seconds, y=np.arange(len(methods)))
        ],
        height=90 + 30 * len(methods),
    )
