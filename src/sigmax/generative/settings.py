"""Settings of the generative models."""

from dataclasses import dataclass
from functools import partial
from typing import final

from sigmax.checks import check_count
from sigmax.generative.likelihoods import LIKELIHOODS
from sigmax.settings import (
    COUNT,
    COUNT_OR_ZERO,
    POSITIVE,
    SIZES,
    AbstractSettings,
    Rule,
    number,
    one_of,
    setting,
)

__all__ = ["AbstractVAESettings", "CombVAESettings", "VAESettings"]


@dataclass(frozen=True, kw_only=True)
class AbstractVAESettings(AbstractSettings):
    """What all autoencoders share."""

    n_latent: int = setting(2, COUNT, "Dimensions of a code.")
    hidden_sizes: tuple[int, ...] = setting(
        (512, 256, 128),
        SIZES,
        "Layers of the encoder's networks; the decoder's are the same, mirrored.",
    )
    n_steps: int = setting(
        20_000, COUNT, "Training steps, rounded up to whole chunks of up to 100."
    )
    batch_size: int = setting(512, Rule("int", partial(check_count, minimum=2)), "Rows of a batch.")
    learning_rate: float = setting(1e-3, POSITIVE, "Step size of Adam.")
    warm_up: float = setting(
        0.5,
        number(above=0, below=1, inclusive=True),
        "Share of the steps in which the weight of the divergence grows from 0 to 1.",
    )
    min_std: float | None = setting(
        None,
        POSITIVE,
        """Least standard deviation (scale, for Student-t) of the decoder in the units of X; None is
        0.01 standard deviations of each feature. Without one the likelihood has no bound.""",
    )
    scaling: str = setting(
        "standard",
        one_of(("none", "standard")),
        "Whether the networks see standardised features, or X as it is (images between 0 and 1).",
    )
    validation_fraction: float = setting(
        0.0,
        number(above=0, below=0.5, inclusive=True),
        """Share of the rows that is held out to choose the best snapshot, by their bound, once the
        warm-up is over; 0 keeps the last one. Rows that are equal are held out together.""",
    )
    patience: int | None = setting(
        None,
        COUNT_OR_ZERO,
        """Scorings, one per chunk, without a better snapshot before training stops; 0 or None never
        stops early. Without held-out rows it has no effect.""",
    )


@final
@dataclass(frozen=True, kw_only=True)
class VAESettings(AbstractVAESettings):
    """Those of `VAE`."""

    likelihood: str = setting(
        "normal",
        one_of(LIKELIHOODS),
        """Density of a feature given the code: a Normal with a std from the decoder; a Normal with
        one learned std for everything (the σ-VAE); a Student-t with scale and degrees of freedom
        from the decoder; or 0 and 1, for which `scaling` and `min_std` do not matter.""",
    )


@final
@dataclass(frozen=True, kw_only=True)
class CombVAESettings(AbstractVAESettings):
    """Those of `CombVAE`."""

    n_inducing: int = setting(200, COUNT, "Inducing points of the gate.")
    n_primary: int = setting(16, COUNT, "Centres of a locality batch.")
    n_secondary: int = setting(32, COUNT, "Neighbours drawn of each centre.")
    n_neighbors: int = setting(
        50,
        COUNT,
        """Neighbours to draw from; reduced where the data are smaller. With more than 64 features,
        neighbours are those by the first 32 principal components.""",
    )
