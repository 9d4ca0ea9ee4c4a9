"""Settings declared once: a field with its default, its rule and its sentence.

Checks and recipes follow from the fields. Constructors and docstrings of estimators repeat them, so
that editors show them; ``tests/test_settings.py`` holds both to the fields.
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import partial
from typing import Any, final

from sigmax.checks import check_choice, check_count, check_flag, check_number, check_sizes

__all__ = [
    "COUNT",
    "COUNT_OR_ZERO",
    "FLAG",
    "NOT_NEGATIVE",
    "POSITIVE",
    "SIZES",
    "AbstractSettings",
    "Rule",
    "describe_settings",
    "number",
    "one_of",
    "setting",
    "store",
]


@final
@dataclass(frozen=True)
class Rule:
    """The values that a setting may have: their type in words, and a check."""

    kind: str
    check: Callable[[str, Any], Any]


def number(
    *, above: float | int = -math.inf, below: float | int = math.inf, inclusive: bool = False
) -> Rule:
    """A number between two bounds."""
    return Rule("float", partial(check_number, above=above, below=below, inclusive=inclusive))


def one_of(choices: Iterable[str]) -> Rule:
    """One of some names."""
    names = [f'"{choice}"' for choice in sorted(choices)]
    kind = f"{', '.join(names[:-1])} or {names[-1]}"
    return Rule(kind, partial(check_choice, choices=tuple(choices)))


COUNT = Rule("int", check_count)
COUNT_OR_ZERO = Rule("int", partial(check_count, minimum=0))
FLAG = Rule("bool", check_flag)
SIZES = Rule("tuple of int", check_sizes)
POSITIVE = number(above=0)
NOT_NEGATIVE = number(above=0, inclusive=True)

WIDTH = 100
"""Of the lines of docstrings."""


def setting(default: Any, rule: Rule, sentence: str) -> Any:
    """A field of an `AbstractSettings`; a default of None is left to the estimator."""
    return field(default=default, metadata={"rule": rule, "sentence": " ".join(sentence.split())})


@dataclass(frozen=True, kw_only=True)
class AbstractSettings:
    """Settings of an estimator. Fields without a rule are no settings of its constructor."""

    @classmethod
    def declared(cls) -> dict[str, Field]:
        """The fields that constructors may have as arguments, by name."""
        return {one.name: one for one in fields(cls) if "rule" in one.metadata}

    def override(self, given: Mapping[str, Any], *, keep_none: bool = True) -> Any:
        """The settings with every given value checked and put in place.

        A value of None leaves the setting as it is; without ``keep_none`` only where it is None.
        """
        declared = self.declared()
        checked = {
            name: declared[name].metadata["rule"].check(name, value)
            for name, value in given.items()
            if name in declared
            and not (value is None and (keep_none or getattr(self, name) is None))
        }
        return replace(self, **checked)


def store(estimator: Any, arguments: Mapping[str, Any]) -> None:
    """Keep the arguments of a constructor as attributes, unchanged, as scikit-learn wants it."""
    vars(estimator).update({name: arguments[name] for name in estimator._get_param_names()})


def describe_settings(
    names: Iterable[str],
    settings: AbstractSettings,
    presets: Mapping[str, AbstractSettings] | None = None,
) -> str:
    """The lines of a class's docstring about some settings, with their values in every preset."""
    lines = []
    for name in names:
        about = settings.declared()[name].metadata
        default = getattr(settings, name)
        others = {
            preset: getattr(other, name)
            for preset, other in (presets or {}).items()
            if getattr(other, name) != default
        }
        values = ", ".join(f"{value!r} in {preset!r}" for preset, value in others.items())
        suffix = f" ({values})" if values else ""
        lines.append(
            f"{name} : {about['rule'].kind}, default {default!r}{suffix}".replace("'", '"')
        )
        lines += [f"    {line}" for line in textwrap.wrap(about["sentence"], WIDTH - 8)]
    return textwrap.indent("\n".join(lines), " " * 4)
