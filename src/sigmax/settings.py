"""Settings: fields of a dataclass, each with its default and the rule that values must obey."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import partial
from typing import Any, final

from sigmax.checks import check_choice, check_count, check_flag, check_number, check_sizes


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

    def override(self, given: Mapping[str, Any]) -> Any:
        """Settings with every given value checked and put in place.

        Raises
        ------
        InvalidArgumentError
            If a value does not obey the rule of its field.
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
    """Keep the arguments of a constructor as attributes, unchanged, as scikit-learn wants it."""
    vars(estimator).update({name: arguments[name] for name in estimator._get_param_names()})
