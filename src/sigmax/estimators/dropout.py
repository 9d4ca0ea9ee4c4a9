"""MC-Dropout: a network with dropout, read as a sample from a posterior."""

from dataclasses import replace
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from sigmax.checks import check_number
from sigmax.distributions import Mixture, Normal
from sigmax.estimators.recipe import DEFAULT, Recipe
from sigmax.estimators.sampled import AbstractSampledRegressor, create_members, no_centers
from sigmax.networks import MLP, DropoutNetwork
from sigmax.training import Fold, Stage, TrainingData, dropout_error, negative_squared_error

__all__ = ["MCDropoutRegressor"]

DROPOUT = replace(DEFAULT, n_steps=20_000, patience=None)
"""Masks are noise to the training as well: many steps, all the way down the cosine."""

LOG_PRECISIONS = np.linspace(np.log(1e-2), np.log(1e6), 241)


@final
class MCDropoutRegressor(AbstractSampledRegressor):
    """Dropout before every weight layer, kept on in prediction (Gal and Ghahramani).

    Trained on the squared error. The precision of the observations is the one that makes the
    held-out rows likeliest; the prediction is the mixture of the networks under ``n_draws`` masks,
    each with that noise.

    Parameters
    ----------
    preset : None, "fast" or "paper"
        None is the default of the other networks with more steps, and no early stop.
    dropout_rate : float
        Chance of a unit, inputs included, to be dropped.
    n_draws : int
        Masks in the prediction.
    n_members : int
        Networks trained; 1 is the method as published.
    hidden_sizes, activation, n_steps, batch_size, decay_rate, validation_fraction, patience, \
random_state, verbose
        As in `CombinedRegressor`.
    learning_rate, weight_decay : pair of float
        The first entry is used.

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

    def __init__(
        self,
        preset=None,
        *,
        dropout_rate=0.05,
        n_draws=100,
        n_members=1,
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
        self, X: np.ndarray, n_outputs: int, recipe: Recipe, key: PRNGKeyArray
    ) -> tuple[DropoutNetwork, np.ndarray]:
        rate = check_number("dropout_rate", self.dropout_rate, above=0, below=0.9, inclusive=True)

        def create(rng: np.random.Generator) -> DropoutNetwork:
            shape = (X.shape[1], recipe.hidden_sizes, n_outputs)
            mlp = MLP.create(rng, *shape, activation=recipe.activation)
            return DropoutNetwork(mlp, jnp.zeros(n_outputs), rate)

        return create_members(create, recipe, key), no_centers(X)

    def _stages(self, recipe: Recipe) -> tuple[Stage, ...]:
        return (self._one_stage(recipe, ("mean",), dropout_error, negative_squared_error),)

    def _finish(
        self, networks: DropoutNetwork, folds: Fold, data: TrainingData, recipe: Recipe
    ) -> DropoutNetwork:
        precisions = held_out_precision(networks, folds, data, self.n_draws)
        return eqx.tree_at(lambda n: n.log_precision, networks, precisions)


@eqx.filter_jit
def held_out_precision(
    networks: DropoutNetwork, folds: Fold, data: TrainingData, n_draws: int
) -> Float[Array, "members outputs"]:
    """The log precision, per member and output, that makes its held-out rows likeliest."""
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
