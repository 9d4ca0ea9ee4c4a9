"""The plain mean-variance network: the paper's NN and, with several members, its Ens-NN."""

from typing import final

from sigmax.estimators.recipe import Recipe
from sigmax.estimators.variance_base import AbstractVarianceNetworkRegressor

__all__ = ["MeanVarianceRegressor"]


@final
class MeanVarianceRegressor(AbstractVarianceNetworkRegressor):
    """A mean network and a variance network, trained together on the Gaussian likelihood.

    Nix and Weigend's network: none of the four ideas of `CombinedRegressor`, the same engine,
    settings and presets otherwise. With ``n_members=5`` it is the Deep Ensemble of
    Lakshminarayanan et al., scored as the mixture that it is.

    Parameters
    ----------
    preset : None, "fast" or "paper"
    n_members : int
        Networks in the mixture; by default 1.
    loss : "likelihood", "beta" or "faithful"
        Plain likelihood, β-NLL with β = ½ (Seitzer et al.), or the squared error for the mean and
        the likelihood around it for the variance (Stirn et al.).
    hidden_sizes, activation, n_steps, warmup_fraction, batch_size, validation_fraction, patience, \
recalibrate, random_state, verbose
        As in `CombinedRegressor`.
    learning_rate, weight_decay : pair of float
        (For the mean, for the variance.)
    decay_rate : bool
        Let the step sizes fall to 0 along half a cosine.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import MeanVarianceRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (200, 1))
    >>> y = 3 * X[:, 0] + rng.normal(0, 1 + X[:, 0])
    >>> model = MeanVarianceRegressor(preset="fast", n_steps=300, random_state=0).fit(X, y)
    >>> model.predict_interval([[1.0], [9.0]], coverage=0.9).shape
    (2, 2)
    """

    def __init__(
        self,
        preset=None,
        *,
        n_members=1,
        loss=None,
        hidden_sizes=None,
        activation=None,
        n_steps=None,
        warmup_fraction=None,
        batch_size=None,
        learning_rate=None,
        weight_decay=None,
        decay_rate=None,
        validation_fraction=None,
        patience=None,
        recalibrate=None,
        random_state=None,
        verbose=0,
    ):
        self.preset = preset
        self.n_members = n_members
        self.loss = loss
        self.hidden_sizes = hidden_sizes
        self.activation = activation
        self.n_steps = n_steps
        self.warmup_fraction = warmup_fraction
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.decay_rate = decay_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.recalibrate = recalibrate
        self.random_state = random_state
        self.verbose = verbose

    def _adapt(self, recipe: Recipe) -> Recipe:
        return recipe.plain()
