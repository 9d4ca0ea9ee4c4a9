"""Tables of results: made once, shown in the terminal, in Markdown or on a page."""

import html
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["ReportTable", "mean_and_error", "three_decimals"]


@final
@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """Rows of text under a header; the first column holds names, the others numbers.

    ``**text**`` is bold; what looks like a tag is text, wherever it is shown.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    """Sentences that belong under the table."""
    in_words: bool = False
    """Whether the other columns hold words, too."""

    def to_markdown(self) -> str:
        """The table with its title and notes, in GitHub's Markdown."""
        rule = ["---"] + ["---" if self.in_words else "---:"] * (len(self.header) - 1)
        header, *rows = [[markdown_text(text) for text in row] for row in (self.header, *self.rows)]
        lines = ["| " + " | ".join(row) + " |" for row in (header, rule, *rows)]
        paragraphs = [f"### {markdown_text(self.title)}", "\n".join(lines)]
        return "\n\n".join([*paragraphs, *map(markdown_text, self.notes)]) + "\n"


def markdown_text(text: str) -> str:
    """Text on one line, in which nothing is a tag or the end of a cell."""
    return html.escape(" ".join(text.split()), quote=False).replace("|", "\\|")


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


def three_decimals(values: ArrayLike) -> int:
    """Decimals that show three digits of the mean size of some values.

    Examples
    --------
    >>> three_decimals([0.0123]), three_decimals([4.5, 5.5]), three_decimals([1234.0])
    (4, 2, 0)
    """
    size = float(np.mean(np.abs(np.asarray(values, dtype=float))))
    return max(0, 2 - int(np.floor(np.log10(size)))) if size > 0 else 2
