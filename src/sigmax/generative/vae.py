"""Variational autoencoders as scikit-learn estimators: NumPy arrays in and out."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from sigmax.checks import check_count, check_flag
from sigmax.distributions import Predictive
from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.generative.autoencoder import VAEModel
from sigmax.generative.training import AbstractVAESettings, CombVAESettings, VAESettings, fit_models
from sigmax.random import make_key, named_generator
from sigmax.saving import AbstractSavable
from sigmax.settings import store
from sigmax.tables.table import in_fitted_order

V = TypeVar("V", bound="AbstractVAE")  # beartype knows no Self


class AbstractVAE(AbstractSavable):
    """A variational autoencoder with a standard Normal prior; a final class has its settings.

    A ``random_state`` is an int, RandomState, Generator or None, which draws anew in every call.
    """

    model_type = VAEModel
    presets: ClassVar[Mapping[str, AbstractVAESettings]]
    """Settings by name, those of "default"."""
    model_: VAEModel
    n_latent: int
    n_steps: int
    hidden_sizes: tuple[int, ...]
    random_state: Any
    verbose: Any

    def fit(self: V, X, y=None) -> V:
        """Learn from the rows of ``X`` (n, d); ``y`` is ignored.

        A fit that fails or is interrupted leaves the model as it was before.
        """
        fit_together([self], [X])
        return self

    @property
    def history_(self) -> dict[str, list]:
        check_is_fitted(self, "model_")
        return {name: values.tolist() for name, values in self.model_.history.items()}

    def encode(self, X) -> NDArray[np.float64]:
        """Means of the codes of the rows of ``X``, of shape (n, n_latent)."""
        return self.encode_dist(X).mean

    def encode_dist(self, X) -> Predictive:
        """q(z | x) of every row: one Normal per latent dimension."""
        rows = self._read(X)
        return Predictive(self.model_.encode(rows))

    def decode_dist(self, z) -> Predictive:
        """p(x | z) of every row of ``z``: one density per feature, in the units of X."""
        codes = self._check_codes(z)
        return Predictive(self.model_.decode(codes))

    def reconstruct(self, X) -> NDArray[np.float64]:
        """Mean of the decoder at the mean of every row's code."""
        return self.decode_dist(self.encode(X)).mean

    def sample(
        self, n: int = 1, with_noise: bool = True, random_state: Any = None
    ) -> NDArray[np.float64]:
        """``n`` new rows: codes from the prior, then draws from the decoder's density.

        Without ``with_noise``, means of that density.
        """
        check_is_fitted(self)
        n, with_noise = check_count("n", n), check_flag("with_noise", with_noise)
        rng = named_generator(make_key(random_state), "samples")
        dist = self.decode_dist(rng.normal(size=(n, self.model_.autoencoder.n_latent)))
        if not with_noise:
            return dist.mean
        return dist.sample(1, random_state=int(rng.integers(2**31 - 1)))[0]

    def elbo(self, X, n_samples: int = 1, random_state: Any = 0) -> NDArray[np.float64]:
        """Evidence lower bound of every row, from ``n_samples`` draws of its code."""
        return self._bounds(X, n_samples, random_state)[0]

    def log_prob(self, X, n_samples: int = 500, random_state: Any = 0) -> NDArray[np.float64]:
        """log p(x) of every row, by importance sampling with q(z | x): a lower bound.

        It grows with ``n_samples``, up to the marginal likelihood; the memory used does not.
        """
        return self._bounds(X, n_samples, random_state)[1]

    def score(self, X, y=None) -> float:
        """Mean of `log_prob`; ``y`` is ignored."""
        return float(self.log_prob(X).mean())

    def _bounds(self, X, n_samples: int, random_state: Any) -> tuple[np.ndarray, np.ndarray]:
        n_samples, rows = check_count("n_samples", n_samples), self._read(X)
        return self.model_.bounds(rows, make_key(random_state), n_samples)

    def _read(self, X, *, reset: bool = False) -> np.ndarray:
        """Checked rows; with ``reset`` the columns are those of a fit."""
        if not reset:
            check_is_fitted(self)
            X = in_fitted_order(self, X)
        types, fewest = (np.float64, np.float32), 2 if reset else 1
        return np.asarray(
            validate_data(self, X, reset=reset, dtype=types, ensure_min_samples=fewest)
        )

    def _check_codes(self, z) -> np.ndarray:
        check_is_fitted(self)
        try:
            codes = check_array(z, dtype="float32", input_name="z")
        except (TypeError, ValueError) as error:
            raise InvalidDataError(f"`z` cannot be used: {error}") from None
        if codes.shape[1] != self.model_.autoencoder.n_latent:
            rule = f"an array of shape (n, {self.model_.autoencoder.n_latent})"
            raise InvalidDataError(f"`z` must be {rule}, got shape {codes.shape}.")
        return codes

    def _settings(self) -> AbstractVAESettings:
        """All settings, checked."""
        check_count("verbose", self.verbose, minimum=0)
        return self.presets["default"].override(self.get_params(deep=False))


def fit_together(models: Sequence[AbstractVAE], sets: Sequence[Any]) -> None:
    """Fit each model to its own ``X``, all in one training.

    The models share class and settings, up to the seed, and the sets one shape; sets that are the
    same object are kept once. Every model ends as if it had been fitted alone, up to rounding; one
    compilation serves them all, and they are spread over all devices. A training that fails or is
    interrupted leaves all models as they were.
    """
    settings = [model._settings() for model in models]
    if len(models) != len(sets) or not models or any(own != settings[0] for own in settings):
        raise InvalidArgumentError(
            "Models that are fitted together need the same class and settings, and one set each."
        )
    copies = [model.unfitted() for model in models]
    read = [copy._read(X, reset=True) for copy, X in zip(copies, sets, strict=True)]
    first = {id(X): number for number, X in reversed(list(enumerate(sets)))}
    rows = [read[first[id(X)]] for X in sets]
    keys = [make_key(model.random_state) for model in models]
    fitted = fit_models(settings[0], rows, keys, models[0].verbose)
    for model, copy, value in zip(models, copies, fitted, strict=True):
        model.become(copy, value)


@final
class VAE(AbstractVAE):
    """A variational autoencoder (Kingma and Welling; Rezende, Mohamed and Wierstra).

    Encoder and decoder are perceptrons with batch norm and ReLU, one for the mean and one for each
    further parameter, all trained at once by Adam.

    Parameters
    ----------
    likelihood : "bernoulli", "normal", "shared" or "student"
        Density of a feature given the code: "normal" is a Normal with a standard deviation from the
        decoder; "shared" a Normal with one learned standard deviation for all rows and features
        (the σ-VAE); "student" a Student-t with scale and degrees of freedom from the decoder;
        "bernoulli" is for values between 0 and 1, and ignores `scaling` and `min_std`.
    n_latent : int
        Dimensions of a code.
    hidden_sizes : tuple of int
        Hidden layers of the encoder's networks; those of the decoder are the same, mirrored.
    n_steps : int
        Training steps, rounded up to whole chunks of up to 100.
    batch_size : int
        Rows of a batch.
    learning_rate : float
        Step size of Adam.
    warm_up : float
        Share of the steps in which the weight of the divergence grows from 0 to 1.
    min_std : float, optional
        Smallest standard deviation (scale, for Student-t) of the decoder in the units of X; None is
        0.01 standard deviations of each feature. Without one the likelihood is unbounded.
    scaling : "none" or "standard"
        "standard" standardises the features; "none" passes X to the networks as it is (images
        between 0 and 1).
    validation_fraction : float
        Share of the rows that is held out to choose the best checkpoint after the warm-up, by their
        ELBO; 0 keeps the last one. Equal rows are held out together.
    patience : int, optional
        Validations, one per chunk, without a better checkpoint before training stops; 0 or None
        never stops early. Without validation rows it has no effect.
    random_state : int, RandomState, Generator or None
        Seed of all draws.
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    history_ : dict of lists
        ELBO, log-likelihood and divergence of the training batches after each chunk, and the ELBO
        of the validation rows.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 4)) * [1.0, 2.0, 3.0, 4.0]
    >>> settings = {"hidden_sizes": (32,), "batch_size": 128, "n_steps": 100}
    >>> vae = VAE(**settings, random_state=0).fit(X)
    >>> vae.sample(5).shape, vae.encode(X).shape, vae.decode_dist([[0.0, 0.0]])
    ((5, 4), (200, 2), Predictive(Normal, shape=(1, 4)))
    """

    presets = MappingProxyType({"default": VAESettings()})

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


@final
class CombVAE(AbstractVAE):
    """A variational autoencoder whose decoder variance is trained by the Combined method.

    The four ideas of `CombinedRegressor`, in latent space. The variance given a code is
    inverse-Gamma, so that a feature is Student-t. It is trained on batches of neighbours in data
    space with Horvitz-Thompson weights, and never in the same step as the mean: in the warm-up
    encoder and mean learn alone, with one shared standard deviation; after it, steps of encoder and
    mean alternate with steps of the variance networks. Far from all codes the variance tends to
    that of each feature in the data. The inducing points of the gate follow the codes: they are
    refitted, on draws of q(z | x), before every chunk of training and after the last.

    Parameters
    ----------
    n_latent, hidden_sizes, n_steps, batch_size, learning_rate, warm_up, min_std, scaling
        As in `VAE`.
    n_inducing : int
        Inducing points of the gate.
    n_secondary : int
        Neighbours drawn of each of the 16 centres of a locality batch.
    n_neighbors : int
        Neighbours of a centre to draw from, at most the number of rows. With more than 64 features,
        they are nearest in the first 32 principal components.
    validation_fraction, patience, random_state, verbose
        As in `VAE`.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 4)) * [1.0, 2.0, 3.0, 4.0]
    >>> settings = {"hidden_sizes": (32,), "batch_size": 128, "n_steps": 100}
    >>> vae = CombVAE(**settings, random_state=0).fit(X)
    >>> far = vae.decode_dist([[1000.0, 0.0]])
    >>> far, bool(np.allclose(far.variance, X.var(axis=0), rtol=0.01))
    (Predictive(StudentT, shape=(1, 4)), True)
    """

    presets = MappingProxyType({"default": CombVAESettings()})

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
        n_secondary=32,
        n_neighbors=50,
        validation_fraction=0.0,
        patience=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())

    def gate(self, z) -> NDArray[np.float64]:
        """Gate of every row of ``z``: 0 on the codes of the data, 1 far from them."""
        codes = self._check_codes(z)
        return self.model_.gate(codes)
