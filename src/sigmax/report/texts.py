"""Numbers and counts in words, as a report shows them."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import SupportsFloat

__all__ = ["cell_text", "count_text", "listed", "number_text", "share_text", "time_text"]

LONGEST = 60
"""Characters of a cell."""


def number_text(value: SupportsFloat, digits: int = 4) -> str:
    """A number for people, without an exponent where none is needed.

    Examples
    --------
    >>> number_text(79873.0587), number_text(0.012345), number_text(3e12), number_text(12.5)
    ('79,873', '0.01235', '3e+12', '12.5')
    >>> number_text(float("nan")), number_text(float("inf"))
    ('unknown', '∞')
    """
    value = float(value)
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    is_plain = 10 ** (digits - 1) <= abs(value) < 1e10
    text = f"{value:,.0f}" if is_plain else f"{value:.{digits}g}"
    return text if "e" in text else text.replace("-", "−")


def share_text(share: SupportsFloat) -> str:
    """A share as per cent: whole, but with a decimal near both ends.

    Examples
    --------
    >>> share_text(0.894), share_text(0.004), share_text(0.998), share_text(0.0), share_text(1.0)
    ('89 %', '0.4 %', '99.8 %', '0 %', '100 %')
    >>> share_text(1e-5), share_text(1 - 1e-5)
    ('< 0.1 %', '> 99.9 %')
    """
    share = float(share)
    if 0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 < share < 1:
        return "> 99.9 %"
    is_near_end = 0 < share < 0.02 or 0.98 < share < 1
    return f"{100 * share:.1f} %" if is_near_end else f"{100 * share:.0f} %"


def count_text(n: int, noun: str) -> str:
    """A number of things.

    Examples
    --------
    >>> count_text(1, "row"), count_text(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Some names in quotes, and how many more there are.

    Examples
    --------
    >>> listed(["a", "b"]), listed(["a", "b", "c", "d"])
    ("'a' and 'b'", "'a', 'b', 'c' and 1 more")
    """
    shown = [repr(name) for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most:,} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def cell_text(cell: object) -> str:
    """A cell of a table, shortened.

    Examples
    --------
    >>> cell_text(3.0), cell_text(0.1234567), cell_text(None), cell_text("a" * 99)[-3:]
    ('3', '0.1235', '(gap)', 'aa…')
    """
    if cell is None or cell != cell or str(cell) in ("NaT", "<NA>"):
        return "(gap)"
    if isinstance(cell, float):
        return f"{cell:.0f}" if cell == round(cell) and abs(cell) < 1e15 else number_text(cell)
    text = " ".join(str(cell).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def time_text(seconds: float) -> str:
    """A time since 1970, to the minute unless it is midnight.

    Examples
    --------
    >>> time_text(0.0), time_text(3_600.0)
    ('1970-01-01', '1970-01-01 01:00')
    """
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    return text.removesuffix(" 00:00")
