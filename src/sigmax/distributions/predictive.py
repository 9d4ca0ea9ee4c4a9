"""Predictions for users: NumPy in, NumPy float64 out, without JAX."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, final

import numpy as np
from scipy import special

from sigmax.distributions.base import AbstractDistribution
from sigmax.distributions.bounded import Bounded
from sigmax.distributions.mixture import Mixture
from sigmax.distributions.stacked import PowerTransform, Stacked, Units
from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.random import draw_seed
from sigmax.settings import check_count, check_number
from sigmax.values import tree_map

Ends = Callable[[np.ndarray], np.ndarray]

OF_ALL_ROWS = (PowerTransform, Units)
"""Parts of a density that all rows share."""

SMALLEST_LEVEL = 1e-12
"""Probability of the quantiles that are drawn, at least, on either side."""

MOMENTS = ("mean", "variance", "std", "epistemic_variance", "aleatoric_variance")

ROWS_AT_ONCE = 1024
"""Rows that a stack is evaluated for at once: they fit into a cache."""


@final
class Predictive:
    """Predictive distribution of every row (and output), in the units of y.

    Everything is computed in float64, regardless of the settings of JAX. Rows are padded to a power
    of two, and large sets are divided into blocks, so scoring another number of rows compiles
    nothing and needs no more memory. Methods with an argument ``y`` take one number per
    distribution, or one number for all of them.

    Parameters
    ----------
    dist
        The density, with the rows on the first axis of its batch shape.
    ends
        Function that moves the ends of `interval` to observed values, if these repeat.
    correlation
        Correlation (p, p) of the normal scores of the outputs of a row, a Gaussian copula: `sample`
        draws them together. None for independent outputs.

    Examples
    --------
    >>> from sigmax.distributions import Normal
    >>> dist = Predictive(Normal(np.array([0.0, 10.0]), np.array([1.0, 2.0])))
    >>> dist
    Predictive(Normal, shape=(2,))
    >>> dist.interval(0.9).round(2)
    array([[-1.64,  1.64],
           [ 6.71, 13.29]])
    >>> dist.quantile([0.1, 0.5]).shape, dist[1:].mean
    ((2, 2), array([10.]))
    """

    def __init__(
        self,
        dist: AbstractDistribution,
        ends: Ends | None = None,
        correlation: np.ndarray | None = None,
    ):
        if not dist.shape or not dist.shape[0]:
            raise InvalidDataError(f"`dist` must have at least one row, got shape {dist.shape}.")
        self.dist = tree_map(lambda leaf: np.asarray(leaf, np.float64), dist)
        self.ends, self.correlation = ends, correlation

    def __repr__(self) -> str:
        name = type(self.dist).__name__
        if isinstance(self.dist, Stacked):
            name += f" of {self.dist.n_members} experts"
        elif isinstance(self.dist, Mixture | Bounded):
            name += f" of {self.dist.n_members} {type(self.dist.components).__name__}"
        return f"Predictive({name}, shape={self.shape})"

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows) -> "Predictive":
        """The densities of some rows: a slice, a mask or a list of indices."""
        if not isinstance(rows, slice) and np.ndim(rows) != 1:
            rule = "a slice, a mask or a list of indices"
            raise InvalidArgumentError(f"`rows` must be {rule}, got {rows!r}.")
        dist = self._take(np.arange(len(self))[rows], self.dist)
        return Predictive(dist, self.ends, self.correlation)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,), or (n, p) for p outputs."""
        return self.dist.shape

    @property
    def mean(self) -> np.ndarray:
        """Mean."""
        return self._compute("mean")

    @property
    def variance(self) -> np.ndarray:
        """Total variance, aleatoric and epistemic; infinite if it does not exist."""
        return self._compute("variance")

    @property
    def std(self) -> np.ndarray:
        """Standard deviation."""
        return self._compute("std")

    @property
    def aleatoric_variance(self) -> np.ndarray:
        """Variance of the noise, which more rows would not reduce."""
        return self._compute("aleatoric_variance")

    @property
    def epistemic_variance(self) -> np.ndarray:
        """Variance due to lack of data: disagreement of the members, and uncertainty of each."""
        return self._compute("epistemic_variance")

    def log_prob(self, y) -> np.ndarray:
        """Compute the logarithm of the density at ``y``.

        Parameters
        ----------
        y : number or array of the prediction's shape

        Returns
        -------
        array of the prediction's shape
            Higher is better.

        Examples
        --------
        >>> from sigmax.distributions import Normal
        >>> Predictive(Normal(np.zeros(2), np.ones(2))).log_prob([0.0, 1.0]).round(2)
        array([-0.92, -1.42])
        """
        return self._compute("log_prob", self._check_y(y))

    def cdf(self, y) -> np.ndarray:
        """Compute the probability of at most ``y``.

        Parameters
        ----------
        y : number or array of the prediction's shape

        Returns
        -------
        array of the prediction's shape

        Examples
        --------
        >>> from sigmax.distributions import Normal
        >>> Predictive(Normal(np.array([0.0, 10.0]), np.array([1.0, 2.0]))).cdf(10.0)
        array([1. , 0.5])
        """
        return self._compute("cdf", self._check_y(y))

    def sf(self, y) -> np.ndarray:
        """Compute the probability of more than ``y``: the survival function.

        Parameters
        ----------
        y : number or array of the prediction's shape

        Returns
        -------
        array of the prediction's shape

        Examples
        --------
        >>> from sigmax.distributions import Normal
        >>> Predictive(Normal(np.array([0.0, 10.0]), np.array([1.0, 2.0]))).sf(10.0)
        array([0. , 0.5])
        """
        return 1 - self.cdf(y)

    def probability_of(self, y) -> np.ndarray:
        """Compute the probability of exactly ``y``, which is 0 for a continuous density.

        A stack gives a probability to repeated values of the target, such as counts and many zeros;
        other distributions only to the bounds of their support.

        Parameters
        ----------
        y : number or array of the prediction's shape

        Returns
        -------
        array of the prediction's shape

        Examples
        --------
        >>> from sigmax.distributions import Bounded, Normal
        >>> dist = Mixture(Normal(np.array([[0.0, 10.0]]), np.ones((1, 2))))
        >>> Predictive(Bounded.create(dist, 0.0, np.inf)).probability_of(0.0).round(3)
        array([0.5, 0. ])
        """
        y = self._check_y(y)
        below = np.minimum(np.nextafter(y, -np.inf), y - np.finfo(float).tiny)
        return np.maximum(self.cdf(y) - self.cdf(below), 0.0)

    def crps(self, y) -> np.ndarray:
        """Compute the continuous ranked probability score at ``y``.

        Parameters
        ----------
        y : number or array of the prediction's shape

        Returns
        -------
        array of the prediction's shape
            In the units of y; lower is better.

        Examples
        --------
        >>> from sigmax.distributions import Normal
        >>> Predictive(Normal(np.zeros(2), np.array([1.0, 0.1]))).crps(0.0).round(3)
        array([0.234, 0.023])
        """
        return self._compute("crps", self._check_y(y))

    def absolute_error(self, y) -> np.ndarray:
        """Compute E|X − y|, the expected distance of a draw from ``y``.

        Parameters
        ----------
        y : number or array of the prediction's shape

        Returns
        -------
        array of the prediction's shape

        Examples
        --------
        >>> from sigmax.distributions import Normal
        >>> Predictive(Normal(np.zeros(1), np.ones(1))).absolute_error(0.0).round(3)
        array([0.798])
        """
        return self._compute("absolute_error", self._check_y(y))

    def inverse_cdf(self, q) -> np.ndarray:
        """Compute the value at which the cdf is ``q``, with one level per distribution.

        Parameters
        ----------
        q : array of the prediction's shape
            Levels between 0 and 1.

        Returns
        -------
        array of the prediction's shape

        Examples
        --------
        >>> from sigmax.distributions import Normal
        >>> dist = Predictive(Normal(np.array([0.0, 10.0]), np.array([1.0, 2.0])))
        >>> dist.inverse_cdf([0.5, 0.9]).round(2)
        array([ 0.  , 12.56])
        """
        levels = np.asarray(q, np.float64)
        if levels.shape != self.shape or not np.all((levels > 0) & (levels < 1)):
            rule = f"levels above 0 and below 1, of the prediction's shape {self.shape}"
            raise InvalidArgumentError(f"`q` must be {rule}, got shape {levels.shape}.")
        return self._compute("quantile", levels)

    def quantile(self, q) -> np.ndarray:
        """Compute quantiles, with the same levels for all distributions.

        Parameters
        ----------
        q : float or sequence of float
            Levels between 0 and 1.

        Returns
        -------
        array of the prediction's shape
            For a sequence of levels, with an additional last axis.

        Examples
        --------
        >>> from sigmax.distributions import Normal
        >>> dist = Predictive(Normal(np.array([0.0, 10.0]), np.array([1.0, 2.0])))
        >>> dist.quantile([0.5, 0.9]).round(2)
        array([[ 0.  ,  1.28],
               [10.  , 12.56]])
        """
        if np.ndim(q) == 1:
            return np.stack([self.quantile(level) for level in q], axis=-1)
        level = check_number("q", q, above=0.0, below=1.0)
        return self._compute("quantile", np.full(self.shape, level))

    def interval(self, coverage: float = 0.9) -> np.ndarray:
        """Compute the central interval of each distribution.

        If values of the target repeat, as counts and rounded numbers do, the ends are moved to
        observed values.

        Parameters
        ----------
        coverage : float
            Probability of the interval.

        Returns
        -------
        array of shape (n, 2), or (n, p, 2) for p outputs
            The last axis has the lower and the upper end.

        Examples
        --------
        >>> from sigmax.distributions import Normal
        >>> Predictive(Normal(np.zeros(1), np.ones(1))).interval(0.9).round(2)
        array([[-1.64,  1.64]])
        """
        coverage = check_number("coverage", coverage, above=0.0, below=1.0)
        return self.to_values(self.quantile([(1 - coverage) / 2, (1 + coverage) / 2]))

    def to_values(self, bounds: np.ndarray) -> np.ndarray:
        """Move the ends of intervals to observed values of the target, if these repeat.

        Parameters
        ----------
        bounds : array of shape (n, 2) or (n, p, 2)

        Returns
        -------
        array of the same shape
        """
        return bounds if self.ends is None else self.ends(bounds)

    def sample(self, n: int, random_state=None) -> np.ndarray:
        """Draw independent samples of every row.

        The outputs of a row are drawn together if the prediction has a ``correlation``.

        Parameters
        ----------
        n : int
            Number of draws.
        random_state : int, RandomState, Generator or None

        Returns
        -------
        array of shape (n, rows) or (n, rows, p)

        Examples
        --------
        >>> from sigmax.distributions import Normal
        >>> Predictive(Normal(np.zeros(2), np.ones(2))).sample(1000, random_state=0).shape
        (1000, 2)
        """
        n, seed = check_count("n", n), draw_seed(random_state)
        if self.correlation is not None:
            scores = np.random.default_rng(seed).standard_normal((n, *self.shape))
            levels = special.ndtr(scores @ np.linalg.cholesky(self.correlation).T)
            levels = np.clip(levels, SMALLEST_LEVEL, 1 - SMALLEST_LEVEL)
            if isinstance(self.dist, Stacked):
                blocks = self._blocks((self.dist, levels))
                return np.concatenate([dist.quantiles(own) for dist, own in blocks], axis=1)
            return np.stack([self._compute("quantile", draw) for draw in levels])
        if isinstance(self.dist, Stacked):
            return self.dist.sample(np.random.default_rng(seed), n)
        from sigmax.distributions.evaluation import sample  # compiled by JAX

        return sample(self.dist, n, seed)

    def _compute(self, name: str, *arguments: np.ndarray) -> np.ndarray:
        """A property or a method of the density, for arguments of its shape."""
        if isinstance(self.dist, Stacked):
            if name in MOMENTS:
                return self._moments[name].copy()
            parts = []
            for dist, *own in self._blocks((self.dist, *arguments)):
                found = getattr(dist, name)
                parts.append(found(*own) if own else found)
            return np.concatenate(parts)
        from sigmax.distributions.evaluation import evaluate  # compiled by JAX

        return evaluate(self.dist, name, *arguments)

    @cached_property
    def _moments(self) -> dict[str, np.ndarray]:
        """Mean and parts of the variance of a stack, which are computed together."""
        parts = list(self._blocks(self.dist))
        return {name: np.concatenate([getattr(one, name) for one in parts]) for name in MOMENTS}

    def _blocks(self, tree: Any) -> Iterator[Any]:
        """Blocks of rows; a single one is the tree itself, which keeps what it has computed."""
        if len(self) <= ROWS_AT_ONCE:
            yield tree
            return
        for first in range(0, len(self), ROWS_AT_ONCE):
            yield self._take(np.arange(first, min(first + ROWS_AT_ONCE, len(self))), tree)

    def _take(self, rows: np.ndarray, tree: Any) -> Any:
        n_axes = len(self.shape)  # of a leaf's axes, members may come first

        def take(leaf: Any) -> Any:
            is_shared = isinstance(leaf, OF_ALL_ROWS)
            return leaf if is_shared else leaf.take(rows, axis=leaf.ndim - n_axes)

        return tree_map(take, tree, leaves=OF_ALL_ROWS)

    def _check_y(self, y) -> np.ndarray:
        try:
            y = np.asarray(y, np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidDataError(f"`y` must be numbers: {error}.") from None
        if y.shape not in ((), self.shape):
            rule = f"one number or of the prediction's shape {self.shape}"
            raise InvalidDataError(f"`y` must be {rule}, got shape {y.shape}.")
        if not np.isfinite(y).all():
            n_bad = np.sum(~np.isfinite(y))
            raise InvalidDataError(f"`y` must be finite, got {n_bad} NaN or infinite values.")
        return np.broadcast_to(y, self.shape)
