"""The extrapolation gate of the paper (EX): 0 on the data, 1 far from them.

`ExtrapolationGate` is the function, `create_gate` fits one to data;
`sigmax.distributions.blend_factor` is what it does to a density.

Distances see every coordinate multiplied by the relevance of its column for the target.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias, final

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils import gen_batches

from sigmax.features import Features
from sigmax.random import RandomKey, named_generator
from sigmax.values import AbstractValue, AnyArray, is_jax, jax, lax, make_value, namespace

OFFSET = 6.9077
"""The paper's a / gamma: sigmoid(-6.9077) = 0.001."""

SMALLEST_MARGIN = 0.15
"""In standard deviations of a feature."""

ON_DATA = 0.98
"""Share of new rows within the margins of `ExtrapolationGate.shut_on_offsets`. Beyond them it takes
a third of the way to half open until the gate shows: more than 99 of 100 rows are on the data."""

NO_MARGIN = 1e30
"""Beyond all data; an infinite one would not survive a step of an optimiser."""

NO_CENTER = -1
"""``own_center`` of a row that is no inducing point."""

Points: TypeAlias = Float[AnyArray, "rows features"]
OwnCenters: TypeAlias = Int[AnyArray, " rows"]
"""Inducing point of every row, by number."""
Distances: TypeAlias = Float[AnyArray, " rows"]


@final
class ExtrapolationGate(AbstractValue):
    r"""Opening at a distance: $\tilde\nu(\delta) = (\nu(\delta) - \nu(0)) / (1 - \nu(0))$.

    $\delta$ is the Euclidean distance to the nearest inducing point, less a margin within which a
    row still counts as on the data, and $\nu(\delta) = \text{sigmoid}(\delta/\gamma - 6.9077)$.
    Subtracting $\nu(0) = 0.001$ takes away the floor that it would put under every variance. The
    paper has no margin; without one, a gate wide enough to open anywhere is never quite shut
    between the training rows, where a thousandth of Var(y) can exceed the noise.

    Euclidean distances grow with the number of features, and a step along one of many hardly
    changes them. So the gate also opens by the largest offset from that inducing point along any
    one axis, with a margin and a scale of its own: by the larger of the two.
    """

    inducing_points: Float[AnyArray, "centers features"]
    """In coordinates times their relevance."""
    relevance: Float[AnyArray, " features"]
    """Relevance of every coordinate, from 0 to 1: distances see coordinates multiplied by it."""
    log_scale: Float[AnyArray, ""]
    margin: Float[AnyArray, ""]
    axis_scale: Float[AnyArray, ""]
    axis_margin: Float[AnyArray, ""]
    """Infinite where single axes do not count, as in the paper."""
    is_used: Bool[AnyArray, " centers"]

    @classmethod
    def create(
        cls,
        centers: np.ndarray,
        n_slots: int,
        *,
        scale: float,
        margin: float = 0.0,
        relevance: np.ndarray | None = None,
    ) -> "ExtrapolationGate":
        """A gate around ``centers``, padded to ``n_slots`` so that its shape does not follow N.

        The centres are in coordinates times their ``relevance``, which is 1 by default.
        """
        padding = n_slots - len(centers)
        relevance = np.ones(centers.shape[1]) if relevance is None else relevance
        return cls(
            np.pad(centers, ((0, padding), (0, 0))).astype(np.float32),
            np.asarray(relevance, np.float32),
            np.asarray(math.log(scale), np.float32),
            np.asarray(margin, np.float32),
            np.asarray(1.0, np.float32),
            np.asarray(NO_MARGIN, np.float32),
            np.arange(n_slots) < len(centers),
        )

    @property
    def scale(self) -> Float[AnyArray, ""]:
        """The paper's gamma."""
        return namespace(self.log_scale).exp(self.log_scale)

    def nearest(self, x: Points, own_center: OwnCenters) -> OwnCenters:
        """The nearest inducing point other than the row's own.

        On small data every training row is an inducing point; with its own one counted, no
        training row would be any distance from the data and nothing could be learned from them.
        """
        x, centers = x * fixed(self.relevance)[None], self.inducing_points
        xp = namespace(x, centers)
        squared = xp.sum(x**2, axis=1)[:, None] - 2 * x @ centers.T
        squared = squared + xp.sum(centers**2, axis=1)[None]
        slots = xp.arange(len(centers))
        excluded = ~self.is_used[None] | (slots[None] == own_center[:, None])
        squared = fixed(xp.where(excluded, xp.inf, squared))
        # No comparison with the minimum, of which a fused copy may be rounded differently.
        return xp.argmin(squared, axis=1)

    def offset(self, x: Points, own_center: OwnCenters) -> Points:
        """Position of each row relative to the nearest inducing point other than its own.

        In coordinates times their relevance.
        """
        centers = namespace(x).asarray(self.inducing_points)
        return x * fixed(self.relevance)[None] - centers[self.nearest(x, own_center)]

    def distance(self, x: Points, own_center: OwnCenters) -> Distances:
        """Distance to the nearest inducing point other than the row's own."""
        return length(self.offset(x, own_center))

    def __call__(self, x: Points, own_center: OwnCenters) -> Distances:
        at_zero = 1 / (1 + math.exp(OFFSET))
        offset = self.offset(x, own_center)
        xp = namespace(offset)
        beyond = xp.maximum(length(offset) - fixed(self.margin), 0) / self.scale
        margin, scale = fixed(self.axis_margin), fixed(self.axis_scale)
        along_axis = (xp.max(xp.abs(offset), axis=1) - margin) / scale
        farther = xp.maximum(beyond, along_axis) - OFFSET
        opening = expit(farther) if xp is np else jax.nn.sigmoid(farther)
        return xp.clip((opening - at_zero) / (1 - at_zero), 0, 1)  # or it may round to above 1

    def shut_on(
        self, distances: Distances, on_data: float | Float[AnyArray, ""] = 0.99
    ) -> "ExtrapolationGate":
        """The gate that is shut on the data, and open soon beyond them.

        ``distances`` are those of rows that are no inducing points themselves, nan for padding.
        Their quantile ``on_data`` is how far a new row may well lie from the others: the margin. At
        twice that distance the gate is half open, at three times it is open. However dense the
        data, the margin is never below `SMALLEST_MARGIN`, or the gate would slam where a feature
        has hardly moved.
        """
        xp = namespace(distances)
        margin = xp.asarray(xp.maximum(xp.nanquantile(distances, on_data), SMALLEST_MARGIN))
        return replace(self, log_scale=xp.asarray(xp.log(margin / OFFSET)), margin=margin)

    def widened(self, factor: float) -> "ExtrapolationGate":
        """The gate with all margins and widths multiplied by a factor."""
        names = ("margin", "axis_scale", "axis_margin")
        wider = {name: np.asarray(factor * getattr(self, name)) for name in names}
        return replace(self, log_scale=np.asarray(self.log_scale + math.log(factor)), **wider)

    def shut_on_offsets(self, offsets: Points) -> "ExtrapolationGate":
        """The gate that is shut on the data, and open soon beyond them in any direction.

        ``offsets`` are those of rows that are no inducing points themselves, nan for padding. Along
        an axis, the margin is a quantile of the largest offsets of these rows. The more features,
        the less they differ from row to row: the gate is half open as far beyond the margin as the
        median is below that quantile. Few rows tell it badly, worst where distances are steps of a
        design: the margins are its upper limit, a standard error of the share above it.
        """
        xp = namespace(offsets)
        is_row = ~xp.isnan(offsets[:, 0])
        error = xp.sqrt(ON_DATA * (1 - ON_DATA) / xp.sum(is_row, dtype=offsets.dtype))
        share = xp.minimum(ON_DATA + error, 1)
        largest = xp.max(xp.abs(offsets), axis=1)  # of nan, a compiled maximum may be -inf
        largest = xp.where(is_row, largest, xp.nan)
        margin = xp.maximum(xp.nanquantile(largest, share), SMALLEST_MARGIN)
        levels = xp.asarray([0.5, ON_DATA], offsets.dtype)
        median, usual = xp.nanquantile(largest, levels)
        scale = xp.maximum(usual - median, SMALLEST_MARGIN) / OFFSET
        by_distance = self.shut_on(length(offsets), share)
        return replace(by_distance, axis_scale=xp.asarray(scale), axis_margin=xp.asarray(margin))


def fixed(values: AnyArray) -> AnyArray:
    """Values through which no gradient flows."""
    return lax.stop_gradient(values) if is_jax(values) else values


def length(offset: Points) -> Distances:
    """The Euclidean length, whose gradient is finite at 0."""
    xp = namespace(offset)
    return xp.sqrt(xp.sum(offset**2, axis=1) + 1e-12)


MOST_ROWS_FOR_MARGINS = 8192
"""Rows that the margins of a gate follow from, at most about twice as many."""

SAMPLED = 32
"""Rows per inducing point that the centres are found by."""


def create_gate(
    X: np.ndarray,
    n_inducing: int,
    key: RandomKey,
    *,
    scale: float | None = None,
    relevance: np.ndarray | None = None,
) -> tuple[ExtrapolationGate, np.ndarray]:
    """A gate around the data, and for every row the inducing point that it is itself, if any.

    Without a ``scale`` the gate is nearly shut on the training rows, each taken as if it were new.
    Distances see coordinates times their ``relevance``, which is 1 by default.
    """
    X = np.asarray(X, np.float32)
    relevance = np.ones(X.shape[1]) if relevance is None else relevance
    relevance = np.asarray(relevance, np.float32)
    centers, own_center = inducing_points(X * relevance, n_inducing, key)
    gate = ExtrapolationGate.create(centers, n_inducing, scale=scale or 1.0, relevance=relevance)
    if scale is not None:
        return gate, own_center
    some = slice(None, None, max(1, len(X) // MOST_ROWS_FOR_MARGINS))
    offsets = offsets_of_new_rows(gate, X[some], own_center[some], len(X))
    return gate.shut_on_offsets(offsets), own_center


def with_centers(
    gates: ExtrapolationGate, X: Float[np.ndarray, "rows features"], n_inducing: int
) -> ExtrapolationGate:
    """The gates of all members, which are alike, with rows that are on the data from now on.

    Rows become inducing points, one after the other: all of them up to ``n_inducing``, and then
    those at which the gate is not shut. So it makes no difference whether rows come together.
    """
    n_slots, n_known = gates.is_used.shape[1], int(np.sum(gates.is_used[0]))
    margin, axis_margin = (float(part[0]) for part in (gates.margin, gates.axis_margin))
    centers = np.zeros((n_known + len(X), X.shape[1]))
    centers[:n_known] = np.asarray(gates.inducing_points)[0, :n_known]
    n_used = n_known
    for x in np.asarray(X * np.asarray(gates.relevance)[0], np.float64):
        offsets = x - centers[:n_used]
        squared = np.sum(offsets**2, axis=1)
        nearest = np.argmin(squared)
        is_shut = squared[nearest] <= margin**2 and np.abs(offsets[nearest]).max() <= axis_margin
        if squared[nearest] and not (is_shut and n_used >= n_inducing):
            centers[n_used] = x
            n_used += 1
    if n_used == n_known:
        return gates
    if n_used > n_slots:
        n_slots = max(n_slots, 1 << (n_used - 1).bit_length())
    filled = np.pad(centers[:n_used].astype(np.float32), ((0, n_slots - n_used), (0, 0)))
    n_members = len(gates.is_used)
    is_used = np.tile(np.arange(n_slots) < n_used, (n_members, 1))
    more = {"inducing_points": np.stack([filled] * n_members), "is_used": is_used}
    return make_value(ExtrapolationGate, vars(gates) | more)  # all have the members' axis


def offsets_of_new_rows(
    gate: ExtrapolationGate, x: Points, own_center: OwnCenters, n_rows: int
) -> Points:
    """Offsets from the nearest inducing point, for some of ``n_rows`` rows as if they were new.

    A mean of k rows lies nearer to these than to new ones: by a variance of 1 - 1/k instead of
    1 + 1/k. An inducing point that is one row alone says nothing about it.
    """
    nearest = in_blocks(gate.nearest, x, own_center)
    k = np.bincount(nearest)[nearest] * n_rows / len(x)
    is_alone = k < 1.5
    is_mean = own_center == NO_CENTER
    offsets = in_blocks(gate.offset, x, np.where(is_mean & is_alone, nearest, own_center))
    stretch = np.sqrt((k + 1) / np.maximum(k - 1, 0.5))
    return offsets * np.where(is_mean & ~is_alone, stretch, 1.0)[:, None].astype(np.float32)


def in_blocks(function: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
    """Values of all rows, computed in blocks of them."""
    blocks = gen_batches(len(arrays[0]), SAMPLE_BLOCK)
    return np.concatenate([function(*(array[rows] for array in arrays)) for rows in blocks])


def inducing_points(
    X: np.ndarray, n_inducing: int, key: RandomKey
) -> tuple[np.ndarray, np.ndarray]:
    """Centres of the data, and for every row the centre that it is itself, if any.

    All rows where there are few, else the centres of k-means on a sample.
    """
    if len(X) <= n_inducing:
        return X, np.arange(len(X))
    rng = named_generator(key, "inducing points")
    sample = X[rng.choice(len(X), min(len(X), SAMPLED * n_inducing), replace=False)]
    centers = k_means_centers(sample, n_inducing, int(rng.integers(2**31))).astype(np.float32)
    return centers, np.full(len(X), NO_CENTER)


N_ROUNDS = 8
"""In which the first centres are drawn."""

SAMPLE_BLOCK = 4096

N_STEPS = 10
"""Steps of Lloyd's algorithm; the tenth lowers the mean squared distance by less than 1 %."""

Sample = Float[np.ndarray, "rows features"]
Centers = Float[np.ndarray, "centers features"]


def k_means_centers(sample: Sample, n_centers: int, seed: int) -> Centers:
    """The centres of k-means on a sample of rows, by Lloyd's algorithm in single precision.

    The first ones are drawn in rounds, with a probability that grows with the squared distance to
    those of earlier rounds (Bahmani et al. 2012): also a few rows far from all others get a centre.
    """
    rng = np.random.default_rng(seed)
    middle = sample.mean(axis=0)
    rows = np.ascontiguousarray(sample - middle, dtype=np.float32)
    centers = first_centers(rows, n_centers, rng)
    for _ in range(N_STEPS):
        nearest, _ = nearest_centers(rows, centers)
        counts = np.bincount(nearest, minlength=n_centers)
        filled = np.flatnonzero(counts)
        starts = np.cumsum(counts[filled]) - counts[filled]
        sums = np.add.reduceat(rows[np.argsort(nearest, kind="stable")], starts, axis=0)
        centers[filled] = sums / counts[filled][:, None]
    return centers + middle


def first_centers(rows: Sample, n_centers: int, rng: np.random.Generator) -> Centers:
    """Rows to begin from, far apart from each other."""
    squared, parts = np.full(len(rows), np.inf), []
    for size in np.diff(np.linspace(0, n_centers, N_ROUNDS + 1).astype(int)):
        weight = np.maximum(squared, 1e-12 * squared.max() + 1e-30) if parts else np.ones(len(rows))
        chosen = rng.choice(len(rows), size, replace=False, p=weight / weight.sum())
        parts.append(rows[chosen])
        squared = np.minimum(squared, nearest_centers(rows, parts[-1])[1])
    return np.concatenate(parts)


def nearest_centers(
    rows: Sample, centers: Centers
) -> tuple[Int[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """The nearest centre of every row, and its squared distance."""
    lengths, factors = np.einsum("ij,ij->i", centers, centers), -2 * centers.T
    nearest, squared = np.empty(len(rows), int), np.empty(len(rows))
    buffer = np.empty((min(len(rows), SAMPLE_BLOCK), len(centers)), np.float32)
    for block in gen_batches(len(rows), SAMPLE_BLOCK):
        products = np.matmul(rows[block], factors, out=buffer[: len(rows[block])])
        products += lengths
        found = nearest[block] = np.argmin(products, axis=1)
        own = np.einsum("ij,ij->i", rows[block], rows[block])
        squared[block] = own + np.take_along_axis(products, found[:, None], axis=1)[:, 0]
    return nearest, np.maximum(squared, 0)


MOST_ROWS = 1000
"""Rows that trees are grown on, at most."""

N_TREES = 25

PRIOR_ROWS = 10
"""Number of rows that the assumption of equally relevant columns counts for."""


def trees(seed: int, n_columns: int, **settings: Any) -> Any:
    """Trees that try enough columns in every split to find the relevant ones."""
    from sklearn.ensemble import ExtraTreesRegressor  # here: the import takes long

    share = 1.0 if n_columns <= 20 else max(0.1, 20 / n_columns)
    return ExtraTreesRegressor(
        N_TREES, min_samples_leaf=3, max_features=share, random_state=seed, **settings
    )


def gate_relevance(
    features: Features, coordinates: NDArray[np.floating], y: NDArray[np.floating], key: RandomKey
) -> NDArray[np.float64]:
    """Relevance of every coordinate to the gate; 0 for times, which go on."""
    column_of, trends = features.column_of(), features.trends()
    found = column_relevance(coordinates, y, column_of, named_generator(key, "relevance"))
    found[trends] = 0.0
    return found


def column_relevance(
    coordinates: NDArray[np.floating],
    y: NDArray[np.floating],
    column_of: NDArray[np.intp],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Relevance of every coordinate for the target, from 0 to 1: that of its column.

    It is the square root of the column's importance in a forest, divided by that of the most
    important column. The importance of a shuffled copy of the column, which is due to chance, is
    subtracted. The fewer the rows, the nearer to 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 3))
    >>> y = X[:, :1] + 0.1 * rng.normal(size=(500, 1))
    >>> column_relevance(X, y, np.arange(3), rng).round(1)
    array([1. , 0.1, 0.1])
    """
    n_columns = int(column_of.max(initial=-1)) + 1
    if n_columns < 2 or len(y) < 4 or not np.ptp(y):
        return np.ones(coordinates.shape[1])
    rows = rng.permutation(len(y))[:MOST_ROWS]
    X, y = np.asarray(coordinates)[rows], np.asarray(y)[rows]
    both = np.concatenate([X, X[rng.permutation(len(X))]], axis=1)
    forest = trees(int(rng.integers(2**31)), both.shape[1]).fit(both, y.squeeze())
    true, chance = (
        np.bincount(column_of, part, minlength=n_columns)
        for part in np.split(forest.feature_importances_, 2)
    )
    excess = np.maximum(true - np.maximum(chance, chance.mean()), 0.0)
    share = excess / excess.max() if excess.max() > 0 else np.ones(n_columns)
    n = len(y)
    return np.sqrt((n * share + PRIOR_ROWS) / (n + PRIOR_ROWS))[column_of]
