"""Profile of a table before fitting: its columns, its target, and problems that it may have.

Leaks are columns that give the target away, alone or as terms of a sum or a product. Real
predictors are strong but never exact, so exactness is searched: a rank correlation near one, values
or missing values that divide the target into bands or determine it, a difference or ratio to the
target with few values, or a linear relation, also between logarithms, without a remainder. A nearly
exact column is a near copy. Of 1,126 columns of 94 real tables 14 are leaks by these thresholds, in
7 tables, and 10 are near copies, in 4 tables; no category of them explains more than 80 % of the
variance.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from shlex import quote
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata, skew

from sigmax.errors import InvalidDataError
from sigmax.tables.table import (
    Column,
    Kind,
    Schema,
    Table,
    as_frame,
    check_names,
    columns_of_frame,
    infer_schema,
    listed,
    read_target,
)

Numbers = NDArray[np.float64]
Codes = NDArray[np.integer]
Leaks = dict[tuple[str, ...], str]

N_SAMPLED = 10_000
MIN_ROWS = 20
MOSTLY = 0.5
"""Share of missing values above which a column is mostly missing."""
UNIQUE = 0.95
"""Share of distinct values from which a category is an id."""
DUPLICATES = 0.001
"""Share of duplicate rows from which they are reported."""
LONG = 10 * 86_400
"""Range in seconds above which times are shown as dates."""
ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|key|idx|index|nr|uuid|guid|serial|rownames|rowid|unnamed)([_\W\d]|$)|[a-z](Id|ID)$"
    r"|^column_1$"
)
GROUP_NAME = re.compile(
    r"(subject|patient|person|user|customer|client|household|site|station|batch|plate|device"
    r"|session|group)s?([_\W]?(id|no|nr|name|code|number))?$|[_\W](id|ID)$|[a-z](Id|ID)$"
)
TIME_NAME = re.compile(r"year|date|day|time|month|week|hour|minute|second|(^|_)(t|yr)($|_)", re.I)

COPY, NEAR_COPY = 0.995, 0.97
"""Rank correlation with the target from which a column is a copy of it, and may be one."""
STEPS = 0.9
"""Correlation of differences from row to row from which columns share more than a trend."""
BANDS, NEAR_BANDS = 0.9995, 0.985
"""Share of the possible variance of ranks that bands of the target explain, and that near bands
explain."""
MAX_BANDS = 50
DETERMINED, DETERMINED_BY_NUMBER = 0.98, 0.995
"""Share of the variance from which categories, and repeated numbers, determine the target."""
FEW = 5
"""Number of the most frequent values of a difference or ratio whose share of rows is compared."""
CONCENTRATION, ANOTHER = 0.2, 0.02
"""Excess of that share over chance from which a column is a leak, and that of a further term."""
MIN_DISTINCT = 50
"""Smallest number of distinct values of the target for which differences are searched."""
REMAINDER = 1e-4
"""Share of the variance that an exact sum or product may leave."""
SLIGHT = 0.01
"""Smallest size of a term of a sum, in standard deviations of the target."""
MAX_TERMS = 20
MAX_MISSING = 0.05
"""Share of missing values in the columns of a sum."""


@final
@dataclass(frozen=True)
class Finding:
    """A possible problem of a table, in a sentence."""

    code: str
    """``leak``, ``id``, ``constant``, ..."""
    columns: tuple[str, ...]
    text: str


@final
@dataclass(frozen=True)
class ColumnProfile:
    name: str
    kind: Kind
    n_missing: int
    n_distinct: int
    """Distinct values, missing ones not counted."""
    n_once: int
    """Values that occur once."""
    low: str
    """Smallest number or earliest time, as text; empty for a category."""
    high: str
    example: str
    """First value that is not missing."""


@final
@dataclass(frozen=True)
class TargetProfile:
    """Summary of the target in the rows that have one."""

    name: str
    n_rows: int
    n_missing: int
    """Rows without a target, which are left out."""
    low: float
    median: float
    high: float
    std: float
    skew: float
    is_whole: bool
    most_frequent: float
    share_of_most_frequent: float


@final
@dataclass(frozen=True)
class Profile:
    n_rows: int
    columns: tuple[ColumnProfile, ...]
    target: TargetProfile
    findings: tuple[Finding, ...]
    schema: Schema


def profile_table(
    frame: pd.DataFrame,
    target: str,
    *,
    schema: Schema | None = None,
    time_column: str | None = None,
    group_column: str | None = None,
    drop: Sequence[str] = (),
) -> Profile:
    """Profile of a table whose column ``target`` is to be predicted.

    All columns except ``drop`` are features, and their kinds are inferred without a ``schema``.
    Rows will be held out by ``time_column`` or ``group_column``, if one is given.
    """
    names = list(map(str, frame.columns))
    chosen = {"--time-column": [time_column], "--group-column": [group_column], "--drop": drop}
    for option, given in chosen.items():
        check_names([name for name in given if name is not None], names, option=option)
    y = read_target(frame, target)
    features = [name for name in names if name != target and name not in set(drop)]
    if not features:
        raise InvalidDataError(f"There is no column besides the target {target!r} to learn from.")
    n_rows, has_target = len(frame), ~np.isnan(y)
    frame, y = frame.loc[has_target], y[has_target]
    if len(y) < 2:
        raise InvalidDataError(f"The target {target!r} needs at least 2 numbers, but has {len(y)}.")
    schema = infer_schema(frame[features]) if schema is None else schema
    columns = tuple(describe_column(frame[column.name], column) for column in schema)
    n_duplicates = int(frame[[*schema.names, target]].duplicated().sum())
    findings = [*leak_findings(frame, schema, y), *column_findings(frame, columns)]
    if np.ptp(y) == 0:
        text = f"The target {target!r} is {y[0]:g} in every row: there is nothing to learn."
        findings.insert(0, Finding("constant target", (target,), text))
    if (share := n_duplicates / len(y)) >= DUPLICATES:
        text = (
            f"{n_duplicates:,} rows ({share:.1%}) are duplicates of an earlier row. Duplicates are"
            " held out together so that scores are honest. Drop them if they are mistakes."
        )
        findings.append(Finding("duplicates", (), text))
    if time_column is None and group_column is None:
        findings += split_findings(columns, len(y))
    values, counts = np.unique(y, return_counts=True)
    about_target = TargetProfile(
        name=target,
        n_rows=len(y),
        n_missing=n_rows - len(y),
        low=float(values[0]),
        median=float(np.median(y)),
        high=float(values[-1]),
        std=float(np.std(y)),
        skew=0.0 if len(values) == 1 else float(skew(y)),
        is_whole=bool(np.all(values % 1 == 0)),
        most_frequent=float(values[counts.argmax()]),
        share_of_most_frequent=float(counts.max() / len(y)),
    )
    return Profile(n_rows, columns, about_target, tuple(findings), schema)


def describe_column(cells: Any, column: Column) -> ColumnProfile:
    counts = cells.value_counts(sort=False).to_numpy()
    present = cells.dropna()
    low, high = range_texts(column)
    return ColumnProfile(
        name=column.name,
        kind=column.kind,
        n_missing=len(cells) - len(present),
        n_distinct=len(counts),
        n_once=int(np.sum(counts == 1)),
        low=low,
        high=high,
        example=str(present.iloc[0]) if len(present) else "",
    )


def range_texts(column: Column) -> tuple[str, str]:
    """Both ends of the range of a column; times have the precision that the range needs."""
    low, high = column.low, column.high
    if low is None or high is None or column.kind is Kind.CATEGORY:
        return "", ""
    if column.kind is Kind.NUMBER:
        first, last = (f"{end:.10g}" if end % 1 == 0 else f"{end:.6g}" for end in (low, high))
        return first, last
    unit = "D" if high - low > LONG else "m" if high - low > LONG / 1440 else "s"
    first, last = (str(np.datetime64(int(end), "s").astype(f"M8[{unit}]")) for end in (low, high))
    return first.replace("T", " "), last.replace("T", " ")


def leak_findings(frame: pd.DataFrame, schema: Schema, y: Numbers) -> list[Finding]:
    """Columns that give the target away, found in a sample of the rows."""
    if len(y) < MIN_ROWS or np.ptp(y) == 0:
        return []
    rows = np.arange(len(y))
    if len(y) > N_SAMPLED:
        rows = np.sort(np.random.default_rng(0).choice(len(y), N_SAMPLED, replace=False))
    sample = as_frame(frame[schema.names].iloc[rows])
    table = Table.from_columns(columns_of_frame(sample), schema)
    values = np.concatenate([table.numbers, table.times], axis=1).T
    numbers = {column.name: x for column, x in zip(schema.reals, values, strict=True)}
    categories = zip(schema.of_kind(Kind.CATEGORY), table.categories, strict=True)
    codes = {column.name: found.codes for column, found in categories}
    findings, leaking = [], set()
    for names, how in find_leaks(numbers, codes, y[rows]).items():
        subject = listed(names) if how.startswith("together") else repr(names[0])
        them = "it" if len(names) == 1 else "them"
        text = f"{subject} {how}. Drop {them} unless you know {them} before the target."
        findings.append(Finding("leak", names, text))
        leaking.update(names)
    near = {}  # they may be real predictors
    for name, x in numbers.items():
        if name not in leaking and (rank := rank_correlation(x, y[rows])) >= NEAR_COPY:
            near[name] = f"rank correlation {rank:.3f}"
    for name, x in {**{name: pd.factorize(x)[0] for name, x in numbers.items()}, **codes}.items():
        if name not in leaking and band_share(x, y[rows], fewest=3) >= NEAR_BANDS:
            near[name] = "its values split the target into ranges that hardly overlap"
    if near:
        text = (
            f"{', '.join(f'{name!r} ({why})' for name, why in near.items())}: nearly the target"
            " itself. That may be right; drop what you know only after the target."
        )
        findings.append(Finding("near copy", tuple(near), text))
    return findings


def column_findings(frame: pd.DataFrame, columns: Sequence[ColumnProfile]) -> list[Finding]:
    """Columns with little information, or that only identify rows."""
    n_rows = len(frame)
    constant = [c.name for c in columns if c.n_distinct + (c.n_missing > 0) == 1]
    others = [c for c in columns if c.name not in constant]
    ids = [c.name for c in others if is_id(frame[c.name], c, n_rows)]
    empty = [c.name for c in others if c.n_missing > MOSTLY * n_rows]
    once = {c.name: c.n_once for c in columns if c.kind is Kind.CATEGORY and c.name not in ids}
    rare = [name for name, n_once in once.items() if n_once]
    n_rare = sum(once.values())
    texts = {
        "id": (ids, "a different value in every row, which only identifies rows; drop it"),
        "constant": (constant, "the same value in every row, so it has no information; drop it"),
        "mostly missing": (empty, f"missing in more than {MOSTLY:.0%} of rows; you may drop it"),
        "rare categories": (rare, f"{n_rare:,} categories occur only once; merge some of them"),
    }
    return [
        Finding(code, tuple(names), f"{listed(names)}: {text}.")
        for code, (names, text) in texts.items()
        if names
    ]


def is_id(cells: Any, column: ColumnProfile, n_rows: int) -> bool:
    """True for categories that differ in nearly every row, and for running numbers."""
    n_present = n_rows - column.n_missing
    if n_present < MIN_ROWS or column.kind is Kind.TIME:
        return False
    if column.kind is Kind.CATEGORY:
        return column.n_distinct >= UNIQUE * n_present
    if column.n_distinct < n_present or TIME_NAME.search(column.name):
        return False
    values = cells.dropna().to_numpy(np.float64)
    if np.any(values % 1):
        return False
    is_running = np.ptp(values) < 1.1 * n_present and n_present > 100
    return is_running or bool(np.all(np.diff(values) == 1) or ID_NAME.search(column.name))


def split_findings(columns: Sequence[ColumnProfile], n_rows: int) -> list[Finding]:
    """Columns by which rows should perhaps be held out."""
    findings = []
    if times := tuple(c.name for c in columns if c.kind is Kind.TIME):
        text = (
            f"The rows have times ({listed(times)}). If you will predict later rows, add"
            f" --time-column {quote(times[0])}; a random split would look too good."
        )
        findings.append(Finding("time column with a random split", times, text))
    groups = tuple(  # names of subjects or sites, each with several rows
        c.name
        for c in columns
        if 5 <= c.n_distinct <= (n_rows - c.n_missing) / 2
        and c.kind is not Kind.TIME
        and GROUP_NAME.search(c.name.lower())
    )
    if groups:
        text = (
            f"The rows seem to form groups ({listed(groups)}). If you will predict new groups, add"
            f" --group-column {quote(groups[0])}; a random split would look too good."
        )
        findings.append(Finding("possible groups", groups, text))
    return findings


def find_leaks(numbers: Mapping[str, Numbers], codes: Mapping[str, Codes], y: Numbers) -> Leaks:
    """Leaks, as names of columns and the rest of a sentence about them.

    NaN and the code -1 are missing values. The terms of a sum or a product are not searched one by
    one. The search is repeated without the leaks that it found, until there are no more.
    """
    leaks: Leaks = {}
    if terms := exact_terms(numbers, y):
        leaks[terms] = "together give the target exactly, as a sum"
    elif (y > 0).all():
        logarithms = {name: np.log(x) for name, x in numbers.items() if not (x <= 0).any()}
        if terms := exact_terms(logarithms, np.log(y)):
            leaks[terms] = "together give the target exactly, as a product"
    for name, x in numbers.items():
        if name in terms:
            continue
        if (rank := rank_correlation(x, y)) >= COPY and not is_trend(x, y):
            leaks[(name,)] = f"is nearly a copy of the target (rank correlation {rank:.4f})"
        elif how := tells_target(pd.factorize(x)[0], y, determined=DETERMINED_BY_NUMBER):
            leaks[(name,)] = how
        elif found := holds_target(name, numbers, y):
            others = ", ".join(map(repr, found[1:]))
            leaks[found] = (
                f"is the target plus a few other amounts ({others})"
                if others
                else "is the target plus, or times, one of a few values"
            )
    for name, x in codes.items():
        if how := tells_target(x, y, determined=DETERMINED):
            leaks[(name,)] = how
    if not leaks:
        return {}
    known = {name for names in leaks for name in names}
    numbers = {name: x for name, x in numbers.items() if name not in known}
    codes = {name: x for name, x in codes.items() if name not in known}
    return leaks | find_leaks(numbers, codes, y)


def tells_target(codes: Codes, y: Numbers, *, determined: float) -> str:
    """Rest of a sentence if the values of one column give the target away, or else empty."""
    if band_share(codes, y) >= BANDS:
        return "divides the target into ranges that do not overlap"
    if band_share((codes < 0).astype(np.int64), y) >= BANDS:
        return "is missing only where the target is in one range of values"
    if (explained := group_share(codes, y)) >= determined:
        return f"determines the target: its values explain {explained:.1%} of the variance"
    return ""


def is_trend(x: Numbers, y: Numbers) -> bool:
    """True if two columns have the same trend over the rows, but not the same steps."""
    is_known = np.isfinite(x)
    x, y = x[is_known], y[is_known]
    steps = [np.diff(rankdata(part)) for part in (x, y)]
    if min(map(np.ptp, steps)) == 0:  # rows are sorted by one of them, or by both
        return not is_exact({"x": x}, y)
    return abs(float(np.corrcoef(*steps)[0, 1])) < STEPS


def is_few(is_known: NDArray[np.bool_]) -> bool:
    """True if too few values are known to search for a leak."""
    return bool(is_known.sum() < max(MIN_ROWS, 0.5 * len(is_known)))


def rank_correlation(x: Numbers, y: Numbers) -> float:
    """Absolute rank correlation in the rows without missing values, 0 for too few of them."""
    is_known = np.isfinite(x)
    x, y = x[is_known], y[is_known]
    # `band_share` is stricter for few distinct values
    if is_few(is_known) or len(np.unique(x)) <= MAX_BANDS or np.ptp(y) == 0:
        return 0.0
    return float(abs(np.corrcoef(rankdata(x), rankdata(y))[0, 1]))


def band_share(codes: Codes, y: Numbers, *, fewest: int = 2) -> float:
    """Variance of ranks that values explain, over that of bands of the same sizes."""
    is_known = codes >= 0
    if is_few(is_known):
        return 0.0
    codes, ranks = codes[is_known], rankdata(y[is_known])
    sizes = np.bincount(codes)
    means = np.bincount(codes, ranks)[sizes > 0] / sizes[sizes > 0]
    sizes = sizes[sizes > 0]
    if (
        not fewest <= len(sizes) <= min(MAX_BANDS, len(codes) // 10)
        or np.sort(sizes)[-2] < MIN_ROWS
    ):
        return 0.0
    middle = ranks.mean()
    explained = np.sum(sizes * (means - middle) ** 2)
    ends = np.cumsum(sizes[np.argsort(means)])
    bands = np.split(np.sort(ranks), ends[:-1])
    possible = sum(len(band) * (band.mean() - middle) ** 2 for band in bands)
    return float(explained / possible) if possible > 0 else 0.0


def group_share(codes: Codes, y: Numbers) -> float:
    """Share of variance, of the target or its ranks, that means of the other rows explain.

    The means are those of the rows with the same value; extremes of the target are clipped.
    """
    is_known = codes >= 0
    if is_few(is_known):
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
    """Column that is the target plus an amount with few values, and the columns of more amounts."""
    x = numbers[name]
    if len(np.unique(y)) < MIN_DISTINCT:
        return ()
    other, divisor = np.random.default_rng(0).permutation(y), np.where(x, x, np.nan)
    difference, ratio = concentration(y - x), concentration(y / divisor)
    by_chance = max(concentration(other - x), concentration(other / divisor))
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
    """Share of rows with one of the few most frequent values, apart from rounding."""
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0
    scale = 1e-7 * max(float(np.max(np.abs(known))), 1e-300)
    counts = pd.Series(np.round(known / scale)).value_counts(sort=False).to_numpy()
    return float(np.sort(counts)[-FEW:].sum() / len(values))


def exact_terms(numbers: Mapping[str, Numbers], y: Numbers) -> tuple[str, ...]:
    """Few columns of which the target is a linear function without a remainder."""
    full = {name: x for name, x in numbers.items() if np.isfinite(x).mean() > 1 - MAX_MISSING}
    is_whole = np.isfinite(np.column_stack([y, *full.values()])).all(axis=1)
    y = y[is_whole]
    rows = {name: x[is_whole] for name, x in islice(full.items(), len(y) // 4)}
    usable = {name: (x - x.mean()) / x.std() for name, x in rows.items() if np.ptp(x) > 0}
    if np.ptp(y) == 0 or not is_exact(usable, y):
        return ()
    usable = {name: x for name, x in usable.items() if not is_exact({name: x}, y)}  # without copies
    if not is_exact(usable, y):
        return ()
    sizes = dict(zip(usable, np.abs(coefficients(usable, y)), strict=False))
    terms = [name for name in usable if sizes[name] > SLIGHT * y.std()]
    for name in sorted(terms, key=lambda name: sizes[name]):
        fewer = [term for term in terms if term != name]
        if is_exact({term: usable[term] for term in fewer}, y):
            terms = fewer
    is_sum = is_exact({name: usable[name] for name in terms}, y) and len(terms) <= MAX_TERMS
    return tuple(terms) if is_sum else ()


def is_exact(columns: Mapping[str, Numbers], y: Numbers) -> bool:
    """True if a linear fit to every second row leaves no variance in the other rows."""
    if not columns:
        return False
    every_second = {name: x[::2] for name, x in columns.items()}
    *slopes, constant = coefficients(every_second, y[::2])
    left = y[1::2] - np.column_stack([x[1::2] for x in columns.values()]) @ slopes - constant
    return bool(np.mean(left**2) <= REMAINDER * max(np.var(y[1::2]), 1e-300))


def coefficients(columns: Mapping[str, Numbers], y: Numbers) -> Numbers:
    """Slopes and, last, the constant of a linear fit."""
    X = np.column_stack([*columns.values(), np.ones(len(y))])
    return np.asarray(np.linalg.lstsq(X, y, rcond=None)[0], dtype=np.float64)
