"""The paper's Comb-VAE: an autoencoder whose decoder knows how far its variance can be trusted."""

from typing import final

import jax.numpy as jnp
import numpy as np

from sigmax.generative.base import AbstractVAE
from sigmax.generative.likelihoods import FeatureUnits, GatedStudentLikelihood
from sigmax.generative.schedule import VAEStage
from sigmax.generative.settings import CombVAESettings
from sigmax.settings import store

__all__ = ["CombVAE"]


@final
class CombVAE(AbstractVAE):
    """A variational autoencoder whose decoder variance is trained by the Combined method.

    The four ideas of `CombinedRegressor`, in latent space. The variance given a code is
    inverse-Gamma, so that a feature is Student-t. It is trained on batches of neighbours (in data
    space) with Horvitz-Thompson weights, and never in the same step as the mean: in the
    warm-up encoder and mean learn alone, under one common standard deviation; after it every
    iteration is a step of encoder and mean, with the variance networks held fixed, and a step of
    the variance networks, with all else held fixed. Away from all codes the variance tends to that
    of each feature in the data; the inducing points that tell where codes are follow them: they
    are estimated anew, from draws of q(z | x), before every chunk of training and after the last.

    Parameters
    ----------
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
    n_inducing : int, default 200
        Inducing points of the gate.
    n_primary : int, default 16
        Centres of a locality batch.
    n_secondary : int, default 32
        Neighbours drawn of each centre.
    n_neighbors : int, default 50
        Neighbours to draw from; reduced where the data are smaller. With more than 64 features,
        neighbours are those by the first 32 principal components.
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

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 4)) * [1.0, 2.0, 3.0, 4.0]
    >>> settings = {"hidden_sizes": (32,), "batch_size": 128, "n_steps": 100}
    >>> vae = CombVAE(**settings, random_state=0).fit(X)
    >>> far = vae.decode_dist([[1000.0, 0.0]])
    >>> far, bool(np.allclose(far.variance, X.var(axis=0), rtol=0.01))
    (Predictive(StudentT, shape=(1, 4)), True)
    """

    default_recipe = CombVAESettings()

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
        n_primary=16,
        n_secondary=32,
        n_neighbors=50,
        validation_fraction=0.0,
        patience=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())

    def gate(self, z) -> np.ndarray:
        """How far from the codes every row of ``z`` is: 0 on them, 1 far away."""
        codes = self._check_codes(z)
        likelihood = self.model_.decoder.likelihood
        assert isinstance(likelihood, GatedStudentLikelihood)
        return np.asarray(likelihood.gate_value(jnp.asarray(codes)), dtype=np.float64)

    def _likelihood(self, units: FeatureUnits) -> GatedStudentLikelihood:
        settings = self._settings()
        return GatedStudentLikelihood.create(units, settings.n_latent, settings.n_inducing)

    def _stages(self) -> tuple[VAEStage, ...]:
        settings = self._settings()
        sizes = {"n_primary": settings.n_primary, "n_secondary": settings.n_secondary}
        return self._create_stages(splits=True, **sizes)

    def _n_neighbors(self, n_rows: int) -> int:
        return min(self._settings().n_neighbors, n_rows)
