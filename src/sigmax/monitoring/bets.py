r"""Betting tests of means, whose error rate holds at any stopping time.

Numbers $x_t$ in $[0, 1]$ arrive one at a time. The hypothesis is that their mean, given the past,
is at most $m$. A gambler who stakes a share $c$ of his wealth on larger numbers multiplies it by
$1 + c (x_t / m - 1)$, of mean at most 1: his wealth is a nonnegative supermartingale, and by
Ville's inequality the probability that it ever reaches $1/\alpha$ is at most $\alpha$. So it may be
checked after every row, and the data may decide when to stop (Ville 1939; Shafer and Vovk 2019;
Waudby-Smith and Ramdas 2024).

Wealth is spread over several shares $c$, and over all rows at which betting may start: row $s$ has
$1 / (s (s + 1))$ of it, so that a change after a million rows without drift is detected, too.
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

STAKES = np.array([0.03, 0.06, 0.12, 0.25, 0.5, 0.9])
"""Shares of the wealth: small ones for small deviations."""


@final
@dataclass(frozen=True, eq=False)
class Bets:
    """State of several tests, each with a bound on the mean of its numbers.

    Examples
    --------
    >>> bets = Bets.create([0.5])
    >>> bets, log_e = bets.update(np.ones((20, 1)))  # twenty ones from a mean of at most a half
    >>> bool(np.exp(log_e[-1, 0]) > 1000)
    True
    """

    bound: Float[np.ndarray, " tests"]
    """Largest means that the hypotheses allow."""
    n_rows: int
    log_wealth: Float[np.ndarray, "tests stakes"]
    """Log of the staked wealth, summed over all rows at which betting started."""
    total: Float[np.ndarray, " tests"]
    """Sums of the numbers."""

    @classmethod
    def create(cls, bound: Any) -> "Bets":
        """Create tests without any rows."""
        bound = np.asarray(bound, np.float64)
        return cls(bound, 0, np.full((len(bound), len(STAKES)), -np.inf), np.zeros(len(bound)))

    def update(
        self, x: Float[np.ndarray, "rows tests"]
    ) -> "tuple[Bets, Float[np.ndarray, 'rows tests']]":
        """State after more rows, and the log e-value of each test after every row."""
        found, state = np.empty(x.shape), self
        for i, row in enumerate(x):
            n_rows = state.n_rows + 1
            gain = np.log1p(STAKES[None] * (row / self.bound - 1)[:, None])
            wealth = np.logaddexp(state.log_wealth, -np.log(n_rows * (n_rows + 1.0))) + gain
            state = Bets(self.bound, n_rows, wealth, state.total + row)
            found[i] = state.log_e
        return state, found

    @property
    def log_e(self) -> Float[np.ndarray, " tests"]:
        """Current log e-values."""
        kept = -np.log(self.n_rows + 1.0)  # wealth reserved for later starts
        found = np.logaddexp.reduce(np.logaddexp(self.log_wealth, kept), axis=1)
        return found - np.log(len(STAKES))

    def to_json(self) -> dict[str, Any]:
        """State as plain numbers, None for a wealth of 0."""
        log_wealth = self.log_wealth.astype(object)
        log_wealth[np.isinf(self.log_wealth)] = None
        arrays = {"bound": self.bound, "log_wealth": log_wealth, "total": self.total}
        return {"n_rows": self.n_rows} | {name: each.tolist() for name, each in arrays.items()}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> "Bets":
        """Restore from `to_json`; a ValueError if the state is inconsistent."""
        names, n_rows = ("bound", "log_wealth", "total"), state["n_rows"]
        bound, wealth, total = (np.array(state[name], np.float64) for name in names)
        wealth = np.where(np.isnan(wealth), -np.inf, wealth)  # None is read as nan
        is_sound = wealth.shape == (len(bound), len(STAKES)) and total.shape == bound.shape
        is_sound &= isinstance(n_rows, int) and n_rows >= 0
        if not (is_sound and np.all((bound > 0) & (bound <= 1)) and np.isfinite(total).all()):
            raise ValueError("the state of the bets is inconsistent")
        return cls(bound, n_rows, wealth, total)
