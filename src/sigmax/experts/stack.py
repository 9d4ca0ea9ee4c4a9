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
from time import perf_counter
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize

from sigmax.calibration import few_rows_factor
from sigmax.distributions import ExpertPart, Mixture, PowerTransform, Stacked, Units
from sigmax.errors import InvalidArgumentError, TrainingWarning
from sigmax.experts.base import AbstractExpert, AbstractFitted, HeldOut, LatePresets, StoredRows
from sigmax.experts.forest import Forest, largest_weights
from sigmax.experts.linear import Linear, Marginal
from sigmax.experts.matern import MaternProcess
from sigmax.experts.rows import Rows
from sigmax.extrapolation import (
    NO_CENTER,
    ExtrapolationGate,
    create_gate,
    gate_relevance,
    in_blocks,
    with_centers,
)
from sigmax.inputs import Inputs
from sigmax.random import RandomKey, named_key
from sigmax.settings import Rule, one_of, setting
from sigmax.values import AbstractValue, tree_map

EXPERTS: dict[str, Callable[[], AbstractExpert]] = {
    "marginal": Marginal,
    "linear": Linear,
    "gp": MaternProcess,
    "forest": Forest,
    "local": lambda: replace(
        LatePresets("local", "LOCAL_PRESETS")["fast"], n_members=5, validation_fraction=0.2
    ),
    "combined": lambda: LatePresets("combined", "PRESETS")["default"],
    "dropout": lambda: LatePresets("stochastic", "DROPOUT_PRESETS")["default"],
    "bayesian": lambda: LatePresets("stochastic", "BAYESIAN_PRESETS")["default"],
}
"""Functions that create experts, by name."""

EFFORTS = {
    "quick": ("marginal", "linear", "gp", "forest"),
    "default": ("marginal", "linear", "gp", "forest", "local"),
    "best": ("marginal", "linear", "gp", "forest", "local", "combined"),
}
"""Names of the experts of every effort; the marginal, p_0 of the gate, comes first in all."""

TRANSFORMED = ("linear", "gp", "forest")
"""Experts that are also fitted to the transformed target, where it is skewed."""

PRIOR_COUNT = 0.3
"""Rows that the Dirichlet prior adds to every expert."""

LEAST_SCALE = 1e-3
"""Least scale of all components, in standard deviations of the target that they are fitted to."""

N_INDUCING = 2048
"""Inducing points of the gate: all rows, if there are fewer."""

GATE_FACTORS, LEAST_GAIN = (2.0, 1.0), 1e-3
"""Factors on the width of the gate. Experts that extrapolate well are better than the marginal just
beyond the data: the widest is taken unless another one has so much more held-out log-likelihood."""

MAX_ROUNDS = 500

MOST_WIDENED, FACTOR_ROWS = (-0.5, 0.5), 100
"""Bounds of the logarithm of the factor on scales, and the rows with which it is halved."""

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
    if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
        raise InvalidArgumentError(f"`{name}` must be None or above 0, got {seconds!r}.")
    return None if seconds is None else float(seconds)


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
    extrapolation: ExtrapolationGate
    factor: float
    """Factor on the scales of all components, which calibrates the stack."""
    held_out: HeldOut
    """Densities of the stack at the rows that all experts hold out."""

    def gate(self, X: Inputs) -> Float[np.ndarray, " rows"]:
        """Extrapolation gate of every row."""
        rows = np.asarray(X.coordinates, np.float32)
        opening = in_blocks(self.extrapolation, rows, np.full(len(rows), NO_CENTER))
        return opening.astype(np.float64)

    def density(self, X: Inputs) -> Stacked:
        return self.describe(X)[0]

    def describe(self, X: Inputs) -> tuple[Stacked, dict[str, Float[np.ndarray, " rows"]]]:
        """`density`, and the ``gate``."""
        gate = self.gate(X)
        parts = [one.part(one.fitted.density(X)) for one in self.experts]
        dist = stacked(parts, [one.weight for one in self.experts], gate)
        return dist.widen(self.factor), {"gate": gate}

    def shares(self, gate: Float[np.ndarray, " rows"]) -> Float[np.ndarray, "experts rows"]:
        """Weight of every expert at rows with this ``gate``."""
        return shares([one.weight for one in self.experts], gate)

    def with_rows(self, new: StoredRows) -> "StackFitted":
        """Experts given more rows, where they can follow them, and the gate closed there."""
        experts = []
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
        found, share = [], self.shares(self.gate(X))
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


def shares(
    weight: Sequence[float], gate: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, "experts rows"]:
    """Weights at every row: the gate moves them to the first expert, the marginal."""
    at_rows = np.array(weight)[:, None] * (1 - gate)
    at_rows[0] += gate
    return at_rows


def stacked(
    parts: Sequence[ExpertPart], weight: Sequence[float], gate: Float[np.ndarray, " rows"]
) -> Stacked:
    """Mixture of the parts with the `shares` of their experts."""
    at_rows = shares(weight, gate)
    shape = parts[0].mixture.shape
    log_weight = np.log(np.maximum(at_rows, 1e-300))[:, :, None]
    log_weight = np.broadcast_to(log_weight, (len(parts), *shape)).copy()
    return Stacked(tuple(parts), log_weight, Units.standard(shape[-1]))


def densities(part: ExpertPart, rows: Rows, at: Int[np.ndarray, " held_out"]) -> np.ndarray:
    """Densities of targets; of a repeated value, the probability of its cell over its width.

    A density could be as large as it likes at a value that repeats; a probability cannot.
    """
    y = rows.y[at]
    found = part.density(y)
    for output, own in enumerate(rows.target.repeated):
        if own is not None:
            scaling = rows.target.scaling
            edges = (own.cells - scaling.mean[output]) / scaling.scale[output]
            index = np.searchsorted(edges[:, 1], y[:, output]).clip(0, len(edges) - 1)
            low, high = (
                np.where(np.arange(y.shape[1]) == output, edges[index, [k]][:, None], y)
                for k in (0, 1)
            )
            mass = (part.cdf(high) - part.cdf(low))[:, output] / np.diff(edges[index])[:, 0]
            is_inside = (y[:, output] >= edges[index, 0]) & (y[:, output] <= edges[index, 1])
            found[:, output] = np.where(is_inside, mass, found[:, output])
    return np.maximum(found, 1e-300)


def stacking_weights(
    log_density: Float[np.ndarray, "rows experts"], weight: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, " experts"]:
    """Weights of experts that maximise the log score of rows, with a weak Dirichlet prior.

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
        new = share.sum(axis=0) + PRIOR_COUNT
        new /= new.sum()
        is_done, found = np.abs(new - found).max() < 1e-6, new
        if is_done:
            break
    return found


@final
@dataclass(frozen=True, kw_only=True)
class Stack(AbstractExpert):
    """Several experts, weighted by the held-out log score."""

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

    def named_experts(self) -> dict[str, AbstractExpert]:
        """Experts to fit, by name, the marginal first."""
        chosen = EFFORTS[self.effort] if self.experts == "auto" else ("marginal", *self.experts)
        found: dict[str, AbstractExpert] = {}
        for one in chosen:
            found[one if isinstance(one, str) else type(one).__name__] = (
                EXPERTS[one]() if isinstance(one, str) else one
            )
        return found

    def fit(self, rows: Rows, key: RandomKey, *, verbose: int = 0) -> StackFitted:
        """Fit all experts, weigh them on held-out rows, and fit the gate."""
        from rich.progress import Progress

        rows = replace(rows, y=np.round(rows.y, 9))  # other units of y change no split of a tree
        start, transform = perf_counter(), PowerTransform.fit(rows.y)
        entries = []
        for name, expert in self.named_experts().items():
            entries.append((name, expert, None))
            if transform is not None and name in TRANSFORMED:
                entries.append((f"{name} (transformed)", expert, transform))
        fitted: list[StackedExpert] = []
        with Progress(disable=verbose == 0) as bar:
            task = bar.add_task("", total=len(entries))
            for name, expert, own in entries:
                if fitted and self.time_limit and perf_counter() - start > self.time_limit:
                    left_out = ", ".join(name for name, _, _ in entries[len(fitted) :])
                    warnings.warn(
                        f"`time_limit` of {self.time_limit:g} s is over: left out {left_out}.",
                        TrainingWarning,
                        stacklevel=2,
                    )
                    break
                if self.time_limit and expert.is_network:
                    expert = replace(expert, deadline=start + self.time_limit)
                bar.update(task, description=name)
                fitted.append(fit_expert(name, expert, rows, own, key))
                bar.advance(task)
        experts, common = weighed(fitted, rows)
        parts = [one.held_out(common) for one in experts]
        weight = [one.weight for one in experts]
        gate, opening = fit_gate(rows, parts, weight, common, key)
        dist = stacked(parts, weight, opening)
        factor = calibration_factor(dist, rows, common) * few_rows_factor(len(rows))
        held_out = HeldOut.of_rows(dist.widen(factor), rows, common)
        nothing = HeldOut.none(1, rows.y.shape[1])  # the stack has the densities of all experts
        experts = tuple(
            replace(one, fitted=replace(one.fitted, held_out=nothing)) for one in experts
        )
        return StackFitted(experts=experts, extrapolation=gate, factor=factor, held_out=held_out)


def fit_gate(
    rows: Rows,
    parts: Sequence[ExpertPart],
    weight: Sequence[float],
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
    density = np.stack([densities(part, rows, common) for part in parts])
    marginal, mixed = density[0], np.tensordot(np.array(weight), density, axes=1)
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
        wider = dist.widen(math.exp(log_factor))
        own = np.exp(wider.log_weight)
        parts = zip(own, wider.parts, strict=True)
        density = sum(share * densities(part, rows, at) for share, part in parts)
        return -float(np.average(np.log(np.maximum(density, 1e-300)).mean(axis=1), weights=weight))

    best = optimize.minimize_scalar(loss, bounds=MOST_WIDENED, method="bounded").x
    return math.exp(best * n_rows / (n_rows + FACTOR_ROWS))


def fit_expert(
    name: str,
    expert: AbstractExpert,
    rows: Rows,
    transform: PowerTransform | None,
    key: RandomKey,
) -> StackedExpert:
    """Fit one expert, to transformed targets if there is a transform."""
    start = perf_counter()
    if transform is not None:
        rows = replace(rows, y=transform(rows.y))
    fitted = expert.fit(rows, named_key(key, name))
    seconds = perf_counter() - start
    return StackedExpert(name, fitted, transform, seconds)


def weighed(
    fitted: Sequence[StackedExpert], rows: Rows
) -> tuple[tuple[StackedExpert, ...], Int[np.ndarray, " held_out"]]:
    """Experts with their weights and scores, and the rows that all of them hold out."""
    common = fitted[0].fitted.held_out.row
    for one in fitted[1:]:
        common = np.intersect1d(common, one.fitted.held_out.row)
    parts = [one.held_out(common) for one in fitted]
    log_density = [np.log(densities(part, rows, common)) for part in parts]
    weight, n_outputs = rows.weight[common], rows.y.shape[1]
    scores = np.stack(log_density, axis=-1).reshape(-1, len(fitted))
    found = stacking_weights(scores, np.repeat(weight, n_outputs))
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
    return experts, common


def held_out_crps(
    expert: StackedExpert, rows: Rows, at: Int[np.ndarray, " held_out"]
) -> Float[np.ndarray, " held_out"]:
    """CRPS of an expert for rows that it holds out, averaged over outputs."""
    alone = stacked([expert.held_out(at)], [1.0], np.zeros(len(at)))
    return alone.crps(rows.y[at], step=4).mean(axis=1)
