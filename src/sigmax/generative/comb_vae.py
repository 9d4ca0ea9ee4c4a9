"""The paper's Comb-VAE: an autoencoder whose decoder knows how far its variance can be trusted."""

from typing import final

import jax.numpy as jnp
import numpy as np

from sigmax.checks import check_count
from sigmax.generative.base import AbstractVAE
from sigmax.generative.likelihoods import FeatureUnits, GatedStudentLikelihood
from sigmax.generative.schedule import VAEStage

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
    n_latent, hidden_sizes, n_steps, batch_size, learning_rate, warm_up, min_std, scaling
        As for `VAE`; `min_std` is the least scale of the Student-t.
    n_inducing : int
        Inducing points of the gate.
    n_primary, n_secondary, n_neighbors : int
        Centres of a locality batch, neighbours drawn of each, and neighbours to draw from; reduced
        where the data are smaller. With more than 64 features, neighbours are those by the first
        32 principal components.
    validation_fraction, patience, random_state, verbose
        As for `VAE`.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 4)) * [1.0, 2.0, 3.0, 4.0]
    >>> settings = {"hidden_sizes": (32,), "batch_size": 128, "n_steps": 100}
    >>> vae = CombVAE(**settings, random_state=0).fit(X)
    >>> far = vae.decode_dist([[1000.0, 0.0]])
    >>> far, bool(np.allclose(far.variance, X.var(axis=0), rtol=0.01))
    (Predictive(StudentT, shape=(1, 4)), True)
    """

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
        self.n_latent = n_latent
        self.hidden_sizes = hidden_sizes
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.warm_up = warm_up
        self.min_std = min_std
        self.scaling = scaling
        self.n_inducing = n_inducing
        self.n_primary = n_primary
        self.n_secondary = n_secondary
        self.n_neighbors = n_neighbors
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose

    def gate(self, z) -> np.ndarray:
        """How far from the codes every row of ``z`` is: 0 on them, 1 far away."""
        codes = self._check_codes(z)
        likelihood = self.model_.decoder.likelihood
        assert isinstance(likelihood, GatedStudentLikelihood)
        return np.asarray(likelihood.gate_value(jnp.asarray(codes)), dtype=np.float64)

    def _likelihood(self, units: FeatureUnits) -> GatedStudentLikelihood:
        n_inducing = check_count("n_inducing", self.n_inducing)
        return GatedStudentLikelihood.create(units, self._check_latent(), n_inducing)

    def _stages(self) -> tuple[VAEStage, ...]:
        check_count("n_neighbors", self.n_neighbors)
        return self._base_stages(
            n_primary=check_count("n_primary", self.n_primary),
            n_secondary=check_count("n_secondary", self.n_secondary),
            splits=True,
        )

    def _n_neighbors(self, n_rows: int) -> int:
        return min(self.n_neighbors, n_rows)
