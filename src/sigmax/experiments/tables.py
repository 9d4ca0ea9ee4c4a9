"""Tables of results: made once, shown in the terminal, in Markdown or on a page."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["Table", "mean_and_error"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text under a header; the first column holds names, the others numbers."""

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    """Sentences that belong under the table."""

    def to_markdown(self) -> str:
        """The table with its title and notes, in GitHub's Markdown."""
        rule = ["---"] + ["---:"] * (len(self.header) - 1)
        lines = ["| " + " | ".join(row) + " |" for row in (self.header, rule, *self.rows)]
        return "\n".join([f"### {self.title}", "", *lines, "", *self.notes]).rstrip() + "\n"


def mean_and_error(values: ArrayLike, *, digits: int = 2) -> str:
    """The mean of repeats and, for more than one, its standard error.

    Examples
    --------
    >>> mean_and_error([1.0, 2.0, 3.0]), mean_and_error([0.5])
    ('2.00 ± 0.58', '0.50')
    """
    values = np.asarray(values, dtype=float)
    mean = f"{values.mean():.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {values.std(ddof=1) / np.sqrt(len(values)):.{digits}f}"
