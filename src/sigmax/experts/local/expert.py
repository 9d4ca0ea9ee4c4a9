"""The local expert: settings, training and calibration of its ensemble, and the fitted value."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sigmax.compilation import bucket_size, by_blocks, on_device, stack_members
from sigmax.distributions import Mixture
from sigmax.experts.base import AbstractFitted, HeldOut
from sigmax.experts.ensemble import (
    FEW_ROWS,
    PATIENCE,
    VALIDATION_FRACTION,
    AbstractNetworkExpert,
    Prepared,
    Trained,
    gate_relevance,
)
from sigmax.experts.local.density import Edges, WeightedStudentT, fit_edges
from sigmax.experts.local.forests import GrownForests, MemberForests, mix
from sigmax.experts.local.network import (
    COMPONENT_GAIN,
    KernelParameters,
    LeaveOneOut,
    LocalNetwork,
    LocalPosterior,
    held_out_density,
)
from sigmax.experts.local.predictor import (
    ROWS_AT_ONCE,
    LocalPredictor,
    StoredRows,
    as_mixture,
    embed_members,
    embed_training_sets,
    predict_members,
)
from sigmax.experts.recalibration import (
    Recalibration,
    cross_fitted_recalibration,
    few_rows_bounds,
    few_rows_factor,
    few_rows_shrinkages,
    held_out_densities,
    held_out_predictions,
    mixture_recalibration,
    recalibrated,
)
from sigmax.experts.rows import Rows
from sigmax.features import repeat_probability
from sigmax.inputs import Inputs, InputShape
from sigmax.networks import MLP, ExtrapolationGate, InputLayer, create_gate, mean_gates
from sigmax.random import named_generator
from sigmax.settings import (
    COUNT,
    COUNT_OR_ZERO,
    FLAG,
    NOT_NEGATIVE,
    POSITIVE,
    SIZES,
    number,
    setting,
)
from sigmax.training import Fold, Part, Phase, Stage

FEWEST_STEPS = 600

STEPS_AS_FOR = 2304
"""From 200 rows on, training takes at least as many steps as for this number of rows, which
functions without noise need. With fewer than 200 rows, that many steps would learn the noise."""

DECAYED = 3600
"""With fewer rows than these, weight decay no longer grows as their inverse."""

MANY_ROWS, FEW_SCORINGS = 10_000, 20
"""Number of rows above which there are only so many validations, which cost more there."""

PATIENT_SHARE = 0.75
"""Share of the chunks after which a training on shards may end without a better score."""

OFTEN = 0.03
"""Probability that two rows have the same target, above which peaks would be rewarded."""

MIXTURES_PER_FEATURE = 8

FARTHEST_OFFSET = 0.75
"""Offset of the outer components from the mean before training, in standard deviations of y."""


@final
@dataclass(frozen=True, kw_only=True)
class Local(AbstractNetworkExpert):
    """Kernel regression in a learned metric, with a neural prior updated in closed form.

    Networks give a normal-inverse-Gamma prior at every x. Training rows that are near, in a learned
    embedding and in input space, update it in closed form, each weighted by a kernel. All networks
    are trained on the leave-one-out likelihood of the training rows.
    """

    n_members: int = setting(
        5,
        COUNT,
        """Ensemble members, trained at once, of which the prediction is the equal mixture; ten
        with fewer than 200 rows unless this is given or 1.""",
    )
    hidden_sizes: tuple[int, ...] = setting(
        (128, 128), SIZES, "Units of the hidden layers of each network."
    )
    n_shared_layers: int = setting(
        1, COUNT_OR_ZERO, "Hidden layers that embedding, mean and spread have in common."
    )
    n_components: int = setting(
        3, COUNT, "Components of each member's mixture of priors; 1 is a single Student-t."
    )
    embedding_size: int = setting(32, COUNT, "Dimensions of the learned embedding.")
    n_waves: int = setting(16, COUNT, "Periodic features of each number.")
    frequency: float = setting(
        0.1, POSITIVE, "Spread of their frequencies before training, per standard deviation."
    )
    input_scale: float = setting(
        1.67, POSITIVE, "Length-scale of the kernel in input space, in standard deviations."
    )
    min_concentration: float = setting(
        2.0, number(above=1), "The least α of the prior: half its degrees of freedom."
    )
    prior_rows: float = setting(
        0.3, POSITIVE, "Number of rows that the prior mean counts for, before training."
    )
    prior_variance: float = setting(
        1.0, POSITIVE, "Variance far from the data, in units of Var(y)."
    )
    n_steps: int | None = setting(
        None, COUNT, "Training steps, at most; None takes their number from `effort`."
    )
    effort: float = setting(
        25.0,
        POSITIVE,
        """Without `n_steps`: steps per square root of the number of rows, or of 2,304 if there are
        fewer.""",
    )
    n_primary: int = setting(8, COUNT, "Neighbourhoods of a batch.")
    n_neighbors: int = setting(64, COUNT, "Rows of a neighbourhood: the context.")
    n_queries: int = setting(
        32, COUNT, "The nearest of these rows, which are predicted from the context."
    )
    learning_rate: float = setting(
        4e-3, POSITIVE, "Step size of Adam, which falls to 0 along half a cosine."
    )
    weight_decay: float = setting(
        900.0,
        NOT_NEGATIVE,
        """Decoupled weight decay times the number of rows; with fewer than 3,600 rows less than
        that, as smooth functions without noise are learned from few rows, too.""",
    )
    error_weight: float = setting(
        0.5, NOT_NEGATIVE, "Weight of the squared error that is added to the likelihood."
    )
    average_weights: bool = setting(
        True, FLAG, "Use averages of the weights over the last steps as checkpoints."
    )
    n_trees: int = setting(
        30,
        COUNT_OR_ZERO,
        """Maximum number of extremely randomised trees per ensemble member; their mixture weight
        is chosen on the validation rows. 0 disables forests. With fewer than 200 different rows
        there are none.""",
    )
    n_inducing: int = setting(
        1000, COUNT, "Inducing points of the gate, at most; all rows if there are fewer."
    )
    validation_fraction: float = setting(*VALIDATION_FRACTION)
    patience: int = setting(15, COUNT_OR_ZERO, PATIENCE)
    recalibrate: bool = setting(
        True,
        FLAG,
        """Choose one factor on all scales and one bound on the degrees of freedom on the validation
        rows; with fewer than 200 rows also the share by which predictions are moved to the mean
        and the variance of y.""",
    )
    largest_hold_out: int = 1024
    n_scorings: int = 50
    """Number of validations, at most."""
    decay_per_step: float = 0.0
    """Weight decay for the number of rows: `fit_to` sets it."""
    longest_chunk: int = 1
    """Steps between two validations with the most rows that are padded to the same size."""

    def fit_to(self, n_rows: int) -> "Local":
        """Settings for so many rows: neighbourhoods, steps, validations and weight decay."""
        k, n_slots = min(self.n_neighbors, n_rows), bucket_size(n_rows)
        return replace(
            self,
            n_neighbors=k,
            n_queries=min(self.n_queries, k),
            n_steps=self.steps_for(n_rows),
            n_scorings=self.scorings_for(n_rows),
            decay_per_step=self.weight_decay / n_rows * min(1.0, n_rows / DECAYED) ** 0.8,
            longest_chunk=self.steps_for(n_slots) // self.scorings_for(n_slots),
        )

    def for_shards(self, n_shards: int) -> "Local":
        """Settings with the same steps, in at least one chunk for every shard of the rows."""
        assert self.n_steps is not None
        n_chunks = min(self.n_steps, max(self.n_scorings, n_shards))
        patience = self.patience and max(self.patience, round(PATIENT_SHARE * n_chunks))
        longest = self.n_steps // n_chunks
        return replace(self, n_scorings=n_chunks, patience=patience, longest_chunk=longest)

    def pilot(self) -> "Local":
        pilot = super().pilot()
        assert isinstance(pilot, Local)
        return replace(pilot, n_trees=0)

    def steps_for(self, n_rows: int) -> int:
        if n_rows >= FEW_ROWS:
            n_rows = max(n_rows, STEPS_AS_FOR)
        return self.n_steps or max(FEWEST_STEPS, round(self.effort * math.sqrt(n_rows)))

    def scorings_for(self, n_rows: int) -> int:
        return FEW_SCORINGS if n_rows > MANY_ROWS else self.n_scorings

    def graph_sizes(self) -> dict[str, int]:
        return {"queries": self.n_queries, "context": self.n_neighbors}

    def init(self, rows: Rows, X: Inputs, key: PRNGKeyArray) -> tuple[LocalNetwork, np.ndarray]:
        relevance = gate_relevance(rows, X, key)
        coordinates, n_outputs = np.asarray(X.coordinates), rows.y.shape[1]
        gate, own_center = create_gate(coordinates, self.n_inducing, key, relevance=relevance)
        edges = Edges.none(len(rows.features.scaling.mean), n_outputs)
        members = [
            self.create_network(
                named_generator(key, f"member {member}"), X.input_shape, n_outputs, gate, edges
            )
            for member in range(self.n_members)
        ]
        return stack_members(members), own_center

    def create_network(
        self,
        rng: np.random.Generator,
        shape: InputShape,
        n_outputs: int,
        gate: ExtrapolationGate,
        edges: Edges,
    ) -> LocalNetwork:
        """One untrained ensemble member."""
        waves = {"n_waves": self.n_waves, "n_mixtures": MIXTURES_PER_FEATURE}
        inputs = InputLayer.create(rng, shape, **waves, frequency=self.frequency)
        shared = self.hidden_sizes[: self.n_shared_layers]
        own = self.hidden_sizes[self.n_shared_layers :]
        trunk, n_inputs = None, inputs.n_outputs
        if shared:
            n_inputs = shared[-1]
            sizes = (inputs.n_outputs, shared[:-1], n_inputs)
            trunk = MLP.create(rng, *sizes, activation="silu", output_gain=2**0.5)

        def network(n_outputs: int, gain: float = 0.1) -> MLP:
            return MLP.create(rng, n_inputs, own, n_outputs, activation="silu", output_gain=gain)

        return LocalNetwork(
            inputs=inputs,
            trunk=trunk,
            embedding=network(self.embedding_size, 2 / math.sqrt(self.embedding_size)),
            mean=network(n_outputs),
            spread=create_spread(network, n_outputs, self.n_components),
            kernel=KernelParameters.create(self.prior_rows),
            gate=gate,
            edges=edges,
            factor=on_device(1.0, np.float32),
            most_df=on_device(np.inf, np.float32),
            shrinkage=on_device(0.0, np.float32),
            input_scale=self.input_scale,
            min_concentration=self.min_concentration,
            prior_variance=self.prior_variance,
        )

    def stages(self) -> tuple[Stage, ...]:
        """One stage: all parts together, by the leave-one-out likelihood."""
        n_steps = self.n_steps or FEWEST_STEPS
        decayed = {"learning_rate": self.learning_rate, "final_rate": 0.0}
        names = ("inputs", "trunk", "embedding", "mean", "spread")
        names = names if self.n_shared_layers else (names[0], *names[2:])
        parts = [Part(name=name, weight_decay=self.decay_per_step, **decayed) for name in names]
        phase = Phase(
            parts=(*parts, Part(name="kernel", **decayed)),
            objective=LeaveOneOut(self.n_primary, self.error_weight),
            graph="context",
            n_primary=self.n_primary,
            n_secondary=self.n_neighbors,
        )
        stage = Stage(
            name="distribution",
            phases=(phase,),
            n_cycles=n_steps,
            cycles_per_chunk=max(1, n_steps // self.n_scorings),
            longest_chunk=self.longest_chunk,
            predict=held_out_density,
            averages=self.average_weights,
            keep_best=self.validation_fraction > 0,
            is_scored_together=self.is_scored_together,
            patience=self.patience,
        )
        return (stage,)

    def host_work(self, prepared: Prepared, folds: Fold) -> Callable[[], GrownForests] | None:
        """Grow the forests of all members; None without forests."""
        if prepared.has_few_rows or not self.validation_fraction or not self.n_trees:
            return None
        rows = np.asarray(prepared.X.coordinates), prepared.y, prepared.rows.weight
        rng = named_generator(prepared.keys[0], "forests")
        return partial(GrownForests.grow, self.n_trees, self.n_components, *rows, folds, rng)

    def finish(self, trained: Trained) -> "LocalFitted":
        start, given = trained.prepared, trained.prepared.rows.given
        networks, forests, held_out = self.calibrate(trained)
        n_centers = int(np.sum(np.asarray(networks.gate.is_used)[0]))
        edges = fit_edges(
            np.asarray(start.X.coordinates),
            len(start.rows.features.scaling.mean),
            start.y,
            np.asarray(networks.gate.relevance)[0],
            start.rows.features.trends(),
            named_generator(start.keys[0], "edges"),
        )
        edges = jax.tree.map(lambda leaf: np.stack([leaf] * len(networks.factor)), edges)
        unit = float(given.weight.mean())
        weight = (given.weight / unit).astype(np.float32)
        return LocalFitted(
            networks=eqx.tree_at(lambda n: n.edges, networks, edges),
            rows=StoredRows(start.X, start.y, weight, given.indices),
            forests=forests,
            held_out=held_out,
            history=trained.history,
            reference=Reference(len(weight), start.n_learned, n_centers, self.n_inducing, unit),
        )

    def calibrate(self, trained: Trained) -> tuple[LocalNetwork, MemberForests | None, HeldOut]:
        """Recalibrated members, their forests if these help, and their held-out densities."""
        networks, start, grown = trained.networks, trained.prepared, trained.of_host
        if not trained.is_validated:
            return networks, None, HeldOut.none(len(networks.factor), start.y.shape[1])
        stage, forests, may_narrow = self.stages()[-1], None, not start.rows.has_replicates
        rows = trained.folds, trained.data
        if start.has_few_rows:
            if self.recalibrate:
                n = start.rows.given.n_distinct
                dist = held_out_densities(networks, *rows, stage)
                tried = few_rows_shrinkages(n), few_rows_bounds(n)
                found = cross_fitted_recalibration(dist, *rows, self.prior_variance, *tried)
                found = found.wider(few_rows_factor(n))
                networks = recalibrated(networks, found if may_narrow else found.never_narrower())
            dist = held_out_densities(networks, *rows, stage)
        elif grown is None:
            predicted = held_out_predictions(networks, *rows, stage)
            found = mixture_recalibration(predicted) if self.recalibrate else Recalibration.none()
            found = found if may_narrow else found.never_narrower()
            networks, dist = recalibrated(networks, found), found.applied_to(predicted.dist)
        else:
            predicted = held_out_predictions(networks, *rows, stage)
            repeats = max(repeat_probability(column) for column in start.y.T) > OFTEN
            samples = grown.samples, grown.of_all
            settings = repeats, self.recalibrate, may_narrow
            found, share, factor, dist = mix(predicted, *samples, *settings)
            networks = recalibrated(networks, found)
            if float(share):
                forests = MemberForests(grown.forests, float(share), float(factor))
            else:
                dist = jax.tree.map(lambda leaf: leaf[..., : self.n_components], dist)
        return jax.tree.map(np.asarray, networks), forests, held_out_mixture(dist, trained)


def create_spread(network: Callable[[int], MLP], n_outputs: int, n_components: int) -> MLP:
    """Network of the components' weights, offsets, concentrations and scales.

    The offsets start apart, or the components would never separate.
    """
    if n_components == 1:
        return network(2 * n_outputs)
    spread = network(4 * n_components * n_outputs)
    start = np.zeros((n_outputs, 4, n_components), dtype=np.float32)
    start[:, 1] = np.linspace(-FARTHEST_OFFSET, FARTHEST_OFFSET, n_components) / COMPONENT_GAIN
    biases = (*spread.biases[:-1], on_device(start.reshape(-1)))
    return eqx.tree_at(lambda mlp: mlp.biases, spread, biases)


def held_out_mixture(dist: WeightedStudentT, trained: Trained) -> HeldOut:
    """Held-out densities from those of all members: leaves (members, held out, outputs, parts)."""
    member, slot = np.nonzero(np.asarray(trained.folds.validation_weight))
    row = np.asarray(trained.folds.validation)[member, slot]

    def of_pairs(leaf: Array) -> np.ndarray:
        return np.moveaxis(np.asarray(leaf, np.float64)[member, slot], -1, 0)

    log_weight = of_pairs(dist.log_weight)
    components = jax.tree.map(of_pairs, dist.components)
    mixture = Mixture(components, None, log_weight, len(log_weight))
    n_members, rows = len(trained.folds.group), trained.prepared.rows
    return HeldOut.of_members(mixture, member, row, n_members, rows)


@final
class Reference(NamedTuple):
    """Quantities of the fit with which rows that are added later are compared."""

    n_rows: int
    """Number of stored rows that the networks learned from: the first ones."""
    n_learned: int
    """Number of rows that the networks learned from, also of those that are not stored."""
    n_centers: int
    """Number of inducing points of the gate: the first ones."""
    n_inducing: int
    """Number of inducing points up to which every added row becomes one."""
    weight_unit: float
    """Mean sample weight."""


@final
class LocalFitted(AbstractFitted):
    """Trained members, stored training rows and forests; the prediction is the mixture of all."""

    networks: LocalNetwork
    """Ensemble members along the first axis of all arrays."""
    rows: StoredRows
    forests: MemberForests | None
    """None unless they improve the validation score."""
    held_out: HeldOut
    history: dict[str, np.ndarray]
    """Validation scores (chunks, members) by stage."""
    reference: Reference
    added_factor: float = 1.0
    """Factor on the scales of predictions from added rows away from the data of the fit."""

    @cached_property
    def predictor(self) -> LocalPredictor:
        """Members with the stored rows in their metrics."""
        fitted = LocalPredictor.create(self.networks, self.rows[: self.reference.n_rows])
        return fitted.with_added(self.networks, self.added, self.novelty)

    @property
    def n_learned(self) -> int:
        """Number of rows that the networks learned from, also of those that are not stored."""
        return self.reference.n_learned

    @property
    def added(self) -> StoredRows:
        """Rows that were added after the fit."""
        return self.rows[self.reference.n_rows :]

    @property
    def novelty(self) -> Float[np.ndarray, " added"]:
        """Gate of the fit at the rows that were added later."""
        gate, n_centers = self.networks.gate, self.reference.n_centers
        is_used = np.asarray(gate.is_used) & (np.arange(gate.is_used.shape[1]) < n_centers)
        networks = eqx.tree_at(lambda n: n.gate.is_used, self.networks, is_used)
        return mean_gates(networks, self.added.X) if len(self.added) else np.zeros(0)

    @cached_property
    def bounds(self) -> tuple[Float[np.ndarray, " numbers"], Float[np.ndarray, " numbers"]]:
        """Least and largest value of every number in the stored rows, standardised."""
        numbers = np.asarray(self.rows.X.numbers)
        return numbers.min(axis=0), numbers.max(axis=0)

    def within_bounds(self, X: Inputs) -> Inputs:
        """Rows in single precision, moved into the range of the training data.

        Networks that extrapolate oscillate, each in its own way. `Edges` are the trends beyond the
        range; the gate sees the rows where they are.
        """
        n_reals = self.networks.edges.slope.shape[-2]
        return X.astype(np.float32).within(*self.bounds, n_reals)

    def density(self, X: Inputs) -> Mixture:
        X = self.within_bounds(X)
        return as_mixture(self.with_forests(self.predictor.predict(X), X))

    def gate(self, X: Inputs) -> Float[np.ndarray, " rows"]:
        return mean_gates(self.networks, self.within_bounds(X))

    def describe(self, X: Inputs) -> tuple[Mixture, dict[str, Float[np.ndarray, " rows"]]]:
        """`density`, the effective number of training rows (``evidence``) and the ``gate``."""
        X = self.within_bounds(X)
        found = self.predictor.predict(X)
        parts = {"evidence": found.count, "gate": found.gate}
        mixture = as_mixture(self.with_forests(found, X))
        return mixture, {name: np.asarray(part).mean(axis=0) for name, part in parts.items()}

    def coordinates(self, X: Inputs) -> Float[np.ndarray, "members rows metric"]:
        """Coordinates in which the learned metric of each member is Euclidean."""
        embed = partial(embed_members, self.networks)
        embedded, _ = by_blocks(embed, self.within_bounds(X), axis=1, rows_per_call=ROWS_AT_ONCE)
        return embedded.coordinates

    def with_forests(self, found: LocalPosterior, X: Inputs) -> LocalPosterior:
        """Predictions ``found`` of the networks, mixed with those of forests if there are any.

        Scales are widened as far as predictions rest on rows away from the data of the fit.
        """
        if self.forests is not None:
            rows = np.asarray(X.coordinates), self.rows.y, self.networks.prior_variance
            edges = jax.tree.map(lambda leaf: leaf[0], self.networks.edges)
            found = self.forests.mixed_with(found, *rows, edges, X.beyond)
        return found.widened(self.added_factor)

    def explain_neighbors(
        self, X: Inputs, k: int
    ) -> tuple[Int[np.ndarray, "rows k"], Float[np.ndarray, "rows k"]]:
        """Training rows that contribute most to each prediction, and their shares in the mean."""
        X, leaf_rows, share = self.within_bounds(X), None, 0.0
        if self.forests is not None:
            leaf_rows = self.forests.leaf_rows(np.asarray(X.coordinates))
            share = self.forests.share
        rows, shares = self.predictor.contributors(X, min(k, len(self.rows)), leaf_rows, share)
        return self.rows.indices[rows.astype(int)], shares

    def prediction_shape(self, X: Inputs) -> tuple[int, ...]:
        def predict(networks: LocalNetwork, rows: StoredRows, X: Inputs) -> Array:
            training_sets = embed_training_sets(networks, rows.X, rows.y, rows.weight)
            return predict_members(networks, training_sets, None, X).dist.mean

        some = self.networks, self.rows[:1], self.within_bounds(X)
        return eqx.filter_eval_shape(predict, *some).shape[1:]

    def replaced(self, predictor: LocalPredictor, **changes: Any) -> "LocalFitted":
        """Copy with other fields, and with a predictor that shares the rows of this one."""
        found = replace(self, **changes)
        vars(found)["predictor"] = predictor  # the cached property of the copy
        return found

    def check(self) -> None:
        """Raise ValueError unless the fields fit each other."""
        networks, (n_rows, _, n_centers, n_inducing, unit) = self.networks, self.reference
        if not np.all(np.asarray(networks.factor) > 0):
            raise ValueError("factors on scales must be above 0")
        is_sound = 0 < n_rows <= len(self.rows) and n_inducing > 0 and unit > 0
        is_sound &= 0 < n_centers <= np.sum(np.asarray(networks.gate.is_used)[0])
        if not (is_sound and self.added_factor >= 1):
            raise ValueError(f"{self.reference} does not fit the stored rows")
        if self.forests is not None:
            sizes = len(self.rows), networks.gate.inducing_points.shape[-1]
            self.forests.forests.check_paths(len(networks.factor), *sizes)

    def __getstate__(self) -> dict[str, Any]:
        """Fields alone: the predictor may have an index that cannot be pickled."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


DEFAULT = Local(target_map="auto")
LOCAL_PRESETS = {
    "default": DEFAULT,
    "fast": replace(DEFAULT, n_members=2, hidden_sizes=(64, 64), effort=12.0, target_map="none"),
}
