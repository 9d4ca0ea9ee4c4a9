"""A Bayesian neural network: a Gaussian on every weight, trained on the evidence bound."""

from dataclasses import replace
from typing import final

import numpy as np
from jaxtyping import PRNGKeyArray

from sigmax.estimators.recipe import DEFAULT, Recipe
from sigmax.estimators.sampled import AbstractSampledRegressor, create_members, no_centers
from sigmax.networks import FlipoutNetwork
from sigmax.training import Stage, mean_weights_log_likelihood, negative_evidence

__all__ = ["BayesianRegressor"]


BAYESIAN = replace(DEFAULT, hidden_sizes=(50, 50), activation="relu", n_steps=20_000, patience=None)
"""Every weight costs evidence: in wider networks more of them fall back to the prior."""


@final
class BayesianRegressor(AbstractSampledRegressor):
    """Mean-field Gaussian weights with Flipout gradients (Wen et al.), and a learned noise.

    The prior of every weight is N(0, 1), over the square root of the layer's inputs. The
    prediction is the mixture of the networks under ``n_draws`` draws of all weights, each with the
    noise of the observations.

    Parameters
    ----------
    preset : None, "fast" or "paper"
        None has two hidden layers of 50 units, as wider networks fit worse.
    n_draws : int
        Draws of all weights in the prediction.
    n_members : int
        Networks trained; 1 is the method as published.
    hidden_sizes, activation, n_steps, batch_size, decay_rate, validation_fraction, patience, \
random_state, verbose
        As in `CombinedRegressor`.
    learning_rate : pair of float
        (For the weights, for the noise.)

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

    def __init__(
        self,
        preset=None,
        *,
        n_draws=100,
        n_members=1,
        hidden_sizes=None,
        activation=None,
        n_steps=None,
        batch_size=None,
        learning_rate=None,
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
        self.decay_rate = decay_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose

    def recipe(self) -> Recipe:
        """All settings in force; the prior takes the place of weight decay.

        The noise is one number per output and has a long way to go: it may take larger steps.
        """
        recipe = super().recipe().override(weight_decay=(0.0, 0.0))
        if self.learning_rate is None:
            weights, _ = recipe.learning_rate
            recipe = recipe.override(learning_rate=(weights, 10 * weights))
        return recipe

    def _create_networks(
        self, X: np.ndarray, n_outputs: int, recipe: Recipe, key: PRNGKeyArray
    ) -> tuple[FlipoutNetwork, np.ndarray]:
        def create(rng: np.random.Generator) -> FlipoutNetwork:
            shape = (X.shape[1], recipe.hidden_sizes, n_outputs)
            return FlipoutNetwork.create(rng, *shape, activation=recipe.activation)

        return create_members(create, recipe, key), no_centers(X)

    def _stages(self, recipe: Recipe) -> tuple[Stage, ...]:
        parts = ("layers", "raw_noise")
        score = mean_weights_log_likelihood
        return (self._one_stage(recipe, parts, negative_evidence, score),)
