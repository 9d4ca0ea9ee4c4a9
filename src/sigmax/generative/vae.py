"""The standard variational autoencoder, with four likelihoods to choose from."""

from typing import final

import numpy as np

from sigmax.checks import check_choice
from sigmax.errors import InvalidDataError
from sigmax.generative.base import AbstractVAE
from sigmax.generative.likelihoods import (
    AbstractLikelihood,
    BernoulliLikelihood,
    FeatureUnits,
    NormalLikelihood,
    SharedLikelihood,
    StudentLikelihood,
)
from sigmax.generative.schedule import VAEStage

__all__ = ["VAE"]

LIKELIHOODS = {
    "bernoulli": BernoulliLikelihood,
    "normal": NormalLikelihood,
    "shared": SharedLikelihood.create,
    "student": StudentLikelihood,
}


@final
class VAE(AbstractVAE):
    """A variational autoencoder (Kingma and Welling; Rezende, Mohamed and Wierstra).

    Encoder and decoder are perceptrons with batch norm and ReLU, one for the mean and one for each
    further parameter, all trained at once by Adam.

    Parameters
    ----------
    likelihood : "normal", "shared", "student" or "bernoulli"
        Density of a feature given the code: a Normal with a std from the decoder; a Normal with one
        learned std for everything (the σ-VAE); a Student-t with scale and degrees of freedom from
        the decoder; or 0 and 1, for which `scaling` and `min_std` do not matter.
    n_latent : int
        Dimensions of a code.
    hidden_sizes : tuple of int
        Layers of the encoder's networks; the decoder's are the same, mirrored.
    n_steps, batch_size, learning_rate
        Iterations (rounded up to whole chunks of up to 100), rows of a batch, step size of Adam.
    warm_up : float
        Share of the iterations in which the weight of the divergence grows from 0 to 1.
    min_std : float
        Least standard deviation (scale, for Student-t) of the decoder in the units of X; by default
        0.01 standard deviations of each feature. Without one the likelihood has no bound.
    scaling : "standard" or "none"
        Whether the networks see standardised features, or X as it is (images between 0 and 1).
    validation_fraction : float
        Share of the rows, from 0 to 0.5, that is held out to choose the best snapshot, by their
        bound, once the warm-up is over; 0 keeps the last one. Rows that are equal are held out
        together.
    patience : int or None
        Scorings, one per chunk, without a better snapshot before training stops; 0 or None never
        stops early. Without held-out rows it has no effect.
    random_state : int, RandomState, Generator or None
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    history_ : dict of lists
        Bound, log-likelihood and divergence of the training batches after each chunk, and the
        bound of the held-out rows.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 4)) * [1.0, 2.0, 3.0, 4.0]
    >>> settings = {"hidden_sizes": (32,), "batch_size": 128, "n_steps": 100}
    >>> vae = VAE(**settings, random_state=0).fit(X)
    >>> vae.sample(5).shape, vae.encode(X).shape, vae.decode_dist([[0.0, 0.0]])
    ((5, 4), (200, 2), Predictive(Normal, shape=(1, 4)))
    """

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
        self.likelihood = likelihood
        self.n_latent = n_latent
        self.hidden_sizes = hidden_sizes
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.warm_up = warm_up
        self.min_std = min_std
        self.scaling = scaling
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose

    def _likelihood(self, units: FeatureUnits) -> AbstractLikelihood:
        return LIKELIHOODS[self._kind()](units)

    def _stages(self) -> tuple[VAEStage, ...]:
        self._kind()
        return self._base_stages(splits=False)

    def _kind(self) -> str:
        return check_choice("likelihood", self.likelihood, LIKELIHOODS)

    def _keeps_units(self) -> bool:
        return super()._keeps_units() or self._kind() == "bernoulli"

    def _check_values(self, X: np.ndarray) -> None:
        if self._kind() == "bernoulli" and not (X.min() >= 0 and X.max() <= 1):
            rule = "between 0 and 1 for likelihood='bernoulli'"
            raise InvalidDataError(f"`X` must be {rule}, got values in [{X.min()}, {X.max()}].")
