"""Checks of single settings, with error messages of one form."""

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from sigmax.errors import InvalidArgumentError


def check_count(name: str, value: Any, *, minimum: int = 1) -> int:
    """Return ``value`` as an int; raise an error unless it is a whole number ≥ ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < minimum:
        raise InvalidArgumentError(
            f"`{name}` must be a whole number of at least {minimum}, got {value!r}."
        )
    return int(value)


def check_sizes(name: str, value: Any) -> tuple[int, ...]:
    """Return ``value`` as a tuple of counts."""
    if not isinstance(value, list | tuple):
        rule = "a list or tuple of whole numbers"
        raise InvalidArgumentError(f"`{name}` must be {rule}, got {value!r}.")
    return tuple(check_count(name, size) for size in value)


def check_number(
    name: str,
    value: Any,
    *,
    above: float | int = -math.inf,
    below: float | int = math.inf,
    inclusive: bool = False,
) -> float:
    """Return ``value`` as a float strictly between the bounds (``inclusive``: or equal)."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    number = float(value) if is_number else math.nan
    inside = above <= number <= below if inclusive else above < number < below
    if not (inside and math.isfinite(number)):  # also an error for nan
        edge = "including the ends" if inclusive else "without the ends"
        rule = f"a finite number in ({above:g}, {below:g}), {edge}"
        raise InvalidArgumentError(f"`{name}` must be {rule}, got {value!r}.")
    return number


def check_flag(name: str, value: Any) -> bool:
    """Return ``value`` as a bool; raise an error for any other type."""
    if not isinstance(value, bool) and type(value).__name__ != "bool":  # also numpy's
        raise InvalidArgumentError(f"`{name}` must be True or False, got {value!r}.")
    return bool(value)


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return ``value``; raise an error unless it is one of ``choices``."""
    known = sorted(choices)
    if value not in known:
        raise InvalidArgumentError(f"`{name}` must be one of {', '.join(known)}, got {value!r}.")
    return value
