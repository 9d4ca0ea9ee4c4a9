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
from sigmax.estimators.joint_fit import FitInputs
from sigmax.estimators.sampled import AbstractSampledRegressor, create_members, no_centers
from sigmax.estimators.sampled_recipe import DROPOUT, DROPOUT_PRESETS, SampledRecipe
from sigmax.inputs import Inputs
from sigmax.networks import DropoutNetwork, TabularMLP
from sigmax.settings import store
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
        None has the layers of the other networks, more steps, and no early stop. Every setting left
        at None comes from it.
    dropout_rate : float, default 0.05
        Probability that a unit, inputs included, is dropped.
    n_draws : int, default 100
        Draws of the network in the prediction.
    n_members : int, default 1
        Networks trained; 1 is the method as published.
    hidden_sizes : tuple of int, default (128, 128) ((64, 64) in "fast", (50,) in "paper")
        Units of the hidden layers.
    activation : "relu", "silu" or "tanh", default "silu" ("relu" in "paper")
        Activation of the hidden layers.
    n_steps : int, default 20000 (1500 in "fast", 10000 in "paper")
        Training steps. Draws are noise to the training as well: it takes many.
    batch_size : int, default 256
        Rows of a batch.
    learning_rate : float, default 0.003 (0.01 in "paper")
        Step size of Adam.
    weight_decay : float, default 0.0001 (0.0 in "paper")
        Decoupled weight decay.
    decay_rate : bool, default True (False in "paper")
        Let the step sizes fall to 0 along half a cosine.
    validation_fraction : float, default 0.1 (0.0 in "paper")
        Share of rows that each member holds out to choose its best snapshot; 0 keeps the last one.
        Rows of equal X are held out together. Of fewer than 200 rows, 20 rows or 40 % are held out
        unless this is given.
    patience : int, default 0 (15 in "fast")
        Scorings without a better snapshot before training stops; 0 never stops early.
    support : "auto" or (low, high), default "auto" ((None, None) in "paper")
        Least and greatest possible value of y, of which either may be None: densities and intervals
        end there. "auto" is (0, None) if no y is negative and many are near 0 or the distribution
        is skewed, and otherwise no bound.
    categorical_features : list of str or int, optional
        Columns of ``X`` to read as categories, whatever their type says. Text, truth values and
        pandas' categories are read so anyway, but for text that is a date throughout.
    numeric_features : list of str or int, optional
        Columns of ``X`` to read as numbers, whatever their type says.
    random_state : int, RandomState, Generator or None
        Seed of all draws.
    verbose : int, default 0
        1 shows a progress bar.

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
        support=None,
        categorical_features=None,
        numeric_features=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())

    def _create_networks(
        self, X: Inputs, y: np.ndarray, recipe: SampledRecipe, key: PRNGKeyArray
    ) -> tuple[DropoutNetwork, np.ndarray]:
        def create(rng: np.random.Generator) -> DropoutNetwork:
            shape = (X.input_shape, recipe.hidden_sizes, y.shape[1])
            mlp = TabularMLP.create(rng, *shape, activation=recipe.activation)
            return DropoutNetwork(mlp, jnp.zeros(y.shape[1]), recipe.dropout_rate)

        return create_members(create, recipe, key), no_centers(X)

    def _stages(self, recipe: SampledRecipe) -> tuple[Stage, ...]:
        part = recipe.part("mean", recipe.learning_rate, recipe.weight_decay)
        return recipe.stages((part,), dropout_error, negative_squared_error)

    def _recalibrated(
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
