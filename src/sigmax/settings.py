"""Settings: checks of values, and fields of a dataclass with a default and a rule."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, final

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


@final
@dataclass(frozen=True)
class Rule:
    """Rule for the values of a setting: their type in words, and a check."""

    kind: str
    check: Callable[[str, Any], Any]


def number(**bounds: Any) -> Rule:
    return Rule("float", partial(check_number, **bounds))


def one_of(choices: Iterable[str]) -> Rule:
    names = [f'"{choice}"' for choice in sorted(choices)]
    kind = f"{', '.join(names[:-1])} or {names[-1]}"
    return Rule(kind, partial(check_choice, choices=tuple(choices)))


COUNT = Rule("int", check_count)
COUNT_OR_ZERO = Rule("int", partial(check_count, minimum=0))
FLAG = Rule("bool", check_flag)
SIZES = Rule("tuple of int", check_sizes)
POSITIVE = number(above=0)
NOT_NEGATIVE = number(above=0, inclusive=True)


def setting(default: Any, rule: Rule, sentence: str) -> Any:
    """Field of an `AbstractSettings`; a default of None is set by the estimator."""
    return field(default=default, metadata={"rule": rule, "sentence": " ".join(sentence.split())})


@dataclass(frozen=True, kw_only=True)
class AbstractSettings:
    """Settings of an estimator; fields without a rule are not constructor arguments."""

    @classmethod
    def declared(cls) -> dict[str, Field]:
        """Fields with a rule, by name."""
        return {one.name: one for one in fields(cls) if "rule" in one.metadata}

    def override(self, given: Mapping[str, Any]) -> Any:
        """Replace settings by the given values, which are checked.

        Raises
        ------
        InvalidArgumentError
            If a value violates the rule of its field.
        """
        declared = self.declared()
        checked = {
            name: declared[name].metadata["rule"].check(name, value)
            for name, value in given.items()
            if name in declared and not (value is None and declared[name].default is None)
        }
        return replace(self, **checked)

    def changes(self) -> dict[str, Any]:
        """Settings that differ from the defaults of the class."""
        return {
            name: getattr(self, name)
            for name, field in self.declared().items()
            if getattr(self, name) != field.default
        }


def store(estimator: Any, arguments: Mapping[str, Any]) -> None:
    """Store constructor arguments as attributes, unchanged, as scikit-learn requires."""
    vars(estimator).update({name: arguments[name] for name in estimator._get_param_names()})
