"""What to fit, to what, and how to judge it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from sigmax.checks import check_choice, check_count, check_number
from sigmax.commands.peers import PACKAGES
from sigmax.errors import InvalidArgumentError
from sigmax.estimators import AbstractRegressor, LinearRegressor, MarginalRegressor
from sigmax.runs.fitting import with_settings
from sigmax.runs.methods import METHODS, Method
from sigmax.tables.names import split_columns

__all__ = ["FITTED", "FitOptions"]

FITTED = METHODS | {
    "linear": Method("linear", lambda seed: LinearRegressor(), is_network=False),
    "marginal": Method("marginal", lambda seed: MarginalRegressor(), is_network=False),
}
"""Methods that can be fitted to a table and saved, by the names of the command line."""


@final
@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What to fit, to what, and how to judge it."""

    target: str
    method: str = "local"
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the estimator that differ from the preset's."""
    categories: tuple[str, ...] = ()
    """Columns to take as categories, whatever they look like."""
    numbers: tuple[str, ...] = ()
    """Columns to take as numbers."""
    drop: tuple[str, ...] = ()
    """Columns to leave out."""
    time_column: str | None = None
    """Its last rows are held out; it is learned from unless dropped."""
    group_column: str | None = None
    """Whole groups are held out; it is learned from only if named as category or number."""
    holdout: float = 0.2
    refit: bool = True
    """Whether the model that is kept learns from all rows."""
    conformal: bool = False
    """Whether intervals are conformal, from held-out rows, rather than quantiles."""
    seed: int = 0

    @property
    def intervals(self) -> str:
        """The kind of intervals."""
        return "conformal" if self.conformal else "distribution"

    def check(self) -> None:
        """Refuse what no table could be fitted with."""
        if self.method in PACKAGES:
            raise InvalidArgumentError(
                f"`--method`: {self.method} can be compared but not saved, as its package has a"
                " file format of its own. Fit and save it with that package, or choose another"
                " method."
            )
        check_choice("--method", self.method, FITTED)
        check_number("--holdout", self.holdout, above=0.0, below=1.0)
        check_count("--seed", self.seed, minimum=0)
        self.create_model().recipe()
        if self.time_column is not None and self.group_column is not None:
            raise InvalidArgumentError(
                "`--time-column` and `--group-column` are two ways to hold out rows: choose one."
            )
        if self.conformal and not FITTED[self.method].is_network:
            raise InvalidArgumentError(
                f"`--conformal` needs members that hold rows out, which {self.method!r} has not."
            )
        if self.target in self.drop:
            raise InvalidArgumentError(f"`--drop`: {self.target!r} is the target.")
        for name in sorted(set(self.categories) & set(self.numbers)):
            raise InvalidArgumentError(f"{name!r} cannot be both `--category` and `--number`.")
        for name in sorted({*self.categories, *self.numbers} & {self.target, *self.drop}):
            raise InvalidArgumentError(f"{name!r} is no feature, so it has no kind to choose.")

    def for_columns(self, columns: Sequence[str]) -> "FitOptions":
        """The same options, with names that were joined by commas apart."""
        names = {
            name: split_columns(getattr(self, name), columns)
            for name in ("categories", "numbers", "drop")
        }
        return replace(self, **names)

    def notes(self) -> list[str]:
        """What becomes of the column by which rows are held out."""
        named = {*self.categories, *self.numbers, *self.drop}
        if self.time_column is not None and self.time_column not in named:
            name = self.time_column
            return [f"{name!r} is also learned from; --drop {name!r} holds out by it alone"]
        if self.group_column is not None and self.group_column not in named:
            name = self.group_column
            return [f"{name!r} is not learned from; --category {name!r} would have it learned"]
        return []

    def create_model(self, plain: str | None = None) -> AbstractRegressor:
        """The estimator or, for the same columns, the plain one of this name; unfitted."""
        settings = {} if plain else dict(self.settings)
        if self.preset is not None and not plain:
            settings["preset"] = self.preset
        if self.categories:
            settings["categorical_features"] = list(self.categories)
        if self.numbers:
            settings["numeric_features"] = list(self.numbers)
        method = plain or self.method
        return with_settings(FITTED[method].create(self.seed), f"The method {method!r}", settings)
