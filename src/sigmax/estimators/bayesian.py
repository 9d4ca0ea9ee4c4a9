"""A Bayesian neural network: a Gaussian on every weight, trained on the evidence bound."""

from typing import final

import numpy as np
from jaxtyping import PRNGKeyArray

from sigmax.estimators.sampled import AbstractSampledRegressor, create_members, no_centers
from sigmax.estimators.sampled_recipe import BAYESIAN, BAYESIAN_PRESETS, SampledRecipe
from sigmax.networks import FlipoutNetwork
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
        its steps.
    n_draws : int
        Draws of all weights in the prediction.
    n_members : int
        Networks trained; 1 is the method as published.
    hidden_sizes, activation, n_steps, batch_size, decay_rate, validation_fraction, patience, \
random_state, verbose
        As in `CombinedRegressor`.
    learning_rate, noise_learning_rate : float
        Step sizes of Adam for the weights, and for the noise, which has a long way to go.

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
        random_state=None,
        verbose=0,
    ):
        self.preset = preset
        self.n_draws = n_draws
        self.n_members = n_members
        self.hidden_sizes = hidden_sizes
        self.activation = activation
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.noise_learning_rate = noise_learning_rate
        self.decay_rate = decay_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose

    def _create_networks(
        self, X: np.ndarray, n_outputs: int, recipe: SampledRecipe, key: PRNGKeyArray
    ) -> tuple[FlipoutNetwork, np.ndarray]:
        def create(rng: np.random.Generator) -> FlipoutNetwork:
            shape = (X.shape[1], recipe.hidden_sizes, n_outputs)
            return FlipoutNetwork.create(rng, *shape, activation=recipe.activation)

        return create_members(create, recipe, key), no_centers(X)

    def _stages(self, recipe: SampledRecipe) -> tuple[Stage, ...]:
        parts = (
            recipe.part("layers", recipe.learning_rate),
            recipe.part("raw_noise", recipe.noise_learning_rate),
        )
        return recipe.stages(parts, negative_elbo, mean_weights_log_likelihood)
