"""Columns that give the target away: copies of it, sums and products that hold it.

Honest predictors are strong but never exact, so that what is looked for is exactness: a rank
correlation near one, levels that cut the range of the target into pieces, a difference or ratio to
the target with few values, or a linear relation, also between logarithms, without a remainder.
"""

from collections.abc import Mapping
from itertools import islice

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

__all__ = ["find_leaks"]

Numbers = NDArray[np.float64]

MIN_ROWS = 20
"""Fewer rows say nothing about exactness."""
COPY = 0.995
"""Rank correlation with the target from which a column is a copy of it."""
PIECES = 0.9995
"""Share of the possible variance of ranks that levels explain if they cut the target in pieces."""
MAX_PIECES = 50
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
MAX_TERMS = 5
MAX_GAPS = 0.05
"""Share of gaps in the columns of a sum."""


def find_leaks(
    numbers: Mapping[str, Numbers], levels: Mapping[str, NDArray[np.integer]], y: Numbers
) -> dict[tuple[str, ...], str]:
    """Columns, alone or together, that give the target away, and how.

    Parameters
    ----------
    numbers
        Columns of numbers and times; NaN is a gap.
    levels
        Columns of categories as whole numbers; -1 is a gap.
    y
        The target, without gaps.

    Returns
    -------
    leaks
        Names of columns and half a sentence about them.
    """
    leaks: dict[tuple[str, ...], str] = {}
    if len(y) < MIN_ROWS or np.ptp(y) == 0:
        return leaks
    for name, x in numbers.items():
        if (rank := rank_correlation(x, y)) >= COPY:
            leaks[(name,)] = f"is nearly a copy of the target (rank correlation {rank:.4f})"
        elif cuts_in_pieces(codes_of(x), y):
            leaks[(name,)] = "cuts the target into pieces that do not overlap"
        elif found := holds_target(name, numbers, y):
            leaks[found] = describe_sum(found)
    for name, codes in levels.items():
        if cuts_in_pieces(codes, y):
            leaks[(name,)] = "cuts the target into pieces that do not overlap"
    known = {name for names in leaks for name in names}
    rest = {name: x for name, x in numbers.items() if name not in known}
    if terms := exact_terms(rest, y):
        leaks[terms] = "together give the target exactly, as a sum"
    elif (y > 0).all():
        positive = {name: x for name, x in rest.items() if not (x <= 0).any()}
        logarithms = {name: np.log(x) for name, x in positive.items()}
        if terms := exact_terms(logarithms, np.log(y)):
            leaks[terms] = "together give the target exactly, as a product"
    return leaks


def describe_sum(names: tuple[str, ...]) -> str:
    if len(names) == 1:
        return "differs from the target, or is a multiple of it, by few values"
    others = ", ".join(map(repr, names[1:]))
    return f"is the target and a few other amounts ({others})"


def rank_correlation(x: Numbers, y: Numbers) -> float:
    """The size of the rank correlation of the rows without a gap, 0 for too few of them."""
    is_known = np.isfinite(x)
    if is_known.sum() < max(MIN_ROWS, 0.5 * len(y)):
        return 0.0
    if len(np.unique(x[is_known])) <= MAX_PIECES:  # strict enough is only `cuts_in_pieces`
        return 0.0
    ranks = rankdata(x[is_known]), rankdata(y[is_known])
    if min(map(np.ptp, ranks)) == 0:
        return 0.0
    return float(abs(np.corrcoef(*ranks)[0, 1]))


def codes_of(x: Numbers) -> NDArray[np.integer]:
    """Numbers as codes of their values, -1 for gaps."""
    return pd.factorize(x)[0]


def cuts_in_pieces(codes: NDArray[np.integer], y: Numbers) -> bool:
    """Whether each level has a range of targets of its own, as bands of the target have."""
    is_known = codes >= 0
    if is_known.sum() < max(MIN_ROWS, 0.5 * len(y)):
        return False
    codes, ranks = codes[is_known], rankdata(y[is_known])
    sizes = np.bincount(codes)
    sums = np.bincount(codes, ranks)
    sizes, sums = sizes[sizes > 0], sums[sizes > 0]
    if not 2 <= len(sizes) <= min(MAX_PIECES, len(codes) // 10) or np.sort(sizes)[-2] < MIN_ROWS:
        return False
    middle = ranks.mean()
    explained = np.sum(sizes * (sums / sizes - middle) ** 2)
    in_order = np.sort(ranks)
    ends = np.cumsum(sizes[np.argsort(sums / sizes)])
    pieces = np.split(in_order, ends[:-1])
    possible = sum(len(piece) * (piece.mean() - middle) ** 2 for piece in pieces)
    return bool(possible > 0 and explained >= PIECES * possible)


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
    if len(usable) < 2 or np.ptp(y) == 0 or remainder(list(usable.values()), y) > REMAINDER:
        return ()
    sizes = dict(zip(usable, np.abs(coefficients(list(usable.values()), y)), strict=False))
    terms = [name for name in usable if sizes[name] > SLIGHT * y.std()]
    for name in sorted(terms, key=lambda name: sizes[name]):
        fewer = [term for term in terms if term != name]
        if fewer and remainder([usable[term] for term in fewer], y) <= REMAINDER:
            terms = fewer
    is_exact = remainder([usable[name] for name in terms], y) <= REMAINDER
    return tuple(terms) if is_exact and len(terms) <= MAX_TERMS else ()


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
