"""Columns that give the target away: copies of it, sums and products that hold it.

Honest predictors are strong but never exact, so that what is looked for is exactness: a rank
correlation near one, values or missing values that divide the target into bands or determine it, a
difference or ratio to the target with few values, or a linear relation, also between logarithms,
without a remainder. What is nearly exact is named apart, as a near copy.

Of 1,126 columns of 94 real tables 14 are leaks by these thresholds, in 7 tables, and 10 are near
copies, in 4 tables; no category of them explains more than 80 % of the variance.
"""

from collections.abc import Mapping
from itertools import islice

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

__all__ = ["find_leaks", "find_near_copies"]

Numbers = NDArray[np.float64]

MIN_ROWS = 20
"""Fewer rows say nothing about exactness."""
COPY = 0.995
"""Rank correlation with the target from which a column is a copy of it."""
NEAR_COPY = 0.97
"""Rank correlation from which it may be one."""
STEPS = 0.9
"""Correlation of steps from row to row that a copy has, and a common trend has not."""
BANDS, NEAR_BANDS = 0.9995, 0.985
"""Share of the possible variance of ranks that the values explain if they are bands of the target,
and if they nearly are."""
MAX_BANDS = 50
DETERMINED, DETERMINED_BY_NUMBER = 0.98, 0.995
"""Share of the variance that categories, and repeated numbers, explain if they determine it."""
FEW = 5
"""Values of a difference or ratio that are few, and"""
CONCENTRATION = 0.2
"""the share of rows by which they must be more than by chance, and"""
ANOTHER = 0.02
"""the share by which another column must add to them, to be named as well, and"""
MIN_DISTINCT = 50
"""the number of values that the target must have for that."""
REMAINDER = 1e-4
"""Share of the variance that an exact sum or product may leave."""
SLIGHT = 0.01
"""Standard deviations of the target that a term of a sum must amount to."""
MAX_TERMS = 20
MAX_GAPS = 0.05
"""Share of gaps in the columns of a sum."""


def find_leaks(
    numbers: Mapping[str, Numbers], levels: Mapping[str, NDArray[np.integer]], y: Numbers
) -> dict[tuple[str, ...], str]:
    """Columns, alone or together, that give the target away, and how.

    What is found is removed and the rest is searched again: without these columns no leak is left
    that this search could find.

    Parameters
    ----------
    numbers
        Columns of numbers and times; NaN is a missing value.
    levels
        Columns of categories as whole numbers; -1 is a missing value.
    y
        The target, without missing values.

    Returns
    -------
    leaks
        Names of columns and half a sentence about them.
    """
    leaks: dict[tuple[str, ...], str] = {}
    if len(y) < MIN_ROWS or np.ptp(y) == 0:
        return leaks
    while True:
        known = {name for names in leaks for name in names}
        numbers = {name: x for name, x in numbers.items() if name not in known}
        levels = {name: codes for name, codes in levels.items() if name not in known}
        found = search(numbers, levels, y)
        if not found:
            return leaks
        leaks |= found


def search(
    numbers: Mapping[str, Numbers], levels: Mapping[str, NDArray[np.integer]], y: Numbers
) -> dict[tuple[str, ...], str]:
    """Leaks among some columns; the partners of a sum or a product are not named once more."""
    leaks: dict[tuple[str, ...], str] = {}
    if terms := exact_terms(numbers, y):
        leaks[terms] = "together give the target exactly, as a sum"
    elif (y > 0).all():
        positive = {name: x for name, x in numbers.items() if not (x <= 0).any()}
        logarithms = {name: np.log(x) for name, x in positive.items()}
        if terms := exact_terms(logarithms, np.log(y)):
            leaks[terms] = "together give the target exactly, as a product"
    for name, x in numbers.items():
        if name in terms:
            continue
        if (rank := rank_correlation(x, y)) >= COPY and not is_trend(x, y):
            leaks[(name,)] = f"is nearly a copy of the target (rank correlation {rank:.4f})"
        elif how := tells_target(codes_of(x), y, determined=DETERMINED_BY_NUMBER):
            leaks[(name,)] = how
        elif found := holds_target(name, numbers, y):
            leaks[found] = describe_sum(found)
    for name, codes in levels.items():
        if how := tells_target(codes, y, determined=DETERMINED):
            leaks[(name,)] = how
    return leaks


def find_near_copies(
    numbers: Mapping[str, Numbers], levels: Mapping[str, NDArray[np.integer]], y: Numbers
) -> dict[str, str]:
    """Columns that nearly give the target away, and why; they may be honest predictors."""
    found = {}
    if len(y) < MIN_ROWS or np.ptp(y) == 0:
        return found
    for name, x in numbers.items():
        if (rank := rank_correlation(x, y)) >= NEAR_COPY:
            found[name] = f"rank correlation {rank:.3f}"
    for name, codes in {**{name: codes_of(x) for name, x in numbers.items()}, **levels}.items():
        if band_share(codes, y, fewest=3) >= NEAR_BANDS:
            found[name] = "bands of the target that hardly overlap"
    return found


def tells_target(codes: NDArray[np.integer], y: Numbers, *, determined: float) -> str:
    """How the values of one column give the target away; empty if they do not."""
    if band_share(codes, y) >= BANDS:
        return "divides the target into bands that do not overlap"
    if band_share((codes < 0).astype(np.int64), y) >= BANDS:
        return "is missing where the target is in a band of its own"
    if (explained := group_share(codes, y)) >= determined:
        return f"determines the target: its values explain {explained:.1%} of the variance"
    return ""


def describe_sum(names: tuple[str, ...]) -> str:
    if len(names) == 1:
        return "is the target plus, or times, one of a few values"
    others = ", ".join(map(repr, names[1:]))
    return f"is the target plus a few other amounts ({others})"


def is_trend(x: Numbers, y: Numbers) -> bool:
    """True if two columns agree in their order over the rows, but not from one row to the next."""
    is_known = np.isfinite(x)
    x, y = x[is_known], y[is_known]
    steps = [np.diff(rankdata(part)) for part in (x, y)]
    if min(map(np.ptp, steps)) == 0:  # rows are sorted by one of them, or by both
        return not is_exact({"x": x}, y)
    return abs(float(np.corrcoef(*steps)[0, 1])) < STEPS


def rank_correlation(x: Numbers, y: Numbers) -> float:
    """The size of the rank correlation of the rows without a gap, 0 for too few of them."""
    is_known = np.isfinite(x)
    if is_known.sum() < max(MIN_ROWS, 0.5 * len(y)):
        return 0.0
    if len(np.unique(x[is_known])) <= MAX_BANDS:  # strict enough is only `band_share`
        return 0.0
    ranks = rankdata(x[is_known]), rankdata(y[is_known])
    if min(map(np.ptp, ranks)) == 0:
        return 0.0
    return float(abs(np.corrcoef(*ranks)[0, 1]))


def codes_of(x: Numbers) -> NDArray[np.integer]:
    """Numbers as codes of their values, -1 for gaps."""
    return pd.factorize(x)[0]


def band_share(codes: NDArray[np.integer], y: Numbers, *, fewest: int = 2) -> float:
    """Variance of ranks that values explain, relative to values that divide the target in bands."""
    is_known = codes >= 0
    if is_known.sum() < max(MIN_ROWS, 0.5 * len(y)):
        return 0.0
    codes, ranks = codes[is_known], rankdata(y[is_known])
    sizes = np.bincount(codes)
    sums = np.bincount(codes, ranks)
    sizes, sums = sizes[sizes > 0], sums[sizes > 0]
    is_few = fewest <= len(sizes) <= min(MAX_BANDS, len(codes) // 10)
    if not is_few or np.sort(sizes)[-2] < MIN_ROWS:
        return 0.0
    middle = ranks.mean()
    explained = np.sum(sizes * (sums / sizes - middle) ** 2)
    in_order = np.sort(ranks)
    ends = np.cumsum(sizes[np.argsort(sums / sizes)])
    bands = np.split(in_order, ends[:-1])
    possible = sum(len(band) * (band.mean() - middle) ** 2 for band in bands)
    return float(explained / possible) if possible > 0 else 0.0


def group_share(codes: NDArray[np.integer], y: Numbers) -> float:
    """Share of the variance that the mean of the other rows of the same value explains.

    Of the target without its extremes, or of its ranks, whichever is more.
    """
    is_known = codes >= 0
    if is_known.sum() < max(MIN_ROWS, 0.5 * len(y)):
        return 0.0
    codes, y = codes[is_known], y[is_known]
    others = np.bincount(codes)[codes] - 1
    shares = []
    for values in (np.clip(y, *np.quantile(y, [0.01, 0.99])), rankdata(y)):
        if np.ptp(values) == 0:
            continue
        sums = np.bincount(codes, values)[codes] - values
        predicted = np.where(others > 0, sums / np.maximum(others, 1), values.mean())
        shares.append(1 - np.mean((values - predicted) ** 2) / np.var(values))
    return float(max(shares, default=0.0))


def holds_target(name: str, numbers: Mapping[str, Numbers], y: Numbers) -> tuple[str, ...]:
    """A column that is the target and an amount of few values, and the columns of other amounts."""
    x = numbers[name]
    if len(np.unique(y)) < MIN_DISTINCT:
        return ()
    other = np.random.default_rng(0).permutation(y)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_chance = max(concentration(other - x), concentration(other / np.where(x, x, np.nan)))
        difference = concentration(y - x)
        ratio = concentration(y / np.where(x, x, np.nan))
    if max(difference, ratio) < by_chance + CONCENTRATION:
        return ()
    found, left = [name], y - x
    while difference >= ratio and len(found) <= MAX_TERMS:
        others = {n: z for n, z in numbers.items() if n not in found and np.nanstd(z) > 0}
        shares = {n: concentration(left + z) for n, z in others.items()}
        best = max(shares, key=lambda n: shares[n], default=None)
        if best is None or shares[best] < concentration(left) + ANOTHER:
            break
        found.append(best)
        left = left + numbers[best]
    return tuple(found)


def concentration(values: Numbers) -> float:
    """The share of rows that have one of the few most frequent values, apart from rounding."""
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0
    scale = 1e-7 * max(float(np.max(np.abs(known))), 1e-300)
    counts = pd.Series(np.round(known / scale)).value_counts(sort=False).to_numpy()
    return float(np.sort(counts)[-FEW:].sum() / len(values))


def exact_terms(numbers: Mapping[str, Numbers], y: Numbers) -> tuple[str, ...]:
    """The few columns of which the target is a linear function without a remainder."""
    full = {name: x for name, x in numbers.items() if np.isfinite(x).mean() > 1 - MAX_GAPS}
    is_whole = np.isfinite(np.column_stack([y, *full.values()])).all(axis=1)
    y = y[is_whole]
    rows = {name: x[is_whole] for name, x in islice(full.items(), len(y) // 4)}
    usable = {name: (x - x.mean()) / x.std() for name, x in rows.items() if np.ptp(x) > 0}
    if np.ptp(y) == 0 or not is_exact(usable, y):
        return ()
    usable = {name: x for name, x in usable.items() if not is_exact({name: x}, y)}  # no copies
    if not is_exact(usable, y):
        return ()
    sizes = dict(zip(usable, np.abs(coefficients(list(usable.values()), y)), strict=False))
    terms = [name for name in usable if sizes[name] > SLIGHT * y.std()]
    for name in sorted(terms, key=lambda name: sizes[name]):
        fewer = [term for term in terms if term != name]
        if is_exact({term: usable[term] for term in fewer}, y):
            terms = fewer
    is_sum = is_exact({name: usable[name] for name in terms}, y) and len(terms) <= MAX_TERMS
    return tuple(terms) if is_sum else ()


def is_exact(columns: Mapping[str, Numbers], y: Numbers) -> bool:
    return bool(columns) and remainder(list(columns.values()), y) <= REMAINDER


def remainder(columns: list[Numbers], y: Numbers) -> float:
    """The share of the variance of every second row that a linear fit to the others leaves."""
    found = coefficients([x[::2] for x in columns], y[::2])
    left = y[1::2] - design([x[1::2] for x in columns], y[1::2]) @ found
    return float(np.mean(left**2) / max(np.var(y[1::2]), 1e-300))


def coefficients(columns: list[Numbers], y: Numbers) -> Numbers:
    """Of the linear function of some columns that is nearest to ``y``; the last is its constant."""
    return np.asarray(np.linalg.lstsq(design(columns, y), y, rcond=None)[0], dtype=np.float64)


def design(columns: list[Numbers], y: Numbers) -> Numbers:
    return np.column_stack([*columns, np.ones(len(y))])
