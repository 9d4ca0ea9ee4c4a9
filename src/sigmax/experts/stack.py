r"""The stack: several experts, weighted by how well they predict rows they have not seen.

$$p(y | x) = (1 - \nu(x)) \sum_k w_k\, p_k(y | x) + \nu(x)\, p_0(y)$$

The weights maximise the held-out log score $\sum_i \log \sum_k w_k p_k^{(-i)}(y_i | x_i)$ with a
weak Dirichlet prior (Yao, Vehtari, Simpson and Gelman 2018), a concave problem that expectation
maximisation solves. $\nu$ is the paper's extrapolation gate (EX), once for all experts: away from
the data, the stack tends to the marginal distribution $p_0$ of the target.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from time import perf_counter
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize, special

from sigmax.calibration import few_rows_factor
from sigmax.distributions import (
    ExpertPart,
    Mixture,
    PowerTransform,
    Predictive,
    Stacked,
    Units,
    bernstein,
)
from sigmax.errors import InvalidArgumentError, TrainingWarning
from sigmax.experts.base import AbstractExpert, AbstractFitted, HeldOut, StoredRows
from sigmax.experts.censored import censored_transform, fit_censored
from sigmax.experts.forest import Forest, largest_weights
from sigmax.experts.linear import Linear, Marginal
from sigmax.experts.matern import MaternProcess
from sigmax.experts.rows import Rows, TrainingRows
from sigmax.extrapolation import (
    NO_CENTER,
    ExtrapolationGate,
    create_gate,
    gate_relevance,
    in_blocks,
    with_centers,
)
from sigmax.features import Standardizer, Support, TargetUnits
from sigmax.inputs import Inputs
from sigmax.metrics import crps_of_cells
from sigmax.random import RandomKey, named_key
from sigmax.settings import Rule, check_number, one_of, setting
from sigmax.tables import Kind
from sigmax.values import AbstractValue, tree_map


def compiled_expert(module: str, presets: str, name: str = "default") -> Any:
    """Expert of a module that needs JAX, and is imported when it is used."""
    return getattr(import_module(f"sigmax.experts.{module}"), presets)[name]


EXPERTS: dict[str, Callable[[], AbstractExpert]] = {
    "marginal": Marginal,
    "linear": Linear,
    "gp": MaternProcess,
    "forest": Forest,
    "local": lambda: replace(
        compiled_expert("local", "LOCAL_PRESETS"), n_members=5, validation_fraction=0.2
    ),
    "combined": lambda: compiled_expert("combined", "PRESETS"),
    "dropout": lambda: compiled_expert("stochastic", "DROPOUT_PRESETS"),
    "bayesian": lambda: compiled_expert("stochastic", "BAYESIAN_PRESETS"),
}
"""Functions that create experts, by name."""

EFFORTS = {
    "quick": ("marginal", "linear", "gp", "forest"),
    "default": ("marginal", "linear", "gp", "forest", "local"),
    "best": ("marginal", "linear", "gp", "forest", "local", "combined"),
}
"""Names of the experts of every effort; the marginal, p_0 of the gate, comes first in all."""

TRANSFORMED = (Linear, MaternProcess, Forest)
"""Experts that are also fitted to the transformed target, where it is skewed."""

PRIOR_COUNT = 0.3
"""Rows that the Dirichlet prior adds to every expert."""

LEAST_WEIGHT = 0.01
"""Weight of an expert below which predictions leave it out, unless it is the marginal."""

LEAST_SCALE = 1e-7
"""Least scale of all components, in standard deviations of the target that they are fitted to."""

HEAVY_TAILED, N_KNOTS = 12.0, 64
"""Kurtosis from which a column is heavy-tailed (3 for a Normal one), and knots of its transform."""

LINEAR, MOST_IN_TAILS = 3.0, 0.05
"""Interquartile ranges from the median where tails begin, and the share of rows in short tails."""

N_INDUCING = 2048
"""Inducing points of the gate: all rows, if there are fewer."""

GATE_FACTORS, LEAST_GAIN = (2.0, 1.0), 1e-3
"""Factors on the width of the gate. Experts that extrapolate well are better than the marginal just
beyond the data: the widest is taken unless another one has so much more held-out log-likelihood."""

MAX_ROUNDS = 500

MOST_WIDENED, FACTOR_ROWS = (-0.5, 0.5), 100
"""Bounds of the logarithm of the factor on scales, and the rows with which it is halved."""

N_TERMS, PRIOR_ROWS = 16, 50
"""Terms of the calibration, and rows that a prior of equal weights adds to them in all."""

N_FOLDS = 5
"""Folds of held-out rows; the weights that predict a row were chosen without its fold."""

MORE_NEIGHBORS = 8
"""Neighbours that every expert names, for each one that is asked of the stack."""

ROWS_OF_CRPS = 256
"""Rows of which the CRPS of every expert is computed, for `leaderboard_`."""


def check_experts(name: str, experts: Any) -> Any:
    """The setting: "auto", or a list of names and experts."""
    if isinstance(experts, str) and experts == "auto":
        return experts
    rule = f'"auto" or a list of experts or of names among {", ".join(EXPERTS)}'
    is_list = isinstance(experts, list | tuple) and len(experts) > 0
    if not is_list or not all(
        isinstance(one, AbstractExpert) or (isinstance(one, str) and one in EXPERTS)
        for one in experts
    ):
        raise InvalidArgumentError(f"`{name}` must be {rule}, got {experts!r}.")
    return tuple(experts)


def check_seconds(name: str, seconds: Any) -> Any:
    """The setting: None, or a number above 0."""
    return None if seconds is None else check_number(name, seconds, above=0.0)


def check_atoms(name: str, atoms: Any) -> Any:
    """The setting: a list of finite numbers."""
    if isinstance(atoms, list | tuple | np.ndarray):
        try:
            found = tuple(map(float, atoms))
        except (TypeError, ValueError):
            found = (math.nan,)
        if all(map(math.isfinite, found)):
            return found
    raise InvalidArgumentError(f"`{name}` must be a list of numbers, got {atoms!r}.")


@final
class InputTransform(AbstractValue):
    """Transforms of skewed and of heavy-tailed columns of numbers.

    A skewed column gets a power transform. One that is heavy-tailed even then, because of outliers
    or of a code such as -999 for missing values, has its tails shortened by `shorten_tails`: linear
    between `N_KNOTS` points, and with slope 1 beyond the training rows. Transformed columns take
    the place of the others in networks, trees and distances; linear models have both.
    """

    column: Int[np.ndarray, " columns"]
    """Positions of the columns among the numbers, those with a power transform first."""
    transform: PowerTransform | None
    knots: Float[np.ndarray, "heavy knots"]
    """Values of heavy-tailed columns."""
    scores: Float[np.ndarray, "heavy knots"]
    """Their transformed values, standardised over the training rows."""

    @classmethod
    def fit(cls, rows: Rows) -> "InputTransform":
        """Transforms of numbers that need one; times are left as they are."""
        n_numbers = len(rows.features.schema.of_kind(Kind.NUMBER))
        numbers = np.asarray(rows.X.numbers, np.float64)[:, :n_numbers]
        found = PowerTransform.fit(numbers) if n_numbers else None
        power = np.ones(n_numbers) if found is None else found.power
        moved = numbers if found is None else found(numbers)
        squared = (moved - moved.mean(axis=0)) ** 2
        is_heavy = np.mean(squared**2, axis=0) > HEAVY_TAILED * np.mean(squared, axis=0) ** 2
        skewed, heavy = np.flatnonzero((power != 1) & ~is_heavy), np.flatnonzero(is_heavy)
        parts = [shorten_tails(numbers[:, j]) for j in heavy]
        knots, scores = np.reshape(parts, (-1, 2, N_KNOTS)).swapaxes(0, 1)
        transform = PowerTransform.fit(numbers[:, skewed])
        return cls(np.append(skewed, heavy), transform, knots, scores)

    def __call__(self, X: Inputs) -> Inputs:
        """Transformed inputs."""
        if not len(self.column):
            return X
        given = np.asarray(X.numbers, np.float64)[:, self.column]
        moved, n_skewed = given.copy(), len(self.column) - len(self.knots)
        if self.transform is not None:
            moved[:, :n_skewed] = self.transform(given[:, :n_skewed])
        for j, (knots, scores) in enumerate(zip(self.knots, self.scores, strict=True), n_skewed):
            beyond = given[:, j] - np.clip(given[:, j], knots[0], knots[-1])
            moved[:, j] = np.interp(given[:, j], knots, scores) + beyond
        parts = [given] if X.extras is None else [np.asarray(X.extras), given]
        position = None if X.position is None else self.moved(X.position, moved)
        numbers, extras = self.moved(X.numbers, moved), np.concatenate(parts, axis=1)
        return Inputs(numbers, extras, X.codes, position, X.beyond, X.n_codes)

    def moved(self, values: Any, columns: np.ndarray) -> np.ndarray:
        """Values with other columns at the positions of the transformed ones."""
        found = np.array(values)
        found[:, self.column] = columns
        return found


def shorten_tails(column: Float[np.ndarray, " rows"]) -> Float[np.ndarray, "2 knots"]:
    """Knots of a transform of a heavy-tailed column, and their standardised values.

    A column whose tails, beyond `LINEAR` interquartile ranges from the median, have at most
    `MOST_IN_TAILS` of the rows stays as it is between them, and its tails become logarithms. Any
    other column gets its normal scores.

    Examples
    --------
    >>> outlier = np.append(np.random.default_rng(0).normal(size=999), 1e9)
    >>> knots, values = shorten_tails(outlier)
    >>> transformed = np.interp([0.0, 1.0, 2.0, 1e9], knots, values)
    >>> bool(transformed[-1] < 25), bool(abs(np.diff(transformed, 2)[0]) < 1e-9)
    (True, True)
    """
    low, middle, high = np.quantile(column, [0.25, 0.5, 0.75])
    spread = high - low
    if np.mean(np.abs(column - middle) > LINEAR * spread) > MOST_IN_TAILS or spread == 0:
        values, count = np.unique(column, return_counts=True)
        scores = special.ndtri((np.cumsum(count) - count / 2) / len(column))
        even = np.linspace(scores[0], scores[-1], N_KNOTS)
        knots = np.interp(even, scores, values)
    else:
        z = (np.array([column.min(), column.max()]) - middle) / spread
        beyond = np.maximum(np.abs(z) - LINEAR, 0)
        first, last = np.sign(z) * (np.abs(z) - beyond + np.log1p(beyond))
        even = np.linspace(first, last, N_KNOTS)
        beyond = np.maximum(np.abs(even) - LINEAR, 0)
        knots = middle + spread * np.sign(even) * (np.abs(even) - beyond + np.expm1(beyond))
    moved = np.interp(column, knots, even)
    return np.stack([knots, (even - moved.mean()) / moved.std()])


@final
class StackedExpert(AbstractValue):
    """One fitted expert of a stack: its target transform, and its weight."""

    name: str
    fitted: AbstractFitted
    transform: PowerTransform | None
    seconds: float
    """Duration of the fit."""
    weight: float = 0.0
    log_likelihood: float = 0.0
    """Mean held-out log-likelihood, in units of the standard deviation of y."""
    crps: float = 0.0
    """Mean held-out CRPS, in the same units."""

    def part(self, mixture: Mixture | Stacked) -> ExpertPart:
        """Prediction of the expert, its scales at least `LEAST_SCALE`, by adding variance."""
        assert isinstance(mixture, Mixture)
        scale = np.asarray(mixture.components.unit, np.float64)
        return ExpertPart(mixture.widen(np.sqrt(1 + (LEAST_SCALE / scale) ** 2)), self.transform)

    def held_out(self, row: Int[np.ndarray, " held_out"]) -> ExpertPart:
        """Prediction of some of the rows that the expert holds out."""
        held_out = self.fitted.held_out
        place = np.searchsorted(held_out.row, row)
        return self.part(
            tree_map(lambda leaf: np.asarray(leaf, np.float64)[:, place], held_out.dist)
        )


@final
class StackFitted(AbstractFitted):
    """Fitted experts and their weights; the prediction is their mixture."""

    experts: tuple[StackedExpert, ...]
    inputs: InputTransform
    extrapolation: ExtrapolationGate
    factor: float
    """Factor on the scales of all components."""
    calibration: Float[np.ndarray, "terms outputs"]
    """Weights of the terms that calibrate the probabilities of the mixture, see `Stacked`."""
    held_out: HeldOut
    """Densities of the stack at the rows that all experts hold out."""

    def gate(self, X: Inputs) -> Float[np.ndarray, " rows"]:
        """Extrapolation gate of every row."""
        rows = np.asarray(self.inputs(X).coordinates, np.float32)
        opening = in_blocks(self.extrapolation, rows, np.full(len(rows), NO_CENTER))
        return opening.astype(np.float64)

    def density(self, X: Inputs) -> Stacked:
        return self.describe(X)[0]

    def describe(self, X: Inputs) -> tuple[Stacked, dict[str, Float[np.ndarray, " rows"]]]:
        """`density`, and the ``gate``."""
        gate = self.gate(X)
        X = self.inputs(X)
        weights = without_small(np.array([one.weight for one in self.experts]))
        used = [(one, own) for one, own in zip(self.experts, weights, strict=True) if own > 0]
        parts = [one.part(one.fitted.density(X)) for one, _ in used]
        dist = stacked(parts, [own for _, own in used], gate).widen(self.factor)
        return calibrated(dist, self.calibration, gate), {"gate": gate}

    def shares(self, gate: Float[np.ndarray, " rows"]) -> Float[np.ndarray, "experts rows"]:
        """Weight of every expert at rows with this ``gate``."""
        return shares([one.weight for one in self.experts], gate)

    def with_rows(self, new: StoredRows) -> "StackFitted":
        """Experts given more rows, where they can follow them, and the gate closed there."""
        experts, new = [], replace(new, X=self.inputs(new.X))
        for one in self.experts:
            y = new.y if one.transform is None else one.transform(new.y)
            fitted = one.fitted.with_rows(replace(new, y=y))
            experts.append(one if fitted is None else replace(one, fitted=fitted))
        batched = tree_map(lambda leaf: leaf[None], self.extrapolation)
        gate = with_centers(batched, np.asarray(new.X.coordinates, np.float32), N_INDUCING)
        gate = tree_map(lambda leaf: np.asarray(leaf[0]), gate)
        return replace(self, experts=tuple(experts), extrapolation=gate)

    def explain_neighbors(
        self, X: Inputs, k: int
    ) -> tuple[Int[np.ndarray, "rows k"], Float[np.ndarray, "rows k"]] | None:
        """Training rows of largest weight over all experts that average over such rows."""
        found, share, X = [], self.shares(self.gate(X)), self.inputs(X)
        for one, own in zip(self.experts, share, strict=True):
            neighbors = one.fitted.explain_neighbors(X, MORE_NEIGHBORS * k)
            if neighbors is not None:
                found.append((neighbors[0], own[:, None] * neighbors[1]))
        if not found:
            return None
        rows, weights = (np.concatenate(part, axis=1) for part in zip(*found, strict=True))
        return largest_weights(rows, weights, k)

    def prediction_shape(self, X: Inputs) -> tuple[int, ...]:
        """Shape of the predictions; raises an error if arrays do not fit each other."""
        X = self.inputs(X)
        shapes = {one.fitted.prediction_shape(X) for one in self.experts}
        if len(shapes) != 1:
            raise ValueError(f"experts predict the shapes {shapes}")
        return shapes.pop()

    def check(self) -> None:
        """Raise ValueError unless the weights are those of a mixture."""
        weight = np.array([one.weight for one in self.experts])
        if not (len(weight) and np.all(weight >= 0) and abs(weight.sum() - 1) < 1e-6):
            raise ValueError("weights of experts must not be negative, and sum to 1")
        if not self.factor > 0:
            raise ValueError("the factor on scales must be above 0")
        if not (np.all(self.calibration >= 0) and np.allclose(self.calibration.sum(axis=0), 1)):
            raise ValueError("weights of the calibration must not be negative, and sum to 1")


def shares(
    weight: Sequence[float] | Float[np.ndarray, "experts rows"], gate: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, "experts rows"]:
    """Weights at every row: the gate moves them to the first expert, the marginal."""
    at_rows = np.reshape(weight, (len(weight), -1)) * (1 - gate)
    at_rows[0] += gate
    return at_rows


def stacked(
    parts: Sequence[ExpertPart],
    weight: Sequence[float] | Float[np.ndarray, "experts rows"],
    gate: Float[np.ndarray, " rows"],
) -> Stacked:
    """Mixture of the parts with the `shares` of their experts."""
    at_rows = shares(weight, gate)
    shape = parts[0].mixture.shape
    log_weight = np.log(np.maximum(at_rows, 1e-300))[:, :, None]
    log_weight = np.broadcast_to(log_weight, (len(parts), *shape)).copy()
    return Stacked(tuple(parts), log_weight, Units.standard(shape[-1]))


def calibrated(
    dist: Stacked,
    calibration: Float[np.ndarray, "terms *rows outputs"],
    gate: Float[np.ndarray, " rows"],
) -> Stacked:
    """Mixture whose probabilities are calibrated, the less the farther the gate is open."""
    n_terms, n_outputs = len(calibration), calibration.shape[-1]
    own = calibration.reshape(n_terms, -1, n_outputs) * (1 - gate[:, None])
    own = own + gate[:, None] / n_terms
    return replace(dist, calibration=own)


def cells(rows: Rows, at: Int[np.ndarray, " held_out"]) -> tuple[np.ndarray, np.ndarray]:
    """Edges of the cells of targets; both are the target itself if it is no repeated value.

    A censored target has its bounds, which may be infinite.
    """
    if rows.bounds is not None:
        low, high = rows.bounds[at].T
        return low[:, None], high[:, None]
    low, high = rows.y[at].copy(), rows.y[at].copy()
    for output, own in enumerate(rows.target.repeated):
        if own is not None:
            scaling, y = rows.target.scaling, rows.y[at, output]
            edges = (own.cells - scaling.mean[output]) / scaling.scale[output]
            edges = edges[np.searchsorted(edges[:, 1], y).clip(0, len(edges) - 1)]
            is_inside = (y >= edges[:, 0]) & (y <= edges[:, 1])
            low[:, output] = np.where(is_inside, edges[:, 0], y)
            high[:, output] = np.where(is_inside, edges[:, 1], y)
    return low, high


def measured(dist: Any, rows: Rows, at: Int[np.ndarray, " held_out"]) -> Any:
    """Prediction of the targets of rows, with their known errors if there are any."""
    return dist if rows.error is None else dist.measured(rows.error[at, None])


def densities(
    dist: ExpertPart | Stacked, rows: Rows, at: Int[np.ndarray, " held_out"]
) -> np.ndarray:
    """Densities of targets; of a repeated value, the probability of its cell over its width.

    That of a censored target without one of the bounds is the probability itself.

    A density could be as large as it likes at a value that repeats; a probability cannot.
    """
    dist = measured(dist, rows, at)
    low, high = cells(rows, at)
    is_cell = high > low
    found = np.exp(dist.log_prob(rows.y[at])) if isinstance(dist, Stacked) else dist.density(low)
    if is_cell.any():
        width = np.where(is_cell & np.isfinite(high - low), high - low, 1.0)
        found = np.where(is_cell, (dist.cdf(high) - dist.cdf(low)) / width, found)
    return np.maximum(found, 1e-300)


def stacking_weights(
    log_density: Float[np.ndarray, "rows experts"],
    weight: Float[np.ndarray, " rows"],
    prior: float = PRIOR_COUNT,
) -> Float[np.ndarray, " experts"]:
    """Weights of experts that maximise the log score of rows, with a weak Dirichlet prior.

    The ``prior`` is a number of rows that is added to every expert.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> log_density = np.column_stack([np.zeros(500), rng.normal(-2.0, 0.1, 500)])
    >>> stacking_weights(log_density, np.ones(500)).round(2)
    array([1., 0.])
    """
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    weight = weight / weight.mean()
    found = np.full(density.shape[1], 1 / density.shape[1])
    for _ in range(MAX_ROUNDS):
        share = found * density
        share *= (weight / share.sum(axis=1))[:, None]
        new = share.sum(axis=0) + prior
        new /= new.sum()
        is_done, found = np.abs(new - found).max() < 1e-6, new
        if is_done:
            break
    return found


def cross_fitted_weights(
    log_density: Float[np.ndarray, "rows experts"],
    weight: Float[np.ndarray, " rows"],
    fold: Int[np.ndarray, " rows"],
    prior: float = PRIOR_COUNT,
) -> tuple[Float[np.ndarray, " experts"], Float[np.ndarray, "experts rows"]]:
    """Weights that all rows choose, and at every row those that the other folds choose.

    The density of a row under the latter is an honest one: it has not chosen its own weights.
    """
    found = stacking_weights(log_density, weight, prior)
    at_rows = np.repeat(found[:, None], len(fold), axis=1)
    for own in np.unique(fold):
        if (others := fold != own).any():
            without = stacking_weights(log_density[others], weight[others], prior)
            at_rows[:, ~others] = without[:, None]
    return found, at_rows


def without_small(
    weight: Float[np.ndarray, " experts *rows"],
) -> Float[np.ndarray, " experts *rows"]:
    """Weights without those below `LEAST_WEIGHT`; the first one, of the marginal, stays.

    Examples
    --------
    >>> without_small(np.array([0.002, 0.008, 0.5, 0.49]))
    array([0.00201613, 0.        , 0.50403226, 0.49395161])
    """
    is_kept = weight >= LEAST_WEIGHT
    is_kept[0] = True
    return weight * is_kept / np.sum(weight * is_kept, axis=0)


@final
@dataclass(frozen=True, kw_only=True)
class Stack(AbstractExpert):
    """Several experts, weighted by the held-out log score."""

    knows_errors = True

    effort: str = setting(
        "default",
        one_of(EFFORTS),
        """"quick" fits experts that take seconds; "default" adds an ensemble of networks, "best"
        more of them.""",
    )
    experts: str | tuple[str | AbstractExpert, ...] = setting(
        "auto",
        Rule('"auto" or list', check_experts),
        """Experts, or names of experts, instead of those of the effort; the marginal distribution
        is always one of them.""",
    )
    time_limit: float | None = setting(
        None,
        Rule("float or None", check_seconds),
        "Seconds after which no expert is begun and networks stop training; None for no limit.",
    )
    atoms: tuple[float, ...] = setting(
        (),
        Rule("list of float", check_atoms),
        "Values of the target with a probability, besides those that are recognised.",
    )

    def target(self, rows: TrainingRows) -> TargetUnits:
        """Units of the target; with known errors, the standardised target without bounds."""
        if rows.is_exact:
            return TargetUnits.fit(rows.y, rows.weight, self.support, self.atoms)
        if self.atoms:
            raise InvalidArgumentError(
                "`atoms` and `y_error` or `censoring` exclude each other: choose one."
            )
        unknowing = [name for name, one in self.named_experts().items() if not one.knows_errors]
        if self.experts != "auto" and unknowing:
            raise InvalidArgumentError(
                "`experts` that take `y_error` or `censoring` into account are linear and gp, not"
                f" {unknowing[0]}."
            )
        if rows.error is None:
            return replace(super().target(rows), limits=None, repeated=(None,))
        if self.support != "auto":
            raise InvalidArgumentError(
                '`support` must be "auto" with `y_error`, as errors lead beyond any bound, got'
                f" {self.support!r}."
            )
        low, high = np.quantile(rows.y, [0.25, 0.75])
        spread = (high - low) / 1.35 or np.std(rows.y) or 1.0  # that of a Normal distribution
        weight = rows.weight / (1 + (rows.error / spread) ** 2)
        found = Standardizer.fit(rows.y, weight, constant_scale=1e-6)
        scale = np.maximum(found.scale, 0.01 * np.median(rows.error))  # of a constant target
        scaling = Standardizer(found.mean, scale)
        return TargetUnits(scaling, None, (None,), (Support(),))

    def named_experts(self) -> dict[str, AbstractExpert]:
        """Experts to fit, by name, the marginal first."""
        chosen = EFFORTS[self.effort] if self.experts == "auto" else ("marginal", *self.experts)
        found: dict[str, AbstractExpert] = {}
        for one in chosen:
            is_name = isinstance(one, str)
            name, expert = (one, EXPERTS[one]()) if is_name else (type(one).__name__, one)
            same = [known for known in found if known.split()[0] == name]
            if all(found[known] != expert for known in same):
                found[f"{name} {len(same) + 1}" if same else name] = expert
        return found

    def fit(self, rows: Rows, key: RandomKey, *, verbose: int = 0) -> StackFitted:
        """Fit all experts, weigh them on held-out rows, and fit the gate."""
        rows = replace(rows, y=np.round(rows.y, 9))  # other units of y change no split of a tree
        inputs = InputTransform.fit(rows)
        rows = replace(rows, X=inputs(rows.X))
        fitted = self.fit_experts(rows, key, verbose)
        common = rows_in_common(fitted)
        parts = [one.held_out(common) for one in fitted]
        density = np.stack([densities(part, rows, common) for part in parts])
        fold = folds_of_groups(rows.given.duplicate_group[common])
        experts, weight = weighed(fitted, np.log(density), rows, common, fold)
        gate, opening = fit_gate(rows, density, weight, common, key)
        dist = stacked(parts, weight, opening)
        factor = calibration_factor(dist, rows, common) * few_rows_factor(len(rows))
        dist = measured(dist.widen(factor), rows, common)
        calibration, own = calibration_weights(dist, rows, common, fold)
        nothing = HeldOut.none(1, rows.y.shape[1])  # the stack has the densities of all experts
        held_out = nothing  # there is no target to compare a censored row with
        if rows.bounds is None:
            held_out = HeldOut.of_rows(calibrated(dist, own, opening), rows, common, opening)
        experts = tuple(
            replace(one, fitted=replace(one.fitted, held_out=nothing)) for one in experts
        )
        return StackFitted(
            experts=experts,
            inputs=inputs,
            extrapolation=gate,
            factor=factor,
            calibration=calibration,
            held_out=held_out,
        )

    def fit_experts(self, rows: Rows, key: RandomKey, verbose: int) -> list[StackedExpert]:
        """Fit experts, some also to a transformed target, until the time limit is over.

        With the progress shown, networks follow a line with the scores of the experts before them,
        and an interruption keeps the fitted experts.
        """
        from rich.progress import Progress

        start, transform = perf_counter(), PowerTransform.fit(rows.y)
        if rows.bounds is not None:
            transform = censored_transform(rows.bounds)
        entries = []
        for name, expert in self.named_experts().items():
            if not (rows.given.is_exact or expert.knows_errors):
                continue
            entries.append((name, expert, None))
            if transform is not None and isinstance(expert, TRANSFORMED) and rows.error is None:
                entries.append((f"{name} (transformed)", expert, transform))
        fitted, stopped = [], ""
        with Progress(disable=verbose == 0) as bar:
            task = bar.add_task("", total=len(entries))
            for name, expert, own in entries:
                if fitted and self.time_limit and perf_counter() - start > self.time_limit:
                    stopped = f"`time_limit` of {self.time_limit:g} s is over"
                    break
                if self.time_limit and expert.is_network:
                    expert = replace(expert, deadline=start + self.time_limit)
                bar.update(task, description=name)
                shown = verbose if expert.is_network else 0
                try:
                    if shown:
                        bar.stop()  # networks have a bar of their own
                        print(f"{scores_so_far(fitted, rows)} Press Ctrl-C to keep these experts.")
                    fitted.append(fit_expert(name, expert, rows, own, key, shown))
                except KeyboardInterrupt:
                    if not (verbose and fitted):
                        raise
                    stopped = "Interrupted"
                    break
                bar.advance(task)
        if stopped:
            left_out = ", ".join(name for name, _, _ in entries[len(fitted) :])
            text = f"{stopped}: left out {left_out}."
            warnings.warn(text, TrainingWarning, stacklevel=3)
        return fitted


def scores_so_far(fitted: Sequence[StackedExpert], rows: Rows) -> str:
    """Held-out scores of the mixture of the fitted experts, of some rows, as a sentence."""
    at = rows_in_common(fitted)
    at = at[np.linspace(0, len(at) - 1, min(len(at), ROWS_OF_CRPS)).astype(int)]
    parts, weight = [one.held_out(at) for one in fitted], rows.weight[at]
    log_density = np.log([densities(part, rows, at).mean(axis=1) for part in parts])
    fold = folds_of_groups(rows.given.duplicate_group[at])
    dist = stacked(parts, cross_fitted_weights(log_density.T, weight, fold)[1], np.zeros(len(at)))
    scores = dist.crps(rows.y[at], step=2), np.log(densities(dist, rows, at))
    crps, log_density = (np.average(one.mean(axis=1), weights=weight) for one in scores)
    return f"Without networks: CRPS {crps:.3f}, log-likelihood {log_density:.3f}."


def fit_gate(
    rows: Rows,
    density: Float[np.ndarray, "experts held_out outputs"],
    weight: Float[np.ndarray, "experts held_out"],
    common: Int[np.ndarray, " held_out"],
    key: RandomKey,
) -> tuple[ExtrapolationGate, Float[np.ndarray, " held_out"]]:
    """Gate of the width that gives held-out rows the largest log score, and its values there.

    A held-out row is no inducing point to itself.
    """
    X = np.asarray(rows.X.coordinates, np.float32)
    relevance = gate_relevance(rows.features, X, rows.y.astype(np.float32), key)
    gate, own_center = create_gate(X, N_INDUCING, key, relevance=relevance)
    row_weight = rows.weight[common]
    marginal, mixed = density[0], np.sum(weight[:, :, None] * density, axis=0)
    best, found = -np.inf, (gate, np.zeros(len(common)))
    for factor in GATE_FACTORS:
        wider = gate.widened(factor)
        opening = in_blocks(wider, X[common], own_center[common]).astype(np.float64)
        gated = opening[:, None] * marginal + (1 - opening[:, None]) * mixed
        score = np.average(np.log(np.maximum(gated, 1e-300)).mean(axis=1), weights=row_weight)
        if score > best + LEAST_GAIN:
            best, found = score, (wider, opening)
    return found


def calibration_factor(dist: Stacked, rows: Rows, at: Int[np.ndarray, " held_out"]) -> float:
    """Factor on all scales with the largest held-out log score, nearer to 1 with few rows."""
    weight = rows.weight[at]
    n_rows = weight.sum() ** 2 / np.sum(weight**2)

    def loss(log_factor: float) -> float:
        density = densities(dist.widen(math.exp(log_factor)), rows, at)
        return -float(np.average(np.log(density).mean(axis=1), weights=weight))

    found: Any = optimize.minimize_scalar(loss, bounds=MOST_WIDENED, method="bounded")
    return math.exp(found.x * n_rows / (n_rows + FACTOR_ROWS))


def calibration_weights(
    dist: Stacked,
    rows: Rows,
    at: Int[np.ndarray, " held_out"],
    fold: Int[np.ndarray, " held_out"],
) -> tuple[Float[np.ndarray, "terms outputs"], Float[np.ndarray, "terms held_out outputs"]]:
    """Weights of Beta densities of the held-out PIT values with the largest log score.

    The second ones are those of `cross_fitted_weights`, for the held-out rows themselves.
    """
    low, high = (dist.cdf(end) for end in cells(rows, at))
    k, mass = np.arange(N_TERMS)[:, None, None], high - low
    below, above = (special.betainc(k + 1, N_TERMS - k, level) for level in (low, high))
    average = np.where(mass > 1e-9, (above - below) / np.where(mass > 1e-9, mass, 1.0), 0.0)
    at_value = N_TERMS * bernstein(low, N_TERMS)
    log_density = np.log(np.maximum(np.where(mass > 1e-9, average, at_value), 1e-300))
    prior, weight = PRIOR_ROWS / N_TERMS, rows.weight[at]
    found = [
        cross_fitted_weights(own.T, weight, fold, prior) for own in np.moveaxis(log_density, -1, 0)
    ]
    of_all, at_rows = (np.stack(part, axis=-1) for part in zip(*found, strict=True))
    return of_all, at_rows


def fit_expert(
    name: str,
    expert: AbstractExpert,
    rows: Rows,
    transform: PowerTransform | None,
    key: RandomKey,
    verbose: int = 0,
) -> StackedExpert:
    """Fit one expert, to transformed targets if there is a transform."""
    start = perf_counter()
    if transform is not None:
        bounds = None if rows.bounds is None else transform(rows.bounds[..., None])[..., 0]
        rows = replace(rows, y=transform(rows.y), bounds=bounds)
    if rows.bounds is None or isinstance(expert, Marginal):
        fitted = expert.fit(rows, named_key(key, name), verbose=verbose)
    else:
        fitted = fit_censored(expert, rows, rows.bounds, named_key(key, name))
    seconds = perf_counter() - start
    return StackedExpert(name, fitted, transform, seconds)


def rows_in_common(fitted: Sequence[StackedExpert]) -> Int[np.ndarray, " held_out"]:
    """Rows that all experts hold out."""
    common = fitted[0].fitted.held_out.row
    for one in fitted[1:]:
        common = np.intersect1d(common, one.fitted.held_out.row)
    return common


def folds_of_groups(label: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
    """Random fold of every row; rows of one group are in one fold."""
    group = np.unique(label, return_inverse=True)[1].reshape(-1)
    return np.random.default_rng(0).permutation(group.max() + 1)[group] % N_FOLDS


def weighed(
    fitted: Sequence[StackedExpert],
    log_density: Float[np.ndarray, "experts held_out outputs"],
    rows: Rows,
    common: Int[np.ndarray, " held_out"],
    fold: Int[np.ndarray, " held_out"],
) -> tuple[tuple[StackedExpert, ...], Float[np.ndarray, "experts held_out"]]:
    """Experts with their weights and scores, and the weights at the held-out rows themselves."""
    weight, n_outputs = rows.weight[common], rows.y.shape[1]
    scores = log_density.reshape(len(fitted), -1).T
    found, at_rows = cross_fitted_weights(
        scores, np.repeat(weight, n_outputs), np.repeat(fold, n_outputs)
    )
    some = np.linspace(0, len(common) - 1, min(len(common), ROWS_OF_CRPS)).astype(int)
    experts = tuple(
        replace(
            one,
            weight=float(own),
            log_likelihood=float(np.average(log.mean(axis=1), weights=weight)),
            crps=float(np.average(held_out_crps(one, rows, common[some]), weights=weight[some])),
        )
        for one, own, log in zip(fitted, found, log_density, strict=True)
    )
    return experts, without_small(at_rows[:, ::n_outputs])


def held_out_crps(
    expert: StackedExpert, rows: Rows, at: Int[np.ndarray, " held_out"]
) -> Float[np.ndarray, " held_out"]:
    """CRPS of an expert for rows that it holds out, averaged over outputs."""
    alone = stacked([expert.held_out(at)], [1.0], np.zeros(len(at)))
    if rows.bounds is not None:
        low, high = cells(rows, at)
        return crps_of_cells(low, high, Predictive(alone))[:, 0]
    return measured(alone, rows, at).crps(rows.y[at], step=2).mean(axis=1)
