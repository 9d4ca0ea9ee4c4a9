"""The first sentences of a report, for people who read no others."""

from dataclasses import dataclass
from typing import final

import numpy as np

from sigmax.report.chance import share_interval
from sigmax.report.held_out import COVERAGE, OFF_DATA, HeldOutRows
from sigmax.report.texts import number_text, share_text

__all__ = ["Headline", "write_headline"]

SPREADS = 2.0
"""The ratio of large to small targets from which widths are told in per cent."""
FEW_ROWS = 100
"""Below which it is said that they are few."""


@final
@dataclass(frozen=True, kw_only=True)
class Headline:
    """What the rows that were held out say, in numbers and in words."""

    n_rows: int
    n_inside: int
    low: float
    """Of the confidence interval of the share inside."""
    high: float
    typical: float
    """The median half width of the intervals: relative, or in units of the target."""
    is_relative: bool
    share_off_data: float | None
    target: str
    are_grouped: bool = False
    """Whether rows are not independent of each other."""
    origin: str = "rows that the model had not seen"
    """What the rows are."""
    n_at_ends: int = 0
    """Rows inside whose value is an end of its interval."""

    @property
    def is_rounding(self) -> bool:
        """True if more rows are inside than promised because values are rounded.

        Intervals of rounded values go from value to value: without the rows at their ends they
        would hold no more than promised.
        """
        return self.low > COVERAGE >= (self.n_inside - self.n_at_ends) / self.n_rows

    @property
    def share_inside(self) -> float:
        return self.n_inside / self.n_rows

    @property
    def typical_text(self) -> str:
        if not np.isfinite(self.typical):
            return "of unknown width"
        if self.is_relative:
            percent = 100 * self.typical
            return f"± {percent:.0f} %" if percent >= 9.5 else f"± {percent:.1f} %"
        return f"± {number_text(self.typical, 3)}"

    @property
    def is_as_promised(self) -> bool:
        """Whether chance alone explains how many rows are inside."""
        return self.low <= COVERAGE <= self.high

    @property
    def verdict(self) -> str:
        """How the share inside compares with what was promised."""
        if self.high < COVERAGE:
            return f"fewer than the {share_text(COVERAGE)} that were promised"
        if self.low > COVERAGE:
            why = ", as values are rounded" if self.is_rounding else ""
            return f"more than the {share_text(COVERAGE)} that were promised{why}"
        return f"as promised ({share_text(COVERAGE)})"

    @property
    def sentence(self) -> str:
        """One sentence that a manager understands."""
        share, verdict = tenths(self.share_inside), ""
        if not self.is_as_promised:
            share, verdict = f"{share_text(self.share_inside)} of", f", {self.verdict}"
        inside = (
            f"{share} new values of {self.target} fall inside the interval that the model gives"
        )
        parts = [f"{inside} for them{verdict}", f"typically {self.typical_text}"]
        if self.share_off_data is not None:
            share = share_text(self.share_off_data)
            many = "none" if self.share_off_data == 0 else share
            parts.append(f"{many} of the new rows are unlike anything it has seen")
        return "; ".join(parts) + "."

    @property
    def basis(self) -> str:
        """What the sentence rests on."""
        between = f"between {share_text(self.low)} and {share_text(self.high)}"
        text = (
            f"This rests on {self.n_rows:,} {self.origin}: {self.n_inside:,} of them, or"
            f" {share_text(self.share_inside)}, were inside, {self.verdict}. With so many rows the"
            f" true share is {between} (95 % confidence)."
        )
        if self.n_rows < FEW_ROWS:
            text += " These are few rows: take all numbers of this page with care."
        if self.are_grouped:
            text += " Rows of one group are alike, so that the true range is wider still."
        return text


def write_headline(
    rows: HeldOutRows,
    target: str,
    *,
    are_grouped: bool = False,
    origin: str = "rows that the model had not seen",
) -> Headline:
    """The headline of rows that the model had not seen."""
    n_inside = int(rows.is_inside.sum())
    low, high = share_interval(n_inside, len(rows))
    is_relative = widths_are_relative(rows)
    widths = rows.half_width / np.abs(rows.mean) if is_relative else rows.half_width
    return Headline(
        n_rows=len(rows),
        n_inside=n_inside,
        low=low,
        high=high,
        typical=float(np.median(widths)),
        is_relative=is_relative,
        share_off_data=None if rows.gate is None else float(np.mean(rows.gate >= OFF_DATA)),
        target=target,
        are_grouped=are_grouped,
        origin=origin,
        n_at_ends=int(np.sum((rows.y == rows.lower) | (rows.y == rows.upper))),
    )


def widths_are_relative(rows: HeldOutRows) -> bool:
    """Whether per cent of the prediction say more: positive targets that differ by factors."""
    if not ((rows.y > 0).all() and (rows.mean > 0).all()):
        return False
    low, high = np.quantile(rows.y, [0.05, 0.95])
    return bool(high / low >= SPREADS)


def tenths(share: float) -> str:
    """A share in plain words.

    Examples
    --------
    >>> tenths(0.89), tenths(0.98), tenths(1.0), tenths(0.02)
    ('About 9 in 10', 'Nearly all', 'All', 'Hardly any')
    """
    if share == 1:
        return "All"
    if share >= 0.96:
        return "Nearly all"
    if share < 0.05:
        return "Hardly any"
    return f"About {round(10 * share)} in 10"
