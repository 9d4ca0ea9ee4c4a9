"""Ensembles of networks: prepared, trained at once, and recalibrated on rows that members hold out.

Several ensembles of one kind may be trained together: the splits of a cross-validation, say. A
single fit is the case of one.
"""

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray
from scipy.stats import norm, t

from sigmax.calibration import best_scale_factor, coverage_match
from sigmax.compilation import compiled, on_device
from sigmax.distributions import Mixture
from sigmax.errors import InvalidArgumentError, TrainingError, TrainingWarning
from sigmax.experts.base import AbstractExpert, AbstractFitted, HeldOut
from sigmax.experts.rows import Rows, TrainingRows, count_held_out, held_out_share, hold_out
from sigmax.features import TARGET_TRANSFORMS, TargetUnits
from sigmax.inputs import Inputs
from sigmax.model import Model, fit_models
from sigmax.neighbors import neighbor_graph
from sigmax.networks import toward_prior
from sigmax.networks.gate import column_relevance
from sigmax.random import draw_seed, make_key, named_generator, named_key
from sigmax.settings import COUNT, number, one_of, setting
from sigmax.training import Fold, Stage, Supply, TrainingData, train_stage, validate_members
from sigmax.training.loop import phase_line, progress_bar

FEW_ROWS, N_MEMBERS_OF_FEW = 200, 10
"""Number of rows below which an ensemble has more members, unless `n_members` is given."""
N_MEMBERS = (
    5,
    COUNT,
    """Ensemble members, trained at once, of which the prediction is the equal mixture; ten with
    fewer than 200 rows unless this is given or 1.""",
)
VALIDATION_FRACTION = (
    0.1,
    number(above=0, below=0.5, inclusive=True),
    """Share of the rows that each ensemble member holds out to choose its best checkpoint; 0 keeps
    the last one. Rows of equal X are held out together. With fewer than 200 rows, 20 rows or 40 %
    are held out unless this is given.""",
)
PATIENCE = "Validations without a better checkpoint before training stops; 0 never stops early."


@dataclass(frozen=True, kw_only=True)
class AbstractNetworkExpert(AbstractExpert):
    """An ensemble of networks of one kind.

    A final class gives the networks to start from, the stages to train them by, and what is made
    of them in the end.
    """

    n_members: int
    hidden_sizes: tuple[int, ...]
    n_steps: int | None
    validation_fraction: float
    target_map: str = setting(
        "none",
        one_of(("auto", *TARGET_TRANSFORMS)),
        """Transform of the target that the networks learn: none, or the monotone function that
        makes its distribution Normal; "auto" chooses on validation rows. With fewer than 200
        different rows there is none.""",
    )
    is_scored_together: bool = False
    """True if all members keep the checkpoints of the same step, by the mean of their scores."""
    largest_hold_out: int = 4096
    """Most rows that a member holds out; more hardly change which checkpoint is best."""

    @abstractmethod
    def init(self, rows: Rows, X: Inputs, key: PRNGKeyArray) -> tuple[Any, np.ndarray]:
        """Untrained members along a first axis, and the inducing point that each row is."""

    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """Stages of the training."""

    @abstractmethod
    def finish(self, trained: "Trained") -> AbstractFitted:
        """Fitted value of trained members, calibrated on their held-out rows."""

    def host_work(self, prepared: "Prepared", folds: Fold) -> Callable[[], Any] | None:
        """Work for a thread of the host while networks train; ``folds`` are NumPy arrays.

        Its result has a member axis, and is `Trained.of_host`.
        """
        return None

    def fit_to(self, n_rows: int) -> "AbstractNetworkExpert":
        """Settings for so many rows: neighbourhoods no larger than the data."""
        return self

    def graph_sizes(self) -> dict[str, int]:
        """Sizes of the neighbourhoods that batches are drawn from, by the name of the graph."""
        return {}

    def for_rows(self, n_rows: int) -> "AbstractNetworkExpert":
        """Defaults with more members, which hold out a larger share, where rows are few.

        Each is validated on other rows, and all together on nearly all rows: the fewer there are,
        the less one split of them says.
        """
        share = self.validation_fraction
        if n_rows >= FEW_ROWS or not share:
            return self
        return replace(
            self,
            n_members=max(self.n_members, N_MEMBERS_OF_FEW) if self.n_members > 1 else 1,
            validation_fraction=held_out_share(n_rows, share),
            is_scored_together=True,
        )

    def fit(self, rows: Rows, key: PRNGKeyArray, *, verbose: int = 0) -> AbstractFitted:
        return self.fit_together([rows], [key], verbose=verbose)[0]

    def fit_together(
        self, rows: Sequence[Rows], keys: Sequence[PRNGKeyArray], *, verbose: int = 0
    ) -> list[AbstractFitted]:
        """All in one training: every ensemble ends as if it were alone, up to rounding."""
        with phase_line("preparing rows", visible=verbose > 0):
            prepared = [
                prepare(self.fit_to(len(own.y)), own, key)
                for own, key in zip(rows, keys, strict=True)
            ]
        return train(prepared, verbose=verbose)

    def targets(
        self, rows: Sequence[TrainingRows], keys: Sequence[PRNGKeyArray]
    ) -> list[TargetUnits]:
        fit = partial(TargetUnits.fit, support=self.support)
        if self.validation_fraction and self.target_map == "auto":
            transforms = choose_transforms(self.pilot(), rows, keys)
        else:
            transforms = [self.target_map.replace("auto", "none")] * len(rows)
        found = []
        for own, transform in zip(rows, transforms, strict=True):
            if self.validation_fraction and own.n_distinct < FEW_ROWS:
                units = fit(own.y, own.weight)
                found.append(units.wider(few_rows_spread(own.n_distinct)))
            else:
                found.append(fit(own.y, own.weight, transform))
        return found

    def pilot(self) -> "AbstractNetworkExpert":
        """A small ensemble of the same kind, to choose the transform of the target with."""
        return replace(
            self,
            n_members=2,
            hidden_sizes=tuple(min(size, 64) for size in self.hidden_sizes),
            n_steps=min(self.n_steps or PILOT_STEPS, PILOT_STEPS),
        )


@final
@dataclass(frozen=True, eq=False)
class Prepared:
    """All that the training of one ensemble starts from."""

    expert: Any
    """An `AbstractNetworkExpert` with settings for these rows."""
    rows: Rows
    X: Inputs
    """Encoded rows in single precision."""
    y: np.ndarray
    """Transformed targets in single precision."""
    networks: Any
    own_center: np.ndarray
    graphs: dict[str, np.ndarray]
    held_out: list[np.ndarray]
    """Rows that each member holds out."""
    keys: Key[Array, " members"]
    n_learned: int
    """Rows that are learned from: more than ``rows``, where a stream supplies others."""

    @property
    def has_few_rows(self) -> bool:
        """True if scales and tails must allow for the number of rows."""
        return self.rows.given.n_distinct < FEW_ROWS


@final
@dataclass(frozen=True, eq=False)
class Trained:
    """Trained members of one ensemble, with what they have learned from."""

    prepared: Prepared
    networks: Any
    """Members that the training has not failed for, as NumPy arrays."""
    folds: Fold
    """Folds of these members."""
    data: TrainingData
    of_host: Any
    """Result of `AbstractNetworkExpert.host_work`."""
    history: dict[str, np.ndarray]
    """Validation scores (chunks, members) by stage."""

    def held_out(self, density: Callable[[np.ndarray, np.ndarray, np.ndarray], Mixture]) -> HeldOut:
        """Held-out densities, none without validation.

        ``density`` takes the member, the slot and the row of every held-out row, and returns a
        mixture with leaves (parts, pairs, outputs).
        """
        rows, n_members = self.prepared.rows, len(self.folds.group)
        if not self.prepared.expert.validation_fraction:
            return HeldOut.none(n_members, rows.y.shape[1])
        member, slot = np.nonzero(self.folds.validation_weight)
        row = np.asarray(self.folds.validation)[member, slot]
        return HeldOut.of_members(density(member, slot, row), member, row, n_members, rows)


def prepare(expert: AbstractNetworkExpert, rows: Rows, key: PRNGKeyArray) -> Prepared:
    """Untrained members, their neighbour graphs and the rows that each holds out."""
    share, n_members = expert.validation_fraction, expert.n_members
    labels = rows.given.duplicate_group
    held_out = hold_out(labels, share, n_members, key, largest=expert.largest_hold_out)
    keys = jax.random.split(named_key(key, "members"), n_members)
    X, y = rows.X.astype(np.float32), rows.y.astype(np.float32)
    sizes, (networks, own_center) = expert.graph_sizes(), expert.init(rows, X, key)
    graphs = neighborhoods(np.asarray(X.coordinates), sizes)
    return Prepared(expert, rows, X, y, networks, own_center, graphs, held_out, keys, len(y))


def prepare_fit(expert: AbstractNetworkExpert, given: TrainingRows, key: PRNGKeyArray) -> Prepared:
    """All that the training of rows in the units of the user starts from."""
    rows = Rows.encode(given, expert.targets([given], [key])[0])
    return prepare(expert.fit_to(len(rows)), rows, key)


def gate_relevance(rows: Rows, X: Inputs, key: PRNGKeyArray) -> np.ndarray:
    """Relevance of every coordinate to the gate; 0 for times, which go on."""
    rng, features = named_generator(key, "relevance"), rows.features
    y = rows.y.astype(np.float32)
    found = column_relevance(np.asarray(X.coordinates), y, features.column_of(), rng)
    found[features.trends()] = 0.0
    return found


def neighborhoods(X: np.ndarray, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Graphs that stages name: single rows, and neighbourhoods of these sizes."""
    graphs = {"single": np.arange(len(X))[:, None]}
    if sizes:
        graph = neighbor_graph(X, max(sizes.values()))
        graphs |= {name: graph[:, :k] for name, k in sizes.items()}
    return graphs


def train(
    prepared: Sequence[Prepared],
    create_supply: Callable[[Fold, TrainingData], Supply] | None = None,
    *,
    verbose: int = 0,
) -> list[AbstractFitted]:
    """Train all members of all ensembles, from the rows of ``create_supply`` where it is given."""
    first = prepared[0]
    expert, n_members = first.expert, first.expert.n_members
    shapes = {(own.X.input_shape, own.y.shape) for own in prepared}
    if len(shapes) > 1 or any(own.expert != expert for own in prepared):
        raise InvalidArgumentError(
            "Models that are fitted together need the same settings and data of the same shape."
        )
    weights = [own.rows.weight for own in prepared]
    data = TrainingData.create(
        [own.X for own in prepared],
        [own.y for own in prepared],
        [own.own_center for own in prepared],
        {name: [own.graphs[name] for own in prepared] for name in first.graphs},
        weights,
    )
    held_out = [fold for own in prepared for fold in own.held_out]
    groups = [group for group in range(len(prepared)) for _ in range(n_members)]
    labels = [own.rows.given.duplicate_group for own in prepared]
    # Room for what more rows of the same padded size hold out: their compiled functions are shared.
    most_rows = data.n_slots if len(first.X) >= FEW_ROWS else 0
    room = count_held_out(most_rows, expert.validation_fraction, expert.largest_hold_out)
    folds = Fold.create(weights, held_out, groups, data.n_slots, labels, room)
    networks, keys = first.networks, first.keys
    if len(prepared) > 1:
        leaves = [own.networks for own in prepared]
        networks = jax.tree.map(lambda *leaf: jnp.concatenate(leaf), *leaves)
        keys = jnp.concatenate([own.keys for own in prepared])

    stages, histories = expert.stages(), {}
    supply = create_supply(folds, data) if create_supply else None
    on_host = jax.tree.map(np.asarray, folds)  # as NumPy, where a slice compiles nothing
    of_group = np.arange(len(keys)).reshape(-1, n_members)
    tasks = [
        expert.host_work(start, jax.tree.map(lambda leaf, own=own: leaf[own], on_host))
        for start, own in zip(prepared, of_group, strict=True)
    ]
    pool = ThreadPoolExecutor(1)
    try:
        background = [task and pool.submit(task) for task in tasks]
        with progress_bar(stages, visible=verbose > 0) as report:
            for stage in stages:
                members, found = train_stage(
                    networks, keys, folds, data, stage, report, supply=supply
                )
                networks = members.best
                histories[stage.name] = [history["score"] for history in found]
        with phase_line("forests", visible=verbose > 0 and any(background)):
            done = [work and work.result() for work in background]
    finally:
        pool.shutdown(cancel_futures=True)
    networks, fitted = jax.tree.map(np.asarray, networks), []
    with phase_line("calibrating on validation rows", visible=verbose > 0):
        for group, start in enumerate(prepared):
            own, scores = of_group[group], histories[stages[-1].name][group]
            is_sound = sound_members(networks, own, scores, is_scored=stages[-1].keep_best)
            own, of_host = own[is_sound], done[group]
            if of_host is not None and not is_sound.all():
                of_host = of_host[np.flatnonzero(is_sound)]
            mine, fold = jax.tree.map(lambda leaf, own=own: leaf[own], (networks, on_host))
            history = {name: scores[group] for name, scores in histories.items()}
            fitted.append(expert.finish(Trained(start, mine, fold, data, of_host, history)))
    return fitted


def sound_members(
    networks: Any, own: np.ndarray, scores: np.ndarray, *, is_scored: bool
) -> np.ndarray:
    """True for the members ``own`` whose training has not failed; a warning names the others.

    A member is sound if its parameters are finite and, where held-out rows are scored, if it ever
    had a finite score.
    """
    leaves = [np.asarray(leaf)[own] for leaf in jax.tree.leaves(networks)]
    leaves = [leaf.reshape(len(own), -1) for leaf in leaves if leaf.dtype.kind == "f"]
    is_sound = ~np.any([np.isnan(leaf).any(axis=1) for leaf in leaves], axis=0)
    if is_scored:
        is_sound &= np.isfinite(scores).any(axis=0)
    remedy = "a smaller `learning_rate`, or a target without absurdly large values, may help"
    if not is_sound.any():
        raise TrainingError(
            f"The training broke down: none of {len(own)} members ever had a finite"
            f" likelihood; {remedy}."
        )
    if not is_sound.all():
        broken = ", ".join(str(member) for member in np.flatnonzero(~is_sound))
        warnings.warn(
            f"The training of {np.sum(~is_sound)} of {len(own)} members broke down (number"
            f" {broken}); they are left out of the mixture; {remedy}.",
            TrainingWarning,
            stacklevel=4,
        )
    return is_sound


# Recalibration on the rows that members hold out: scales, tails, shrinkage.

ROWS_TO_DISAGREE_ON = 256
"""Held-out rows of each member at which all members are compared: a median needs no more."""
DF_BOUNDS = np.array([np.inf, 30.0, 12.0, 6.0, 4.0])
"""Bounds on the degrees of freedom that are tried. A variance of fewer than four means little."""
FLATTERED_ROWS = 200
"""Held-out rows also chose the checkpoints, so that scores on them are too good: with this number
of rows the logarithm of a factor below 1 is halved."""
LARGEST_FACTOR = 16.0
"""Largest factor on scales whose tails change, too: much of a scale may be due to the tails."""


@final
class Recalibration(eqx.Module):
    """Changes of the predictions of all members."""

    factor: Float[Array | np.ndarray, ""]
    """Factor on their scales."""
    most_df: Float[Array | np.ndarray, ""]
    """Bound on their degrees of freedom."""
    shrinkage: Float[Array | np.ndarray, ""]
    """Share by which they are moved to the mean and the variance of y."""

    @classmethod
    def none(cls) -> "Recalibration":
        return cls(*(np.asarray(value, np.float32) for value in (1.0, np.inf, 0.0)))

    def applied_to(self, dist: Any) -> Any:
        """Densities on the data as recalibrated members predict them."""
        return dist.with_tails(self.most_df).widen(self.factor)


def recalibrated(networks: Any, found: Recalibration) -> Any:
    """Members with the factor, the shrinkage and, if they have tails to bound, the bound."""
    names = [name for name in ("factor", "shrinkage", "most_df") if hasattr(networks, name)]
    values = [jnp.broadcast_to(getattr(found, name), networks.factor.shape) for name in names]
    return eqx.tree_at(lambda n: [getattr(n, name) for name in names], networks, values)


def held_out_densities(networks: Any, folds: Fold, data: TrainingData, stage: Stage) -> Any:
    """Density of every member at the rows that it holds out, by ``stage.predict``.

    By the compiled function that scored the members in ``stage``: nothing is compiled for it.
    Leaves (members, held out, ...) on the device; anything for padding.
    """
    return validate_members(networks, jax.tree.map(on_device, folds), data, stage.one_chunk())[1]


@compiled
def held_out_factor(dist: Any, folds: Fold, data: TrainingData) -> Float[Array, ""]:
    """Factor on all scales that makes the members' held-out rows likeliest, each on its own."""
    y = data.y[folds.group[:, None], folds.validation]
    parts = dist, y, folds.validation_weight
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), parts)
    return best_scale_factor(*flat)


@final
class HeldOutPredictions(eqx.Module):
    """Predictions of members for rows that they hold out, and for some that others hold out."""

    dist: Any
    """Densities of every member at the rows that it holds out: leaves (members, held out, ...)."""
    y: Float[Array, "members held_out outputs"]
    weight: Float[Array, "members held_out"]
    """0 for padding."""
    of_all: Any
    """Densities of all members at some rows of every fold: leaves (folds, members, some, ...)."""
    is_row: Bool[Array, "folds some"]
    """False for padding."""

    def flat(self) -> tuple[Any, Float[Array, "rows outputs"], Float[Array, " rows"]]:
        """Densities, values and weights, one member after the other."""
        return jax.tree.map(
            lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (self.dist, self.y, self.weight)
        )


def held_out_predictions(
    networks: Any, folds: Fold, data: TrainingData, stage: Stage
) -> HeldOutPredictions:
    """`held_out_densities`, and densities of all members at some rows of every fold.

    To reuse the compiled function for rows that other members hold out, the folds are rotated
    among the members as often as there are members.
    """
    n_members = len(folds.group)

    def predict(shift: int) -> Any:
        moved = jax.tree.map(lambda leaf: np.roll(leaf, -shift, axis=0), folds)
        return jax.tree.map(np.asarray, held_out_densities(networks, moved, data, stage))

    own, *others = (predict(shift) for shift in range(n_members))
    fold, member = np.mgrid[:n_members, :n_members]

    def of_all(*leaves: np.ndarray) -> Array:
        some = np.stack([leaf[:, :ROWS_TO_DISAGREE_ON] for leaf in leaves])
        return on_device(some[(fold - member) % n_members, member])

    rows, weight = np.asarray(folds.validation), np.asarray(folds.validation_weight)
    y = np.asarray(data.y)[np.asarray(folds.group)[:, None], rows]
    return HeldOutPredictions(
        jax.tree.map(on_device, own),
        on_device(y),
        on_device(weight),
        jax.tree.map(of_all, own, *others),
        on_device(weight[:, :ROWS_TO_DISAGREE_ON] > 0),
    )


@compiled
def mixture_recalibration(found: HeldOutPredictions, may_narrow: bool = True) -> Recalibration:
    """Factor on the members' scales that suits their mixture, and the bound on their tails."""
    single = best_factor_and_tails(found)
    tailed = found.of_all.with_tails(single.most_df)
    factor = factor_of_mixture(jnp.asarray(single.factor), tailed, found.is_row)
    factor = trusted(factor, found.weight, may_narrow)
    return Recalibration(factor, single.most_df, single.shrinkage)


def best_factor_and_tails(found: HeldOutPredictions) -> Recalibration:
    """Recalibration that suits the rows that members hold out, each member on its own.

    The bound on the tails is the one that makes the rows likeliest, each bound with its likeliest
    factor. Where hundreds of rows contribute, a prediction is next to Normal, as if its variance
    were known; with noise that differs from row to row, or hardly any, it is not. The factor is the
    one by which intervals of 50, 80 and 90 % have their nominal coverage.
    """
    dist, y, weight = found.flat()
    bounds = jnp.asarray(DF_BOUNDS, y.dtype)
    scores = jax.vmap(lambda most_df: likeliest(dist.with_tails(most_df), y, weight)[1])(bounds)
    most_df = bounds[jnp.argmax(jnp.where(jnp.isnan(scores), -jnp.inf, scores))]
    factor = covering_factor(dist.with_tails(most_df), y, weight)
    return Recalibration(factor, most_df, jnp.zeros(()))


def likeliest(
    dist: Any, y: Float[Array, "rows outputs"], weight: Float[Array, " rows"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Likeliest factor on all scales, and the log-likelihood with it."""
    factor = best_scale_factor(dist, y, weight, LARGEST_FACTOR)
    log_prob = jnp.sum(dist.widen(factor).log_prob(y), axis=1)
    return factor, jnp.sum(jnp.where(weight > 0, weight * log_prob, 0.0))


def covering_factor(
    dist: Any, y: Float[Array, "rows outputs"], weight: Float[Array, " rows"]
) -> Float[Array, ""]:
    """Factor on all scales by which intervals of held-out rows have their nominal coverage."""
    return best_scale_factor(dist, y, weight, LARGEST_FACTOR, coverage_match)


def factor_of_mixture(
    single: Float[Array, ""], of_all: Any, is_row: Bool[Array, "folds some"]
) -> Float[Array, ""]:
    """Factor on members' scales that suits their mixture, from the one that suits each member.

    At new rows a member's squared error is f² times its variance v, by that factor f. Let
    the members' means have the variance d. The mean of them errs by d less than one of them, and
    the mixture is wider than its members by d: they should have the variance f² v − 2 d. The
    factor has the median of d / v for all rows, and takes at most three quarters of f² away.
    ``of_all`` are the densities of all members at some rows: leaves (folds, members, some, ...).
    """
    means, variances = of_all.mean, of_all.variance
    if means.shape[1] == 1:
        return single
    ratio = jnp.var(means, axis=1, ddof=1) / jnp.mean(variances, axis=1)
    surplus = 2 * jnp.nanmedian(jnp.where(is_row[..., None], ratio, jnp.nan))
    return jnp.sqrt(jnp.maximum(single**2 - surplus, single**2 / 4))


def trusted(
    factor: Float[Array, ""], weight: Float[Array, "members held_out"], may_narrow: bool = True
) -> Float[Array, ""]:
    """Move a factor below 1 towards 1, the more the fewer rows it comes from, or all the way."""
    n_rows = jnp.sum(weight) ** 2 / jnp.sum(weight**2)
    kept = n_rows / (n_rows + FLATTERED_ROWS) if may_narrow else 0.0
    return jnp.where(factor < 1, factor**kept, factor)


# Few rows, each held out by several members.

SHRINKAGES = np.linspace(0.0, 1.0, 5)
"""Shares by which predictions may be moved to the mean and the variance of y."""
FEWEST_TO_TRUST = 6
"""With fewer rows than this, predictions are moved by at least a half."""


def recalibrate_few_rows(
    networks: Any, dist: Any, folds: Fold, data: TrainingData, rows: Rows
) -> Any:
    """Members recalibrated on their `held_out_densities`, and widened for the number of rows."""
    n_rows = rows.given.n_distinct
    shrinkages, bounds = few_rows_choices(n_rows)
    tried = (shrinkages, bounds) if hasattr(networks, "most_df") else (shrinkages,)
    found = cross_fitted_recalibration(dist, folds, data, networks.prior_variance, *tried)
    factor = found.factor * few_rows_factor(n_rows)
    factor = jnp.maximum(factor, 1.0) if rows.has_replicates else factor
    return recalibrated(networks, Recalibration(factor, found.most_df, found.shrinkage))


def few_rows_choices(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Shrinkages, and bounds on the degrees of freedom, that are tried with so few rows.

    Examples
    --------
    >>> few_rows_choices(3)
    (array([0.5 , 0.75, 1.  ]), array([4.]))
    >>> few_rows_choices(20)
    (array([0.  , 0.25, 0.5 , 0.75, 1.  ]), array([12.,  6.,  4.]))
    """
    least = 0.5 if n_rows < FEWEST_TO_TRUST else 0.0
    most_df = max(n_rows - 1, DF_BOUNDS[-1])
    return SHRINKAGES[SHRINKAGES >= least], DF_BOUNDS[DF_BOUNDS <= most_df]


@compiled
def cross_fitted_recalibration(
    dist: Any,
    folds: Fold,
    data: TrainingData,
    prior_variance: float,
    shrinkages: Float[Array | np.ndarray, " shrinkages"],
    bounds: Float[Array | np.ndarray, " bounds"] | None = None,
) -> Recalibration:
    """Recalibration from few rows, each held out by several members.

    ``dist`` are the `held_out_densities`. Mixtures of the members that hold a row out are scored,
    as the mixture of all will be used. The likeliest of all combinations is taken: a bound on the
    degrees of freedom, a shrinkage (a network that has learned nothing from few rows is no better
    than the mean and the variance of y), and for each the best factor on the scales. Without
    ``bounds`` the tails are left as they are.
    """
    group, row, is_held_out = folds.group[0], folds.validation, folds.validation_weight > 0
    own_y = data.y[folds.group[:, None], row]
    count = jnp.zeros(data.n_slots).at[row].add(is_held_out)
    weight = jnp.where(count > 0, data.weight[group], 0.0)

    def fit(choice: tuple[Array, Array]) -> tuple[Array, Array]:
        bound, shrinkage = choice
        tailed = dist if bounds is None else dist.with_tails(bound)
        parts = tailed, own_y, row, is_held_out, count, shrinkage, prior_variance
        return likeliest(CrossFitted(*parts), data.y[group], weight)

    tried = jnp.full(1, jnp.inf) if bounds is None else jnp.asarray(bounds)
    grid = jnp.meshgrid(tried, jnp.asarray(shrinkages), indexing="ij")
    flat = [part.reshape(-1).astype(own_y.dtype) for part in grid]
    factors, scores = lax.map(fit, tuple(flat))
    best = jnp.argmax(jnp.where(jnp.isnan(scores), -jnp.inf, scores))
    return Recalibration(factors[best], flat[0][best], flat[1][best])


@final
class CrossFitted(eqx.Module):
    """Mixture, for every row, of the members that hold it out; as a density of all rows.

    It is to those rows what the mixture of all members is to new ones. Members are widened first,
    then moved to the prior.
    """

    dist: Any
    """Densities of every member at the rows that it holds out: leaves (members, held out, ...)."""
    y: Float[Array, "members held_out outputs"]
    row: Int[Array, "members held_out"]
    is_held_out: Bool[Array, "members held_out"]
    """False for padding."""
    count: Float[Array, " slots"]
    """Number of members that hold each row out."""
    shrinkage: Float[Array, ""]
    prior_variance: float

    def widen(self, factor: Float[Array, ""]) -> "CrossFitted":
        return eqx.tree_at(lambda c: c.dist, self, self.dist.widen(factor))

    def log_prob(self, y: Float[Array, "slots outputs"]) -> Float[Array, "slots outputs"]:
        """Log-density of every row at its own y; anything where no member holds it out."""
        log_prob = toward_prior(self.dist, self.shrinkage, self.prior_variance).log_prob(self.y)
        log_prob = jnp.where(self.is_held_out[..., None], log_prob, -jnp.inf)
        largest = jnp.full_like(y, -jnp.inf).at[self.row].max(log_prob)
        largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
        total = jnp.zeros_like(y).at[self.row].add(jnp.exp(log_prob - largest[self.row]))
        return largest + jnp.log(total / self.count[:, None])


def few_rows_factor(n_rows: int | float) -> float:
    """Factor on a scale that was estimated from so few rows.

    It is the 95 % quantile of a Student-t with n - 1 degrees of freedom over that of a Normal.

    Examples
    --------
    >>> [round(few_rows_factor(n), 2) for n in (2, 3, 5, 10, 50)]
    [3.84, 1.78, 1.3, 1.11, 1.02]
    """
    return float(t.ppf(0.95, max(n_rows - 1, 1)) / norm.ppf(0.95))


def few_rows_spread(n_rows: int) -> float:
    """Spread of a new value, over the standard deviation of ``n_rows`` known ones.

    The error of their mean and the missing degree of freedom of their variance are in it.

    Examples
    --------
    >>> [round(few_rows_spread(n), 2) for n in (2, 3, 5, 10, 50)]
    [6.65, 2.51, 1.59, 1.23, 1.04]
    """
    n_rows = max(n_rows, 2)
    return few_rows_factor(n_rows) * math.sqrt((n_rows + 1) / (n_rows - 1))


# Choice of the target transform.

PILOT_ROWS, PILOT_STEPS, PILOT_SHARE = 2048, 300, 0.25
"""Rows and steps of a pilot fit at most, and the share of the rows that it is validated on."""
NEARLY_NORMAL = 0.99
"""A target so correlated with its normal scores is nearly their linear function."""
FEWEST_VALUES = 20
"""A target with fewer values is discrete: no smooth function changes it much."""


@final
@dataclass(frozen=True, eq=False)
class Pilot:
    """Rows to fit a small ensemble to, with and without a transform, and rows to validate it on."""

    learned: TrainingRows
    validated: TrainingRows
    seed: int

    @classmethod
    def create(cls, rows: TrainingRows, key: PRNGKeyArray) -> "Pilot | None":
        """None where no transform can matter, or rows are too few to choose one."""
        if rows.n_distinct < FEW_ROWS or not is_worth_trying(rows.y, rows.weight):
            return None
        rng = named_generator(key, "target map")
        some = np.sort(rng.permutation(len(rows))[:PILOT_ROWS])
        labels, own_key = rows.duplicate_group[some], named_key(key, "target map")
        (held_out,) = hold_out(labels, PILOT_SHARE, 1, own_key, largest=len(some))
        is_held_out = np.isin(np.arange(len(some)), held_out)
        if len(np.unique(labels[~is_held_out])) < FEW_ROWS:  # no transform would be used
            return None
        return cls(rows.take(some[~is_held_out]), rows.take(some[is_held_out]), draw_seed(rng))

    def log_prob(self, model: Model) -> np.ndarray:
        """Log-density of every validation row."""
        y = self.validated.y[:, 0] if model.is_single_output else self.validated.y
        return model.predict(self.validated.table).log_prob(y).reshape(len(y), -1).sum(axis=1)

    def is_better(self, log_prob: np.ndarray, other: np.ndarray) -> bool:
        """True if the mean of one exceeds that of the other by more than its standard error."""
        gain, share = log_prob - other, self.validated.weight
        share = share / share.sum()
        mean = share @ gain
        return bool(mean > np.sqrt(np.sum((share * (gain - mean)) ** 2)))


def choose_transforms(
    expert: AbstractNetworkExpert, rows: Sequence[TrainingRows], keys: Sequence[PRNGKeyArray]
) -> list[str]:
    """Better transform of every target, by two pilot fits each; a tie is no transform.

    Pilots with as many rows each are fitted together.
    """
    chosen = ["none"] * len(rows)
    each = (Pilot.create(own, key) for own, key in zip(rows, keys, strict=True))
    pilots = {i: pilot for i, pilot in enumerate(each) if pilot is not None}
    same_size = len({len(pilot.learned) for pilot in pilots.values()}) == 1
    for together in [list(pilots)] if same_size else [[own] for own in pilots]:
        some, found = [pilots[own] for own in together], []
        for transform in ("normal-scores", "none"):
            seeds = [make_key(pilot.seed) for pilot in some]
            tried = replace(expert, target_map=transform)
            models = fit_models(tried, [pilot.learned for pilot in some], seeds)
            found.append([p.log_prob(model) for model, p in zip(models, some, strict=True)])
        for own, pilot, transformed, plain in zip(together, some, *found, strict=True):
            if pilot.is_better(transformed, plain):
                chosen[own] = "normal-scores"
    return chosen


def is_worth_trying(y: np.ndarray, weight: np.ndarray) -> bool:
    """True if normal scores of some output are another target than the output itself."""
    if min(len(np.unique(column)) for column in y.T) < FEWEST_VALUES:
        return False
    scores = TargetUnits.fit(y, weight, "normal-scores")(y, np.float64)
    return any(
        np.corrcoef(column, score)[0, 1] < NEARLY_NORMAL
        for column, score in zip(y.T, scores.T, strict=True)
    )
