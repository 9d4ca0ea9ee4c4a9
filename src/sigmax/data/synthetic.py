"""Artificial data: the toy regression and the two moons of the paper, and a table of deliveries."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, roots_sh_legendre

from sigmax.errors import InvalidDataError
from sigmax.random import make_generator
from sigmax.settings import check_count

BLOCK = 1 << 22
"""Number of densities in memory in `TwoMoons.log_prob`: 32 MiB of float64."""


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
        """Draw ``n_rows`` points: X of shape (n, 1) and y of shape (n,).

        ``random_state`` is an int, RandomState, Generator or None.
        """
        rng = make_generator(random_state)
        x = rng.uniform(self.lower, self.upper, n_rows)
        return x[:, None], self.mean(x) + self.std(x) * rng.standard_normal(n_rows)

    def mean(self, x: NDArray) -> NDArray:
        """True mean at x."""
        return x * np.sin(x)

    def std(self, x: NDArray) -> NDArray:
        """True standard deviation at x; the variances of the two noises add."""
        return np.sqrt(0.3**2 + (0.3 * x) ** 2)

    def log_prob(self, x: NDArray, y: NDArray) -> NDArray:
        """True log density of y at x."""
        z = (y - self.mean(x)) / self.std(x)
        return -0.5 * z**2 - np.log(self.std(x)) - 0.5 * np.log(2 * np.pi)


@final
@dataclass(frozen=True, kw_only=True)
class TwoMoons:
    r"""Points of two half circles, observed through four noisy functions.

    A fair coin chooses the half circle of radius 1 about (0.5, 0), the upper one, or about
    (-0.5, 0), the lower one, and a uniform angle the point on it. The point is moved by $u/4$ in
    a uniform direction, with $u$ uniform on [0, 1]: this is the latent $z$. The observations are

    $$\begin{aligned}
    v_1 &= z_1 - z_2 + \epsilon_1 \sqrt{0.03 + 0.05 (3 + z_1)} \\
    v_2 &= z_1^2 + z_2 / 2 + \epsilon_2 \sqrt{0.03 + 0.03 \|z\|} \\
    v_3 &= z_1 z_2 - z_1 + \epsilon_3 \sqrt{0.03 + 0.05 \|z\|} \\
    v_4 &= z_1 + z_2 + \epsilon_4 \sqrt{0.03 + 0.03 / (0.2 + \|z\|)}
    \end{aligned}$$

    The noises $\epsilon_i$ are independent.

    Examples
    --------
    >>> X, latent = TwoMoons().sample(500, random_state=0)
    >>> X.shape, latent.shape
    ((500, 4), (500, 2))
    """

    jitter: float = 0.25
    """Maximum distance of a latent point from its half circle."""

    def sample(self, n_rows: int = 500, *, random_state=None) -> tuple[NDArray, NDArray]:
        """Draw ``n_rows`` points: X of shape (n, 4) and latent points of shape (n, 2).

        ``random_state`` is an int, RandomState, Generator or None.
        """
        n_rows = check_count("n_rows", n_rows)
        rng = make_generator(random_state)
        is_upper = rng.random(n_rows) < 0.5
        latent = self.latent(is_upper, *rng.random((3, n_rows)))
        return self.mean(latent) + self.std(latent) * rng.standard_normal((n_rows, 4)), latent

    def latent(
        self, is_upper: NDArray, along: NDArray, direction: NDArray, distance: NDArray
    ) -> NDArray:
        """Latent points from the choice of a moon and three numbers in [0, 1]."""
        angle = np.pi * (along + ~is_upper)
        center = np.column_stack([np.where(is_upper, 0.5, -0.5), np.zeros(len(angle))])
        return center + unit(angle) + self.jitter * distance[:, None] * unit(2 * np.pi * direction)

    def mean(self, latent: NDArray) -> NDArray:
        """Observations of latent points without noise: shape (n, 4)."""
        z1, z2 = as_columns("latent", latent, 2)
        return np.column_stack([z1 - z2, z1**2 + z2 / 2, z1 * z2 - z1, z1 + z2])

    def std(self, latent: NDArray) -> NDArray:
        """Standard deviations of the four noises at latent points: shape (n, 4)."""
        z1, z2 = as_columns("latent", latent, 2)
        norm = np.hypot(z1, z2)
        variances = [0.05 * (3 + z1), 0.03 * norm, 0.05 * norm, 0.03 / (0.2 + norm)]
        return np.sqrt(0.03 + np.column_stack(variances))

    def log_prob(self, X: ArrayLike) -> NDArray:
        """True log density of rows, with the latent point integrated out by quadrature.

        Gauss-Legendre quadrature along the moons and in the distance from them, equal steps in
        the direction; accurate to 1e-4 nats.
        """
        return self._log_prob(as_columns("X", X, 4).T, (48, 16, 6))

    def _log_prob(self, X: NDArray, counts: tuple[int, int, int]) -> NDArray:
        n_along, n_directions, n_distances = counts
        even = np.arange(n_directions) / n_directions, np.full(n_directions, 1 / n_directions)
        moons = np.array([True, False]), np.full(2, 0.5)
        rules = [moons, roots_sh_legendre(n_along), even, roots_sh_legendre(n_distances)]
        parts = (np.meshgrid(*axes, indexing="ij") for axes in zip(*rules, strict=True))
        (is_upper, *shares), weights = ([axis.ravel() for axis in axes] for axes in parts)
        weight = np.prod(weights, axis=0)
        latent = self.latent(is_upper, *shares)
        mean, precision = self.mean(latent), self.std(latent) ** -2
        # the squares of (x - mean) / std as one matrix product
        slopes = np.concatenate([precision, -2 * mean * precision], axis=1).T
        constant = np.sum(mean**2 * precision - np.log(precision / (2 * np.pi)), axis=1)
        n_block = max(1, BLOCK // len(latent))
        blocks = [X[i : i + n_block] for i in range(0, len(X), n_block)]
        squares = (np.concatenate([rows**2, rows], axis=1) @ slopes + constant for rows in blocks)
        return np.concatenate([logsumexp(-0.5 * block, axis=1, b=weight) for block in squares])


def unit(angle: NDArray) -> NDArray:
    return np.column_stack([np.cos(angle), np.sin(angle)])


def as_columns(name: str, values: ArrayLike, n_columns: int) -> NDArray:
    """Columns of an array; raise an error if it has another number of columns."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != n_columns or not len(table):
        raise InvalidDataError(f"`{name}` must have shape (n, {n_columns}), got {table.shape}.")
    return table.T


DISTRICTS = ("Harbour", "Old Town", "Hillside", "Airport", "Riverside", "Mills", "Park", "Campus")
VEHICLES = ("bike", "scooter", "car", "van")
WEATHER = ("dry", "rain", "snow")


def make_deliveries(n_rows: int = 1000, seed: int = 0) -> Any:
    """Simulate deliveries as a pandas data frame; the target is ``minutes``.

    Mean and variance of the target depend on distance, vehicle, weather and hour. One value in
    twelve of weight and weather is missing.

    Examples
    --------
    >>> frame = make_deliveries(100)
    >>> frame.shape, list(frame.columns)[-1], bool(frame["weather"].isna().any())
    ((100, 7), 'minutes', True)
    """
    rng = np.random.default_rng(seed)
    minute = np.sort(rng.integers(0, 180 * 14 * 60, n_rows))  # half a year, from 8 to 22 o'clock
    day, time = np.divmod(minute, 14 * 60)
    hour = 8 + time / 60
    district, vehicle = rng.integers(0, len(DISTRICTS), n_rows), rng.integers(0, 4, n_rows)
    weather = rng.choice(3, n_rows, p=[0.6, 0.3, 0.1])
    distance = np.round(rng.gamma(3.0, 0.8, n_rows) + 0.5 * (district == 3), 2)
    weight = np.round(rng.gamma(2.0, 2.0, n_rows), 1)
    speed = np.array([15.0, 25.0, 30.0, 26.0])[vehicle]
    rush = np.exp(-((hour - 8.5) ** 2) / 2) + 1.2 * np.exp(-((hour - 17.5) ** 2) / 3)
    slow = 1 + rush * (vehicle >= 2) + np.array([0.0, 0.25, 0.8])[weather]
    spread = 0.08 + 0.12 * (weather == 2) + 0.1 * rush * (vehicle >= 2) + 0.1 * (vehicle == 0)
    stairs = np.array([4.0, 8.0, 6.0, 3.0, 4.0, 5.0, 4.0, 7.0])[district] + 0.4 * weight
    minutes = (60 * distance / speed * slow + stairs) * np.exp(spread * rng.normal(size=n_rows))
    start = pd.Timestamp("2025-03-01 08:00")
    ordered: Any = start + pd.to_timedelta(day * 24 * 60 + time, unit="min")
    frame = pd.DataFrame(
        {
            "ordered": ordered.strftime("%Y-%m-%d %H:%M"),
            "district": np.array(DISTRICTS)[district],
            "vehicle": np.array(VEHICLES)[vehicle],
            "weather": np.array(WEATHER)[weather],
            "distance_km": distance,
            "weight_kg": weight,
            "minutes": np.round(minutes, 1),
        }
    )
    for column in ("weather", "weight_kg"):
        frame.loc[rng.random(n_rows) < 1 / 12, column] = None
    return frame
