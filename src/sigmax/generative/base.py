"""What the generative models do alike: NumPy in and out, densities in the units of X."""

from abc import abstractmethod
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from sigmax.checks import check_count, check_flag
from sigmax.distributions import Predictive
from sigmax.errors import InvalidDataError
from sigmax.estimators.blocks import by_blocks
from sigmax.estimators.saving import AbstractSavable, named_leaves, restore
from sigmax.generative.autoencoder import Autoencoder, Decoder, Encoder
from sigmax.generative.evaluation import bounds, decode, encode
from sigmax.generative.joint_fit import fit_together
from sigmax.generative.likelihoods import AbstractLikelihood, FeatureUnits
from sigmax.generative.schedule import VAEStage, create_stages
from sigmax.generative.settings import AbstractVAESettings
from sigmax.random import make_key, named_generator
from sigmax.scaling import Standardizer
from sigmax.tables.table import in_fitted_order

__all__ = ["AbstractVAE"]

V = TypeVar("V", bound="AbstractVAE")  # beartype knows no Self

HISTORY = ("step", "elbo", "log_likelihood", "kl", "held_out_elbo")
"""What is known of every chunk of training, the last one where rows are held out."""

RELATIVE_FLOOR = 0.01
"""Least std of a decoder where none is given, in standard deviations of the feature."""


class AbstractVAE(AbstractSavable):
    """A variational autoencoder with a standard Normal prior.

    A final class gives the likelihood of its decoder and the plan of its training.
    """

    default_recipe: ClassVar[AbstractVAESettings]
    """Its settings and their defaults."""

    n_latent: int
    hidden_sizes: Any
    n_steps: int
    min_std: Any
    validation_fraction: float
    random_state: Any
    verbose: Any

    model_: Autoencoder
    x_scaling_: Standardizer
    history_: dict[str, list]

    @abstractmethod
    def _likelihood(self, units: FeatureUnits) -> AbstractLikelihood:
        """What the decoder's outputs mean, untrained."""

    @abstractmethod
    def _stages(self) -> tuple[VAEStage, ...]:
        """How to train, from checked settings."""

    def _n_neighbors(self, n_rows: int) -> int:
        """Length of the neighbour lists that the training needs; 1 for none."""
        return 1

    def _keeps_units(self) -> bool:
        """Whether the networks see X as it is."""
        return self._settings().scaling == "none"

    def fit(self: V, X, y=None) -> V:
        """Learn from the rows of ``X`` (n, d); ``y`` is ignored.

        A fit that fails or is interrupted leaves the model as it was before.
        """
        fit_together([self], [X])
        return self

    def encode(self, X) -> NDArray[np.float64]:
        """Means of the codes of the rows of ``X``, of shape (n, n_latent)."""
        return self.encode_dist(X).mean

    def encode_dist(self, X) -> Predictive:
        """q(z | x) of every row: one Normal per latent dimension."""
        rows = self._networks_rows(X)
        return Predictive(by_blocks(lambda x: encode(self.model_.encoder, x), rows, axis=0))

    def decode_dist(self, z) -> Predictive:
        """p(x | z) of every row of ``z``: one density per feature, in the units of X."""
        z = self._check_codes(z)
        dist = by_blocks(lambda block: decode(self.model_.decoder, block), z, axis=0)
        if not self._keeps_units():
            dist = dist.affine(self.x_scaling_.mean[None], self.x_scaling_.scale[None])
        return Predictive(dist)

    def reconstruct(self, X) -> NDArray[np.float64]:
        """The decoder's mean at the mean of every row's code."""
        return self.decode_dist(self.encode(X)).mean

    def sample(
        self, n: int = 1, with_noise: bool = True, random_state: Any = None
    ) -> NDArray[np.float64]:
        """``n`` new rows: codes from the prior, then draws from the decoder's density.

        Without ``with_noise`` the decoder's mean in their place. ``random_state`` is an int,
        RandomState, Generator or None, which takes new codes in every call.
        """
        n, with_noise = check_count("n", n), check_flag("with_noise", with_noise)
        rng = named_generator(make_key(random_state), "samples")
        dist = self.decode_dist(rng.normal(size=(n, self._n_latent())))
        if not with_noise:
            return dist.mean
        return dist.sample(1, random_state=int(rng.integers(2**31 - 1)))[0]

    def elbo(self, X, n_samples: int = 1, random_state: Any = 0) -> NDArray[np.float64]:
        """Evidence lower bound of every row, from ``n_samples`` draws of its code.

        ``random_state`` is an int, RandomState, Generator or None.
        """
        return self._bounds(X, n_samples, random_state)[0]

    def log_prob(self, X, n_samples: int = 500, random_state: Any = 0) -> NDArray[np.float64]:
        """log p(x) of every row, by importance sampling with q(z | x): a bound from below.

        It grows with ``n_samples``, up to the marginal likelihood. Memory does not grow with it.
        ``random_state`` is an int, RandomState, Generator or None.
        """
        return self._bounds(X, n_samples, random_state)[1]

    def score(self, X, y=None) -> float:
        """Mean of `log_prob`; ``y`` is ignored."""
        return float(self.log_prob(X).mean())

    def _bounds(self, X, n_samples: int, random_state: Any) -> tuple[np.ndarray, np.ndarray]:
        n_samples, rows = check_count("n_samples", n_samples), self._networks_rows(X)
        found = bounds(self.model_, rows, make_key(random_state), n_samples)
        return found[0] - self._log_unit(), found[1] - self._log_unit()

    def _log_unit(self) -> float:
        """What a log-density in the units of X is less than one in those of the networks."""
        return float(np.log(self.x_scaling_.scale).sum())

    def _n_latent(self) -> int:
        check_is_fitted(self)
        return self.model_.encoder.n_latent

    def _check_codes(self, z) -> np.ndarray:
        n_latent = self._n_latent()
        try:
            codes = np.asarray(z, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise InvalidDataError(f"`z` must be numbers: {error}.") from None
        if codes.ndim != 2 or codes.shape[1] != n_latent or not len(codes):
            rule = f"an array of shape (n, {n_latent}) with at least one row"
            raise InvalidDataError(f"`z` must be {rule}, got shape {codes.shape}.")
        if not np.isfinite(codes).all():
            n_bad = np.sum(~np.isfinite(codes))
            raise InvalidDataError(f"`z` must be finite, got {n_bad} NaN or infinite values.")
        return codes

    def _check_values(self, X: np.ndarray) -> None:
        """Refuse rows that the likelihood cannot have."""

    def _networks_rows(self, X, *, reset: bool = False) -> np.ndarray:
        """Checked rows in the units of the networks; with ``reset`` these units are learned."""
        if not reset:
            check_is_fitted(self)
        least = 2 if reset else 1
        types = (np.float64, np.float32)
        X = X if reset else in_fitted_order(self, X)
        checked = validate_data(self, X, reset=reset, dtype=types, ensure_min_samples=least)
        rows = np.asarray(checked)
        self._check_values(rows)
        if self._keeps_units():
            width = rows.shape[1]
            if reset:
                self.x_scaling_ = Standardizer(np.zeros(width), np.ones(width))
            return rows.astype(np.float32)
        if reset:
            self.x_scaling_ = Standardizer.fit(rows, np.ones(len(rows)))
        return self.x_scaling_(rows)

    def _create_model(self, X: np.ndarray, rng: np.random.Generator) -> Autoencoder:
        """An untrained model for rows in the units of the networks."""
        floor = np.full(X.shape[1], RELATIVE_FLOOR)
        settings = self._settings()
        if settings.min_std is None:
            std = X.std(axis=0, dtype=np.float64)
            floor *= np.where(std > 0, std, 1.0)
        else:
            floor[:] = settings.min_std / self.x_scaling_.scale
        units = FeatureUnits.create(X, floor)
        hidden_sizes, n_latent = settings.hidden_sizes, settings.n_latent
        encoder = Encoder.create(rng, X.shape[1], hidden_sizes, n_latent)
        likelihood = self._likelihood(units)
        return Autoencoder(encoder, Decoder.create(rng, n_latent, hidden_sizes[::-1], likelihood))

    def _settings(self) -> Any:
        """All settings, checked."""
        return self.default_recipe.override(self.get_params(deep=False), keep_none=False)

    def _create_stages(self, **others: Any) -> tuple[VAEStage, ...]:
        """The stages by the settings that all models share, and some others."""
        check_count("verbose", self.verbose, minimum=0)
        settings = self._settings()
        return create_stages(
            n_steps=settings.n_steps,
            warm_up=settings.warm_up,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            patience=settings.patience or 0,
            keep_best=settings.validation_fraction > 0,
            **others,
        )

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        arrays = named_leaves("model", self.model_)
        arrays |= {f"history.{name}": np.asarray(s) for name, s in self.history_.items()}
        return {}, arrays | self.x_scaling_.state("x")

    def _set_state(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.x_scaling_ = Standardizer.from_state(arrays, "x", self.n_features_in_)
        self.history_ = {
            name: arrays[f"history.{name}"].tolist()
            for name in HISTORY
            if f"history.{name}" in arrays
        }
        some_rows = np.zeros((2, self.n_features_in_), dtype=np.float32)
        skeleton = self._create_model(some_rows, np.random.default_rng(0))
        self.model_ = jax.tree.map(jnp.asarray, restore(skeleton, "model", arrays))
