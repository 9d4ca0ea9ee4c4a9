"""Variational autoencoders as scikit-learn estimators, and their training.

A fit is a warm-up, in which the weight of the divergence grows from 0 to 1, and a second stage, in
which the validation rows choose the checkpoint. Several models can be trained at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from sigmax.compilation import on_device, stack_members
from sigmax.distributions import Predictive
from sigmax.errors import InvalidArgumentError, InvalidDataError, TrainingError
from sigmax.experts.rows import duplicate_groups, hold_out
from sigmax.extrapolation import ExtrapolationGate
from sigmax.features import Standardizer
from sigmax.generative.autoencoder import (
    LIKELIHOODS,
    Autoencoder,
    CodeLikelihood,
    Codes,
    DensityNetwork,
    FeatureUnits,
    GatedStudentLikelihood,
    Moments,
    Rows,
    VAEModel,
    divergence,
    log_determinant,
    refit_gate,
    sample_code,
    standardized,
)
from sigmax.neighbors import neighbor_graph
from sigmax.random import RandomKey, jax_key, make_key, named_generator, named_key
from sigmax.sampling import draw_batches, expected_count
from sigmax.saving import AbstractSavable
from sigmax.settings import (
    COUNT,
    COUNT_OR_ZERO,
    POSITIVE,
    SIZES,
    AbstractSettings,
    Rule,
    check_count,
    check_flag,
    number,
    one_of,
    setting,
    store,
)
from sigmax.tables.table import in_fitted_order
from sigmax.training import (
    AbstractStage,
    Graph,
    Report,
    name_keys,
    over_members,
    progress_bar,
    train_stage,
)

RELATIVE_FLOOR = 0.01  # default of `min_std`, in standard deviations of the feature
LONGEST_CHUNK = 100  # steps of one compiled call, after which the validation rows are scored
LARGEST_HOLD_OUT = 4096  # maximum number of validation rows
FEATURES_FOR_NEIGHBORS = 32  # principal components, if there are more than twice as many features
CODES_FOR_GATE = 4096  # number of codes for inducing points, and for the threshold
BATCHES_FOR_MOMENTS = 20  # before the variance is trained, and after the last step
LAST_GATE_UPDATES = 3  # after the last step


@dataclass(frozen=True, kw_only=True)
class AbstractVAESettings(AbstractSettings):
    """Settings that all autoencoders share; those without a rule are constants of the method."""

    likelihood: str
    n_latent: int = setting(2, COUNT, "Dimensions of a code.")
    hidden_sizes: tuple[int, ...] = setting((512, 256, 128), SIZES, "Layers of the encoder.")
    n_steps: int = setting(20_000, COUNT, "Training steps.")
    batch_size: int = setting(512, Rule("int", partial(check_count, minimum=2)), "Rows of a batch.")
    learning_rate: float = setting(1e-3, POSITIVE, "Step size of Adam.")
    warm_up: float = setting(
        0.5,
        number(above=0, below=1, inclusive=True),
        "Share of the steps that belong to the warm-up.",
    )
    min_std: float | None = setting(None, POSITIVE, "Smallest std of the decoder.")
    scaling: str = setting("standard", one_of(("none", "standard")), "Scaling of the features.")
    validation_fraction: float = setting(
        0.0, number(above=0, below=0.5, inclusive=True), "Share of the rows for validation."
    )
    patience: int | None = setting(
        None,
        COUNT_OR_ZERO,
        "Number of validations without a better checkpoint before training stops.",
    )
    n_inducing, n_primary, n_secondary, n_neighbors = 0, 1, 1, 1

    def create(
        self, rows: np.ndarray, scaling: Standardizer | None, rng: np.random.Generator
    ) -> Autoencoder:
        """Untrained networks for rows in the units of the networks."""
        if self.min_std is None:
            std = rows.std(axis=0, dtype=np.float64)
            floor = RELATIVE_FLOOR * np.where(std > 0, std, 1.0)
        else:
            floor = self.min_std / (np.ones(rows.shape[1]) if scaling is None else scaling.scale)
        units = FeatureUnits.create(rows, floor)
        if self.likelihood == "gated":
            likelihood = GatedStudentLikelihood.create(units, self.n_latent, self.n_inducing)
        else:
            likelihood = LIKELIHOODS[self.likelihood](units)
        code, sizes = CodeLikelihood(self.n_latent), self.hidden_sizes
        encoder = DensityNetwork.create(rng, rows.shape[1], sizes, code)
        decoder = DensityNetwork.create(rng, self.n_latent, sizes[::-1], likelihood)
        return Autoencoder(encoder, decoder)


@final
@dataclass(frozen=True, kw_only=True)
class VAESettings(AbstractVAESettings):
    """Settings of `VAE`."""

    likelihood: str = setting("normal", one_of(LIKELIHOODS), "Density of a feature given the code.")


@final
@dataclass(frozen=True, kw_only=True)
class CombVAESettings(AbstractVAESettings):
    """Settings of `CombVAE`."""

    likelihood: str = "gated"
    n_inducing: int = setting(200, COUNT, "Inducing points of the gate.")
    n_primary: int = 16
    """Centres of a locality batch: with the default `n_secondary`, it has 512 rows."""
    n_secondary: int = setting(32, COUNT, "Neighbours drawn for each centre.")
    n_neighbors: int = setting(
        50, COUNT, "Nearest neighbours of a centre from which they are drawn."
    )


@final
class GenerativeData(eqx.Module):
    """Rows of every data set, and their neighbour lists, of one row if none are needed."""

    X: Float[Array, "sets rows features"]
    graph: Graph

    @property
    def n_rows(self) -> int:
        return self.X.shape[1]


@final
class ModelRows(eqx.Module):
    """Rows that one model learns from, and its validation rows."""

    group: Int[Array, "*members"]  # number of the model: each stops early on its own
    data_set: Int[Array, "*members"]
    learned: Int[Array, "*members learned"]
    held_out: Int[Array, "*members held_out"]

    def take(self, data: GenerativeData, picks: Int[Array, "*n"]) -> Float[Array, "*n features"]:
        return data.X[self.data_set, self.learned[picks]]


def split_rows(
    n_rows: int, labels: np.ndarray | None, share: float, key: RandomKey
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, and a ``share`` of the rows for validation.

    Their numbers depend on the number of rows alone, so that models can be trained together. Rows
    with the same label are held out together (see `hold_out`); where that does not give these
    numbers, some rows are left out of validation and some are learned twice.
    """
    n_held_out = min(round(share * n_rows), LARGEST_HOLD_OUT, n_rows - 2)
    if labels is None or n_held_out <= 0:
        return np.arange(n_rows), np.empty(0, dtype=int)
    (held_out,) = hold_out(labels, share, 1, key, largest=n_held_out)
    learned = np.setdiff1d(np.arange(n_rows), held_out)
    return np.resize(learned, n_rows - n_held_out), np.sort(held_out[:n_held_out])


Vectors = tuple[Float[Array, " mean"], Float[Array, " variance"]]
Rebuild = Callable[[Vectors, Any], Autoencoder]


def split_parameters(model: Autoencoder) -> tuple[Vectors, Any, Rebuild]:
    """Parameter vectors of encoder and mean, and of the variance; fixed part; inverse function."""

    def is_fixed(node: Any) -> bool:
        return isinstance(node, Moments | FeatureUnits | ExtrapolationGate)

    arrays, rest = eqx.partition(model, eqx.is_inexact_array, is_leaf=is_fixed)
    mean, *variance = arrays.decoder.networks
    first, restore_first = ravel_pytree((arrays.encoder, mean, arrays.decoder.likelihood))
    second, restore_second = ravel_pytree(tuple(variance))

    def rebuild(vectors: Vectors, rest: Any) -> Autoencoder:
        encoder, mean, likelihood = restore_first(vectors[0])
        networks = (mean, *restore_second(vectors[1]))
        learned = Autoencoder(encoder, DensityNetwork(networks, likelihood))
        return eqx.combine(learned, rest, is_leaf=is_fixed)

    return (first, second), rest, rebuild


def bound_loss(
    model: Autoencoder, x: Rows, noise: Codes, weight: Float[Array, ""], *, is_warm_up: bool
) -> tuple[Float[Array, ""], tuple[Autoencoder, Codes, tuple]]:
    """Negative ELBO with the divergence times ``weight``; newer model, codes, terms of the ELBO."""
    code, encoder = model.encoder.learn(x)
    z, likelihood = sample_code(code, noise), model.decoder.likelihood
    if is_warm_up:
        assert isinstance(likelihood, GatedStudentLikelihood)
        mean, newer = model.decoder.networks[0].learn(z)
        density = likelihood.warm_up((mean,), z)
        decoder = eqx.tree_at(lambda d: d.networks[0], model.decoder, newer)
    else:
        density, decoder = model.decoder.learn(z)
    log_likelihood = jnp.mean(jnp.sum(density.log_prob(x), axis=1))
    kl = jnp.mean(divergence(code))
    return weight * kl - log_likelihood, (Autoencoder(encoder, decoder), z, (log_likelihood, kl))


def variance_loss(
    model: Autoencoder, x: Rows, noise: Codes, weight: Float[Array, " rows"], codes: Array
) -> Float[Array, ""]:
    """Weighted negative log-likelihood of a locality batch.

    A few neighbourhoods have other moments than the data, so batch norm takes those of the
    ``codes`` of an ordinary batch. Encoder and mean, held fixed, use their running moments.
    """
    z = lax.stop_gradient(sample_code(model.encoder(x), noise))
    mean, *variance = model.decoder.networks
    both, n_codes = jnp.concatenate([lax.stop_gradient(codes), z]), len(codes)
    outputs = [net.learn(both, n_reference=n_codes)[0][n_codes:] for net in variance]
    density = model.decoder.likelihood((lax.stop_gradient(mean(z)), *outputs), z)
    return -jnp.sum(weight * jnp.sum(density.log_prob(x), axis=1))


@final
@dataclass(frozen=True, kw_only=True)
class VAEStage(AbstractStage):
    """Steps of one kind. Steps and chunks are counted from the first stage to the last."""

    step: Literal["joint", "mean", "split"]
    """Parameters that a step trains: all at once; encoder and mean with one shared std; or encoder
    and mean first, then the variance on a locality batch."""
    n_steps: int
    steps_per_chunk: int
    first_chunk: int  # chunks of earlier stages
    n_warm_up: int
    """Steps, from the first of all, over which the weight of the divergence grows from 0 to 1."""
    batch_size: int
    learning_rate: float
    n_primary: int
    n_secondary: int

    @property
    def n_chunks(self) -> int:
        return self.n_steps // self.steps_per_chunk

    def one_chunk(self) -> "VAEStage":
        return replace(super().one_chunk(), n_steps=0, first_chunk=0, n_warm_up=0)

    def key_name(self, chunk: int) -> str:
        return f"chunk {self.first_chunk + chunk}"

    def clock(self, chunk: int) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Steps before the chunk, and steps until the divergence has its full weight."""
        n_before = (self.first_chunk + chunk) * self.steps_per_chunk
        return jnp.asarray(n_before), jnp.asarray(self.n_warm_up)

    def divergence_weights(
        self, n_before: Int[Array, ""], n_warm_up: Int[Array, ""]
    ) -> Float[Array, " steps"]:
        """Weight of the divergence in every step of a chunk."""
        done = n_before + 1 + jnp.arange(self.steps_per_chunk)
        return jnp.minimum(done / jnp.maximum(n_warm_up, 1), 1.0)

    def start(self, network: Autoencoder) -> Any:
        return tuple(map(optax.adam(self.learning_rate).init, split_parameters(network)[0]))

    def run_chunk(self, network, states, key, fold: ModelRows, data: GenerativeData, clock):
        optimizer, n_batch = optax.adam(self.learning_rate), self.batch_size
        vectors, rest, rebuild = split_parameters(network)
        # Horvitz-Thompson weight of every row: sums of a locality batch are means of all rows.
        # Validation rows are neighbours like any other, with weight 0.
        counts, k = data.graph.counts[fold.data_set], data.graph.n_neighbors
        expected = expected_count(counts, data.n_rows, k, self.n_primary, self.n_secondary)
        share = jnp.zeros(data.n_rows).at[fold.learned].add(1 / len(fold.learned))
        local_weight = share / expected

        def update(gradient, state, vector):
            updates, state = optimizer.update(gradient, state)
            return vector + jnp.asarray(updates), state

        def take_step(carry, draws):
            vectors, rest, (first_state, second_state) = carry
            picks, near, noise, weight = draws
            x = fold.take(data, picks)

            def loss(vectors: Vectors):
                batch, is_warm_up = (x, noise[:n_batch], weight), self.step == "mean"
                value, aux = bound_loss(rebuild(vectors, rest), *batch, is_warm_up=is_warm_up)
                return value, (split_parameters(aux[0])[1], *aux[1:])

            gradients, (rest, codes, terms) = jax.grad(loss, has_aux=True)(vectors)
            first, first_state = update(gradients[0], first_state, vectors[0])
            gradient, second = gradients[1], vectors[1]
            if self.step == "split":
                local = data.X[fold.data_set, near], noise[n_batch:], local_weight[near]
                gradient = jax.grad(
                    lambda vector: variance_loss(rebuild((first, vector), rest), *local, codes)
                )(second)
            if self.step != "mean":
                second, second_state = update(gradient, second_state, second)
            return ((first, second), rest, (first_state, second_state)), terms

        # Drawn at once for all steps, which compiles and runs quicker.
        n_steps, n_learned = self.steps_per_chunk, len(fold.learned)
        row_key, local_key, noise_key = jax.random.split(key, 3)
        singles = jnp.arange(n_learned)[:, None]
        picks = draw_batches(row_key, n_steps, singles, jnp.asarray(n_learned), n_batch, 1)
        near = jnp.zeros((n_steps, 0), dtype=jnp.int32)
        if self.step == "split":
            neighbors, n_rows = data.graph.neighbors[fold.data_set], jnp.asarray(data.n_rows)
            sizes = self.n_primary, self.n_secondary
            near = draw_batches(local_key, n_steps, neighbors, n_rows, *sizes)
        shape = n_steps, n_batch + near.shape[1], network.n_latent
        noise = jax.random.normal(noise_key, shape)
        steps = picks, near, noise, self.divergence_weights(*clock)
        carry, (log_likelihood, kl) = lax.scan(take_step, (vectors, rest, states), steps)
        figures = {"log_likelihood": jnp.mean(log_likelihood), "kl": jnp.mean(kl)}
        return rebuild(*carry[:2]), carry[2], figures

    def validate(self, network, fold: ModelRows, data: GenerativeData) -> tuple[Array, None]:
        x = data.X[fold.data_set, fold.held_out]
        code = network.encoder(x)
        noise = jax.random.normal(jax.random.key(0), code.shape)  # always this one: less variance
        log_prob = network.decoder(sample_code(code, noise)).log_prob(x)
        return jnp.mean(jnp.sum(log_prob, axis=1) - divergence(code)), None

    def before_chunk(self, networks, keys, folds: ModelRows, data, chunk: int) -> Autoencoder:
        """Refit the gate to the present codes, where the variance is trained."""
        if self.step != "split":
            return networks
        if chunk == 0:
            switch_keys = name_keys(keys, "switch")
            networks = refresh_moments(networks, switch_keys, folds, data, self.batch_size)
        gate_keys = name_keys(keys, f"gate {self.first_chunk + chunk}")
        return update_gates(networks, gate_keys, folds, data)

    def describe(self, figures: dict[str, np.ndarray]) -> str:
        return f"ELBO {np.mean(figures['log_likelihood'] - figures['kl']):.2f}"


def create_stages(
    settings: AbstractVAESettings, n_learned: int, n_held_out: int
) -> tuple[VAEStage, ...]:
    """Warm-up, unless there is none, and the stage after it, whose validation scores count.

    Chunks have one length, so that the last may have a few steps too many, and there are at least
    two where the steps of the warm-up differ from the others.
    """
    n_steps, n_rows = settings.n_steps, n_learned + n_held_out
    is_apart = settings.likelihood == "gated"
    fewest = min(n_steps, 2) if is_apart and settings.warm_up else 1
    n_chunks = max(fewest, -(-n_steps // LONGEST_CHUNK))
    length = -(-n_steps // n_chunks)
    n_warm_up = round(settings.warm_up * n_chunks)
    n_first = min(n_warm_up, n_chunks - 1)
    last = VAEStage(
        name="training",
        keep_best=n_held_out > 0,
        patience=settings.patience or 0,
        step="split" if is_apart else "joint",
        n_steps=(n_chunks - n_first) * length,
        steps_per_chunk=length,
        first_chunk=n_first,
        n_warm_up=n_warm_up * length,
        batch_size=min(settings.batch_size, n_learned),
        learning_rate=settings.learning_rate,
        n_primary=min(settings.n_primary, n_rows),
        n_secondary=min(settings.n_secondary, settings.n_neighbors, n_rows),
    )
    if not n_first:
        return (last,)
    step = "mean" if is_apart else "joint"
    own = {"n_steps": n_first * length, "first_chunk": 0}
    return replace(last, name="warm-up", patience=0, step=step, **own), last


@partial(over_members, n_mapped=3)
def update_gates(
    model: Autoencoder, key: PRNGKeyArray, fold: ModelRows, data: GenerativeData
) -> Autoencoder:
    likelihood = model.decoder.likelihood
    assert isinstance(likelihood, GatedStudentLikelihood)
    row_key, noise_key, center_key = jax.random.split(key, 3)
    picks = jax.random.randint(row_key, (2 * CODES_FOR_GATE,), 0, len(fold.learned))
    code = model.encoder(fold.take(data, picks))
    codes = sample_code(code, jax.random.normal(noise_key, code.shape))
    old, new = jnp.split(codes, 2)
    gate = refit_gate(likelihood.gate, old, new, center_key)
    return eqx.tree_at(lambda m: m.decoder.likelihood.gate, model, gate)


@partial(over_members, n_mapped=3)
def refresh_moments(
    model: Autoencoder, key: PRNGKeyArray, fold: ModelRows, data: GenerativeData, n_batch: int
) -> Autoencoder:
    """``model`` with moments averaged over ordinary batches: running ones lag behind."""
    row_key, noise_key = jax.random.split(key)
    shape = (BATCHES_FOR_MOMENTS, n_batch)
    picks = jax.random.randint(row_key, shape, 0, len(fold.learned))
    noise = jax.random.normal(noise_key, (*shape, model.n_latent))
    numbers = jnp.arange(BATCHES_FOR_MOMENTS, dtype=jnp.float32)

    def refresh(model, draws):
        picks, noise, number = draws
        keep = number / (number + 1)
        code, encoder = model.encoder.learn(fold.take(data, picks), keep)
        _, decoder = model.decoder.learn(sample_code(code, noise), keep)
        return Autoencoder(encoder, decoder), None

    return lax.scan(refresh, model, (picks, noise, numbers))[0]


def search_neighbors(X: np.ndarray, k: int) -> np.ndarray:
    """Lists of near rows, each row first in its own."""
    if k == 1:
        return np.arange(len(X), dtype=np.int32)[:, None]
    if X.shape[1] > 2 * FEATURES_FOR_NEIGHBORS:
        from sklearn.decomposition import PCA

        n_components = min(FEATURES_FOR_NEIGHBORS, *X.shape)
        X = PCA(n_components, svd_solver="randomized", random_state=0).fit_transform(X)
    return neighbor_graph(X, k)


def fit_models(
    settings: AbstractVAESettings,
    sets: Sequence[np.ndarray],
    keys: Sequence[RandomKey],
    verbose: int,
) -> list[VAEModel]:
    """Models of several data sets in one training; sets that are the same object are kept once."""
    distinct = list({id(X): X for X in sets}.values())
    if any(X.shape != distinct[0].shape for X in distinct):
        raise InvalidArgumentError("Models that are fitted together need data of the same shape.")
    data_sets = [[id(X) for X in distinct].index(id(own)) for own in sets]
    is_scaled = settings.scaling == "standard"
    scalings = [Standardizer.fit(X, np.ones(len(X))) if is_scaled else None for X in distinct]
    rows = [standardized(X, own) for X, own in zip(distinct, scalings, strict=True)]
    share, n_rows = settings.validation_fraction, len(rows[0])
    labels = [duplicate_groups(own) if share else None for own in rows]
    splits, networks = [], []
    for own, key in zip(data_sets, keys, strict=True):
        rng = named_generator(key, "networks")
        networks.append(settings.create(rows[own], scalings[own], rng))
        splits.append(split_rows(n_rows, labels[own], share, key))
    learned, held_out = map(np.stack, zip(*splits, strict=True))
    parts = np.arange(len(sets)), np.asarray(data_sets), learned, held_out
    folds = ModelRows(*(on_device(part, np.int32) for part in parts))
    stages = create_stages(settings, learned.shape[1], held_out.shape[1])
    with progress_bar(stages, visible=verbose > 0) as report:
        lists = [search_neighbors(own, min(settings.n_neighbors, n_rows)) for own in rows]
        data = GenerativeData(on_device(np.stack(rows)), Graph.create(lists, n_rows))
        own_keys = jnp.stack([jax_key(named_key(key, "training")) for key in keys])
        trained, histories = train(stack_members(networks), own_keys, folds, data, stages, report)
    trained = jax.tree.map(np.asarray, trained)  # slices of NumPy arrays need no compilation
    models = []
    for i, (own, history) in enumerate(zip(data_sets, histories, strict=True)):
        autoencoder = jax.tree.map(lambda leaf, i=i: on_device(leaf[i]), trained)
        found = as_history(history, stages[0], log_determinant(scalings[own]))
        models.append(VAEModel(autoencoder, scalings[own], found))
    return models


def train(
    networks: Autoencoder,
    keys: Key[Array, " members"],
    folds: ModelRows,
    data: GenerativeData,
    stages: Sequence[VAEStage],
    report: Report | None,
) -> tuple[Autoencoder, list[dict[str, np.ndarray]]]:
    """Train all models through all stages; return the networks and the history of each."""
    best, states, parts = networks, None, []
    for stage in stages:
        members, found = train_stage(networks, keys, folds, data, stage, report, states=states)
        best, networks, states = members.best, members.network, members.states
        parts.append(found)
    histories = [
        {name: np.concatenate([part[name][:, 0] for part in own]) for name in own[0]}
        for own in zip(*parts, strict=True)
    ]
    last = stages[-1]
    finish_keys = name_keys(keys, "finish")
    networks = refresh_moments(best, finish_keys, folds, data, last.batch_size)
    for update in range(LAST_GATE_UPDATES if last.step == "split" else 0):
        networks = update_gates(networks, name_keys(keys, f"last gate {update}"), folds, data)
    return networks, histories


def as_history(
    history: dict[str, np.ndarray], stage: VAEStage, log_unit: float
) -> dict[str, np.ndarray]:
    """Means over the chunks of training, in the units of X; an error if they are not finite."""
    likelihood, kl = history["log_likelihood"].astype(np.float64) - log_unit, history["kl"]
    step, elbo = stage.steps_per_chunk * (1 + np.arange(len(kl))), likelihood - kl
    if not np.isfinite(elbo[-1]):
        raise TrainingError(
            f"The training broke down before step {step[np.argmin(np.isfinite(elbo))]}:"
            " use a smaller `learning_rate` or a larger `min_std`."
        )
    found = {"step": step, "elbo": elbo, "log_likelihood": likelihood, "kl": kl}
    if stage.keep_best:
        found["held_out_elbo"] = history["score"].astype(np.float64) - log_unit
    return found


V = TypeVar("V", bound="AbstractVAE")  # beartype knows no Self


class AbstractVAE(AbstractSavable):
    """A variational autoencoder with a standard Normal prior; a final class has its settings."""

    model_type = VAEModel
    presets: ClassVar[Mapping[str, AbstractVAESettings]]  # settings by name, those of "default"
    model_: VAEModel
    n_latent: int
    n_steps: int
    hidden_sizes: tuple[int, ...]
    random_state: Any
    verbose: Any

    def fit(self: V, X, y=None) -> V:
        """Fit the model to the rows of ``X``.

        A fit that fails or is interrupted leaves the model unchanged.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y
            Ignored.

        Returns
        -------
        self
        """
        fit_together([self], [X])
        return self

    @property
    def history_(self) -> dict[str, list]:
        check_is_fitted(self, "model_")
        return {name: values.tolist() for name, values in self.model_.history.items()}

    def encode(self, X) -> NDArray[np.float64]:
        """Compute the means of the codes.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        array of shape (n, n_latent)
        """
        return self.encode_dist(X).mean

    def encode_dist(self, X) -> Predictive:
        """Compute the distribution q(z | x) of the code of every row.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        Predictive
            One Normal distribution per latent dimension, of shape (n, n_latent).
        """
        rows = self._read(X)
        return Predictive(self.model_.encode(rows))

    def decode_dist(self, z) -> Predictive:
        """Compute the distribution p(x | z) for every code.

        Parameters
        ----------
        z : array-like of shape (n, n_latent)

        Returns
        -------
        Predictive
            One distribution per feature, in the units of X, of shape (n, d).
        """
        codes = self._check_codes(z)
        return Predictive(self.model_.decode(codes))

    def reconstruct(self, X) -> NDArray[np.float64]:
        """Compute the mean of the decoder at the mean of every row's code.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        array of shape (n, d)
        """
        return self.decode_dist(self.encode(X)).mean

    def sample(
        self, n: int = 1, with_noise: bool = True, random_state: Any = None
    ) -> NDArray[np.float64]:
        """Draw new rows: codes from the prior, then features from the decoder's distribution.

        Parameters
        ----------
        n : int
            Number of rows.
        with_noise : bool
            False to return the mean of the decoder's distribution instead of a draw.
        random_state : int, RandomState, Generator or None

        Returns
        -------
        array of shape (n, d)
        """
        check_is_fitted(self)
        n, with_noise = check_count("n", n), check_flag("with_noise", with_noise)
        rng = named_generator(make_key(random_state), "samples")
        dist = self.decode_dist(rng.normal(size=(n, self.model_.autoencoder.n_latent)))
        if not with_noise:
            return dist.mean
        return dist.sample(1, random_state=int(rng.integers(2**31 - 1)))[0]

    def elbo(self, X, n_samples: int = 1, random_state: Any = 0) -> NDArray[np.float64]:
        """Compute the evidence lower bound of every row.

        Parameters
        ----------
        X : array-like of shape (n, d)
        n_samples : int
            Number of draws of each code.
        random_state : int, RandomState, Generator or None

        Returns
        -------
        array of shape (n,)
        """
        return self._bounds(X, n_samples, random_state)[0]

    def log_prob(self, X, n_samples: int = 500, random_state: Any = 0) -> NDArray[np.float64]:
        """Compute a lower bound of log p(x) for every row, by importance sampling with q(z | x).

        The bound increases with ``n_samples``, up to the marginal likelihood; the memory used does
        not.

        Parameters
        ----------
        X : array-like of shape (n, d)
        n_samples : int
            Number of draws of each code.
        random_state : int, RandomState, Generator or None

        Returns
        -------
        array of shape (n,)
        """
        return self._bounds(X, n_samples, random_state)[1]

    def score(self, X, y=None) -> float:
        """Compute the mean of `log_prob`.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y
            Ignored.

        Returns
        -------
        float
        """
        return float(self.log_prob(X).mean())

    def _bounds(self, X, n_samples: int, random_state: Any) -> tuple[np.ndarray, np.ndarray]:
        n_samples, rows = check_count("n_samples", n_samples), self._read(X)
        return self.model_.bounds(rows, jax_key(make_key(random_state)), n_samples)

    def _read(self, X, *, reset: bool = False) -> np.ndarray:
        """Checked rows; with ``reset`` the columns are those of a fit."""
        if not reset:
            check_is_fitted(self)
            X = in_fitted_order(self, X)
        types, fewest = (np.float64, np.float32), 2 if reset else 1
        return np.asarray(
            validate_data(self, X, reset=reset, dtype=types, ensure_min_samples=fewest)
        )

    def _check_codes(self, z) -> np.ndarray:
        check_is_fitted(self)
        try:
            codes = check_array(z, dtype="float32", input_name="z")
        except (TypeError, ValueError) as error:
            raise InvalidDataError(f"`z` cannot be used: {error}") from None
        if codes.shape[1] != self.model_.autoencoder.n_latent:
            rule = f"an array of shape (n, {self.model_.autoencoder.n_latent})"
            raise InvalidDataError(f"`z` must be {rule}, got shape {codes.shape}.")
        return codes

    def _settings(self) -> AbstractVAESettings:
        check_count("verbose", self.verbose, minimum=0)
        return self.presets["default"].override(self.get_params(deep=False))


def fit_together(models: Sequence[AbstractVAE], sets: Sequence[Any]) -> None:
    """Fit each model to its own ``X``, all in one training.

    The models share class and settings, up to the seed, and the sets one shape; sets that are the
    same object are kept once. Every model ends as if it had been fitted alone, up to rounding; one
    compilation serves them all, and they are spread over all devices. A training that fails or is
    interrupted leaves all models as they were.
    """
    settings = [model._settings() for model in models]
    if len(models) != len(sets) or not models or any(own != settings[0] for own in settings):
        raise InvalidArgumentError(
            "Models that are fitted together need the same class and settings, and one set each."
        )
    clones = [model.unfitted() for model in models]
    read = [clone._read(X, reset=True) for clone, X in zip(clones, sets, strict=True)]
    first = {id(X): number for number, X in reversed(list(enumerate(sets)))}
    rows = [read[first[id(X)]] for X in sets]
    keys = [make_key(model.random_state) for model in models]
    fitted = fit_models(settings[0], rows, keys, models[0].verbose)
    for model, clone, value in zip(models, clones, fitted, strict=True):
        model.become(clone, value)


@final
class VAE(AbstractVAE):
    """A variational autoencoder (Kingma and Welling; Rezende, Mohamed and Wierstra).

    Encoder and decoder are perceptrons with batch norm and ReLU, one for the mean and one for each
    further parameter, all trained at once by Adam.

    Parameters
    ----------
    likelihood : "normal", "shared" or "student"
        Density of a feature given the code: "normal" is a Normal with a standard deviation from the
        decoder; "shared" a Normal with one learned standard deviation for all rows and features
        (the σ-VAE); "student" a Student-t with scale and degrees of freedom from the decoder.
    n_latent : int
        Dimensions of a code.
    hidden_sizes : tuple of int
        Hidden layers of the encoder's networks; those of the decoder are the same, mirrored.
    n_steps : int
        Training steps, rounded up to whole chunks of up to 100.
    batch_size : int
        Rows of a batch.
    learning_rate : float
        Step size of Adam.
    warm_up : float
        Share of the steps in which the weight of the divergence grows from 0 to 1.
    min_std : float, optional
        Smallest standard deviation (scale, for Student-t) of the decoder in the units of X; None is
        0.01 standard deviations of each feature. Without one the likelihood is unbounded.
    scaling : "none" or "standard"
        "standard" standardises the features; "none" passes X to the networks as it is (images
        between 0 and 1).
    validation_fraction : float
        Share of the rows that is held out to choose the best checkpoint after the warm-up, by their
        ELBO; 0 keeps the last one. Equal rows are held out together.
    patience : int, optional
        Validations, one per chunk, without a better checkpoint before training stops; 0 or None
        never stops early. Without validation rows it has no effect.
    random_state : int, RandomState, Generator or None
        Seed of all draws.
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    history_ : dict of lists
        ELBO, log-likelihood and divergence of the training batches after each chunk, and the ELBO
        of the validation rows.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 4)) * [1.0, 2.0, 3.0, 4.0]
    >>> settings = {"hidden_sizes": (32,), "batch_size": 128, "n_steps": 100}
    >>> vae = VAE(**settings, random_state=0).fit(X)
    >>> vae.sample(5).shape, vae.encode(X).shape, vae.decode_dist([[0.0, 0.0]])
    ((5, 4), (200, 2), Predictive(Normal, shape=(1, 4)))
    """

    presets = MappingProxyType({"default": VAESettings()})

    def __init__(
        self,
        likelihood="normal",
        *,
        n_latent=2,
        hidden_sizes=(512, 256, 128),
        n_steps=20_000,
        batch_size=512,
        learning_rate=1e-3,
        warm_up=0.5,
        min_std=None,
        scaling="standard",
        validation_fraction=0.0,
        patience=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())


@final
class CombVAE(AbstractVAE):
    """A variational autoencoder whose decoder variance is trained by the Combined method.

    The four ideas of `CombinedRegressor`, in latent space. The variance given a code is
    inverse-Gamma, so that a feature is Student-t. It is trained on batches of neighbours in data
    space with Horvitz-Thompson weights, and never in the same step as the mean: in the warm-up
    encoder and mean learn alone, with one shared standard deviation; after it, steps of encoder and
    mean alternate with steps of the variance networks. Far from all codes the variance tends to
    that of each feature in the data. The inducing points of the gate follow the codes: they are
    refitted, on draws of q(z | x), before every chunk of training and after the last.

    Parameters
    ----------
    n_latent, hidden_sizes, n_steps, batch_size, learning_rate, warm_up, min_std, scaling
        As in `VAE`.
    n_inducing : int
        Inducing points of the gate.
    n_secondary : int
        Neighbours drawn of each of the 16 centres of a locality batch.
    n_neighbors : int
        Neighbours of a centre to draw from, at most the number of rows. With more than 64 features,
        they are nearest in the first 32 principal components.
    validation_fraction, patience, random_state, verbose
        As in `VAE`.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 4)) * [1.0, 2.0, 3.0, 4.0]
    >>> settings = {"hidden_sizes": (32,), "batch_size": 128, "n_steps": 100}
    >>> vae = CombVAE(**settings, random_state=0).fit(X)
    >>> far = vae.decode_dist([[1000.0, 0.0]])
    >>> far, bool(np.allclose(far.variance, X.var(axis=0), rtol=0.01))
    (Predictive(StudentT, shape=(1, 4)), True)
    """

    presets = MappingProxyType({"default": CombVAESettings()})

    def __init__(
        self,
        *,
        n_latent=2,
        hidden_sizes=(512, 256, 128),
        n_steps=20_000,
        batch_size=512,
        learning_rate=1e-3,
        warm_up=0.5,
        min_std=None,
        scaling="standard",
        n_inducing=200,
        n_secondary=32,
        n_neighbors=50,
        validation_fraction=0.0,
        patience=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())

    def gate(self, z) -> NDArray[np.float64]:
        """Compute the gate of every code.

        Parameters
        ----------
        z : array-like of shape (n, n_latent)

        Returns
        -------
        array of shape (n,)
            0 near the codes of the data, 1 far from them.
        """
        codes = self._check_codes(z)
        return self.model_.gate(codes)
