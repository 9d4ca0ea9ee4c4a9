"""A Bayesian neural network: a Gaussian on every weight, trained on the evidence bound."""

from typing import final

import numpy as np
from jaxtyping import PRNGKeyArray

from sigmax.estimators.sampled import AbstractSampledRegressor, create_members, no_centers
from sigmax.estimators.sampled_recipe import BAYESIAN, BAYESIAN_PRESETS, SampledRecipe
from sigmax.inputs import Inputs
from sigmax.networks import FlipoutNetwork
from sigmax.settings import store
from sigmax.training import Stage, mean_weights_log_likelihood, negative_elbo

__all__ = ["BayesianRegressor"]


@final
class BayesianRegressor(AbstractSampledRegressor):
    """Mean-field Gaussian weights with Flipout gradients (Wen et al.), and a learned noise.

    The prior of every weight is N(0, 1), over the square root of the layer's inputs. The
    prediction is the mixture of the networks under ``n_draws`` draws of all weights, each with the
    noise of the observations.

    Parameters
    ----------
    preset : None, "fast" or "paper"
        None has two hidden layers of 50 units, as wider networks fit worse; "fast" has a quarter of
        its steps. Every setting left at None comes from it.
    n_draws : int, default 100
        Draws of the network in the prediction.
    n_members : int, default 1
        Networks trained; 1 is the method as published.
    hidden_sizes : tuple of int, default (50, 50) ((50,) in "paper")
        Units of the hidden layers.
    activation : "relu", "silu" or "tanh", default "relu"
        Activation of the hidden layers.
    n_steps : int, default 20000 (5000 in "fast", 10000 in "paper")
        Training steps. Draws are noise to the training as well: it takes many.
    batch_size : int, default 256
        Rows of a batch.
    learning_rate : float, default 0.003 (0.01 in "paper")
        Step size of Adam.
    noise_learning_rate : float, default 0.03 (0.1 in "paper")
        Step size of Adam for the noise, one number that has a long way to go.
    decay_rate : bool, default True (False in "paper")
        Let the step sizes fall to 0 along half a cosine.
    validation_fraction : float, default 0.1 (0.0 in "paper")
        Share of rows that each member holds out to choose its best snapshot; 0 keeps the last one.
        Rows of equal X are held out together. Of fewer than 200 rows, 20 rows or 40 % are held out
        unless this is given.
    patience : int, default 0
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
    >>> from sigmax import BayesianRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (200, 1))
    >>> y = 3 * X[:, 0] + rng.normal(size=200)
    >>> model = BayesianRegressor(preset="fast", n_steps=300, random_state=0).fit(X, y)
    >>> sorted(model.predict_uncertainty([[5.0]]))
    ['aleatoric', 'epistemic', 'total']
    """

    default_recipe = BAYESIAN
    presets = BAYESIAN_PRESETS

    def __init__(
        self,
        preset=None,
        *,
        n_draws=None,
        n_members=None,
        hidden_sizes=None,
        activation=None,
        n_steps=None,
        batch_size=None,
        learning_rate=None,
        noise_learning_rate=None,
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
    ) -> tuple[FlipoutNetwork, np.ndarray]:
        def create(rng: np.random.Generator) -> FlipoutNetwork:
            shape = (X.input_shape, recipe.hidden_sizes, y.shape[1])
            return FlipoutNetwork.create(rng, *shape, activation=recipe.activation)

        return create_members(create, recipe, key), no_centers(X)

    def _stages(self, recipe: SampledRecipe) -> tuple[Stage, ...]:
        parts = (
            recipe.part("layers", recipe.learning_rate),
            recipe.part("raw_noise", recipe.noise_learning_rate),
        )
        return recipe.stages(parts, negative_elbo, mean_weights_log_likelihood)
