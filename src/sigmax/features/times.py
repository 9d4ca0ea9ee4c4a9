"""Times as numbers: a trend, the time between two of them, and places on a clock and a calendar."""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sigmax.tables import Column

__all__ = ["cycles_of", "elapsed", "on_cycles"]

DAY = 86_400.0
PERIODS = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}

MOST_PAIRED = 6
"""With more columns of times than these, no pairs are formed."""


def elapsed(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds between every two columns of times."""
    n_columns = times.shape[1]
    pairs = list(combinations(range(n_columns), 2)) if n_columns <= MOST_PAIRED else []
    found = [times[:, second] - times[:, first] for first, second in pairs]
    return np.stack(found, axis=1) if found else np.empty((len(times), 0))


def cycles_of(column: Column, times: NDArray[np.float64]) -> tuple[str, ...]:
    """The periods that a column of times goes through at least twice, and within which it moves."""
    present = times[~np.isnan(times)]
    if not len(present) or column.low is None or column.high is None:
        return ()
    span, moves_in_day = column.high - column.low, np.ptp(present % DAY) > 0
    return tuple(
        name
        for name, period in PERIODS.items()
        if span >= 2 * period * (0.5 if name == "year" else 1.0) and (moves_in_day or name != "day")
    )


def on_cycles(times: NDArray[np.float64], periods: tuple[str, ...]) -> NDArray[np.float64]:
    """Sine and cosine of the place in every period; a gap is at the centre of the circle."""
    columns = []
    for name in periods:
        angle = 2 * np.pi * (times / PERIODS[name] % 1.0)
        columns += [np.sin(angle), np.cos(angle)]
    found = np.stack(columns, axis=1) if columns else np.empty((len(times), 0))
    return np.nan_to_num(found, nan=0.0)
