"""The standard variational autoencoder, with four likelihoods to choose from."""

from typing import final

import numpy as np

from sigmax.errors import InvalidDataError
from sigmax.generative.base import AbstractVAE
from sigmax.generative.likelihoods import LIKELIHOODS, AbstractLikelihood, FeatureUnits
from sigmax.generative.schedule import VAEStage
from sigmax.generative.settings import VAESettings
from sigmax.settings import store

__all__ = ["VAE"]


@final
class VAE(AbstractVAE):
    """A variational autoencoder (Kingma and Welling; Rezende, Mohamed and Wierstra).

    Encoder and decoder are perceptrons with batch norm and ReLU, one for the mean and one for each
    further parameter, all trained at once by Adam.

    Parameters
    ----------
    likelihood : "bernoulli", "normal", "shared" or "student", default "normal"
        Density of a feature given the code: a Normal with a std from the decoder; a Normal with one
        learned std for everything (the σ-VAE); a Student-t with scale and degrees of freedom from
        the decoder; or 0 and 1, for which `scaling` and `min_std` do not matter.
    n_latent : int, default 2
        Dimensions of a code.
    hidden_sizes : tuple of int, default (512, 256, 128)
        Layers of the encoder's networks; the decoder's are the same, mirrored.
    n_steps : int, default 20000
        Training steps, rounded up to whole chunks of up to 100.
    batch_size : int, default 512
        Rows of a batch.
    learning_rate : float, default 0.001
        Step size of Adam.
    warm_up : float, default 0.5
        Share of the steps in which the weight of the divergence grows from 0 to 1.
    min_std : float, default None
        Least standard deviation (scale, for Student-t) of the decoder in the units of X; None is
        0.01 standard deviations of each feature. Without one the likelihood has no bound.
    scaling : "none" or "standard", default "standard"
        Whether the networks see standardised features, or X as it is (images between 0 and 1).
    validation_fraction : float, default 0.0
        Share of the rows that is held out to choose the best snapshot, by their bound, once the
        warm-up is over; 0 keeps the last one. Rows that are equal are held out together.
    patience : int, default None
        Scorings, one per chunk, without a better snapshot before training stops; 0 or None never
        stops early. Without held-out rows it has no effect.
    random_state : int, RandomState, Generator or None
        Seed of all draws.
    verbose : int, default 0
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

    default_recipe = VAESettings()

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

    def _likelihood(self, units: FeatureUnits) -> AbstractLikelihood:
        return LIKELIHOODS[self._settings().likelihood](units)

    def _stages(self) -> tuple[VAEStage, ...]:
        return self._create_stages(splits=False)

    def _is_bernoulli(self) -> bool:
        return self._settings().likelihood == "bernoulli"

    def _keeps_units(self) -> bool:
        return super()._keeps_units() or self._is_bernoulli()

    def _check_values(self, X: np.ndarray) -> None:
        if self._is_bernoulli() and not (X.min() >= 0 and X.max() <= 1):
            rule = "between 0 and 1 for likelihood='bernoulli'"
            raise InvalidDataError(f"`X` must be {rule}, got values in [{X.min()}, {X.max()}].")
