"""The names of columns: none blank, none twice, and not too many."""

import warnings
from collections.abc import Iterable, Sequence

from sigmax.errors import TableFileError, TableFileWarning

__all__ = ["MAX_COLUMNS", "clean_names", "listed", "split_columns"]

MAX_COLUMNS = 5_000
"""A table may have this many columns."""


def clean_names(source: str, names: Iterable[object]) -> tuple[str, ...]:
    """Names without blanks around them; a blank one gets its position, a second one a number.

    Raises
    ------
    TableFileError
        If there are more than `MAX_COLUMNS`.
    """
    given = ["" if name is None else str(name).strip() for name in names]
    if len(given) > MAX_COLUMNS:
        raise TableFileError(
            f"{source} has {len(given):,} columns; at most {MAX_COLUMNS:,} are read."
        )
    taken = set(given) - {""}
    seen: set[str] = set()
    result = []
    for i, name in enumerate(given, start=1):
        fresh = name or unused(f"column_{i}", taken)
        if fresh in seen:
            fresh = unused(f"{name}_2", taken)
        seen.add(fresh)
        taken.add(fresh)
        result.append(fresh)
    changed = [new for old, new in zip(given, result, strict=True) if old != new]
    if changed:
        tell(f"{source} has blank or repeated column names, which became {listed(changed)}.")
    return tuple(result)


def split_columns(given: Iterable[str], columns: Iterable[str]) -> tuple[str, ...]:
    """Columns as a person names them on the command line: one by one, or several with commas.

    Examples
    --------
    >>> split_columns(["a,b", "net, gross"], ["a", "b", "net, gross"])
    ('a', 'b', 'net, gross')
    """
    known, found = set(columns), []
    for text in given:
        parts = [text] if text in known else [part.strip() for part in text.split(",")]
        found += [part for part in parts if part]
    return tuple(dict.fromkeys(found))


def unused(name: str, taken: set[str]) -> str:
    """``name``, or with a higher number at its end if it is taken."""
    stem, _, number = name.rpartition("_")
    count = int(number)
    while f"{stem}_{count}" in taken:
        count += 1
    return f"{stem}_{count}"


def listed(names: Sequence[str], n_shown: int = 5) -> str:
    """Names for a sentence: the first few, and how many more."""
    shown = ", ".join(map(repr, names[:n_shown]))
    return shown + (f" and {len(names) - n_shown} more" if len(names) > n_shown else "")


def tell(text: str) -> None:
    warnings.warn(text, TableFileWarning, stacklevel=3)
