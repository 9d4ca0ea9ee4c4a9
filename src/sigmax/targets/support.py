"""Bounds of a target: declared by the user, or recognised where no value is negative."""

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.settings import Rule
from sigmax.targets.values import fewest_in_atom

__all__ = ["SUPPORT", "Support"]

MANY_NEAR = 8
"""Rows near 0 at least, if nothing but them says that no value can be negative."""

NEAR = 0.1
"""Values below this share of the median are near 0."""


@final
class Support(NamedTuple):
    """Least and greatest possible value of one output; infinite without a bound."""

    low: float = -np.inf
    high: float = np.inf

    @classmethod
    def find(cls, y: NDArray[np.float64], declared: Any = "auto") -> "Support":
        """Support of targets: as declared, or 0 to infinity if no value can be negative.

        That is recognised, if no value is below 0, by an atom at 0, by a skewed distribution (the
        95 % quantile, mirrored at the median, would be negative) or by many values near 0.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> Support.find(rng.exponential(size=100)).low, Support.find(rng.normal(9, 1, 100)).low
        (0.0, -inf)
        """
        low, high = (0.0 if is_positive(y) else -np.inf, np.inf) if declared == "auto" else declared
        low, high = -np.inf if low is None else float(low), np.inf if high is None else float(high)
        beyond = np.sum((y < low) | (y > high))
        if beyond:
            raise InvalidDataError(
                f"`y` must lie within `support` ({low:g}, {high:g}): {beyond} of {len(y)} values do"
                " not. Correct them, or give a wider `support`."
            )
        return cls(low, high)

    def with_values(self, y: NDArray[np.float64]) -> "Support":
        """The support once it is known that values ``y`` occur, too."""
        low = self.low if y.min() >= self.low else -np.inf
        return Support(low, self.high if y.max() <= self.high else np.inf)

    @property
    def is_bounded(self) -> bool:
        """True if there is a bound."""
        return bool(np.isfinite(self.low) or np.isfinite(self.high))


def is_positive(y: NDArray[np.float64]) -> bool:
    """True if no value is negative, and the distribution of the values says why."""
    if y.min() < 0 or y.max() == y.min():
        return False
    median, high = np.quantile(y, [0.5, 0.95])
    has_atom = np.sum(y == 0) >= fewest_in_atom(len(y))
    return bool(has_atom or high > 2 * median or np.sum(y < NEAR * median) >= MANY_NEAR)


def check_support(name: str, support: Any) -> Any:
    """The setting: "auto", or a pair of bounds of which either may be None."""
    rule = '"auto", or a pair (low, high) of numbers or None with low < high'
    if isinstance(support, str) and support == "auto":
        return support
    try:
        low, high = (None if bound is None else float(bound) for bound in support)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"`{name}` must be {rule}, got {support!r}.") from None
    if not (-np.inf if low is None else low) < (np.inf if high is None else high):
        raise InvalidArgumentError(f"`{name}` must be {rule}, got {support!r}.")
    return low, high


SUPPORT = (
    "auto",
    Rule('"auto" or (low, high)', check_support),
    """Least and greatest possible value of y, of which either may be None: densities and intervals
    end there. "auto" is (0, None) if no y is negative and many are near 0 or the distribution is
    skewed, and otherwise no bound.""",
)
"""The setting `support` of estimators."""
