"""The paper's toy problem, where the true mean and spread are known."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = ["ToyProblem"]


@final
@dataclass(frozen=True, kw_only=True)
class ToyProblem:
    r"""$y = x \sin x + 0.3\epsilon_1 + 0.3 x \epsilon_2$ with x uniform on [0, 10].

    Examples
    --------
    >>> X, y = ToyProblem().sample(500, random_state=0)
    >>> X.shape, y.shape
    ((500, 1), (500,))
    """

    lower: float = 0.0
    upper: float = 10.0

    def sample(self, n_rows: int = 500, *, random_state=None) -> tuple[NDArray, NDArray]:
        """``n_rows`` fresh points: X of shape (n, 1) and y of shape (n,).

        ``random_state`` is an int, RandomState, Generator or None.
        """
        from sigmax.random import make_generator  # here, for it imports JAX

        rng = make_generator(random_state)
        x = rng.uniform(self.lower, self.upper, n_rows)
        return x[:, None], self.mean(x) + self.std(x) * rng.standard_normal(n_rows)

    def mean(self, x: NDArray) -> NDArray:
        """True mean at x."""
        return x * np.sin(x)

    def std(self, x: NDArray) -> NDArray:
        """True standard deviation at x: two independent noises, so their variances add."""
        return np.sqrt(0.3**2 + (0.3 * x) ** 2)

    def log_prob(self, x: NDArray, y: NDArray) -> NDArray:
        """True log density of y at x."""
        z = (y - self.mean(x)) / self.std(x)
        return -0.5 * z**2 - np.log(self.std(x)) - 0.5 * np.log(2 * np.pi)
