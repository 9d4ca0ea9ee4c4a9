"""MC-Dropout: a network with dropout, read as a sample from a posterior."""

import math
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from sigmax.compilation import compiled
from sigmax.distributions import Mixture, Normal
from sigmax.estimators.few_rows import few_rows_factor
from sigmax.estimators.members import FitInputs
from sigmax.estimators.sampled import AbstractSampledRegressor, create_members, no_centers
from sigmax.estimators.sampled_recipe import DROPOUT, DROPOUT_PRESETS, SampledRecipe
from sigmax.networks import MLP, DropoutNetwork
from sigmax.training import Fold, Stage, TrainingData, dropout_error, negative_squared_error

__all__ = ["MCDropoutRegressor"]

MOST_ROWS = 4096
"""Training rows that choose the precision where nothing is held out, at most."""

LOG_PRECISIONS = np.linspace(np.log(1e-2), np.log(1e6), 241)


@final
class MCDropoutRegressor(AbstractSampledRegressor):
    """Dropout before every weight layer, kept on in prediction (Gal and Ghahramani).

    Trained on the squared error. The precision of the observations is the one that makes the
    held-out rows likeliest or, where nothing is held out, the training rows, which is too high if
    the network overfits. The prediction is the mixture of the networks under ``n_draws`` masks,
    each with that noise.

    Parameters
    ----------
    preset : None, "fast" or "paper"
        None has the layers of the other networks, more steps, and no early stop.
    dropout_rate : float
        Chance of a unit, inputs included, to be dropped.
    n_draws : int
        Masks in the prediction.
    n_members : int
        Networks trained; 1 is the method as published.
    hidden_sizes, activation, n_steps, batch_size, decay_rate, validation_fraction, patience, \
random_state, verbose
        As in `CombinedRegressor`.
    learning_rate, weight_decay : float
        Step size and decoupled weight decay of Adam.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import MCDropoutRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (200, 1))
    >>> y = 3 * X[:, 0] + rng.normal(size=200)
    >>> model = MCDropoutRegressor(preset="fast", n_steps=300, random_state=0).fit(X, y)
    >>> model.predict_interval([[1.0], [9.0]], coverage=0.9).shape
    (2, 2)
    """

    default_recipe = DROPOUT
    presets = DROPOUT_PRESETS

    def __init__(
        self,
        preset=None,
        *,
        dropout_rate=None,
        n_draws=None,
        n_members=None,
        hidden_sizes=None,
        activation=None,
        n_steps=None,
        batch_size=None,
        learning_rate=None,
        weight_decay=None,
        decay_rate=None,
        validation_fraction=None,
        patience=None,
        random_state=None,
        verbose=0,
    ):
        self.preset = preset
        self.dropout_rate = dropout_rate
        self.n_draws = n_draws
        self.n_members = n_members
        self.hidden_sizes = hidden_sizes
        self.activation = activation
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.decay_rate = decay_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose

    def _create_networks(
        self, X: np.ndarray, n_outputs: int, recipe: SampledRecipe, key: PRNGKeyArray
    ) -> tuple[DropoutNetwork, np.ndarray]:
        def create(rng: np.random.Generator) -> DropoutNetwork:
            shape = (X.shape[1], recipe.hidden_sizes, n_outputs)
            mlp = MLP.create(rng, *shape, activation=recipe.activation)
            return DropoutNetwork(mlp, jnp.zeros(n_outputs), recipe.dropout_rate)

        return create_members(create, recipe, key), no_centers(X)

    def _stages(self, recipe: SampledRecipe) -> tuple[Stage, ...]:
        part = recipe.part("mean", recipe.learning_rate, recipe.weight_decay)
        return recipe.stages((part,), dropout_error, negative_squared_error)

    def _finish(
        self, networks: DropoutNetwork, folds: Fold, data: TrainingData, inputs: FitInputs
    ) -> DropoutNetwork:
        if not inputs.recipe.validation_fraction:
            folds = judged_by_training(folds)
        precisions = best_precision(networks, folds, data, inputs.recipe.n_draws)
        if inputs.has_few_rows:
            precisions = precisions - 2 * math.log(few_rows_factor(inputs.n_distinct))
        return eqx.tree_at(lambda n: n.log_precision, networks, precisions)


def judged_by_training(folds: Fold) -> Fold:
    """The folds with some rows that each member learns from in the place of held-out ones."""
    weight = np.asarray(folds.weight)
    n_rows = min(int(folds.n_learned.min()), MOST_ROWS)
    rows = np.stack([np.flatnonzero(row)[:n_rows] for row in weight]).astype(np.int32)
    share = np.take_along_axis(weight, rows, axis=1)
    share = share / share.sum(axis=1, keepdims=True)
    return eqx.tree_at(lambda f: (f.validation, f.validation_weight), folds, (rows, share))


@compiled
def best_precision(
    networks: DropoutNetwork, folds: Fold, data: TrainingData, n_draws: int
) -> Float[Array, "members outputs"]:
    """The log precision, per member and output, that makes its validation rows likeliest."""
    keys = jax.random.split(jax.random.key(1), n_draws)

    def choose(network, fold, data):
        rows = data.rows(fold.group, fold.validation, fold.validation_weight)
        means = jax.vmap(lambda key: network(rows.X, key, shared=True))(keys)

        def score(log_precision):
            std = jnp.broadcast_to(jnp.exp(-0.5 * log_precision), means.shape)
            log_prob = Mixture(Normal(means, std)).log_prob(rows.y)
            return jnp.sum(rows.weight[:, None] * log_prob, axis=0)

        grid = jnp.asarray(LOG_PRECISIONS, dtype=jnp.float32)
        return grid[jnp.argmax(lax.map(score, grid), axis=0)]

    axes = (eqx.if_array(0), eqx.if_array(0), None)
    return eqx.filter_vmap(choose, in_axes=axes)(networks, folds, data)
